"""
Tables in any width, and documents for programs, compared whole with stored ones.
"""

from pathlib import Path
from typing import Any

import pytest
from msgspec import json, structs

from mtpdeploy.cli import documents, tables
from mtpdeploy.core.diagnosis import End
from mtpdeploy.core.outcome import Ascent
from tests.deploy.examples import ASCENT, OUTCOME, READY, REPORT

DATA = Path(__file__).parent / "data"


@pytest.mark.parametrize("columns", [60, 100, 160])
def test_attempts_in_any_width(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The table as it is stored; no line is longer than the terminal.
    """
    monkeypatch.setenv("COLUMNS", str(columns))
    table = tables.attempts(ASCENT)

    assert (DATA / f"attempts-{columns}.txt").read_text() == table + "\n"
    assert max(map(len, table.splitlines())) <= columns


def test_words_are_never_lost() -> None:
    """
    However narrow, every character of every cell is shown.
    """
    cells = ("max_running_requests 512 → 48", "[red]not a colour[/red]", "日本語")
    table = tables.table(("a", "b", "c"), [cells], width=40)

    def letters(text: str) -> list[str]:
        return sorted(text.replace(" ", "").replace("─", ""))

    assert letters("abc" + "".join(cells)) == letters(table.replace("\n", ""))


def test_a_restart_for_a_comparison_is_not_as_asked() -> None:
    """
    Neither half of a comparison is taken for what somebody wanted to have.
    """
    ascent = structs.replace(
        ASCENT, outcomes=(structs.replace(ASCENT.outcomes[0], attempt=1, server=ASCENT.asked),)
    )
    plain = structs.replace(ascent, compares="run-1")
    again = structs.replace(plain, asked=ASCENT.asked.with_flags(speculative_algorithm="EAGLE"))
    again = structs.replace(again, outcomes=(structs.replace(ascent.outcomes[0], server=again.asked),))

    assert [
        "as asked",
        "without speculation, for a comparison with run run-1",
        "with speculation again, after a comparison with run run-1",
    ] == [tables.attempt_rows(one)[0][1] for one in (ascent, plain, again)]


def test_moments_are_in_utc() -> None:
    """
    A moment is the same text wherever it is shown.
    """
    assert tables.when(1_796_101_931.4).startswith("2026-12-01 05:12:11")


def test_the_document_of_an_ascent() -> None:
    """
    Every name and value, as it is stored.
    """
    stored = json.decode((DATA / "ascent.json").read_bytes())

    assert stored == json.decode(json.encode(documents.ascent_document(ASCENT, 0)))


@pytest.mark.parametrize(
    ("outcomes", "status"),
    [
        ((READY,), 0),
        ((OUTCOME, READY), 0),
        ((structs.replace(READY, report=structs.replace(REPORT, mtp_proven=None)),), 0),
        ((structs.replace(READY, report=structs.replace(REPORT, mtp_proven=False)),), 8),
        ((OUTCOME,), 1),
        ((structs.replace(OUTCOME, end=End.STOPPED),), 1),
        ((structs.replace(OUTCOME, end=End.LOST),), 3),
        ((), 0),
    ],
    ids=["ready", "climbed", "without MTP", "not proven", "failed", "stopped", "lost", "launched and left"],
)
def test_exit_status(outcomes: tuple[Any, ...], status: int) -> None:
    """
    0 for a server that is proved or was left to itself, 8 where MTP is not proven, 3 for a lost box, else 1.
    """
    ascent = Ascent("a", "h", ASCENT.asked, outcomes)

    assert status == documents.exit_status(ascent)
