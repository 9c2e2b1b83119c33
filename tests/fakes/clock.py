"""
A clock that jumps: sleeping takes no time.
"""

import threading


class FakeClock:
    """
    Satisfies `mtpdeploy.clock.Clock`. `slept` records what was asked for, in order.
    """

    def __init__(self, now: float = 1_796_000_000.0) -> None:
        self._now = now
        self._monotonic = 1000.0
        self._lock = threading.Lock()
        self.slept: list[float] = []

    def now(self) -> float:
        """
        The wall clock.
        """
        with self._lock:
            return self._now

    def monotonic(self) -> float:
        """
        The clock that only runs forward.
        """
        with self._lock:
            return self._monotonic

    def sleep(self, seconds: float, wake: threading.Event | None = None) -> None:
        """
        Jump ahead at once; not at all when `wake` is already set.
        """
        self.slept.append(seconds)
        if wake is None or not wake.is_set():
            self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """
        Let time pass on both clocks.
        """
        with self._lock:
            self._now += seconds
            self._monotonic += seconds

    def set_wall(self, seconds: float) -> None:
        """
        Move the wall clock alone, as a lid that was closed or a corrected clock does.
        """
        with self._lock:
            self._now += seconds
