"""
What following costs and how late it is, beside what it replaces.

Run `python -m tests.bench.bench_follow`. `measure` takes any way to start a script on a box that shares
this machine's files and processes (a loopback sshd as well as a plain sh).
"""

import os
import random
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

from mtpdeploy.onbox import script
from mtpdeploy.onbox.effort import usage
from mtpdeploy.onbox.identity import table
from mtpdeploy.remote.box import Stream
from mtpdeploy.remote.follow import Follower, LogSource
from mtpdeploy.remote.frames import Ended, Heartbeat, NewBytes
from tests.fakes.run import LocalRun
from tests.fakes.stream import LocalStream

Start = Callable[[str], Stream]
"""Runs POSIX sh text on the box, as `Box.stream` does."""

LOG_BYTES = 1 << 29
LINE = b"[2026-12-01 09:30:12] Decode batch. #running-req: 12, accept len: 2.71, gen throughput: 512.33\n"
EVENTS = 200
DEATHS = 20
LOOPS = 5
IDLE_SECONDS = 20.0


class Figure(Struct, frozen=True):
    """
    One measurement and the same thing done the old way; a ratio above 1 is in our favour.
    """

    name: str
    ours: float
    baseline: float
    unit: str
    more_is_better: bool = False

    def __str__(self) -> str:
        ratio = self.ours / self.baseline if self.more_is_better else self.baseline / self.ours
        return f"{self.name:44}{self.ours:12.2f}{self.baseline:12.2f} {self.unit:6}{ratio:10.2f}"


