import json
import os
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from mtpdeploy.core.units import MIB
from mtpdeploy.onbox.identity import identify
from mtpdeploy.onbox.processes import kind_of
from tests.fakes.run import LocalRun
from tests.onbox.place import GPU_TABLE, Place, of_pid, running
from tests.onbox.runs import until

LISTENER = """
import socket, sys, time
server = socket.create_server(("127.0.0.1", 0))
with open(sys.argv[sys.argv.index("--ready") + 1], "w") as file:
    file.write(str(server.getsockname()[1]))
time.sleep(600)
"""


def test_gpu_memory_is_put_down_to_the_process_of_that_name(place: Place) -> None:
    """
    A pid of nvidia-smi's table counts where the process here has the name shown, and else is another's.
    """
    with (
        running(["sglang::scheduler", "600"], executable="/bin/sleep") as ours,
        running(["sleep", "600"]) as alien,
    ):
        place.nvidia_smi(
            GPU_TABLE,
            f"GPU-bbbb, {ours.pid}, 90000, sglang::scheduler\n"
            f"GPU-aaaa, {alien.pid}, 5000, /usr/bin/python3\n"
            "GPU-aaaa, 4000000, [N/A], [Not Found]\n",
        )
        found = place.survey()

    assert [(ours.pid, True, 90000 * MIB), (alien.pid, False, 5000 * MIB), (4000000, False, None)] == [
        (holder.pid, holder.visible, holder.used_bytes) for holder in found.gpu_holders
    ]
    worker, stranger = of_pid(found, ours.pid), of_pid(found, alien.pid)
    assert worker is not None
    assert ("worker", {"GPU-bbbb": 90000 * MIB}) == (worker.kind, worker.gpu_bytes)
    assert ({}, "") == ((stranger.gpu_bytes, stranger.kind) if stranger else None)


def test_a_real_server_process_is_seen_with_its_port(place: Place, tmp_path: Path) -> None:
    """
    A Python that runs the module sglang.launch_server is a server, with its child, user and ports.
    """
    package = tmp_path / "lib" / "sglang"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "launch_server.py").write_text(
        f"import subprocess\nsubprocess.Popen(['sleep', '600'])\n{LISTENER}"
    )
    words = [sys.executable, "-u", "-m", "sglang.launch_server", "--ready", str(tmp_path / "port")]
    env = {**os.environ, "PYTHONPATH": str(tmp_path / "lib"), "CUDA_VISIBLE_DEVICES": "1"}
    with running(words, env=env) as server:
        assert until(lambda: (tmp_path / "port").exists() and (tmp_path / "port").read_text())
        port = int((tmp_path / "port").read_text())
        found = place.survey(port=port)
        blind = place.survey(port=port, MTPDEPLOY_PROC="/nowhere")
        children = [process for process in found.processes if process.ppid == server.pid]
        for child in children:
            os.kill(child.id.pid, 9)

    seen = of_pid(found, server.pid)
    assert seen is not None
    assert ("server", (port,), "1", found.user) == (seen.kind, seen.listens, seen.devices, seen.user)
    assert (server.pid,) == found.port_holders
    assert ["sleep 600"] == [child.command for child in children]
    without_proc = of_pid(blind, server.pid)
    assert ("server", None) == ((without_proc.kind, without_proc.run) if without_proc else None)


def test_what_only_mentions_sglang_is_of_no_interest(place: Place, tmp_path: Path) -> None:
    """
    A tail of the log, a shell with the word in its text and an editor's stand-in are not told.
    """
    log = tmp_path / "sglang::scheduler.log"
    log.touch()
    script = tmp_path / "editor.py"
    script.write_text("import time\ntime.sleep(600)\n")
    with (
        running(["tail", "-f", str(log)], stdout=subprocess.DEVNULL) as tail,
        running(["sh", "-c", "read line; : python -m sglang.launch_server"]) as shell,
        running([sys.executable, str(script), "-m", "sglang.launch_server"]) as editor,
    ):
        found = place.survey()

    assert [] == [p.command for p in found.processes if p.id.pid in {tail.pid, shell.pid, editor.pid}]


