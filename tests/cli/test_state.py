"""
The state directory, and damage in the journal there, as commands meet them.
"""

from pathlib import Path

import pytest

from mtpdeploy.core.outcome import Ascent
from mtpdeploy.deploy.journal import Journal
from tests.cli.conftest import Run
from tests.deploy.examples import ASCENT, SERVER


class TestState:
    """
    The state directory, and damage in the journal there.
    """

    @pytest.mark.parametrize(
        "words",
        [
            ["up", "--on", "demo"],
            ["up", "--on", "demo", "--dry-run"],
            ["up", "--on", "203.0.113.20"],
            ["attach", "--on", "203.0.113.20"],
            ["status", "--on", "203.0.113.20"],
            ["logs", "--local"],
            ["history"],
        ],
    )
    def test_of_no_use(
        self, folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch, words: list[str]
    ) -> None:
        """
        Every command that needs it says the same, before anything is connected.
        """
        (folder / "hosts.toml").write_text('[servers.qwen]\nmodel_path = "q"\n')
        monkeypatch.setenv("MTPDEPLOY_STATE_DIR", "/etc/passwd")
        said = run(*words)

        assert (2, "error: the state directory /etc/passwd cannot be used: it is not a directory") == (
            said.status,
            said.err.splitlines()[0],
        )
        assert "MTPDEPLOY_STATE_DIR" in said.err

    def test_history_names_what_it_cannot_read(self, folder: Path, run: Run) -> None:
        """
        The rest is listed all the same; with nothing else it does not say that there is nothing.
        """
        state = folder / "state"
        broken = Journal(state, "2").folder / "ascent.json"
        broken.write_text('{"id": ')
        alone = run("history")
        Journal(state, "1").ascent(ASCENT)
        both = run("history")

        assert (0, f"an ascent in the journal cannot be read: {broken}: damaged") == (
            alone.status,
            alone.err.partition(" (")[0],
        )
        assert "no other ascent in the journal" in alone.err
        assert str(broken) in both.err
        assert "qwen" in both.out

    def test_a_local_log_that_is_none(self, folder: Path, run: Run) -> None:
        """
        A copy that cannot be read is one error with its path.
        """
        journal = Journal(folder / "state", ASCENT.id)
        journal.ascent(ASCENT)
        path = journal.run_folder(ASCENT.outcomes[-1].run) / ASCENT.outcomes[-1].log.rpartition("/")[2]
        path.mkdir()
        said = run("logs", "--local")

        assert (2, f"error: the copy cannot be read: Is a directory: {path}") == (
            said.status,
            said.err.splitlines()[0],
        )

    def test_an_ascent_without_an_outcome(self, folder: Path, run: Run) -> None:
        """
        It is no damage.
        """
        Journal(folder / "state", "1").ascent(Ascent("1", "h", SERVER))

        assert (0, "") == (run("history").status, run("history").err)
