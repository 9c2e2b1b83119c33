"""
Whom a run's `proc` may be believed to name.
"""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mtpdeploy.onbox.identity import identify
from mtpdeploy.onbox.record import process_of
from tests.onbox.place import running
from tests.onbox.runs import until

RUN = "20261201-093012Z-qwen-0a1b-1"


def identity(pid: int) -> dict[str, Any]:
    """
    Who a living process is.
    """
    return until(lambda: identify(pid))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """
    A run's directory.
    """
    made = tmp_path / RUN
    made.mkdir()
    return made


@pytest.mark.parametrize(
    "write",
    [
        lambda _path: None,
        lambda path: path.mkdir(),
        lambda path: path.write_text(""),
        lambda path: path.write_text('{"pid": 12, "start": "1'),
        lambda path: path.write_text("[12]"),
        lambda path: path.write_text('{"pid": "twelve", "start": "1"}'),
        lambda path: path.write_text('{"pid": 12}'),
        lambda path: path.write_text('{"pid": -1, "start": "1"}'),
        lambda path: path.write_text('{"pid": true, "start": "1"}'),
        lambda path: path.write_text(json.dumps({"pid": 1 << 40, "start": "1"})),
        lambda path: path.write_text(json.dumps(identify(1))),
        lambda path: path.write_text(json.dumps(identify(os.getpid()))),
    ],
    ids=[
        "none", "a folder", "empty", "truncated", "a list", "no number", "no start", "negative", "a truth",
        "too high", "the first process", "a stranger",
    ],
)  # fmt: skip
def test_what_tells_no_process(folder: Path, write: Callable[[Path], object]) -> None:
    """
    From a record that is damaged, or names a process that cannot be the run's, nothing is concluded.
    """
    write(folder / "proc")

    assert process_of(str(folder)) is None


@pytest.mark.parametrize("by", ["directory", "marker"])
def test_a_process_of_the_run_is_told(folder: Path, by: str) -> None:
    """
    It works in the run's directory, as the script does from its first act on, or carries the marker.
    """
    env = {"MTPDEPLOY_RUN": RUN} if by == "marker" else {"OTHER": "1"}
    with running(["sleep", "600"], env=env, cwd=folder if by == "directory" else "/") as process:
        known = identity(process.pid)
        (folder / "proc").write_text(json.dumps({**known, "log": "l"}))
        found = process_of(str(folder))

    assert {**known, "log": "l"} == found


def test_a_dead_process_is_told_too(folder: Path) -> None:
    """
    Of a process that is gone nothing can be asked; who it was stays known.
    """
    with subprocess.Popen(["true"]) as process:
        process.wait()
    (folder / "proc").write_text(json.dumps({"pid": process.pid, "start": 5}))
    found = process_of(str(folder))

    assert {"pid": process.pid, "start": "5", "boot": "", "pid_ns": ""} == found
