"""
Qwen3.6-27B in bf16 with EAGLE 3/1/4 on a 96 GB card: worked out by hand, release by release.
"""

from typing import Any

import pytest

from mtpdeploy.core.diagnosis import Cause
from mtpdeploy.core.memory import Fit
from mtpdeploy.core.units import GIB, MIB
from mtpdeploy.engines.sglang.sizing.loads import draft_bytes, model_bytes
from mtpdeploy.engines.sglang.sizing.state import conv_bytes, slots_per_request, ssm_bytes
from tests.engines.sglang.sizing.models import (
    CONFIG_27B,
    CONFIG_NEXT,
    EXTRA_BUFFER,
    MTP,
    PRO_6000_MIB,
    RADIX_OFF,
    asked,
    plan,
    shape,
)

FRACTIONS = (0.80, 0.90, 0.95)
NO = None
"""Does not fit."""

TABLE: list[tuple[str, dict[str, Any], int | None, list[tuple[int, int, float] | None]]] = [
    # release, strategy, max_running_requests; at each fraction: requests, 1000 tokens, GiB left
    ("0.5.12", EXTRA_BUFFER, None, [NO, (4, 55, 33.0), (7, 95, 26.0)]),
    ("0.5.9", EXTRA_BUFFER, 512, [NO, NO, NO]),
    ("0.5.12", EXTRA_BUFFER, 512, [NO, NO, NO]),
    ("0.5.12", EXTRA_BUFFER, 16, [(10, 132, 20.0), (16, 213, 7.1), (16, 252, 2.2)]),
    ("0.5.12", RADIX_OFF, None, [NO, NO, (48, 67, 2.9)]),
    ("0.5.12", RADIX_OFF, 512, [NO, NO, NO]),
    ("0.5.12", RADIX_OFF, 16, [(16, 211, 16.6), (16, 365, 6.6), (16, 443, 1.5)]),
    ("0.5.13", EXTRA_BUFFER, None, [(8, 220, 16.6), (12, 297, 6.8), (14, 335, 2.0)]),
    ("0.5.13", EXTRA_BUFFER, 14, [(8, 220, 16.6), (12, 297, 6.8), (14, 335, 2.0)]),
    ("0.5.13", EXTRA_BUFFER, 512, [(8, 220, 16.6), (12, 297, 6.8), (14, 335, 2.0)]),
    ("0.5.14", EXTRA_BUFFER, None, [(6, 172, 22.3), (10, 249, 12.6), (12, 286, 7.8)]),
    ("0.5.14", EXTRA_BUFFER, 512, [(6, 172, 22.3), (10, 249, 12.6), (12, 286, 7.8)]),
    ("0.5.17", EXTRA_BUFFER, None, [(6, 166, 23.1), (9, 252, 13.4), (11, 290, 8.5)]),
    ("0.5.23", EXTRA_BUFFER, None, [(6, 166, 23.1), (9, 252, 13.4), (11, 290, 8.5)]),
    ("0.5.23", EXTRA_BUFFER, 512, [(6, 166, 23.1), (9, 252, 13.4), (11, 290, 8.5)]),
    ("0.5.14", RADIX_OFF, None, [NO, NO, NO]),
    ("0.5.23", RADIX_OFF, None, [NO, NO, NO]),
    ("0.5.23", RADIX_OFF, 512, [NO, NO, NO]),
    ("0.5.23", RADIX_OFF, 16, [(16, 107, 23.4), (16, 262, 13.4), (16, 339, 8.4)]),
]


@pytest.mark.parametrize(
    ("version", "strategy", "requests", "fraction", "wanted"),
    [
        (version, strategy, requests, fraction, wanted)
        for version, strategy, requests, row in TABLE
        for fraction, wanted in zip(FRACTIONS, row, strict=True)
    ],
)
def test_requests_tokens_and_what_is_left(
    version: str,
    strategy: dict[str, Any],
    requests: int | None,
    fraction: float,
    wanted: tuple[int, int, float] | None,
) -> None:
    """
    Requests exactly, tokens within 1.5 %, what is left within a third of a GiB.
    """
    limit = {} if requests is None else {"max_running_requests": requests}
    forecast = plan(version, {**MTP, **strategy, **limit, "mem_fraction_static": fraction})

    if wanted is None:
        assert Fit.DOES_NOT_FIT is forecast.fit
        assert Cause.OOM_KV_POOL is forecast.cause
        return
    assert forecast.error is None
    assert wanted[0] == forecast.max_running_requests
    assert pytest.approx(wanted[1] * 1000, rel=0.015) == forecast.kv_tokens
    assert pytest.approx(wanted[2], abs=0.35) == forecast.left / GIB


