"""
Figures that real servers printed, from public logs, and what the planner says of the same starts.

A line of data/plan_cases.jsonl names its `source`. `mode` is "pinned" where slots, requests and tokens are
given on a card large enough, "budget" where they follow from the loads, "outcome" where only the end is
known. A tolerance is a share, or "last digit": the same as printed.
"""

import json
from pathlib import Path
from typing import Any

from mtpdeploy.cli.budget import document
from mtpdeploy.core.memory import Card, Forecast
from mtpdeploy.core.units import GIB
from mtpdeploy.engines.sglang.flag_table import find
from tests.engines.sglang.sizing.models import plan

CASES: list[dict[str, Any]] = [
    json.loads(line)
    for line in (Path(__file__).parent / "data" / "plan_cases.jsonl").read_text("utf-8").splitlines()
]


def forecast_of(case: dict[str, Any]) -> Forecast:
    """
    The forecast of a case.
    """
    inputs = case["inputs"]
    flags = {}
    for name, value in inputs["flags"].items():
        flag = find(name)
        assert flag is not None
        flags[flag.name] = value
    return plan(
        case["sglang_version"],
        flags,
        config=case["geometry"],
        card=Card(inputs["gpu_mib"], int(inputs["free_gib"] * GIB)),
        weights_gib=inputs["weights_gib"],
        draft_gib=inputs.get("draft_gib"),
    )


def predicted(forecast: Forecast, figure: str) -> Any:
    """
    What a forecast says of a figure; one with a plus is the sum of two.
    """
    told = document(forecast)
    parts = [told[name] for name in figure.split("+")]
    return parts[0] if len(parts) == 1 else sum(parts)


def within(seen: Any, said: Any, tolerance: float | str) -> bool:
    """
    Whether a figure is near enough; a start that is close may have fitted.
    """
    if isinstance(seen, str):
        return bool(said == seen or (seen == "fits" and said == "close"))
    if said is None:
        return False
    if tolerance == "last digit":
        digits = max(2, len(repr(seen).partition(".")[2]))
        return bool(abs(said - seen) <= 0.5 * float(f"1e-{digits}") + 1e-6)
    return bool(abs(said - seen) <= float(tolerance) * abs(seen) + 1e-9)
