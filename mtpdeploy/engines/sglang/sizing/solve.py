"""
The best configuration for a wish: the one that gives up least and is predicted to fit.

What costs nothing is solved for (`mem_fraction_static`, `max_running_requests`, `max_mamba_cache_size`); what
costs something is tried in all combinations, cheapest first.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

from msgspec import Struct

from mtpdeploy.core.diagnosis import Cause
from mtpdeploy.core.memory import Fit, Forecast
from mtpdeploy.core.server import ServerSpec, changes
from mtpdeploy.core.units import counted
from mtpdeploy.core.wish import Concession, Solution, Unsolved, Wish
from mtpdeploy.engines.sglang.concessions import STRATEGY, release

FRACTIONS = tuple(round(0.30 + 0.005 * step, 3) for step in range(136))
"""Values of mem_fraction_static that are tried, 0.30 to 0.975: steps of half a GiB on a 96 GB card."""

MOST_REQUESTS = 4096
"""SGLang runs no more by itself (model_executor/model_runner.py, 0.5.6-0.5.23: min(max(…, 2048), 4096))."""

ROOMY = 0.9
"""A fraction that leaves pools most of a card, and graphs some of it."""

SPARE_SLOTS = 1
"""Slots beyond those of the running requests: with none a prefix cannot be copied (catalogue, number 15)."""

Predict = Callable[[ServerSpec], Forecast | None]


class _Lever(Struct, frozen=True):
    """
    Flags that are changed together, what that costs in words, and how dear it is against the others.
    """

    flags: dict[str, Any]
    costs: str = ""
    weight: int = 0


class _Found(Struct, frozen=True):
    server: ServerSpec
    forecast: Forecast
    levers: tuple[_Lever, ...]
    requests: int

    @property
    def weight(self) -> int:
        return _weight(self.levers)


AS_ASKED = _Lever({})

MOST_MENDS = 6
"""Refusals that are answered one after the other: there are not more kinds."""

DRAFT = (3, 1, 4)
"""Steps, top-k and draft tokens where only some of them are given: what most public starts of MTP use."""

OF_HOST_POOLS = (
    Cause.HICACHE_UNSUPPORTED,
    Cause.HICACHE_NEEDS_RADIX,
    Cause.HOST_MEMORY,
    Cause.HOST_OOM_KILLED,
    Cause.HOST_POOL_TOO_SMALL,
)
"""Refusals that end with the hierarchical cache."""

KINDS = {"state": 5, "kv": 5}
"""How dear what touches the quality of answers is, against speed (1 a step) and caching (3 and 4)."""


def solve(
    server: ServerSpec, version: str, predict: Predict, asked: Forecast, wish: Wish
) -> Solution | Unsolved:
    """
    The configuration that gives up least among those that fulfil a wish, or why none does.

    `asked` is what `predict` says of the server itself. One that fits goes before one that is close; where no
    number of requests is wanted, one that runs more of them before a cheaper one only if it is not dearer.
    """
    longest = asked.verdict_figures.get("derived_context_length")
    if longest and wish.context and wish.context > longest:
        return Unsolved(f"the model's own context is {longest:,.0f} tokens", asked)
    mended, mends = _mended(server, predict)
    if (mended.number("context_length") or wish.context or 0) < (wish.context or 0):
        lengthened = _Lever({"context_length": wish.context})
        mended, mends = mended.with_flags(**lengthened.flags), (*mends, lengthened)
    best: _Found | None = None
    for levers in sorted(_combinations(mended, version), key=_weight):
        if best is not None and best.forecast.fit is Fit.FITS and _weight(levers) > best.weight:
            break
        found = _try(mended, predict, wish, levers)
        if found is not None and (best is None or _rank(found, wish) < _rank(best, wish)):
            best = found
    if best is None:
        return Unsolved(_why_not(mended, version, predict, wish), asked)
    return Solution(best.server, best.forecast, _concessions(server, best, mends), asked)


def _why_not(server: ServerSpec, version: str, predict: Predict, wish: Wish) -> str:
    """
    What keeps the configuration that comes nearest from fulfilling a wish.
    """
    nearest: Forecast | None = None
    for levers in _combinations(server, version):
        levered = _levered(server, predict, levers)
        tried = levered and levered.sized(wish.requests or 1, ROOMY)
        if tried and (nearest is None or _nearness(tried[1]) > _nearness(nearest)):
            nearest = tried[1]
    if nearest is None:
        return "nothing can be predicted"
    if nearest.error is not None or nearest.fit is Fit.DOES_NOT_FIT:
        return f"even with every concession: {nearest.reason}"
    requests = counted(nearest.max_running_requests, "request", "requests")
    return f"even with every concession {requests} and {nearest.kv_tokens:,} tokens are the most"


def _nearness(forecast: Forecast) -> tuple[bool, bool, int, int]:
    return (
        forecast.error is None,
        forecast.fit is not Fit.DOES_NOT_FIT,
        forecast.max_running_requests,
        forecast.kv_tokens,
    )


def _mended(server: ServerSpec, predict: Predict) -> tuple[ServerSpec, tuple[_Lever, ...]]:
    """
    The server without what the release refuses whatever the memory, and what mended it.

    Asked with one request and most of the card, so that no want of memory hides another refusal.
    """
    mends: tuple[_Lever, ...] = ()
    for _ in range(MOST_MENDS):
        roomy = server.with_flags(
            max_running_requests=1, mem_fraction_static=ROOMY, max_mamba_cache_size=None
        )
        forecast = predict(roomy)
        mend = _mend(server, forecast) if forecast is not None and forecast.error is not None else None
        if mend is None:
            break
        server, mends = server.with_flags(**mend.flags), (*mends, mend)
    return server, mends


def _mend(server: ServerSpec, forecast: Forecast) -> _Lever | None:
    """
    What answers a refusal that is not about the memory of the GPU, where something does.
    """
    match forecast.cause:
        case Cause.ATTENTION_BACKEND if server.flags.get("attention_backend") != "triton":
            return _Lever({"attention_backend": "triton"}, "the speed of other attention kernels")
        case Cause.CONTEXT_TOO_LONG if "context_length" in server.flags:
            return _Lever({"context_length": None}, "context beyond the model's own")
        case Cause.TRACK_INTERVAL if "mamba_track_interval" in server.flags:
            return _Lever({"mamba_track_interval": None}, "the wanted spacing of saved states")
        case Cause.SPEC_INCOMPLETE:
            flags = ("speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens")
            return _Lever(dict(zip(flags, DRAFT, strict=True)))
        case cause if cause in OF_HOST_POOLS and server.flags.get("enable_hierarchical_cache"):
            shaping = [name for name in server.flags if name.startswith("hicache_")]
            dropped = dict.fromkeys(["enable_hierarchical_cache", *shaping])
            return _Lever(dropped, "the prefix cache in host memory")
        case _:
            return None


def _weight(levers: tuple[_Lever, ...]) -> int:
    return sum(lever.weight for lever in levers)


def _rank(found: _Found, wish: Wish) -> tuple[int, int, int, int]:
    close = 0 if found.forecast.fit is Fit.FITS else 1
    requests = -found.requests if wish.requests is None else 0
    return close, found.weight, requests, -found.forecast.kv_tokens


def _combinations(server: ServerSpec, version: str) -> Iterator[tuple[_Lever, ...]]:
    era = release(version)
    kinds = (_strategies(server, era), _states(server), _caches(server), _drafts(server), _graphs(server))
    yield from product(*kinds)


def _strategies(server: ServerSpec, era: tuple[int, ...]) -> tuple[_Lever, ...]:
    if era < (0, 5, 7):
        return (AS_ASKED, _Lever({"disable_radix_cache": True}, "the prefix cache", 4))
    speculative = server.mtp is not None
    found = [AS_ASKED, _Lever({STRATEGY: "extra_buffer"}, "", 0)]
    if era >= (0, 5, 17) or (era >= (0, 5, 13) and not speculative):
        found.append(_Lever({STRATEGY: "extra_buffer_lazy"}, "some hits of the prefix cache", 1))
    if era >= (0, 5, 14):
        changed = {STRATEGY: "no_buffer", "disable_overlap_schedule": True}
        found.append(_Lever(changed, "the overlap scheduler, and with it throughput", 3))
    if not server.flags.get("enable_hierarchical_cache"):
        changed = {STRATEGY: "no_buffer", "disable_radix_cache": True}
        found.append(_Lever(changed, "the prefix cache", 4))
    return tuple(found)


def _states(server: ServerSpec) -> tuple[_Lever, ...]:
    if server.flags.get("mamba_ssm_dtype") in ("bfloat16", "float16"):
        return (AS_ASKED,)
    costs = "some precision of the recurrent state"
    return (AS_ASKED, _Lever({"mamba_ssm_dtype": "bfloat16"}, costs, KINDS["state"]))


def _caches(server: ServerSpec) -> tuple[_Lever, ...]:
    if str(server.flags.get("kv_cache_dtype") or "auto").startswith("fp"):
        return (AS_ASKED,)
    costs = "some precision of keys and values"
    return (AS_ASKED, _Lever({"kv_cache_dtype": "fp8_e4m3"}, costs, KINDS["kv"]))


def _drafts(server: ServerSpec) -> tuple[_Lever, ...]:
    mtp = server.mtp
    if mtp is None or mtp.algorithm.upper() not in ("EAGLE", "EAGLE3", "NEXTN") or (mtp.eagle_topk or 1) > 1:
        return (AS_ASKED,)
    asked = mtp.num_steps or 3
    fewer = [
        _Lever(
            {
                "speculative_num_steps": steps,
                "speculative_eagle_topk": 1,
                "speculative_num_draft_tokens": steps + 1,
            },
            f"drafts of more than {steps} {'token' if steps == 1 else 'tokens'}",
            2 * (asked - steps),
        )
        for steps in range(asked - 1, 0, -1)
    ]
    return (AS_ASKED, *fewer)


def _graphs(server: ServerSpec) -> tuple[_Lever, ...]:
    if server.flags.get("disable_cuda_graph"):
        return (AS_ASKED,)
    return (AS_ASKED, _Lever({"cuda_graph_max_bs_decode": 8}, "speed of batches above 8", 2))


class _Levered(Struct, frozen=True):
    """
    A server with some levers, what forecasts it, and how many state slots a request of it has (0: unlimited).
    """

    server: ServerSpec
    predict: Predict
    slots: int

    def sized(self, requests: int, fraction: float) -> tuple[ServerSpec, Forecast] | None:
        """
        The server with a number of requests and just the state slots that they need.
        """
        changed = self.server.with_flags(mem_fraction_static=fraction, max_running_requests=requests)
        if self.slots:
            changed = changed.with_flags(max_mamba_cache_size=requests * self.slots + SPARE_SLOTS)
        forecast = self.predict(changed)
        return None if forecast is None else (changed, forecast)


def _try(server: ServerSpec, predict: Predict, wish: Wish, levers: tuple[_Lever, ...]) -> _Found | None:
    """
    The most requests that these levers allow, or those wanted: surely, else closely.
    """
    levered, sizes = _levered(server, predict, levers), _sizes(server, wish)
    if levered is None or not _enough(levered.sized(sizes[-1], FRACTIONS[-1]), wish, sizes[-1]):
        return None
    for fitting in (_surely, _closely):
        found = _most(sizes, functools.partial(fitting, levered, wish))
        if found is not None:
            return _Found(*found[1], levers, found[0])
    return None


def _levered(server: ServerSpec, predict: Predict, levers: tuple[_Lever, ...]) -> _Levered | None:
    changed = server.with_flags(**{name: value for lever in levers for name, value in lever.flags.items()})
    plain = predict(changed)
    if plain is None:
        return None
    keeps_states = plain.figures.get("state_slot_gib") and not changed.flags.get("disable_radix_cache")
    return _Levered(changed, predict, plain.slots_per_request if keeps_states else 0)


def _sizes(server: ServerSpec, wish: Wish) -> Sequence[int]:
    """
    The numbers of requests that may be had, the most first: those wanted, else as many as possible; who
    only wants tokens keeps what was asked.
    """
    if wish.requests:
        return [wish.requests]
    asked = server.number("max_running_requests")
    most = int(asked) if asked and wish.tokens and not wish.context else MOST_REQUESTS
    return range(most, 0, -1)


def _most(
    sizes: Sequence[int], fitting: Callable[[int], tuple[ServerSpec, Forecast] | None]
) -> tuple[int, tuple[ServerSpec, Forecast]] | None:
    """
    The first of falling sizes that fits, where those after it do, too.
    """
    low, high, found = 0, len(sizes), None
    while low < high:
        middle = (low + high) // 2
        tried = fitting(sizes[middle])
        if tried is None:
            low = middle + 1
        else:
            high, found = middle, (sizes[middle], tried)
    return found


def _surely(levered: _Levered, wish: Wish, requests: int) -> tuple[ServerSpec, Forecast] | None:
    """
    The server for so many requests at the largest fraction that leaves room for graphs in any case.
    """
    fraction = _last(lambda f: _leaves_room(levered.sized(requests, f)))
    tried = None if fraction is None else levered.sized(requests, fraction)
    return tried if _enough(tried, wish, requests) else None


def _closely(levered: _Levered, wish: Wish, requests: int) -> tuple[ServerSpec, Forecast] | None:
    """
    The server for so many requests at the smallest fraction whose pools suffice, unless graphs cannot fit.
    """
    fraction = _first(lambda f: _enough(levered.sized(requests, f), wish, requests))
    tried = None if fraction is None else levered.sized(requests, fraction)
    return tried if tried is not None and tried[1].fit is not Fit.DOES_NOT_FIT else None


def _last(holds: Callable[[float], bool]) -> float | None:
    """
    The last fraction for which something holds that holds up to a point.
    """
    low, high = 0, len(FRACTIONS)
    while low < high:
        middle = (low + high) // 2
        if holds(FRACTIONS[middle]):
            low = middle + 1
        else:
            high = middle
    return FRACTIONS[low - 1] if low else None


def _first(holds: Callable[[float], bool]) -> float | None:
    """
    The first fraction for which something holds that holds from a point on.
    """
    last = _last(lambda fraction: not holds(fraction))
    at = 0 if last is None else FRACTIONS.index(last) + 1
    return FRACTIONS[at] if at < len(FRACTIONS) else None


def _leaves_room(tried: tuple[ServerSpec, Forecast] | None) -> bool:
    """
    Whether what stands beside the pools surely fits; pools that are refused leave all the room there is.
    """
    if tried is None:
        return False
    forecast = tried[1]
    return forecast.error is not None or forecast.cause in (None, Cause.OOM_KV_POOL)


def _enough(tried: tuple[ServerSpec, Forecast] | None, wish: Wish, requests: int) -> bool:
    return tried is not None and _suffices(tried[1], wish, requests)


def _suffices(forecast: Forecast, wish: Wish, requests: int) -> bool:
    if forecast.error is not None:
        return False
    return forecast.max_running_requests >= requests and forecast.kv_tokens >= wish.needed_tokens(requests)


def _concessions(server: ServerSpec, found: _Found, mends: tuple[_Lever, ...]) -> tuple[Concession, ...]:
    costs = {name: lever.costs for lever in (*mends, *found.levers) for name in lever.flags}
    return tuple(
        Concession(str(change), costs.get(change.field, "")) for change in changes(server, found.server)
    )
