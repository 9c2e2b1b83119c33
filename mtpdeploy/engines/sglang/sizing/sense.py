"""
Values and models of which nothing sensible can be worked out.
"""

from msgspec import Struct

from mtpdeploy.core.memory import Seen, Weights
from mtpdeploy.core.model import ModelShape
from mtpdeploy.core.server import ServerSpec
from mtpdeploy.core.units import gib
from mtpdeploy.engines.sglang.limits import ANY, RANGES

MOST: dict[str, int] = {
    "mem_fraction_static": 1,
    "mamba_full_memory_ratio": 1_000_000,
    "max_running_requests": 1_000_000,
    "max_mamba_cache_size": 10_000_000,
    "max_total_tokens": 10_000_000_000,
    "chunked_prefill_size": 1 << 24,
    "max_prefill_tokens": 1 << 24,
    "context_length": 1 << 30,
    "page_size": 65_536,
    "tp_size": 4096,
    "pp_size": 4096,
    "dp_size": 4096,
    "ep_size": 4096,
    "speculative_num_steps": 1000,
    "speculative_eagle_topk": 1000,
    "speculative_num_draft_tokens": 10_000,
    "cuda_graph_max_bs_decode": 65_536,
    "cuda_graph_max_bs_prefill": 1 << 24,
    "mamba_track_interval": 1 << 30,
    "linear_replayssm_cache_len": 1 << 20,
    "hicache_size": 1_000_000,
    "hicache_ratio": 10_000,
}
"""
Numbers from which memory is worked out, and the largest that any machine there is could have use for.

The least that a flag takes stands in `limits`.
"""

LEAST_SHARE = 8
"""Parameters to a byte of weights at most: no format of SGLang's stores one bit of each."""

KNOWN = (
    "Bailing",
    "Cohere",
    "Deepseek",
    "Ernie4_5",
    "FalconH1",
    "Gemma",
    "Glm",
    "GptOss",
    "Granite",
    "HunYuan",
    "InternLM",
    "JetNemotron",
    "Kimi",
    "Lfm2",
    "Llama",
    "MiMo",
    "MiniMax",
    "Ministral",
    "Mistral",
    "Mixtral",
    "NemotronH",
    "Olmo",
    "Phi",
    "Qwen",
)
"""Beginnings of architectures whose layers the general rules describe (models/, 0.5.23)."""


class Nonsense(Struct, frozen=True):
    """
    A flag's value that cannot be, and what can.
    """

    flag: str
    value: object
    allowed: str


def nonsense(server: ServerSpec) -> tuple[Nonsense, ...]:
    """
    The values of a server that cannot be on any machine.
    """
    found = []
    for flag, most in MOST.items():
        value, takes = server.number(flag), RANGES.get(flag, ANY)
        # Not a number is within nothing.
        if value is not None and not (takes.holds(value) and value <= most):
            found.append(
                Nonsense(flag, server.flags[flag], ", ".join(filter(None, (takes.lower, f"up to {most:,}"))))
            )
    return tuple(found)


def without_nonsense(server: ServerSpec) -> ServerSpec:
    """
    The server with SGLang's own values in place of those that cannot be.
    """
    found = nonsense(server)
    return server.with_flags(**{one.flag: None for one in found}) if found else server


def is_understood(model: ModelShape) -> bool:
    """
    Whether what the pools of a model are made of is known: nothing of a guessed shape rules a start out.
    """
    return is_known(model) and not model.unread and not model.guessed


def is_known(model: ModelShape) -> bool:
    """
    Whether the model is of a family that the rules are known to describe.
    """
    return model.architecture.startswith(KNOWN)


def guessed_weights(model: ModelShape) -> tuple[str, ...]:
    """
    What of a model's weights is a guess where they are worked out from its config.json, in sentences.
    """
    if is_known(model):
        return model.parameters.guessed
    return (*model.parameters.guessed, f"what else `{model.architecture}` has of weights is not counted")


def guesses(model: ModelShape, weights: Weights, seen: Seen | None) -> tuple[str, ...]:
    """
    What of a plan is a guess, in sentences: one alone makes every verdict uncertain.
    """
    found = list(model.guessed)
    if seen is None or seen.weights is None:
        found += guessed_weights(model) if weights.target is None else _implausible(model, weights.target)
    return tuple(dict.fromkeys(found))


def _implausible(model: ModelShape, target: int) -> tuple[str, ...]:
    """
    Weights of less than a quarter of four bits each: a checkpoint that is a part of one, or another model's.
    """
    described = model.parameters.target
    if target * LEAST_SHARE >= described:
        return ()
    meant = f"the {described / 1e9:.3g} billion parameters that config.json describes"
    return (f"the weights are {gib(target)}, too little for {meant}",)
