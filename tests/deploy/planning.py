"""
Boxes, attempts and outcomes of which forecasts are made in these tests, without any process.
"""

import json
from typing import Any

from msgspec import structs

from mtpdeploy.core.diagnosis import End, Stage
from mtpdeploy.core.launch import AttemptRecord
from mtpdeploy.core.machine import Facts, ModelFacts
from mtpdeploy.core.outcome import Outcome
from mtpdeploy.core.server import FlagValue, ServerSpec
from tests.core.crowds import facts
from tests.deploy.place import FITTING
from tests.engines.sglang.sizing.models import CONFIG_27B

GIB = 1 << 30
KEPT = 0.79
"""GiB of the 27B's draft without the two tables that it shares."""

MODEL = ModelFacts(
    path="/models/27b",
    is_local=True,
    exists=True,
    config=json.dumps(CONFIG_27B),
    has_mtp=True,
    weight_bytes=int((51.05 + KEPT) * GIB),
    mtp_bytes=int(KEPT * GIB),
)


def box(version: str | None = "0.5.23", model: ModelFacts | None = MODEL, **other: Any) -> Facts:
    """
    A box with one card of 96 GiB that has the 27B.
    """
    found = structs.replace(facts(used=(4,)), sglang_version=version, model=model, ram_free_bytes=256 * 10**9)
    return structs.replace(found, **other)


def asked(**flags: FlagValue | None) -> ServerSpec:
    """
    A server of it with 16 requests, which a card of 96 GiB has room for.
    """
    given: dict[str, FlagValue | None] = {"model_path": "/models/27b", **FITTING, **flags}
    return ServerSpec(name="m", flags={name: value for name, value in given.items() if value is not None})


def record(server: ServerSpec, version: str = "0.5.23") -> AttemptRecord:
    """
    The first attempt of a server.
    """
    return AttemptRecord("a", 1, "run-1", "attempt-1.log", 0.0, server, server, None, version)


def ended(server: ServerSpec, figures: dict[str, float] | None = None, end: End = End.READY) -> Outcome:
    """
    How an attempt of it ended that printed these figures.
    """
    return Outcome(1, "run-1", server, end, Stage.READY, 0.0, 60.0, figures=figures or {})
