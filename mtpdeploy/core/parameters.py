"""
How many weights a model has, worked out from its config.json: for where no checkpoint can be looked at.

What a layer is made of: SGLang's models/ (0.5.23) and Transformers' configuration classes, 5.x.
"""

from typing import Any

from msgspec import Struct

from mtpdeploy.core.layers import ATTENDING, FEEDING, Layers
from mtpdeploy.core.numbers import number

EXPERTS = ("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts")
"""How configs call the number of experts of a layer."""

SHARED_EXPERTS = ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts", "num_shared_expert")
"""How they call the experts beside them that every token passes."""

SHARED_WIDTHS = (
    "shared_expert_intermediate_size",
    "moe_shared_expert_intermediate_size",
    "shared_intermediate_size",
)
"""How they call the width of all of those together."""

DENSE_WIDTHS = ("intermediate_size_mlp", "shared_intermediate_size", "intermediate_size")
EXPERT_WIDTHS = ("moe_intermediate_size", "intermediate_size")

DENSE_FIRST = ("first_k_dense_replace", "num_dense_layers", "moe_layer_start_index")
"""How many layers at the beginning have no experts."""

MOE_STEPS = ("decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_interval")
"""Every how many layers the last one has experts."""

UNGATED = ("Nemotron", "PhiForCausalLM")
"""Beginnings of models whose layers feed forward through two matrices in place of three."""


class Parameters(Struct, frozen=True):
    """
    Weights by what they belong to, in elements.

    `table` is one vocabulary table, of which a model has one (`tie_word_embeddings`) or two; `layers` are
    the layers of the language model, `vision` the vision tower, `draft` the layers of multi-token
    prediction without the tables that they share. `guessed` says what config.json leaves open of them.
    """

    table: int = 0
    layers: int = 0
    vision: int = 0
    draft: int = 0
    guessed: tuple[str, ...] = ()

    @property
    def target(self) -> int:
        """
        All but the draft, with one vocabulary table: no checkpoint has fewer.
        """
        return self.table + self.layers + self.vision


class _Text(Struct, frozen=True):
    """
    The language part of a config, of an architecture, with the kinds of its layers.
    """

    inner: dict[str, Any]
    architecture: str
    layers: Layers
    state: str

    @property
    def hidden(self) -> int:
        return number(self.inner, "hidden_size")

    @property
    def matrices(self) -> int:
        return 2 if self.architecture.startswith(UNGATED) else 3


def count_parameters(
    config: dict[str, Any],
    inner: dict[str, Any],
    *,
    architecture: str,
    layers: Layers,
    state: str,
    draft_layers: int,
) -> Parameters:
    """
    The weights of a model; `inner` is the language part of its config, `state` the kind of its `StateShape`.

    Of Qwen3.6-27B it gives 26.9 and 0.46 billion (vision), 50.9 GiB in bf16, where SGLang prints 51.05, and
    0.42 billion for the draft: with two tables of its own 5.53 GiB, as SGLang prints (0.5.17 log).
    """
    text = _Text(inner, architecture, layers, state)
    hidden, attention, feeds = text.hidden, _attention(inner, text.hidden), _feeds(text)
    mixture = _mixture(text) if _experts(inner) else _dense(text)
    recurrent = sum(kind in ("state", "both") for kind in layers.kinds) * _recurrent(text)
    return Parameters(
        table=number(inner, "vocab_size") * hidden,
        layers=len(layers.numbers(ATTENDING)) * attention
        + recurrent
        + feeds.count("moe") * _mixture(text)
        + feeds.count("mlp") * _dense(text),
        vision=_vision(config, hidden),
        draft=draft_layers * (attention + mixture) + (2 * hidden * hidden if draft_layers else 0),
        guessed=_guessed(text, feeds),
    )


def _attention(inner: dict[str, Any], hidden: int) -> int:
    heads = number(inner, "num_attention_heads") or 1
    head_dim = number(inner, "head_dim") or hidden // heads
    if number(inner, "kv_lora_rank"):
        return _latent_attention(inner, hidden, heads)
    keys = number(inner, "num_key_value_heads") or heads
    value_dim = number(inner, "v_head_dim") or head_dim
    # Qwen3-Next and Qwen3.5 gate the output of their attention by a second half of the query projection.
    gated = 2 if inner.get("attn_output_gate", number(inner, "linear_num_value_heads") > 0) else 1
    return hidden * (heads * (head_dim * gated + value_dim) + keys * (head_dim + value_dim))


def _latent_attention(inner: dict[str, Any], hidden: int, heads: int) -> int:
    rank, rope = number(inner, "kv_lora_rank"), number(inner, "qk_rope_head_dim")
    nope, value_dim = number(inner, "qk_nope_head_dim"), number(inner, "v_head_dim")
    queries = number(inner, "q_lora_rank")
    asked = heads * (nope + rope)
    query = queries * (hidden + asked) if queries else hidden * asked
    return query + hidden * (rank + rope) + rank * heads * (nope + value_dim) + heads * value_dim * hidden


