import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mtpdeploy.onbox.identity import identify, send
from tests.onbox.runs import (
    FAMILY_OF_5,
    LOG,
    files_of,
    launch,
    living_of,
    pids_of,
    python_server,
    record,
    text_of,
    until,
)

SHELLS = [shell for shell in (["sh"], ["dash"], ["bash"], ["busybox", "sh"]) if shutil.which(shell[0])]

FILLS_THE_DISK = """
import os
try:
    while True:
        os.write(1, b"x" * 4096)
except OSError:
    os._exit(5)
"""


@pytest.mark.parametrize(
    ("code", "status", "number"),
    [
        ("pass", 0, None),
        ("raise SystemExit(3)", 3, None),
        ("import os; os.kill(os.getpid(), 9)", 137, 9),
        ("import os; os.kill(os.getpid(), 11)", 139, 11),
    ],
)
def test_end_is_recorded(run: str, tmp_path: Path, code: str, status: int, number: int | None) -> None:
    """
    `exit` holds the status as a shell shows it and the signal, and the log what the server said.
    """
    answer = launch(run, tmp_path, python_server(f"print('log → ü', flush=True); {code}"))
    run_dir = tmp_path / "runs" / run
    ended = record(run_dir / "exit")

    assert (status, number) == (ended["status"], ended["signal"])
    assert "log → ü\n" == text_of(run_dir / answer["log"])
    assert 0o600 == (run_dir / answer["log"]).stat().st_mode & 0o777
    assert {"left_over": 0, "killed": 0} == {k: v for k, v in record(run_dir / "family").items() if k != "at"}


def test_end_is_recorded_at_once_and_the_family_ended_after_it(run: str, tmp_path: Path) -> None:
    """
    `exit` does not wait for children that go on; they are ended, and then `family` says so.
    """
    launch(run, tmp_path, python_server(FAMILY_OF_5))
    run_dir = tmp_path / "runs" / run
    pids = pids_of(run_dir)
    os.kill(pids[0], signal.SIGKILL)
    ended = record(run_dir / "exit")
    still = (living_of(pids), (run_dir / "family").exists())

    assert (137, 9) == (ended["status"], ended["signal"])
    assert (pids[1:], False) == still
    assert {"left_over": 5, "killed": 0} == {k: v for k, v in record(run_dir / "family").items() if k != "at"}
    assert [] == living_of(pids)


def test_family_that_does_not_listen_is_killed(run: str, tmp_path: Path) -> None:
    """
    All five of a family that ignores TERM are gone in the end: renamed, orphaned, in another session.
    """
    launch(run, tmp_path, python_server(FAMILY_OF_5, "deaf"))
    run_dir = tmp_path / "runs" / run
    pids = pids_of(run_dir)
    supervisor = identify(int(json.loads((run_dir / "proc").read_text())["pid"]))
    assert supervisor is not None
    os.kill(pids[0], signal.SIGKILL)
    record(run_dir / "exit")
    send(supervisor, signal.SIGTERM)

    assert {"left_over": 5, "killed": 5} == {k: v for k, v in record(run_dir / "family").items() if k != "at"}
    assert [] == living_of(pids)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT])
def test_signals_are_passed_on(run: str, tmp_path: Path, number: signal.Signals) -> None:
    """
    TERM, INT and QUIT to the supervisor reach the server's main process, whose own status is recorded.
    """
    code = """
import signal, sys
for number in (2, 3, 15):
    signal.signal(number, lambda number, frame: sys.exit(40 + number))
open("pids", "w").write("0")
while True: signal.pause()
"""
    answer = launch(run, tmp_path, python_server(code))
    run_dir = tmp_path / "runs" / run
    until(lambda: text_of(run_dir / "pids"))
    sent = send(answer["process"], number)

    assert (True, 40 + number) == (sent, record(run_dir / "exit")["status"])


def test_hang_up_does_not_reach_the_server(run: str, tmp_path: Path) -> None:
    """
    A terminal or a login that goes away ends neither the supervisor nor the server.
    """
    answer = launch(run, tmp_path, python_server(FAMILY_OF_5))
    run_dir = tmp_path / "runs" / run
    pids = pids_of(run_dir)
    for pid in (answer["process"]["pid"], pids[0]):
        os.kill(pid, signal.SIGHUP)
    send(answer["process"], signal.SIGTERM)

    assert {"status": 143, "signal": 15} == {k: v for k, v in record(run_dir / "exit").items() if k != "at"}


