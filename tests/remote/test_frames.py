"""
Frames, however their bytes arrive.
"""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtpdeploy.remote.frames import HEADER_LIMIT, Frames, NoFrames, Note, Piece

STREAM = b'hello\nMTPDEPLOY-FOLLOW n1\nI {"ino": 7}\nD 5 6\n\nD 1 1H {"size": 11}\nD 11 0\nX {"status": 0}\n'


class TestFrames:
    """
    The parser of frames.
    """

    @given(st.lists(st.integers(1, len(STREAM)), max_size=8))
    def test_any_chunking_gives_the_same_content(self, cuts: list[int]) -> None:
        """
        Bytes of the log that look like frames are bytes of the log.
        """
        frames = Frames("n1")
        places = [0, *sorted(cuts), len(STREAM)]
        found = [
            frame for start, end in itertools.pairwise(places) for frame in frames.feed(STREAM[start:end])
        ]
        pieces = [frame for frame in found if isinstance(frame, Piece)]

        assert [Note("I", {"ino": 7}), Note("H", {"size": 11}), Note("X", {"status": 0})] == [
            frame for frame in found if isinstance(frame, Note)
        ]
        assert b"\nD 1 1" == b"".join(piece.data for piece in pieces)
        assert [5 + sum(len(p.data) for p in pieces[:i]) for i in range(len(pieces))] == [
            piece.offset for piece in pieces
        ]
        assert b"hello\n" == frames.noise

    @pytest.mark.parametrize(
        "strange", [b"E {}\n", b"D 1\n", b"D a b\n", b"H nothing\n", b"H [1]\n", b"x" * (HEADER_LIMIT + 1)]
    )
    def test_what_is_no_frame_is_named(self, strange: bytes) -> None:
        """
        Nothing is guessed: the message shows what came instead.
        """
        frames = Frames("n1")
        list(frames.feed(b"MTPDEPLOY-FOLLOW n1\n"))

        with pytest.raises(NoFrames, match="something else speaks between the reader's frames"):
            list(frames.feed(strange))

    def test_a_box_that_says_anything_but_our_first_line_is_named(self) -> None:
        """
        Noise without end is not kept without end.
        """
        with pytest.raises(NoFrames, match="first line is missing; the box said 'yes"):
            list(Frames("n1").feed(b"MTPDEPLOY-FOLLOW n2\n" + b"yes\n" * HEADER_LIMIT))
