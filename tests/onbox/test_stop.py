import json
import mmap
import os
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from mtpdeploy.onbox.identity import identify
from tests.onbox.runs import FAMILY_OF_5, ask, launch, living_of, pids_of, python_server, record, until

LISTENS = """
import socket, time
server = socket.create_server(("127.0.0.1", 0))
open("pids.new", "w").write(str(server.getsockname()[1]))
import os; os.rename("pids.new", "pids")
time.sleep(600)
"""

SHARES = """
import mmap, os, sys, time
kept = []
for name in sys.argv[1:-1]:
    file = os.open("/dev/shm/" + name, os.O_RDWR | os.O_CREAT, 0o600)
    os.ftruncate(file, 4096)
    kept.append(mmap.mmap(file, 4096))
open("/dev/shm/" + sys.argv[-1] % os.getpid(), "w")
open("pids.new", "w").write(str(os.getpid()))
os.rename("pids.new", "pids")
time.sleep(600)
"""


def stop(**request: Any) -> dict[str, Any]:
    """
    The answer of the stop program; patience as in the product unless given.
    """
    nothing: dict[str, Any] = {"runs": [], "processes": [], "port": None, "gpus": [], "note": ""}
    nothing |= {"grace": 20, "kill_wait": 10, "wait": 20}
    return ask("stop", {**nothing, **request})


def pids(identities: list[dict[str, Any]]) -> list[int]:
    """
    The pids of identities, in order.
    """
    return sorted(identity["pid"] for identity in identities)


def test_whole_family_ends_when_asked(run: str, tmp_path: Path) -> None:
    """
    Supervisor, server and all five relatives are gone, told one by one, and the end is recorded as TERM's.
    """
    answer = launch(run, tmp_path, python_server(FAMILY_OF_5))
    run_dir = tmp_path / "runs" / run
    family = pids_of(run_dir)
    stopped = stop(runs=[str(run_dir)])

    assert (sorted([answer["process"]["pid"], *family]), [], []) == (
        pids(stopped["ended"]),
        stopped["killed"],
        stopped["survivors"],
    )
    assert ([], 15) == (living_of(family), record(run_dir / "exit")["signal"])


def test_family_that_does_not_listen_is_killed(run: str, tmp_path: Path) -> None:
    """
    What ignores TERM is killed after the grace; the supervisor lives on to record it.
    """
    answer = launch(run, tmp_path, python_server(FAMILY_OF_5, "deaf"))
    run_dir = tmp_path / "runs" / run
    family = pids_of(run_dir)
    stopped = stop(runs=[str(run_dir)], grace=0.2)

    assert (sorted(family), [answer["process"]["pid"]]) == (pids(stopped["killed"]), pids(stopped["ended"]))
    assert ([], 137) == (living_of(family), record(run_dir / "exit")["status"])


def test_main_process_that_was_killed_leaves_nothing(run: str, tmp_path: Path) -> None:
    """
    A run whose main process died a moment ago is still ended with all that it left.
    """
    launch(run, tmp_path, python_server(FAMILY_OF_5, "deaf"))
    run_dir = tmp_path / "runs" / run
    family = pids_of(run_dir)
    os.kill(family[0], signal.SIGKILL)
    record(run_dir / "exit")
    stopped = stop(runs=[str(run_dir)], grace=0.2)

    assert (sorted(family[1:]), []) == (pids(stopped["killed"]), stopped["survivors"])
    assert [] == living_of(family)


def test_supervisor_that_was_killed_is_done_without(run: str, tmp_path: Path, extra: list[int]) -> None:
    """
    Without a supervisor the family is found by the marker; only an orphan without marker is out of reach.
    """
    answer = launch(run, tmp_path, python_server(FAMILY_OF_5))
    run_dir = tmp_path / "runs" / run
    family = pids_of(run_dir)
    extra += family
    os.kill(answer["process"]["pid"], signal.SIGKILL)
    until(lambda: identify(answer["process"]["pid"]) is None)
    stopped = stop(runs=[str(run_dir)])

    assert (sorted(family[:-1]), family[-1:]) == (pids(stopped["ended"]), living_of(family))


