"""
From SIGKILL of a server's whole family, without a line in its log, to the verdict here.
"""

import os
import queue
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

from mtpdeploy.core import events
from mtpdeploy.core.diagnosis import End, Stage
from mtpdeploy.demo.home import Hostile
from mtpdeploy.deploy import attempt
from mtpdeploy.deploy.background import in_background
from tests.bench.figures import Beside, Figure, of_samples
from tests.bench.probe import Span, probing
from tests.bench.rig import DELAY, Rig, Told, next_event, wire
from tests.fakes.run import LocalRun

NAME = "death-verdict"
SAMPLES = 15
LOOPS = 5
TARGET_MS = 300.0
HANGS_AT = "graphs"
SETTLED = 0.4
"""Seconds of silence before the kill, so that the reader is the only one at work."""


def measure(folder: Path) -> Iterator[Figure]:
    """
    A simulated server that hangs before it captures graphs is killed at any moment.
    """
    with Rig(folder / "rig", hostile=Hostile(hang_at=HANGS_AT)) as rig:
        old = sorted(loop_lateness(rig, folder / "loops"))
        for delay in (0.0, DELAY):
            with wire(rig, delay) as port:
                deaths = [death(rig, port, number) for number in range(SAMPLES)]
            where = f"{1000 * delay:.0f} ms of delay" if delay else "loopback"
            beside: Beside = {"target": None if delay else TARGET_MS, "baseline": old[len(old) // 2]}
            beside["baseline_is"] = "ssh, while kill -0; do sleep 3; done; tail, on loopback"
            known = [1000 * verdict for verdict, _ in deaths]
            settled = [1000 * ended for _, ended in deaths]
            yield of_samples(NAME, f"SIGKILL to the verdict, {where}", known, **beside)
            yield of_samples(NAME, f"SIGKILL to AttemptEnded (cleared, recorded), {where}", settled, **beside)


def death(rig: Rig, port: int, number: int) -> tuple[float, float]:
    """
    Seconds from the kill to the verdict, and to the event that the attempt has ended and is settled.
    """
    dice = random.Random(number)  # noqa: S311 - a repeatable rhythm
    told: Told = queue.Queue()
    spans: list[Span] = []
    with rig.box(port) as box, probing(spans, (attempt, "judge")):
        box.connect()
        ascent = in_background(
            lambda: rig.up(box, lambda e: told.put((time.perf_counter(), e)), max_attempts=1, force=True),
            "up",
        )
        next_event(told, events.Launched)
        while next_event(told, events.Reached)[1].milestone.stage is not Stage.POOLS_READY:
            pass
        time.sleep(SETTLED + 0.1 * dice.random())
        killed = rig.kill_server()
        ended, event = next_event(told, events.AttemptEnded)
        ascent.result()
    assert event.outcome.end is End.VANISHED
    assert event.outcome.verdict is not None
    verdict = next(span for span in spans if span.name == "judge")
    return verdict.ended - killed, ended - killed


def loop_lateness(rig: Rig, folder: Path) -> list[float]:
    """
    Milliseconds until loops that look every 3 s have shown the end of the log.
    """
    folder.mkdir()
    late: list[float] = []

    def one(place: Path, phase: float) -> None:
        with LocalRun(place) as run:
            run.write(b"Capturing batches (bs=8)\n")
            pid = run.process.pid
            loop = rig.ssh(
                f"echo on; while kill -0 {pid} 2>/dev/null; do sleep 3; done; tail -n 50 {run.path}"
            )
            assert loop.stdout is not None
            assert loop.stdout.readline() == b"on\n"
            time.sleep(0.1 + phase)
            killed = time.perf_counter()
            os.kill(pid, signal.SIGKILL)
            run.process.wait()
            assert loop.stdout.readline()
            late.append(1000 * (time.perf_counter() - killed))
            loop.wait()

    dice = random.Random(3)  # noqa: S311 - a repeatable rhythm
    threads = [Thread(target=one, args=(folder / f"{i}", 3 * dice.random())) for i in range(LOOPS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(late) == LOOPS, "a loop did not end"
    return late
