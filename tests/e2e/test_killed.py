"""
The client dies by SIGKILL, and another goes on.
"""

import random
import signal
import time

import pytest

from tests.e2e.client import Done, none_left, until
from tests.e2e.rented import Rented

MOMENTS = (
    "connected to",
    "surveyed in",
    "attempt 1: second",
    "launched in",
    "loading weights",
    "cannot be mended by waiting",
    "attempt 1 failed",
    "attempt 2: second",
    "looks ready",
    "ok     answers",
)
"""What the client says on its way, in order."""

LONGEST_DELAY = 0.4
"""Seconds after such a moment within which the client is killed: longer than any step between two takes."""


def kill_at(rented: Rented, moment: str, delay: float) -> str:
    """
    Start `up`, and kill it so many seconds after it said something; what it had said by then.
    """
    going = rented.client.start("up", "second", "--on", "box", "--no-plan")
    going.until(moment)
    time.sleep(delay)
    going.send(signal.SIGKILL)
    return going.done().err


def go_on(rented: Rented) -> Done:
    """
    Attach; where nothing had been launched yet, begin again.
    """
    done = rented.client.run("attach", "--on", "box", "--json")
    if done.status == 4 and "there is no run" in done.err:
        return rented.client.run("up", "second", "--on", "box", "--no-plan", "--json")
    return done


def schedulers(rented: Rented) -> int:
    """
    How many servers run.
    """
    return [role for _, _, role in rented.home.living()].count("scheduler")


@pytest.mark.parametrize("seed", range(4))
def test_at_any_moment(rented: Rented, seed: int) -> None:
    """
    Whenever the client is killed, the next one ends in READY with every attempt told, and one server runs.
    """
    dice = random.Random(f"killed {seed}")  # noqa: S311 - a repeatable test
    moment, delay = dice.choice(MOMENTS), dice.random() * LONGEST_DELAY
    kill_at(rented, moment, delay)

    done = go_on(rented)
    history = rented.client.run("history", "--json").document
    until(lambda: schedulers(rented) == 1, "exactly one server")
    down = rented.client.run("down", "--on", "box")

    assert (0, 0) == (done.status, down.status)
    assert [1, 2] == [attempt["attempt"] for attempt in done.document["attempts"]]
    assert ["oom-kv-pool", None] == [attempt["cause"] for attempt in done.document["attempts"]]
    assert [1, 2] == [attempt["attempt"] for attempt in history[0]["attempts"]]
    assert none_left(rented.home)


def test_during_the_second_attempt(rented: Rented) -> None:
    """
    Killed while attempt 2 starts: `attach` follows that very attempt, and its log is kept whole.
    """
    rented.home.change(speed=60.0)
    going = rented.client.start("up", "second", "--on", "box", "--no-plan")
    going.until("attempt 2: second").until("loading weights")
    launched = [line for line in going.err.splitlines() if line.startswith("launched in")]
    going.send(signal.SIGKILL).done()

    attached = rented.client.run("attach", "--on", "box", "--json")
    attempts = attached.document["attempts"]
    history = rented.client.run("history", "--json").document

    assert 0 == attached.status
    assert launched[-1].endswith(attempts[1]["run"]) or attempts[1]["run"] in attached.err
    assert [1, 2] == [attempt["attempt"] for attempt in attempts]
    assert 1 == len(history)
    assert attempts == history[0]["attempts"]
    assert 1 == schedulers(rented)