def _recurrent(text: _Text) -> int:
    inner, hidden = text.inner, text.hidden
    if text.state == "kda":
        linear = inner["linear_attn_config"]
        heads, head_dim = number(linear, "num_heads"), number(linear, "head_dim")
        # Queries, keys, values and the output; two gates through a narrow middle; one weight of a head.
        return 4 * hidden * heads * head_dim + 2 * head_dim * (hidden + heads * head_dim) + hidden * heads
    if text.state == "mamba2":
        heads = number(inner, "mamba_num_heads", "mamba_n_heads")
        values = heads * number(inner, "mamba_head_dim", "mamba_d_head")
        groups = number(inner, "n_groups", "mamba_n_groups") or 1
        return hidden * (3 * values + 2 * groups * number(inner, "ssm_state_size", "mamba_d_state") + heads)
    values = number(inner, "linear_num_value_heads") * number(inner, "linear_value_head_dim")
    keys = number(inner, "linear_num_key_heads") * number(inner, "linear_key_head_dim")
    return hidden * (2 * keys + 3 * values + 2 * number(inner, "linear_num_value_heads"))


def _experts(inner: dict[str, Any]) -> int:
    return number(inner, *EXPERTS)


def _feeds(text: _Text) -> list[str]:
    """
    How each layer that feeds forward does it: `mlp` or `moe`.

    Where a pattern has layers that do nothing else, no other layer does it.
    """
    apart = [kind for kind in text.layers.kinds if kind in FEEDING]
    if apart:
        return apart
    count = len(text.layers.kinds)
    return ["moe" if _has_experts(text.inner, n) else "mlp" for n in range(count)]


def _has_experts(inner: dict[str, Any], layer: int) -> bool:
    if not _experts(inner) or layer < number(inner, *DENSE_FIRST):
        return False
    listed, often = inner.get("moe_layers"), inner.get("moe_layer_freq")
    if isinstance(listed, list) and listed:
        return layer in listed
    if isinstance(often, list):
        return layer < len(often) and bool(often[layer])
    dense = inner.get("mlp_only_layers")
    if isinstance(dense, list) and layer in dense:
        return False
    step = number(inner, *MOE_STEPS) or 1
    return (layer + 1) % step == 0 and layer % (number(inner, "moe_layer_freq") or 1) == 0


def _dense(text: _Text) -> int:
    return text.matrices * text.hidden * number(text.inner, *DENSE_WIDTHS)


def _mixture(text: _Text) -> int:
    """
    One layer of experts: their router, they themselves, and what of them every token passes.
    """
    inner, hidden = text.inner, text.hidden
    experts, width = _experts(inner), number(inner, *EXPERT_WIDTHS)
    shared = number(inner, *SHARED_WIDTHS) or number(inner, *SHARED_EXPERTS) * width
    if text.architecture.startswith("Llama4"):
        # One shared expert, which no key of its config tells of.
        shared = width
    latent = number(inner, "moe_latent_size")
    routed = text.matrices * (latent or hidden) * experts * width + 2 * hidden * latent
    return routed + text.matrices * hidden * shared + experts * hidden


def _guessed(text: _Text, feeds: list[str]) -> tuple[str, ...]:
    """
    What of the weights config.json leaves open.
    """
    inner = text.inner
    needed: dict[str, tuple[str, ...]] = {"vocab_size": ("vocab_size",)}
    if "mlp" in feeds:
        needed["intermediate_size"] = DENSE_WIDTHS
    if "moe" in feeds:
        needed |= {"num_experts": EXPERTS, "moe_intermediate_size": EXPERT_WIDTHS}
    if number(inner, "kv_lora_rank"):
        needed |= {name: (name,) for name in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")}
    found = [f"config.json has no `{name}`" for name, keys in needed.items() if not number(inner, *keys)]
    if "state" in text.layers.kinds and not text.state:
        found.append("its recurrent layers are not understood")
    strange = [name for name in inner if "expert" in name and number(inner, name) > 1]
    if strange and not _experts(inner):
        found.append(f"`{strange[0]}` is not understood")
    return tuple(found)


def _vision(config: dict[str, Any], hidden: int) -> int:
    vision = config.get("vision_config")
    if not isinstance(vision, dict):
        return 0
    width = number(vision, "hidden_size")
    depth = number(vision, "depth", "num_hidden_layers")
    between = number(vision, "intermediate_size") or 4 * width
    merged = 4 * width
    return depth * (4 * width * width + 2 * width * between) + merged * merged + merged * hidden
