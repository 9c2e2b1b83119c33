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
    130 and no traceback: the server without speculation goes on, and `attach` restarts what ran before.
    """
    rented.client.run("up", "fits", "--on", "box")
    rented.home.change(speed=100.0)
    going = rented.client.start("verify", "--on", "box", "--compare-without-mtp").until("loading weights")

    done = going.send(signal.SIGINT).done(SOON)
    after = census(rented.home)
    rented.home.change(speed=2000.0)
    again = rented.client.run("attach", "fits", "--on", "box", "--json")

    assert 130 == done.status
    assert "runs, without speculation" in done.err
    assert "mtpdeploy attach fits --on box" in done.err
    assert "Traceback" not in done.err
    assert after
    assert (0, True) == (again.status, again.document["mtp_proven"])
    assert "-fits-" in again.document["compares"]


def test_what_a_broken_off_comparison_leaves_is_told_everywhere(rented: Rented) -> None:
    """
    A server that was asked to speculate and does not is no success, whoever asks next.
    """
    rented.client.run("up", "fits", "--on", "box")
    going = rented.client.start("verify", "--on", "box", "--compare-without-mtp").until("measuring: ")
    going.send(signal.SIGINT).done(SOON)

    status = rented.client.run("status", "--on", "box")
    verify = rented.client.run("verify", "--on", "box")
    told = rented.client.run("verify", "--on", "box", "--json")
    history = rented.client.run("history")
    attach = rented.client.run("attach", "--on", "box", "--json")

    off = "without speculation, for a comparison with run"
    assert (8, 8, 0) == (verify.status, told.status, attach.status)
    assert all(off in " ".join(one.out.split()) for one in (status, verify, history))
    assert "mtpdeploy attach fits --on box   (restarts it as before)" in verify.out
    assert (8, told.document["compares"]) == (told.document["exit_status"], attach.document["compares"])
    assert attach.document["mtp_proven"]
