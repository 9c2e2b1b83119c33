"""
A `Box` without SSH: this machine, with a home of its own.
"""

import contextlib
import os
import selectors
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from mtpdeploy.core.machine import Host
from mtpdeploy.errors import ConnectionLost
from mtpdeploy.remote.box import Result

RUNNER = ("sh", "-c", 's=$(cat); exec </dev/null; eval "$s"')
"""Reads a script to its end, then runs it without standard input."""


class LocalBox:
    """
    Satisfies `mtpdeploy.remote.box.Box` by a plain sh with the given HOME and PATH.

    What is left of its scripts is killed when it is closed. `broken` makes it a box whose line is down.
    """

    def __init__(self, home: Path, *, path: str | None = None, env: dict[str, str] | None = None) -> None:
        self.host = Host(name="local", address="127.0.0.1")
        self.round_trips = 0
        self.noise = ""
        self.broken = False
        self._env = {"HOME": str(home), "PATH": path or os.environ["PATH"], **(env or {})}
        self._home = home
        self._started: list[subprocess.Popen[bytes]] = []

    def connect(self) -> None:
        """
        Nothing to do here.
        """

    def run(
        self, script: str, *, limit: float = 20, on_output: Callable[[bytes], None] | None = None
    ) -> Result:
        """
        See `Box.run`.
        """
        process = self._start(script, subprocess.PIPE)
        self.round_trips += 1
        assert process.stdout is not None
        assert process.stderr is not None
        out, err = bytearray(), bytearray()
        deadline = time.monotonic() + limit
        with selectors.DefaultSelector() as selector, process.stdout, process.stderr:
            selector.register(process.stdout, selectors.EVENT_READ, out)
            selector.register(process.stderr, selectors.EVENT_READ, err)
            while process.poll() is None or selector.select(0):
                if time.monotonic() > deadline:
                    raise ConnectionLost("the script did not end in time")
                for key, _ in selector.select(0.01):
                    data = os.read(key.fd, 1 << 16)
                    key.data.extend(data)
                    if not data:
                        selector.unregister(key.fileobj)
                    elif key.data is out and on_output is not None:
                        on_output(data)
        status = process.returncode
        return Result(status if status >= 0 else 128 - status, bytes(out), bytes(err))

    def stream(self, script: str) -> "LocalStream":
        """
        See `Box.stream`.
        """
        self.round_trips += 1
        return LocalStream(self._start(script, subprocess.DEVNULL))

    def open_port(self, port: int) -> socket.socket:
        """
        See `Box.open_port`.
        """
        self._refuse_if_broken()
        self.round_trips += 1
        return socket.create_connection(("127.0.0.1", port))

    def close(self) -> None:
        """
        See `Box.close`.
        """
        for process in self._started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._started.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _start(self, script: str, stderr: int) -> subprocess.Popen[bytes]:
        self._refuse_if_broken()
        process = subprocess.Popen(
            RUNNER,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=self._env,
            cwd=self._home,
            start_new_session=True,
        )
        self._started.append(process)
        assert process.stdin is not None
        with process.stdin as stdin:
            stdin.write(f"{{ :\n{script}\n\n}}\n".encode())
        return process

    def _refuse_if_broken(self) -> None:
        if self.broken:
            raise ConnectionLost("the line is down")


class LocalStream:
    """
    Satisfies `mtpdeploy.remote.box.Stream`.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        assert process.stdout is not None
        self._output = process.stdout
        self._waking, self._wake = socket.socketpair()
        self._lock = threading.Lock()
        self._closed = False

    def read(self, timeout: float) -> bytes | None:
        """
        See `Stream.read`.
        """
        with self._lock, selectors.DefaultSelector() as selector:
            if self._closed:
                return b""
            selector.register(self._output, selectors.EVENT_READ)
            selector.register(self._waking, selectors.EVENT_READ)
            ready = {key.fileobj for key, _ in selector.select(timeout)}
            if self._waking in ready:
                return b""
            return os.read(self._output.fileno(), 1 << 18) if ready else None

    def close(self) -> None:
        """
        See `Stream.close`.
        """
        with contextlib.suppress(OSError):
            self._wake.send(b"x")
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._output.close()
            self._waking.close()
            self._wake.close()
