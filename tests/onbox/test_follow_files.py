"""
The files that the reader on the box looks at, without a reader.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mtpdeploy.core.launch import PROCESS_FILE
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
        with subprocess.Popen(["sleep", "600"]) as again:
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
