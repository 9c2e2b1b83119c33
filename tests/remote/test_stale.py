import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from msgspec import structs

from mtpdeploy.core.events import AnyEvent, Note
from mtpdeploy.core.machine import Facts, Host, ProcessId
from mtpdeploy.core.server import ServerSpec
from mtpdeploy.core.stale import Blocker, Clearance, judge
from mtpdeploy.core.units import GIB
from mtpdeploy.errors import BoxUnfit
from mtpdeploy.onbox.identity import identify
from mtpdeploy.remote import facts, stale
from mtpdeploy.remote.box import Result
from mtpdeploy.remote.stale import Cleared, clear, load_count, metric_count
from tests.fakes.run import LocalRun
from tests.onbox.runs import ShBox, until

LAUNCH_SERVER = """
import http.server, json, subprocess, sys
answers = json.loads(sys.argv[sys.argv.index("--answers") + 1])
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        text = answers.get(self.path)
        self.send_response(404 if text is None else 200)
        self.end_headers()
        self.wfile.write((text or "").encode())
    def log_message(self, *args):
        pass
subprocess.Popen(["sglang::scheduler", "600"], executable="/bin/sleep")
server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
with open(sys.argv[sys.argv.index("--told") + 1], "w") as file:
    file.write(str(server.server_port))
server.serve_forever()
"""
"""A stand-in for SGLang's main process: the module's name, one worker, and what it says of its load."""

BUSY = {
    "0.5.8 and later": {
        "/v1/loads?include=core": json.dumps(
            {"version": "0.5.23", "loads": [{"dp_rank": 0, "num_running_reqs": 2, "num_waiting_reqs": 1}]}
        )
    },
    "0.5.6": {
        "/get_load": json.dumps([{"dp_rank": 0, "num_reqs": 3, "num_waiting_reqs": 1, "num_tokens": 9}])
    },
    "with a key": {
        "/metrics": '# HELP sglang:num_running_reqs x\nsglang:num_running_reqs{engine_type="unified"} 2.0\n'
        'sglang:num_queue_reqs{engine_type="unified"} 1.0\n'
    },
}

IDLE = {"/get_load": json.dumps([{"dp_rank": 0, "num_reqs": 0, "num_waiting_reqs": 0, "num_tokens": 0}])}


class Scene:
    """
    This machine as a box with a made-up card, a made-up SGLang, and what is started on it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.work_dir = folder / "work"
        self.run = f"run-{uuid4().hex}"
        self.events: list[AnyEvent] = []
        self.started: list[subprocess.Popen[bytes]] = []
        (folder / "lib" / "sglang").mkdir(parents=True)
        (folder / "lib" / "sglang" / "__init__.py").touch()
        (folder / "lib" / "sglang" / "launch_server.py").write_text(LAUNCH_SERVER)
        (folder / "bin").mkdir()
        self.card(used=4)
        self.box = ShBox({"PATH": f"{folder / 'bin'}:{os.environ['PATH']}"})

    def card(self, used: int, holders: str = "", *, while_alive: int | None = None) -> None:
        """
        A card of 96 GiB of which `used` MiB are used; `while_alive` names a pid that has to live for that.
        """
        mib = 96 * 1024
        test = f"kill -0 {while_alive} 2>/dev/null" if while_alive else "true"
        script = self.folder / "bin" / "nvidia-smi"
        script.write_text(f"""#!/bin/sh
used=4
if {test}; then used={used}; fi
free=$(({mib} - used))
case $1 in
  *uuid,memory.free*) echo "GPU-a, $free" ;;
  *query-gpu*) echo "0, GPU-a, RTX, {mib}, $free, $used, 12.0, 9.0" ;;
  *) printf '{holders}' ;;