@pytest.mark.parametrize(
    ("kind", "command"),
    [
        ("server", "python -m sglang.launch_server --port 30000"),
        ("server", "/opt/venv/bin/python3.12 -B -X dev -W ignore -m sglang.launch_server"),
        ("server", "python3 -um sglang.launch_server"),
        ("server", "python3 -msglang.launch_server"),
        ("server", "python3 /opt/venv/bin/sglang serve --model-path /m"),
        ("server", "/opt/venv/bin/sglang serve"),
        ("server", "python /src/sglang/launch_server.py"),
        ("server", "python -m sglang.cli.main serve"),
        ("worker", "sglang::scheduler"),
        ("worker", "sglang::scheduler_TP0"),
        ("worker", "sglang::router --port 3"),
        ("helper", "python -c|from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=6)"),
        ("helper", "python -B -c|from multiprocessing.resource_tracker import main;main(6)"),
        ("", "vim sglang.md"),
        ("", "vim sglang::scheduler"),
        ("", "tail -f /logs/sglang.log"),
        ("", "grep -r sglang.launch_server ."),
        ("", "bash -c|python -m sglang.launch_server"),
        ("", "ssh box|python -m sglang.launch_server"),
        ("", "timeout 5 python -m sglang.launch_server"),
        ("", "python -m sglang.bench_serving"),
        ("", "python -m pytest -m sglang.launch_server"),
        ("", "python train.py -m sglang.launch_server"),
        ("", "python -c|import sglang.launch_server"),
        ("", "sglang version"),
        ("", "pythonista -m sglang.launch_server"),
        ("", "python -m"),
        ("", "python"),
        ("", ""),
    ],
)
def test_a_process_is_what_its_words_say(kind: str, command: str) -> None:
    """
    Servers, workers and helpers are told from bystanders by words, not by a part of the text.
    """
    first, *last = command.split("|")

    assert kind == kind_of(first.split() + last)


def test_runs_tell_their_files_and_who_lives(place: Place) -> None:
    """
    A living run has its process and family; one that ended its status; a damaged one is still listed.
    """
    name = f"b-{uuid4().hex}"
    runs = place.work_dir / "runs"
    runs.mkdir(parents=True)
    (place.work_dir / "latest").symlink_to(runs)
    with LocalRun(runs / name) as living:
        marked = {**os.environ, "MTPDEPLOY_RUN": name}
        with running(["sleep", "600"], env=marked, start_new_session=True) as stray:
            living.write(b"x" * 10)
            record = json.loads((runs / name / "proc").read_text())
            (runs / name / "proc").write_text(json.dumps({**record, "log": "attempt.log"}))
            (runs / "a-ended").mkdir()
            (runs / "a-ended" / "exit").write_text('{"status": 137, "signal": 9}')
            (runs / "a-ended" / "attempt.json").write_text('{"log": "old.log"}')
            (runs / "a-ended" / "outcome.json").write_text("{}")
            (runs / "c-damaged").mkdir()
            (runs / "c-damaged" / "proc").write_bytes(b"\0\xff{")
            found = place.survey()

    assert ["c-damaged", name, "a-ended"] == [run.name for run in found.runs]
    damaged, alive, ended = found.runs
    assert (None, False, "") == (damaged.process, damaged.alive, damaged.attempt)
    assert (True, "attempt.log", 10, (stray.pid,)) == (
        alive.alive, alive.log, alive.log_bytes, tuple(member.pid for member in alive.family),
    )  # fmt: skip
    assert living.process.pid == (alive.process.pid if alive.process else None)
    assert (137, "old.log", "{}", False) == (ended.exit_status, ended.log, ended.outcome, ended.alive)
    assert [name] * 2 == [p.run for p in found.processes if p.id.pid in {living.process.pid, stray.pid}]


def test_a_process_of_another_life_is_dead(place: Place) -> None:
    """
    A recorded pid that another process has now is not alive.
    """
    folder = place.work_dir / "runs" / "r"
    folder.mkdir(parents=True)
    (folder / "proc").write_text(json.dumps({**(identify(os.getpid()) or {}), "start": "1"}))
    found = place.survey()

    assert [False] == [run.alive for run in found.runs]


def test_fifty_long_records_arrive_whole(place: Place) -> None:
    """
    The newest 50 runs are read, and a long answer arrives as it was.
    """
    runs = place.work_dir / "runs"
    text = json.dumps({"log": "l", "pad": "é" * 4000})
    for number in range(60):
        (runs / f"{number:03}").mkdir(parents=True)
        (runs / f"{number:03}" / "attempt.json").write_text(text)
    found = place.survey()

    assert [f"{number:03}" for number in range(59, 9, -1)] == [run.name for run in found.runs]
    assert {text} == {run.attempt for run in found.runs}


def test_on_the_demo_box_only_what_was_started_there_counts(place: Place) -> None:
    """
    The demo box shares a machine: a server outside its home is none of its business.
    """
    inside = {**os.environ, "MTPDEPLOY_DEMO_HOME": "/demo"}
    with (
        running(["sglang::scheduler", "600"], executable="/bin/sleep", env=inside) as own,
        running(["sglang::scheduler", "600"], executable="/bin/sleep") as alien,
    ):
        found = place.survey(MTPDEPLOY_DEMO_HOME="/demo")

    assert (True, False, True) == (
        of_pid(found, own.pid) is not None, of_pid(found, alien.pid) is not None, found.simulated,
    )  # fmt: skip
