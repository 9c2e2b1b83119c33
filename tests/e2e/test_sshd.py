"""
The whole job over a real OpenSSH server, with the client as a program of its own.
"""

import json
import re
import shlex
import signal
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import json as typed

from mtpdeploy.core.events import AnyEvent, AttemptEnded, Finished, LogLines
from tests.deploy.place import tree
from tests.deploy.test_up import chat
from tests.e2e.client import Client, census, none_left
from tests.e2e.rented import Rented


def test_the_seed_case(rented: Rented) -> None:
    """
    Four attempts, each with its cause, its rung and the line that proves it; a working endpoint; and down.
    """
    client, home = rented.client, rented.home

    up = client.run("up", "seed", "--on", "box", "--no-plan", "--json")
    answer = chat(rented.port)
    while_up = census(home)
    history = client.run("history", "--json")
    local = client.run("logs", "seed", "--on", "box", "--local", "--attempt", "1")
    down = client.run("down", "--on", rented.line)

    document = up.document
    assert (0, 0) == (up.status, down.status)
    assert [
        (1, None, "oom-kv-pool"),
        (2, "fewer-requests", "oom-kv-pool"),
        (3, "fewer-requests", "hicache-unsupported"),
        (4, "no-hierarchical-cache", None),
    ] == [(a["attempt"], a["rung"], a["cause"]) for a in document["attempts"]]
    for attempt in document["attempts"][:-1]:
        line = Path(attempt["log"]).read_bytes().split(b"\n")[attempt["line"] - 1]
        assert attempt["proof"] in line.decode()
    assert (True, True) == (document["ready"], document["mtp_proven"])
    assert document["accept_length"] > 1.5
    assert f"http://127.0.0.1:{rented.port}/v1" == document["endpoint"]["base_url"]
    assert answer
    assert {"server", "scheduler", "detokenizer"} < set(while_up)
    assert [document["ascent"]] == [past["ascent"] for past in history.document]
    assert local.out == Path(document["attempts"][0]["log"]).read_bytes().decode()
    assert none_left(home)


@pytest.mark.parametrize("line", ["AllowTcpForwarding no", "MaxSessions 1", "Subsystem sftp /nonexistent"])
def test_providers_that_take_something_away(rent: Callable[..., Rented], line: str) -> None:
    """
    Without port forwarding, a second session or SFTP the server is proved all the same.
    """
    box = rent(lines=(line,))

    up = box.client.run("up", "fits", "--on", "box", "--json")
    down = box.client.run("down", "--on", "box")

    assert (0, True, 1) == (up.status, up.document["mtp_proven"], len(up.document["attempts"]))
    assert 0 == down.status


def test_a_pasted_line_and_events(rented: Rented) -> None:
    """
    The provider's line in place of a name; every line of `--json-events` is an event, progress is on stderr.
    """
    up = rented.client.run("up", "fits", "--on", rented.line, "--json-events")
    events = [typed.decode(line, type=AnyEvent) for line in up.out.splitlines()]

    assert 0 == up.status
    assert isinstance(events[-1], Finished)
    assert [1] == [event.outcome.attempt for event in events if isinstance(event, AttemptEnded)]
    assert any(isinstance(event, LogLines) for event in events)
    assert "attempt 1 is ready" in up.err


@pytest.mark.parametrize("way", ["a name", "a pasted line"])
def test_the_commands_of_the_hand_over(rented: Rented, way: str) -> None:
    """
    What is printed at the end can be run as it stands: the tunnel leads to the endpoint, the stop stops it.
    """
    on = "box" if way == "a name" else rented.line
    up = rented.client.run("up", "fits", "--on", on)
    printed = {
        name: shlex.split(rest)
        for name, rest in re.findall(r"(?m)^(\w+) +mtpdeploy (.*?)(?:   .*)?$", up.err)
    }

    tunnel = rented.client.start(*printed["tunnel"], "--local-port", "0").until("leads to port")
    base = next(word for word in tunnel.err.split() if word.startswith("http://127.0.0.1:"))
    body = json.dumps({"messages": [{"role": "user", "content": "hello"}], "max_tokens": 8}).encode()
    with urllib.request.urlopen(
        urllib.request.Request(f"{base}/chat/completions", body), timeout=20
    ) as reply:
        answer = json.load(reply)
    closed = tunnel.send(signal.SIGINT).done()
    stopped = rented.client.run(*printed["stop"])

    assert answer["choices"][0]["message"]["content"]
    assert (0, 0) == (closed.status, stopped.status)
    assert none_left(rented.home)


def test_a_dry_run(rented: Rented) -> None:
    """
    Script, ladder and what would be stopped on standard output; not a byte of the box changes.
    """
    before = tree(rented.home.path)

    done = rented.client.run("up", "fits", "--on", "box", "--dry-run")

    assert 0 == done.status
    assert "-m sglang.launch_server" in done.out
    assert "# the ladder `default`, by cause, cheapest concession first:" in done.out
    assert "# would be stopped:\n#   nothing" in done.out
    assert before == tree(rented.home.path)
    assert none_left(rented.home)


def test_detach_and_attach_from_another_machine(rented: Rented) -> None:
    """
    One client launches and leaves; another, with a journal of its own, goes on to READY.
    """
    left = rented.client.run("up", "second", "--on", "box", "--no-plan", "--detach", "--no-log")
    other = Client(rented.folder / "other")
    other.write_hosts((rented.client.folder / "hosts.toml").read_text())

    attached = other.run("attach", "--on", "box", "--json")

    assert (0, 0) == (left.status, attached.status)
    assert "launched, and left to itself" in left.err
    assert ["oom-kv-pool", None] == [a["cause"] for a in attached.document["attempts"]]
