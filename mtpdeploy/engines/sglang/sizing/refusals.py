"""
What a release refuses before it sizes anything, as far as it bears on memory: fast, but a wasted attempt.

From server_args.py (0.5.6-0.5.13) and arg_groups/ (0.5.14-0.5.23); sglang-facts 3, numbers 22 to 40, and 65.
"""

from mtpdeploy.core.diagnosis import Cause
from mtpdeploy.core.server import ServerSpec
from mtpdeploy.engines.sglang.concessions import STRATEGY
from mtpdeploy.engines.sglang.sizing.asked import Asked
from mtpdeploy.engines.sglang.sizing.pools import Refusal
from mtpdeploy.engines.sglang.sizing.strategy import is_on, takes_extra_buffer
from mtpdeploy.engines.sglang.sizing.support import indivisible, unknown_architecture

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
    refusal = unknown_architecture(asked)
    if refusal is not None:
        return refusal
    checks = (_context, _strategy, _tracking, _incomplete, _topk, _caches, _replay)
    for check in checks:
        refusal = check(asked, server)
        if refusal is not None:
            return refusal
    return _backend(asked, server, capability) or indivisible(asked)


def _incomplete(asked: Asked, server: ServerSpec) -> Refusal | None:
    """
    Without steps nothing else may be given; top-k 1 completes the draft tokens, and only top-k 1.
    """
    mtp = server.mtp
    if mtp is None or asked.algorithm not in ("EAGLE", "EAGLE3", "STANDALONE"):
        return None
    if mtp.num_steps is None:
        if mtp.eagle_topk is None and mtp.num_draft_tokens is None:
            return None
        return Refusal(Cause.SPEC_INCOMPLETE, "AssertionError")
    if mtp.eagle_topk is None:
        text = "'>' not supported between instances of 'NoneType' and 'int'"
        return Refusal(Cause.SPEC_INCOMPLETE, text)
    if mtp.eagle_topk > 1 and mtp.num_draft_tokens is None:
        return Refusal(Cause.SPEC_INCOMPLETE, "AssertionError")
    return None


def _replay(asked: Asked, server: ServerSpec) -> Refusal | None:
    if not asked.replay:
        return None
    if (server.number("speculative_eagle_topk") or 1) > 1:
        text = (
            "--enable-linear-replayssm-spec requires a linear draft chain (--speculative-eagle-topk in "
            "{None, 1})"
        )
        return Refusal(Cause.BAD_ARGUMENT, text)
    if server.flags.get("enable_linear_replayssm"):
        text = "--enable-linear-replayssm-spec and --enable-linear-replayssm are mutually exclusive"
        return Refusal(Cause.BAD_ARGUMENT, text)
    state = asked.model.state
    per_request = state is not None and state.kind != "kda" and asked.release >= (0, 5, 20)
    if per_request and asked.max_running_requests is None:
        text = "unsupported operand type(s) for //: 'NoneType' and 'int'"
        return Refusal(Cause.BAD_ARGUMENT, text)
    return None


def _topk(asked: Asked, server: ServerSpec) -> Refusal | None:
    if asked.topk > 1 and "trtllm_mha" in _attention(server):
        text = "trtllm_mha backend only supports topk = 1 for speculative decoding."
        return Refusal(Cause.SPEC_TOPK, text)
    given = server.number("speculative_eagle_topk") or 1
    if given > 1 and asked.overlap and (0, 5, 7) <= asked.release < (0, 5, 11):
        text = "Spec v2 currently only supports topk = 1 for speculative decoding."
        return Refusal(Cause.SPEC_TOPK, text)
    return None