def test_supervisor_that_hangs_is_killed_in_the_end(run: str, tmp_path: Path) -> None:
    """
    A supervisor that is stopped (SIGSTOP) and so passes nothing on does not keep the run alive.
    """
    answer = launch(run, tmp_path, python_server(FAMILY_OF_5))
    run_dir = tmp_path / "runs" / run
    family = pids_of(run_dir)
    os.kill(answer["process"]["pid"], signal.SIGSTOP)
    stopped = stop(runs=[str(run_dir)], grace=0.1, kill_wait=2)

    assert sorted([answer["process"]["pid"], *family]) == pids(stopped["killed"])
    assert ([], []) == (living_of(family), stopped["survivors"])


def test_process_that_took_the_pid_is_left_alone(run: str, tmp_path: Path) -> None:
    """
    A record whose pid belongs to somebody else now, or to another boot, ends nobody.
    """
    run_dir = tmp_path / "runs" / run
    run_dir.mkdir(parents=True)
    with subprocess.Popen(["sleep", "600"]) as bystander:
        identity = identify(bystander.pid)
        assert identity is not None
        answers = []
        for change in ({"start": "1"}, {"boot": "of last week"}):
            (run_dir / "proc").write_text(json.dumps({**identity, "log": "log", **change}))
            answers.append(stop(runs=[str(run_dir)], processes=[{**identity, **change}]))
        alive = bystander.poll() is None
        bystander.kill()

    assert ([[], []], True) == ([answer["ended"] + answer["killed"] for answer in answers], alive)


def test_record_that_names_a_stranger_ends_nobody(tmp_path: Path) -> None:
    """
    A living process that is no part of the run is left alone, however exactly `proc` names it.
    """
    run_dir = tmp_path / "run-of-ours"
    run_dir.mkdir()
    with subprocess.Popen(["sleep", "600"]) as bystander:
        (run_dir / "proc").write_text(json.dumps(identify(bystander.pid)))
        stopped = stop(runs=[str(run_dir)])
        alive = bystander.poll() is None
        bystander.kill()

    assert ([], [], True) == (stopped["ended"], stopped["killed"], alive)


def test_other_server_is_ended_with_its_group_and_nobody_else(extra: list[int]) -> None:
    """
    A server that is not ours goes with what is in its own process group; its neighbours stay.
    """
    code = "(sleep 600 & echo $!); sleep 600 & echo $!; exec sleep 600"
    with (
        subprocess.Popen(["sleep", "600"]) as neighbour,
        subprocess.Popen(["sh", "-c", code], stdout=subprocess.PIPE, start_new_session=True) as server,
    ):
        assert server.stdout is not None
        group = sorted([server.pid, int(server.stdout.readline()), int(server.stdout.readline())])
        extra += group
        stopped = stop(processes=[identify(server.pid)])
        left = living_of([*group, neighbour.pid])
        neighbour.kill()

    assert (group, [neighbour.pid]) == (pids(stopped["ended"]), left)


def test_server_in_the_group_of_a_shell_leaves_the_shell(extra: list[int]) -> None:
    """
    Of a server that does not lead its group only what stands below it goes.
    """
    code = "sleep 600 & echo $!; sleep 600"
    with subprocess.Popen(["sh", "-c", code], stdout=subprocess.PIPE, start_new_session=True) as shell:
        assert shell.stdout is not None
        server = int(shell.stdout.readline())
        extra.append(server)
        stopped = stop(processes=[identify(server)])
        left = living_of([shell.pid, server])
        os.killpg(shell.pid, signal.SIGKILL)

    assert ([server], [shell.pid]) == (pids(stopped["ended"]), left)


