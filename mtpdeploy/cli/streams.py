"""
Standard output and error whose own faults are told as such.
"""

import io
import re
import sys
from typing import TextIO

from mtpdeploy.core.lines import CONTROL, terminal_view
from mtpdeploy.errors import CommandFailed


class OwnOutput(io.FileIO):
    """
    One of our own streams. What the system refuses to take is an error of its own, raised once.

    What comes after it is thrown away: an error that has to be told must not hide behind the next one.
    """

    def __init__(self, descriptor: int, called: str) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self._called = called
        self._refused = False

    def write(self, data: "bytes | memoryview", /) -> int:  # type: ignore[override]
        """
        Write as much as is taken at once.

        Raises:
            CommandFailed: nothing is taken, by a full disk for example.
            BrokenPipeError: nobody reads any more.
        """
        if self._refused:
            return len(data)
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            self._refused = True
            raise CommandFailed(
                f"{self._called} cannot be written: {error.strerror or error}",
                hint="what runs on a box goes on; `mtpdeploy status` shows it",
            ) from error


COLOUR = re.compile(r"(\x1b\[(?:0|1|3[1-6]|90)m)")
"""The commands to a terminal that we print ourselves."""


class Screen(io.TextIOWrapper):
    """
    Text of ours, with whatever others put into it: nothing that a terminal obeys goes through, our colours
    apart.
    """

    def write(self, text: str, /) -> int:
        """
        Write what may be shown of a text; its whole length, as if all of it were.
        """
        super().write(shown(text))
        return len(text)

    def verbatim(self, text: str) -> None:
        """
        Write a text as it is, unless it goes to a terminal.
        """
        super().write(shown(text) if self.isatty() else text)


def shown(text: str) -> str:
    """
    A text as a terminal may be given it: in lines, with our colours.
    """
    if CONTROL.search(text) is None:
        return text
    parts = COLOUR.split(text)
    return "".join(
        part if odd % 2 else "\n".join(map(terminal_view, part.split("\n"))) for odd, part in enumerate(parts)
    )


def own_streams() -> None:
    """
    Have everything that we print go through streams of our own.
    """
    if sys.stdout is not None:
        sys.stdout = _over(sys.stdout, "standard output")
    if sys.stderr is not None:
        sys.stderr = _over(sys.stderr, "standard error")


def _over(stream: TextIO, called: str) -> TextIO:
    stream.flush()
    return Screen(
        io.BufferedWriter(OwnOutput(stream.fileno(), called)),  # type: ignore[type-var]
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=True,
    )
