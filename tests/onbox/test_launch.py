import fcntl
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mtpdeploy.onbox import script
from mtpdeploy.onbox.identity import family, same, table
from tests.onbox.runs import (
    LOG,
    ShBox,
    ask,
    files_of,
    launch,
    launching,
    python_server,
    record,
    text_of,
    until,
)

SLEEP = [["sleep"], ["600"]]


def test_launch_answers_with_the_process_that_runs(run: str, tmp_path: Path) -> None:
    """
    The answer names the supervisor as `proc` does, and it is alive, in a session of its own.
    """
    answer = launch(run, tmp_path, SLEEP)
    written = json.loads((tmp_path / "runs" / run / "proc").read_text())
    entry = next(entry for entry in table() if entry["pid"] == answer["process"]["pid"])

    assert {"process": answer["process"], "log": LOG, "existed": False} == answer
    assert {**answer["process"], "log": LOG} == written
    assert (True, entry["pid"]) == (same(answer["process"]), entry["sid"])
    assert os.getpid() != entry["ppid"]


def test_launch_without_proc_is_the_same(run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    On a box without /proc the script and the programs agree about who the process is.
    """
    monkeypatch.setenv("MTPDEPLOY_PROC", "/nowhere")
    answer = launch(run, tmp_path, SLEEP)

    assert (True, 5) == (same(answer["process"]), len(answer["process"]["start"].split()))


def test_intent_is_written_before_anything_else(run: str, tmp_path: Path) -> None:
    """
    `attempt.json` is the oldest file of a run; all are whole, and nobody else can read them.
    """
    files = files_of(run, tmp_path, SLEEP)
    ask("launch", launching(run, tmp_path, files))
    run_dir = tmp_path / "runs" / run
    written = {name: (run_dir / name).read_text() for name in files}
    by_age = sorted(files, key=lambda name: (run_dir / name).stat().st_mtime_ns)
    modes = {name: (run_dir / name).stat().st_mode & 0o777 for name in files}

    assert (files, "attempt.json") == (written, by_age[0])
    assert {"attempt.json": 0o600, "launch.sh": 0o700, "supervise.py": 0o600} == modes
    assert 0o700 == run_dir.stat().st_mode & 0o777
    assert run_dir.resolve() == (tmp_path / "latest").resolve()


def test_second_launch_of_a_run_only_tells(run: str, tmp_path: Path) -> None:
    """
    A client that lost the line may ask again: the same process is told, and none is added.
    """
    first = launch(run, tmp_path, SLEEP)
    members = until(lambda: family(first["process"], run))
    second = launch(run, tmp_path, SLEEP)

    assert {**first, "existed": True} == second
    assert members == family(first["process"], run)


def test_launches_at_once_start_one_server(run: str, tmp_path: Path) -> None:
    """
    Of six launches of a run at the same moment one starts it, and all tell the same process.
    """
    with ThreadPoolExecutor(6) as pool:
        answers = [
            future.result() for future in [pool.submit(launch, run, tmp_path, SLEEP) for _ in range(6)]
        ]
    until(lambda: family(answers[0]["process"], None))

    assert [False, True, True, True, True, True] == sorted(answer["existed"] for answer in answers)
    assert 1 == len({answer["process"]["pid"] for answer in answers})
    assert 1 == len(family(answers[0]["process"], run))


def test_lock_is_free_while_the_server_runs(run: str, tmp_path: Path) -> None:
    """
    Neither the supervisor nor the server keeps the launch lock.
    """
    answer = launch(run, tmp_path, SLEEP)
    until(lambda: family(answer["process"], None))
    with (tmp_path / "launch.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    pids = [answer["process"]["pid"], *(m["pid"] for m in family(answer["process"], None))]
    open_files = [str(f.readlink()) for pid in pids for f in Path(f"/proc/{pid}/fd").iterdir()]

    assert [] == [path for path in open_files if path.endswith("launch.lock")]


def test_launch_waits_for_another_one(run: str, tmp_path: Path) -> None:
    """
    While another launch holds the lock nothing is started; then it goes on.
    """
    request = launching(run, tmp_path, files_of(run, tmp_path, SLEEP))
    with (tmp_path / "launch.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        text = script("launch", request, sys.executable)
        with subprocess.Popen(["sh", "-c", text], stdout=subprocess.PIPE) as waiting:
            until((tmp_path / "runs").exists)
            with pytest.raises(subprocess.TimeoutExpired):
                waiting.wait(0.3)
            started = (tmp_path / "runs" / run).exists()
            fcntl.flock(lock, fcntl.LOCK_UN)
            answer = json.loads(waiting.communicate()[0])

    assert (False, False) == (started, answer["existed"])


def test_lock_that_is_never_free_names_its_holder(run: str, tmp_path: Path) -> None:
    """
    A launch that another one keeps waiting says who that is, and starts nothing.
    """
    request = launching(run, tmp_path, files_of(run, tmp_path, SLEEP))
    text = script("launch", request, sys.executable)
    impatient = text.replace("LOCK_PATIENCE = 30.0", "LOCK_PATIENCE = 0.1")
    with (tmp_path / "launch.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write("ann, 09:30, trying flashinfer")
        lock.flush()
        answer = json.loads(ShBox().run(impatient).out)

    assert ("locked", "ann, 09:30, trying flashinfer") == (answer["kind"], answer["holder"])
    assert not (tmp_path / "runs" / run).exists()


def test_full_disk_leaves_nothing_half_written(run: str, tmp_path: Path) -> None:
    """
    Where there is no space for the files, the answer says so and the run's directory is gone.
    """
    request = launching(run, tmp_path, {**files_of(run, tmp_path, SLEEP), "large": "x" * 200_000})
    answer = in_mount(tmp_path, "size=96k", script("launch", request, sys.executable))

    assert ("no-space", "launch.lock runs") == (answer["kind"], answer["left"])


def test_read_only_work_dir_is_told(run: str, tmp_path: Path) -> None:
    """
    A work directory that cannot be written to is named, with its path.
    """
    request = launching(run, tmp_path / "deep", files_of(run, tmp_path, SLEEP))
    answer = in_mount(tmp_path, "ro", script("launch", request, sys.executable))

    assert ("not-writable", str(tmp_path / "deep")) == (answer["kind"], answer["path"])


def test_work_dir_below_a_file_is_told(run: str, tmp_path: Path) -> None:
    """
    Where a file stands in the way of a folder that is said.
    """
    (tmp_path / "file").write_text("")
    (tmp_path / "runs").write_text("")
    answers = [
        ask("launch", launching(run, place, files_of(run, tmp_path, SLEEP)))
        for place in (tmp_path / "file", tmp_path)
    ]

    assert ["in-the-way", "in-the-way"] == [answer["kind"] for answer in answers]


def test_script_that_dies_before_its_first_act_is_told(run: str, tmp_path: Path) -> None:
    """
    A script of the user's own that ends before it has said who it is gives an error with its status.
    """
    answer = ask("launch", launching(run, tmp_path, {"attempt.json": "{}", "launch.sh": "exit 3\n"}))

    assert {"error": "the script ended with status 3 before its first act", "kind": "script"} == answer


def test_home_directory_is_that_of_the_box(run: str, tmp_path: Path) -> None:
    """
    A leading `~/` means the home directory there, in the launch and in the script.
    """
    answer = launch(run, "~/.mtp deploy", python_server("print('hello')"), HOME=str(tmp_path))
    run_dir = tmp_path / ".mtp deploy" / "runs" / run

    assert 0 == record(run_dir / "exit")["status"]
    assert "hello\n" == text_of(run_dir / answer["log"])


def in_mount(place: Path, options: str, text: str) -> dict[str, str]:
    """
    The answer of a script whose work directory is a file system of its own, and what was left there.
    """
    inner = f'mount -t tmpfs -o {options} none "$1" && sh -s && ls -m "$1" "$1/runs" 2>/dev/null'
    words = ["unshare", "-rm", "sh", "-c", inner, "sh", str(place)]
    done = subprocess.run(words, input=text, capture_output=True, text=True, check=False)
    answer, _, left = done.stdout.partition("\n")
    names = [name for line in left.splitlines() if ":" not in line for name in line.split(", ") if name]
    return {**json.loads(answer), "left": " ".join(names)}