def _context(asked: Asked, server: ServerSpec) -> Refusal | None:
    if asked.context_length <= asked.model.context_length:
        return None
    if is_on(server.env.get("SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN")):
        return None
    text = (
        f"Warning: User-specified context_length ({asked.context_length}) is greater than the derived "
        f"context_length ({asked.model.context_length}). This may lead to incorrect model outputs or CUDA "
        "errors."
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
    if asked.model.state is None:
        return None
    tracked = asked.strategy.startswith("extra_buffer")
    if tracked and (asked.radix or asked.release < (0, 5, 14)) and _untracked(asked, server):
        text = f"extra_buffer is not supported for {asked.model.architecture}; use no_buffer."
        return Refusal(Cause.BAD_ARGUMENT, text)
    if asked.release < (0, 5, 10):
        return None
    # SGLang looks at the draft tokens that are given here: its own are not chosen yet.
    drafting = asked.draft_tokens > 0 and server.number("speculative_num_draft_tokens") is not None
    if asked.release >= (0, 5, 14):
        return _strategy_from_0_5_14(asked, server, drafting=drafting)
    return _strategy_before_0_5_14(asked, drafting=drafting)


def _untracked(asked: Asked, server: ServerSpec) -> bool:
    return not takes_extra_buffer(server, asked.model, asked.release)


def _strategy_before_0_5_14(asked: Asked, *, drafting: bool) -> Refusal | None:
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
    if asked.strategy == "extra_buffer_lazy" and drafting:
        text = "extra_buffer_lazy is not yet supported with speculative decoding."
        return Refusal(Cause.LAZY_WITHOUT_MTP, text)
    return _lazily(asked)


def _strategy_from_0_5_14(asked: Asked, server: ServerSpec, *, drafting: bool) -> Refusal | None:
    if not asked.radix:
        return None
    if asked.strategy == "no_buffer":
        if asked.page_size != 1:
            return Refusal(Cause.BAD_ARGUMENT, "no_buffer only supports page_size=1.")
        if asked.overlap and server.flags.get(STRATEGY) == "no_buffer":
            text = "no_buffer do not support overlap schedule. Try to set disable_overlap_schedule=True."
            return Refusal(Cause.STRATEGY_NEEDS_NO_OVERLAP, text)
        return None
    without = asked.release < (0, 5, 17) or (asked.release < (0, 5, 18) and asked.algorithm == "DFLASH")
    if asked.strategy == "extra_buffer_lazy" and drafting and without:
        return Refusal(Cause.LAZY_WITHOUT_MTP, "extra_buffer_lazy unsupported with spec.")
    return _lazily(asked)


def _lazily(asked: Asked) -> Refusal | None:
    """
    A lazy buffer is half of one that overlaps; the slots of a request cannot be told without (0.5.13-0.5.23).
    """
    if asked.strategy != "extra_buffer_lazy" or asked.overlap:
        return None
    text = "Lazy extra buffer requires overlap schedule (--disable-overlap-schedule is incompatible)"
    return Refusal(Cause.BAD_ARGUMENT, text)


def _tracking(asked: Asked, server: ServerSpec) -> Refusal | None:
    """
    The spacing of saved states against the draft tokens that are given, and the pages; silent from 0.5.14 on.
    """
    if not asked.strategy.startswith("extra_buffer") or (asked.release >= (0, 5, 14) and not asked.radix):
        return None
    interval = int(server.number("mamba_track_interval") or TRACK_INTERVAL)
    drafts = int(server.number("speculative_num_draft_tokens") or 0)
    if interval < drafts:
        text = (
            f"mamba_track_interval {interval} must be greater than or equal to speculative_num_draft_tokens "
            f"{drafts}"
        )
    elif interval % asked.page_size:
        text = f"mamba_track_interval {interval} must be divisible by page_size {asked.page_size}"
    else:
        return None
    return Refusal(Cause.TRACK_INTERVAL, text if asked.release < (0, 5, 14) else "AssertionError")


def _backend(asked: Asked, server: ServerSpec, capability: str) -> Refusal | None:
    state = asked.model.state
    major = capability.partition(".")[0]
    if state is None or state.kind != "gdn" or not major.isdigit() or int(major) < 10:
        return None
    allowed = next(names for before, names in GDN_BACKENDS if asked.release < before or before == (9999,))
    # SGLang's own choice is Triton on compute capability 10, for which it has more kernels, else FlashInfer.
    wanted = _attention(server) or ["triton" if int(major) == 10 else "flashinfer"]
    wrong = [name for name in wanted if name not in allowed]
    if not wrong:
        return None
    text = (
        f"{', '.join(allowed)} are the only supported backends on Blackwell GPUs for hybrid GDN models "
        f"(here {wrong[0]})."
    )
    return Refusal(Cause.ATTENTION_BACKEND, text)


def _attention(server: ServerSpec) -> list[str]:
    """
    The attention backends that are given: each part's own goes before the one for all.
    """
    both = server.flags.get("attention_backend")
    parts = [server.flags.get(f"{part}_attention_backend") or both for part in ("decode", "prefill")]
    return [str(name) for name in parts if name]
