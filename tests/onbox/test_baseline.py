import json
import os
from pathlib import Path

import pytest

from mtpdeploy.onbox.baseline import recalled, remember
from tests.onbox.kernel import BOOT, Kernel
from tests.onbox.runs import launch


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """
    A run's directory with a process that was recorded just now.
    """
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "proc").write_text("{}")
    return folder


def test_what_stands_is_remembered(run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Boot, first process, counters, cards and the last moment of the kernel's log.
    """
    kernel = Kernel(tmp_path / "kernel", monkeypatch)
    kernel.group(memory_events="oom_kill 5\n")
    kernel.say({9.5: "before"})
    (kernel.proc / "driver" / "nvidia" / "gpus" / "0000:01:00.0").mkdir(parents=True)
    remember(str(run_dir))
    told = recalled(str(run_dir))

    assert (BOOT, "7", ["0000:01:00.0"], 9.5) == tuple(
        told[key] for key in ("boot", "first", "gpus", "kernel")
    )
    assert [5] == [group["oom_kill"] for group in told["groups"]]


@pytest.mark.parametrize("damage", ["", "[]", "{}", '{"at": "then"}', None])
def test_a_damaged_baseline_is_none(damage: str | None, run_dir: Path) -> None:
    """
    What cannot be understood counts as not remembered.
    """
    if damage is not None:
        (run_dir / "baseline").write_text(damage)

    assert {} == recalled(str(run_dir))


def test_a_script_run_by_hand_later_has_none(run_dir: Path) -> None:
    """
    The baseline is of the launch; another start of the same script began from something else.
    """
    remember(str(run_dir))
    at = json.loads((run_dir / "baseline").read_text())["at"]
    os.utime(run_dir / "proc", (at + 3600, at + 3600))

    assert {} == recalled(str(run_dir))


def test_a_folder_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    """
    A launch does not depend on it.
    """
    remember(str(tmp_path / "nowhere"))

    assert [] == list(tmp_path.iterdir())


def test_a_launch_remembers(run: str, tmp_path: Path) -> None:
    """
    Every launch leaves its baseline, readable by nobody else, and it is that process's.
    """
    launch(run, tmp_path, [["sleep"], ["600"]])
    folder = tmp_path / "runs" / run

    assert 0o600 == (folder / "baseline").stat().st_mode & 0o777
    assert recalled(str(folder))["boot"]