def test_port_of_the_run_is_free_afterwards(run: str, tmp_path: Path) -> None:
    """
    The port that the server listened on is free when the answer comes.
    """
    launch(run, tmp_path, python_server(LISTENS))
    run_dir = tmp_path / "runs" / run
    port = pids_of(run_dir)[0]
    stopped = stop(runs=[str(run_dir)], port=port)
    with socket.create_server(("127.0.0.1", port)):
        pass

    assert stopped["port_holder"] is None


def test_port_that_a_stranger_holds_is_told_not_waited_for() -> None:
    """
    A port that belongs to somebody who is not to be ended is told at once, with the pid.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        stopped = stop(port=server.getsockname()[1], wait=3600)

    assert os.getpid() == stopped["port_holder"]


@pytest.mark.parametrize(("looks", "wait", "back"), [(4, 20.0, True), (1000, 0.3, False)])
def test_memory_of_the_gpu_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, looks: int, wait: float, *, back: bool
) -> None:
    """
    The answer comes when each GPU has the wanted memory free again, or when the time is over.
    """
    smi(
        tmp_path,
        monkeypatch,
        f'echo x >>"$0.looks"; n=$(wc -l <"$0.looks"); [ $n -ge {looks} ] && free=90000',
    )
    stopped = stop(gpus=[{"uuid": "GPU-b", "free_at_least": 80_000 << 20}], wait=wait)

    free = (90_000 if back else 1200) << 20
    assert [{"uuid": "GPU-b", "free": free, "wanted": 80_000 << 20, "back": back}] == stopped["gpus"]


def test_gpu_that_cannot_be_asked_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Where nvidia-smi fails the answer says that it does not know, at once.
    """
    smi(tmp_path, monkeypatch, "exit 9")
    stopped = stop(gpus=[{"uuid": "GPU-b", "free_at_least": 1}], wait=3600)

    assert [{"uuid": "GPU-b", "free": None, "wanted": 1, "back": False}] == stopped["gpus"]


def test_shared_memory_of_the_dead_goes_and_that_of_others_stays(run: str, tmp_path: Path) -> None:
    """
    Segments that only the dead had mapped are removed; one in use elsewhere and a user's own file stay.
    """
    own = f"{run}-{os.getpid()}"
    names = [f"psm_{own}", f"psm_{own}_in_use", f"weights_{own}"]
    loads = f"sglang_loads_{own}.shm"
    shared = Path("/dev/shm")
    try:
        launch(run, tmp_path, python_server(SHARES, *names, loads, f"torch_%d_1_{own}"))
        run_dir = tmp_path / "runs" / run
        pid = pids_of(run_dir)[0]
        with (shared / names[1]).open("r+b") as file, mmap.mmap(file.fileno(), 0):
            stopped = stop(runs=[str(run_dir)])
        left = sorted(path.name for path in shared.glob(f"*{own}*"))
    finally:
        for path in shared.glob(f"*{own}*"):
            path.unlink()

    removed = [names[0], loads, f"torch_{pid}_1_{own}"]
    assert (sorted(removed), names[1:]) == (stopped["shared"], left)


def test_order_to_stop_is_left_in_the_run(run: str, tmp_path: Path) -> None:
    """
    Who stops a run is written beside its records, so that its end is not taken for a failure.
    """
    launch(run, tmp_path, [["sleep"], ["600"]])
    run_dir = tmp_path / "runs" / run
    stop(runs=[str(run_dir)], note="ann, `mtpdeploy down`")

    assert "ann, `mtpdeploy down`" == record(run_dir / "stop")["by"]


def smi(folder: Path, monkeypatch: pytest.MonkeyPatch, first: str) -> None:
    """
    An nvidia-smi that has 1200 MiB free on two GPUs, after some sh text of its own.
    """
    program = folder / "nvidia-smi"
    asked = "--query-gpu=uuid,memory.free --format=csv,noheader,nounits"
    program.write_text(
        f'#!/bin/sh\nfree=1200\n{first}\n[ "$*" = "{asked}" ] && printf "GPU-a, 500\\nGPU-b, %s\\n" $free\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
