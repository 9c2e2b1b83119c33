"""
Standard output and error whose own faults are told as such.
"""

import io
import sys
from typing import TextIO

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
    return io.TextIOWrapper(
        io.BufferedWriter(OwnOutput(stream.fileno(), called)),  # type: ignore[type-var]
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=True,
    )
