import json
import os
import socket
import sys
from pathlib import Path

import pytest

from mtpdeploy.onbox import script
from mtpdeploy.onbox.identity import table
from mtpdeploy.remote.environment import Environment, compare_environment
from mtpdeploy.remote.run import Run
from tests.fakes.sshd import free_port
from tests.onbox.runs import ShBox, ask, files_of, launching, python_server, until

LISTENS = """
import os, socket, sys, time
listening = socket.create_server(("127.0.0.1", int(sys.argv[1])))
open("listens", "w").close()
time.sleep(600)
"""

SHARES = """
import os, socket, subprocess, sys, time
listening = socket.create_server(("127.0.0.1", int(sys.argv[1])))
worker = subprocess.Popen(["sleep", "600"], env={}, pass_fds=[listening.fileno()])
open("listens", "w").close()
time.sleep(600)
"""
"""A server with a worker that has its socket and not its environment."""

WRAPS = """
import subprocess, sys
keeps = {"PATH": "/usr/bin:/bin", "MTPDEPLOY_RUN": __import__("os").environ["MTPDEPLOY_RUN"]}
subprocess.run([sys.executable, "-I", "-S", "-c", sys.argv[2], sys.argv[1]], env=keeps)
"""
"""An image's own launcher, that starts the server with a clean environment."""


class Started:
    """
    A run on this machine whose server was given some variables.
    """

    def __init__(self, run: str, folder: Path, argv: list[list[str]], **env: str) -> None:
        self.run, self.folder = run, folder
        answer = ask("launch", launching(run, folder, files_of(run, folder, argv, env)))
        self.pid = int(answer["process"]["pid"])

    def server(self) -> int:
        """
        The pid of what the supervisor starts, once it has a session of its own.
        """
        (pid,) = until(lambda: [e["pid"] for e in table() if e["ppid"] == self.pid and e["sid"] == e["pid"]])
        return int(pid)

    def compare(self, port: int, *secrets: str, **variables: str) -> Environment:
        """
        Compare its environment with what is asked.
        """
        run = Run(work_dir=str(self.folder), name=self.run, python=sys.executable)
        return compare_environment(ShBox(), run, port=port, variables=variables, secrets=secrets)


@pytest.fixture
def port() -> int:
    """
    A port on which nothing listens.
    """
    return free_port()


def listening(run: str, folder: Path, port: int, **env: str) -> Started:
    """
    A run whose server listens.
    """
    started = Started(run, folder, python_server(LISTENS, str(port)), **env)
    until((folder / "runs" / run / "listens").exists)
    return started


def test_all_is_there(run: str, tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Every value arrived as it was, whatever is in it, and the secret has one.
    """
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    value = "a b\n'\"$(x)=→"
    told = listening(run, tmp_path, port, ODD=value, EMPTY="").compare(port, "HF_TOKEN", ODD=value, EMPTY="")

    assert ((), (), "") == (told.missing, told.different, told.problem)


def test_what_is_not_as_asked_is_named(
    run: str, tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Names alone: of an empty secret, a missing variable, another value.
    """
    monkeypatch.setenv("HF_TOKEN", "")
    started = listening(run, tmp_path, port, ONE="1", TWO="2")
    told = started.compare(port, "HF_TOKEN", "WANDB_KEY", ONE="other", TWO="2", THREE="3")

    assert (("HF_TOKEN", "THREE", "WANDB_KEY"), ("ONE",)) == (told.missing, told.different)


def test_no_value_leaves_the_box(
    run: str, tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Neither what the process has nor what a secret holds is in the answer.
    """
    monkeypatch.setenv("HF_TOKEN", "hf_very_secret")
    started = listening(run, tmp_path, port, ONE="its own value")
    request = {
        "run_dir": str(tmp_path / "runs" / started.run),
        "port": port,
        "variables": {"ONE": "asked"},
        "secrets": ["HF_TOKEN"],
    }
    out = ShBox().run(script("environment", request, sys.executable)).text

    assert ["ONE"] == json.loads(out)["different"]
    assert "secret" not in out
    assert "own value" not in out


def test_the_server_is_what_the_supervisor_started(run: str, tmp_path: Path, port: int) -> None:
    """
    As long as nobody listens it is the supervisor's child, not the supervisor.
    """
    started = Started(run, tmp_path, python_server("import time; time.sleep(600)"), ONE="1")
    server = started.server()
    told = started.compare(port, ONE="1")

    assert (server, ()) == (told.pid, told.missing)


def test_a_wrapper_that_cleans_the_environment_is_found_out(run: str, tmp_path: Path, port: int) -> None:
    """
    What counts is the process that listens, not the wrapper around it.
    """
    started = Started(run, tmp_path, python_server(WRAPS, str(port), LISTENS), ONE="1")
    until((tmp_path / "runs" / run / "listens").exists)
    told = started.compare(port, ONE="1")

    assert ("ONE",) == told.missing
    assert told.pid not in (None, started.pid)


def test_of_several_that_listen_the_nearest_counts(run: str, tmp_path: Path, port: int) -> None:
    """
    Workers inherit the socket; the server is the one that started them.
    """
    started = Started(run, tmp_path, python_server(SHARES, str(port)), ONE="1")
    until((tmp_path / "runs" / run / "listens").exists)

    assert () == started.compare(port, ONE="1").missing


def test_a_stranger_on_the_port_is_not_the_server(run: str, tmp_path: Path, port: int) -> None:
    """
    A listener outside of the run is not looked at.
    """
    started = Started(run, tmp_path, python_server("import time; time.sleep(600)"), ONE="1")
    started.server()
    with socket.create_server(("127.0.0.1", port)):
        told = started.compare(port, ONE="1")

    assert ((), True) == (told.missing, told.pid != os.getpid())


def test_a_run_without_a_process(tmp_path: Path, port: int) -> None:
    """
    Nothing is compared with nothing.
    """
    (tmp_path / "runs" / "gone").mkdir(parents=True)
    run = Run(work_dir=str(tmp_path), name="gone", python=sys.executable)
    told = compare_environment(ShBox(), run, port=port, variables={"ONE": "1"}, secrets=())

    assert (None, (), "the run's process is not there") == (told.pid, told.missing, told.problem)


def test_an_environment_that_is_not_shown(run: str, tmp_path: Path, port: int) -> None:
    """
    Without /proc nothing is claimed: no variable is called missing.
    """
    started = Started(run, tmp_path, python_server("import time; time.sleep(600)"), ONE="1")
    started.server()
    box = ShBox({"MTPDEPLOY_PROC": "/nowhere"})
    known = Run(work_dir=str(tmp_path), name=run, python=sys.executable)
    told = compare_environment(box, known, port=port, variables={"ONE": "1"}, secrets=("HF_TOKEN",))

    assert ((), ()) == (told.missing, told.different)
    assert told.problem
