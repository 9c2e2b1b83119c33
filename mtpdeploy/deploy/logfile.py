"""
A log file from anywhere as pieces of whole lines: gzipped, recoded, wrapped, cut off.
"""

import codecs
import gzip
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader, RawIOBase
from pathlib import Path
from typing import IO, cast

from mtpdeploy.core.wrappings import find_wrappings, unwrap
from mtpdeploy.errors import ConfigError

PIECE = 1 << 20
"""Bytes read at a time."""

GZIP = b"\x1f\x8b"
"""How a gzip file begins (RFC 1952)."""

UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
"""How UTF-16 begins."""


class LogFile:
    """
    A log that is open. `cut` says why it could not be read to its end; empty where it could.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._packed: _Unpacked | None = None
        self._file = self._plain(file)

    @property
    def cut(self) -> str:
        """
        Known once all pieces were taken.
        """
        return self._packed.cut if self._packed else ""

    def pieces(self) -> Iterator[bytes]:
        """
        The log in pieces of whole lines, without what others have put before them; a last line end is added.
        """
        kept, wrappings, whole_lines = b"", None, True
        while data := self._file.read(PIECE):
            whole, feed, rest = (kept + data).rpartition(b"\n")
            if not feed and len(rest) <= PIECE:
                kept = rest
                continue
            piece, kept = (whole + feed, rest) if feed else (rest, b"")
            wrappings = find_wrappings(piece[: 1 << 16]) if wrappings is None else wrappings
            whole_lines = bool(feed)
            yield unwrap(piece, wrappings)
        if kept or not whole_lines:
            yield unwrap(kept, wrappings or find_wrappings(kept)) + b"\n"

    def _plain(self, file: IO[bytes]) -> IO[bytes]:
        """
        A log as UTF-8, unpacked where it is gzipped and recoded where it is UTF-16 (as PowerShell's `>`
        writes).
        """
        peeked = BufferedReader(cast("RawIOBase", file))
        if peeked.peek(2).startswith(GZIP):
            self._packed = _Unpacked(peeked)
            peeked = BufferedReader(self._packed)
        if peeked.peek(2).startswith(UTF_16):
            return codecs.EncodedFile(peeked, "utf-8", "utf-16", "replace")
        if peeked.peek(3).startswith(codecs.BOM_UTF8):
            peeked.read(3)
        return peeked


class _Unpacked(RawIOBase):
    """
    A gzip file as far as it can be unpacked. One that is damaged from its beginning on raises.
    """

    def __init__(self, packed: IO[bytes]) -> None:
        self._file = gzip.GzipFile(fileobj=packed)
        self._some = False
        self.cut = ""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        try:
            data = self._file.read1(len(buffer))
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            if not self._some:
                raise OSError(str(error)) from None
            ends = isinstance(error, EOFError)
            self.cut = "the gzip file ends too early" if ends else f"the gzip file is damaged ({error})"
            return 0
        self._some = self._some or bool(data)
        buffer[: len(data)] = data
        return len(data)


@contextmanager
def opened(name: str) -> Iterator[LogFile]:
    """
    Open a log; `-` is standard input.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        if name == "-":
            if sys.stdin is None:
                raise ConfigError("standard input is closed", hint="pipe a log into it, or give a log file")
            yield LogFile(sys.stdin.buffer)
            return
        with Path(name).open("rb") as file:
            yield LogFile(file)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(f"{name} cannot be read: {reason}", hint="give a log file, or `-`") from None
