"""
What each release refuses before it sizes anything, in its own words.
"""

from typing import Any

import pytest

from mtpdeploy.core.diagnosis import Cause
from mtpdeploy.core.memory import Card, Fit
from mtpdeploy.core.server import FlagValue
from mtpdeploy.core.units import GIB
from tests.engines.sglang.sizing.models import (
    CONFIG_27B,
    CONFIG_DENSE,
    CONFIG_KIMI,
    CONFIG_NEXT,
    EXTRA_BUFFER,
    MTP,
    PRO_6000,
    plan,
)

LAZY: dict[str, FlagValue] = {"mamba_radix_cache_strategy": "extra_buffer_lazy"}
NO_BUFFER: dict[str, FlagValue] = {"mamba_radix_cache_strategy": "no_buffer"}
NO_RADIX: dict[str, FlagValue] = {"disable_radix_cache": True}
NO_OVERLAP: dict[str, FlagValue] = {"disable_overlap_schedule": True}
REPLAY: dict[str, FlagValue] = {"enable_linear_replayssm_spec": True}
EAGLE: dict[str, FlagValue] = {"speculative_algorithm": "EAGLE"}
BRANCHES: dict[str, FlagValue] = {**MTP, "speculative_eagle_topk": 2}
V2 = {"SGLANG_ENABLE_SPEC_V2": "1"}

REFUSED: list[tuple[str, dict[str, FlagValue], dict[str, str], Cause, str]] = [
    ("0.5.9", {**EAGLE, "speculative_eagle_topk": 1}, {}, Cause.SPEC_INCOMPLETE, "AssertionError"),
    ("0.5.9", {**EAGLE, "speculative_num_steps": 3}, {}, Cause.SPEC_INCOMPLETE, "'>' not supported"),
    (
        "0.5.9",
        {**EAGLE, "speculative_num_steps": 3, "speculative_eagle_topk": 2},
        {},
        Cause.SPEC_INCOMPLETE,
        "AssertionError",
    ),
    ("0.5.9", {**BRANCHES, **EXTRA_BUFFER}, V2, Cause.SPEC_TOPK, "Spec v2 currently only supports topk = 1"),
    (
        "0.5.23",
        {**BRANCHES, "attention_backend": "trtllm_mha"},
        {},
        Cause.SPEC_TOPK,
        "trtllm_mha backend only supports topk = 1",
    ),
    ("0.5.9", {"context_length": 999_999}, {}, Cause.CONTEXT_TOO_LONG, "Warning: User-specified context_len"),
    (
        "0.5.23",
        {"enable_hierarchical_cache": True, **NO_RADIX},
        {},
        Cause.HICACHE_NEEDS_RADIX,
        "The arguments enable-hierarchical-cache and disable-radix-cache are mutually exclusive",
    ),
    ("0.5.9", {**MTP, "enable_hierarchical_cache": True}, {}, Cause.HICACHE_NEEDS_RADIX, "The arguments"),
    ("0.5.10", MTP, {}, Cause.STRATEGY_NEEDS_EXTRA_BUFFER, "Speculative decoding for Qwen3_5ForCondit"),
    ("0.5.13", MTP, {}, Cause.STRATEGY_NEEDS_EXTRA_BUFFER, "Speculative decoding for Qwen3_5ForCondit"),
    ("0.5.12", {**MTP, **EXTRA_BUFFER, **NO_RADIX}, {}, Cause.STRATEGY_NEEDS_RADIX, "mamba extra_buffer is"),
    ("0.5.14", {**MTP, **NO_BUFFER}, {}, Cause.STRATEGY_NEEDS_NO_OVERLAP, "no_buffer do not support overlap"),
    (
        "0.5.14",
        {**NO_BUFFER, **NO_OVERLAP, "page_size": 64},
        {},
        Cause.BAD_ARGUMENT,
        "no_buffer only supports page_size=1.",
    ),
    ("0.5.13", {**MTP, **LAZY}, {}, Cause.LAZY_WITHOUT_MTP, "extra_buffer_lazy is not yet supported"),
    ("0.5.16", {**MTP, **LAZY}, {}, Cause.LAZY_WITHOUT_MTP, "extra_buffer_lazy unsupported with spec."),
    (
        "0.5.17",
        {**LAZY, "speculative_algorithm": "DFLASH", "speculative_num_draft_tokens": 8},
        {},
        Cause.LAZY_WITHOUT_MTP,
        "extra_buffer_lazy unsupported",
    ),
    ("0.5.23", {**LAZY, **NO_OVERLAP}, {}, Cause.BAD_ARGUMENT, "Lazy extra buffer requires overlap schedule"),
    (
        "0.5.12",
        {**MTP, **EXTRA_BUFFER, "mamba_track_interval": 2},
        {},
        Cause.TRACK_INTERVAL,
        "mamba_track_interval 2 must be greater than or equal to speculative_num_draft_tokens 4",
    ),
    (
        "0.5.12",
        {**EXTRA_BUFFER, "page_size": 96},
        {},
        Cause.TRACK_INTERVAL,
        "mamba_track_interval 256 must be divisible by page_size 96",
    ),
    ("0.5.23", {"page_size": 96}, {}, Cause.TRACK_INTERVAL, "AssertionError"),
    (
        "0.5.23",
        {**EXTRA_BUFFER, "linear_attn_backend": "flashinfer"},
        {},
        Cause.BAD_ARGUMENT,
        "extra_buffer is not supported for Qwen3_5ForConditionalGeneration; use no_buffer.",
    ),
    ("0.5.17", {**BRANCHES, **REPLAY}, {}, Cause.BAD_ARGUMENT, "--enable-linear-replayssm-spec requires a"),
    (
        "0.5.17",
        {**MTP, **REPLAY, "enable_linear_replayssm": True},
        {},
        Cause.BAD_ARGUMENT,
        "--enable-linear-replayssm-spec and --enable-linear-replayssm are mutually exclusive",
    ),
    ("0.5.20", REPLAY, {}, Cause.BAD_ARGUMENT, "unsupported operand type(s) for //"),
]