esac
""")
        script.chmod(0o755)

    def server(self, answers: dict[str, str]) -> tuple[subprocess.Popen[bytes], int]:
        """
        Start the stand-in of another SGLang server; its process and port.
        """
        told = self.folder / f"port-{len(self.started)}"
        words = [
            sys.executable,
            "-m",
            "sglang.launch_server",
            "--answers",
            json.dumps(answers),
            "--told",
            str(told),
        ]
        env = {**os.environ, "PYTHONPATH": str(self.folder / "lib")}
        process = subprocess.Popen(words, env=env, start_new_session=True)
        self.started.append(process)
        port = int(until(lambda: told.read_text() if told.exists() else ""))
        return process, port

    def look(self, port: int) -> tuple[Facts, Clearance]:
        """
        Survey and judge, as `up` does, as if nothing else ran on this machine.
        """
        host = Host(name="here", address="127.0.0.1", work_dir=str(self.work_dir), python=sys.executable)
        server = ServerSpec(name="q", flags={"model_path": "/m", "port": port})
        found = facts.survey(self.box, host=host, server=server)
        mine = {process.pid for process in self.started}
        runs = {run.name for run in found.runs}
        kept = [p for p in found.processes if {p.id.pid, p.ppid} & mine or p.run in runs or p.kind == ""]
        found = structs.replace(found, processes=tuple(kept))
        return found, judge(found, server, keep_others=False)

    def clear(self, found: Facts, clearance: Clearance, *, take: bool = False) -> Cleared:
        """
        Clear the way.
        """
        return clear(self.box, found, clearance, take=take, emit=self.events.append)

    def end(self) -> None:
        """
        Nothing that was started here outlives the test.
        """
        for process in self.started:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    """
    A scene that is cleared away afterwards.
    """
    made = Scene(tmp_path)
    yield made
    made.end()


@contextmanager
def reaping(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """
    Reap a child of the tests as soon as it dies, as the first process of a box does.
    """
    thread = threading.Thread(target=process.wait, daemon=True)
    thread.start()
    yield
    thread.join(30)


def alive(pid: int) -> bool:
    """
    Whether a process lives; a zombie does not.
    """
    return identify(pid) is not None


def test_an_idle_server_in_the_way_is_ended_and_its_port_and_memory_are_back(scene: Scene) -> None:
    """
    Main process and worker end, the port is free and the memory back; a tail of its log lives on.
    """
    process, port = scene.server(IDLE)
    scene.card(90000, while_alive=process.pid)
    log = scene.folder / "sglang.launch_server.log"
    log.touch()
    tail = subprocess.Popen(["tail", "-f", str(log)])
    found, clearance = scene.look(port)
    family = [member.pid for blocker in clearance.others for member in blocker.family]
    with reaping(process):
        done = scene.clear(found, clearance)
    tail_lives = alive(tail.pid)
    tail.kill()
    tail.wait()

    assert (2, True) == (len(family), process.pid in family)
    assert (set(family), ()) == (set(done.ended), done.killed)
    assert (False, True, []) == (any(alive(pid) for pid in family), tail_lives, scene.events)
    assert Clearance(port=port) == scene.look(port)[1]


@pytest.mark.parametrize("version", BUSY)
def test_a_server_that_works_on_requests_is_only_ended_by_take(scene: Scene, version: str) -> None:
    """
    Whatever way its version tells its load, three requests keep a server; `--take` ends it all the same.
    """
    process, port = scene.server(BUSY[version])
    found, clearance = scene.look(port)
    with pytest.raises(BoxUnfit, match=r"working on requests.* has 3 running") as refused:
        scene.clear(found, clearance)
    lived = alive(process.pid)
    with reaping(process):
        done = scene.clear(found, clearance, take=True)

    assert (True, False, True) == (lived, alive(process.pid), process.pid in done.ended)
    assert "--take" in refused.value.hint


def test_a_server_that_does_not_say_is_taken_for_idle_and_that_is_said(scene: Scene) -> None:
    """
    Without an answer it is ended, with a note.
    """
    process, port = scene.server({})
    found, clearance = scene.look(port)
    with reaping(process):
        scene.clear(found, clearance)
    notes = [event.text for event in scene.events if isinstance(event, Note)]

    assert not alive(process.pid)
    assert 1 == len(notes)
    assert "does not say whether it works on requests" in notes[0]


def test_a_run_of_ours_is_ended(scene: Scene) -> None:
    """
    A run is ended through its directory, whether or not it works.
    """
    (scene.work_dir / "runs").mkdir(parents=True)
    with LocalRun(scene.work_dir / "runs" / scene.run) as run:
        found, clearance = scene.look(1)
        with reaping(run.process):
            done = scene.clear(found, clearance)

    assert [scene.run] == [blocker.run for blocker in clearance.ours]
    assert (run.process.pid,) == done.ended


def test_while_a_stranger_is_in_the_way_nothing_is_ended(scene: Scene) -> None:
    """
    The stranger is named with pid, command and what it holds; our own run lives on.
    """
    job = subprocess.Popen(["sleep", "600"])
    scene.card(20000, f"GPU-a, {job.pid}, 20000, sleep\\n")
    (scene.work_dir / "runs").mkdir(parents=True)
    with LocalRun(scene.work_dir / "runs" / scene.run) as run:
        found, clearance = scene.look(1)
        with pytest.raises(BoxUnfit) as refused:
            scene.clear(found, clearance, take=True)
        lived = (alive(job.pid), alive(run.process.pid))
    job.kill()
    job.wait()

    assert ((True, True), 1) == (lived, len(clearance.ours))
    assert f"sleep 600 (pid {job.pid}, {found.user}): holds 19.53 GiB of GPU 0" in refused.value.message
    assert "--gpu" in refused.value.hint


def test_memory_that_is_still_being_freed_is_waited_for(scene: Scene) -> None:
    """
    Memory that no process accounts for comes back by itself.
    """
    dying = subprocess.Popen(["sleep", "1"])
    scene.card(60000, while_alive=dying.pid)
    found, clearance = scene.look(1)
    with reaping(dying):
        done = scene.clear(found, clearance)

    assert [True] == [blocker.settles for blocker in clearance.foreign]
    assert ((), ()) == (done.ended, done.killed)


def test_memory_that_does_not_come_back_is_named(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    After the wait it is an error that says where the memory is held.
    """
    monkeypatch.setattr(stale, "SETTLING_WAIT", 0.3)
    scene.card(60000)
    found, clearance = scene.look(1)
    with pytest.raises(BoxUnfit, match=r"58\.59 GiB of GPU 0 are held outside this container"):
        scene.clear(found, clearance)


