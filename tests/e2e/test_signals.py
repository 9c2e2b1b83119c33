"""
Ctrl-C and other ends of the client, at several moments: at once, true, and without harm to the server.
"""

import os
import signal
import subprocess
import sys
import time

import pytest

from tests.e2e.client import DEADLINE, census, none_left, until
from tests.e2e.rented import Rented

SOON = 10.0
"""Seconds that leaving may take on a machine that is busy with other tests; alone it takes 0.1 s."""

GO_ON = "hint: go on with it: mtpdeploy attach --on box\n      stop it:       mtpdeploy down --on box\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["INT", "TERM"])
@pytest.mark.parametrize(
    "moment", ["launched in", "loading weights", "looks ready"], ids=["launched", "loading", "proving"]
)
def test_after_the_launch(rented: Rented, moment: str, number: signal.Signals) -> None:
    """
    It detaches: 130, what to do next, no traceback; the server goes on, and `attach` finds it.
    """
    rented.home.change(speed=200.0)
    going = rented.client.start("up", "fits", "--on", "box", "--no-log").until(moment)

    done = going.send(number).done(SOON)
    after = census(rented.home)

    assert 130 == done.status
    assert done.err.endswith(f"detached: the server goes on on `box`\n\n{GO_ON}")
    assert "Traceback" not in done.err
    assert "server" in after or any("launch_server" in role for role in after)


def test_what_was_detached_is_found(rented: Rented) -> None:
    """
    After Ctrl-C `attach` ends in READY with that very attempt; no lease stands in its way.
    """
    rented.home.change(speed=100.0)
    rented.client.start("up", "fits", "--on", "box").until("loading weights").send(signal.SIGINT).done(SOON)

    attached = rented.client.run("attach", "--on", "box", "--json")

    assert 0 == attached.status
    assert [1] == [attempt["attempt"] for attempt in attached.document["attempts"]]
    assert "watching whether it lives" not in attached.err


@pytest.mark.parametrize("moment", ["connected to", "surveyed in"], ids=["connected", "surveyed"])
def test_before_the_launch(rented: Rented, moment: str) -> None:
    """
    Ctrl-C before a launch says so, or says that it detached where the launch was under way; never wrong.
    """
    going = rented.client.start("up", "fits", "--on", "box").until(moment)

    done = going.send(signal.SIGINT).done(SOON)
    runs = list((rented.home.path / ".mtpdeploy").glob("runs/*/proc"))

    assert 130 == done.status
    assert "Traceback" not in done.err
    assert not (runs and "nothing was launched" in done.err)
    assert runs or ("nothing was launched" in done.err or "in the middle of a launch" in done.err)
    assert bool(runs) or none_left(rented.home)


def test_before_anything(rented: Rented) -> None:
    """
    Ctrl-C while Python still imports leaves with 130 and no traceback.
    """
    going = rented.client.start("up", "fits", "--on", "box")
    time.sleep(0.15)

    done = going.send(signal.SIGINT).done(SOON)

    assert done.status in (130, -signal.SIGINT)
    assert "error: " not in done.err


def test_a_second_one(rented: Rented) -> None:
    """
    Whoever presses it twice leaves at once with 130 as well.
    """
    rented.home.change(speed=100.0)
    going = rented.client.start("up", "fits", "--on", "box").until("loading weights")

    going.send(signal.SIGINT)
    done = going.send(signal.SIGINT).done(SOON)

    assert 130 == done.status
    assert "Exception ignored" not in done.err


def test_standard_output_is_closed(rented: Rented) -> None:
    """
    A reader of `--json-events` that goes away ends the client quietly, and never the server.
    """
    rented.home.change(speed=100.0)
    command = [sys.executable, "-m", "mtpdeploy", "up", "fits", "--on", "box", "--json-events", "--no-log"]
    client = rented.client
    with subprocess.Popen(
        command,
        cwd=client.folder,
        env=client.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        said = process.stderr.read().decode()
        status = process.wait(DEADLINE)

    assert 141 == status
    assert "Traceback" not in said
    assert "Exception ignored" not in said


def test_standard_error_is_closed(rented: Rented) -> None:
    """
    Without anybody to read the progress the server comes up, or the client ends quietly.
    """
    read, write = os.pipe()
    os.close(read)
    client = rented.client
    done = subprocess.run(
        [sys.executable, "-m", "mtpdeploy", "up", "fits", "--on", "box", "--json"],
        cwd=client.folder,
        env=client.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=write,
        timeout=DEADLINE,
        check=False,
    )
    os.close(write)

    assert done.returncode in (0, 141)
    until(lambda: not (rented.home.path / ".mtpdeploy" / "lock").exists(), "giving the lease back")
