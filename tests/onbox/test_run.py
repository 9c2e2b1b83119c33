import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mtpdeploy.core.launch import EXIT_FILE, OUTCOME_FILE
from mtpdeploy.core.machine import ProcessId
from mtpdeploy.errors import BoxLocked, BoxUnfit, CommandFailed, MtpDeployError
from mtpdeploy.onbox.identity import identify
from mtpdeploy.remote.box import Result
from mtpdeploy.remote.run import Run, read_file, stop, write_outcome
from tests.onbox.runs import LOG, ShBox, files_of, record

SLEEP = [["sleep"], ["600"]]


class AnsweringBox(ShBox):
    """
    A box that gives one prepared result to everything.
    """

    def __init__(self, result: Result) -> None:
        super().__init__()
        self.result = result

    def run(self, script: str, **_: object) -> Result:
        """
        The prepared result.
        """
        del script
        return self.result


def run_of(name: str, work_dir: Path | str, python: str = sys.executable) -> Run:
    """
    A run of this test.
    """
    return Run(work_dir=str(work_dir), name=name, python=python)


def test_life_of_a_run_takes_a_round_trip_a_step(run: str, tmp_path: Path) -> None:
    """
    Launched, launched again, concluded, read and stopped: each by one script, each answer a value.
    """
    box, one = ShBox(), run_of(run, tmp_path)
    files = files_of(run, tmp_path, SLEEP)
    first = one.create_and_launch(box, files, note="me")
    second = one.create_and_launch(box, files, note="me")
    write_outcome(box, one, '{"kind": "ready → 😀"}')
    outcome = read_file(box, one, OUTCOME_FILE)
    stopped = stop(box, python=sys.executable, runs=[one], note="test")

    assert (LOG, False, True) == (first.log, first.existed, second.existed)
    assert (first.process, 5) == (second.process, box.round_trips)
    assert (b'{"kind": "ready \xe2\x86\x92 \xf0\x9f\x98\x80"}', 26) == (outcome.data, outcome.size)
    assert (True, (), None) == (first.process in stopped.ended, stopped.survivors, stopped.port_holder)
    assert 143 == record(tmp_path / "runs" / run / EXIT_FILE)["status"]


def test_home_directory_is_understood_by_every_step(run: str, tmp_path: Path) -> None:
    """
    A work directory that begins with `~/` is the same place for launching, reading, writing and stopping.
    """
    box, one = ShBox({"HOME": str(tmp_path)}), run_of(run, "~/.mtpdeploy/")
    launched = one.create_and_launch(box, files_of(run, "~/.mtpdeploy", SLEEP), note="me")
    write_outcome(box, one, "{}")
    stopped = stop(box, python=sys.executable, runs=[one])

    assert launched.process in stopped.ended
    assert "{}" == (tmp_path / ".mtpdeploy" / "runs" / run / OUTCOME_FILE).read_text()


def test_file_is_read_in_pieces(run: str, tmp_path: Path) -> None:
    """
    Any bytes of a log are read from any offset on, with the size of the whole; beyond it is nothing.
    """
    folder = tmp_path / "runs" / run
    folder.mkdir(parents=True)
    (folder / LOG).write_bytes(bytes(range(256)) * 4)
    pieces = [
        read_file(ShBox(), run_of(run, tmp_path), LOG, *where)
        for where in ((250, 10), (1020, 10), (5000, 10))
    ]

    data = bytes(range(256)) * 4
    assert [data[250:260], data[1020:], b""] == [piece.data for piece in pieces]
    assert {1024} == {piece.size for piece in pieces}


