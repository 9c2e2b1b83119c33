"""
The reader on the box alone: what it prints, and when it ends.
"""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import convert

from mtpdeploy.core.launch import PROCESS_FILE, RUN_MARKER
from mtpdeploy.core.patience import Activity
from mtpdeploy.onbox import script
from mtpdeploy.onbox.effort import ps_figures, ps_usage, usage
from mtpdeploy.remote.frames import Frames, Note, Piece
from tests.fakes.run import LocalRun
from tests.fakes.stream import LocalStream

DEADLINE = 30.0
"""Seconds within which what must happen at all has to happen."""

NO_PROC = {"MTPDEPLOY_PROC": "/nowhere"}
"""Makes the reader believe that it runs where there is no /proc, as on macOS."""


@pytest.fixture
def run(tmp_path: Path) -> Iterator[LocalRun]:
    """
    A run whose supervisor lives.
    """
    with LocalRun(tmp_path / "20261201-093012Z-qwen-1") as run:
        yield run


class Reader:
    """
    A reader started with a request, and the frames it printed so far.
    """

    def __init__(self, run: LocalRun, **changes: Any) -> None:
        request = {
            "run_dir": str(run.folder), "log": run.path.name, "offset": 0, "port": None, "nonce": "n0",
            "poll": 0.005, "heartbeat": 0.05, "limit": DEADLINE, "grace": 5,
        }  # fmt: skip
        environment = changes.pop("environment", {})
        exports = "".join(f"export {name}={value}\n" for name, value in environment.items())
        self.stream = LocalStream(exports + script("follow", {**request, **changes}, sys.executable))
        self.parser = Frames("n0")
        self.frames: list[Note | Piece] = []

    def until(self, enough: Callable[["Reader"], bool]) -> "Reader":
        """
        Read until `enough`.
        """
        deadline = time.monotonic() + DEADLINE
        while not enough(self):
            assert time.monotonic() < deadline, f"did not happen; came: {self.frames}"
            chunk = self.stream.read(0.1)
            assert chunk != b"", f"the reader ended; came: {self.frames}"
            self.frames += self.parser.feed(chunk or b"")
        return self

    def until_end(self) -> "Reader":
        """
        Read until it exits, and check that it exited well.
        """
        while chunk := self.stream.read(DEADLINE):
            self.frames += self.parser.feed(chunk)
        assert self.stream.process.wait(DEADLINE) == 0
        return self

    def notes(self, kind: str) -> list[dict[str, Any]]:
        """
        The contents of the frames of a kind.
        """
        return [frame.content for frame in self.frames if isinstance(frame, Note) and frame.kind == kind]

    @property
    def data(self) -> bytes:
        """
        The log's bytes so far.
        """
        return b"".join(frame.data for frame in self.frames if isinstance(frame, Piece))


@pytest.fixture
def read(run: LocalRun) -> Iterator[Callable[..., Reader]]:
    """
    Starts readers of `run`, and ends them.
    """
    readers: list[Reader] = []

    def start(**changes: Any) -> Reader:
        readers.append(Reader(run, **changes))
        return readers[-1]

    yield start
    for reader in readers:
        reader.stream.close()


