"""
One client that follows one log and says what that took: a process of its own, so that its memory is its own.
"""

import queue
import resource
import subprocess
import sys
import time
from concurrent.futures import Future
from io import StringIO
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, json

from mtpdeploy.cli.plain import Plain
from mtpdeploy.clock import SystemClock
from mtpdeploy.core.events import Emit
from mtpdeploy.core.machine import Host
from mtpdeploy.core.outcome import Report
from mtpdeploy.deploy.journal import LocalCopy
from mtpdeploy.deploy.watch import Watch
from mtpdeploy.engines.sglang import SGLANG
from mtpdeploy.remote.follow import QUEUE_EVENTS, Follower, LogSource, reader_on
from mtpdeploy.remote.frames import NewBytes
from mtpdeploy.remote.ssh import SshBox
from tests.bench.ready_event import record

How = Literal["bytes", "lines", "screen"]


class Task(Struct, frozen=True):
    """
    What to follow and how far: the `bytes` into the local copy alone, the `lines` through `Watch` as well,
    or those to a `screen` as well, which is what `up` does.
    """

    host: Host
    state: str
    config: str
    run_dir: str
    log: str
    size: int
    copy: str
    how: How = "bytes"


class Cost(Struct, frozen=True):
    """
    Seconds from the first event to the last, CPU seconds, and the process's peak memory in megabytes:
    when it began, after a tenth, and at the end.
    """

    seconds: float
    cpu: float
    at_first: float
    at_a_tenth: float
    at_last: float


class Counted(queue.Queue[Any]):
    """
    A queue of events that knows how many bytes of the log were taken out of it.
    """

    def __init__(self, size: int, done: "Future[Report]") -> None:
        super().__init__(QUEUE_EVENTS)
        self.taken = 0
        self.at_a_tenth = 0.0
        self._size = size
        self._done = done

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """
        The next event.
        """
        event = super().get(block, timeout)
        if isinstance(event, NewBytes):
            self.taken += len(event.data)
            if not self.at_a_tenth and self.taken > self._size // 10:
                self.at_a_tenth = peak()
            if self.taken >= self._size:
                self._done.set_result(Report((), None, None, {}))
        return event


def spend(task: Task) -> "subprocess.Popen[bytes]":
    """
    Start a client; it says a line when it follows, and the cost at the end.
    """
    words = [sys.executable, "-m", "tests.bench.follow_client", json.encode(task).decode()]
    return subprocess.Popen(words, stdout=subprocess.PIPE)


def follow(task: Task) -> Cost:
    """
    Follow up to the wanted size.
    """
    done: Future[Report] = Future()
    arriving = Counted(task.size, done)
    source = LogSource(task.run_dir, task.log)
    box = SshBox(task.host, state=Path(task.state), config=Path(task.config))
    with box, LocalCopy(Path(task.copy)) as copy:
        box.connect()
        at_first, cpu, begun = peak(), cpu_seconds(), time.perf_counter()
        print("following", flush=True)
        with Follower(reader_on(box, sys.executable), source, sink=copy.write, events=arriving):
            if task.how == "bytes":
                while not done.done():
                    arriving.get(timeout=60)
            else:
                watch(task.how).until_end(arriving, done)
            seconds = time.perf_counter() - begun
    return Cost(seconds, cpu_seconds() - cpu, at_first, arriving.at_a_tenth, peak())


class Nobody(StringIO):
    """
    A screen that nobody reads.
    """

    def write(self, text: str) -> int:
        """
        Keep nothing.
        """
        return len(text)


def watch(how: str) -> Watch:
    """
    The program's own loop, with its screen (a file that nobody reads) or without.
    """
    emit: Emit = Plain(Nobody()).show if how == "screen" else lambda _event: None
    return Watch(record(), SGLANG, emit, SystemClock(), lambda: False)


def peak() -> float:
    """
    Megabytes that this process had in memory at most.

    Linux's `ru_maxrss` begins with what the parent had (getrusage(2)); VmHWM does not.
    """
    status = Path("/proc/self/status")
    if status.exists():
        words = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM")).split()
        return int(words[1]) * 1024 / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def cpu_seconds() -> float:
    """
    What this process has used of both kinds.
    """
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    print(json.encode(follow(json.decode(sys.argv[1], type=Task))).decode())
