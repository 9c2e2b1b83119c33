"""
A `Stream` without SSH: sh as a child process, given the script on standard input.
"""

import contextlib
import os
import select
import signal
import subprocess
import threading


class LocalStream:
    """
    Satisfies `mtpdeploy.remote.box.Stream`. The child gets a process group of its own.
    """

    def __init__(self, script: str) -> None:
        self._read, write = os.pipe()
        self._wake_read, self._wake_write = os.pipe()
        with os.fdopen(write, "wb") as output:
            self.process = subprocess.Popen(
                ["sh", "-s"],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError), self.process.stdin as stdin:
            stdin.write(script.encode())
        self._reading = threading.Lock()
        self._closing = threading.Lock()
        self._open = True

    def read(self, timeout: float) -> bytes | None:
        """
        What the child printed; b"" at its end or after `close`; None after `timeout` seconds.
        """
        with self._reading:
            if not self._open:
                return b""
            ready, _, _ = select.select([self._read, self._wake_read], [], [], timeout)
            if self._wake_read in ready:
                return b""
            return os.read(self._read, 1 << 18) if ready else None

    def cut(self) -> None:
        """
        End the line as a killed sshd session does: the reader dies, what it wrote can still be read.
        """
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def hang_up(self) -> None:
        """
        Close our end only: the reader has to notice by itself.
        """
        with self._closing:
            if self._open:
                os.write(self._wake_write, b"x")
                with self._reading:
                    self._open = False
                    os.close(self._read)
                os.close(self._wake_write)
                os.close(self._wake_read)

    def close(self) -> None:
        """
        End it; what was not read is lost.
        """
        self.hang_up()
        with self._closing:
            if self.process.returncode is None:
                self.cut()
                self.process.wait()