class TestReader:
    """
    The reader as a program of its own.
    """

    @pytest.mark.parametrize("environment", [{}, NO_PROC])
    def test_tells_who_is_followed_then_bytes_then_the_end(
        self, run: LocalRun, read: Callable[..., Reader], environment: dict[str, str]
    ) -> None:
        """
        Identity first; the record of the exit last, behind all bytes; with /proc and without one.
        """
        if environment:
            (run.folder / PROCESS_FILE).write_text(identity_without_proc(run.process.pid))
        run.write(b"before\n")
        reader = read(environment=environment).until(lambda r: r.data == b"before\n")
        run.write(b"last words")
        run.exit(137)
        reader.until_end()

        status = run.path.stat()
        first, last = reader.frames[0], reader.frames[-1]
        assert isinstance(first, Note)
        assert "I" == first.kind
        assert (status.st_dev, status.st_ino, True) == tuple(
            first.content[k] for k in ("dev", "ino", "alive")
        )
        assert b"before\nlast words" == reader.data
        assert Note("X", {"status": 137, "signal": None, "stopped": ""}) == last

    @pytest.mark.parametrize("environment", [{}, NO_PROC])
    def test_a_process_that_is_gone_without_a_record_vanished(
        self, run: LocalRun, read: Callable[..., Reader], environment: dict[str, str]
    ) -> None:
        """
        SIGKILL of everything leaves no line and no record.
        """
        if environment:
            (run.folder / PROCESS_FILE).write_text(identity_without_proc(run.process.pid))
        reader = read(environment=environment).until(lambda r: bool(r.notes("I")))
        run.write(b"x")
        run.kill()

        assert Note("X", {"vanished": True, "stopped": ""}) == reader.until_end().frames[-1]
        assert b"x" == reader.data

    def test_a_zombie_has_vanished(self, run: LocalRun, read: Callable[..., Reader]) -> None:
        """
        In rented containers nobody may ever reap the dead.
        """
        reader = read().until(lambda r: bool(r.notes("I")))
        run.process.kill()  # and not waited for

        assert Note("X", {"vanished": True, "stopped": ""}) == reader.until_end().frames[-1]

    def test_waits_for_a_log_and_a_process_that_do_not_stand_yet(
        self, run: LocalRun, read: Callable[..., Reader]
    ) -> None:
        """
        A reader may come before the supervisor has opened its log.
        """
        run.path.unlink()
        record = (run.folder / PROCESS_FILE).read_bytes()
        (run.folder / PROCESS_FILE).unlink()
        reader = read().until(lambda r: bool(r.notes("I")))
        (run.folder / PROCESS_FILE).write_bytes(record)
        run.write(b"now")
        reader.until(lambda r: r.data == b"now")

        assert [0, run.path.stat().st_ino] == [identity["ino"] for identity in reader.notes("I")]
        assert [] == reader.notes("T")

    def test_ends_by_itself_at_its_limit_having_asked_to_be_renewed(
        self, read: Callable[..., Reader]
    ) -> None:
        """
        A reader whose client went silently does not stay.
        """
        reader = read(limit=0.2, grace=0.1).until_end()

        assert [{}] == reader.notes("B")
        assert [] == reader.notes("X")

    def test_ends_at_its_limit_even_when_nobody_empties_the_pipe(
        self, run: LocalRun, read: Callable[..., Reader]
    ) -> None:
        """
        A reader stuck in a write is ended by its alarm.
        """
        run.write(b"x" * 10_000_000)
        reader = read(limit=0.1, grace=0.1)

        assert 0 != reader.stream.process.wait(DEADLINE)

    def test_ends_when_its_client_is_gone(self, read: Callable[..., Reader]) -> None:
        """
        A closed channel is noticed without a byte to write.
        """
        reader = read(heartbeat=600).until(lambda r: bool(r.notes("I")))
        reader.stream.hang_up()

        assert 0 == reader.stream.process.wait(DEADLINE)

    def test_resumes_at_an_offset_or_so_many_bytes_before_the_end(
        self, run: LocalRun, read: Callable[..., Reader]
    ) -> None:
        """
        Nothing before the offset is sent again; a first view of a huge log needs its end alone.
        """
        run.write(b"0123456789")
        known = {"head": "84d89877f0d4041efb6bf91a16f0248f2fd573e6af05c19f96bedb9f882f7882", "head_bytes": 10}

        assert b"789" == read(offset=7).until(lambda r: r.data.endswith(b"9")).data
        assert b"9" == read(offset=9, known=known).until(lambda r: r.data.endswith(b"9")).data
        assert b"89" == read(offset=-2).until(lambda r: r.data.endswith(b"9")).data
        assert b"0123456789" == read(offset=-20).until(lambda r: r.data.endswith(b"9")).data

    def test_tells_who_ordered_the_end_and_keeps_the_lease_alive(
        self, run: LocalRun, read: Callable[..., Reader], tmp_path: Path
    ) -> None:
        """
        A stop that somebody ordered is no failure; whoever follows holds the box.
        """
        lease = tmp_path / "lock"
        lease.write_text('{"token": "t1"}')
        os.utime(lease, (1, 1))
        reader = read(lease={"path": str(lease), "token": "t1"})
        reader.until(lambda _: lease.stat().st_mtime > 1)
        lease.unlink()
        reader.until(lambda r: len(r.notes("H")) > 3)
        (run.folder / "stop").write_text('{"by": "anna@laptop"}')
        run.kill()

        assert Note("X", {"vanished": True, "stopped": "anna@laptop"}) == reader.until_end().frames[-1]


