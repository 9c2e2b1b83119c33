"""
The shape of a model, as far as its memory goes: read from the text of a Hugging Face config.json.
"""

from typing import Any

from msgspec import DecodeError, Struct, json, structs

from mtpdeploy.core.faults import fault
from mtpdeploy.core.layers import ATTENDING, RECURRENT, Layers, read_layers
from mtpdeploy.core.numbers import number
from mtpdeploy.core.parameters import Parameters, count_parameters

VISION_LAYERS = 24
"""Layers of a vision tower whose config names none under `num_hidden_layers` (SGLang 0.5.6-0.5.23)."""


LANGUAGE_PARTS = ("text_config", "llm_config", "language_config")
"""Where configs of multimodal models have the language model (get_hf_text_config, 0.5.6-0.5.23)."""


WITH_ONE_DRAFT_LAYER = ("Qwen3Next", "Qwen3_5", "Qwen4Exp", "NemotronH", "Ernie4_5_Moe", "MiMo", "ExaoneMo")
"""Beginnings of models whose draft SGLang gives one layer, whatever their config says (model_config.py)."""


TIED = ("Gemma", "Cohere")
"""Beginnings of models with one vocabulary table where nothing is said (Transformers' configurations)."""

CONTEXTS = ("max_position_embeddings", "max_sequence_length", "seq_length", "model_max_length")
"""How configs call the longest context (CONTEXT_LENGTH_KEYS, hf_transformers_utils.py, 0.5.6-0.5.23)."""

GUESSED_CONTEXT = 4096
"""A guess, for a config that tells of no context."""

HALVED_BITS = 8
FOUR_BITS = ("fp4", "int4", "awq", "gptq", "'num_bits': 4", "'load_in_4bit': true")
EIGHT_BITS = ("fp8", "float8", "int8", "8bit", "w8a8", "bits': 8")
"""Words by which a `quantization_config` tells of 4 and of 8 bits a weight."""

SCALED_BITS = {"mxfp4": 4.25, "nvfp4": 4.5}
"""Bits of a weight with its share of a scale byte: one for 32 weights (OCP MX 1.0), one for 16 (NVFP4)."""


class StateShape(Struct, frozen=True):
    """
    The recurrent layers of a hybrid model, in elements of one layer, undivided by tensor parallelism.

    `kind` is `gdn`, `mamba2` or `kda`. The convolution runs over `inner_size` channels and twice `groups`
    times `state_size` more, and keeps `conv_columns` of each; the state itself has `heads` times `head_dim`
    times `state_size`. `numbers` says which layers of the model they are, from 0.
    """

    kind: str
    layers: int
    inner_size: int
    groups: int
    state_size: int
    conv_columns: int
    heads: int
    head_dim: int
    numbers: tuple[int, ...] = ()


class Vision(Struct, frozen=True):
    """
    The vision tower: what the default of `mem_fraction_static` depends on.
    """

    layers: int
    hidden_size: int


class ModelShape(Struct, frozen=True):
    """
    Layers, heads and widths of a model.

    `attention_numbers` are the layers that keep keys and values, from 0. `latent_size` is what multi-head
    latent attention keeps of a token and layer, in elements, 0 elsewhere. `mtp_layers` are the layers of its
    own draft (multi-token prediction). `weight_bits` is the width of a quantized weight, 16 where nothing is
    quantized; `kv_cache_dtype` what the checkpoint was quantized for. `tied` says that the vocabulary table
    serves as the head, too. `heads` are those of the queries. `unread` names what could not be understood
    and is left out of a plan, `guessed` says what was made of what config.json leaves open: no verdict on a
    guess is certain.
    """

    architecture: str
    layers: int
    hidden_size: int
    vocab_size: int
    context_length: int
    attention_numbers: tuple[int, ...]
    kv_heads: int
    head_dim: int
    v_head_dim: int
    latent_size: int = 0
    state: StateShape | None = None
    vision: Vision | None = None
    mtp_layers: int = 0
    parameters: Parameters = Parameters()
    state_dtype: str = ""
    weight_bits: float = 16
    kv_cache_dtype: str = ""
    tied: bool = False
    heads: int = 0
    unread: tuple[str, ...] = ()
    guessed: tuple[str, ...] = ()

    @property
    def attention_layers(self) -> int:
        """
        How many layers keep keys and values.
        """
        return len(self.attention_numbers)

    @property
    def is_multimodal(self) -> bool:
        """
        Whether there is a vision tower.
        """
        return self.vision is not None


class NotAModel(Exception):
    """
    A config.json that describes no model; the text says what is missing.
    """


