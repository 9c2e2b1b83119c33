"""
What others wrote is decoded, or refused in one error.
"""

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from mtpdeploy.core.foreign import Foreign, decoded, is_plain_name, unpacked


class Small(Struct):
    """
    Something to be decoded.
    """

    at: float


class TestDecoded:
    """
    JSON of others.
    """

    @pytest.mark.parametrize(
        "text",
        [b"", b"[" * 100_000, b'{"a":' * 100_000, b"9" * 5000, b"NaN", b'{"at":"x"}', b'"\xff"', "\ud800"],
        ids=["empty", "deep lists", "deep objects", "long number", "NaN", "type", "bytes", "surrogate"],
    )
    def test_what_is_none_is_one_error(self, text: bytes | str) -> None:
        """
        Never an error that the caller does not know.
        """
        with pytest.raises(Foreign):
            decoded(text, Small)

    @given(st.binary())
    def test_any_bytes_are_decoded_or_refused(self, text: bytes) -> None:
        """
        Nothing else comes out.
        """
        try:
            decoded(text)
        except Foreign:
            return


class TestUnpacked:
    """
    What was packed by others.
    """

    def test_a_bomb_is_refused_before_it_goes_off(self) -> None:
        """
        A megabyte of zeros in a thousand bytes.
        """
        with pytest.raises(Foreign, match="larger than 1000 bytes"):
            unpacked(zlib.compress(bytes(1 << 20)), 1000)

    def test_a_cut_one_is_refused(self) -> None:
        """
        Half an answer is none.
        """
        with pytest.raises(Foreign, match="cut off"):
            unpacked(zlib.compress(b"hello")[:-2], 1000)

    def test_a_whole_one_is_unpacked(self) -> None:
        """
        Up to the very limit.
        """
        assert b"hello" == unpacked(zlib.compress(b"hello"), 5)


class TestIsPlainName:
    """
    Names of files that a box has chosen.
    """

    @pytest.mark.parametrize(
        "name",
        [
            "",
            ".",
            "..",
            "../x",
            "/etc/passwd",
            "a/../b",
            ".ssh",
            "a\0b",
            "a\nb",
            "\x1b[2J",
            "\u202ea",
            "x" * 256,
        ],
    )
    def test_paths_and_commands_are_none(self, name: str) -> None:
        """
        Nothing that leads out of a folder.
        """
        assert not is_plain_name(name)

    @pytest.mark.parametrize("name", ["20261201-051215Z-qwen-0a1b2c3d-2", "küche", "a..b", "x" * 255])
    def test_ordinary_names_are(self, name: str) -> None:
        """
        Those that we make ourselves, whatever a server is called.
        """
        assert is_plain_name(name)