@pytest.mark.parametrize(("fraction", "most"), [(0.80, 25), (0.90, 38), (0.95, 44)])
def test_largest_number_of_requests_without_the_radix_cache(fraction: float, most: int) -> None:
    """
    In 0.5.23, one request more than the most that start is refused.
    """
    flags = {**MTP, **RADIX_OFF, "mem_fraction_static": fraction}

    assert plan("0.5.23", {**flags, "max_running_requests": most}).error is None
    assert plan("0.5.23", {**flags, "max_running_requests": most + 1}).error is not None


@pytest.mark.parametrize(("fraction", "ask", "most"), [(0.80, 13, 11), (0.90, 16, 16), (0.95, 19, 18)])
def test_asking_for_more_gives_less(fraction: float, ask: int, most: int) -> None:
    """
    To 0.5.12 draft states of every request asked for come off first: the best number is not the largest.
    """

    def effective(requests: int) -> int:
        flags = {**MTP, **EXTRA_BUFFER, "mem_fraction_static": fraction, "max_running_requests": requests}
        return plan("0.5.12", flags).max_running_requests

    assert most == effective(ask)
    assert max(map(effective, range(1, 65))) == most
    assert effective(48) < most


@pytest.mark.parametrize(
    ("changed", "requests", "thousand"),
    [
        ({"mamba_ssm_dtype": "bfloat16"}, 19, 247),
        ({"mamba_ssm_dtype": "bfloat16", "kv_cache_dtype": "fp8_e4m3"}, 19, 494),
        ({"enable_linear_replayssm_spec": True}, 17, 244),
        ({"mamba_radix_cache_strategy": "extra_buffer_lazy"}, 11, 243),
        ({"speculative_num_steps": 1, "speculative_num_draft_tokens": 2}, 12, 247),
        ({"mamba_full_memory_ratio": 2.0}, 13, 165),
        (dict.fromkeys(MTP), 22, 291),
    ],
    ids=["bf16 state", "and fp8 keys", "replay", "lazy", "one step", "ratio 2", "no draft"],
)
def test_what_each_lever_gives(changed: dict[str, Any], requests: int, thousand: int) -> None:
    """
    On 0.5.23 at 0.90 with 32 requests asked for.
    """
    flags = {**MTP, **EXTRA_BUFFER, "mem_fraction_static": 0.9, "max_running_requests": 32, **changed}
    forecast = plan("0.5.23", {name: value for name, value in flags.items() if value is not None})

    assert requests == forecast.max_running_requests
    assert pytest.approx(thousand * 1000, rel=0.01) == forecast.kv_tokens


@pytest.mark.parametrize(
    ("config", "version", "fraction"),
    [
        (CONFIG_27B, "0.5.9", 0.7787),
        (CONFIG_27B, "0.5.10", 0.7592),
        (CONFIG_27B, "0.5.13", 0.7592),
        (CONFIG_27B, "0.5.14", 0.7981),
        (CONFIG_27B, "0.5.15", 0.7981),
        (CONFIG_27B, "0.5.16", 0.7934),
        (CONFIG_27B, "0.5.23", 0.7934),
        (CONFIG_NEXT, "0.5.9", 0.842),
        (CONFIG_NEXT, "0.5.12", 0.821),
        (CONFIG_NEXT, "0.5.14", 0.863),
        (CONFIG_NEXT, "0.5.15", 0.858),
        (CONFIG_NEXT, "0.5.23", 0.858),
    ],
)
def test_default_fraction(config: dict[str, Any], version: str, fraction: float) -> None:
    """
    What SGLang logs where no fraction is given; of a model with a vision tower it is not rounded.
    """
    assert fraction == round(asked(version, MTP, config=config).mem_fraction_static, 4)


