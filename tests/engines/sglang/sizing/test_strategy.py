"""
What a release makes of the flags for drafts and recurrent state.
"""

from typing import Any

import pytest

from mtpdeploy.core.server import FlagValue
from tests.engines.sglang.sizing.models import (
    CONFIG_27B,
    CONFIG_DENSE,
    CONFIG_KIMI,
    CONFIG_LATENT,
    CONFIG_NEXT,
    EXTRA_BUFFER,
    MTP,
    asked,
)

EAGLE: dict[str, FlagValue] = {"speculative_algorithm": "EAGLE"}
V2 = {"SGLANG_ENABLE_SPEC_V2": "1"}
V1 = {"SGLANG_ENABLE_SPEC_V2": "0"}


@pytest.mark.parametrize(
    ("version", "config", "draft"),
    [
        ("0.5.6", CONFIG_NEXT, (5, 4, 8)),
        ("0.5.7", CONFIG_NEXT, (5, 4, 8)),
        ("0.5.8", CONFIG_NEXT, (3, 1, 4)),
        ("0.5.23", CONFIG_27B, (3, 1, 4)),
        ("0.5.7", CONFIG_LATENT, (3, 1, 4)),
        ("0.5.23", {**CONFIG_DENSE, "architectures": ["LlamaForCausalLM"]}, (5, 4, 8)),
    ],
)
def test_the_draft_that_sglang_chooses_itself(
    version: str, config: dict[str, Any], draft: tuple[int, int, int]
) -> None:
    """
    Branches for most models to 0.5.7, a chain for all but a few from 0.5.8 on.
    """
    found = asked(version, EAGLE, config=config)

    assert draft == (found.steps, found.topk, found.draft_tokens)


@pytest.mark.parametrize(
    ("flags", "draft"),
    [
        ({"speculative_num_steps": 5, "speculative_eagle_topk": 1}, (5, 1, 6)),
        ({**MTP, "speculative_num_draft_tokens": 9}, (3, 1, 4)),
        ({**MTP, "speculative_eagle_topk": 4, "speculative_num_draft_tokens": 9}, (3, 4, 9)),
    ],
)
def test_a_chain_has_one_token_more_than_steps(
    flags: dict[str, FlagValue], draft: tuple[int, int, int]
) -> None:
    """
    With top-k 1 SGLang sets the draft tokens itself; with branches it takes those that are given.
    """
    found = asked("0.5.23", {**EAGLE, **flags})

    assert draft == (found.steps, found.topk, found.draft_tokens)


@pytest.mark.parametrize(("algorithm", "tokens"), [("NGRAM", 12), ("DFLASH", 16), ("NEXTN", 4)])
def test_draft_tokens_without_steps(algorithm: str, tokens: int) -> None:
    """
    Each algorithm has a number of its own.
    """
    assert tokens == asked("0.5.23", {"speculative_algorithm": algorithm}).draft_tokens


@pytest.mark.parametrize(("version", "draft"), [("0.5.23", True), ("0.5.9", False)])
def test_48_requests_with_a_draft(version: str, draft: bool) -> None:
    """
    With a draft and no number SGLang takes 48 requests, without one it estimates them.
    """
    assert (48 if draft else None) == asked(version, MTP if draft else {}).max_running_requests


@pytest.mark.parametrize(
    ("version", "flags", "env", "overlap"),
    [
        ("0.5.9", MTP, {}, False),
        ("0.5.9", MTP, V2, True),
        ("0.5.10", MTP, {}, False),
        ("0.5.10", {**MTP, "disable_overlap_schedule": True}, V2, True),
        ("0.5.11", MTP, {}, True),
        ("0.5.12", MTP, V1, False),
        ("0.5.12", {**MTP, "disable_overlap_schedule": True}, {}, False),
        ("0.5.12", {**MTP, "speculative_eagle_topk": 2}, {}, False),
        ("0.5.13", {**MTP, "speculative_eagle_topk": 2}, {}, True),
        ("0.5.13", MTP, V1, False),
        ("0.5.14", MTP, V1, True),
        ("0.5.23", {**MTP, "disable_overlap_schedule": True}, V2, False),
        ("0.5.12", {"speculative_algorithm": "NGRAM"}, {}, False),
        ("0.5.12", {}, V1, True),
    ],
)
def test_the_overlap_scheduler(
    version: str, flags: dict[str, FlagValue], env: dict[str, str], overlap: bool
) -> None:
    """
    With a draft it takes a switch to 0.5.10, is on by default from 0.5.11 on, and the user's from 0.5.14 on.
    """
    assert overlap is asked(version, {**flags, **EXTRA_BUFFER}, env=env).overlap


