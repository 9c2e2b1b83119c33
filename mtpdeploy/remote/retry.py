"""
How long `remote` waits and how often it asks again: every such number, with its source.
"""

import threading
from collections.abc import Callable
from typing import TypeVar

import tenacity

from mtpdeploy.clock import Clock
from mtpdeploy.errors import ConnectionLost

RECONNECT_WAITS = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
"""
Seconds before each new try after a lost line, each drawn between 0 and the figure (full jitter); the
last one repeats. Source: protocol measured over cut connections, where a resume took 0.17 s in the
median (ssh-faults, D2 5 and E12).
"""

RECONNECT_LIMIT = 600.0
"""
Seconds without a line after which following gives up. Ours: rented boxes come back from a restart of
the provider's network within minutes or not at all; the server on the box goes on either way.
"""

SILENCE_LIMIT = 15.0
"""
Seconds without a byte after which a line counts as dead: three heartbeats. Source: ssh-faults, D2 4;
OpenSSH's own ServerAliveInterval 5 x CountMax 3 gives the same.
"""

CLOCK_JUMP = 10.0
"""
Seconds by which wall and monotonic clock may part between two looks; more means that the laptop slept
and that the line is not worth waiting for. Source: ssh-faults, A4 fault 41.
"""

HEARTBEAT = 5.0
"""
Seconds between two heartbeats of the reader on the box. Source: ssh-faults, D2 4.
"""

READER_POLL = 0.01
"""
Seconds between two looks of the reader at a log that does not grow: half of the 20 ms that may lie
between a byte on the box and its event here, and under 2 % of a core (tests/bench/bench_follow.py).
"""

READER_LIMIT = 60.0
"""
Seconds after which the reader on the box asks to be renewed, so that one whose client is gone for good
does not stay. Source: ssh-faults, D2 4 and E13 (5 of 5 readers stayed after a silent cut).
"""

READER_GRACE = 15.0
"""
Seconds for which it still delivers after that, so that the new reader takes over without a gap: one
`SILENCE_LIMIT`. Together they stay below the 90 s within which readers must be gone (ssh-faults, L6).
"""

READER_TICK = 1.0
"""
Seconds for which one read of a line waits, so that a clock that jumped is noticed that soon.
"""

NO_FRAMES_LIMIT = 3
"""
Readers in a row that ended without a word of ours before following gives up: the first may have met a
box that was just being stopped; one that never starts is not mended by waiting.
"""

FALLBACK_POLL = 1.0
"""
Seconds between two questions where no reader can run on the box. Ours: a third of the `sleep 3` of the
shell scripts this replaces, and one round trip a second is the most a shared sshd should bear.
"""

UNTOLD_LIMIT = 60.0
"""
Seconds without a process in `proc` after which a run that is polled counts as gone. A launch takes at most
30 for the lock and 20 for the first act (onbox/launch.py).
"""

FULL_QUEUE_TICK = 0.2
"""
Seconds for which handing over an event to a slow consumer waits before it looks whether to stop.
"""

CLOSE_WAIT = 5.0
"""
Seconds that closing waits for the thread; it wakes at once unless a connection is just being opened.
"""


STEADY = 1.0
"""
Seconds that a line must have stood for its loss to count as the first of an outage; lines that die
sooner let the waits grow, so that a box which ends every session at once is not hammered (OpenSSH 9.8's
PerSourcePenalties shut such clients out). Ours; well below the 3 s between cuts of ssh-faults, L1.
"""


class Outage:
    """
    How long a line has been away and how often it was tried; the waits and the end follow from it.
    """

    def __init__(self, clock: Clock, stop: threading.Event, limit: float = RECONNECT_LIMIT) -> None:
        self._clock = clock
        self._stop = stop
        self._limit = limit
        self._since = clock.monotonic()
        self._tries = 0

    def over(self, stood: float) -> None:
        """
        The line stands, or stood until now for `stood` seconds.
        """
        self._since = self._clock.monotonic()
        if stood >= STEADY:
            self._tries = 0

    def reconnecting(self) -> tenacity.Retrying:
        """
        The policy: call it with the function that opens the line and reads from it.

        Repeats on `ConnectionLost` alone (a wrong key stays wrong), until the line has been away for the
        limit or stopping is wanted; the last error is raised then.
        """
        return tenacity.Retrying(
            sleep=lambda seconds: self._clock.sleep(seconds, self._stop),
            stop=lambda _: self._stop.is_set() or self._clock.monotonic() - self._since >= self._limit,
            wait=self._wait,
            retry=tenacity.retry_if_exception_type(ConnectionLost),
            reraise=True,
        )

    def _wait(self, state: tenacity.RetryCallState) -> float:
        longest = RECONNECT_WAITS[min(self._tries, len(RECONNECT_WAITS) - 1)]
        self._tries += 1
        return tenacity.wait_random(0, longest)(state)


AGAIN_LIMIT = 120.0
"""
Seconds for which a command that may be repeated is asked again over a lost line. Ours: following, which
costs nothing, waits longer; a command has a person in front of it.
"""

REPEAT_WAITS = (2.0, 15.0)
"""
Seconds before the same configuration is tried a second and a third time, for a cause that passes by
itself. A port is free again at once, GPU memory 1 to 5 s after a KILL, with pinned host memory after
tens of seconds (sglang-facts, section 6); the clearing before a launch waits for both as well.
"""

T = TypeVar("T")


def repeat_wait(repeat: int) -> float:
    """
    Seconds to wait before repeat number `repeat` (from 1), up to a quarter more at random.
    """
    longest = REPEAT_WAITS[min(repeat, len(REPEAT_WAITS)) - 1]
    state = tenacity.RetryCallState(tenacity.Retrying(), None, (), {})
    return (tenacity.wait_fixed(longest) + tenacity.wait_random(0, longest / 4))(state)


def again(ask: Callable[[], T], limit: float = AGAIN_LIMIT) -> T:
    """
    Ask something that may be asked twice, again after a lost line, for at most `limit` seconds.

    Every command of mtpdeploy may be: reads, and steps that are keyed by the run they belong to.

    Raises:
        ConnectionLost: the line did not come back in time.
    """
    policy = tenacity.Retrying(
        stop=tenacity.stop_after_delay(limit),
        wait=tenacity.wait_chain(*(tenacity.wait_random(0, longest) for longest in RECONNECT_WAITS)),
        retry=tenacity.retry_if_exception_type(ConnectionLost),
        reraise=True,
    )
    return policy(ask)