@pytest.mark.parametrize(
    ("version", "flags", "slots"),
    [
        ("0.5.9", {"disable_radix_cache": True}, 1),
        ("0.5.23", {"disable_radix_cache": True}, 1),
        ("0.5.6", {}, 3),
        ("0.5.12", {"mamba_radix_cache_strategy": "no_buffer"}, 3),
        ("0.5.23", {"mamba_radix_cache_strategy": "no_buffer", "disable_overlap_schedule": True}, 3),
        ("0.5.7", {"mamba_radix_cache_strategy": "no_buffer"}, 5),
        ("0.5.7", {**EXTRA_BUFFER, **MTP}, 4),
        ("0.5.7", EXTRA_BUFFER, 5),
        ("0.5.9", {**EXTRA_BUFFER, **MTP}, 4),
        ("0.5.9", EXTRA_BUFFER, 5),
        ("0.5.10", {**EXTRA_BUFFER, **MTP}, 4),
        ("0.5.12", {**EXTRA_BUFFER, **MTP}, 5),
        ("0.5.23", {**EXTRA_BUFFER, **MTP}, 5),
        ("0.5.23", {**EXTRA_BUFFER, **MTP, "disable_overlap_schedule": True}, 4),
        ("0.5.13", {"mamba_radix_cache_strategy": "extra_buffer_lazy"}, 4),
        ("0.5.17", {"mamba_radix_cache_strategy": "extra_buffer_lazy", **MTP}, 4),
    ],
)
def test_slots_of_a_request(version: str, flags: dict[str, Any], slots: int) -> None:
    """
    A request's own state, two copies for the radix cache, and its tracking slots.
    """
    assert slots == slots_per_request(asked(version, flags))


@pytest.mark.parametrize(("version", "extra", "none"), [("0.5.16", 5, 3), ("0.5.17", 4, 3)])
def test_a_switch_saves_a_slot_from_0_5_17_on(version: str, extra: int, none: int) -> None:
    """
    SGLANG_OPT_MAMBA_SKIP_DECODE_LOCK frees a slot of extra_buffer, none of no_buffer.
    """
    env = {"SGLANG_OPT_MAMBA_SKIP_DECODE_LOCK": "1"}
    off = {"mamba_radix_cache_strategy": "no_buffer", "disable_overlap_schedule": True}

    assert extra == slots_per_request(asked(version, {**EXTRA_BUFFER, **MTP}, env=env))
    assert none == slots_per_request(asked(version, off, env=env))


def test_the_state_of_one_slot() -> None:
    """
    146.8125 MiB of the 27B in float32 (a real log prints 146.81), 74.8125 in bfloat16.
    """
    single, half = asked("0.5.23", MTP), asked("0.5.23", {**MTP, "mamba_ssm_dtype": "bfloat16"})

    assert 2.8125 == conv_bytes(single) / MIB
    assert 146.8125 == (conv_bytes(single) + ssm_bytes(single)) / MIB
    assert 74.8125 == (conv_bytes(half) + ssm_bytes(half)) / MIB


def test_weights_worked_out_from_the_shape() -> None:
    """
    SGLang prints 51.05 GiB for the target and 5.53 for the draft, of which it gives back what it shares.
    """
    model = shape(CONFIG_27B)
    forecast = plan("0.5.23", {**MTP, **EXTRA_BUFFER}, draft_gib=None)

    assert pytest.approx(51.05, rel=0.01) == model_bytes(model) / GIB
    assert pytest.approx(5.53, abs=0.01) == draft_bytes(model) / GIB
    assert pytest.approx(5.53, abs=0.01) == forecast.figures["draft_gib"]
    assert pytest.approx(0.8, abs=0.1) == forecast.figures["draft_kept_gib"]


def test_512_requests_as_the_reason_says_it() -> None:
    """
    The seed of all this: what 512 requests need stands in the sentence.
    """
    flags = {**MTP, **EXTRA_BUFFER, "max_running_requests": 512, "mem_fraction_static": 0.90}
    forecast = plan("0.5.12", flags)

    assert "512 requests need 293.62 GiB of draft states; 33.78 GiB are left after the weights" == (
        forecast.reason
    )
    assert PRO_6000_MIB * MIB == sum(line.amount for line in forecast.lines)
