"""
Following: every byte once, whatever happens to the line. The reader is the real one, run on this machine.
"""

import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mtpdeploy.errors import ConnectionLost
from mtpdeploy.remote import retry
from mtpdeploy.remote.box import Stream
from mtpdeploy.remote.follow import QUEUE_EVENTS
from mtpdeploy.remote.frames import (
    Ended,
    Gone,
    Heartbeat,
    LineBack,
    LineLost,
    Listening,
    LogChanged,
    NewBytes,
)
from tests.fakes.clock import FakeClock
from tests.fakes.following import (
    DEADLINE,
    LocalReaders,
    ShortLine,
    SilentStream,
    Witness,
    follower_of,
    nasty_log,
    write_slowly,
)
from tests.fakes.run import LocalRun


@pytest.fixture
def run(tmp_path: Path) -> Iterator[LocalRun]:
    """
    A run whose supervisor lives.
    """
    with LocalRun(tmp_path / "20261201-093012Z-qwen-1") as run:
        yield run


@pytest.fixture
def readers() -> Iterator[LocalReaders]:
    """
    The readers of a test; none may be left.
    """
    readers = LocalReaders()
    yield readers
    assert [] == readers.left()


def exited(status: int) -> dict[str, Any]:
    """
    The record of an exit that nobody ordered.
    """
    return {"status": status, "signal": None, "stopped": ""}


class TestEveryByteOnce:
    """
    The copy and the events are the log, whatever is cut.
    """

    @pytest.mark.parametrize("seed", range(4))
    def test_with_readers_killed_at_random(self, run: LocalRun, readers: LocalReaders, seed: int) -> None:
        """
        Readers die while a log of all kinds of bytes grows; the copy is the log, and so are the events.
        """
        print("seed", seed)
        log, witness, dice = nasty_log(seed, 2_000_000), Witness(), random.Random(seed)  # noqa: S311 - a repeatable test
        with follower_of(run, readers, witness) as follower:
            writer = write_slowly(run.write, log, seed, 0.02)
            for _ in range(15):
                witness.watch_bytes(follower, min(len(log), len(witness.data) + dice.randrange(300_000)))
                readers.opened[-1].cut()
            writer.join()
            run.exit(1)
            witness.watch(follower, lambda _: False)

        assert log == run.path.read_bytes()
        assert log == bytes(witness.copy)
        assert log == witness.data
        assert [Ended(1, vanished=False, record=exited(1))] == witness.of(Ended)
        assert len(witness.of(LineLost)) == len(witness.of(LineBack)) > 0

    @pytest.mark.parametrize("seed", range(4))
    def test_with_lines_that_break_inside_frames(
        self, run: LocalRun, readers: LocalReaders, seed: int
    ) -> None:
        """
        A cut in the first line, in a header, in the middle of bytes: nothing is lost or comes twice.
        """
        print("seed", seed)
        log, witness, dice = nasty_log(seed, 3_000_000), Witness(), random.Random(seed)  # noqa: S311 - a repeatable test
        budgets = [dice.choice([10, 40, 200, 5000, 100_000, 400_000]) for _ in range(25)]

        def open_stream(request: dict[str, Any]) -> Stream:
            stream = readers(request)
            return ShortLine(stream, budgets.pop()) if budgets else stream

        run.write(log)
        run.exit(0)
        with follower_of(run, open_stream, witness) as follower:
            witness.watch(follower, lambda _: False)

        assert log == bytes(witness.copy)
        assert log == witness.data
        assert [0] == [event.status for event in witness.of(Ended)]

    def test_across_renewals_without_a_gap(self, run: LocalRun, readers: LocalReaders) -> None:
        """
        The next reader takes over while the last one still delivers: the line is never lost.
        """
        log, witness = nasty_log(1, 1_000_000), Witness()
        with follower_of(run, readers, witness, reader_limit=0.05) as follower:
            writer = write_slowly(run.write, log, 1, 0.03)
            witness.watch(follower, lambda w: len(w.data) == len(log) and len(readers.opened) > 4)
            writer.join()
            run.exit(0)
            witness.watch(follower, lambda _: False)

        assert log == bytes(witness.copy)
        assert log == witness.data
        assert [] == witness.of(LineLost)

    def test_after_the_client_died(self, run: LocalRun, readers: LocalReaders) -> None:
        """
        A new client goes on behind its local copy, and knows by its first bytes that it is the same log.
        """
        run.write(b"first half, second half")
        run.exit(0)
        witness = Witness()
        witness.copy += b"first half"
        with follower_of(run, readers, witness, offset=10, head=b"first half") as follower:
            witness.watch(follower, lambda _: False)

        assert b", second half" == witness.data
        assert b"first half, second half" == bytes(witness.copy)

    def test_from_the_end_of_a_large_log(self, run: LocalRun, readers: LocalReaders) -> None:
        """
        A view of the end says where it begins.
        """
        run.write(b"x" * 100_000 + b"end")
        run.exit(0)
        witness = Witness()
        with follower_of(run, readers, witness, offset=-3, sink=bytes) as follower:
            witness.events.append(follower.get(DEADLINE) or Gone(""))

        assert [NewBytes(100_000, b"end")] == witness.events


