"""
The frames of the reader on the box (`onbox/follow.py`), and what a follower makes of them.
"""

from collections.abc import Iterator
from typing import Any, Literal

from msgspec import Struct

from mtpdeploy.core.foreign import decoded
from mtpdeploy.core.patience import Activity
from mtpdeploy.errors import ConnectionLost

MAGIC = b"MTPDEPLOY-FOLLOW "
"""What stands before the nonce in the first line that is ours."""

HEADER_LIMIT = 1 << 16
"""
Bytes of a frame's header, and of what may stand in front of the first: far more than either ever has
(a banner, a frame of JSON), so that more means that something else is talking.
"""


KINDS = (b"I", b"H", b"L", b"T", b"B", b"X")


class NewBytes(Struct, frozen=True, tag=True):
    """
    The log grew: `data` stands at byte `offset` of it. They are in the local copy already.
    """

    offset: int
    data: bytes


class Heartbeat(Struct, frozen=True, tag=True):
    """
    The box lives. `at` is its own wall clock, `log_bytes` what the log has there.

    `activity` is what the run's family has used; None where it is not counted (no reader there).
    """

    at: float
    log_bytes: int
    activity: Activity | None = None


class Listening(Struct, frozen=True, tag=True):
    """
    Who listens on the server's port now: the run's own family, another process, nobody (pid 0).

    The pid is 0, too, where the other process belongs to a user we may not look at.
    """

    owner: Literal["run", "other", "none"]
    pid: int


class Ended(Struct, frozen=True, tag=True):
    """
    The run has ended, and every byte of its log came before this. The last event but a close.

    `status` as a shell shows it; None where the process `vanished` without a record. `record` is the
    exit record as it stands on the box, and `stopped` in it who ordered the end, or "".
    """

    status: int | None
    vanished: bool
    record: dict[str, Any]


class LogChanged(Struct, frozen=True, tag=True):
    """
    The log is not what it was: after "truncated" and "replaced" its bytes count from 0 again; after
    "deleted" the process may still write into it. `had` is how many bytes of the old content came.
    """

    what: Literal["truncated", "replaced", "deleted"]
    had: int


class LineLost(Struct, frozen=True, tag=True):
    """
    The line to the box broke; it is being brought back. `since` is our wall clock at the last sign of life.
    """

    since: float
    reason: str


class LineBack(Struct, frozen=True, tag=True):
    """
    The line is back after `gap_seconds`; no byte was lost.
    """

    gap_seconds: float


class Gone(Struct, frozen=True, tag=True):
    """
    Following has given up; what runs on the box goes on. The last event. `reason` is a sentence.
    """

    reason: str


FollowEvent = NewBytes | Heartbeat | Listening | Ended | LogChanged | LineLost | LineBack | Gone


class Piece(Struct, frozen=True):
    """
    Bytes of the log, or as many of them as came at once.
    """

    offset: int
    data: bytes


class Note(Struct, frozen=True):
    """
    A frame without log bytes: its letter and its content.
    """

    kind: str
    content: dict[str, Any]


class NoFrames(ConnectionLost):
    """
    The box answered, but not with our frames: the reader did not start, or something speaks in between.
    """


class Frames:
    """
    Takes frames out of a byte stream, however it is cut. What stands before the first is `noise`.

    `nonce` is what the reader was told to say, so that nothing else can be taken for it.
    """

    def __init__(self, nonce: str) -> None:
        self._magic = MAGIC + nonce.encode("ascii") + b"\n"
        self.begun = False
        self._header = b""
        self._offset = 0
        self._left = 0
        self.noise = b""

    def feed(self, chunk: bytes) -> Iterator[Piece | Note]:
        """
        What `chunk` brings; a part of a data frame is handed on as it comes.

        Raises:
            NoFrames: something stands where a frame should.
        """
        if not self.begun:
            chunk = self._begin(chunk)
        at = 0
        while at < len(chunk):
            if self._left:
                data = chunk[at : at + self._left]
                piece = Piece(self._offset, data)
                at += len(data)
                self._offset += len(data)
                self._left -= len(data)
                yield piece
                continue
            end = chunk.find(b"\n", at)
            self._header += chunk[at : end if end >= 0 else len(chunk)]
            if len(self._header) > HEADER_LIMIT:
                raise NoFrames(f"something else speaks between the reader's frames: {shown(self._header)}")
            if end < 0:
                return
            at = end + 1
            header, self._header = self._header, b""
            note = self._read(header)
            if note is not None:
                yield note

    def _begin(self, chunk: bytes) -> bytes:
        """
        Look for the first line of ours; what stands behind it.
        """
        self.noise += chunk
        noise, magic, rest = self.noise.partition(self._magic)
        if not magic:
            if len(noise) > HEADER_LIMIT:
                raise NoFrames(f"the reader's first line is missing; the box said {shown(noise)}")
            return b""
        self.noise = noise
        self.begun = True
        return rest

    def _read(self, header: bytes) -> Note | None:
        """
        Read a header line; None for that of a data frame, whose bytes follow.
        """
        kind, _, rest = header.partition(b" ")
        try:
            if kind == b"D":
                self._offset, self._left = (int(word) for word in rest.split(b" "))
                return None
            if kind in KINDS:
                return Note(kind.decode(), decoded(rest, dict[str, Any]))
        except ValueError:
            pass
        raise NoFrames(f"something else speaks between the reader's frames: {shown(header)}")


def shown(noise: bytes) -> str:
    """
    The end of what the box said instead, fit for a message.
    """
    return repr(noise[-200:].decode("utf-8", "replace").strip()) if noise.strip() else "nothing"
