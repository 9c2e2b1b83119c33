"""
What a follower delivers, written down beforehand; time passes on a clock that jumps.
"""

import queue
import time
from collections.abc import Callable
from typing import Any

from mtpdeploy.clock import Clock
from mtpdeploy.core.events import AnyEvent
from mtpdeploy.core.launch import AttemptRecord
from mtpdeploy.core.patience import Activity, Worker
from mtpdeploy.core.server import ServerSpec
from mtpdeploy.deploy.watch import TICK, Watch
from mtpdeploy.engines.sglang import SGLANG
from mtpdeploy.remote.frames import FollowEvent, Heartbeat, Listening, NewBytes
from tests.fakes.clock import FakeClock

LONGEST = 100_000
"""Ticks after which a watch that found no ending is given up: almost fourteen hours."""

READY_LINE = "[2026-12-01 05:12:27] The server is fired up and ready to roll!"
SERVER_ARGUMENTS = "[2026-12-01 05:12:24] server_args=ServerArgs(model_path='m', mem_fraction_static=0.8)"
WEIGHTS_BEGIN = "[2026-12-01 05:12:25] Load weight begin. avail mem=94.32 GB"
WEIGHTS_END = (
    "[2026-12-01 05:12:26] Load weight end. elapsed=30.00 s, type=M, dtype=torch.bfloat16, "
    "avail mem=43.27 GB, mem usage=51.05 GB."
)
FATAL = (
    "[2026-12-01 05:12:26] Scheduler hit an exception: Traceback (most recent call last):",
    '  File "/opt/venv/lib/python3.12/site-packages/sglang/srt/managers/scheduler.py", line 3130, in run',
    "    scheduler = Scheduler(",
    "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current value: 0.8",
)
OWN = Listening("run", 42)
FOREIGN = Listening("other", 99)
NOBODY = Listening("none", 0)

Said = FollowEvent | float | None


def record(port: int = 30000) -> AttemptRecord:
    """
    The attempt that is watched.
    """
    server = ServerSpec(name="m", flags={"model_path": "m", "port": port})
    return AttemptRecord(
        ascent="a",
        attempt=1,
        run="run-1",
        log="attempt-1.log",
        started_at=FakeClock().now(),
        asked=server,
        server=server,
        rung=None,
        sglang_version="0.5.9",
    )


def log(*lines: str) -> NewBytes:
    """
    New lines of the log.
    """
    return NewBytes(0, "".join(f"{line}\n" for line in lines).encode())


def beat(at: float | None = None, **counted: Any) -> Heartbeat:
    """
    A sign of life of the box, with what the family has used up to then; without a time nothing is counted.
    """
    if at is None:
        return Heartbeat(0.0, 0)
    return Heartbeat(at, 0, activity(at, **counted))


def activity(at: float, cpu: float = 0.0, **counted: Any) -> Activity:
    """
    What a family has used up to a moment: `cpu` seconds, and any other field.
    """
    return Activity(at=at, cpu_seconds=cpu, **{"processes": 3, "resident_bytes": 1 << 30, **counted})


def workers(*titles: str) -> tuple[Worker, ...]:
    """
    Child processes of SGLang by their titles.
    """
    return tuple(Worker(100 + number, "1", title) for number, title in enumerate(titles))


class Script(queue.Queue[Any]):
    """
    The queue of a follower: what stands in it comes in order, a number is so many seconds of silence.

    After the last of it there is silence for ever.
    """

    def __init__(self, clock: FakeClock, *said: Said) -> None:
        super().__init__()
        self._clock = clock
        self._said = list(said)
        self._ticks = 0

    def get(self, block: bool = True, timeout: float | None = None) -> FollowEvent | None:  # noqa: ARG002
        """
        The next event.

        Raises:
            queue.Empty: silence, for one tick.
        """
        if self._said and not isinstance(self._said[0], (int, float)):
            said: FollowEvent | None = self._said.pop(0)  # type: ignore[assignment]
            return said
        self._ticks += 1
        assert self._ticks < LONGEST, "no ending was found"
        if self._said:
            left = float(self._said.pop(0)) - TICK  # type: ignore[arg-type]
            if left > 0:
                self._said.insert(0, left)
        if not self._said:
            # A thread that asks for health may need a moment of real time.
            time.sleep(0.0001)
        self._clock.advance(TICK)
        raise queue.Empty


class Watched:
    """
    A watch on a clock that jumps; `told` are the events that it emitted.
    """

    def __init__(self, healthy: Callable[[], bool] = lambda: False, *, haste: float = 1.0) -> None:
        self.clock = FakeClock()
        self.told: list[AnyEvent] = []
        self.asked_health = 0
        clock: Clock = self.clock

        def ask() -> bool:
            self.asked_health += 1
            return healthy()

        self.watch = Watch(record(), SGLANG, self.told.append, clock, ask, haste=haste)

    def script(self, *said: Said) -> Script:
        """
        What the follower will deliver.
        """
        return Script(self.clock, *said)

    def of(self, kind: type) -> list[Any]:
        """
        The events of one kind.
        """
        return [event for event in self.told if isinstance(event, kind)]
