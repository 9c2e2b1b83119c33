"""
What following a large log costs, and what attaching to one does.
"""

import queue
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from msgspec import json

from mtpdeploy.clock import SystemClock
from mtpdeploy.deploy.watch import Watch
from mtpdeploy.engines.sglang import SGLANG
from mtpdeploy.remote.follow import QUEUE_EVENTS, Follower, LogSource, reader_on
from mtpdeploy.remote.frames import NewBytes
from mtpdeploy.remote.ssh import SshBox
from tests.bench import naive
from tests.bench.figures import Beside, Figure, of_samples
from tests.bench.follow_client import Cost, How, Task, spend
from tests.bench.ready_event import record
from tests.bench.rig import Rig
from tests.fakes.run import LocalRun

NAME = "throughput"
LOG_BYTES = 10**9
WATCHED_BYTES = 10**8
FABRIC_BYTES = 16 * 10**6
SMALL_BYTES = 10**6
SAMPLES = 3
ATTACHES = 9
TAIL = 1 << 16
TARGET_MB_S = 100.0
TARGET_SHARE = 0.8
TARGET_MB = 100.0
LINE = b"[2026-12-01 09:30:12] Decode batch. #running-req: 12, accept len: 2.71, gen throughput: 512.33\n"
BLOCK = LINE * ((1 << 20) // len(LINE))


def measure(folder: Path) -> Iterator[Figure]:
    """
    A log that is there, one that is being written, and the end of a large one.
    """
    with Rig(folder / "rig") as rig, LocalRun(folder / "run") as run:
        size = fill(run.path, LOG_BYTES)
        yield from standing(rig, run, size)
        yield from growing(rig, folder / "growing")
        yield from watched(rig, folder / "watched")
        yield from attaching(rig, run, folder / "small")
        begun = time.perf_counter()
        watch = Watch(record(), SGLANG, lambda _event: None, SystemClock(), lambda: False)
        watch.read_copy(run.path, WATCHED_BYTES)
        rate = WATCHED_BYTES / 1e6 / (time.perf_counter() - begun)
        yield Figure(NAME, "attach reads its own copy of the log at", rate, "MB/s", more_is_better=True)


def standing(rig: Rig, run: LocalRun, size: int) -> Iterator[Figure]:
    """
    Rates in turn with `ssh cat`, so that both see the same load.
    """
    cats, costs = [], []
    for number in range(SAMPLES):
        cats.append(size / 1e6 / cat_seconds(rig, run.path))
        costs.append(cost_of(task(rig, run, size, f"copy-{number}")))
    cat = median(cats)
    piece = fill(run.folder / "piece.log", FABRIC_BYTES)
    begun = time.perf_counter()
    with naive.connection(rig, rig.sshd.port) as box:
        assert len(box.run(f"cat {run.folder}/piece.log", hide=True).stdout) == piece
    fabric = piece / 1e6 / (time.perf_counter() - begun)
    goal = min(TARGET_MB_S, TARGET_SHARE * cat)
    for old, said in ((cat, "ssh cat > /dev/null"), (fabric, "fabric run(cat) of 16 MB")):
        rates = [size / 1e6 / cost.seconds for cost in costs]
        rest: Beside = {"target": goal, "baseline": old, "baseline_is": said, "more_is_better": True}
        yield of_samples(NAME, "following 1 GB that is there", rates, "MB/s", **rest)
    yield of_samples(NAME, "  CPU seconds of the client", [cost.cpu for cost in costs], "s")
    yield from memory("1 GB that is there", costs)


def growing(rig: Rig, folder: Path) -> Iterator[Figure]:
    """
    The writer and the client begin together.
    """
    costs, alone = [], []
    for number in range(SAMPLES):
        with LocalRun(folder.with_name(f"{folder.name}-{number}")) as run:
            begun = time.perf_counter()
            size = fill(run.folder / "alone", LOG_BYTES)
            alone.append(size / 1e6 / (time.perf_counter() - begun))
            (run.folder / "alone").unlink()
            client = spend(task(rig, run, size, "copy"))
            assert client.stdout is not None
            client.stdout.readline()
            fill(run.path, LOG_BYTES)
            costs.append(json.decode(client.stdout.read(), type=Cost))
            client.wait()
            for path in (run.path, run.folder / "copy"):
                path.unlink()
    rates = [size / 1e6 / cost.seconds for cost in costs]
    rest: Beside = {"target": TARGET_MB_S, "baseline": median(alone), "more_is_better": True}
    rest["baseline_is"] = "the writer without a reader"
    yield of_samples(NAME, "following 1 GB while it is written", rates, "MB/s", **rest)
    yield from memory("1 GB while it is written", costs)


def watched(rig: Rig, folder: Path) -> Iterator[Figure]:
    """
    The same through `Watch`, which reads every line, and with a screen that shows every line: as `up` does.
    """
    said: dict[How, str] = {"lines": "every line read for its stage", "screen": "every line read and shown"}
    with LocalRun(folder) as run:
        size = fill(run.path, WATCHED_BYTES)
        for how, what in said.items():
            costs = [cost_of(task(rig, run, size, f"copy-{n}", how)) for n in range(SAMPLES)]
            rates = [size / 1e6 / cost.seconds for cost in costs]
            rest: Beside = {"target": TARGET_MB_S, "more_is_better": True}
            yield of_samples(NAME, f"following 100 MB, {what}", rates, "MB/s", **rest)
            yield from memory(f"100 MB, {what}", costs)


def memory(what: str, costs: list[Cost]) -> Iterator[Figure]:
    """
    The peak, and how much of it came after a tenth of the log.
    """
    peaks = [cost.at_last for cost in costs]
    yield of_samples(NAME, f"  peak memory of the client, {what}", peaks, "MB", target=TARGET_MB)
    grown = [cost.at_last - cost.at_a_tenth for cost in costs]
    yield of_samples(NAME, "    of which came after the first tenth", grown, "MB")


def attaching(rig: Rig, run: LocalRun, small: Path) -> Iterator[Figure]:
    """
    From the start of a follower to the last byte of the end of a log.
    """
    with LocalRun(small) as other, rig.box() as box:
        fill(other.path, SMALL_BYTES)
        box.connect()
        times: dict[str, list[float]] = {"1 GB": [], "1 MB": []}
        for _ in range(ATTACHES):
            times["1 GB"].append(attach_time(box, run))
            times["1 MB"].append(attach_time(box, other))
    little = median(times["1 MB"])
    rest: Beside = {"baseline": little, "baseline_is": "the same on a log of 1 MB"}
    yield of_samples(NAME, "attach to the last 64 KiB of 1 GB", times["1 GB"], **rest)


def attach_time(box: SshBox, run: LocalRun) -> float:
    """
    Milliseconds of one.
    """
    arriving: queue.Queue[object] = queue.Queue(QUEUE_EVENTS)
    source = LogSource(str(run.folder), run.path.name)
    begun = time.perf_counter()
    opened = reader_on(box, sys.executable)
    with Follower(opened, source, sink=lambda _data: None, offset=-TAIL, events=arriving):
        left = TAIL
        while left > 0:
            event = arriving.get(timeout=30)
            left -= len(event.data) if isinstance(event, NewBytes) else 0
        return 1000 * (time.perf_counter() - begun)


def fill(path: Path, size: int) -> int:
    """
    Write a log of at least that size; its size.
    """
    with path.open("ab", buffering=0) as log:
        while log.tell() < size:
            log.write(BLOCK)
        return log.tell()


def cat_seconds(rig: Rig, path: Path) -> float:
    """
    Seconds of OpenSSH's own client, its login included as in ours.
    """
    begun = time.perf_counter()
    subprocess.run(rig.ssh_words(f"cat {path}"), stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begun


def cost_of(work: Task) -> Cost:
    """
    Have a client do it; its copy is removed.
    """
    client = spend(work)
    assert client.stdout is not None
    client.stdout.readline()
    cost = json.decode(client.stdout.read(), type=Cost)
    client.wait()
    Path(work.copy).unlink()
    return cost


def task(rig: Rig, run: LocalRun, size: int, copy: str, how: How = "bytes") -> Task:
    """
    Follow that run's log up to that size.
    """
    return Task(
        host=rig.host(),
        state=str(rig.state),
        config=str(rig.sshd.client_config),
        run_dir=str(run.folder),
        log=run.path.name,
        size=size,
        copy=str(run.folder / copy),
        how=how,
    )