@pytest.mark.parametrize(
    ("version", "config", "flags", "strategy"),
    [
        ("0.5.6", CONFIG_NEXT, EXTRA_BUFFER, "no_buffer"),
        ("0.5.13", CONFIG_27B, {}, "no_buffer"),
        ("0.5.14", CONFIG_27B, MTP, "extra_buffer"),
        ("0.5.23", CONFIG_27B, {"disable_overlap_schedule": True}, "no_buffer"),
        ("0.5.23", CONFIG_27B, {"disable_overlap_schedule": True, "page_size": 64}, "extra_buffer"),
        ("0.5.23", CONFIG_27B, {"linear_attn_backend": "flashinfer"}, "no_buffer"),
        ("0.5.15", CONFIG_KIMI, {}, "no_buffer"),
        ("0.5.16", CONFIG_KIMI, {}, "extra_buffer"),
        ("0.5.23", CONFIG_DENSE, {}, ""),
    ],
)
def test_the_strategy_that_auto_becomes(
    version: str, config: dict[str, Any], flags: dict[str, FlagValue], strategy: str
) -> None:
    """
    no_buffer before 0.5.14; then extra_buffer where the scheduler overlaps or pages, and the model allows it.
    """
    assert strategy == asked(version, flags, config=config).strategy


@pytest.mark.parametrize(
    ("version", "config", "radix"),
    [
        ("0.5.8", CONFIG_NEXT, True),
        ("0.5.9", CONFIG_NEXT, False),
        ("0.5.10", CONFIG_NEXT, True),
        ("0.5.13", CONFIG_KIMI, False),
        ("0.5.14", CONFIG_KIMI, True),
    ],
)
def test_what_takes_the_radix_cache_with_it(version: str, config: dict[str, Any], radix: bool) -> None:
    """
    A draft without tracking slots in 0.5.9 alone (in 0.5.8 nothing guards it), and Kimi-Linear to 0.5.13.
    """
    assert radix is asked(version, MTP, config=config).radix


@pytest.mark.parametrize(("version", "page"), [("0.5.10", 64), ("0.5.11", 1), ("0.5.13", 1), ("0.5.14", 64)])
def test_pages_of_one_without_tracking_slots(version: str, page: int) -> None:
    """
    0.5.11 to 0.5.13 take pages of one token with no_buffer; later releases refuse others.
    """
    flags = {"mamba_radix_cache_strategy": "no_buffer", "page_size": 64}

    assert page == asked(version, flags).page_size


@pytest.mark.parametrize(
    ("version", "flags", "env", "itemsize"),
    [
        ("0.5.8", {}, {"SGLANG_MAMBA_SSM_DTYPE": "bfloat16"}, 4.0),
        ("0.5.9", {}, {"SGLANG_MAMBA_SSM_DTYPE": "bfloat16"}, 2.0),
        ("0.5.9", {"mamba_ssm_dtype": "float32"}, {"SGLANG_MAMBA_SSM_DTYPE": "bfloat16"}, 4.0),
        ("0.5.23", {}, {}, 4.0),
        ("0.5.23", {"enable_linear_replayssm_spec": True}, {"SGLANG_MAMBA_SSM_DTYPE": "bfloat16"}, 4.0),
    ],
)
def test_the_type_of_the_state(
    version: str, flags: dict[str, FlagValue], env: dict[str, str], itemsize: float
) -> None:
    """
    The flag, from 0.5.9 on the variable and the model's config, else float32; ReplaySSM wants float32.
    """
    assert itemsize == asked(version, {**MTP, **flags}, env=env).state_itemsize


def test_a_model_s_own_type_of_state_and_keys() -> None:
    """
    The config's mamba_ssm_dtype counts from 0.5.9 on, and a checkpoint for FP8 keys makes them FP8.
    """
    text = {**CONFIG_27B["text_config"], "mamba_ssm_dtype": "bfloat16"}
    config = {
        **CONFIG_27B,
        "text_config": text,
        "quantization_config": {"quant_method": "modelopt", "kv_cache_quant_algo": "FP8"},
    }

    assert 4.0 == asked("0.5.8", {}, config=config).state_itemsize
    assert 2.0 == asked("0.5.9", {}, config=config).state_itemsize
    assert 1.0 == asked("0.5.9", {}, config=config).kv_itemsize
    assert 2.0 == asked("0.5.9", {"kv_cache_dtype": "bfloat16"}, config=config).kv_itemsize
