"""The simulated server's arithmetic against figures that real servers printed."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mtpdeploy.demo.home import QWEN36_CONFIG
from mtpdeploy.demo.site.sglang.boot import demand_of
from mtpdeploy.demo.site.sglang.geometry import read_geometry
from mtpdeploy.demo.site.sglang.release import release
from mtpdeploy.demo.site.sglang.resolve import resolve
from mtpdeploy.demo.site.sglang.settings import RTX_PRO_6000, Hostile, Settings
from mtpdeploy.demo.site.sglang.sizing import Demand, PoolError, Pools, size_pools
from mtpdeploy.demo.site.sglang.static_fraction import default_fraction, prefill_buckets

CASES = [
    json.loads(line)
    for line in (Path(__file__).parent / "data" / "plan_cases.jsonl").read_text(encoding="utf-8").splitlines()
]
BASE = Demand(
    version="0.5.9",
    geometry=read_geometry(QWEN36_CONFIG),
    free_gib=94.32,
    weights_gib=51.05,
    mem_fraction_static=0.9,
    draft_gib=5.53,
    draft_tokens=4,
    steps=3,
    max_running_requests=48,
    strategy="extra_buffer",
)


def forecast(case: dict[str, Any], directory: Path) -> dict[str, Any]:
    """What the simulated server would print for a case, under the names of its `expect`."""
    (directory / "config.json").write_text(json.dumps({"model_type": "qwen3_5", **case["geometry"]}))
    inputs = case["inputs"]
    gpu = replace(RTX_PRO_6000, total_mib=inputs["gpu_mib"])
    flags = dict(inputs["flags"], model_path=str(directory))
    if "cuda_graph_max_bs" in flags:
        flags["cuda_graph_max_bs_decode"] = flags.pop("cuda_graph_max_bs")
    if "mamba_scheduler_strategy" in flags:
        flags["mamba_radix_cache_strategy"] = flags.pop("mamba_scheduler_strategy")
    settings = Settings(case["sglang_version"], gpu, Hostile(), 1.0)
    state = resolve(flags, settings)
    demand = demand_of(
        state, settings.version, inputs["free_gib"], inputs["weights_gib"], inputs.get("draft_gib") or 0.0
    )
    try:
        pools = size_pools(demand)
    except PoolError:
        return {"verdict": "does not fit"}
    return {
        "verdict": "fits",
        "conv_state_gib": pools.conv_gib,
        "ssm_state_gib": pools.ssm_gib,
        "intermediate_ssm_gib": pools.intermediate_ssm_gib,
        "intermediate_conv_gib": pools.intermediate_conv_gib,
        "kv_k_gib": pools.k_gib,
        "kv_v_gib": pools.v_gib,
        "kv_tokens": pools.tokens,
        "max_running_requests": pools.requests,
        "max_mamba_cache_size": pools.slots,
    }


def within(seen: float, predicted: float, tolerance: float | str) -> bool:
    """Whether a figure is near enough: the same last printed digit, or a share of what was seen."""
    if tolerance == "last digit":
        digits = max(2, len(repr(seen).partition(".")[2]))
        return abs(predicted - seen) <= 0.5 * float(f"1e-{digits}") + 1e-6
    return abs(predicted - seen) <= float(tolerance) * abs(seen) + 1e-9


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_pools_are_what_real_servers_printed(case: dict[str, Any], tmp_path: Path) -> None:
    """Every figure of every public case comes out within the tolerance its log allows."""
    predicted = forecast(case, tmp_path)
    wrong = {}
    for figure, seen in case["expect"].items():
        if figure == "verdict":
            if seen != predicted["verdict"]:
                wrong[figure] = (seen, predicted["verdict"])
            continue
        value = sum(predicted.get(part, -1.0) for part in figure.split("+"))
        if not within(seen, value, case["tolerance"][figure]):
            wrong[figure] = (seen, value)

    assert {} == wrong


def pools(version: str, fraction: float, **fields: Any) -> Pools | str:
    """The pools of the worked case, or the beginning of the refusal."""
    demand = replace(BASE, version=version, mem_fraction_static=fraction, **fields)
    try:
        return size_pools(demand)
    except PoolError as error:
        return str(error)[:17]


OFF = {"radix": False, "strategy": "no_buffer"}
# Qwen3.6-27B with EAGLE 3/1/4, 94.32 GiB free: (version, changed fields, fraction, requests, 1000 tokens).
WORKED = [
    ("0.5.12", {}, 0.90, 4, 55),
    ("0.5.12", {}, 0.95, 7, 95),
    ("0.5.12", {"max_running_requests": 16}, 0.80, 10, 132),
    ("0.5.12", {"max_running_requests": 16}, 0.90, 16, 213),
    ("0.5.12", {"max_running_requests": 16}, 0.95, 16, 252),
    ("0.5.12", OFF, 0.95, 48, 67),
    ("0.5.12", {**OFF, "max_running_requests": 16}, 0.90, 16, 365),
    ("0.5.13", {}, 0.80, 8, 220),
    ("0.5.13", {"max_running_requests": 512}, 0.90, 12, 297),
    ("0.5.13", {}, 0.95, 14, 335),
    ("0.5.14", {}, 0.80, 6, 172),
    ("0.5.14", {}, 0.90, 10, 249),
    ("0.5.14", {}, 0.95, 12, 286),
    ("0.5.23", {"max_running_requests": 512}, 0.80, 6, 166),
    ("0.5.23", {}, 0.90, 9, 252),
    ("0.5.23", {}, 0.95, 11, 290),
    ("0.5.23", {**OFF, "max_running_requests": 16}, 0.80, 16, 107),
    ("0.5.23", {**OFF, "max_running_requests": 16}, 0.90, 16, 262),
    ("0.5.23", {"max_running_requests": 32, "state_itemsize": 2, "kv_itemsize": 1.0}, 0.90, 19, 494),
    ("0.5.23", {"max_running_requests": 32, "mamba_full_memory_ratio": 2.0}, 0.90, 13, 165),
]


@pytest.mark.parametrize(("version", "fields", "fraction", "requests", "thousand"), WORKED)
def test_worked_case(
    version: str, fields: dict[str, Any], fraction: float, requests: int, thousand: int
) -> None:
    """The worked table of the facts: effective requests exactly, tokens within 1.5 per cent."""
    made = pools(version, fraction, **fields)

    assert isinstance(made, Pools)
    assert requests == made.requests
    assert made.tokens / 1000 == pytest.approx(thousand, rel=0.015)


@pytest.mark.parametrize(
    ("version", "fields", "fraction", "text"),
    [
        ("0.5.9", {}, 0.80, "Not enough memory"),
        ("0.5.12", {"max_running_requests": 512}, 0.95, "Not enough memory"),
        ("0.5.12", OFF, 0.90, "Not enough memory"),
        ("0.5.14", OFF, 0.95, "Loaded weights le"),
        ("0.5.23", {**OFF, "max_running_requests": 512}, 0.95, "Loaded weights le"),
        ("0.5.23", {}, 0.60, "Not enough GPU me"),
        ("0.5.17", {"max_mamba_cache_size": 4}, 0.90, "Hybrid (mamba/lin"),
    ],
)
def test_what_does_not_fit_is_refused_in_sglang_s_words(
    version: str, fields: dict[str, Any], fraction: float, text: str
) -> None:
    """Each way of not fitting has the text of its release."""
    assert text == pools(version, fraction, **fields)


@pytest.mark.parametrize(
    ("fraction", "most"),
    [(0.80, 25), (0.90, 38), (0.95, 44)],
)
def test_largest_request_count_without_radix_cache(fraction: float, most: int) -> None:
    """In 0.5.23 without the radix cache, one request more than the most that fit is refused."""
    assert isinstance(pools("0.5.23", fraction, **OFF, max_running_requests=most), Pools)
    assert isinstance(pools("0.5.23", fraction, **OFF, max_running_requests=most + 1), str)


@pytest.mark.parametrize(
    ("version", "fraction"),
    [("0.5.9", 0.7787), ("0.5.12", 0.7592), ("0.5.14", 0.7981), ("0.5.16", 0.7934), ("0.5.23", 0.7934)],
)
def test_default_fraction_of_a_96_gb_card(version: str, fraction: float) -> None:
    """The default of mem_fraction_static for the 27B with EAGLE, the multimodal factor included."""
    buckets = len(prefill_buckets(8192)) if release(version) >= (0, 5, 16) else 0
    value = default_fraction(
        release(version), 97887, 8192, 256, algorithm="EAGLE", buckets=buckets, geometry=BASE.geometry
    )

    assert fraction == round(value, 4)
