"""
The line is cut in the middle; the server goes on, and no byte of its log is lost.
"""

import hashlib
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from mtpdeploy.demo.home import Hostile
from tests.e2e.client import Going, none_left, until
from tests.e2e.rented import Rented
from tests.fakes.sshd import Relay

CHATTER_MB = 12.0
RATE_MB_S = 6.0
"""A log that grows while the weights load: two seconds in which to cut."""

Cut = Callable[[Rented, Relay], None]


def killed_sessions(rented: Rented, _relay: Relay) -> None:
    """
    The sshd processes of all connections are killed.
    """
    rented.sshd.signal_sessions(signal.SIGKILL)


def closed(_rented: Rented, relay: Relay) -> None:
    """
    Something in between ends every connection.
    """
    relay.cut()


def reset(_rented: Rented, relay: Relay) -> None:
    """
    Something in between resets every connection.
    """
    relay.cut(reset=True)


def copied(rented: Rented) -> list[Path]:
    """
    The copies of logs that are kept here.
    """
    return sorted(rented.client.state.glob("ascents/*/*/*.log"))


def grown(rented: Rented, size: int) -> Callable[[], bool]:
    """
    Whether the first copy has so many bytes.
    """
    return lambda: any(path.stat().st_size > size for path in copied(rented))


def start(rented: Rented, relay: Relay) -> Going:
    """
    Bring up a server that talks much, over the relay, and does not fit.
    """
    rented.write_hosts(port=relay.port)
    return rented.client.start(
        "up", "second", "--on", "box", "--no-plan", "--json", "--no-log", "--max-attempts", "1"
    )


@pytest.mark.parametrize("cut", [killed_sessions, closed, reset])
def test_cut_twice_while_the_log_grows(rent: Callable[..., Rented], cut: Cut) -> None:
    """
    After two cuts the copy is the log, byte for byte, and the cause of the failure is known.
    """
    rented = rent(hostile=Hostile(fast_log_mb=CHATTER_MB, fast_log_mb_s=RATE_MB_S))
    with Relay(rented.sshd.port) as relay:
        going = start(rented, relay)
        until(grown(rented, 1_000_000), "the first megabyte")
        cut(rented, relay)
        going.until("the line is back")
        until(grown(rented, 7_000_000), "the seventh megabyte")
        cut(rented, relay)
        done = going.done()

    (attempt,) = done.document["attempts"]
    (copy,) = copied(rented)
    assert (1, "oom-kv-pool") == (done.status, attempt["cause"])
    assert "the line to the box broke" in done.err
    assert hashlib.sha256(Path(attempt["log"]).read_bytes()).hexdigest() == (
        hashlib.sha256(copy.read_bytes()).hexdigest()
    )
    assert copy.stat().st_size > CHATTER_MB * 1e6
    assert none_left(rented.home)


def test_cut_at_every_step(rented: Rented) -> None:
    """
    A line that is cut whenever something was told: the whole climb ends in READY all the same.
    """
    with Relay(rented.sshd.port) as relay:
        rented.write_hosts(port=relay.port)
        going = rented.client.start("up", "second", "--on", "box", "--no-plan", "--json")
        for told in ("attempt 1: second", "launched in", "attempt 1 failed", "attempt 2: second"):
            going.until(told)
            relay.cut(reset=True)
        done = going.done()

    assert 0 == done.status
    assert ["oom-kv-pool", None] == [attempt["cause"] for attempt in done.document["attempts"]]
    assert 1 == [role for _, _, role in rented.home.living()].count("scheduler")
