"""
One reader on a box, and what the next one has to know.
"""

import hashlib
import itertools
from collections.abc import Iterator
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from mtpdeploy.clock import Clock
from mtpdeploy.errors import ConnectionLost
from mtpdeploy.remote import frames, retry
from mtpdeploy.remote.box import Stream
from mtpdeploy.remote.frames import NoFrames, Note, Piece

HEAD = 4096
"""
Bytes at the start of a log that tell it from another (ssh-faults, A7 fault 85).
"""


class Position(Struct, frozen=True):
    """
    Where following stands: what the next reader has to know.

    `head` are the first bytes of the log, as far as they came; `begun` counts how often its bytes began
    anew.
    """

    offset: int
    head: bytes = b""
    device: int = 0
    inode: int = 0
    deleted: bool = False
    begun: int = 0

    def known(self) -> dict[str, Any]:
        """
        What the reader compares the log with.
        """
        known: dict[str, Any] = {"deleted": self.deleted}
        if self.head:
            known |= {"head": hashlib.sha256(self.head).hexdigest(), "head_bytes": len(self.head)}
        if self.inode:
            known |= {"dev": self.device, "ino": self.inode}
        return known

    def after(self, data: bytes) -> "Position":
        """
        The position behind `data`.
        """
        head = self.head
        if len(head) < HEAD and len(head) == self.offset:
            head += data[: HEAD - len(head)]
        return replace(self, offset=self.offset + len(data), head=head)


class Link:
    """
    One reader on the box, asked at `position`, and the frames it sends.
    """

    def __init__(self, stream: Stream, nonce: str, position: Position, clock: Clock) -> None:
        self.stream = stream
        self.position = position
        self.alive_at = (clock.now(), clock.monotonic())
        self.opened_at = clock.monotonic()
        self._clock = clock
        self._parser = frames.Frames(nonce)
        self.flow: Iterator[Piece | Note | None] = self._read()

    def await_first(self) -> None:
        """
        Wait until the reader speaks.

        Raises:
            ConnectionLost: it does not.
        """
        first = next(frame for frame in self.flow if frame is not None)
        self.flow = itertools.chain((first,), self.flow)

    def _read(self) -> Iterator[Piece | Note | None]:
        """
        Frames as they come, and None every now and then when none do.

        Time that the consumer of a frame takes is not counted as silence of the box.
        """
        silent = 0.0
        apart = self._clock.now() - self._clock.monotonic()
        while True:
            if abs(self._clock.now() - self._clock.monotonic() - apart) > retry.CLOCK_JUMP:
                raise ConnectionLost("this machine slept, or its clock was set")
            before = self._clock.monotonic()
            chunk = self.stream.read(retry.READER_TICK)
            if chunk is None:
                silent += self._clock.monotonic() - before
                if silent >= retry.SILENCE_LIMIT:
                    raise ConnectionLost(f"no sign of life for {silent:.0f} s")
                yield None
                continue
            if not chunk:
                raise self._ended()
            silent = 0.0
            self.alive_at = (self._clock.now(), self._clock.monotonic())
            yield from self._parser.feed(chunk)

    def _ended(self) -> ConnectionLost:
        if self._parser.begun:
            return ConnectionLost("the reader on the box ended")
        said = frames.shown(self._parser.noise)
        return NoFrames(f"the reader did not start on the box, which said {said}")
