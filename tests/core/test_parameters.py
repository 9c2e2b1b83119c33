"""
Weights worked out from a config.json, against what is public of the models.
"""

import json
from typing import Any

import pytest

from mtpdeploy.core.model import ModelShape, read_model
from mtpdeploy.core.parameters import EXPERTS
from tests.core.public_models import PUBLIC


def read(config: dict[str, Any]) -> ModelShape:
    """
    The shape that a config describes.
    """
    return read_model(json.dumps(config))


def billions(model: ModelShape) -> float:
    """
    All parameters but those of a draft.
    """
    counted = model.parameters
    return (counted.layers + counted.vision + counted.table * (1 if model.tied else 2)) / 1e9


@pytest.mark.parametrize("name", PUBLIC)
def test_public_models(name: str) -> None:
    """
    Within 5 % of the public count, and nothing had to be guessed.
    """
    expected, config = PUBLIC[name]
    model = read(config)

    assert pytest.approx(expected, rel=0.05) == billions(model)
    assert () == model.parameters.guessed


@pytest.mark.parametrize("key", EXPERTS)
def test_every_name_for_the_number_of_experts(key: str) -> None:
    """
    Configs agree on what it means, not on what it is called.
    """
    config = dict(PUBLIC["Mixtral-8x7B"][1])
    config[key] = config.pop("num_local_experts")

    assert pytest.approx(46.7, rel=0.01) == billions(read(config))


@pytest.mark.parametrize(
    ("changed", "mixtures"),
    [
        ({"first_k_dense_replace": 2}, 30),
        ({"mlp_only_layers": [0, 1, 2]}, 29),
        ({"decoder_sparse_step": 2}, 16),
        ({"moe_layer_freq": [0, *[1] * 31]}, 31),
        ({"moe_layers": [1, 3]}, 2),
    ],
)
def test_layers_without_experts(changed: dict[str, Any], mixtures: int) -> None:
    """
    Some layers of a mixture are dense, and configs say in several ways which.
    """
    config = {**PUBLIC["Mixtral-8x7B"][1], "moe_intermediate_size": 14336}
    one = 3 * 4096 * 14336
    whole, fewer = read(config).parameters.layers, read({**config, **changed}).parameters.layers

    assert (32 - mixtures) * (7 * one + 8 * 4096) == whole - fewer


@pytest.mark.parametrize(
    ("name", "key", "guessed"),
    [
        ("Llama-3.1-8B", "intermediate_size", "config.json has no `intermediate_size`"),
        ("Llama-3.1-8B", "vocab_size", "config.json has no `vocab_size`"),
        ("Mixtral-8x7B", "intermediate_size", "config.json has no `moe_intermediate_size`"),
        ("Nemotron-3-Nano-30B-A3B", "n_routed_experts", "config.json has no `num_experts`"),
        ("DeepSeek-V3", "qk_nope_head_dim", "config.json has no `qk_nope_head_dim`"),
        ("Granite-4.0-H-Small", "mamba_d_state", "its recurrent layers are not understood"),
    ],
)
def test_what_is_missing_is_named(name: str, key: str, guessed: str) -> None:
    """
    A count that lacks a part says so.
    """
    config = {known: value for known, value in PUBLIC[name][1].items() if known != key}

    assert guessed in read(config).parameters.guessed


def test_experts_of_an_unknown_name() -> None:
    """
    A key that speaks of experts and is not understood is named: its experts are not counted.
    """
    config = dict(PUBLIC["Mixtral-8x7B"][1])
    config["expert_total"] = config.pop("num_local_experts")

    assert ("`expert_total` is not understood",) == read(config).parameters.guessed
