"""
What rungs change that is not about the size of memory: strategies, backends, the speculative flags.

Every function takes the server, the verdict and the SGLang version, and returns the conceded server, or
None where there is nothing to give. Flags bear the names of the newest release.
"""

from collections.abc import Callable

from mtpdeploy.core.diagnosis import BEFORE_KERNELS, Cause, Stage, Verdict
from mtpdeploy.core.server import ServerSpec
from mtpdeploy.engines.sglang.versions import Version, parse_version

Change = Callable[[ServerSpec, Verdict, str], ServerSpec | None]

NEWEST = (9999,)
"""Stands for a development build, whose version tells nothing: it is taken for newer than any release."""

STRATEGY = "mamba_radix_cache_strategy"
"""The state strategy's newest name (0.5.14); `mamba_scheduler_strategy` before."""

BACKENDS = ("prefill_attention_backend", "decode_attention_backend", "speculative_draft_attention_backend")
"""Flags that each override attention_backend for a part (0.5.7-0.5.23, server_args.py)."""

PTXAS = "/usr/local/cuda/bin/ptxas"
"""Where CUDA's images and packages put it (triton-lang/triton issue 8539)."""

BUILD_JOBS = "2"
"""The default is one a core: 18 on one box, more than 61 GB of memory on another (public reports, 15)."""

WATCHDOG_SECONDS = 1800
"""SGLang itself recommends 1800 s where kernels are built during a warm-up (0.5.9, environ.py)."""


AFTER_GRAPHS_BEGUN = (
    Stage.GRAPHS_BEGUN,
    Stage.GRAPHS_CAPTURED,
    Stage.DRAFT_BEGUN,
    Stage.DRAFT_LOADED,
    Stage.SIZED,
    Stage.LISTENING,
    Stage.READY,
)
"""Stages at which graphs exist, the draft's among them up to 0.5.13."""


def release(version: str) -> tuple[int, ...]:
    """
    The release numbers of a version, to be compared: `0.5.12.post1` gives (0, 5, 12).
    """
    parsed: Version | None = parse_version(version)
    return NEWEST if parsed is None else parsed.release


def extra_buffer(server: ServerSpec, verdict: Verdict, version: str) -> ServerSpec | None:
    """
    The strategy that MTP with the radix cache needs; 0.5.10 needs speculation V2 switched on for it.

    0.5.6 has no strategies, and without the radix cache there is nothing to choose.
    """
    del verdict
    if release(version) < (0, 5, 7) or server.flags.get("disable_radix_cache"):
        return None
    conceded = server.with_flags(**{STRATEGY: "extra_buffer"})
    if release(version) == (0, 5, 10) and server.mtp is not None:
        conceded = conceded.with_env(SGLANG_ENABLE_SPEC_V2="1")
    return _unless_same(server, conceded)


def no_buffer(server: ServerSpec, verdict: Verdict, version: str) -> ServerSpec | None:
    """
    The strategy with fewer state slots a request, and what the version demands with it.

    0.5.14 on: no overlap scheduler (3 slots instead of 5). Before that, with MTP: no radix cache (1
    slot), which excludes the hierarchical cache. Where the radix cache is off already, the strategy is
    all there is to change.
    """
    now = release(version)
    if now < (0, 5, 7) or server.flags.get(STRATEGY) == "no_buffer":
        return None
    if server.flags.get("disable_radix_cache"):
        answers = verdict.cause in (Cause.STRATEGY_NEEDS_RADIX, Cause.EXTRA_BUFFER_UNSUPPORTED)
        return server.with_flags(**{STRATEGY: "no_buffer"}) if answers else None
    if now >= (0, 5, 14):
        return server.with_flags(**{STRATEGY: "no_buffer"}, disable_overlap_schedule=True)
    if server.flags.get("enable_hierarchical_cache") and server.mtp is not None:
        return None
    off = True if server.mtp is not None else None
    return server.with_flags(**{STRATEGY: "no_buffer"}, disable_radix_cache=off)


def no_radix_cache(server: ServerSpec, verdict: Verdict, version: str) -> ServerSpec | None:
    """
    No prefix cache: one state slot a request (1.5). It excludes the hierarchical cache.

    From 0.5.10 to 0.5.13 extra_buffer is refused without the radix cache, so the strategy goes with it.
    """
    if server.flags.get("disable_radix_cache") or server.flags.get("enable_hierarchical_cache"):
        return None
    if _before_kernels(verdict):
        return None
    strategy = server.flags.get(STRATEGY)
    drop = (0, 5, 10) <= release(version) <= (0, 5, 13) and strategy not in (None, "no_buffer")
    return server.with_flags(disable_radix_cache=True, **{STRATEGY: None if drop else strategy})


