"""
Models, cards and servers whose memory is worked out in these tests.
"""

import json
from typing import Any

from mtpdeploy.core.memory import Card, Forecast, Seen, Weights
from mtpdeploy.core.model import ModelShape, read_model
from mtpdeploy.core.server import ServerSpec
from mtpdeploy.core.units import GIB
from mtpdeploy.engines.sglang.sizing.asked import Asked, read_asked
from mtpdeploy.engines.sglang.sizing.forecast import forecast

TEXT_27B: dict[str, Any] = {
    "model_type": "qwen3_5_text",
    "num_hidden_layers": 64,
    "full_attention_interval": 4,
    "hidden_size": 5120,
    "intermediate_size": 17408,
    "num_attention_heads": 24,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 48,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "mamba_ssm_dtype": "float32",
    "max_position_embeddings": 262144,
    "mtp_num_hidden_layers": 1,
    "vocab_size": 248320,
}
CONFIG_27B: dict[str, Any] = {
    "architectures": ["Qwen3_5ForConditionalGeneration"],
    "model_type": "qwen3_5",
    "text_config": TEXT_27B,
    "vision_config": {"depth": 27, "hidden_size": 1152},
    "tie_word_embeddings": False,
}
"""Qwen3.6-27B, as public logs of it show."""

CONFIG_NEXT: dict[str, Any] = {
    "architectures": ["Qwen3NextForCausalLM"],
    "model_type": "qwen3_next",
    "num_hidden_layers": 48,
    "hidden_size": 2048,
    "intermediate_size": 5120,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "vocab_size": 151936,
    "full_attention_interval": 4,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "num_experts": 512,
    "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
    "max_position_embeddings": 262144,
}
"""Qwen3-Next-80B-A3B."""

CONFIG_DENSE: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "num_hidden_layers": 64,
    "hidden_size": 5120,
    "intermediate_size": 25600,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
}
"""Qwen3-32B: attention in every layer."""

CONFIG_LATENT: dict[str, Any] = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "num_hidden_layers": 61,
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "vocab_size": 129280,
    "max_position_embeddings": 163840,
    "num_nextn_predict_layers": 1,
}
"""DeepSeek-V3: latent attention."""

CONFIG_KIMI: dict[str, Any] = {
    "architectures": ["KimiLinearForCausalLM"],
    "model_type": "kimi_linear",
    "num_hidden_layers": 8,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "vocab_size": 163840,
    "max_position_embeddings": 131072,
    "linear_attn_config": {
        "kda_layers": [1, 2, 3, 5, 6, 7],
        "full_attn_layers": [4, 8],
        "num_heads": 32,
        "head_dim": 128,
        "short_conv_kernel_size": 4,
    },
}
"""Kimi-Linear, cut to eight layers; its layers count from 1."""

CONFIG_NEMOTRON: dict[str, Any] = {
    "architectures": ["NemotronHForCausalLM"],
    "model_type": "nemotron_h",
    "num_hidden_layers": 52,
    "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
    "hidden_size": 2688,
    "num_attention_heads": 32,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "mamba_num_heads": 64,
    "mamba_head_dim": 64,
    "ssm_state_size": 128,
    "n_groups": 8,
    "conv_kernel": 4,
    "moe_intermediate_size": 1856,
    "moe_shared_expert_intermediate_size": 3712,
    "n_routed_experts": 128,
    "vocab_size": 131072,
    "max_position_embeddings": 262144,
}
"""Nemotron-3-Nano-30B."""

PRO_6000_MIB = 97887
PRO_6000 = Card(PRO_6000_MIB, int(94.32 * GIB))
"""A 96 GB card: 94.97 GiB in torch, 94.32 GiB free before the weights."""

MTP: dict[str, Any] = {
    "speculative_algorithm": "EAGLE",
    "speculative_num_steps": 3,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 4,
}
EXTRA_BUFFER: dict[str, Any] = {"mamba_radix_cache_strategy": "extra_buffer"}
RADIX_OFF: dict[str, Any] = {"mamba_radix_cache_strategy": "no_buffer", "disable_radix_cache": True}


def shape(config: dict[str, Any]) -> ModelShape:
    """
    The shape that a config describes.
    """
    return read_model(json.dumps(config))


def server(flags: dict[str, Any], env: dict[str, str] | None = None) -> ServerSpec:
    """
    A server with these flags.
    """
    return ServerSpec(name="m", flags={"model_path": "m", **flags}, env=env or {})


def asked(
    version: str,
    flags: dict[str, Any],
    *,
    config: dict[str, Any] = CONFIG_27B,
    total_mib: int = PRO_6000_MIB,
    env: dict[str, str] | None = None,
) -> Asked:
    """
    What flags mean for a release on a 96 GB card.
    """
    return read_asked(server(flags, env), shape(config), version, total_mib)


def plan(
    version: str,
    flags: dict[str, Any],
    *,
    config: dict[str, Any] = CONFIG_27B,
    card: Card = PRO_6000,
    weights_gib: float | None = 51.05,
    draft_gib: float | None = 5.53,
    env: dict[str, str] | None = None,
    seen: Seen | None = None,
) -> Forecast:
    """
    The forecast of a server: by default the 27B in bf16 on a 96 GB card, the case that is worked out by hand.
    """
    weights = Weights(
        target=None if weights_gib is None else int(weights_gib * GIB),
        draft=None if draft_gib is None else int(draft_gib * GIB),
    )
    return forecast(server(flags, env), shape(config), version, card, weights, seen)
