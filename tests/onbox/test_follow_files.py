"""
The files that the reader on the box looks at, without a reader.
"""

import fcntl
import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mtpdeploy.core.launch import PROCESS_FILE, RUN_MARKER
from mtpdeploy.onbox.follow import Log, Run
from mtpdeploy.onbox.identity import identify
from tests.fakes.run import LocalRun


@pytest.fixture
def run(tmp_path: Path) -> Iterator[LocalRun]:
    """
    A run whose supervisor lives.
    """
    with LocalRun(tmp_path / "20261201-093012Z-qwen-1") as run:
        yield run


LIMIT = 0.2
"""Seconds for a process to be told, in these tests."""


class TestUntold:
    """
    A run's directory that names no process.
    """

    @pytest.fixture
    def folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """
        A run of which there is nothing but the directory.
        """
        monkeypatch.setattr("mtpdeploy.onbox.follow.UNTOLD", LIMIT)
        folder = tmp_path / "runs" / "20261201-093012Z-qwen-0a1b-1"
        folder.mkdir(parents=True)
        return folder

    def ends(self, folder: Path) -> list[dict[str, Any] | None]:
        """
        How it ended, asked at once and after the limit.
        """
        watched = Run(str(folder))
        ends = [watched.end()]
        time.sleep(1.5 * LIMIT)
        watched.next_look = 0.0
        return [*ends, watched.end()]

    @pytest.mark.parametrize("text", [None, '{"pid": 1', json.dumps(identify(1))])
    def test_it_is_not_followed_for_ever(self, folder: Path, text: str | None) -> None:
        """
        Where nobody launches and nothing of it lives, it has vanished.
        """
        if text is not None:
            (folder / PROCESS_FILE).write_text(text)

        assert [None, {"vanished": True}] == self.ends(folder)

    def test_a_launch_under_way_is_waited_for(self, folder: Path) -> None:
        """
        As long as the launch lock is held, the process may still be told.
        """
        with (folder.parent.parent / "launch.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)

            assert [None, None] == self.ends(folder)

    def test_what_lives_of_it_has_not_vanished(self, folder: Path) -> None:
        """
        A server that serves is no dead one, whatever happened to the record.
        """
        with LocalRun(folder):
            (folder / PROCESS_FILE).unlink()

            assert [None, None] == self.ends(folder)


class TestRun:
    """
    Whether the run goes on, asked directly.
    """

    @pytest.mark.parametrize("handles", [True, False])
    def test_follows_a_run_that_was_started_again_by_hand(
        self, run: LocalRun, monkeypatch: pytest.MonkeyPatch, handles: bool
    ) -> None:
        """
        With a handle of the process and without: the record that stands now is what counts.
        """
        if not handles:
            monkeypatch.delattr(os, "pidfd_open")
        watched = Run(str(run.folder))
        seen = [watched.end(), watched.handle is not None]
        with subprocess.Popen(["sleep", "600"], env={RUN_MARKER: run.folder.name}) as again:
            (run.folder / PROCESS_FILE).write_text(json.dumps(identify(again.pid)))
            run.kill()
            watched.next_look = 0.0
            seen += [watched.end(), watched.handle is not None]
            again.kill()
        watched.next_look = 0.0
        seen += [watched.end(), watched.handle is not None]

        assert [None, handles, None, handles, {"vanished": True}, False] == seen


class TestLog:
    """
    The file it reads, without a process.
    """

    def test_truncation_replacement_and_deletion_are_told_once(self, tmp_path: Path) -> None:
        """
        Each change of the file is one change told, and reading goes on with the new content.
        """
        path = tmp_path / "log"
        path.write_bytes(b"old content")
        log = Log(str(path), 0, {})
        told = [log.open(), log.change()]
        seen = [log.read()]
        path.write_bytes(b"cut")
        told += [log.change(), log.change()]
        seen.append(log.read())
        path.unlink()
        told += [log.change(), log.change()]
        path.write_bytes(b"new")
        told += [log.change(), log.change()]
        seen.append(log.read())

        assert [None, None] == told[:2]
        assert [{"what": "truncated", "had": 11, "size": 3}, None] == told[2:4]
        assert [{"what": "deleted", "had": 3, "size": 0}, None] == told[4:6]
        assert [{"what": "replaced", "had": 3, "size": 3}, None] == told[6:]
        assert [b"old content", b"cut", b"new"] == seen

    @pytest.mark.parametrize(
        ("known", "offset", "what"),
        [
            ({}, 3, None),
            ({}, 4, "truncated"),
            ({"dev": 1, "ino": 1}, 2, "replaced"),
            ({"head": "0" * 64, "head_bytes": 2}, 2, "replaced"),
        ],
    )
    def test_another_log_than_the_client_knows_is_read_from_the_start(
        self, tmp_path: Path, known: dict[str, Any], offset: int, what: str | None
    ) -> None:
        """
        What happened while the line was away is found out by size, inode and first bytes.
        """
        path = tmp_path / "log"
        path.write_bytes(b"abc")
        log = Log(str(path), offset, known)
        change = log.open()

        assert what == (change and change["what"])
        assert (0 if what else offset) == log.offset
