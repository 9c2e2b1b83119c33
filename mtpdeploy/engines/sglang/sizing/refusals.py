"""
What a release refuses before it sizes anything, as far as it bears on memory: fast, but a wasted attempt.

From server_args.py (0.5.6-0.5.13) and arg_groups/ (0.5.14-0.5.23); sglang-facts 3, numbers 22 to 40, and 65.
"""

from mtpdeploy.core.diagnosis import Cause
from mtpdeploy.core.server import ServerSpec
from mtpdeploy.engines.sglang.concessions import STRATEGY
from mtpdeploy.engines.sglang.sizing.asked import Asked, is_on
from mtpdeploy.engines.sglang.sizing.pools import Refusal

TRACK_INTERVAL = 256
"""mamba_track_interval where none is given (0.5.7-0.5.23)."""

GDN_BACKENDS = (
    ((0, 5, 10), ("triton", "trtllm_mha")),
    ((0, 5, 16), ("triton", "trtllm_mha", "fa4", "flashinfer")),
    ((9999,), ("triton", "trtllm_mha", "flashinfer")),
)
"""Attention backends for hybrid GDN models on compute capability 10 and above, before each release."""


def refused_arguments(asked: Asked, server: ServerSpec, capability: str = "") -> Refusal | None:
    """
    The error with which the release refuses these arguments, or None.

    `capability` is the card's compute capability, as nvidia-smi prints it ("12.0"); "" where unknown.
    """
    checks = (_incomplete, _topk, _context, _caches, _strategy, _tracking)
    for check in checks:
        refusal = check(asked, server)
        if refusal is not None:
            return refusal
    return _backend(asked, server, capability)


def _incomplete(asked: Asked, server: ServerSpec) -> Refusal | None:
    mtp = server.mtp
    if mtp is None or asked.algorithm not in ("EAGLE", "EAGLE3", "STANDALONE"):
        return None
    given = [mtp.num_steps, mtp.eagle_topk, mtp.num_draft_tokens]
    if all(value is None for value in given) or all(value is not None for value in given):
        return None
    return Refusal(Cause.SPEC_INCOMPLETE, "AssertionError")


def _topk(asked: Asked, server: ServerSpec) -> Refusal | None:
    del server
    if asked.topk > 1 and asked.overlap and (0, 5, 7) <= asked.release < (0, 5, 11):
        text = "Spec v2 currently only supports topk = 1 for speculative decoding."
        return Refusal(Cause.SPEC_TOPK, text)
    return None


def _context(asked: Asked, server: ServerSpec) -> Refusal | None:
    if asked.context_length <= asked.model.context_length:
        return None
    if is_on(server.env.get("SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN")):
        return None
    text = (
        f"User-specified context_length ({asked.context_length}) is greater than the derived context_length "
        f"({asked.model.context_length})."
    )
    return Refusal(Cause.CONTEXT_TOO_LONG, text)


def _caches(asked: Asked, server: ServerSpec) -> Refusal | None:
    if not server.flags.get("enable_hierarchical_cache") or asked.radix:
        return None
    text = (
        "The arguments enable-hierarchical-cache and disable-radix-cache are mutually exclusive and cannot "
        "be used at the same time."
    )
    return Refusal(Cause.HICACHE_NEEDS_RADIX, text)


def _strategy(asked: Asked, server: ServerSpec) -> Refusal | None:
    if asked.model.state is None or asked.release < (0, 5, 10):
        return None
    if asked.release >= (0, 5, 14):
        return _strategy_from_0_5_14(asked, server)
    return _strategy_before_0_5_14(asked)


def _strategy_before_0_5_14(asked: Asked) -> Refusal | None:
    if asked.strategy == "no_buffer":
        if not (asked.draft_tokens and asked.radix):
            return None
        text = (
            f"Speculative decoding for {asked.model.architecture} is not compatible with radix cache when "
            "using --mamba-scheduler-strategy no_buffer."
        )
        return Refusal(Cause.STRATEGY_NEEDS_EXTRA_BUFFER, text)
    if not asked.radix:
        text = "mamba extra_buffer is not compatible with --disable-radix-cache"
        return Refusal(Cause.STRATEGY_NEEDS_RADIX, text)
    if asked.strategy == "extra_buffer_lazy" and asked.draft_tokens:
        text = "extra_buffer_lazy is not yet supported with speculative decoding."
        return Refusal(Cause.LAZY_WITHOUT_MTP, text)
    return None


def _strategy_from_0_5_14(asked: Asked, server: ServerSpec) -> Refusal | None:
    if not asked.radix:
        return None
    if asked.strategy == "no_buffer":
        if asked.page_size != 1:
            return Refusal(Cause.BAD_ARGUMENT, "no_buffer only supports page_size=1.")
        if asked.overlap and server.flags.get(STRATEGY) == "no_buffer":
            text = "no_buffer do not support overlap schedule. Try to set disable_overlap_schedule=True."
            return Refusal(Cause.STRATEGY_NEEDS_NO_OVERLAP, text)
        return None
    if asked.strategy == "extra_buffer_lazy" and asked.draft_tokens and asked.release < (0, 5, 17):
        return Refusal(Cause.LAZY_WITHOUT_MTP, "extra_buffer_lazy unsupported with spec.")
    return None


def _tracking(asked: Asked, server: ServerSpec) -> Refusal | None:
    if not asked.strategy.startswith("extra_buffer") or not asked.radix:
        return None
    interval = int(server.number("mamba_track_interval") or TRACK_INTERVAL)
    if interval < asked.draft_tokens:
        text = (
            f"mamba_track_interval {interval} must be greater than or equal to speculative_num_draft_tokens "
            f"{asked.draft_tokens}"
        )
        return Refusal(Cause.TRACK_INTERVAL, text)
    if interval % asked.page_size:
        text = f"mamba_track_interval {interval} must be divisible by page_size {asked.page_size}"
        return Refusal(Cause.TRACK_INTERVAL, text)
    return None


def _backend(asked: Asked, server: ServerSpec, capability: str) -> Refusal | None:
    state = asked.model.state
    major = capability.partition(".")[0]
    if state is None or state.kind != "gdn" or not major.isdigit() or int(major) < 10:
        return None
    allowed = next(names for before, names in GDN_BACKENDS if asked.release < before or before == (9999,))
    flags = ("decode_attention_backend", "prefill_attention_backend", "attention_backend")
    wanted = [str(value) for name in flags if (value := server.flags.get(name))] or ["flashinfer"]
    wrong = [name for name in wanted if name not in allowed]
    if not wrong:
        return None
    text = (
        f"{', '.join(allowed)} are the only supported backends on Blackwell GPUs for hybrid GDN models "
        f"(here {wrong[0]})."
    )
    return Refusal(Cause.ATTENTION_BACKEND, text)
