"""
What rungs change about memory: requests, fractions, caches, graphs, the recurrent state.

Every function takes the server, the verdict and the SGLang version, and returns the conceded server, or
None where there is nothing to give or where it could not help.
"""

import math
from collections.abc import Mapping

from mtpdeploy.core.diagnosis import Cause, Stage, Verdict
from mtpdeploy.core.ladder import NARROWEST
from mtpdeploy.core.server import ServerSpec
from mtpdeploy.engines.sglang.concessions import STRATEGY, release
from mtpdeploy.engines.sglang.server_args import POOLS, POOLS_DONE, STATE

FRACTION = "mem_fraction_static"

REQUESTS = (48, 16)
"""48 is SGLang's own choice with speculation (0.5.6-0.5.23); a third of it fits a 27B on 96 GB (1.12)."""

FEW_REQUESTS = (8, 4, 2, 1)
"""Halves of that, down to one."""

FRACTIONS = (0.85, 0.90, 0.93, 0.95)
"""Steps up; at 0.95 of a 96 GB card 2 to 8 GiB are left for graphs and activations (1.12)."""

HIGHEST_FRACTION = 0.97
"""Above it less than 3 GiB of a 96 GB card are left: graphs of the 27B alone take more (1.10)."""

LOWEST_FRACTION = 0.2
"""Nothing is proven below: a fraction this low has no room for weights."""

ABOVE_FLOOR = 0.02
"""The floor that SGLang quotes is for weights alone (1.8); 2 GiB of a 96 GB card go on top of it."""

STEP_DOWN = 0.03
"""Where the error gives no figures: 3 GiB of a 96 GB card, within the 0.02-0.05 of catalogue number 7."""

SPARE = 0.01
"""On top of what an allocation lacked: the next one is seldom the last."""

CHUNKS = (4096, 2048, 1024)
"""Halves of 8192, SGLang's chunk for a 96 GB card (1.2)."""

GRAPH_BATCH = 256
"""SGLang's largest captured batch for a 96 GB card (1.2)."""

SMALLEST_GRAPH_BATCH = 8
"""SGLang's own choice for the smallest cards (1.2)."""

STEPLESS = ("NGRAM", "DFLASH", "DSPARK", "UNO")
"""Algorithms that do not draft step by step, so that steps and tokens mean something else (section 4)."""

BEFORE_POOLS = (
    Stage.LAUNCHED,
    Stage.ARGUMENTS,
    Stage.WEIGHTS_BEGUN,
    Stage.WEIGHTS_LOADED,
    Stage.DRAFT_BEGUN,
)
"""Stages of the weights: up to 0.5.13 the draft's come later, and are no large part of them."""

HICACHE_RATIOS = (1.5, 1.2)
"""Below SGLang's 2.0 and above the 1.0 that 0.5.6-0.5.14 demand (1.9)."""


def computed_state_slots(server: ServerSpec, verdict: Verdict, version: str) -> ServerSpec | None:
    """
    Let SGLang compute how many state slots fit: a given number wins over memory from 0.5.7 on (1.6).
    """
    if "max_mamba_cache_size" not in server.flags or not _state_matters(server, verdict, version):
        return None
    return server.with_flags(max_mamba_cache_size=None)


def fewer_requests(server: ServerSpec, verdict: Verdict, version: str) -> ServerSpec | None:
    """
    48 requests, then 16: where their state is set aside whatever the memory.
    """
    return _requests(server, verdict, version, REQUESTS)


def fewest_requests(server: ServerSpec, verdict: Verdict, version: str) -> ServerSpec | None:
    """
    8, 4, 2, 1 requests.
    """
    return _requests(server, verdict, version, FEW_REQUESTS)


def more_static_memory(server: ServerSpec, verdict: Verdict, version: str) -> ServerSpec | None:
    """
    A higher fraction: the next step, or above the floor that SGLang quotes.
    """
    del version
    now = _fraction(server, verdict)
    wanted = next((step for step in FRACTIONS if now is None or step > now + NARROWEST), None)
    floor = verdict.figures.get("floor")
    if floor is not None and (now is None or floor >= now):
        above = math.ceil((floor + ABOVE_FLOOR) * 100 - 1e-9) / 100
        wanted = max(above, wanted or 0)
        if wanted > HIGHEST_FRACTION:
            wanted = HIGHEST_FRACTION if floor < HIGHEST_FRACTION - SPARE else None
    return None if wanted is None else server.with_flags(**{FRACTION: wanted})


def less_static_memory(server: ServerSpec, verdict: Verdict, version: str) -> ServerSpec | None:
    """
    A lower fraction: by what the failed allocation lacked, or by a step.

    For the draft's weights it helps up to 0.5.13 only, where they are loaded beside the pools (1.3); a log in
    which the pools came first is one of those.
    """
    beside = POOLS_DONE in verdict.figures or release(version) < (0, 5, 14)
    if verdict.cause is Cause.OOM_DRAFT_WEIGHTS and not beside:
        return None
    now = _fraction(server, verdict)
    wanted = None if now is None else lowered(now, verdict.figures)
    return None if wanted is None else server.with_flags(**{FRACTION: wanted})


