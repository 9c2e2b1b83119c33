"""
Follow a log on a box: every byte once, in order, whatever happens to the line.
"""

import contextlib
import queue
import secrets
import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Self

from msgspec import Struct, convert
from msgspec.structs import replace

from mtpdeploy.clock import Clock, SystemClock
from mtpdeploy.core.patience import Activity
from mtpdeploy.errors import BoxUnreachable, ConnectionLost, MtpDeployError
from mtpdeploy.onbox import script
from mtpdeploy.remote import frames, retry
from mtpdeploy.remote.box import Box, Stream
from mtpdeploy.remote.frames import FollowEvent, Listening, LogChanged, NoFrames, Note, Piece
from mtpdeploy.remote.link import HEAD, Link, Position

QUEUE_EVENTS = 64
"""
Events that wait for a slow consumer: 16 MiB at most, then reading stops.
"""

PIECE_BYTES = 1 << 18
"""
Bytes of one event at most: as many as the reader on the box sends at once.
"""


class LogSource(Struct, frozen=True):
    """
    What is followed: a run's directory on the box, the log in it (or an absolute path), the server's port.
    """

    run_dir: str
    log: str
    port: int | None = None


OpenStream = Callable[[dict[str, Any]], Stream]
"""Starts `onbox/follow.py` with a request on the box; raises `BoxUnreachable` or its `ConnectionLost`."""


def reader_on(box: Box, python: str) -> OpenStream:
    """
    Readers on `box`, run by its interpreter `python`.
    """
    return lambda request: box.stream(script("follow", request, python))


class Stopped(Exception):
    """
    Following was closed.
    """


class CopyFailed(MtpDeployError):
    """
    The sink failed: a full disk here, most likely.
    """


@contextlib.contextmanager
def _copying() -> Iterator[None]:
    """
    What the system says against writing the local copy ends the following, with its reason.
    """
    try:
        yield
    except OSError as error:
        raise CopyFailed(f"the local copy of the log cannot be written: {error}") from error


