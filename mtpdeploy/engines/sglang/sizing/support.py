"""
Models that a release does not know, or that cannot be divided among so many GPUs: seen before any weights.
"""

from mtpdeploy.core.diagnosis import Cause
from mtpdeploy.engines.sglang.sizing.asked import Asked
from mtpdeploy.engines.sglang.sizing.pools import Refusal

SINCE = {
    "Qwen3_5ForConditionalGeneration": (0, 5, 9),
    "Qwen3_5ForCausalLM": (0, 5, 17),
}
"""
The first release that has an architecture, where it is not in all of 0.5.6-0.5.23 (models/ of each wheel).
"""

VOCABULARY_PADDING = 64
"""What a vocabulary is filled up to a multiple of (vocab_parallel_embedding.py, 0.5.6-0.5.23)."""


def unknown_architecture(asked: Asked) -> Refusal | None:
    """
    The error of a release that came before the model's architecture (models/registry.py, 0.5.6-0.5.23).
    """
    name = asked.model.architecture
    if asked.release >= SINCE.get(name, (0,)):
        return None
    return Refusal(Cause.MODEL_UNSUPPORTED, f"Model architectures ['{name}'] are not supported for now.")


def indivisible(asked: Asked) -> Refusal | None:
    """
    The error where GPUs cannot share a model out: its vocabulary, its heads, the heads of its states.

    Heads of keys and values are repeated where there are fewer than GPUs, if they come out even. The
    vocabulary is divided among all GPUs, but not with attention of several workers (distributed/utils.py
    and models/, 0.5.6-0.5.23).
    """
    model, tp = asked.model, asked.attn_tp
    padded = -(-model.vocab_size // VOCABULARY_PADDING) * VOCABULARY_PADDING
    if asked.attn_dp == 1 and padded % tp:
        return Refusal(Cause.PARALLEL_SHAPE, f"{padded} is not divisible by {tp}")
    state = model.state
    if state is not None and state.heads % tp:
        return Refusal(Cause.PARALLEL_SHAPE, f"{state.heads} is not divisible by {tp}")
    more, fewer = max(model.kv_heads, tp), min(model.kv_heads, tp)
    if model.heads % tp or (not model.latent_size and more % fewer):
        return Refusal(Cause.PARALLEL_SHAPE, "AssertionError")
    return None
