"""
Tables: attempts, history, rungs, hosts. On a terminal and in a pipe alike.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from io import StringIO

from mtpdeploy.cli.words import how_it_ended
from mtpdeploy.core.outcome import Ascent
from mtpdeploy.core.server import changes
from mtpdeploy.core.units import duration

WHOLE = 28
"""Characters up to which a cell is never broken: names, moments, numbers; longer ones are prose."""

PROSE = 12
"""Characters that a column of prose gets at least."""

GAP = 3
"""Characters between two columns (rich's SIMPLE_HEAD)."""

NARROWEST = 120
"""Columns of a table that is written into a pipe."""


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], *, width: int | None = None) -> str:
    """
    Rows below headings, without a frame, each column as wide as it must be.
    """
    from rich import box  # noqa: PLC0415 - 50 ms that only tables need
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    cells = [tuple(row) for row in rows]
    sheet = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    wide = width or terminal_width()
    longest = [max(len(c) for c in column) for column in zip(headings, *cells, strict=True)]
    short = [length for length in longest if length <= WHOLE]
    fits = sum(short) + PROSE * (len(longest) - len(short)) + GAP * len(longest) <= wide
    for heading, length in zip(headings, longest, strict=True):
        sheet.add_column(heading, overflow="fold", no_wrap=fits and length <= WHOLE)
    for row in cells:
        sheet.add_row(*(Text(cell) for cell in row))
    out = StringIO()
    console = Console(file=out, width=wide, color_system=None, highlight=False)
    console.print(sheet)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def terminal_width() -> int:
    """
    Columns of the terminal, or of a table in a pipe.
    """
    import shutil  # noqa: PLC0415 - only tables need it

    return max(60, shutil.get_terminal_size((NARROWEST, 24)).columns)


def attempts(ascent: Ascent) -> str:
    """
    The attempts of an ascent: what each conceded against the one before, how far it got, how it ended.
    """
    return table(ATTEMPT_HEADINGS, attempt_rows(ascent))


ATTEMPT_HEADINGS = ("attempt", "conceded", "got as far as", "then", "after")


def attempt_rows(ascent: Ascent) -> list[tuple[str, ...]]:
    """
    The cells of the table of attempts, below `ATTEMPT_HEADINGS`.
    """
    rows: list[tuple[str, ...]] = []
    before = ascent.asked
    for outcome in ascent.outcomes:
        conceded = "; ".join(str(c) for c in changes(before, outcome.server))
        rows.append(
            (
                str(outcome.attempt),
                conceded or ((ascent.purpose or "as asked") if outcome.attempt == 1 else "the same again"),
                str(outcome.stage),
                how_it_ended(outcome),
                duration(outcome.seconds),
            )
        )
        before = outcome.server
    return rows


def when(moment: float) -> str:
    """
    A moment as UTC, to the second.
    """
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M:%S")