def test_without_adoption_the_process_group_is_ended(
    run: str, tmp_path: Path, extra: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Where the kernel does not hand over orphans (macOS), what is in the server's own group is ended.
    """
    monkeypatch.setenv("MTPDEPLOY_PROC", "/nowhere")
    launch(run, tmp_path, python_server(FAMILY_OF_5))
    run_dir = tmp_path / "runs" / run
    pids = pids_of(run_dir)
    extra += pids
    os.kill(pids[0], signal.SIGKILL)
    record(run_dir / "family")
    monkeypatch.delenv("MTPDEPLOY_PROC")

    assert pids[4:] == living_of(pids)


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
def test_by_hand_twice_is_two_runs(run: str, tmp_path: Path, shell: list[str]) -> None:
    """
    Run by hand in any shell: a new log each time, the old one untouched, the records those of the last.
    """
    run_dir = by_hand(run, tmp_path, python_server("import sys; print('bye'); sys.exit(7)"))
    (run_dir / LOG).write_text("an earlier run")
    (run_dir / "exit").write_text("stale")
    done = [subprocess.run([*shell, "launch.sh"], cwd=run_dir, check=False).returncode for _ in range(2)]
    logs = {path.read_text() for path in run_dir.glob("*.log")}

    assert ([7, 7], {"an earlier run", "bye\n"}) == (done, logs)
    assert (3, 7) == (len(list(run_dir.glob("*.log"))), record(run_dir / "exit")["status"])
    assert "bye\n" == text_of(run_dir / json.loads((run_dir / "proc").read_text())["log"])


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
def test_by_hand_while_it_runs_is_refused(run: str, tmp_path: Path, shell: list[str]) -> None:
    """
    A run that is going on is not started a second time, and keeps its records.
    """
    launch(run, tmp_path, [["sleep"], ["600"]])
    run_dir = tmp_path / "runs" / run
    before = (run_dir / "proc").read_text()
    done = subprocess.run([*shell, "launch.sh"], cwd=run_dir, check=False, stderr=subprocess.PIPE)

    assert (75, before) == (done.returncode, (run_dir / "proc").read_text())
    assert b"going on already, as process" in done.stderr


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
def test_missing_python_is_recorded_by_the_script(run: str, tmp_path: Path, shell: list[str]) -> None:
    """
    Without an interpreter for the supervisor the script itself records the end, in any shell.
    """
    run_dir = by_hand(run, tmp_path, [["true"]], python="/nowhere/python")
    done = subprocess.run([*shell, "launch.sh"], cwd=run_dir, check=False, stderr=subprocess.DEVNULL)

    assert (127, 127) == (done.returncode, record(run_dir / "exit")["status"])
    assert "launch.sh: the server was not started, status 127\n" == text_of(run_dir / LOG)


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
def test_too_many_variables_are_recorded_by_the_script(run: str, tmp_path: Path, shell: list[str]) -> None:
    """
    More variables than the kernel hands to a program (6 MiB at most) give a record too, in any shell.
    """
    run_dir = by_hand(run, tmp_path, [["true"]], env={f"V{number}": "x" * 100_000 for number in range(70)})
    done = subprocess.run([*shell, "launch.sh"], cwd=run_dir, check=False, stderr=subprocess.DEVNULL)

    assert done.returncode == record(run_dir / "exit")["status"]
    assert f"launch.sh: the server was not started, status {done.returncode}\n" == text_of(run_dir / LOG)


def test_missing_program_is_told_in_the_log(run: str, tmp_path: Path) -> None:
    """
    A server program that is not there gives 127 and a line that names it.
    """
    answer = launch(run, tmp_path, [["/nowhere/sglang"]])
    run_dir = tmp_path / "runs" / run

    assert 127 == record(run_dir / "exit")["status"]
    assert "supervise.py: cannot run /nowhere/sglang: No such file or directory\n" == text_of(
        run_dir / answer["log"]
    )


def test_log_that_exists_is_never_written_to(run: str, tmp_path: Path) -> None:
    """
    The supervisor opens a log that never existed before, or none.
    """
    run_dir = by_hand(run, tmp_path, [["true"]])
    (run_dir / "taken").write_text("an earlier run")
    words = [sys.executable, "supervise.py", "taken", "echo", "hello"]
    done = subprocess.run(words, cwd=run_dir, check=False, stderr=subprocess.PIPE)

    assert (73, 73) == (done.returncode, record(run_dir / "exit")["status"])
    assert ("an earlier run", b"supervise.py: cannot open taken: File exists\n") == (
        text_of(run_dir / "taken"),
        done.stderr,
    )


def test_full_disk_does_not_swallow_the_record(run: str, tmp_path: Path) -> None:
    """
    A server that fills the disk with its log still has its end recorded.
    """
    run_dir = by_hand(run, tmp_path, python_server(FILLS_THE_DISK))
    copy = shutil.copytree(run_dir, tmp_path / "copy")
    inner = 'mount -t tmpfs -o size=128k none "$1" && cp "$2"/* "$1" && sh "$1/launch.sh" 2>/dev/null'
    words = ["unshare", "-rm", "sh", "-c", inner + '; df --output=avail "$1"; cat "$1/exit"']
    done = subprocess.run([*words, "sh", run_dir, copy], stdout=subprocess.PIPE, text=True, check=True)
    lines = done.stdout.splitlines()

    assert ("0", 5) == (lines[1].strip(), json.loads(lines[2])["status"])


def by_hand(
    run: str,
    work_dir: Path,
    argv: list[list[str]],
    python: str = sys.executable,
    env: dict[str, str] | None = None,
) -> Path:
    """
    A run directory that nobody has started.
    """
    run_dir = work_dir / "runs" / run
    run_dir.mkdir(parents=True)
    for name, text in files_of(run, work_dir, argv, env, python).items():
        (run_dir / name).write_text(text)
    return run_dir
