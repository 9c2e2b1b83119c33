"""
What each layer of a model is: one that attends, one with a recurrent state, one that only feeds forward.
"""

from typing import Any

from msgspec import Struct

from mtpdeploy.core.numbers import number

ATTENDING = ("attention", "both")
RECURRENT = ("state", "both")
FEEDING = ("mlp", "moe")

KINDS = {
    "full_attention": "attention",
    "attention": "attention",
    "sliding_attention": "attention",
    "hybrid": "both",
    "linear_attention": "state",
    "mamba": "state",
    "mamba2": "state",
    "M": "state",
    "*": "attention",
    "-": "mlp",
    "E": "moe",
    "moe": "moe",
    "mlp": "mlp",
}
"""How configs name what a layer is: lists of words, or NemotronH's pattern of letters."""


class Layers(Struct, frozen=True):
    """
    The kinds of a model's layers, in their order, and sentences on what was guessed of them.
    """

    kinds: tuple[str, ...]
    guessed: tuple[str, ...] = ()

    def numbers(self, kinds: tuple[str, ...]) -> tuple[int, ...]:
        """
        The numbers of the layers that are of one of these kinds, from 0.
        """
        return tuple(n for n, kind in enumerate(self.kinds) if kind in kinds)


def read_layers(inner: dict[str, Any], layers: int) -> Layers:
    """
    The layers of the language part of a config.
    """
    for key in ("layer_types", "layers_block_type", "hybrid_override_pattern"):
        listed = inner.get(key)
        if listed and isinstance(listed, str if key == "hybrid_override_pattern" else list):
            return _listed(key, listed, layers, number(inner, "num_nextn_predict_layers"))
    linear = inner.get("linear_attn_config")
    if isinstance(linear, dict) and isinstance(linear.get("kda_layers"), list):
        # Kimi counts its layers from 1.
        recurrent = {n - 1 for n in linear["kda_layers"] if isinstance(n, int)}
        return Layers(tuple("state" if n in recurrent else "attention" for n in range(layers)))
    interval = number(inner, "full_attention_interval")
    if not interval and number(inner, "linear_num_value_heads"):
        interval = 4
    if interval:
        return Layers(tuple("attention" if (n + 1) % interval == 0 else "state" for n in range(layers)))
    return Layers(("attention",) * layers)


def _listed(key: str, listed: list[object] | str, layers: int, drafts: int) -> Layers:
    """
    Each layer by its word; more words than layers are those of the draft.
    """
    words = [str(word) for word in listed][:layers]
    strange = list(dict.fromkeys(word for word in words if word not in KINDS))
    kinds = tuple(KINDS.get(word, "attention") for word in words)
    called = ", ".join(f"`{word[:20]}`" for word in strange[:3])
    guessed = [f"layers that `{key}` calls {called} are taken for attention"] if strange else []
    if len(listed) > layers + drafts:
        guessed.append(f"`{key}` has {len(listed)} layers, {layers} of them are taken")
    return Layers(kinds, tuple(guessed))
