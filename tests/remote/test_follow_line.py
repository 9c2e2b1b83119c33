"""
A line to the box that breaks, falls silent, or never comes.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mtpdeploy.errors import BoxUnreachable, ConnectionLost
from mtpdeploy.remote import retry
from mtpdeploy.remote.box import Stream
from mtpdeploy.remote.frames import Ended, Gone, Heartbeat, LineBack, LineLost, NewBytes
from tests.fakes.clock import FakeClock
from tests.fakes.following import LocalReaders, SilentStream, Witness, follower_of
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


def said_first(frames: bytes, readers: LocalReaders) -> Callable[[dict[str, Any]], Stream]:
    """
    A first line on which `frames` come, then real readers.
    """
    first: list[bytes] = [frames]

    def open_stream(request: dict[str, Any]) -> Stream:
        if not first:
            return readers(request)
        return SilentStream(FakeClock(), f"MTPDEPLOY-FOLLOW {request['nonce']}\n".encode() + first.pop())

    return open_stream


class TestLine:
    """
    A line that breaks, and one that never comes.
    """

    def test_silence_is_death_after_three_heartbeats(self, run: LocalRun, readers: LocalReaders) -> None:
        """
        A frozen box keeps its TCP connection alive; only a word of its own counts.
        """
        clock, witness = FakeClock(), Witness()
        silent = [SilentStream(clock)]
        began = clock.now()

        def open_stream(request: dict[str, Any]) -> Stream:
            return silent[0] if not readers.opened and not silent[0].closed else readers(request)

        with follower_of(run, open_stream, witness, clock=clock) as follower:
            witness.watch(follower, lambda w: bool(w.of(LineBack)))

        assert LineLost(began, "no sign of life for 15 s") == witness.events[0]
        assert retry.SILENCE_LIMIT <= witness.of(LineBack)[0].gap_seconds < retry.SILENCE_LIMIT + 1
        assert silent[0].closed

    def test_a_wall_clock_that_jumped_means_reconnecting_at_once(
        self, run: LocalRun, readers: LocalReaders
    ) -> None:
        """
        A laptop that slept does not wait for a line that died meanwhile.
        """
        clock, witness = FakeClock(), Witness()
        with follower_of(run, readers, witness, clock=clock) as follower:
            witness.watch(follower, lambda w: bool(w.of(Heartbeat)))
            clock.set_wall(3600)
            witness.watch(follower, lambda w: bool(w.of(LineBack)))

        assert ["this machine slept, or its clock was set"] == [e.reason for e in witness.of(LineLost)]
        assert 3600 <= witness.of(LineBack)[0].gap_seconds

    def test_gives_up_after_the_limit_with_the_last_reason(self, run: LocalRun) -> None:
        """
        Waits grow to 10 s, each drawn at random below its figure; one loss is told, then the end.
        """
        clock, witness = FakeClock(), Witness()

        def open_stream(_: dict[str, Any]) -> Stream:
            raise ConnectionLost("no route to 203.0.113.20")

        with follower_of(run, open_stream, witness, clock=clock) as follower:
            witness.watch(follower, lambda _: False)

        longest = (*retry.RECONNECT_WAITS, *[10.0] * len(clock.slept))
        assert [LineLost, Gone] == [type(event) for event in witness.events]
        assert Gone("no route to 203.0.113.20") == witness.events[-1]
        assert all(slept <= most for slept, most in zip(clock.slept, longest, strict=False))
        assert retry.RECONNECT_LIMIT <= sum(clock.slept) < retry.RECONNECT_LIMIT + 10

    def test_what_waiting_cannot_mend_is_final_at_once(self, run: LocalRun) -> None:
        """
        A key that is refused is not tried for ten minutes.
        """
        witness, tried = Witness(), list[dict[str, Any]]()

        def open_stream(request: dict[str, Any]) -> Stream:
            tried.append(request)
            raise BoxUnreachable("the key is refused")

        with follower_of(run, open_stream, witness) as follower:
            witness.watch(follower, lambda _: False)

        assert [Gone("the key is refused")] == witness.events
        assert 1 == len(tried)

    def test_noise_in_front_of_the_reader_does_no_harm(self, run: LocalRun) -> None:
        """
        Banners and start-up files may say what they like first.
        """
        clock, witness = FakeClock(), Witness()

        def open_stream(request: dict[str, Any]) -> Stream:
            said = f"Welcome!\nMTPDEPLOY-FOLLOW other\nno newlineMTPDEPLOY-FOLLOW {request['nonce']}\n"
            return SilentStream(clock, said.encode() + b'D 0 2\nokX {"status": 3}\n')

        with follower_of(run, open_stream, witness, clock=clock) as follower:
            witness.watch(follower, lambda _: False)

        assert [NewBytes(0, b"ok"), Ended(3, vanished=False, record={"status": 3})] == witness.events

    def test_a_reader_that_never_starts_is_named_with_what_the_box_said(self, run: LocalRun) -> None:
        """
        Three in a row are enough: no interpreter comes back by waiting.
        """
        clock, witness, opened = FakeClock(), Witness(), list[SilentStream]()

        def open_stream(_: dict[str, Any]) -> Stream:
            opened.append(SilentStream(clock, b"sh: python3: not found\n", ends=True))
            return opened[-1]

        with follower_of(run, open_stream, witness, clock=clock) as follower:
            witness.watch(follower, lambda _: False)

        reason = "the reader did not start on the box, which said 'sh: python3: not found'"
        assert Gone(reason) == witness.events[-1]
        assert 3 == len(opened)
        assert all(stream.closed for stream in opened)

    def test_something_that_speaks_between_frames_is_named_and_left(
        self, run: LocalRun, readers: LocalReaders
    ) -> None:
        """
        A background job of a start-up file that prints into our channel costs that channel, not a byte.
        """
        witness = Witness()
        run.write(b"ok then")
        run.exit(0)
        with follower_of(run, said_first(b"D 0 2\nok[1]+ Done  job\n", readers), witness) as follower:
            witness.watch(follower, lambda _: False)

        assert ["something else speaks between the reader's frames: '[1]+ Done  job'"] == [
            event.reason for event in witness.of(LineLost)
        ]
        assert b"ok then" == witness.data

    def test_bytes_that_a_reader_leaves_out_are_noticed(self, run: LocalRun, readers: LocalReaders) -> None:
        """
        An offset beyond the one expected is no growth of the log.
        """
        witness = Witness()
        run.write(b"abc")
        run.exit(0)
        with follower_of(run, said_first(b"D 0 1\naD 2 1\nc", readers), witness) as follower:
            witness.watch(follower, lambda _: False)

        assert ["the reader left out 1 bytes at 1"] == [event.reason for event in witness.of(LineLost)]
        assert b"abc" == witness.data