def test_a_clear_way_costs_no_round_trip(scene: Scene) -> None:
    """
    With nothing in the way nothing is asked.
    """
    found, clearance = scene.look(1)
    before = scene.box.round_trips

    assert (Cleared(), before) == (scene.clear(found, clearance), scene.box.round_trips)


class Answering(ShBox):
    """
    A box whose stop program answers what a test wants.
    """

    def __init__(self, answer: dict[str, Any]) -> None:
        super().__init__()
        self.answer = answer

    def run(
        self, script: str, *, limit: float = 20, on_output: Callable[[bytes], None] | None = None
    ) -> Result:
        """
        The answer, whatever is asked.
        """
        del script, limit, on_output
        nothing: dict[str, Any] = {
            "ended": [],
            "killed": [],
            "survivors": [],
            "port_holder": None,
            "gpus": [],
            "shared": [],
        }
        return Result(0, json.dumps({**nothing, "seconds": 9.4, **self.answer}).encode(), b"")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"port_holder": 0}, "the port on `here` is still taken by a process that cannot be seen"),
        ({"port_holder": 7}, "the port on `here` is still taken by a process (pid 7)"),
        (
            {"survivors": [{"pid": 5, "start": "1", "boot": "b", "pid_ns": "n"}]},
            "what was ended on `here` does not go: python supervise.py (pid 5, root)",
        ),
        (
            {"gpus": [{"uuid": "GPU-a", "free": GIB, "wanted": 95 * GIB, "back": False}]},
            "GPU memory on `here` did not come back within 9 s: GPU 0 has 1.00 GiB free of 95.00 GiB",
        ),
    ],
)
def test_what_is_not_free_in_time_is_an_error(scene: Scene, answer: dict[str, Any], message: str) -> None:
    """
    A port taken again, a process that does not go and memory that is not back are each named.
    """
    found, _ = scene.look(1)
    five = ProcessId(pid=5, start="1")
    ours = Blocker(pid=5, command="python supervise.py", user="root", why="w", family=(five,), run="r")
    clearance = Clearance(ours=(ours,), port=1, memory={"GPU-a": 95 * GIB})
    with pytest.raises(BoxUnfit) as refused:
        clear(Answering(answer), found, clearance, take=False, emit=scene.events.append)

    assert message == refused.value.message


@pytest.mark.parametrize(
    ("answer", "count"),
    [
        ({"loads": [{"num_running_reqs": 1}, {"num_running_reqs": 2, "num_waiting_reqs": 3}]}, 6),
        ([{"num_reqs": 2}, {"num_reqs": 0}], 2),
        ({"loads": []}, None),
        ({"loads": [{"dp_rank": 0}]}, None),
        ({"error": "x"}, None),
        ([], None),
        (["x"], None),
        ("x", None),
        (None, None),
    ],
)
def test_the_load_is_counted_over_all_ranks(answer: Any, count: int | None) -> None:
    """
    Ranks add up; an answer without a number is no answer.
    """
    assert count == load_count(answer)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ('sglang:num_running_reqs{a="b c"} 2.0\nsglang:num_running_reqs{a="d"} 1.0\n', 3),
        ("sglang:num_running_reqs_offline_batch 9.0\n", None),
        ("sglang:num_queue_reqs NaN\n", None),
        ("", None),
    ],
)
def test_the_metrics_are_counted(text: str, count: int | None) -> None:
    """
    The gauges of running and queued requests add up, and no others.
    """
    assert count == metric_count(text.encode())
