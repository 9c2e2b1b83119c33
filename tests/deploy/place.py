"""
A demo home with a box on it that needs no SSH: everything an ascent works with.
"""

import hashlib
import threading
from pathlib import Path
from typing import Any

from msgspec import structs

from mtpdeploy.clock import SystemClock
from mtpdeploy.core import events
from mtpdeploy.core.diagnosis import Cause
from mtpdeploy.core.events import AnyEvent
from mtpdeploy.core.machine import Facts, Host
from mtpdeploy.core.outcome import Ascent
from mtpdeploy.core.server import ServerSpec
from mtpdeploy.demo.home import Hostile, make_home
from mtpdeploy.deploy.attach import attach
from mtpdeploy.deploy.ground import look
from mtpdeploy.deploy.order import Options, Order, Tools
from mtpdeploy.deploy.up import bring_up
from mtpdeploy.engines.sglang import SGLANG
from mtpdeploy.engines.sglang.rungs import LADDERS
from tests.fakes.box import LocalBox

FAST = 5000.0
"""Simulated seconds in a real one: what is left of a start is Python's own."""

HEAD = 1 << 20
"""Bytes of a file that are compared."""

SEED: dict[str, Any] = {
    "mem_fraction_static": 0.80,
    "attention_backend": "triton",
    "speculative_algorithm": "EAGLE",
    "speculative_num_steps": 3,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 4,
    "mamba_radix_cache_strategy": "extra_buffer",
    "max_running_requests": 512,
    "enable_hierarchical_cache": True,
    "hicache_size": 200,
}
"""The flags of the case that mtpdeploy was made for."""

FITTING: dict[str, Any] = {
    name: value for name, value in SEED.items() if name not in ("enable_hierarchical_cache", "hicache_size")
} | {"max_running_requests": 16}
"""The same as far as it fits a 96 GB card: ready at the first attempt."""


class HurriedClock(SystemClock):
    """
    The machine's clock, but for waiting with nobody to wake it: that takes no time and is written down.
    """

    def __init__(self) -> None:
        self.slept: list[float] = []

    def sleep(self, seconds: float, wake: threading.Event | None = None) -> None:
        """
        Wait only where something may wake it.
        """
        if wake is not None:
            super().sleep(seconds, wake)
        self.slept.append(seconds)


class Place:
    """
    One demo home, one box on it, one state directory; `told` is what was emitted.
    """

    def __init__(
        self, folder: Path, *, hostile: Hostile | None = None, speed: float = FAST, **options: Any
    ) -> None:
        self.home = make_home(folder / "home", hostile=hostile, speed=speed, **options)
        self.state = folder / "state"
        self.told: list[AnyEvent] = []
        self.boxes: list[LocalBox] = []
        self.clock = HurriedClock()
        self.never = threading.Event()

    @property
    def host(self) -> Host:
        """
        The box as hosts.toml would have it.
        """
        return Host(name="local", address="127.0.0.1", python=str(self.home.bin / "python"))

    def box(self) -> LocalBox:
        """
        A line of its own to the box.
        """
        environment = self.home.environment
        box = LocalBox(self.home.path, path=environment["PATH"], env=environment)
        box.host = self.host
        self.boxes.append(box)
        return box

    def tools(self, **changes: Any) -> Tools:
        """
        What an ascent works with.
        """
        given: dict[str, Any] = {
            "box": self.box(),
            "engine": SGLANG,
            "clock": self.clock,
            "emit": self.told.append,
            "state": self.state,
            "ladder": LADDERS.__getitem__,
        }
        return Tools(**{**given, **changes})

    def server(self, port: int, flags: dict[str, Any] | None = None, **changes: Any) -> ServerSpec:
        """
        A server on the home's own model.
        """
        given = {"model_path": str(self.home.model()), "port": port, **(FITTING if flags is None else flags)}
        server = ServerSpec(name="qwen", flags=given, env={"SGLANG_ENABLE_SPEC_V2": "1"})
        return structs.replace(server, **changes)

    def order(self, server: ServerSpec, **options: Any) -> Order:
        """
        That server on this box, with the default ladder.
        """
        return Order(server, self.host, LADDERS["default"], Options(**options))

    def up(self, server: ServerSpec, tools: Tools | None = None, **options: Any) -> Ascent:
        """
        Bring it up.
        """
        return bring_up(self.order(server, **options), tools or self.tools())

    def attach(self, tools: Tools | None = None, **options: Any) -> Ascent:
        """
        Go on with what runs.
        """
        return attach(self.host, tools or self.tools(), **options)

    def facts(self) -> Facts:
        """
        A fresh look at the box.
        """
        return look(self.tools(emit=lambda _event: None), None)

    def run_folder(self) -> Path:
        """
        The directory of the newest run on the box.
        """
        return max((self.home.path / ".mtpdeploy" / "runs").iterdir())

    def of(self, kind: type) -> list[Any]:
        """
        The events of one kind.
        """
        return [event for event in self.told if isinstance(event, kind)]

    def rungs(self) -> list[str | None]:
        """
        The rungs that were taken, in order.
        """
        return [event.rung for event in self.of(events.NextStep) if event.goes_on]

    def roles(self) -> list[str]:
        """
        What lives of this home.
        """
        return [role for _, _, role in self.home.living()]

    def clean(self) -> None:
        """
        End everything.
        """
        for box in self.boxes:
            box.close()
        self.home.clean()

        assert [] == self.home.living()


def causes(ascent: Ascent) -> list[Cause | None]:
    """
    Why each attempt ended.
    """
    return [outcome.verdict.cause if outcome.verdict else None for outcome in ascent.outcomes]


def tree(folder: Path) -> dict[str, str]:
    """
    Every file with what it holds; of weights, which are sparse files, the beginning.
    """
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            with path.open("rb") as file:
                head = file.read(HEAD)
            found[str(path.relative_to(folder))] = f"{path.stat().st_size} {hashlib.sha256(head).hexdigest()}"
    return found
