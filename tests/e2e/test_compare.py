"""
`verify --compare-without-mtp` over a real OpenSSH server.
"""

import signal

from tests.e2e.client import census, none_left
from tests.e2e.rented import Rented
from tests.e2e.test_signals import SOON


def test_both_side_by_side(rented: Rented) -> None:
    """
    One document with both reports; the server runs as before, and `up` finds it so.
    """
    up = rented.client.run("up", "fits", "--on", "box", "--json")
    done = rented.client.run("verify", "--on", "box", "--compare-without-mtp", "--json")
    again = rented.client.run("up", "fits", "--on", "box", "--json")
    down = rented.client.run("down", "--on", "box")

    document = done.document
    assert (0, 0, 0) == (up.status, done.status, down.status)
    assert (None, True) == (document["without"]["mtp_proven"], document["with"]["mtp_proven"])
    assert [1, 4] == [pair["at_once"] for pair in document["compared"]]
    assert "1 of 2: restarting without speculation" in done.err
    assert again.document["already_running"]
    assert none_left(rented.home)


def test_ctrl_c_says_what_runs(rented: Rented) -> None:
    """
    130 and no traceback: the server without speculation goes on, and `up` restarts it as it was asked for.
    """
    rented.client.run("up", "fits", "--on", "box")
    rented.home.change(speed=100.0)
    going = rented.client.start("verify", "--on", "box", "--compare-without-mtp").until("loading weights")

    done = going.send(signal.SIGINT).done(SOON)
    after = census(rented.home)
    rented.home.change(speed=2000.0)
    again = rented.client.run("up", "fits", "--on", "box", "--json")

    assert 130 == done.status
    assert "runs, without speculation" in done.err
    assert "mtpdeploy up --on box" in done.err
    assert "Traceback" not in done.err
    assert after
    assert (0, False) == (again.status, again.document["already_running"])
