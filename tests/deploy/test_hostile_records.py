"""
Records that a hostile box shows: no name in them leads out of the journal, none is a bug.
"""

from pathlib import Path
from typing import Any

import pytest
from msgspec import json, structs, to_builtins

from mtpdeploy.core.machine import RunRecord
from mtpdeploy.deploy.journal import Journal
from mtpdeploy.deploy.up import earlier, read_outcome, read_record
from mtpdeploy.errors import BoxUnfit, ConfigError
from tests.deploy.examples import OUTCOME, RECORD

OUTSIDE = ("../../../evil", "/tmp/evil", "..", ".ssh", "a\0b", "a/b", "\x1b]0;x\x07")


def shown(**changes: Any) -> RunRecord:
    """
    A run as the survey tells it, with a changed record.
    """
    record = to_builtins(RECORD) | changes
    return RunRecord(name=RECORD.run, attempt=json.encode(record).decode())


class TestRecord:
    """
    `attempt.json` as somebody else may have written it.
    """

    def test_ours_is_read(self) -> None:
        """
        The one that is not changed.
        """
        assert read_record(shown()) == RECORD

    @pytest.mark.parametrize("name", OUTSIDE)
    @pytest.mark.parametrize("field", ["ascent", "run", "log"])
    def test_a_name_that_leads_elsewhere_makes_it_unreadable(self, field: str, name: str) -> None:
        """
        Each of them becomes a path of ours.
        """
        assert read_record(shown(**{field: name})) is None

    def test_a_deep_one_is_unreadable(self) -> None:
        """
        Nested deeper than a parser goes.
        """
        deep = '{"options":' * 100_000
        assert read_record(RunRecord(name=RECORD.run, attempt=deep)) is None

    @pytest.mark.parametrize("name", OUTSIDE)
    def test_an_outcome_with_a_path_is_unreadable(self, name: str) -> None:
        """
        Its run becomes a folder of ours.
        """
        told = json.encode(structs.replace(OUTCOME, run=name)).decode()
        assert read_outcome(structs.replace(shown(), outcome=told)) is None

    @pytest.mark.parametrize("before", [{"run": 7}, to_builtins(structs.replace(OUTCOME, run="../../x"))])
    def test_earlier_outcomes_that_are_none_are_one_error(self, before: dict[str, Any]) -> None:
        """
        Wrong types, and paths.
        """
        with pytest.raises(BoxUnfit, match=r"the record of run .* is damaged"):
            earlier(structs.replace(RECORD, before=(before,)))


class TestJournal:
    """
    The journal's own guard, whoever gives it a name.
    """

    @pytest.mark.parametrize("name", OUTSIDE)
    def test_nothing_is_made_elsewhere(self, tmp_path: Path, name: str) -> None:
        """
        Neither an ascent nor a run.
        """
        state = tmp_path / "a" / "b" / "state"
        with pytest.raises(ConfigError, match="not a name in the journal"):
            Journal(state, name)
        journal = Journal(state, "fine")
        with pytest.raises(ConfigError, match="not a name in the journal"):
            journal.run_folder(name)
        assert [state / "ascents" / "fine"] == [p for p in tmp_path.rglob("*") if not any(p.iterdir())]
