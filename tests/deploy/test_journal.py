"""
The local copy of ascents: what it keeps, who may read it, and what damage does to it.
"""

import stat
from pathlib import Path

import pytest
from msgspec import json

from mtpdeploy.core import events
from mtpdeploy.core.events import AnyEvent
from mtpdeploy.core.outcome import Ascent
from mtpdeploy.deploy.journal import Journal, LocalCopy, history, state_directory
from mtpdeploy.remote.frames import LogChanged
from tests.deploy.examples import EVENTS, OUTCOME, SERVER


def kept(journal: Journal) -> list[AnyEvent]:
    """
    The events in the journal, decoded.
    """
    lines = (journal.folder / "events.jsonl").read_bytes().splitlines()
    return [json.decode(line, type=AnyEvent) for line in lines]


class TestEvents:
    def test_every_kind_comes_back_as_it_was(self, tmp_path: Path) -> None:
        """
        What is written can be decoded again, whatever kind of event it is; screens' own are left out.
        """
        journal = Journal(tmp_path, "a")
        for event in EVENTS:
            journal.event(event)

        assert [e for e in EVENTS if not isinstance(e, events.TRANSIENT)] == kept(journal)

    def test_examples_are_complete(self) -> None:
        """
        There is an example of every event.
        """
        assert set(AnyEvent.__args__) == {type(event) for event in EVENTS}

    def test_nobody_else_can_read_it(self, tmp_path: Path) -> None:
        """
        Folders are 0700 and files 0600, whatever the umask says.
        """
        journal = Journal(tmp_path, "a")
        journal.event(EVENTS[0])
        journal.outcome(OUTCOME)
        journal.ascent(Ascent("a", "h", SERVER))
        modes = {
            path.name: stat.S_IMODE(path.stat().st_mode)
            for path in [journal.folder, *journal.folder.rglob("*")]
        }

        assert {
            "a": 0o700,
            OUTCOME.run: 0o700,
            "ascent.json": 0o600,
            "events.jsonl": 0o600,
            "outcome.json": 0o600,
        } == modes


class TestHistory:
    def test_newest_first(self, tmp_path: Path) -> None:
        """
        Ascents come in the order of their names, which begin with the time, newest first.
        """
        for name in ("20261201-1", "20261203-1", "20261202-1"):
            Journal(tmp_path, name).ascent(Ascent(name, "h", SERVER))

        assert ["20261203-1", "20261202-1", "20261201-1"] == [p.ascent.id for p in history(tmp_path)]

    @pytest.mark.parametrize(
        "damage",
        [b"", b"{", b'{"id": 3}', b"\xff\xfe\x00", b"[]"],
        ids=["empty", "cut", "wrong type", "binary", "other"],
    )
    def test_damaged_records_are_passed_over(self, tmp_path: Path, damage: bytes) -> None:
        """
        One ascent that cannot be read hides no other.
        """
        Journal(tmp_path, "1").ascent(Ascent("1", "h", SERVER))
        broken = Journal(tmp_path, "2")
        (broken.folder / "ascent.json").write_bytes(damage)
        Journal(tmp_path, "3").ascent(Ascent("3", "h", SERVER))
        (tmp_path / "ascents" / "a file").touch()

        assert ["3", "1"] == [p.ascent.id for p in history(tmp_path)]

    def test_no_journal_is_no_history(self, tmp_path: Path) -> None:
        """
        Before the first ascent there is nothing, and that is no error.
        """
        assert [] == list(history(tmp_path / "nowhere"))


class TestCopy:
    def test_grows_byte_for_byte(self, tmp_path: Path) -> None:
        """
        What comes is on the disk at once, and a second client goes on where the first one stopped.
        """
        path = tmp_path / "log"
        with LocalCopy(path) as first:
            first.write(b"\xff\r\n")
            seen = path.read_bytes()
            first.write(b"more")
        with LocalCopy(path) as second:
            second.write(b" and more")

        assert b"\xff\r\n" == seen
        assert b"\xff\r\nmore and more" == path.read_bytes()
        assert len(path.read_bytes()) == second.length

    def test_a_log_that_began_anew_keeps_the_old_one(self, tmp_path: Path) -> None:
        """
        After a truncation or replacement the old bytes stay under another name; a deletion changes nothing.
        """
        path = tmp_path / "log"
        with LocalCopy(path) as copy:
            copy.write(b"one")
            copy.begin_anew(LogChanged("deleted", 3))
            copy.write(b"!")
            copy.begin_anew(LogChanged("truncated", 4))
            copy.write(b"two")
            copy.begin_anew(LogChanged("replaced", 3))
            copy.write(b"three")

        assert {"log": b"three", "log.before-1": b"one!", "log.before-2": b"two"} == {
            file.name: file.read_bytes() for file in tmp_path.iterdir()
        }
        assert 5 == copy.length


class TestWhere:
    def test_the_variable_goes_first(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        MTPDEPLOY_STATE_DIR says where everything local is kept.
        """
        monkeypatch.setenv("MTPDEPLOY_STATE_DIR", str(tmp_path / "x"))

        assert tmp_path / "x" == state_directory()

    def test_the_platforms_place_otherwise(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        On Linux that is XDG_STATE_HOME; on others another folder of the user's, always our own.
        """
        monkeypatch.delenv("MTPDEPLOY_STATE_DIR", raising=False)
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

        assert "mtpdeploy" == state_directory().name