class TestLogChanges:
    """
    A log that is not what it was.
    """

    def test_each_is_told_once_and_the_new_content_follows(
        self, run: LocalRun, readers: LocalReaders
    ) -> None:
        """
        Truncated, replaced and deleted logs are named; a cut of the line in between changes nothing.
        """
        witness, segments = Witness(), list[LogChanged]()
        with follower_of(run, readers, witness, changed=segments.append) as follower:
            run.write(b"one")
            witness.watch(follower, lambda w: w.data == b"one")
            run.path.write_bytes(b"2")
            witness.watch(follower, lambda w: w.data == b"one2")
            run.path.rename(run.path.with_suffix(".1"))
            witness.watch(follower, lambda w: len(w.of(LogChanged)) == 2)
            readers.opened[-1].cut()
            witness.watch(follower, lambda w: bool(w.of(LineBack)))
            run.write(b"three")
            witness.watch(follower, lambda w: w.data == b"one2three")
            readers.opened[-1].cut()
            witness.watch(follower, lambda w: len(w.of(LineBack)) == 2)
            run.exit(0)
            witness.watch(follower, lambda _: False)

        expected = [LogChanged("truncated", 3), LogChanged("deleted", 1), LogChanged("replaced", 1)]
        assert expected == witness.of(LogChanged)
        assert expected == segments
        assert b"one2three" == witness.data
        assert [0, 0, 0] == [event.offset for event in witness.of(NewBytes)]

    def test_a_log_rewritten_while_the_line_was_away_is_another_log(
        self, run: LocalRun, readers: LocalReaders
    ) -> None:
        """
        Longer than before and with the same inode, it is known by its first bytes.
        """
        witness, away = Witness(), threading.Event()

        def open_stream(request: dict[str, Any]) -> Stream:
            if away.is_set():
                run.path.write_bytes(b"another and longer content")
                away.clear()
            return readers(request)

        with follower_of(run, open_stream, witness) as follower:
            run.write(b"some content")
            witness.watch(follower, lambda w: w.data == b"some content")
            away.set()
            readers.opened[-1].cut()
            witness.watch(follower, lambda w: w.data == b"some contentanother and longer content")

        assert [LogChanged("replaced", 12)] == witness.of(LogChanged)