class Follower:
    """
    Follows one log in a thread of its own and puts a `FollowEvent` for all that happens into `events`.

    `sink` gets every byte, in order, before anything else does: it appends to the local copy. `changed`
    is told when the log's bytes begin anew, before the sink gets them. `offset` is where to begin (the
    size of the local copy; below 0: so many bytes before the end) and `head` the first 4 KiB that the
    copy has, by which another log of the same name is known. A slow consumer stops the reading;
    `close` ends everything at once, from any thread. `Ended` or `Gone` is the last event.
    """

    def __init__(
        self,
        open_stream: OpenStream,
        source: LogSource,
        *,
        sink: Callable[[bytes], object],
        changed: Callable[[LogChanged], object] | None = None,
        offset: int = 0,
        head: bytes = b"",
        events: queue.Queue[Any] | None = None,
        clock: Clock | None = None,
        limit: float = retry.RECONNECT_LIMIT,
        reader_limit: float = retry.READER_LIMIT,
    ) -> None:
        self.events: queue.Queue[Any] = queue.Queue(QUEUE_EVENTS) if events is None else events
        self._open_stream = open_stream
        self._source = source
        self._sink = sink
        self._changed = changed
        self._clock: Clock = clock or SystemClock()
        self._reader_limit = reader_limit
        self._position = Position(offset, head[:HEAD])
        self._listening: Listening | None = None
        self._alive_at = (self._clock.now(), self._clock.monotonic())
        self._lost = False
        self._mute_readers = 0
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._links: list[Link] = []
        self._next: Link | None = None
        self._renewal: threading.Thread | None = None
        self._outage = retry.Outage(self._clock, self._stop, limit)
        self._thread = threading.Thread(target=self._work, name=f"follow {source.log}", daemon=True)

    def start(self) -> Self:
        """
        Begin; call it once.
        """
        self._thread.start()
        return self

    def get(self, timeout: float | None = None) -> FollowEvent | None:
        """
        The next event, or None when there was none within `timeout` seconds.
        """
        try:
            event: FollowEvent = self.events.get(timeout=timeout)
        except queue.Empty:
            return None
        return event

    def close(self) -> None:
        """
        Stop following and end the reader on the box. No event comes after this; call it as often as you like.
        """
        self._stop.set()
        with self._lock:
            links = list(self._links)
        for link in links:
            link.stream.close()
        self._join(self._thread)
        self._join(self._renewal)

    @property
    def alive(self) -> bool:
        """
        Whether more may come.
        """
        return self._thread.is_alive()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _work(self) -> None:
        """
        The thread: follow until the end, and say so when that was not the run's own.
        """
        try:
            self._outage.reconnecting()(self._follow)
        except Stopped:
            pass
        except MtpDeployError as error:
            self._put(frames.Gone(error.message))
        except Exception as error:
            # A thread that died without a word would look like a log that does not grow.
            if self._put(frames.Gone(f"following broke: {error!r}")):
                raise
        finally:
            for link in list(self._links):
                self._drop(link)

    def _follow(self) -> None:
        """
        Open a line and read until the run has ended.

        Raises:
            ConnectionLost: the line broke first.
            BoxUnreachable: it will not come back.
        """
        link: Link | None = None
        try:
            link = self._open()
            while link is not None:
                link = self._read(link)
        except ConnectionLost as error:
            self._line_lost(error)
            raise

    def _open(self) -> Link:
        """
        Start a reader where we stand.
        """
        if self._stop.is_set():
            raise Stopped
        nonce = secrets.token_hex(8)
        position = self._position
        request = {
            "run_dir": self._source.run_dir,
            "log": self._source.log,
            "port": self._source.port,
            "offset": position.offset,
            "known": position.known(),
            "nonce": nonce,
            "poll": retry.READER_POLL,
            "heartbeat": retry.HEARTBEAT,
            "limit": self._reader_limit,
            "grace": retry.READER_GRACE,
        }
        link = Link(self._open_stream(request), nonce, position, self._clock)
        with self._lock:
            self._links.append(link)
        if self._stop.is_set():
            self._drop(link)
            raise Stopped
        return link

    def _read(self, link: Link) -> Link | None:
        """
        Read one line; the one that takes over from it, or None when the run has ended.
        """
        for frame in link.flow:
            if self._stop.is_set():
                raise Stopped
            if isinstance(frame, Piece):
                self._take(frame)
            elif frame is not None and self._heed(frame):
                return None
            following, self._next = self._next, None
            if following is not None and following.position.begun == self._position.begun:
                self._drop(link)
                return following
            if following is not None:  # the log began anew meanwhile, and that reader would say so again
                self._drop(following)
                self._renew()
        raise AssertionError("a link ends by an error")

    def _take(self, piece: Piece) -> None:
        """
        Hand on what is new of a piece: readers that overlap send some bytes twice.
        """
        known = self._position.offset - piece.offset
        if known < 0:
            raise NoFrames(f"the reader left out {-known} bytes at {self._position.offset}")
        data = piece.data[known:] if known else piece.data
        for start in range(0, len(data), PIECE_BYTES):
            part = data[start : start + PIECE_BYTES]
            self._store(part)
            offset = self._position.offset
            self._position = self._position.after(part)
            self._emit(frames.NewBytes(offset, part))

    def _store(self, part: bytes) -> None:
        with _copying():
            self._sink(part)

    def _heed(self, note: Note) -> bool:
        """
        Act on a frame that carries no bytes; whether it was the last one.
        """
        content = note.content
        match note.kind:
            case "I":
                self._identified(content)
            case "H":
                activity = convert(content.get("activity"), Activity | None)
                self._emit(frames.Heartbeat(content["t"], content["size"], activity))
            case "L":
                listening = Listening(content["owner"], content["pid"])
                if listening != self._listening:
                    self._listening = listening
                    self._emit(listening)
            case "T":
                self._log_changed(LogChanged(content["what"], self._position.offset))
            case "B":
                self._renew()
            case "X":
                vanished = bool(content.get("vanished"))
                self._emit(frames.Ended(content.get("status"), vanished, content))
                return True
        return False

    def _identified(self, content: dict[str, Any]) -> None:
        """
        A reader stands and tells what it reads.
        """
        if content["ino"]:
            offset = self._position.offset if self._position.offset >= 0 else content["offset"]
            self._position = replace(
                self._position, device=content["dev"], inode=content["ino"], deleted=False, offset=offset
            )
        self._mute_readers = 0
        self._outage.over(stood=0.0)
        if self._lost:
            self._lost = False
            wall, monotonic = self._alive_at
            gap = max(self._clock.now() - wall, self._clock.monotonic() - monotonic)
            self._emit(frames.LineBack(gap))

    def _log_changed(self, change: LogChanged) -> None:
        if change.what == "deleted":
            self._position = replace(self._position, deleted=True)
        else:
            self._position = replace(self._position, offset=0, head=b"", begun=self._position.begun + 1)
        if self._changed is not None:
            with _copying():
                self._changed(change)
        self._emit(change)

    def _renew(self) -> None:
        """
        Start the next reader beside the one that asked for it; that one delivers until it is there.
        """

        def work() -> None:
            try:
                link = self._open()
                link.await_first()
            except (Stopped, BoxUnreachable):
                return  # the present reader ends in a while, and reconnecting begins
            self._next = link

        self._renewal = threading.Thread(target=work, name=f"renew {self._source.log}", daemon=True)
        self._renewal.start()

    def _line_lost(self, error: ConnectionLost) -> None:
        """
        Tell that the line is lost, once an outage.

        Raises:
            BoxUnreachable: readers do not start at all.
            Stopped: it was us who closed it.
        """
        if self._stop.is_set():
            raise Stopped from error
        with self._lock:
            links = list(self._links)
        for link in links:
            self._alive_at = max(self._alive_at, link.alive_at)
            if not self._lost:
                self._outage.over(self._clock.monotonic() - link.opened_at)
            self._drop(link)
        if not self._lost:
            self._lost = True
            self._emit(frames.LineLost(self._alive_at[0], error.message))
        if isinstance(error, NoFrames):
            self._mute_readers += 1
            if self._mute_readers >= retry.NO_FRAMES_LIMIT:
                raise BoxUnreachable(error.message) from error

    def _join(self, thread: threading.Thread | None) -> None:
        if thread is not None and thread.ident is not None and thread is not threading.current_thread():
            thread.join(retry.CLOSE_WAIT)

    def _drop(self, link: Link) -> None:
        with self._lock:
            if link in self._links:
                self._links.remove(link)
        link.stream.close()

    def _emit(self, event: FollowEvent) -> None:
        if not self._put(event):
            raise Stopped

    def _put(self, event: FollowEvent) -> bool:
        """
        Hand over an event; False when we were closed before there was room for it.
        """
        while not self._stop.is_set():
            try:
                self.events.put(event, timeout=retry.FULL_QUEUE_TICK)
            except queue.Full:
                continue
            return True
        return False
