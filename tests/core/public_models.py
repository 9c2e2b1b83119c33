"""
Shapes of public models as their config.json give them, cut to what their weights follow from.
"""

from typing import Any


def model(architecture: str, shape: tuple[int, int, int, int, int], /, **more: Any) -> dict[str, Any]:
    """
    A config; `shape` is layers, width, heads of queries, of keys and values, and the vocabulary.
    """
    names = (
        "num_hidden_layers",
        "hidden_size",
        "num_attention_heads",
        "num_key_value_heads",
        "vocab_size",
    )
    common = {"architectures": [architecture], "max_position_embeddings": 131072}
    return {**common, **dict(zip(names, shape, strict=True)), **more}


GRANITE_LAYERS = (["mamba"] * 5 + ["attention"] + ["mamba"] * 4) * 4

LATENT: dict[str, Any] = {
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}

LLAMA4: dict[str, Any] = {
    "head_dim": 128,
    "intermediate_size": 8192,
    "intermediate_size_mlp": 16384,
}

VISION_LLAMA4 = {"hidden_size": 1408, "num_hidden_layers": 34, "intermediate_size": 5632}

PUBLIC: dict[str, tuple[float, dict[str, Any]]] = {
    "Llama-3.1-8B": (
        8.03,
        model("LlamaForCausalLM", (32, 4096, 32, 8, 128256), intermediate_size=14336),
    ),
    "Llama-3.1-70B": (
        70.6,
        model("LlamaForCausalLM", (80, 8192, 64, 8, 128256), intermediate_size=28672),
    ),
    "Gemma-2-9B": (
        9.24,
        model("Gemma2ForCausalLM", (42, 3584, 16, 8, 256000), head_dim=256, intermediate_size=14336),
    ),
    "Mixtral-8x7B": (
        46.7,
        model("MixtralForCausalLM", (32, 4096, 32, 8, 32000), intermediate_size=14336, num_local_experts=8),
    ),
    "MiniMax-M2": (
        229,
        model(
            "MiniMaxM2ForCausalLM",
            (62, 3072, 48, 8, 200064),
            head_dim=128,
            intermediate_size=1536,
            num_local_experts=256,
        ),
    ),
    "gpt-oss-120b": (
        116.8,
        model(
            "GptOssForCausalLM",
            (36, 2880, 64, 8, 201088),
            head_dim=64,
            intermediate_size=2880,
            num_local_experts=128,
            quantization_config={"quant_method": "mxfp4"},
        ),
    ),
    "Granite-4.0-H-Small": (
        32.2,
        model(
            "GraniteMoeHybridForCausalLM",
            (40, 4096, 32, 8, 100352),
            layer_types=GRANITE_LAYERS,
            intermediate_size=768,
            shared_intermediate_size=1536,
            num_local_experts=72,
            mamba_n_heads=128,
            mamba_d_head=64,
            mamba_d_state=128,
            mamba_n_groups=1,
            tie_word_embeddings=True,
        ),
    ),
    "Llama-4-Scout": (
        108.6,
        model(
            "Llama4ForConditionalGeneration",
            (48, 5120, 40, 8, 202048),
            **LLAMA4,
            num_local_experts=16,
            interleave_moe_layer_step=1,
            vision_config=VISION_LLAMA4,
        ),
    ),
    "Llama-4-Maverick": (
        401,
        model(
            "Llama4ForConditionalGeneration",
            (48, 5120, 40, 8, 202048),
            **LLAMA4,
            num_local_experts=128,
            interleave_moe_layer_step=2,
            vision_config=VISION_LLAMA4,
        ),
    ),
    "Nemotron-Nano-9B-v2": (
        8.89,
        model(
            "NemotronHForCausalLM",
            (56, 4480, 40, 8, 131072),
            hybrid_override_pattern="M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-",
            head_dim=128,
            intermediate_size=15680,
            mamba_num_heads=128,
            mamba_head_dim=80,
            ssm_state_size=128,
            n_groups=8,
        ),
    ),
    "Nemotron-3-Nano-30B-A3B": (
        31.6,
        model(
            "NemotronHForCausalLM",
            (52, 2688, 32, 2, 131072),
            hybrid_override_pattern="MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
            head_dim=128,
            intermediate_size=1856,
            moe_intermediate_size=1856,
            moe_shared_expert_intermediate_size=3712,
            n_routed_experts=128,
            n_shared_experts=1,
            mamba_num_heads=64,
            mamba_head_dim=64,
            ssm_state_size=128,
            n_groups=8,
        ),
    ),
    "DeepSeek-V3": (
        671,
        model(
            "DeepseekV3ForCausalLM",
            (61, 7168, 128, 128, 129280),
            **LATENT,
            q_lora_rank=1536,
            intermediate_size=18432,
            moe_intermediate_size=2048,
            n_routed_experts=256,
            n_shared_experts=1,
            first_k_dense_replace=3,
            moe_layer_freq=1,
        ),
    ),
    "GLM-4.5-Air": (
        106.9,
        model(
            "Glm4MoeForCausalLM",
            (46, 4096, 96, 8, 151552),
            head_dim=128,
            intermediate_size=10944,
            moe_intermediate_size=1408,
            n_routed_experts=128,
            n_shared_experts=1,
            first_k_dense_replace=1,
        ),
    ),
    "Kimi-Linear-48B-A3B": (
        49.1,
        model(
            "KimiLinearForCausalLM",
            (27, 2304, 32, 32, 163840),
            **LATENT,
            intermediate_size=9216,
            moe_intermediate_size=1024,
            num_experts=256,
            num_shared_experts=1,
            first_k_dense_replace=1,
            linear_attn_config={
                "kda_layers": [n for n in range(1, 27) if n % 4],
                "full_attn_layers": [4, 8, 12, 16, 20, 24, 27],
                "num_heads": 32,
                "head_dim": 128,
                "short_conv_kernel_size": 4,
            },
        ),
    ),
    "Qwen3-30B-A3B": (
        30.5,
        model(
            "Qwen3MoeForCausalLM",
            (48, 2048, 32, 4, 151936),
            head_dim=128,
            intermediate_size=6144,
            moe_intermediate_size=768,
            num_experts=128,
            decoder_sparse_step=1,
            mlp_only_layers=[],
        ),
    ),
}
"""Billions of parameters, as the cards of the models or the sums of their tensors say, and the config."""
