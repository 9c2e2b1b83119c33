"""
Other programs, asked beside everything else and never waited for longer than they may take.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
import time

NVIDIA_SMI_PLACES = "/usr/bin:/usr/local/nvidia/bin:/usr/lib/wsl/lib"
"""Where nvidia-smi lies beside the PATH of a login: of a driver, a Kubernetes device plugin, WSL."""


def nvidia_smi(env: dict[str, str]) -> str | None:
    """
    Where nvidia-smi is for the login, or for what `env` would be given; None where it is not there.
    """
    own = os.environ.get("PATH", os.defpath)
    path = os.pathsep.join([own, env.get("PATH", own), NVIDIA_SMI_PLACES])
    return shutil.which("nvidia-smi", path=path)


class Asked:
    """
    A program that was started, and whose answer is read in a thread of its own.

    One that hangs in the kernel cannot be ended; it is left behind, and holds nothing of ours.
    """

    def __init__(self, words: list[str], env: dict[str, str]) -> None:
        self.out = b""
        self.err = b""
        self.status: int | None = None
        self.problem = ""
        self._reader: threading.Thread | None = None
        try:
            self._process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                env=env, cwd="/", start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            self.problem = str(error)
            return
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        self.out, self.err = self._process.communicate()
        self.status = self._process.returncode

    def answer(self, until: float) -> str | None:
        """
        What it printed, or None where it could not be started or has not ended by then (monotonic clock).
        """
        if self._reader is None:
            return None
        self._reader.join(max(0.0, until - time.monotonic()))
        if self.status is None:
            self._end()
            return None
        return self.out.decode("utf-8", "replace")

    def complaint(self) -> str:
        """
        The first lines of what a program that failed had to say.
        """
        text = (self.out + b"\n" + self.err).decode("utf-8", "replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        ended = "no answer in time" if self.status is None else f"exit status {self.status}"
        return " ".join(lines[:3])[:400] or ended

    def _end(self) -> None:
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except OSError:
            return
