"""
Following on this machine: readers that can be cut, and everything a follower said.
"""

import random
import sys
import threading
from collections.abc import Callable
from typing import Any

from mtpdeploy.errors import ConnectionLost
from mtpdeploy.onbox import script
from mtpdeploy.remote.box import Stream
from mtpdeploy.remote.follow import Follower, LogSource
from mtpdeploy.remote.frames import Ended, FollowEvent, Gone, NewBytes
from tests.fakes.clock import FakeClock
from tests.fakes.run import LocalRun
from tests.fakes.stream import LocalStream

DEADLINE = 60.0
"""Seconds within which what must happen at all has to happen."""


class LocalReaders:
    """
    An `OpenStream` that runs the real reader here; `opened` are all it started.
    """

    def __init__(self) -> None:
        self.opened: list[LocalStream] = []
        self.requests: list[dict[str, Any]] = []

    def __call__(self, request: dict[str, Any]) -> LocalStream:
        """
        Start a reader.
        """
        self.requests.append(request)
        self.opened.append(LocalStream(script("follow", request, sys.executable)))
        return self.opened[-1]

    def left(self) -> list[int]:
        """
        The pids of readers that still run.
        """
        return [stream.process.pid for stream in self.opened if stream.process.poll() is None]


class ShortLine:
    """
    A stream that breaks after `budget` bytes, wherever in a frame that is.
    """

    def __init__(self, stream: LocalStream, budget: int) -> None:
        self._stream = stream
        self._budget = budget

    def read(self, timeout: float) -> bytes | None:
        """
        As the stream under it, until the budget is used up.

        Raises:
            ConnectionLost: it is.
        """
        if self._budget <= 0:
            raise ConnectionLost("cut by the test")
        chunk = self._stream.read(timeout)
        kept = chunk[: self._budget] if chunk else chunk
        self._budget -= len(chunk or b"")
        return kept

    def close(self) -> None:
        """
        Close the stream under it.
        """
        self._stream.close()


class Witness:
    """
    Takes a follower's events in order; `copy` is what its sink got.
    """

    def __init__(self) -> None:
        self.copy = bytearray()
        self.events: list[FollowEvent] = []

    def watch(self, follower: Follower, enough: Callable[["Witness"], bool]) -> "Witness":
        """
        Take events until `enough`, or the last one.
        """
        while not enough(self) and not self.of(Ended, Gone):
            event = follower.get(DEADLINE)
            assert event is not None, f"nothing happened; came: {self.brief()}"
            if isinstance(event, NewBytes):
                stored = bytes(self.copy[event.offset : event.offset + len(event.data)])
                assert event.data == stored or self.begun, "seen before it was stored"
            self.events.append(event)
        return self

    def watch_bytes(self, follower: Follower, size: int) -> "Witness":
        """
        Take events until so many bytes came.
        """
        return self.watch(follower, lambda _: len(self.data) >= size)

    def watch_count(self, follower: Follower, count: int, kind: type) -> "Witness":
        """
        Take events until there are so many of a kind.
        """
        return self.watch(follower, lambda _: len(self.of(kind)) >= count)

    def of(self, *kinds: type) -> list[Any]:
        """
        The events of some kinds.
        """
        return [event for event in self.events if isinstance(event, kinds)]

    def brief(self) -> list[str]:
        """
        The kinds of the events, for a message.
        """
        return [type(event).__name__ for event in self.events]

    @property
    def begun(self) -> bool:
        """
        Whether the log's bytes began anew, so that offsets no longer count in the copy.
        """
        return "LogChanged" in self.brief()

    @property
    def data(self) -> bytes:
        """
        The bytes of the events.
        """
        return b"".join(event.data for event in self.of(NewBytes))


def nasty_log(seed: int, size: int) -> bytes:
    """
    Lines in UTF-8, bars with carriage returns, NULs, damaged bytes, escapes and a line of 300 KB.
    """
    dice = random.Random(seed)  # noqa: S311 - a repeatable test
    parts: list[bytes] = [b"A" * 300_000 + b"\n"]
    length = len(parts[0])
    while length < size:
        parts.append(
            dice.choice(
                [
                    f"[2026-12-01 09:30:{dice.randrange(60):02}] ✓ Größe {dice.random()}\n".encode(),
                    b"\rLoading:  %d%%|\xe2\x96\x88" % dice.randrange(100),
                    b"\0" * dice.randrange(20),
                    bytes(dice.randrange(256) for _ in range(dice.randrange(40))),
                    b"\x1b[31mred\x1b[0m\n",
                ]
            )
        )
        length += len(parts[-1])
    dice.shuffle(parts)
    return b"".join(parts)


def write_slowly(write: Callable[[bytes], None], data: bytes, seed: int, pause: float) -> threading.Thread:
    """
    Write `data` in pieces that end anywhere, in a thread.
    """
    dice = random.Random(seed)  # noqa: S311 - a repeatable test

    def work() -> None:
        at = 0
        while at < len(data):
            step = dice.choice([1, 7, 100, 5000, 100_000])
            write(data[at : at + step])
            at += step
            pauses.wait(pause * dice.random())

    pauses = threading.Event()
    thread = threading.Thread(target=work)
    thread.start()
    return thread


class SilentStream:
    """
    Says what it is told to, and then nothing for ever; time passes on a fake clock.
    """

    def __init__(self, clock: FakeClock, said: bytes = b"", *, ends: bool = False) -> None:
        self._clock = clock
        self._said = said
        self._ends = ends
        self.closed = False

    def read(self, timeout: float) -> bytes | None:
        """
        What is left to say, or silence.
        """
        if self.closed:
            return b""
        said, self._said = self._said, b""
        if not said:
            self._clock.advance(timeout)
        return said or (b"" if self._ends else None)

    def close(self) -> None:
        """
        The follower gave up on it.
        """
        self.closed = True


def follower_of(
    run: LocalRun, open_stream: Callable[[dict[str, Any]], Stream], witness: Witness, **options: Any
) -> Follower:
    """
    A follower whose copy goes to the witness; with a clock on which waiting takes no time.
    """
    source = LogSource(str(run.folder), run.path.name, options.pop("port", None))
    options = {"clock": FakeClock(), "sink": witness.copy.extend, **options}
    return Follower(open_stream, source, **options)