class TestCensus:
    """
    What it counts.
    """

    @pytest.mark.parametrize("owner", ["run", "other"])
    def test_tells_a_listener_of_the_family_from_another(
        self, read: Callable[..., Reader], run: LocalRun, owner: str
    ) -> None:
        """
        An old server on the port must never be taken for this attempt's own.
        """
        port = free_port()
        listen = f"import socket, sys; s = socket.create_server(('127.0.0.1', {port})); sys.stdin.read()"
        reader = read(port=port).until(lambda r: r.notes("L") == [{"owner": "none", "pid": 0}])
        environment = {**os.environ, **({RUN_MARKER: run.folder.name} if owner == "run" else {})}
        with subprocess.Popen(
            [sys.executable, "-c", listen], env=environment, stdin=subprocess.PIPE
        ) as process:
            reader.until(lambda r: len(r.notes("L")) == 2)
            assert process.stdin is not None
            process.stdin.close()
        reader.until(lambda r: len(r.notes("L")) == 3)

        assert {"owner": owner, "pid": process.pid} == reader.notes("L")[1]
        assert {"owner": "none", "pid": 0} == reader.notes("L")[2]

    def test_heartbeats_count_the_family_and_its_work(self, tmp_path: Path) -> None:
        """
        CPU seconds grow while something computes; a compiler counts by its name.
        """
        compiler = tmp_path / "ptxas"
        compiler.symlink_to("/bin/sh")
        words = ("sh", "-c", f"{compiler} -c 'while :; do :; done' & wait")
        with LocalRun(tmp_path / "r", words) as run:
            reader = Reader(run)
            try:
                reader.until(
                    lambda r: bool(r.notes("H")) and r.notes("H")[-1]["activity"]["cpu_seconds"] >= 0.1
                )
            finally:
                reader.stream.close()
                subprocess.run(["sh", "-c", f"kill {' '.join(family_pids(run))}"], check=True)
            beat = convert(reader.notes("H")[-1]["activity"], Activity)

        assert (2, ("ptxas",)) == (beat.processes, beat.compilers)
        assert beat.resident_bytes > 100_000

    def test_usage_is_the_same_with_proc_and_without(self) -> None:
        """
        What ps prints is read as what the kernel tells.
        """
        pids = {os.getpid()}
        resident = usage(pids)[1]

        assert abs(resident - ps_usage(pids)[1]) < resident / 10

    @pytest.mark.parametrize(
        ("line", "figures"),
        [
            ("  1:02.50   1024", (62.5, 1048576)),
            ("00:00:07 2", (7.0, 2048)),
            ("1-02:03:04 3", (93784.0, 3072)),
        ],
    )
    def test_reads_the_times_of_both_kinds_of_ps(self, line: str, figures: tuple[float, int]) -> None:
        """
        Minutes and hundredths on macOS, hours and days on Linux.
        """
        assert figures == ps_figures(line)


def identity_without_proc(pid: int) -> str:
    """
    The record that a launch leaves where there is no /proc.
    """
    code = f"import json, mtpdeploy.onbox.identity as i; print(json.dumps(i.identify({pid})))"
    words = [sys.executable, "-c", code]
    return subprocess.run(
        words, env={**os.environ, **NO_PROC}, stdout=subprocess.PIPE, check=True, text=True
    ).stdout


def family_pids(run: LocalRun) -> list[str]:
    """
    The children of a run's process.
    """
    words = ["ps", "-o", "pid=", "--ppid", str(run.process.pid)]
    return subprocess.run(words, capture_output=True, check=True, text=True).stdout.split()


def free_port() -> int:
    """
    A port that nothing listens on.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
