"""
Architectures by release, and models that GPUs cannot share out.
"""

from typing import Any

import pytest

from mtpdeploy.core.diagnosis import Cause, Stage
from mtpdeploy.core.memory import Fit
from mtpdeploy.core.server import FlagValue
from mtpdeploy.engines.sglang import signatures
from mtpdeploy.engines.sglang.matching import match
from tests.core.public_models import PUBLIC
from tests.engines.sglang.sizing.models import CONFIG_27B, CONFIG_DENSE, CONFIG_LATENT, CONFIG_NEXT, plan

TEXT_ONLY = {**CONFIG_27B, "architectures": ["Qwen3_5ForCausalLM"]}


@pytest.mark.parametrize(
    ("config", "version", "known"),
    [
        (CONFIG_27B, "0.5.7", False),
        (CONFIG_27B, "0.5.8.post1", False),
        (CONFIG_27B, "0.5.9", True),
        (CONFIG_27B, "0.5.9rc1", True),
        (TEXT_ONLY, "0.5.16", False),
        (TEXT_ONLY, "0.5.17", True),
        (CONFIG_NEXT, "0.5.6", True),
    ],
)
def test_the_first_release_of_an_architecture(config: dict[str, Any], version: str, *, known: bool) -> None:
    """
    A release that came before it refuses it, whatever the flags, in words that a log would be judged by.
    """
    found = plan(version, {}, config=config)

    if known:
        assert Cause.MODEL_UNSUPPORTED is not found.cause
    else:
        assert (Fit.DOES_NOT_FIT, Cause.MODEL_UNSUPPORTED) == (found.fit, found.cause)
        name = config["architectures"][0]
        assert f"Model architectures ['{name}'] are not supported for now." == found.error


EVEN = {**CONFIG_DENSE, "vocab_size": 192 * 700, "num_hidden_layers": 8}
"""A vocabulary that three and seven GPUs can share."""


@pytest.mark.parametrize(
    ("config", "flags", "error"),
    [
        (CONFIG_DENSE, {"tp_size": 3}, "151936 is not divisible by 3"),
        ({**CONFIG_DENSE, "vocab_size": 151_900}, {"tp_size": 3}, "151936 is not divisible by 3"),
        (EVEN, {"tp_size": 3}, "AssertionError"),
        (EVEN, {"tp_size": 7}, "AssertionError"),
        (EVEN, {"tp_size": 8}, None),
        # Eight heads of keys and values, each twice, or one and a half times.
        (EVEN, {"tp_size": 16}, None),
        ({**EVEN, "num_attention_heads": 60}, {"tp_size": 12}, "AssertionError"),
        ({**EVEN, "num_attention_heads": 48}, {"tp_size": 12}, "AssertionError"),
        # Workers with attention of their own divide less.
        (
            {**EVEN, "num_attention_heads": 60},
            {"tp_size": 12, "dp_size": 3, "enable_dp_attention": True},
            None,
        ),
        # Latent attention has no heads of keys and values.
        ({**CONFIG_LATENT, "num_key_value_heads": 3}, {"tp_size": 8}, None),
        (PUBLIC["Llama-4-Scout"][1], {"tp_size": 16}, "AssertionError"),
        (
            {**CONFIG_NEXT, "vocab_size": 192 * 50, "num_attention_heads": 6},
            {"tp_size": 3},
            "32 is not divisible by 3",
        ),
    ],
)
def test_what_gpus_share(config: dict[str, Any], flags: dict[str, FlagValue], error: str | None) -> None:
    """
    Heads and the vocabulary have to come out even.
    """
    found = plan("0.5.23", flags, config=config, weights_gib=10.0)

    if error is None:
        assert Cause.PARALLEL_SHAPE is not found.cause
    else:
        assert (Fit.DOES_NOT_FIT, Cause.PARALLEL_SHAPE) == (found.fit, found.cause)
        assert str(found.error).startswith(error)


def test_one_gpu_shares_nothing() -> None:
    """
    Whatever the numbers are.
    """
    odd = {**CONFIG_DENSE, "vocab_size": 7, "num_attention_heads": 5, "num_key_value_heads": 3}

    assert plan("0.5.23", {}, config=odd, weights_gib=1.0).error is None


@pytest.mark.parametrize(
    ("version", "flags", "cause"),
    [("0.5.7", {}, Cause.MODEL_UNSUPPORTED), ("0.5.23", {"tp_size": 3}, Cause.PARALLEL_SHAPE)],
)
def test_a_log_with_the_error_is_judged_alike(
    version: str, flags: dict[str, FlagValue], cause: Cause
) -> None:
    """
    The words are those of the signatures.
    """
    found = plan(version, flags)
    signature = match(signatures.catalogue_of(version).exceptions, str(found.error), Stage.WEIGHTS_BEGUN)

    assert signature is not None
    assert (cause, cause) == (found.cause, signature.cause)