def measure(start: Start, folder: Path, python: str = sys.executable) -> Iterator[Figure]:
    """
    All figures that need no look at the reader's own process, one by one.
    """
    yield from throughput(start, folder / "throughput", python)
    lateness = sorted(event_lateness(start, folder / "events", python))
    loop = [loop_lateness(start, folder / "loop") for _ in range(LOOPS)]
    loop_figure = 1000 * statistics.median(loop)
    yield Figure("byte to event, median", 1000 * statistics.median(lateness), loop_figure, "ms")
    yield Figure("byte to event, 99th of 100", 1000 * lateness[len(lateness) * 99 // 100], loop_figure, "ms")
    deaths = [death_lateness(start, folder / f"death-{i}", python) for i in range(DEATHS)]
    old = 1000 * statistics.median(loop_death(start, folder / f"old-{i}") for i in range(LOOPS))
    yield Figure("SIGKILL to Ended, median", 1000 * statistics.median(deaths), old, "ms")
    yield Figure("SIGKILL to Ended, worst", 1000 * max(deaths), old, "ms")


@contextmanager
def following(start: Start, run: LocalRun, python: str, stored: list[int]) -> Iterator[Follower]:
    """
    A follower of `run` that counts the bytes it stores.
    """

    def open_stream(request: dict[str, Any]) -> Stream:
        return start(script("follow", request, python))

    source = LogSource(str(run.folder), run.path.name)
    with Follower(open_stream, source, sink=lambda part: stored.append(len(part))) as follower:
        yield follower


def throughput(start: Start, folder: Path, python: str) -> Iterator[Figure]:
    """
    A log that is there already, against `cat` over the same kind of stream; and our memory for it.
    """
    with LocalRun(folder) as run:
        block = LINE * ((1 << 22) // len(LINE))
        while run.path.stat().st_size < LOG_BYTES:
            run.write(block)
        size = run.path.stat().st_size
        began = time.perf_counter()
        stream = start(f"cat {run.path}")
        read = 0
        while chunk := stream.read(10):
            read += len(chunk)
        plain = time.perf_counter() - began
        stream.close()
        assert read == size
        resident = peak()
        stored: list[int] = []
        began = time.perf_counter()
        with following(start, run, python, stored) as follower:
            seen = 0
            while seen < size:
                event = follower.get(30)
                seen += len(event.data) if isinstance(event, NewBytes) else 0
            ours = time.perf_counter() - began
        assert sum(stored) == size
    yield Figure(f"following {size >> 20} MiB", size / ours / 1e6, size / plain / 1e6, "MB/s", True)
    yield Figure("memory of this process at its peak", peak(), resident, "MB")


def event_lateness(start: Start, folder: Path, python: str) -> Iterator[float]:
    """
    Seconds from a line written on the box to its event here.
    """
    dice = random.Random(1)  # noqa: S311 - a repeatable rhythm
    with LocalRun(folder) as run, following(start, run, python, []) as follower:
        await_event(follower, Heartbeat)
        with run.path.open("ab", buffering=0) as log:
            for _ in range(EVENTS):
                time.sleep(0.005 + 0.03 * dice.random())
                written = time.perf_counter()
                log.write(LINE)
                await_event(follower, NewBytes)
                yield time.perf_counter() - written


def death_lateness(start: Start, folder: Path, python: str) -> float:
    """
    Seconds from SIGKILL of everything to the event.
    """
    with LocalRun(folder) as run, following(start, run, python, []) as follower:
        await_event(follower, Heartbeat)
        time.sleep(random.random() / 20)  # noqa: S311 - any moment
        killed = time.perf_counter()
        run.kill()
        await_event(follower, Ended)
        return time.perf_counter() - killed


def loop_lateness(start: Start, folder: Path) -> float:
    """
    Seconds from the line to the word of a `sleep 3; grep` loop, begun at any moment before.
    """
    with LocalRun(folder) as run:
        run.path.write_bytes(LINE)
        stream = start(f"until grep -q ready {run.path}; do sleep 3; done; echo found")
        time.sleep(0.2 + 3 * random.random())  # noqa: S311 - any moment
        written = time.perf_counter()
        run.write(b"The server is fired up and ready to roll!\n")
        stream.read(10)
        late = time.perf_counter() - written
        stream.close()
        return late


def loop_death(start: Start, folder: Path) -> float:
    """
    Seconds from SIGKILL to the word of a `sleep 3; kill -0` loop.
    """
    with LocalRun(folder) as run:
        stream = start(f"while kill -0 {run.process.pid} 2>/dev/null; do sleep 3; done; echo dead")
        time.sleep(0.2 + 3 * random.random())  # noqa: S311 - any moment
        killed = time.perf_counter()
        run.kill()
        stream.read(10)
        late = time.perf_counter() - killed
        stream.close()
        return late


def idle_share(folder: Path) -> float:
    """
    Percent of a core that a local reader takes while nothing happens, heartbeats included.
    """
    streams: list[LocalStream] = []

    def start(text: str) -> Stream:
        streams.append(LocalStream(text))
        return streams[-1]

    with LocalRun(folder) as run, following(start, run, sys.executable, []) as follower:
        await_event(follower, Heartbeat)
        reader = {entry["pid"] for entry in table() if entry["ppid"] == streams[0].process.pid}
        before, began = usage(reader)[0], time.perf_counter()
        time.sleep(IDLE_SECONDS)
        return 100 * (usage(reader)[0] - before) / (time.perf_counter() - began)


def await_event(follower: Follower, kind: type) -> None:
    """
    Take events up to one of a kind.
    """
    while not isinstance(event := follower.get(60), kind):
        assert event is not None, f"no {kind.__name__} came"


def peak() -> float:
    """
    Megabytes that this process had in memory at most.
    """
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def main() -> None:
    """
    Print the figures for a plain sh on this machine.
    """
    with tempfile.TemporaryDirectory() as folder:
        print(f"{'':44}{'ours':>12}{'baseline':>12}{'':7}{'ratio':>10}")
        for figure in measure(LocalStream, Path(folder)):
            print(figure, flush=True)
        share = idle_share(Path(folder) / "idle")
        print(
            f"reader on the box while nothing happens: {share:.2f} % of a core ({os.cpu_count()} cores here)"
        )


if __name__ == "__main__":
    main()
