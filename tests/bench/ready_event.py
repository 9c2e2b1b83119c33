"""
From the byte on the box to the event here: file, reader, sshd, wire, Follower, Watch, screen.
"""

import os
import queue
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from threading import Thread

from mtpdeploy.clock import SystemClock
from mtpdeploy.core import events
from mtpdeploy.core.diagnosis import Stage
from mtpdeploy.core.events import AnyEvent
from mtpdeploy.core.launch import AttemptRecord
from mtpdeploy.core.outcome import Report
from mtpdeploy.deploy.journal import LocalCopy
from mtpdeploy.deploy.watch import Arriving, Watch
from mtpdeploy.engines.sglang import SGLANG
from mtpdeploy.remote.follow import QUEUE_EVENTS, Follower, LogSource, reader_on
from tests.bench.figures import Figure, of_samples
from tests.bench.rig import DELAY, READY_LINE, Rig, round_trip, wire
from tests.fakes.run import LocalRun

NAME = "ready-event"
SAMPLES = 80
LOOPS = 5
TARGET_MS = 20.0


def measure(folder: Path) -> Iterator[Figure]:
    """
    On loopback and on a slow wire, beside shell loops that ask every 3 s and every second.
    """
    with Rig(folder / "rig") as rig:
        loops = {pause: loop_lateness(rig, folder / f"loop-{pause}", pause) for pause in (3, 1)}
        for delay in (0.0, DELAY):
            with wire(rig, delay) as port, rig.box(port) as box:
                box.connect()
                trip = 1000 * round_trip(box)
                late = list(lateness(rig, box_port=port, folder=folder / f"run-{delay:g}"))
            where = f"{1000 * delay:.0f} ms of delay" if delay else "loopback"
            goal = TARGET_MS + 1000 * delay
            yield Figure(NAME, f"a round trip, {where}", trip, "ms")
            for pause, samples in loops.items():
                old = sorted(samples)[len(samples) // 2]
                said = f"ssh, while ! grep; do sleep {pause}; done, on loopback"
                name = f"byte to Reached(ready), {where}"
                yield of_samples(NAME, name, late, target=goal, baseline=old, baseline_is=said)


def lateness(rig: Rig, *, box_port: int, folder: Path) -> Iterator[float]:
    """
    Milliseconds from the line to its event, at any phase of everything that looks now and then.
    """
    dice = random.Random(1)  # noqa: S311 - a repeatable rhythm
    arriving: Arriving = queue.Queue(QUEUE_EVENTS)
    with LocalRun(folder) as run, rig.box(box_port) as box, LocalCopy(folder / "copy") as copy:
        source = LogSource(str(run.folder), run.path.name, rig.server_port)
        follower = Follower(reader_on(box, sys.executable), source, sink=copy.write, events=arriving)
        with follower, run.path.open("ab", buffering=0) as log:
            for _ in range(SAMPLES):
                arrived: Future[float] = Future()
                proof: Future[Report] = Future()
                watching = watch_for_ready(arriving, arrived, proof)
                time.sleep(0.05 + 0.1 * dice.random())
                written = time.perf_counter()
                log.write(READY_LINE)
                yield 1000 * (arrived.result(30) - written)
                watching.join()


def watch_for_ready(arriving: Arriving, arrived: "Future[float]", proof: "Future[Report]") -> Thread:
    """
    A fresh `Watch` in its thread, which ends with the event.
    """

    def emit(event: AnyEvent) -> None:
        if isinstance(event, events.Reached) and event.milestone.stage is Stage.READY:
            arrived.set_result(time.perf_counter())
            proof.set_result(Report((), None, None, {}))

    watch = Watch(record(), SGLANG, emit, SystemClock(), lambda: False)
    thread = Thread(target=watch.until_end, args=(arriving, proof), daemon=True)
    thread.start()
    return thread


def record() -> AttemptRecord:
    """
    An attempt of which only the log matters.
    """
    server = Rig.server_of("/models/any", 30000)
    return AttemptRecord(
        ascent="bench",
        attempt=1,
        run="bench",
        log="attempt.log",
        started_at=time.time(),
        asked=server,
        server=server,
        rung=None,
        sglang_version="0.5.9",
    )


def loop_lateness(rig: Rig, folder: Path, pause: int) -> list[float]:
    """
    Milliseconds of loops that look every `pause` seconds, side by side, each at a phase of its own.
    """
    folder.mkdir()
    return [1000 * late for late in _race(rig, [folder / f"{i}.log" for i in range(LOOPS)], pause)]


def _race(rig: Rig, logs: list[Path], pause: int) -> list[float]:
    dice = random.Random(pause)  # noqa: S311 - a repeatable rhythm
    late: list[float] = []

    def one(log: Path, phase: float) -> None:
        log.touch()
        loop = rig.ssh(
            f"echo on; while ! grep -q 'ready to roll' {log}; do sleep {pause}; done; tail -n 1 {log}"
        )
        written = _write_later(loop, log, phase)
        assert loop.stdout is not None
        assert loop.stdout.readline() == READY_LINE
        late.append(time.perf_counter() - written)
        loop.wait()

    threads = [Thread(target=one, args=(log, pause * dice.random())) for log in logs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(late) == len(logs), "a loop did not end"
    return late


def _write_later(loop: "subprocess.Popen[bytes]", log: Path, phase: float) -> float:
    assert loop.stdout is not None
    assert loop.stdout.readline() == b"on\n"
    time.sleep(0.1 + phase)
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND)
    written = time.perf_counter()
    os.write(descriptor, READY_LINE)
    os.close(descriptor)
    return written
