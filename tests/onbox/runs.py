"""
Real runs on this machine: a box that is a plain sh, servers that misbehave, and the look at their family.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from mtpdeploy.core.launch import AttemptRecord
from mtpdeploy.core.machine import Host
from mtpdeploy.core.server import ServerSpec
from mtpdeploy.engines.base import Command
from mtpdeploy.onbox import script
from mtpdeploy.onbox.identity import family, identify, send
from mtpdeploy.remote.box import Result, Stream
from mtpdeploy.render import render_launch

T = TypeVar("T")

LOG = "20261201-093012Z-attempt-2.log"

SERVER = ServerSpec(name="qwen", flags={"model_path": "/models/qwen", "port": 30000})

FAMILY_OF_5 = """
import os, signal, subprocess, sys, time
if "deaf" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
def orphan(name, **options):
    subprocess.run(["sh", "-c", "exec >/dev/null; sleep 600 & echo $! >" + name], check=True, **options)
    return int(open(name).read())
pids = [
    subprocess.Popen(["sleep", "600"]).pid,
    subprocess.Popen(["sglang::scheduler", "600"], executable="/bin/sleep").pid,
    orphan("orphan"),
    orphan("session", start_new_session=True),
    orphan("bare", start_new_session=True, env={}),
]
with open("pids.new", "w") as file:
    file.write(" ".join(str(pid) for pid in [os.getpid()] + pids))
os.rename("pids.new", "pids")
time.sleep(600)
"""
"""A server whose children are plain, renamed, reparented, in another session, and without our marker."""


class ShBox:
    """
    This machine as a box: every script runs in a plain sh with its own variables.
    """

    def __init__(self, env: Mapping[str, str] | None = None, shell: Sequence[str] = ("sh", "-s")) -> None:
        self.host = Host(name="here", address="127.0.0.1")
        self.round_trips = 0
        self.env = {**os.environ, **(env or {})}
        self.shell = list(shell)

    def run(
        self, script: str, *, limit: float = 20, on_output: Callable[[bytes], None] | None = None
    ) -> Result:
        """
        Run it to its end.
        """
        self.round_trips += 1
        done = subprocess.run(
            self.shell, input=script.encode(), capture_output=True, env=self.env, timeout=limit, check=False
        )
        if on_output is not None:
            on_output(done.stdout)
        return Result(done.returncode, done.stdout, done.stderr)

    def stream(self, script: str) -> Stream:
        """
        Not a part of this box.
        """
        raise NotImplementedError(script)

    def open_port(self, port: int) -> socket.socket:
        """
        Reach a port of this machine.
        """
        return socket.create_connection(("127.0.0.1", port))

    def close(self) -> None:
        """
        Nothing is open.
        """

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return


def ask(name: str, request: Mapping[str, object], **env: str) -> dict[str, Any]:
    """
    The answer of an on-box program, run through sh.
    """
    result = ShBox(env).run(script(name, request, sys.executable), limit=60)
    if (0, b"") != (result.status, result.err):
        raise AssertionError(f"status {result.status}: {result.err.decode()}")
    answer = json.loads(result.text.splitlines()[-1])
    assert isinstance(answer, dict)
    return answer


def attempt_of(run: str, server: ServerSpec = SERVER) -> AttemptRecord:
    """
    The intent of a second attempt.
    """
    return AttemptRecord(
        ascent="a", attempt=2, run=run, log=LOG, started_at=datetime.now(UTC).timestamp(),
        asked=SERVER, server=server, rung=None, sglang_version="0.5.9",
    )  # fmt: skip


def files_of(
    run: str,
    work_dir: Path | str,
    argv: Sequence[Sequence[str]],
    env: Mapping[str, str] | None = None,
    python: str = sys.executable,
) -> dict[str, str]:
    """
    The files of a run that starts `argv`.
    """
    files = render_launch(
        run=run,
        run_dir=f"{work_dir}/runs/{run}",
        log=LOG,
        attempt=attempt_of(run),
        command=Command(argv=tuple(tuple(line) for line in argv), env={}),
        env=env or {},
        secrets=(),
        secrets_file="",
        python=python,
        template_dir=None,
    )
    return {"attempt.json": '{"attempt": 2}', **files}


def launch(run: str, work_dir: Path | str, argv: Sequence[Sequence[str]], **env: str) -> dict[str, Any]:
    """
    Launch a server in earnest; the on-box program's answer.
    """
    return ask("launch", launching(run, work_dir, files_of(run, work_dir, argv)), **env)


def launching(run: str, work_dir: Path | str, files: Mapping[str, str]) -> dict[str, object]:
    """
    A request for the launch program.
    """
    return {
        "work_dir": str(work_dir),
        "run": run,
        "files": dict(files),
        "modes": {"launch.sh": 0o700},
        "lock_note": "somebody, just now",
    }


def python_server(text: str, *words: str) -> list[list[str]]:
    """
    A command that runs Python text as the server.
    """
    return [[sys.executable, "-I", "-S", "-c", text], *[[word] for word in words]]


def until(what: Callable[[], T | None], seconds: float = 30) -> T:
    """
    Wait for something to be there at all.
    """
    end = time.monotonic() + seconds
    while True:
        found = what()
        if found:
            return found
        assert time.monotonic() < end, f"not within {seconds} s"
        time.sleep(0.005)


def text_of(path: Path) -> str | None:
    """
    What is in a file; None where there is none.
    """
    try:
        return path.read_text(errors="replace")
    except FileNotFoundError:
        return None


def record(path: Path) -> dict[str, Any]:
    """
    A record of the supervisor, as soon as it is there.
    """
    content = json.loads(until(lambda: text_of(path)))
    assert isinstance(content, dict)
    return content


def pids_of(run_dir: Path) -> list[int]:
    """
    The pids that `FAMILY_OF_5` tells, its own first.
    """
    return [int(pid) for pid in until(lambda: text_of(run_dir / "pids")).split()]


def living_of(pids: Sequence[int]) -> list[int]:
    """
    Those of `pids` that are alive.
    """
    return [pid for pid in pids if identify(pid) is not None]


@contextmanager
def ended_afterwards(*runs: str) -> Iterator[list[int]]:
    """
    Leave nothing of these runs alive, nor what is put on the list.
    """
    extra: list[int] = []
    try:
        yield extra
    finally:
        for identity in [identify(pid) for pid in extra]:
            if identity is not None:
                send(identity, signal.SIGKILL)
        for _ in range(3):
            for run in runs:
                for member in family(None, run):
                    send(member, signal.SIGKILL)
            time.sleep(0.02)