@pytest.mark.parametrize(("version", "flags", "env", "cause", "text"), REFUSED)
def test_refused_arguments(
    version: str, flags: dict[str, FlagValue], env: dict[str, str], cause: Cause, text: str
) -> None:
    """
    The cause, and the beginning of what the release says.
    """
    forecast = plan(version, {"mem_fraction_static": 0.95, **flags}, env=env)

    assert (Fit.DOES_NOT_FIT, cause) == (forecast.fit, forecast.cause)
    assert (forecast.error or "").startswith(text)
    assert f"SGLang {version} refuses it: {cause}" == forecast.reason


@pytest.mark.parametrize(
    ("version", "config", "flags", "env"),
    [
        ("0.5.9", CONFIG_27B, {**EAGLE, "speculative_num_steps": 3, "speculative_eagle_topk": 1}, {}),
        ("0.5.9", CONFIG_27B, BRANCHES, {}),
        ("0.5.11", CONFIG_27B, {**BRANCHES, **EXTRA_BUFFER}, V2),
        ("0.5.7", CONFIG_NEXT, {**EAGLE, "max_running_requests": 4}, V2),
        ("0.5.9", CONFIG_27B, {"context_length": 262_144}, {}),
        (
            "0.5.9",
            CONFIG_27B,
            {"context_length": 999_999},
            {"SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN": "1"},
        ),
        ("0.5.9", CONFIG_27B, MTP, {}),
        ("0.5.8", CONFIG_NEXT, {"enable_hierarchical_cache": False, **MTP}, {}),
        ("0.5.14", CONFIG_27B, {**MTP, **NO_BUFFER, **NO_OVERLAP}, {}),
        ("0.5.14", CONFIG_27B, {**MTP, **EXTRA_BUFFER, **NO_RADIX, "max_running_requests": 4}, {}),
        ("0.5.16", CONFIG_27B, {**EAGLE, **LAZY}, {}),
        ("0.5.17", CONFIG_27B, {**MTP, **LAZY}, {}),
        ("0.5.18", CONFIG_27B, {**LAZY, "speculative_algorithm": "DFLASH"}, {}),
        ("0.5.12", CONFIG_27B, {**EAGLE, **EXTRA_BUFFER, "mamba_track_interval": 2}, {}),
        ("0.5.20", CONFIG_27B, {**REPLAY, "max_running_requests": 8}, {}),
        ("0.5.23", CONFIG_DENSE, {**LAZY, **NO_OVERLAP}, {}),
    ],
)
def test_what_a_release_takes(
    version: str, config: dict[str, Any], flags: dict[str, FlagValue], env: dict[str, str]
) -> None:
    """
    The same flags where the release has nothing against them.
    """
    forecast = plan(version, {"mem_fraction_static": 0.95, **flags}, config=config, env=env)

    assert forecast.error is None


