"""
mtpdeploy as its users run it: a program of its own, with a state directory and a home of its own.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from mtpdeploy.cli import main
from mtpdeploy.demo.home import DemoHome
from mtpdeploy.remote import connect, retry

DEADLINE = 60.0
"""Seconds within which what must happen at all has to happen."""


class Done(Struct, frozen=True):
    """
    A command that ended.
    """

    status: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """
        What `--json` printed.
        """
        return json.loads(self.out)

    @property
    def errors(self) -> list[str]:
        """
        The lines that begin with `error: `.
        """
        return [line for line in self.err.splitlines() if line.startswith("error: ")]


class Going:
    """
    A command that runs; `err` grows as it speaks.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self._err = bytearray()
        self._out = bytearray()
        self._threads = [
            threading.Thread(target=self._read, args=(process.stderr, self._err), daemon=True),
            threading.Thread(target=self._read, args=(process.stdout, self._out), daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    @property
    def err(self) -> str:
        """
        What it has said so far.
        """
        return bytes(self._err).decode("utf-8", "replace")

    @property
    def out(self) -> str:
        """
        What it has printed so far.
        """
        return bytes(self._out).decode("utf-8", "replace")

    def until(self, text: str, seconds: float = DEADLINE) -> "Going":
        """
        Wait until it has said something.
        """
        deadline = time.monotonic() + seconds
        while text not in self.err:
            assert time.monotonic() < deadline, f"{text!r} was never said:\n{self.err[-3000:]}"
            assert self.process.poll() is None or text in self.err, f"it ended:\n{self.err[-3000:]}"
            time.sleep(0.005)
        return self

    def send(self, number: signal.Signals) -> "Going":
        """
        Send it a signal.
        """
        self.process.send_signal(number)
        return self

    def done(self, seconds: float = DEADLINE) -> Done:
        """
        Wait for its end.
        """
        status = self.process.wait(seconds)
        for thread in self._threads:
            thread.join(DEADLINE)
        return Done(status, self.out, self.err)

    @staticmethod
    def _read(pipe: Any, into: bytearray) -> None:
        with pipe:
            while data := pipe.read1(1 << 16):
                into.extend(data)


class Client:
    """
    Runs mtpdeploy in `folder`, where nothing of the user's own is seen.
    """

    def __init__(self, folder: Path, **environment: str) -> None:
        self.folder = folder
        self.state = folder / "state"
        folder.mkdir(parents=True, exist_ok=True)
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "LANG": "C.UTF-8",
            "COLUMNS": "160",
            "MTPDEPLOY_STATE_DIR": str(self.state),
            **environment,
        }

    def write_hosts(self, text: str) -> None:
        """
        The hosts.toml of the directory that it runs in.
        """
        (self.folder / "hosts.toml").write_text(text)

    def start(self, *words: str) -> Going:
        """
        Start a command.
        """
        return Going(
            subprocess.Popen(
                [sys.executable, "-X", "faulthandler", "-m", "mtpdeploy", *words],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        )

    def run(self, *words: str) -> Done:
        """
        Run a command to its end.
        """
        going = self.start(*words)
        try:
            return going.done()
        finally:
            going.process.kill()
            going.process.wait()


def until(happened: Callable[[], bool], what: str = "it") -> None:
    """
    Wait until a condition holds.
    """
    deadline = time.monotonic() + DEADLINE
    while not happened():
        assert time.monotonic() < deadline, f"{what} did not happen"
        time.sleep(0.01)


def census(home: DemoHome) -> list[str]:
    """
    Every process that lives in a home: servers, readers, shells.
    """
    return [role for _, _, role in home.living()]


def none_left(home: DemoHome) -> bool:
    """
    Whether nothing of a home lives, shortly after a session ended.
    """
    return remains(home, [])


def remains(home: DemoHome, roles: list[str]) -> bool:
    """
    Whether exactly this lives in a home, shortly after a session ended.
    """
    until(lambda: census(home) == roles, f"{roles} alone, beside {census(home)},")
    return True


class Here:
    """
    Runs mtpdeploy in this process, as `Client` runs it in one of its own: quicker, and with its waits cut.
    """

    def __init__(
        self, client: Client, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self._capsys = capsys
        monkeypatch.chdir(client.folder)
        monkeypatch.setenv("MTPDEPLOY_STATE_DIR", str(client.state))
        monkeypatch.setenv("COLUMNS", "160")
        monkeypatch.setattr(connect, "CONNECT_WAITS", (0.0, 0.0, 0.0, 0.0))
        monkeypatch.setattr(retry, "REPEAT_WAITS", (0.0, 0.0))

    def run(self, *words: str) -> Done:
        """
        Run a command to its end.
        """
        self._capsys.readouterr()
        status = main.run(words)
        said = self._capsys.readouterr()
        return Done(status, said.out, said.err)
