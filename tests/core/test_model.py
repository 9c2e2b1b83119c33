"""
The shape of a model, read from a config.json.
"""

import json
from typing import Any

import pytest

from mtpdeploy.core.model import ModelShape, NotAModel, read_model
from tests.engines.sglang.sizing.models import (
    CONFIG_27B,
    CONFIG_DENSE,
    CONFIG_KIMI,
    CONFIG_LATENT,
    CONFIG_NEMOTRON,
    CONFIG_NEXT,
    TEXT_27B,
)


def read(config: dict[str, Any]) -> ModelShape:
    """
    The shape that a config describes.
    """
    return read_model(json.dumps(config))


class TestKinds:
    def test_gated_deltanet(self) -> None:
        """
        Every fourth layer attends; the language part of a multimodal config counts, its vision tower apart.
        """
        model = read(CONFIG_27B)

        assert "Qwen3_5ForConditionalGeneration" == model.architecture
        assert tuple(range(3, 64, 4)) == model.attention_numbers
        assert model.state is not None
        assert ("gdn", 48, 6144, 16, 128, 3) == (
            model.state.kind,
            model.state.layers,
            model.state.inner_size,
            model.state.groups,
            model.state.state_size,
            model.state.conv_columns,
        )
        assert model.vision is not None
        assert (24, 1152) == (model.vision.layers, model.vision.hidden_size)
        assert 1 == model.mtp_layers
        assert () == model.unread

    def test_an_interval_that_is_not_given(self) -> None:
        """
        Gated DeltaNet without `full_attention_interval` attends in every fourth layer.
        """
        config = {name: value for name, value in CONFIG_NEXT.items() if name != "full_attention_interval"}

        assert read(CONFIG_NEXT).attention_numbers == read(config).attention_numbers

    def test_a_pattern_of_letters(self) -> None:
        """
        NemotronH: M is a recurrent layer, an asterisk attends, E and - do neither.
        """
        model = read(CONFIG_NEMOTRON)

        assert 6 == model.attention_layers
        assert model.state is not None
        assert ("mamba2", 23, 4096, 8, 128) == (
            model.state.kind,
            model.state.layers,
            model.state.inner_size,
            model.state.groups,
            model.state.state_size,
        )

    def test_layers_that_count_from_one(self) -> None:
        """
        Kimi-Linear lists its recurrent layers from 1 on, and its attention is latent.
        """
        model = read(CONFIG_KIMI)

        assert (3, 7) == model.attention_numbers
        assert model.state is not None
        assert ("kda", (0, 1, 2, 4, 5, 6)) == (model.state.kind, model.state.numbers)
        assert 576 == model.latent_size

    def test_a_list_of_words(self) -> None:
        """
        `layer_types` goes before an interval; what attends through a window is said to be left out.
        """
        words = ["linear_attention", "full_attention", "sliding_attention", "linear_attention"]
        model = read({**CONFIG_NEXT, "num_hidden_layers": 4, "layer_types": words})

        assert (1, 2) == model.attention_numbers
        assert model.state is not None
        assert (0, 3) == model.state.numbers
        assert ("the smaller pools of 1 layers with a sliding window",) == model.unread

    def test_latent_attention(self) -> None:
        """
        DeepSeek keeps 512 + 64 elements of a token and layer.
        """
        model = read(CONFIG_LATENT)

        assert (576, 61, 1) == (model.latent_size, model.attention_layers, model.mtp_layers)

    def test_attention_alone(self) -> None:
        """
        A dense model has no state, and its head size may follow from its width.
        """
        model = read({name: value for name, value in CONFIG_DENSE.items() if name != "head_dim"})

        assert model.state is None
        assert (80, 64) == (model.head_dim, model.attention_layers)

    @pytest.mark.parametrize("name", ["text_config", "llm_config", "language_config"])
    def test_where_the_language_part_stands(self, name: str) -> None:
        """
        Multimodal configs call it by several names.
        """
        assert 64 == read({"architectures": ["X"], name: TEXT_27B}).layers