@pytest.mark.parametrize(
    ("version", "capability", "flags", "refused"),
    [
        ("0.5.9", "12.0", {}, True),
        ("0.5.9", "10.0", {}, False),
        ("0.5.9", "9.0", {}, False),
        ("0.5.9", "", {}, False),
        ("0.5.9", "12.0", {"attention_backend": "triton"}, False),
        ("0.5.9", "12.0", {"attention_backend": "triton", "decode_attention_backend": "flashinfer"}, True),
        ("0.5.10", "12.0", {}, False),
        ("0.5.15", "12.0", {"attention_backend": "fa4"}, False),
        ("0.5.16", "12.0", {"attention_backend": "fa4"}, True),
        ("0.5.23", "10.0", {"attention_backend": "torch_native"}, True),
    ],
)
def test_attention_backends_of_blackwell(
    version: str, capability: str, flags: dict[str, FlagValue], refused: bool
) -> None:
    """
    Gated DeltaNet takes few of them there; SGLang's own choice is Triton on capability 10, FlashInfer on 12.
    """
    card = Card(PRO_6000.total_mib, PRO_6000.free, capability)
    forecast = plan(version, {**flags, "mem_fraction_static": 0.9}, card=card)

    assert refused is (forecast.cause is Cause.ATTENTION_BACKEND)
    assert refused is (forecast.error is not None)


def test_a_model_without_tracking_slots() -> None:
    """
    Kimi-Linear has them from 0.5.16 on only.
    """
    early, late = (
        plan(version, EXTRA_BUFFER, config=CONFIG_KIMI, weights_gib=8.0) for version in ("0.5.15", "0.5.16")
    )

    assert Cause.BAD_ARGUMENT is early.cause
    assert late.error is None


@pytest.mark.parametrize(
    ("version", "flags", "cause", "text"),
    [
        (
            "0.5.9",
            {**EXTRA_BUFFER, "mem_fraction_static": 0.8},
            Cause.OOM_KV_POOL,
            (
                "Not enough memory. Please try to increase --mem-fraction-static. Current value: "
                "self.server_args.mem_fraction_static=0.8"
            ),
        ),
        (
            "0.5.12",
            {**EXTRA_BUFFER, "mem_fraction_static": 0.8},
            Cause.OOM_KV_POOL,
            (
                "Not enough memory. Please try to increase --mem-fraction-static. Current value: "
                "mem_fraction_static=0.8"
            ),
        ),
        (
            "0.5.12",
            {
                **EXTRA_BUFFER,
                "mem_fraction_static": 0.95,
                "max_running_requests": 4,
                "max_mamba_cache_size": 4,
            },
            Cause.OOM_STATE_POOL,
            "capture_bs=[0]",
        ),
        (
            "0.5.12",
            {
                **EXTRA_BUFFER,
                "mem_fraction_static": 0.95,
                "max_running_requests": 4,
                "max_mamba_cache_size": 4,
                "disable_cuda_graph": True,
            },
            Cause.OOM_STATE_POOL,
            "max_running_request is zero",
        ),
        (
            "0.5.13",
            {**EXTRA_BUFFER, "mem_fraction_static": 0.5},
            Cause.OOM_STATE_POOL,
            (
                "Not enough GPU memory for hybrid (mamba/linear-attention) state cache. Computed "
                "max_mamba_cache_size=-8 (total_rest_memory=-2.80 GB, mamba_cache_per_req=146.81 MB). Try: "
            ),
        ),
        (
            "0.5.17",
            {**EXTRA_BUFFER, "mem_fraction_static": 0.9, "max_mamba_cache_size": 4},
            Cause.OOM_STATE_POOL,
            (
                "Hybrid (mamba/linear-attention) state cache is too small to serve any requests. "
                "max_mamba_cache_size=4, mamba_ratio=5, resulting max_num_reqs=0. Try: (1) reduce"
            ),
        ),
        (
            "0.5.14",
            {"disable_radix_cache": True, "mem_fraction_static": 0.9},
            Cause.OOM_KV_POOL,
            (
                "Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.9. Raise "
                "--mem-fraction-static above 0.601 (minimum viable = 1 - available/pre = 0.6005). If using"
            ),
        ),
    ],
)
def test_pools_that_do_not_fit(version: str, flags: dict[str, FlagValue], cause: Cause, text: str) -> None:
    """
    The 27B with EAGLE on a 96 GB card: the first of the release's checks that fails, with its figures.
    """
    forecast = plan(version, {**MTP, **flags})

    assert (Fit.DOES_NOT_FIT, cause) == (forecast.fit, forecast.cause)
    assert text == (forecast.error or "")[: len(text)]
    assert forecast.pool_margin < 0


def test_the_floor_that_sglang_names_is_of_the_weights_alone() -> None:
    """
    The verdict's figures carry it, as a log's would.
    """
    flags = {**MTP, "disable_radix_cache": True, "mem_fraction_static": 0.9}
    found = plan("0.5.23", flags).verdict_figures

    assert {"mem_fraction_static": 0.9, "floor": 0.601} == {
        name: found[name] for name in ("mem_fraction_static", "floor")
    }
    assert 56.58 * GIB < found["floor"] * 94.32 * GIB
