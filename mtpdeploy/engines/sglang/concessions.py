"""
What rungs change that is not about the size of memory: strategies, backends, the speculative flags.

Every function takes the server, the verdict and the SGLang version, and returns the conceded server, or
None where there is nothing to give. Flags bear the names of the newest release.
"""

from collections.abc import Callable

from mtpdeploy.core.diagnosis import Cause, Verdict
from mtpdeploy.core.server import ServerSpec
from mtpdeploy.engines.sglang.flag_table import Version, parse_version

Change = Callable[[ServerSpec, Verdict, str], ServerSpec | None]

NEWEST = (9999,)
"""Stands for a development build, whose version tells nothing: it is taken for newer than any release."""

STRATEGY = "mamba_radix_cache_strategy"
"""The state strategy's newest name (0.5.14); `mamba_scheduler_strategy` before."""

BACKENDS = ("prefill_attention_backend", "decode_attention_backend", "speculative_draft_attention_backend")
"""Flags that each override attention_backend for a part (0.5.7-0.5.23, server_args.py)."""

WATCHDOG_SECONDS = 1800
"""SGLang itself recommends 1800 s where kernels are built during a warm-up (0.5.9, environ.py)."""


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
        answers = verdict.cause is Cause.STRATEGY_NEEDS_RADIX
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
    del verdict
    if server.flags.get("disable_radix_cache") or server.flags.get("enable_hierarchical_cache"):
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
    if "C compiler" in verdict.proof or "Python.h" in verdict.proof:
        return None
    changes: dict[str, str | None] = dict.fromkeys(name for name in BACKENDS if name in server.flags)
    changes["attention_backend"] = "triton"
    if verdict.cause is Cause.TOOLCHAIN_MISSING:
        changes["sampling_backend"] = "pytorch"
    return _unless_same(server, server.with_flags(**changes))


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
    del verdict, version
    if server.mtp is None or not server.allow_without_mtp:
        return None
    return server.with_flags(**dict.fromkeys(n for n in server.flags if n.startswith("speculative_")))


def _unless_same(server: ServerSpec, conceded: ServerSpec) -> ServerSpec | None:
    return None if conceded == server else conceded
