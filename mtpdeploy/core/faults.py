"""
Values of a config.json that cannot be: each is named, rather than planned as something else.
"""

import re
from typing import Any

from msgspec import json

from mtpdeploy.core.numbers import LARGEST, number

WIDEST = 1 << 24
"""More than any width, head, expert or layer of a model."""

ABOVE_ZERO = {
    "num_hidden_layers": 1 << 16,
    "hidden_size": WIDEST,
    "num_attention_heads": 1 << 16,
    "num_key_value_heads": 1 << 16,
    "head_dim": 1 << 16,
    "vocab_size": 1 << 30,
    "max_position_embeddings": LARGEST,
}
"""Numbers that are at least 1 where they are given, and more than any model has of each."""

FROM_ZERO = re.compile(
    r"(\w+_)?intermediate_size|(num|n)_(\w+_)?experts|moe_num_(shared_)?experts|(q|kv)_lora_rank"
    r"|(qk_nope|qk_rope|v)_head_dim|linear_(num_key|num_value)_heads|linear_(key|value)_head_dim"
    r"|mamba_(num|n)_heads|mamba_(head_dim|d_head|d_state|n_groups|d_conv)|ssm_state_size|n_groups"
    r"|(linear_)?conv_kernel(_dim)?|full_attention_interval|first_k_dense_replace|moe_latent_size"
    r"|mtp_num_hidden_layers|num_nextn_predict_layers"
)
"""Numbers that may be 0, for none."""

OBJECTS = ("vision_config", "linear_attn_config", "quantization_config")
LISTS = {"layer_types": list, "layers_block_type": list, "hybrid_override_pattern": str}
STATE_DTYPES = ("float32", "bfloat16", "float16")


def fault(config: dict[str, Any], inner: dict[str, Any]) -> str:
    """
    What is wrong with a config, in one sentence; "" where nothing is. `inner` is its language part.
    """
    for key, value in inner.items():
        if value is not None and (said := _number(key, value)):
            return said
    for key in OBJECTS:
        value = config.get(key, inner.get(key))
        if value and not isinstance(value, dict):
            return f"its `{key}` is no object: {_shown(value)}"
    dtype = inner.get("mamba_ssm_dtype")
    if dtype and str(dtype).removeprefix("torch.") not in STATE_DTYPES:
        return f"its `mamba_ssm_dtype` cannot be {_shown(dtype)}; there are {', '.join(STATE_DTYPES)}"
    return _layers(inner)


def _number(key: str, value: object) -> str:
    least = 1 if key in ABOVE_ZERO else 0
    if key not in ABOVE_ZERO and not FROM_ZERO.fullmatch(key):
        return ""
    most = ABOVE_ZERO.get(key, WIDEST)
    # Some configs have a list of what differs by layer.
    listed = value if isinstance(value, list) and value and key != "num_hidden_layers" else [value]
    wrong = next((one for one in listed if not _is_whole(one, least, most)), None)
    if wrong is None and None not in listed:
        return ""
    return f"its `{key}` cannot be {_shown(wrong)}: it is a whole number from {least} to {most:,}"


def _is_whole(value: object, least: int, most: int) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return least <= value <= most and value == int(value)


def _layers(inner: dict[str, Any]) -> str:
    layers = number(inner, "num_hidden_layers")
    for key, kind in LISTS.items():
        listed = inner.get(key)
        if listed and not isinstance(listed, kind):
            return f"its `{key}` is no {'text' if kind is str else 'list'}: {_shown(listed)}"
        if listed and len(listed) < layers:
            return f"its `{key}` has {len(listed)} of {layers} layers"
    return ""


def _shown(value: object) -> str:
    return json.encode(value).decode()[:40]