def room_beside_pools(server: ServerSpec, verdict: Verdict, version: str) -> ServerSpec | None:
    """
    A lower fraction where the pools of the server itself are what fills a GPU before the draft is loaded.
    """
    return less_static_memory(server, verdict, version) if POOLS_DONE in verdict.figures else None


def smaller_hierarchical_cache(server: ServerSpec, verdict: Verdict, version: str) -> ServerSpec | None:
    """
    A host pool that fits what SGLang found free; from 0.5.10 to 0.5.16 the size is taken twice (1.9).
    """
    if not server.flags.get("enable_hierarchical_cache"):
        return None
    size = server.number("hicache_size") or 0
    if size > 0:
        free = verdict.figures.get("free_gb", size / 2)
        pools = 2 if (0, 5, 10) <= release(version) <= (0, 5, 16) else 1
        fits = math.floor(min(0.9 * free / pools, 0.9 * size))
        return server.with_flags(hicache_size=fits) if fits >= 1 else None
    ratio = server.number("hicache_ratio") or 2.0
    smaller = next((step for step in HICACHE_RATIOS if step < ratio), None)
    return None if smaller is None else server.with_flags(hicache_ratio=smaller)


def hierarchical_cache_by_ratio(server: ServerSpec, verdict: Verdict, version: str) -> ServerSpec | None:
    """
    A host pool measured by the device pool (twice it), which is never too small.
    """
    del verdict, version
    if not server.flags.get("enable_hierarchical_cache"):
        return None
    given = server.number("hicache_size") or (server.number("hicache_ratio") or 2.0) <= 1
    return server.with_flags(hicache_size=None, hicache_ratio=None) if given else None


def no_hierarchical_cache(server: ServerSpec, verdict: Verdict, version: str) -> ServerSpec | None:
    """
    No prefix cache in host memory, and none of the flags that shape it.

    What was killed for memory before the pools of the GPU were sized had not come to it yet (1.9).
    """
    del version
    if verdict.cause is Cause.HOST_OOM_KILLED and verdict.stage in BEFORE_POOLS:
        return None
    if not server.flags.get("enable_hierarchical_cache"):
        return None
    shaping = [name for name in server.flags if name.startswith("hicache_")]
    return server.with_flags(**dict.fromkeys(["enable_hierarchical_cache", *shaping]))


def smaller_prefill_chunk(server: ServerSpec, verdict: Verdict, version: str) -> ServerSpec | None:
    """
    Half the prompt at a time: activations grow with it.
    """
    del verdict, version
    now = server.number("chunked_prefill_size") or 8192
    smaller = next((chunk for chunk in CHUNKS if chunk < now), None)
    return None if smaller is None else server.with_flags(chunked_prefill_size=smaller)