class TestEnd:
    """
    How a run ended.
    """

    def test_a_killed_supervisor_has_vanished_behind_all_its_bytes(
        self, tmp_path: Path, readers: LocalReaders
    ) -> None:
        """
        Whatever a process wrote before it was killed comes before the news of its death.
        """
        log = tmp_path / "r" / "attempt.log"
        code = f"i=0; while :; do echo line $i; i=$((i+1)); done >>{log}"
        witness = Witness()
        with LocalRun(tmp_path / "r", ("sh", "-c", code)) as run:
            with follower_of(run, readers, witness) as follower:
                witness.watch(follower, lambda w: len(w.data) > 10_000)
                run.kill()
                witness.watch(follower, lambda _: False)
            stored = run.path.read_bytes()

        assert Ended(None, vanished=True, record={"vanished": True, "stopped": ""}) == witness.events[-1]
        assert stored == bytes(witness.copy)

    def test_a_listener_is_told_once(self, run: LocalRun, readers: LocalReaders) -> None:
        """
        Readers that come and go do not repeat what has not changed.
        """
        witness = Witness()
        with follower_of(run, readers, witness, port=1) as follower:
            witness.watch(follower, lambda w: bool(w.of(Listening)))
            readers.opened[-1].cut()
            witness.watch(follower, lambda w: len(w.of(Heartbeat)) == 2)
            run.kill()
            witness.watch(follower, lambda _: False)

        assert [Listening("none", 0)] == witness.of(Listening)


class TestClosing:
    """
    Stopping, at any moment.
    """

    def test_ends_at_once_and_leaves_no_reader(self, run: LocalRun, readers: LocalReaders) -> None:
        """
        From another thread, while nothing happens; twice does no harm. The fixture counts the readers.
        """
        witness = Witness()
        follower = follower_of(run, readers, witness, clock=None).start()
        witness.watch(follower, lambda w: bool(w.of(Heartbeat)))
        thread = threading.Thread(target=follower.close)
        thread.start()
        thread.join(retry.READER_TICK * 20)
        follower.close()

        assert not thread.is_alive()
        assert not follower.alive

    def test_a_slow_consumer_stops_the_reading_and_blocks_nothing(
        self, run: LocalRun, readers: LocalReaders
    ) -> None:
        """
        Memory holds a queue of events, not the log; closing works although the queue is full.
        """
        run.write(b"x" * 64_000_000)
        witness, stored = Witness(), list[int]()
        follower = follower_of(run, readers, witness, sink=lambda part: stored.append(len(part))).start()
        while not follower.events.full():
            time.sleep(0.01)
        time.sleep(0.3)
        before = len(stored)
        follower.close()

        assert QUEUE_EVENTS + 1 == before == len(stored)
        assert not follower.alive

    def test_while_a_line_is_being_opened(self, run: LocalRun) -> None:
        """
        A connection that comes up after closing is closed, too.
        """
        opening, go_on, stream = threading.Event(), threading.Event(), SilentStream(FakeClock())

        def open_stream(_: dict[str, Any]) -> Stream:
            opening.set()
            go_on.wait(DEADLINE)
            return stream

        follower = follower_of(run, open_stream, Witness()).start()
        opening.wait(DEADLINE)
        threading.Timer(0.1, go_on.set).start()
        follower.close()

        assert stream.closed
        assert not follower.alive

    def test_while_waiting_to_try_again(self, run: LocalRun) -> None:
        """
        The wait for the next try ends with the closing.
        """
        witness = Witness()

        def open_stream(_: dict[str, Any]) -> Stream:
            raise ConnectionLost("refused")

        follower = follower_of(run, open_stream, witness, clock=None).start()
        witness.watch(follower, lambda w: bool(w.of(LineLost)))
        follower.close()

        assert not follower.alive
        assert [] == witness.of(Gone)

    def test_a_copy_that_cannot_be_written_is_named(self, run: LocalRun, readers: LocalReaders) -> None:
        """
        Bytes that could not be stored are not shown as if they were.
        """

        def full(_: bytes) -> None:
            raise OSError(28, "No space left on device")

        run.write(b"x")
        witness = Witness()
        with follower_of(run, readers, witness, sink=full) as follower:
            witness.watch(follower, lambda _: False)

        assert [
            Gone("the local copy of the log cannot be written: [Errno 28] No space left on device")
        ] == witness.of(Gone)
        assert [] == witness.of(NewBytes)