def read_model(text: str) -> ModelShape:
    """
    The shape that the text of a config.json describes; of a multimodal model its language part.

    Raises:
        NotAModel: it is no JSON object, or lacks what every model has.
    """
    try:
        config = json.decode(text)
    except (DecodeError, UnicodeError, RecursionError) as error:
        raise NotAModel(f"it is no JSON: {error}") from None
    if not isinstance(config, dict):
        raise NotAModel("it is no JSON object")
    parts = [config.get(name) for name in LANGUAGE_PARTS]
    return _shape(config, next((part for part in parts if isinstance(part, dict)), config))


def _shape(config: dict[str, Any], inner: dict[str, Any]) -> ModelShape:
    wrong = fault(config, inner)
    if wrong:
        raise NotAModel(wrong)
    layers = _needed(inner, "num_hidden_layers")
    hidden = _needed(inner, "hidden_size")
    heads = _needed(inner, "num_attention_heads")
    head_dim = number(inner, "head_dim") or max(1, hidden // heads)
    kinds = read_layers(inner, layers)
    state, unread = _state(inner, kinds)
    unread += _windows(inner)
    shape = ModelShape(
        architecture=_architecture(config),
        layers=layers,
        hidden_size=hidden,
        vocab_size=number(inner, "vocab_size"),
        context_length=_context(inner),
        attention_numbers=kinds.numbers(ATTENDING),
        kv_heads=number(inner, "num_key_value_heads") or heads,
        head_dim=head_dim,
        v_head_dim=number(inner, "v_head_dim") or head_dim,
        latent_size=_latent(inner),
        state=state,
        vision=_vision(config),
        mtp_layers=_mtp_layers(inner, _architecture(config)),
        state_dtype=str(inner.get("mamba_ssm_dtype") or ""),
        weight_bits=_weight_bits(config, inner),
        kv_cache_dtype=_kv_cache_dtype(config, inner),
        tied=_tied(config, inner),
        heads=heads,
        unread=unread,
        guessed=(*kinds.guessed, *_guessed(inner, kinds)),
    )
    counted = count_parameters(
        config,
        inner,
        architecture=shape.architecture,
        layers=kinds,
        state=state.kind if state else "",
        draft_layers=shape.mtp_layers,
    )
    guessed = (*kinds.guessed, *_guessed_width(config, inner), *counted.guessed)
    return structs.replace(shape, parameters=structs.replace(counted, guessed=guessed))


def _architecture(config: dict[str, Any]) -> str:
    named = config.get("architectures")
    if isinstance(named, list) and named:
        return str(named[0])
    return str(config.get("model_type") or "unknown")


def _needed(inner: dict[str, Any], key: str) -> int:
    value = number(inner, key)
    if not value:
        raise NotAModel(f"it has no `{key}`")
    return value


def _context(inner: dict[str, Any]) -> int:
    return number(inner, *CONTEXTS) or GUESSED_CONTEXT


def _guessed(inner: dict[str, Any], layers: Layers) -> tuple[str, ...]:
    """
    What is made of what is missing, as far as a plan needs it whatever the weights take.
    """
    found = [] if layers.numbers(ATTENDING) else ["no layer of it attends"]
    if not number(inner, "vocab_size"):
        found.append("config.json has no `vocab_size`")
    if not number(inner, *CONTEXTS):
        found.append(f"config.json has no `{CONTEXTS[0]}`, {GUESSED_CONTEXT:,} tokens are taken")
    differing = [key for key in ("num_key_value_heads", "head_dim") if isinstance(inner.get(key), list)]
    found += [f"`{key}` differs by layer" for key in differing if not number(inner, key)]
    return tuple(found)


def _guessed_width(config: dict[str, Any], inner: dict[str, Any]) -> tuple[str, ...]:
    said = str(_quantization(config, inner)).lower()
    if _weight_bits(config, inner) != HALVED_BITS or any(word in said for word in EIGHT_BITS):
        return ()
    return ("`quantization_config` is not understood, 8 bits a weight are taken",)


def _mtp_layers(inner: dict[str, Any], architecture: str) -> int:
    given = number(inner, "mtp_num_hidden_layers") or number(inner, "num_nextn_predict_layers")
    return given or (1 if architecture.startswith(WITH_ONE_DRAFT_LAYER) else 0)


def _latent(inner: dict[str, Any]) -> int:
    rank = number(inner, "kv_lora_rank")
    return rank + number(inner, "qk_rope_head_dim") if rank else 0


def _vision(config: dict[str, Any]) -> Vision | None:
    vision = config.get("vision_config")
    if not isinstance(vision, dict) or not number(vision, "hidden_size"):
        return None
    return Vision(number(vision, "num_hidden_layers") or VISION_LAYERS, number(vision, "hidden_size"))


def _weight_bits(config: dict[str, Any], inner: dict[str, Any]) -> float:
    quantized = _quantization(config, inner)
    if not quantized:
        return 16
    said = str(quantized).lower()
    scaled = next((bits for name, bits in SCALED_BITS.items() if name in said), None)
    if scaled:
        return scaled
    bits = number(quantized, "bits") or number(quantized, "weight_bits")
    if bits:
        return bits
    return 4 if any(word in said for word in FOUR_BITS) else HALVED_BITS


def _kv_cache_dtype(config: dict[str, Any], inner: dict[str, Any]) -> str:
    """
    What `kv_cache_dtype` auto becomes: fp8 where the checkpoint is quantized for it.
    """
    algorithm = str(_quantization(config, inner).get("kv_cache_quant_algo") or "")
    return "fp8_e4m3" if algorithm.upper() == "FP8" else ""


def _quantization(config: dict[str, Any], inner: dict[str, Any]) -> dict[str, Any]:
    found = config.get("quantization_config") or inner.get("quantization_config")
    return found if isinstance(found, dict) else {}


def _tied(config: dict[str, Any], inner: dict[str, Any]) -> bool:
    said = config.get("tie_word_embeddings", inner.get("tie_word_embeddings"))
    return _architecture(config).startswith(TIED) if said is None else bool(said)


def _state(inner: dict[str, Any], layers: Layers) -> tuple[StateShape | None, tuple[str, ...]]:
    """
    The recurrent layers, and what is not understood of them.
    """
    numbers = layers.numbers(RECURRENT)
    if not numbers:
        return None, ()
    for read in (_gdn, _kda, _mamba2):
        state = read(inner, numbers)
        if state is not None:
            return state, ()
    return None, (f"the recurrent state of {len(numbers)} of {len(layers.kinds)} layers",)


def _windows(inner: dict[str, Any]) -> tuple[str, ...]:
    """
    Layers that attend to a window: their keys have a smaller pool, which is counted as whole here.
    """
    listed = inner.get("layer_types")
    count = listed.count("sliding_attention") if isinstance(listed, list) else 0
    found = (f"the smaller pools of {count} layers with a sliding window",) if count else ()
    return (*found, "the index keys of sparse attention") if number(inner, "index_head_dim") else found


def _gdn(inner: dict[str, Any], numbers: tuple[int, ...]) -> StateShape | None:
    heads, head_dim = number(inner, "linear_num_value_heads"), number(inner, "linear_value_head_dim")
    groups, state_size = number(inner, "linear_num_key_heads"), number(inner, "linear_key_head_dim")
    if not (heads and head_dim and groups and state_size):
        return None
    return StateShape(
        kind="gdn",
        layers=len(numbers),
        inner_size=heads * head_dim,
        groups=groups,
        state_size=state_size,
        conv_columns=_columns(inner, "linear_conv_kernel_dim"),
        heads=heads,
        head_dim=head_dim,
        numbers=numbers,
    )


def _kda(inner: dict[str, Any], numbers: tuple[int, ...]) -> StateShape | None:
    linear = inner.get("linear_attn_config")
    if not isinstance(linear, dict):
        return None
    heads, head_dim = number(linear, "num_heads"), number(linear, "head_dim")
    if not (heads and head_dim):
        return None
    return StateShape(
        kind="kda",
        layers=len(numbers),
        inner_size=heads * head_dim,
        groups=heads,
        state_size=head_dim,
        conv_columns=_columns(linear, "short_conv_kernel_size"),
        heads=heads,
        head_dim=head_dim,
        numbers=numbers,
    )


def _columns(config: dict[str, Any], key: str) -> int:
    """
    What a convolution keeps of each channel: one less than its kernel, which is 4 where nothing is said.
    """
    return max(1, (number(config, key) or 4) - 1)


def _mamba2(inner: dict[str, Any], numbers: tuple[int, ...]) -> StateShape | None:
    heads = number(inner, "mamba_num_heads") or number(inner, "mamba_n_heads")
    head_dim = number(inner, "mamba_head_dim") or number(inner, "mamba_d_head")
    state_size = number(inner, "ssm_state_size") or number(inner, "mamba_d_state")
    if not (heads and head_dim and state_size):
        return None
    return StateShape(
        kind="mamba2",
        layers=len(numbers),
        inner_size=heads * head_dim,
        groups=number(inner, "n_groups") or number(inner, "mamba_n_groups") or 1,
        state_size=state_size,
        conv_columns=_columns(inner, "conv_kernel" if "conv_kernel" in inner else "mamba_d_conv"),
        heads=heads,
        head_dim=head_dim,
        numbers=numbers,
    )
