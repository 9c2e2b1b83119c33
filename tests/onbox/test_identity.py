import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mtpdeploy.onbox.identity import family, identify, listeners, same, send, table
from tests.onbox.runs import until

NOWHERE = "/nowhere"


@pytest.fixture(params=["with /proc", "without"])
def proc(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """
    Both ways to look at processes: the kernel's own files, and what ps prints.
    """
    if request.param == "without":
        monkeypatch.setenv("MTPDEPLOY_PROC", NOWHERE)
    return str(request.param)


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """
    A process that does nothing.
    """
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as child:
        yield child
        child.kill()


@pytest.mark.usefixtures("proc")
def test_living_process_is_itself(sleeper: subprocess.Popen[bytes]) -> None:
    """
    A living process has an identity, and is the same one as long as it lives.
    """
    identity = identify(sleeper.pid)
    assert identity is not None
    alive = same(identity)
    sleeper.kill()
    sleeper.wait()

    assert (True, False) == (alive, same(identity))


@pytest.mark.usefixtures("proc")
def test_zombie_is_dead(sleeper: subprocess.Popen[bytes]) -> None:
    """
    A process that has ended but was not reaped has no identity, though `kill -0` finds it.
    """
    identity = identify(sleeper.pid)
    assert identity is not None
    sleeper.kill()
    until(lambda: not same(identity))
    os.kill(sleeper.pid, 0)

    assert identify(sleeper.pid) is None


@pytest.mark.parametrize("key", ["start", "boot", "pid_ns"])
def test_other_process_with_the_pid_is_not_signalled(sleeper: subprocess.Popen[bytes], key: str) -> None:
    """
    One that took the pid, after another boot, or in another namespace, is not the same and gets no signal.
    """
    identity = identify(sleeper.pid)
    assert identity is not None
    sent = send({**identity, key: "1"}, signal.SIGKILL)
    reached = send(identity, signal.SIGTERM)

    assert (False, True, -signal.SIGTERM) == (sent, reached, sleeper.wait())


@pytest.mark.usefixtures("proc")
def test_start_differs_between_processes_of_other_times() -> None:
    """
    The start time is the process's own: init's is another one than ours.
    """
    first, ours = identify(1), identify(os.getpid())
    assert first is not None
    assert ours is not None

    assert (True, True) == (first["start"] != ours["start"], first["boot"] == ours["boot"])


@pytest.mark.usefixtures("proc")
def test_table_tells_parents_groups_and_commands(sleeper: subprocess.Popen[bytes]) -> None:
    """
    The table knows parent, group, session, user and command of each process.
    """
    entry = next(entry for entry in table() if entry["pid"] == sleeper.pid)

    expected = (os.getpid(), sleeper.pid, sleeper.pid, os.geteuid(), "sleep 600", "S")
    keys = ("ppid", "pgid", "sid", "uid", "cmdline")
    assert expected == (*(entry[key] for key in keys), entry["state"][0])


@pytest.mark.usefixtures("proc")
def test_family_is_what_stands_below_and_what_carries_the_marker(tmp_path: Path) -> None:
    """
    Descendants count by parentage and orphans by the marker; those of another run do not.
    """
    code = "import subprocess; subprocess.Popen(['sleep', '600']); input()"
    below = subprocess.Popen([sys.executable, "-I", "-S", "-c", code], stdin=subprocess.PIPE)
    orphans = []
    for run in (f"{tmp_path.name}-1", f"{tmp_path.name}-10"):
        told = subprocess.run(
            ["sh", "-c", "sleep 600 >/dev/null & echo $!"],
            env={**os.environ, "MTPDEPLOY_RUN": run},
            stdout=subprocess.PIPE,
            check=True,
        )
        orphans.append(int(told.stdout))
    identity = identify(below.pid)
    grandchild = until(lambda: [m["pid"] for m in family(identity, None)])
    found = [m["pid"] for m in family(identity, f"{tmp_path.name}-1")]
    for pid in (*orphans, *grandchild, below.pid):
        os.kill(pid, signal.SIGKILL)
    below.communicate()

    assert sorted([*grandchild, orphans[0]]) == found


def test_who_asks_is_not_of_the_family(tmp_path: Path) -> None:
    """
    A program that was started with the marker of a run does not find itself in it, nor its parents.
    """
    code = f"from mtpdeploy.onbox.identity import family; print(family(None, {tmp_path.name!r}))"
    told = subprocess.run(
        ["sh", "-c", '"$0" -c "$1"; exit', sys.executable, code],
        env={**os.environ, "MTPDEPLOY_RUN": tmp_path.name},
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        check=True,
    )

    assert b"[]\n" == told.stdout


@pytest.mark.parametrize(
    ("kind", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")], ids=["v4", "v6"]
)
def test_listener_of_a_port_is_found(kind: socket.AddressFamily, address: str) -> None:
    """
    Who listens is found by its pid, and nobody once it has closed.
    """
    with socket.socket(kind) as server:
        server.bind((address, 0))
        server.listen()
        port = server.getsockname()[1]
        found = listeners(port)

    assert ([os.getpid()], []) == (found, listeners(port))


def test_listener_is_asked_of_lsof_without_proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Where there is no /proc, lsof is asked for the one port, and its pids are told.
    """
    program = tmp_path / "lsof"
    program.write_text(f'#!/bin/sh\necho "$*" >{tmp_path}/asked\nprintf "41\\n40\\n41\\n"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("MTPDEPLOY_PROC", NOWHERE)
    found = listeners(30000)

    assert ([40, 41], "-nP -iTCP:30000 -sTCP:LISTEN -t\n") == (found, (tmp_path / "asked").read_text())


def test_name_with_brackets_does_no_harm(tmp_path: Path) -> None:
    """
    A program called `a) R 1 (b` is read like any other.
    """
    program = tmp_path / "a) R 1 (b"
    program.symlink_to("/bin/sleep")
    with subprocess.Popen([str(program), "600"]) as child:
        until(lambda: any(e["pid"] == child.pid and "600" in e["cmdline"] for e in table()))
        entry = next(entry for entry in table() if entry["pid"] == child.pid)
        child.kill()

    assert (os.getpid(), True) == (entry["ppid"], entry["start"].isdigit())
