"""
The demo box: the whole job on a laptop without a GPU, an account or an sshd.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mtpdeploy.demo.home import DemoHome
from mtpdeploy.demo.place import home as home_of
from tests.deploy.place import FITTING
from tests.deploy.test_up import chat
from tests.e2e.client import Client, Here, none_left
from tests.fakes.sshd import free_port

RunHere = Callable[[Client], Here]


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    """
    A client with a fresh state directory, in which nothing lives on.
    """
    made = Client(tmp_path / "client")
    made.write_hosts("[servers.fits]\nmodel_path = 'Qwen3.6-27B'\n" + "\n".join(map(_line, FITTING.items())))
    yield made
    home = DemoHome(home_of(made.state).resolve(), "python3")
    if home.path.is_dir():
        home.clean()


def _line(item: tuple[str, object]) -> str:
    key, value = item
    return f"{key} = {str(value).lower() if isinstance(value, bool) else repr(value)}"


def test_up_on_demo(client: Client) -> None:
    """
    One command without anything else: what cannot fit is passed over, with its reason, and the first attempt
    is ready.
    """
    up = client.run("up", "--on", "demo", "--port", str(free_port()))
    home = DemoHome(home_of(client.state).resolve(), "python3")
    down = client.run("down", "--on", "demo")

    assert (0, 0) == (up.status, down.status)
    assert "passed over: as asked: 512 requests need " in up.err
    assert ["1"] == re.findall(r"(?m)^attempt (\d+): ", up.err)
    assert re.search(r"(?m)^forecast: \d+ of \d+ figures as printed", up.err)
    assert none_left(home)


def test_up_on_demo_without_a_plan(client: Client) -> None:
    """
    Blindly: several attempts, a table of them, an endpoint that answers; and down.
    """
    port = free_port()

    up = client.run("up", "--on", "demo", "--no-plan", "--port", str(port))
    home = DemoHome(home_of(client.state).resolve(), "python3")
    answer = chat(port)
    while_up = [role for _, _, role in home.living()]
    status = client.run("status", "--on", "demo")
    down = client.run("down", "--on", "demo")

    assert (0, 0, 0) == (up.status, status.status, down.status)
    assert "simulated: this box, its GPU and its server" in up.err
    assert 4 == len(re.findall(r"(?m)^attempt \d+: ", up.err))
    assert [("1", "weights loaded"), ("2", "weights loaded"), ("3", "sized"), ("4", "ready")] == re.findall(
        r"(?m)^(\d) +\S.*?  (weights loaded|sized|ready) ", up.err
    )
    assert f"endpoint  http://127.0.0.1:{port}/v1 on demo" in up.err
    assert "stop      mtpdeploy down --on demo" in up.err
    assert answer
    assert 1 == while_up.count("scheduler")
    assert not [role for role in while_up if "MTPDEPLOY-FOLLOW" in role]
    assert re.search(rf"qwen3.6-27b +ready +{port} ", status.out)
    assert "port free, GPU memory back, no process left" in down.err
    assert none_left(home)


@pytest.mark.parametrize(
    "wire",
    ["speed=3000,noise=Welcome to the jungle", "speed=3000,no_sftp", "speed=60,drop_every=1.2"],
    ids=["a login shell that speaks", "no SFTP", "a line that breaks"],
)
def test_a_line_that_misbehaves(client: Client, here: RunHere, wire: str) -> None:
    """
    Whatever the line does, the server comes up at the first attempt.
    """
    done = here(client).run("up", "fits", "--on", f"demo:{wire}", "--port", str(free_port()), "--json")

    assert 0 == done.status
    assert 1 == len(done.document["attempts"])
    assert done.document["mtp_proven"] is True
