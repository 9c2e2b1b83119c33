"""
What is on one GPU before the pools: free memory, the target's weights, the draft's.
"""

from msgspec import Struct

from mtpdeploy.core.memory import Card, Seen, Weights
from mtpdeploy.core.model import ModelShape
from mtpdeploy.core.server import ServerSpec
from mtpdeploy.core.units import GIB, MIB
from mtpdeploy.engines.sglang.sizing.asked import WITHOUT_DRAFT_MODEL, Asked
from mtpdeploy.engines.sglang.sizing.division import Loads
from mtpdeploy.engines.sglang.sizing.reserve import CONTEXT_BYTES, CONTEXT_UNCERTAINTY
from mtpdeploy.engines.sglang.sizing.sense import guessed_weights

FULL_BITS = 16
"""Bits of a weight that is not quantized."""

HALVING = ("fp8", "mxfp8", "w8a8_fp8", "w8a8_int8")
"""Values of `quantization` that make one byte of each two of a layer's weights as they load."""

HALVED_UNCERTAINTY = 0.1
"""
Share of the weights by which halving them may be off: scales are added, and some layers are left as they are.
"""

UNKNOWN = 1.0
"""The same where nothing is known of what is made of the weights: no verdict rests on their size."""

RESHAPING = (
    "torchao_config",
    "quantize_and_serve",
    "offload_group_size",
    "ple_offload_embedding",
    "language_only",
    "language_model_only",
)
"""Flags that change what of the weights lies on the GPU in ways that are not worked out here."""

READ_OTHERWISE = ("bitsandbytes", "gguf")
"""Values of `load_format` that quantize, or read what no safetensors header tells."""


class Changed(Struct, frozen=True):
    """
    What flags make of the target's weights as they load.

    `offloaded` bytes lie in host memory, of each GPU's part; `halved` says that the layers take half of what
    the files have. `uncertainty` is a share of the weights, and `because` the flag that it is for.
    """

    offloaded: int = 0
    halved: bool = False
    uncertainty: float = 0.0
    because: str = ""


def changed_weights(asked: Asked, server: ServerSpec) -> Changed:
    """
    What a server's flags make of the target's weights.

    `cpu_offload_gb` counts in 2**30 bytes, for each process (model_executor/model_runner.py, 0.5.6-0.5.23),
    and moves weights of layers only.
    """
    offloaded = int((server.number("cpu_offload_gb") or 0) * GIB)
    quantization = str(server.flags.get("quantization") or "")
    if quantization in HALVING and asked.model.weight_bits == FULL_BITS:
        return Changed(offloaded, True, HALVED_UNCERTAINTY, "quantization")
    unknown = [name for name in RESHAPING if server.flags.get(name)]
    if quantization and asked.model.weight_bits == FULL_BITS:
        unknown.append("quantization")
    if server.flags.get("load_format") in READ_OTHERWISE:
        unknown.append("load_format")
    return Changed(offloaded, False, UNKNOWN if unknown else 0.0, "".join(unknown[:1]))


def weight_notes(model: ModelShape, changed: Changed, weights: Weights, seen: Seen | None) -> tuple[str, ...]:
    """
    What a plan has to say about weights that nobody has seen as they loaded.
    """
    if seen is not None and seen.weights is not None:
        return ()
    found = []
    if weights.target is None:
        sure = ", a guess" if guessed_weights(model) else ", within some 5 %"
        found.append(f"the weights' size is worked out from config.json{sure}")
    if changed.halved:
        found.append(f"`{changed.because}` halves the layers' weights as they load, within some 10 %")
    elif changed.because:
        found.append(f"not planned: what `{changed.because}` makes of the weights")
    return tuple(found)


def unsure_bytes(changed: Changed, loads: Loads, seen: Seen | None) -> int:
    """
    How far the weights may be off for what is made of them; nothing once they were seen.
    """
    if seen is not None and seen.weights is not None:
        return 0
    return int(changed.uncertainty * loads.weights)


def read_loads(asked: Asked, changed: Changed, card: Card, weights: Weights, seen: Seen | None) -> Loads:
    """
    What the target and its draft take of one GPU, and what is free before them.
    """
    ranks = asked.tp * asked.pp
    known = seen or Seen()
    free = _free(card, known.free)
    parameters, model = asked.model.parameters, asked.model
    target = known.weights or _target_bytes(model, changed, weights) // ranks
    if known.weights is None:
        target -= min(changed.offloaded, _layer_bytes(model, changed) // ranks, target)
    if not asked.draft_tokens or asked.algorithm in WITHOUT_DRAFT_MODEL:
        return Loads(free=free, weights=target)
    table = parameters.table * 2 // asked.tp
    draft = known.draft
    if draft is None:
        draft = weights.draft if weights.draft is not None else draft_bytes(model)
        draft //= asked.tp
    shares = model.mtp_layers > 0 and draft > 2 * table
    return Loads(free=free, weights=target, draft=draft, draft_kept=draft - 2 * table if shares else draft)


def _target_bytes(model: ModelShape, changed: Changed, weights: Weights) -> int:
    stored = weights.target if weights.target is not None else model_bytes(model)
    return max(0, stored - model.parameters.layers) if changed.halved else stored


def _layer_bytes(model: ModelShape, changed: Changed) -> int:
    return int(model.parameters.layers * model.weight_bits / (16 if changed.halved else 8))


def _free(card: Card, seen: int | None) -> int:
    """
    What is free before the weights: as told, else as seen earlier unless today's memory speaks against it.
    """
    if card.free is not None:
        return card.free
    whole = (card.total_mib - card.reserved_mib) * MIB
    estimate = max(0, (whole if card.unused is None else card.unused) - CONTEXT_BYTES)
    same = seen is not None and (card.unused is None or abs(seen - estimate) <= CONTEXT_UNCERTAINTY)
    return seen if seen is not None and same else estimate


def is_estimated(loads: Loads, card: Card, seen: Seen | None) -> bool:
    """
    Whether the free memory was neither told nor seen.
    """
    return loads.free not in (card.free, seen.free if seen else None)


def model_bytes(model: ModelShape) -> int:
    """
    The target's weights, worked out from its shape: tables and vision in two bytes, layers as quantized.
    """
    parameters = model.parameters
    tables = parameters.table * (1 if model.tied else 2)
    return (tables + parameters.vision) * 2 + int(parameters.layers * model.weight_bits / 8)


def draft_bytes(model: ModelShape) -> int:
    """
    What the draft of multi-token prediction takes as it loads: its layers and two tables, all in two bytes.
    """
    return (model.parameters.draft + 2 * model.parameters.table) * 2