def no_overlap(server: ServerSpec, verdict: Verdict, version: str) -> ServerSpec | None:
    """
    What no_buffer with the radix cache needs from 0.5.14 on.
    """
    del verdict, version
    return _unless_same(server, server.with_flags(disable_overlap_schedule=True))


def triton_attention(server: ServerSpec, verdict: Verdict, version: str) -> ServerSpec | None:
    """
    Triton's attention everywhere; without a CUDA toolkit also torch's sampling, which builds nothing.

    Triton itself needs gcc and the Python headers, so where those are missing it cannot help.
    """
    del version
    if "C compiler" in verdict.proof or "Python.h" in verdict.proof or _before_kernels(verdict):
        return None
    changes: dict[str, str | None] = dict.fromkeys(name for name in BACKENDS if name in server.flags)
    changes["attention_backend"] = "triton"
    if verdict.cause is Cause.TOOLCHAIN_MISSING:
        changes["sampling_backend"] = "pytorch"
    return _unless_same(server, server.with_flags(**changes))


def page_size_one(server: ServerSpec, verdict: Verdict, version: str) -> ServerSpec | None:
    """
    The page size that the prefix cache of a hybrid model asks for, where a backend leaves the choice.
    """
    del version
    if "isinstance" in verdict.proof:  # the backend's own pages, whatever the flag says (issue 14527)
        return None
    return _unless_same(server, server.with_flags(page_size=1))


def plain_linear_attention(server: ServerSpec, verdict: Verdict, version: str) -> ServerSpec | None:
    """
    Triton's linear attention without the flags that ask more of it: what is refused, or else what is given.
    """
    del version
    if "replayssm" in verdict.proof:
        asking = [name for name in server.flags if "replayssm" in name]
        return server.with_flags(**dict.fromkeys(asking)) if asking else None
    asking = [name for name in server.flags if name.startswith("linear_attn_")]
    if not asking and verdict.cause is Cause.EXTRA_BUFFER_UNSUPPORTED:
        return None
    changes: dict[str, str | None] = dict.fromkeys(asking)
    return _unless_same(server, server.with_flags(**{**changes, "linear_attn_backend": "triton"}))


def no_decode_graphs(server: ServerSpec, verdict: Verdict, version: str) -> ServerSpec | None:
    """
    Decoding without CUDA graphs: slow, but it runs no captured kernel. Up to 0.5.13 no graphs at all.
    """
    given = ("disable_cuda_graph", "disable_decode_cuda_graph")
    if verdict.figures.get("capturing_prefill") or any(server.flags.get(name) for name in given):
        return None
    if verdict.stage is not None and verdict.stage not in AFTER_GRAPHS_BEGUN:
        return None
    if release(version) < (0, 5, 14):
        return server.with_flags(disable_cuda_graph=True)
    return _unless_same(server, server.with_flags(cuda_graph_backend_decode="disabled"))


def full_precision_state(server: ServerSpec, verdict: Verdict, version: str) -> ServerSpec | None:
    """
    The recurrent state in 32 bits again, where it was narrowed.
    """
    del verdict, version
    if server.flags.get("mamba_ssm_dtype") in (None, "float32"):
        return None
    return server.with_flags(mamba_ssm_dtype="float32")


def fitting_draft_tokens(server: ServerSpec, verdict: Verdict, version: str) -> ServerSpec | None:
    """
    No more draft tokens than the tree of steps and top-k holds.
    """
    del verdict, version
    mtp = server.mtp
    if mtp is None or mtp.num_draft_tokens is None or mtp.num_steps is None:
        return None
    fits = mtp.num_steps * (mtp.eagle_topk or 1) + 1
    return server.with_flags(speculative_num_draft_tokens=fits) if mtp.num_draft_tokens > fits else None


def unquantized_draft(server: ServerSpec, verdict: Verdict, version: str) -> ServerSpec | None:
    """
    The draft as its checkpoint has it, not in the target's quantisation (the flag exists from 0.5.7).
    """
    del verdict
    name = "speculative_draft_model_quantization"
    if server.mtp is None or release(version) < (0, 5, 7):
        return None
    return _unless_same(server, server.with_flags(**{name: "unquant"}))


def no_weight_offload(server: ServerSpec, verdict: Verdict, version: str) -> ServerSpec | None:
    """
    All weights on the GPU.
    """
    del verdict, version
    asking = [n for n in server.flags if n == "cpu_offload_gb" or n.startswith("offload_")]
    return server.with_flags(**dict.fromkeys(asking)) if asking else None


def no_custom_all_reduce(server: ServerSpec, verdict: Verdict, version: str) -> ServerSpec | None:
    """
    NCCL alone between the GPUs, which needs no direct access to each other's memory.
    """
    del verdict, version
    return _unless_same(server, server.with_flags(disable_custom_all_reduce=True))


