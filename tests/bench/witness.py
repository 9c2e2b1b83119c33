"""
Somebody who looks at the box's own disk, to tell when a line was really written.
"""

import contextlib
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from msgspec import Struct

LOOK_EVERY = 0.004
"""Seconds between two looks: an error of 2 ms on average, in disfavour of nobody."""


class Moment(Struct, frozen=True):
    """
    One moment on `time.perf_counter`'s clock and on the wall's.
    """

    counter: float
    wall: float


class ReadyWitness:
    """
    Watches a folder for a log that was not there before, and in it for the ready line.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known = set(folder.rglob("*.log"))
        self._over = threading.Event()
        self._seen = threading.Event()
        self._moment = Moment(0.0, 0.0)
        self._thread = threading.Thread(target=self._work, daemon=True)

    def seen(self) -> Moment:
        """
        When the line was written.

        Raises:
            TimeoutError: it was not.
        """
        if not self._seen.wait(30):
            raise TimeoutError("no ready line was written")
        return self._moment

    def _work(self) -> None:
        while not self._over.wait(LOOK_EVERY):
            # A folder that a survey tries out may vanish between listing and looking.
            with contextlib.suppress(FileNotFoundError):
                if self._is_written():
                    self._moment = Moment(time.perf_counter(), time.time())
                    self._seen.set()
                    return

    def _is_written(self) -> bool:
        logs = set(self._folder.rglob("*.log")) - self._known
        return any(b"ready to roll" in path.read_bytes() for path in logs)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