class TestWidths:
    @pytest.mark.parametrize(
        ("quantization", "bits", "keys"),
        [
            ({}, 16, ""),
            ({"quant_method": "fp8"}, 8, ""),
            ({"quant_method": "awq", "bits": 4}, 4, ""),
            ({"quant_method": "mxfp4"}, 4.25, ""),
            (
                {"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"},
                4.5,
                "fp8_e4m3",
            ),
        ],
    )
    def test_quantized_weights_and_keys(self, quantization: dict[str, Any], bits: float, keys: str) -> None:
        """
        How wide a weight is, and what the checkpoint's keys were quantized for.
        """
        model = read({**CONFIG_DENSE, "quantization_config": quantization})

        assert (bits, keys) == (model.weight_bits, model.kv_cache_dtype)

    def test_parameters(self) -> None:
        """
        26.9 billion and 0.46 of vision for the 27B; 80 billion for Qwen3-Next's 512 experts.
        """
        dense, mixture = read(CONFIG_27B).parameters, read(CONFIG_NEXT).parameters

        assert pytest.approx(26.9e9, rel=0.01) == dense.layers + 2 * dense.table
        assert pytest.approx(0.46e9, rel=0.05) == dense.vision
        assert pytest.approx(80e9, rel=0.02) == mixture.layers + 2 * mixture.table


