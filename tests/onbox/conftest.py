"""
What the tests of real processes share.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from mtpdeploy.remote import facts
from tests.onbox.place import Place
from tests.onbox.runs import ended_afterwards


@pytest.fixture
def extra(tmp_path: Path) -> Iterator[list[int]]:
    """
    Pids to end after the test, beside everything that carries the marker of the test's run.
    """
    with ended_afterwards(f"run-{tmp_path.name}") as pids:
        yield pids


@pytest.fixture
def run(extra: list[int], tmp_path: Path) -> str:
    """
    The name of the run of this test, of which nothing is left alive afterwards.
    """
    del extra
    return f"run-{tmp_path.name}"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """
    A home with a Python on PATH; the usual places of rented boxes are not looked at.
    """
    monkeypatch.setattr(facts, "PYTHONS", ("python3", "~/venv/bin/python", "python"))
    made = Place(tmp_path)
    made.python()
    return made
