"""
How many weights a model has, worked out from its config.json: for where no checkpoint can be looked at.
"""

from typing import Any

from msgspec import Struct


class Parameters(Struct, frozen=True):
    """
    Weights by what they belong to, in elements.

    `table` is one vocabulary table, of which a model has one (`tie_word_embeddings`) or two; `layers` are
    the layers of the language model, `vision` the vision tower, `draft` the layers of multi-token
    prediction without the tables that they share.
    """

    table: int = 0
    layers: int = 0
    vision: int = 0
    draft: int = 0


LARGEST = 1 << 40
"""What no number of a model comes near; what is above is a fault, and must cost neither time nor memory."""


def number(config: dict[str, Any], key: str) -> int:
    """
    A whole number of a config, 0 where it has none that can be one of a model.
    """
    value = config.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= LARGEST:
        return 0
    return int(value)


def count_parameters(
    config: dict[str, Any],
    inner: dict[str, Any],
    *,
    attention_layers: int,
    recurrent_layers: int,
    draft_layers: int,
) -> Parameters:
    """
    The weights of a model; `inner` is the language part of its config.

    Of Qwen3.6-27B it gives 26.9 and 0.46 billion (vision), 50.9 GiB in bf16, where SGLang prints 51.05, and
    0.42 billion for the draft: with two tables of its own 5.53 GiB, as SGLang prints (0.5.17 log).
    """
    hidden = number(inner, "hidden_size")
    attention = _attention(inner, hidden)
    mixture = _mlp(inner, hidden)
    every = number(inner, "num_hidden_layers")
    recurrent = recurrent_layers * _recurrent(inner, hidden)
    return Parameters(
        table=number(inner, "vocab_size") * hidden,
        layers=attention_layers * attention + recurrent + every * mixture,
        vision=_vision(config, hidden),
        draft=draft_layers * (attention + mixture) + (2 * hidden * hidden if draft_layers else 0),
    )


def _attention(inner: dict[str, Any], hidden: int) -> int:
    heads = number(inner, "num_attention_heads") or 1
    head_dim = number(inner, "head_dim") or hidden // heads
    keys = number(inner, "num_key_value_heads") or heads
    # Qwen3-Next and Qwen3.5 gate the output of their attention by a second half of the query projection.
    gated = 2 if inner.get("attn_output_gate", number(inner, "linear_num_value_heads") > 0) else 1
    return hidden * head_dim * (heads * (gated + 1) + 2 * keys)


def _recurrent(inner: dict[str, Any], hidden: int) -> int:
    values = number(inner, "linear_num_value_heads") * number(inner, "linear_value_head_dim")
    if not values:
        heads = number(inner, "mamba_num_heads") or number(inner, "mamba_n_heads")
        values = heads * (number(inner, "mamba_head_dim") or number(inner, "mamba_d_head"))
        return 3 * hidden * values
    keys = number(inner, "linear_num_key_heads") * number(inner, "linear_key_head_dim")
    return hidden * (2 * keys + 3 * values + 2 * number(inner, "linear_num_value_heads"))


def _mlp(inner: dict[str, Any], hidden: int) -> int:
    experts = number(inner, "num_experts") or number(inner, "n_routed_experts")
    if not experts:
        return 3 * hidden * number(inner, "intermediate_size")
    shared = number(inner, "shared_expert_intermediate_size")
    width = number(inner, "moe_intermediate_size") or number(inner, "intermediate_size")
    return 3 * hidden * (experts * width + shared) + experts * hidden


def _vision(config: dict[str, Any], hidden: int) -> int:
    vision = config.get("vision_config")
    if not isinstance(vision, dict):
        return 0
    width = number(vision, "hidden_size")
    depth = number(vision, "depth") or number(vision, "num_hidden_layers")
    between = number(vision, "intermediate_size") or 4 * width
    merged = 4 * width
    return depth * (4 * width * width + 2 * width * between) + merged * merged + merged * hidden