def system_ptxas(server: ServerSpec, verdict: Verdict, version: str) -> ServerSpec | None:
    """
    The CUDA toolkit's own ptxas, which knows the cards that it was made for.
    """
    del verdict, version
    return _unless_same(server, server.with_env(TRITON_PTXAS_PATH=PTXAS))


def fewer_build_jobs(server: ServerSpec, verdict: Verdict, version: str) -> ServerSpec | None:
    """
    Two compilers at a time instead of one for each core.
    """
    del verdict, version
    return None if "MAX_JOBS" in server.env else server.with_env(MAX_JOBS=BUILD_JOBS)


def without_balance_check(server: ServerSpec, verdict: Verdict, version: str) -> ServerSpec | None:
    """
    Start on GPUs with unequal free memory: the pools are made for the fullest one. Renamed in 0.5.7.
    """
    del verdict
    if release(version) < (0, 5, 7):
        return _unless_same(server, server.with_env(SGL_DISABLE_TP_MEMORY_INBALANCE_CHECK="1"))
    return _unless_same(server, server.with_env(SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK="0"))


def without_idle_check(server: ServerSpec, verdict: Verdict, version: str) -> ServerSpec | None:
    """
    A warning instead of an end where the idle server counts its pools (0.5.6-0.5.23, environ.py).
    """
    del version
    if "memory leak detected" not in verdict.proof:
        return None
    return _unless_same(server, server.with_env(SGLANG_ENABLE_STRICT_MEM_CHECK_DURING_IDLE="0"))


def complete_speculative_flags(server: ServerSpec, verdict: Verdict, version: str) -> ServerSpec | None:
    """
    Fill in what is missing of steps, top-k and draft tokens: 3/1/4, or around what is given.
    """
    del verdict, version
    mtp = server.mtp
    if mtp is None:
        return None
    topk = mtp.eagle_topk or 1
    steps = mtp.num_steps or (max(1, mtp.num_draft_tokens - 1) if mtp.num_draft_tokens else 3)
    conceded = server.with_flags(
        speculative_num_steps=steps,
        speculative_eagle_topk=topk,
        speculative_num_draft_tokens=mtp.num_draft_tokens or steps + 1,
    )
    return _unless_same(server, conceded)


def topk_one(server: ServerSpec, verdict: Verdict, version: str) -> ServerSpec | None:
    """
    A draft without branches, which every version and backend takes.
    """
    del verdict, version
    mtp = server.mtp
    if mtp is None or mtp.eagle_topk in (None, 1):
        return None
    steps = mtp.num_steps or 3
    return server.with_flags(
        speculative_num_steps=steps, speculative_eagle_topk=1, speculative_num_draft_tokens=steps + 1
    )


def drop_track_interval(server: ServerSpec, verdict: Verdict, version: str) -> ServerSpec | None:
    """
    The default interval (256), or where that is in use already, the default page size.
    """
    del verdict, version
    name = "mamba_track_interval" if "mamba_track_interval" in server.flags else "page_size"
    return _unless_same(server, server.with_flags(**{name: None}))


def shorter_context(server: ServerSpec, verdict: Verdict, version: str) -> ServerSpec | None:
    """
    The context length that SGLang derived from the model and printed.
    """
    del version
    derived = verdict.figures.get("derived_context_length")
    asked = server.number("context_length")
    if derived is None or asked is None or asked <= derived:
        return None
    return server.with_flags(context_length=int(derived))


def longer_watchdog(server: ServerSpec, verdict: Verdict, version: str) -> ServerSpec | None:
    """
    Time for kernels that are built inside a forward.
    """
    del verdict, version
    if (server.number("watchdog_timeout") or 0) >= WATCHDOG_SECONDS:
        return None
    return server.with_flags(watchdog_timeout=WATCHDOG_SECONDS)


def without_cudnn_check(server: ServerSpec, verdict: Verdict, version: str) -> ServerSpec | None:
    """
    Start in spite of an old cuDNN; the switch exists from 0.5.7 to 0.5.9.
    """
    del verdict
    if not (0, 5, 7) <= release(version) <= (0, 5, 9):
        return None
    return _unless_same(server, server.with_env(SGLANG_DISABLE_CUDNN_CHECK="1"))


def without_mtp(server: ServerSpec, verdict: Verdict, version: str) -> ServerSpec | None:
    """
    No speculation at all, where the server's table allows that.
    """
    del version
    if server.mtp is None or not server.allow_without_mtp or _before_kernels(verdict):
        return None
    return server.with_flags(**dict.fromkeys(n for n in server.flags if n.startswith("speculative_")))


def _before_kernels(verdict: Verdict) -> bool:
    """
    Whether a crash came before anything that a concession exchanges had run.
    """
    return verdict.cause is Cause.CUDA_FAULT and verdict.stage in BEFORE_KERNELS


def _unless_same(server: ServerSpec, conceded: ServerSpec) -> ServerSpec | None:
    return None if conceded == server else conceded
