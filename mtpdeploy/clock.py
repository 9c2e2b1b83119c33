"""
Time, asked of an object, so that a test can let two hours pass in a millisecond.
"""

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """
    What the program knows of time. All figures are seconds.
    """

    def now(self) -> float:
        """
        The wall clock, since 1970; may be set forward and back while the program runs.
        """

    def monotonic(self) -> float:
        """
        A clock that only runs forward, from an unknown beginning; stands still while a laptop sleeps.
        """

    def sleep(self, seconds: float, wake: threading.Event | None = None) -> None:
        """
        Wait that long, or until `wake` is set.
        """


class SystemClock:
    """
    The clock of the machine.
    """

    def now(self) -> float:
        """
        Seconds since 1970.
        """
        return time.time()

    def monotonic(self) -> float:
        """
        Seconds of a clock that only runs forward.
        """
        return time.monotonic()

    def sleep(self, seconds: float, wake: threading.Event | None = None) -> None:
        """
        Wait that long, or until `wake` is set.
        """
        if wake is None:
            time.sleep(seconds)
        else:
            wake.wait(seconds)
