"""Demo boxes for tests: laid out fast, always cleaned, and checked to leave no process behind."""

import json
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mtpdeploy.demo.home import DemoHome, make_home

FAST = 3000.0  # simulated seconds in a real one: what is left of a start is nearly all Python's own
PATIENCE_S = 30.0
MakeHome = Callable[..., DemoHome]


class Started:
    """A simulated server started in a home, with its log."""

    def __init__(self, home: DemoHome, port: int, *flags: str) -> None:
        self.home, self.port, self.path = home, port, home.path / f"log-{time.monotonic_ns()}"
        model = () if "--model-path" in flags else ("--model-path", str(home.model()))
        self.process: subprocess.Popen[bytes] = home.start_server(
            *model, "--port", str(port), *flags, log=self.path
        )

    @property
    def log(self) -> str:
        """What it has said so far."""
        return self.path.read_text(encoding="utf-8", errors="replace")

    def wait(self) -> int:
        """Its exit status, as a shell would see it."""
        status = self.process.wait(PATIENCE_S)
        return 128 - status if status < 0 else status

    def until(self, text: str) -> str:
        """The log once it contains the text; fails with the log if it never does."""
        end = time.monotonic() + PATIENCE_S
        while text not in self.log:
            if time.monotonic() > end or (self.process.poll() is not None and text not in self.log):
                pytest.fail(f"{text!r} never came (status {self.process.poll()}):\n{self.log[-3000:]}")
            time.sleep(0.01)
        return self.log

    def ready(self) -> "Started":
        """Itself, once it is ready."""
        self.until("ready to roll")
        return self

    def get(self, path: str) -> tuple[int, Any]:
        """Status and JSON of a GET."""
        return self._ask(urllib.request.Request(f"http://127.0.0.1:{self.port}{path}"))

    def post(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        """Status and JSON of a POST."""
        return self._ask(
            urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", json.dumps(body).encode())
        )

    def chat(self, text: str, **fields: Any) -> tuple[int, Any]:
        """Status and JSON of a chat completion."""
        return self.post("/v1/chat/completions", {"messages": [{"role": "user", "content": text}], **fields})

    def _ask(self, request: urllib.request.Request) -> tuple[int, Any]:
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                data, status = answer.read(), answer.status
        except urllib.error.HTTPError as error:
            with error:
                data, status = error.read(), error.code
        return status, json.loads(data) if data.startswith(b"{") else data.decode()


@pytest.fixture
def port() -> int:
    """A port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def make(tmp_path: Path) -> Iterator[MakeHome]:
    """Lays out homes; each is cleaned at the end, and nothing of it may live on."""
    made: list[DemoHome] = []

    def new(**fields: Any) -> DemoHome:
        fields.setdefault("speed", FAST)
        made.append(make_home(tmp_path / f"home-{len(made)}", **fields))
        return made[-1]

    yield new
    for home in made:
        home.clean()

        assert [] == home.living()
        assert not home.path.exists()