class TestBroken:
    @pytest.mark.parametrize(
        ("text", "why"),
        [
            ("", "it is no JSON: Input data was truncated"),
            (json.dumps(CONFIG_27B)[:300], "it is no JSON: Input data was truncated"),
            ("{'a': 1}", "it is no JSON: JSON is malformed: object keys must be strings (byte 1)"),
            ("[1, 2]", "it is no JSON object"),
            ("null", "it is no JSON object"),
            ("{}", "it has no `num_hidden_layers`"),
            ('{"num_hidden_layers": 3}', "it has no `hidden_size`"),
            ('{"num_hidden_layers": 3, "hidden_size": 8}', "it has no `num_attention_heads`"),
            (
                '{"num_hidden_layers": "3"}',
                'its `num_hidden_layers` cannot be "3": it is a whole number from 1',
            ),
            ('{"num_hidden_layers": -3}', "its `num_hidden_layers` cannot be -3"),
            ('{"num_hidden_layers": 1e300}', "its `num_hidden_layers` cannot be 1e300"),
            ('{"num_hidden_layers": true}', "its `num_hidden_layers` cannot be true"),
            ("[" * 100_000, "it is no JSON: maximum recursion depth exceeded"),
        ],
    )
    def test_what_is_no_model(self, text: str, why: str) -> None:
        """
        One sentence says what is wrong with it.
        """
        with pytest.raises(NotAModel) as raised:
            read_model(text)

        assert str(raised.value).startswith(why)

    def test_recurrent_layers_that_are_not_understood(self) -> None:
        """
        An unknown architecture is read as far as it goes, and the rest is named.
        """
        model = read(
            {
                **CONFIG_DENSE,
                "architectures": ["NewForCausalLM"],
                "layer_types": ["mamba"] * 60 + ["attention"] * 4,
            }
        )

        assert ("NewForCausalLM", 4) == (model.architecture, model.attention_layers)
        assert model.state is None
        assert ("the recurrent state of 60 of 64 layers",) == model.unread

    def test_without_a_name(self) -> None:
        """
        A config without architectures goes by its type, or by nothing.
        """
        config = {name: value for name, value in CONFIG_DENSE.items() if name != "architectures"}

        assert "qwen3" == read(config).architecture
        assert "unknown" == read({**config, "model_type": None}).architecture

    @pytest.mark.parametrize(
        ("key", "value", "why"),
        [
            ("num_key_value_heads", 0, "cannot be 0: it is a whole number from 1 to 65,536"),
            ("num_key_value_heads", -4, "cannot be -4"),
            ("num_key_value_heads", "four", 'cannot be "four"'),
            ("num_key_value_heads", [8, None], "cannot be null"),
            ("head_dim", 1e30, "cannot be 1e30"),
            ("head_dim", 0, "cannot be 0"),
            ("num_hidden_layers", 1.5, "cannot be 1.5"),
            ("vocab_size", -1, "cannot be -1"),
            ("max_position_embeddings", -1, "cannot be -1"),
            ("intermediate_size", "wide", 'cannot be "wide": it is a whole number from 0 to 16,777,216'),
            ("num_local_experts", -8, "cannot be -8"),
            ("linear_key_head_dim", "a", 'cannot be "a"'),
            ("full_attention_interval", -1, "cannot be -1"),
            ("mamba_ssm_dtype", "int3", 'cannot be "int3"; there are float32, bfloat16, float16'),
            ("layer_types", ["full_attention"] * 3, "has 3 of 64 layers"),
            ("layer_types", "full_attention", 'is no list: "full_attention"'),
            ("hybrid_override_pattern", ["M"], 'is no text: ["M"]'),
            ("vision_config", "none", 'is no object: "none"'),
            ("quantization_config", [4], "is no object: [4]"),
        ],
    )
    def test_what_cannot_be(self, key: str, value: object, why: str) -> None:
        """
        No such value is planned as something else: the key is named.
        """
        with pytest.raises(NotAModel) as raised:
            read({**CONFIG_DENSE, key: value})

        assert str(raised.value).startswith(f"its `{key}` {why}")

    @pytest.mark.parametrize(
        ("changed", "guessed"),
        [
            ({"vocab_size": None}, "config.json has no `vocab_size`"),
            (
                {"max_position_embeddings": None},
                "config.json has no `max_position_embeddings`, 4,096 tokens are taken",
            ),
            (
                {"layer_types": ["weird"] * 64},
                "layers that `layer_types` calls `weird` are taken for attention",
            ),
            (
                {"layer_types": ["full_attention"] * 70},
                "`layer_types` has 70 layers, 64 of them are taken",
            ),
            ({"num_key_value_heads": [8, 4] * 32}, "`num_key_value_heads` differs by layer"),
            (
                {"quantization_config": {"quant_method": "new"}},
                "`quantization_config` is not understood, 8 bits a weight are taken",
            ),
            (
                {"layer_types": ["mamba"] * 64, "mamba_num_heads": 8},
                "no layer of it attends",
            ),
        ],
    )
    def test_what_is_guessed(self, changed: dict[str, Any], guessed: str) -> None:
        """
        What config.json leaves open is named, with what was made of it.
        """
        model, plain = read({**CONFIG_DENSE, **changed}), read(CONFIG_DENSE)

        assert guessed in model.guessed + model.parameters.guessed
        assert () == plain.guessed + plain.parameters.guessed

    def test_layers_of_a_draft_in_the_list(self) -> None:
        """
        Some configs list the layers of multi-token prediction behind the others.
        """
        listed = {"layer_types": ["full_attention"] * 65, "num_nextn_predict_layers": 1}

        assert () == read({**CONFIG_DENSE, **listed}).guessed

    @pytest.mark.parametrize(
        "changed",
        [
            {"head_dim": None, "hidden_size": 1},
            {"linear_attn_config": []},
            {"layer_types": []},
            {"layer_types": [None] * 64},
            {"vision_config": None},
            {"quantization_config": {}},
            {"architectures": {}},
            {"max_position_embeddings": None},
            {"num_key_value_heads": [8] * 64},
            {"intermediate_size": 25600.0},
        ],
    )
    def test_odd_values_are_passed_over(self, changed: dict[str, Any]) -> None:
        """
        What says nothing is as good as not there.
        """
        model = read({**CONFIG_DENSE, **changed})

        assert (64, 8) == (model.layers, model.kv_heads)
        assert model.head_dim > 0
        assert model.context_length > 0