def smaller_graph_batch(server: ServerSpec, verdict: Verdict, version: str) -> ServerSpec | None:
    """
    Decode graphs up to half the batch size, which starts from what is captured at all (1.10).

    It does nothing for the graphs of prefill, nor where decode graphs are off or listed one by one.
    """
    del version
    if verdict.figures.get("capturing_prefill") or _given(
        server, "disable_cuda_graph", "cuda_graph_bs_decode"
    ):
        return None
    requests = server.number("max_running_requests") or (48 if server.mtp else GRAPH_BATCH)
    running = min(requests, verdict.figures.get("effective_running_requests", requests))
    now = min(server.number("cuda_graph_max_bs_decode") or GRAPH_BATCH, running)
    if now <= SMALLEST_GRAPH_BATCH:
        return None
    return server.with_flags(cuda_graph_max_bs_decode=max(SMALLEST_GRAPH_BATCH, int(now // 2)))


def no_prefill_graphs(server: ServerSpec, verdict: Verdict, version: str) -> ServerSpec | None:
    """
    No graphs for prefill, about 3 GB (1.10). The flag exists from 0.5.14; hybrid models have such
    graphs by default from 0.5.16 (1.2), before that only where the log shows one being captured.
    """
    captured = bool(verdict.figures.get("capturing_prefill"))
    if release(version) < (0, 5, 14) or (release(version) < (0, 5, 16) and not captured):
        return None
    if _given(server, "disable_prefill_cuda_graph", "disable_cuda_graph"):
        return None
    if verdict.cause is Cause.GRAPHS_FAILED and not captured:
        return None
    if server.flags.get("cuda_graph_backend_prefill") == "disabled":
        return None
    return server.with_flags(cuda_graph_backend_prefill="disabled")


def bf16_state(server: ServerSpec, verdict: Verdict, version: str) -> ServerSpec | None:
    """
    The recurrent state in half the bytes (27B: 74.8 instead of 146.8 MiB a request, 1.4).
    """
    if server.flags.get("mamba_ssm_dtype") in ("bfloat16", "float16"):
        return None
    if not _state_matters(server, verdict, version):
        return None
    return server.with_flags(mamba_ssm_dtype="bfloat16")


def fewer_draft_tokens(server: ServerSpec, verdict: Verdict, version: str) -> ServerSpec | None:
    """
    One step less: every drafted token costs one more state a request.
    """
    mtp = server.mtp
    if mtp is None or mtp.algorithm.upper() in STEPLESS or (mtp.num_steps or 3) <= 1:
        return None
    if not _state_matters(server, verdict, version):
        return None
    steps = (mtp.num_steps or 3) - 1
    topk = mtp.eagle_topk or 1
    tokens = steps + 1 if topk == 1 else min(mtp.num_draft_tokens or steps + 1, steps * topk + 1)
    return server.with_flags(
        speculative_num_steps=steps, speculative_eagle_topk=topk, speculative_num_draft_tokens=tokens
    )


def half_the_requests(server: ServerSpec, verdict: Verdict, version: str) -> ServerSpec | None:
    """
    Half of the requests that ran at the same time, so that each finds tokens and a slot for its state.
    """
    del version
    asked = server.number("max_running_requests")
    ran = verdict.figures.get("effective_running_requests", asked or (48 if server.mtp else GRAPH_BATCH))
    now = int(min(ran, asked or ran))
    return server.with_flags(max_running_requests=now // 2) if now > 1 else None


def guess_less_static_memory(server: ServerSpec, verdict: Verdict, version: str) -> ServerSpec | None:
    """
    A step down where nobody knows what failed: room beside the pools is what new code asks for most.
    """
    del version
    now = _fraction(server, verdict)
    if now is None:
        return None
    wanted = round(now - STEP_DOWN, 3)
    return server.with_flags(**{FRACTION: wanted}) if wanted >= LOWEST_FRACTION else None


def lacking(figures: Mapping[str, float]) -> float:
    """
    By how much the fraction is too high, from `Tried to allocate … of which … is free`.

    The fraction is one of the memory that was free before the weights (1.3), where the log printed that, and
    else of the card.
    """
    asked, free = figures.get("asked_mib"), figures.get("free_mib")
    whole = figures.get("free_before_weights_gib", 0) * 1024 or figures.get("total_mib")
    if asked is None or free is None or not whole:
        return STEP_DOWN
    return max((asked - free) / whole, 0) + SPARE


def lowered(fraction: float, figures: Mapping[str, float]) -> float | None:
    """
    The highest fraction that leaves room for what failed, None where there is none: what was asked for is
    more than the fraction granted to all pools, more is lacking than they hold, or the weights alone take
    more than the lower fraction grants.
    """
    wanted = round(fraction - lacking(figures), 3)
    asked, free = figures.get("asked_mib", 0) / 1024, figures.get("free_mib", 0) / 1024
    before, weights = figures.get("free_before_weights_gib"), figures.get("weights_gib")
    if wanted < LOWEST_FRACTION or asked - free >= figures.get(POOLS, math.inf):
        return None
    if not before or not weights:
        return wanted
    granted = math.inf if POOLS_DONE in figures else fraction * before - weights
    return wanted if asked <= granted and wanted * before > weights else None


def _requests(
    server: ServerSpec, verdict: Verdict, version: str, steps: tuple[int, ...]
) -> ServerSpec | None:
    if not _state_matters(server, verdict, version):
        return None
    now = server.number("max_running_requests") or (48 if server.mtp else None)
    fewer = next((step for step in steps if now is None or step < now), None)
    return None if fewer is None else server.with_flags(max_running_requests=fewer)


def _state_matters(server: ServerSpec, verdict: Verdict, version: str) -> bool:
    """
    Whether less state can cure this verdict.

    For OOM_KV_POOL only where the state takes its share whatever the memory (1.6, 1.8): slots given by
    number (0.5.7 on), a slot for every request (radix cache off), or intermediate states of every
    request taken off the top (MTP, 0.5.7 to 0.5.12); and never where SGLang says that the weights
    alone are above the fraction. Pools without any recurrent state show a model that has none.
    """
    if verdict.cause is Cause.OOM_POOLS and verdict.figures.get(STATE) == 0:
        return False
    if verdict.cause is not Cause.OOM_KV_POOL:
        return True
    floor, now = verdict.figures.get("floor"), _fraction(server, verdict)
    if floor is not None and now is not None and floor > now:
        return False
    known = release(version)
    off_the_top = server.mtp is not None and (0, 5, 7) <= known <= (0, 5, 12)
    by_number = bool(server.number("max_mamba_cache_size")) and known >= (0, 5, 7)
    return off_the_top or by_number or _radix_off(server, version)


def _radix_off(server: ServerSpec, version: str) -> bool:
    """
    Whether the radix cache is off, given or by itself (MTP without extra_buffer in 0.5.9).
    """
    by_itself = (
        server.mtp is not None
        and release(version) == (0, 5, 9)
        and server.flags.get(STRATEGY) != "extra_buffer"
    )
    return bool(server.flags.get("disable_radix_cache")) or by_itself


def _fraction(server: ServerSpec, verdict: Verdict) -> float | None:
    given = server.number(FRACTION)
    return verdict.figures.get(FRACTION) if given is None else given


def _given(server: ServerSpec, *names: str) -> bool:
    return any(server.flags.get(name) for name in names)