def test_several_at_once_are_stopped_together(run: str, tmp_path: Path) -> None:
    """
    Runs and processes that are not ours are ended in one round trip.
    """
    box = ShBox()
    runs = [run_of(f"{run}", tmp_path / folder) for folder in "ab"]
    with ThreadPoolExecutor(2) as pool:
        launched = list(
            pool.map(
                lambda one: one.create_and_launch(box, files_of(run, one.work_dir, SLEEP), note=""), runs
            )
        )
    with subprocess.Popen(["sleep", "600"]) as other:
        identity = identify(other.pid)
        assert identity is not None
        stopped = stop(box, python=sys.executable, runs=runs, processes=[ProcessId(**identity)])

    assert {one.process for one in launched} | {ProcessId(**identity)} <= {*stopped.ended, *stopped.killed}
    assert () == stopped.survivors


def test_python_that_is_not_there_is_told(run: str, tmp_path: Path) -> None:
    """
    A box without the interpreter is unfit, and the hint names the setting.
    """
    with pytest.raises(BoxUnfit, match="no Python on here: /nowhere/python") as raised:
        stop(ShBox(), python="/nowhere/python", runs=[run_of(run, tmp_path)])

    assert "set `python` of this host to its interpreter" == raised.value.hint


def test_work_dir_that_is_not_writable_is_told(run: str, tmp_path: Path) -> None:
    """
    A work directory below a file is unfit, with the path and what to set.
    """
    (tmp_path / "file").write_text("")
    one = run_of(run, tmp_path / "file")
    with pytest.raises(BoxUnfit, match=f"Not a directory on here at {tmp_path}/file") as raised:
        one.create_and_launch(ShBox(), files_of(run, one.work_dir, SLEEP), note="")

    assert (
        "move away what stands at that path, or set `work_dir` of this host to another folder"
        == raised.value.hint
    )


def test_file_that_is_not_there_is_a_failed_command(run: str, tmp_path: Path) -> None:
    """
    Reading from a run that is gone fails by name and path.
    """
    with pytest.raises(CommandFailed, match=f"No such file or directory on here at {tmp_path}"):
        read_file(ShBox(), run_of(run, tmp_path), LOG)


@pytest.mark.parametrize(
    ("result", "kind", "message"),
    [
        (Result(0, b'{"error": "no space", "kind": "no-space"}', b""), BoxUnfit, "^no space on here$"),
        (
            Result(0, b'{"error": "busy", "kind": "locked", "holder": "ann"}', b""),
            BoxLocked,
            "busy on here: ann",
        ),
        (Result(0, b'{"error": "odd", "kind": "script"}', b""), CommandFailed, "`launch`: odd on here"),
        (
            Result(1, b"{}", b"a\nValueError: x\n"),
            CommandFailed,
            "`launch` ended with status 1 on here: ValueError",
        ),
        (Result(0, b'{"error": "stale", "kind": "broken-disk"}', b""), BoxUnfit, "^stale on here$"),
        (Result(0, b'{"error": "no fork", "kind": "exhausted"}', b""), BoxUnfit, "^no fork on here$"),
        (Result(0, b'{"error": "gone", "kind": "absent"}', b""), CommandFailed, "`launch`: gone on here"),
        (Result(0, b'{"error": "new", "kind": "system"}', b""), CommandFailed, "`launch`: new on here"),
        (Result(137, b"", b""), BoxUnfit, r"^`launch` was killed on here \(status 137\)$"),
        (Result(0, b"", b""), CommandFailed, "it said nothing"),
        (Result(0, b"not json", b""), CommandFailed, "`launch` ended with status 0"),
        (Result(0, b"[]", b""), CommandFailed, "`launch` ended with status 0"),
        (Result(1, b"", b"sh: cannot create: No space left on device"), BoxUnfit, "no space left on here"),
    ],
)
def test_answers_become_errors_of_ours(result: Result, kind: type[Exception], message: str) -> None:
    """
    Every kind of bad answer is one error with the last thing that was said, and with what to do.
    """
    with pytest.raises(kind, match=message) as raised:
        run_of("r", "~/.mtpdeploy").create_and_launch(AnsweringBox(result), {}, note="")

    assert isinstance(raised.value, MtpDeployError)
    assert raised.value.hint
    assert "{" not in raised.value.hint
