"""
The local copy of ascents: what it keeps, who may read it, and what damage does to it.
"""

import os
import stat
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from msgspec import json, structs

from mtpdeploy.core import events
from mtpdeploy.core.events import AnyEvent
from mtpdeploy.core.outcome import Ascent
from mtpdeploy.deploy.journal import Client, Journal, LocalCopy, history, state_directory
from mtpdeploy.errors import ConfigError
from mtpdeploy.remote.frames import LogChanged
from tests.deploy.examples import BOX, EVENTS, FACTS, OUTCOME, SERVER
from tests.fakes.user import plain_user


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
        journal.client("ada@laptop", BOX, SERVER, FACTS, 0.0)
        modes = {
            path.name: stat.S_IMODE(path.stat().st_mode)
            for path in [journal.folder, *journal.folder.rglob("*")]
        }

        assert {
            "a": 0o700,
            OUTCOME.run: 0o700,
            "ascent.json": 0o600,
            "clients.jsonl": 0o600,
            "events.jsonl": 0o600,
            "outcome.json": 0o600,
        } == modes


class TestClients:
    def test_who_works_where_is_a_line_each(self, tmp_path: Path) -> None:
        """
        Each client is added with its version and the box as it found it, less what others run there.
        """
        journal = Journal(tmp_path, "a")
        journal.client("ada@laptop", BOX, SERVER, FACTS, 1.0)
        journal.client("bob@desk", BOX, SERVER, structs.replace(FACTS, simulated=True), 2.0)
        lines = (journal.folder / "clients.jsonl").read_bytes().splitlines()
        found = [json.decode(line, type=Client) for line in lines]

        assert [("ada@laptop", False), ("bob@desk", True)] == [(c.name, c.facts.simulated) for c in found]
        assert [BOX, BOX] == [client.host for client in found]
        assert {metadata.version("mtpdeploy")} == {client.version for client in found}
        assert [((), (), "")] * 2 == [(c.facts.processes, c.facts.runs, c.facts.noise) for c in found]


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

    @pytest.mark.parametrize("damage", ["{", "folder", "no folder"])
    def test_what_cannot_be_read_is_named(self, tmp_path: Path, damage: str) -> None:
        """
        A record that is damaged, or a journal that is none, is said by its path; the rest is listed.
        """
        Journal(tmp_path, "1").ascent(Ascent("1", "h", SERVER))
        path = Journal(tmp_path, "2").folder / "ascent.json"
        Journal(tmp_path, "3")  # nothing has ended there yet
        if damage == "folder":
            path.mkdir()
        elif damage == "no folder":
            path = tmp_path / "ascents"
            path.rename(tmp_path / "elsewhere")
            path.touch()
        else:
            path.write_text(damage)
        told: list[str] = []
        found = [past.ascent.id for past in history(tmp_path, told.append)]

        assert ([] if damage == "no folder" else ["1"]) == found
        assert [True] == [f"cannot be read: {path}" in text or text.endswith(f": {path}") for text in told]

    def test_no_journal_is_no_history(self, tmp_path: Path) -> None:
        """
        Before the first ascent there is nothing, and that is no error.
        """
        assert [] == list(history(tmp_path / "nowhere"))


class TestDamage:
    """
    What stands in the way of writing is named, in one error.
    """

    def write(self, state: Path) -> None:
        """
        Write a part of everything.
        """
        journal = Journal(state, "a")
        with LocalCopy(journal.folder / "log") as copy:
            copy.write(b"x")
        journal.event(EVENTS[0])
        journal.ascent(Ascent("a", "h", SERVER))

    @pytest.mark.parametrize(
        ("name", "why"),
        [
            ("ascents", "(Not a directory|File exists)"),
            ("ascents/a/events.jsonl", "Is a directory"),
            ("ascents/a/ascent.json.new", "Is a directory"),
            ("ascents/a/log", "Is a directory"),
        ],
    )
    def test_is_one_error(self, tmp_path: Path, name: str, why: str) -> None:
        """
        Whatever part of the journal is damaged.
        """
        path = tmp_path / name
        if name == "ascents":
            path.touch()
        else:
            path.mkdir(parents=True)

        with pytest.raises(ConfigError, match=f"the journal cannot be written: {why}: {tmp_path}") as caught:
            self.write(tmp_path)

        assert "MTPDEPLOY_STATE_DIR" in caught.value.hint


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

    @pytest.mark.parametrize(
        "place", ["/proc/x", "/dev/null/x", "file", "file/x", "~nobody-here/x", "x" * 300]
    )
    def test_a_place_that_cannot_be_is_refused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
    ) -> None:
        """
        One error that names the directory and the variable.
        """
        monkeypatch.chdir(tmp_path)
        Path("file").touch()
        monkeypatch.setenv("MTPDEPLOY_STATE_DIR", place)

        with pytest.raises(ConfigError, match=f"the state directory {place} cannot be used: ") as caught:
            state_directory()

        assert "MTPDEPLOY_STATE_DIR" in caught.value.hint

    @pytest.mark.parametrize("mode", [0o000, 0o500, 0o300])
    def test_a_place_of_others_is_refused(self, tmp_path: Path, mode: int) -> None:
        """
        One that can be read alone, or written alone, is of no use.
        """
        place = tmp_path / "state"
        place.mkdir(mode)
        program = (
            "from mtpdeploy.deploy.journal import state_directory\n"
            "from mtpdeploy.errors import ConfigError\n"
            "try: state_directory()\nexcept ConfigError as error: print(error)\n"
        )
        done = subprocess.run(
            [*plain_user(), sys.executable, "-c", program],
            env={**os.environ, "MTPDEPLOY_STATE_DIR": str(place)},
            capture_output=True,
            text=True,
            check=True,
        )

        assert f"the state directory {place} cannot be used: Permission denied\n" == done.stdout

    def test_the_platforms_place_otherwise(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        On Linux that is XDG_STATE_HOME; on others another folder of the user's, always our own.
        """
        monkeypatch.delenv("MTPDEPLOY_STATE_DIR", raising=False)
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

        assert "mtpdeploy" == state_directory().name
