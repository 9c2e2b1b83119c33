"""
From bytes as they arrive to the lines that people and signatures read.
"""

import codecs
import re

from msgspec import Struct

LINE_LIMIT = 1 << 20
"""
Bytes of one line that are kept for display and matching; the rest is counted only. The copy on disk has
all of them. Source: ssh-faults, A7 fault 89.
"""

OBEYED = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u206f"
    r"\ud800-\udfff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
"""
Characters that a terminal obeys, that turn the direction of text or hide it, and what is none. Tabs and line
feeds apart.
"""

CONTROL = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours and cursor movements
    r"|\x1b[\]PX^_][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"  # titles, links, clipboard: up to their end
    r"|\x9b[0-?]*[ -/]*[@-~]"
    r"|\x1b[ -/]*[0-~]?"
    rf"|\n|{OBEYED.pattern}"
)
"""What a terminal obeys instead of showing it (ECMA-48), and the characters of `OBEYED`."""


class Line(Struct, frozen=True):
    """
    A line of a log, without its end.

    `number` counts line feeds, from 1, as `sed -n NUMBERp` does. A line that ends with a carriage
    return is a state of a progress bar: `bar` is true and its number is that of the line it stands in.
    `cut` is how many bytes were left out at the end of a very long one.
    """

    number: int
    text: str
    bar: bool = False
    cut: int = 0


class Lines:
    """
    Cuts a byte stream into lines, wherever the stream itself is cut.

    Characters are decoded as UTF-8 when a line is complete, damaged bytes are replaced. Holds at most
    `limit` bytes.
    """

    def __init__(self, first: int = 1, limit: int = LINE_LIMIT) -> None:
        self._number = first
        self._limit = limit
        self._kept = bytearray()
        self._cut = 0
        self._returned = False

    @property
    def pending(self) -> str:
        """
        What has come of the line that is not complete yet.
        """
        return _decode(self._kept)

    def feed(self, data: bytes) -> list[Line]:
        """
        The lines that `data` completes.
        """
        found: list[Line] = []
        head, feed, rest = data.partition(b"\n")
        self._take(head, found)
        if not feed:
            return found
        found.append(self._finish(bar=False))
        middle, feed, tail = rest.rpartition(b"\n")
        if feed and (b"\r" in middle or len(middle) > self._limit):
            for part in middle.split(b"\n"):
                self._take(part, found)
                found.append(self._finish(bar=False))
        elif feed:
            self._plain(middle, found)
        self._take(tail, found)
        return found

    @property
    def next(self) -> int:
        """
        The number of the line that comes next.
        """
        return self._number

    def pass_over(self, count: int) -> None:
        """
        Count lines that are not fed; only where no line is begun.
        """
        self._number += count

    def finish(self) -> list[Line]:
        """
        What is left when nothing more will come: the last line, if it has no end.
        """
        if not (self._kept or self._cut):
            return []
        return [self._finish(bar=False)]

    def _plain(self, middle: bytes, found: list[Line]) -> None:
        """
        Add many short lines without carriage returns at once: three times as fast as one by one.
        """
        texts = middle.decode("utf-8", "replace").split("\n")
        found += [Line(number, text) for number, text in enumerate(texts, self._number)]
        self._number += len(texts)

    def _take(self, part: bytes, found: list[Line]) -> None:
        """
        Add a piece without line feeds; a carriage return ends a bar unless a line feed is next.
        """
        if not part:
            return
        if self._returned:
            self._finish_bar(found)
        *bars, rest = part.split(b"\r")
        for bar in bars[:-1]:
            self._keep(bar)
            self._finish_bar(found)
        if bars:
            self._keep(bars[-1])
            self._returned = True
        if bars and rest:
            self._finish_bar(found)
        self._keep(rest)

    def _finish_bar(self, found: list[Line]) -> None:
        """
        Add a state of a bar; not an empty one, which bars that begin with a carriage return leave.
        """
        line = self._finish(bar=True)
        if line.text:
            found.append(line)

    def _keep(self, piece: bytes) -> None:
        room = self._limit - len(self._kept)
        self._kept += piece if len(piece) <= room else piece[:room]
        self._cut += max(0, len(piece) - room)

    def _finish(self, *, bar: bool) -> Line:
        line = Line(self._number, _decode(self._kept, whole=not self._cut), bar, self._cut)
        self._kept.clear()
        self._cut = 0
        self._returned = False
        if not bar:
            self._number += 1
        return line


def terminal_view(text: str) -> str:
    """
    The text without anything a terminal would obey: escape sequences and control characters, tabs kept.
    """
    return CONTROL.sub("", text)


def _decode(kept: bytearray, *, whole: bool = False) -> str:
    """
    Decode, where the bytes are not the `whole` line without a character that was cut at their end.
    """
    if whole:
        return kept.decode("utf-8", "replace")
    return codecs.getincrementaldecoder("utf-8")("replace").decode(kept)
