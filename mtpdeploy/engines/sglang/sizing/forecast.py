"""
The forecast of one start: the pools, what stands beside them, and whether it all fits.
"""

from msgspec import Struct, structs

from mtpdeploy.core.diagnosis import Cause
from mtpdeploy.core.memory import Card, Fit, Forecast, Line, Seen, Weights
from mtpdeploy.core.model import ModelShape
from mtpdeploy.core.server import ServerSpec
from mtpdeploy.core.units import GIB, MIB
from mtpdeploy.engines.sglang.flag_table import column_for
from mtpdeploy.engines.sglang.sizing.asked import Asked, read_asked
from mtpdeploy.engines.sglang.sizing.division import UNNAMED_BYTES, Loads, least_free
from mtpdeploy.engines.sglang.sizing.explain import reason
from mtpdeploy.engines.sglang.sizing.hicache import HOST_RESERVE, Host, host_bytes, refused_host_pools
from mtpdeploy.engines.sglang.sizing.loads import (
    changed_weights,
    is_estimated,
    read_loads,
    unsure_bytes,
    weight_notes,
)
from mtpdeploy.engines.sglang.sizing.pools import Pools, Refusal, refused_loads, size_pools
from mtpdeploy.engines.sglang.sizing.refusals import refused_arguments
from mtpdeploy.engines.sglang.sizing.reserve import (
    CONTEXT_UNCERTAINTY,
    UNCERTAINTY,
    WORKSPACE_BYTES,
    graph_bytes,
    needed_bytes,
    target_graph_bytes,
)
from mtpdeploy.engines.sglang.sizing.sense import (
    guesses,
    is_known,
    is_understood,
    nonsense,
    without_nonsense,
)
from mtpdeploy.engines.sglang.sizing.state import conv_bytes, slots_per_request, ssm_bytes
from mtpdeploy.engines.sglang.sizing.strategy import is_on
from mtpdeploy.engines.sglang.versions import parse_version

WEIGHTS_UNCERTAINTY = 0.05
"""Share by which weights worked out from a shape may be off: 0.2 to 0.9 % of three bf16 models in logs, more
where layers are quantized in part."""


def forecast(
    server: ServerSpec,
    model: ModelShape,
    version: str,
    card: Card,
    weights: Weights,
    seen: Seen | None = None,
) -> Forecast:
    """
    Say what SGLang of this version will make of a server on a card, without starting it.
    """
    given, server = server, without_nonsense(server)
    asked = read_asked(server, model, version, card.total_mib)
    changed = changed_weights(asked, server)
    loads = read_loads(asked, changed, card, weights, seen)
    pools = size_pools(asked, loads)
    refusal = (
        refused_arguments(asked, server, card.capability) or refused_loads(asked, loads) or pools.refusal
    )
    host = Host(card.host_free, card.host_limit)
    refusal = refusal or refused_host_pools(asked, server, pools, host)
    needed, uncertainty = needed_bytes(asked, pools.requests, seen)
    left = _left_by(pools, loads)
    least = least_free(asked, loads)
    margin = -card.total_mib * MIB if least is None else loads.free - least
    unsure = _input_uncertainty(card, weights, loads, seen) + unsure_bytes(changed, loads, seen)
    judged = _Judged(asked, loads, pools, refusal, left, needed, uncertainty + unsure, margin, unsure)
    guessed = guesses(model, weights, seen)
    fit, cause = _as_guessed(*_fit(judged)) if guessed else _fit(judged)
    tightest, pinned = _tightest(judged), host_bytes(asked, server, pools, host)
    result = Forecast(
        version=version,
        fit=fit,
        reason="",
        total=card.total_mib * MIB,
        free=loads.free,
        lines=_lines(judged, card),
        mem_fraction_static=asked.mem_fraction_static,
        error=None if refusal is None else refusal.text,
        cause=cause,
        max_mamba_cache_size=pools.slots,
        slots_per_request=slots_per_request(asked),
        max_running_requests=pools.requests,
        kv_tokens=pools.tokens,
        left=left,
        needed=needed,
        needed_uncertainty=judged.uncertainty,
        pool_margin=margin,
        graph_margin=tightest.left,
        graph_uncertainty=tightest.uncertainty,
        host_needed=pinned,
        figures=_figures(judged),
        verdict_figures=_verdict_figures(judged, card),
        notes=(
            *_notes(asked, given, card, guessed, estimated=is_estimated(loads, card, seen)),
            *weight_notes(asked.model, changed, weights, seen),
            *_host_notes(pinned, card),
        ),
    )
    return structs.replace(result, reason=reason(asked, loads, pools, result, guessed))


def _left_by(pools: Pools, loads: Loads) -> int:
    if pools.refusal is not None:
        return 0
    return loads.free - loads.weights - loads.draft_kept - UNNAMED_BYTES - pools.total


UNPLANNED = (
    "enable_linear_replayssm",
    "enable_int8_mamba_checkpoint",
    "enable_unified_memory",
    "enable_page_major_kv_layout",
)
"""Switches whose memory is not worked out here; a plan says so."""


OF_POOLS = (Cause.OOM_KV_POOL, Cause.OOM_STATE_POOL)
OF_MEMORY = (*OF_POOLS, Cause.OOM_WEIGHTS, Cause.OOM_DRAFT_WEIGHTS, Cause.OOM_POOLS, Cause.OOM_GRAPHS)
OF_LOADS_AND_POOLS = (*OF_POOLS, Cause.OOM_WEIGHTS, Cause.OOM_DRAFT_WEIGHTS)
"""Causes of refusals that a little more memory could mend."""


class _Judged(Struct, frozen=True):
    asked: Asked
    loads: Loads
    pools: Pools
    refusal: Refusal | None
    left: int
    needed: int
    uncertainty: int
    pool_margin: int
    unsure: int


def _fit(judged: _Judged) -> tuple[Fit, Cause | None]:
    """
    Whether it fits, and the cause of the failure that is expected.
    """
    if judged.refusal is not None:
        cause = judged.refusal.cause
        near = cause in OF_LOADS_AND_POOLS and -judged.pool_margin < judged.unsure
        guessed = cause in OF_POOLS and not is_understood(judged.asked.model)
        return Fit.CLOSE if near or guessed else Fit.DOES_NOT_FIT, cause
    for room in _rooms(judged):
        if room.left < room.uncertainty:
            return Fit.DOES_NOT_FIT if room.left < -room.uncertainty else Fit.CLOSE, room.cause
    if judged.pool_margin < judged.unsure:
        return Fit.CLOSE, Cause.OOM_KV_POOL
    return Fit.FITS, None


def _as_guessed(fit: Fit, cause: Cause | None) -> tuple[Fit, Cause | None]:
    """
    The verdict where what it rests on is a guess: only what has nothing to do with a model's size stands.
    """
    sized = cause is None or cause in (*OF_MEMORY, Cause.CONTEXT_TOO_LONG)
    return (Fit.CLOSE if sized else fit), cause


class _Room(Struct, frozen=True):
    """
    What is left at some point of a start, how far that may be off, and what it is a failure of.
    """

    left: int
    uncertainty: int
    cause: Cause


def _rooms(judged: _Judged) -> list[_Room]:
    """
    The points of a start at which memory is shortest, in their order.
    """
    graphs = _Room(judged.left - judged.needed, judged.uncertainty, Cause.OOM_GRAPHS)
    draft = _beside_the_draft(judged)
    return [graphs] if draft is None else [draft, graphs]


def _tightest(judged: _Judged) -> _Room:
    """
    Where memory is shortest; nowhere where there are no pools.
    """
    if judged.pools.refusal is not None:
        return _Room(0, 0, Cause.OOM_GRAPHS)
    return min(_rooms(judged), key=lambda room: room.left)


def _beside_the_draft(judged: _Judged) -> _Room | None:
    """
    The draft holds tables that it shares later until its own pool is made.

    To 0.5.13 it is loaded after the target's pools and graphs, from 0.5.14 on before any pool.
    """
    asked, loads = judged.asked, judged.loads
    if not loads.draft:
        return None
    left = judged.left + loads.draft_kept - loads.draft
    if asked.release >= (0, 5, 14):
        return _Room(left, judged.unsure, Cause.OOM_POOLS)
    before = target_graph_bytes(asked, judged.pools.requests) + WORKSPACE_BYTES
    return _Room(left - before, int(UNCERTAINTY * before) + judged.unsure, Cause.OOM_DRAFT_WEIGHTS)


def _input_uncertainty(card: Card, weights: Weights, loads: Loads, seen: Seen | None) -> int:
    """
    How far what the pools are worked out from may be off.
    """
    known = seen or Seen()
    unsure = UNNAMED_BYTES
    if is_estimated(loads, card, seen):
        unsure += CONTEXT_UNCERTAINTY
    if weights.target is None and known.weights is None:
        unsure += int(WEIGHTS_UNCERTAINTY * loads.weights)
    return unsure


def _lines(judged: _Judged, card: Card) -> tuple[Line, ...]:
    """
    The whole card, in the order in which SGLang claims it.
    """
    loads, pools, total = judged.loads, judged.pools, card.total_mib * MIB
    claimed = [Line("driver, context and others", total - loads.free), Line("weights", loads.weights)]
    if pools.refusal is not None:
        # To 0.5.13 the draft is loaded later, into what lies outside the pools.
        counted = loads.draft if judged.asked.release >= (0, 5, 14) else 0
        claimed += [
            Line("draft weights", counted),
            Line("outside the pools", int(loads.free * (1 - judged.asked.mem_fraction_static))),
            Line("draft states", max(0, pools.charged_drafts)),
        ]
    else:
        claimed += [
            Line("draft weights", loads.draft_kept),
            Line("recurrent state", pools.conv + pools.ssm),
            Line("draft states", pools.intermediate_ssm + pools.intermediate_conv + pools.ring),
            Line("keys and values", pools.keys + pools.values),
            Line("keys and values of the draft", pools.draft_kv),
            Line("request table", pools.table),
            Line("graphs and activations", judged.needed, judged.uncertainty, "estimated"),
        ]
    claimed.append(Line("other", UNNAMED_BYTES))
    rest = total - sum(line.amount for line in claimed)
    return (*(line for line in claimed if line.amount), Line("free" if rest >= 0 else "lacking", rest))


def _figures(judged: _Judged) -> dict[str, float]:
    pools = judged.pools
    refused = pools.refusal is not None
    slot = conv_bytes(judged.asked) + ssm_bytes(judged.asked)
    amounts = {
        "state_slot_gib": slot,
        "weights_gib": judged.loads.weights,
        "draft_gib": judged.loads.draft,
        "draft_kept_gib": judged.loads.draft_kept,
        "rest_gib": pools.rest,
        "charged_draft_states_gib": pools.charged_drafts,
    }
    if not refused:
        amounts |= {
            "conv_state_gib": pools.conv,
            "ssm_state_gib": pools.ssm,
            "intermediate_ssm_gib": pools.intermediate_ssm,
            "intermediate_conv_gib": pools.intermediate_conv,
            "replay_ring_gib": pools.ring,
            "kv_k_gib": pools.keys,
            "kv_v_gib": pools.values,
            "draft_kv_gib": pools.draft_kv,
            "request_table_gib": pools.table,
            "graphs_gib": int(graph_bytes(judged.asked, pools.requests)),
        }
    return {name: amount / GIB for name, amount in amounts.items()}


def _verdict_figures(judged: _Judged, card: Card) -> dict[str, float]:
    """
    What SGLang's own text would tell, under the names that readings give it (`matching.py`).
    """
    found = {
        "mem_fraction_static": judged.asked.mem_fraction_static,
        "derived_context_length": float(judged.asked.model.context_length),
    }
    if judged.pools.requests:
        found["effective_running_requests"] = float(judged.pools.requests)
    if judged.refusal is not None and judged.refusal.floor is not None:
        found["floor"] = judged.refusal.floor
    if card.host_free is not None:
        found["free_gb"] = max(0, card.host_free - HOST_RESERVE) / 1e9
    return found


def _notes(
    asked: Asked, server: ServerSpec, card: Card, guessed: tuple[str, ...], *, estimated: bool
) -> tuple[str, ...]:
    column, exact = column_for(parse_version(asked.version))
    found = [] if exact else [f"SGLang {asked.version} is not known here; planned as {column}"]
    if estimated:
        what = "the card's" if card.unused is None else "what is free now"
        found.append(f"memory free before the weights is estimated: {what} less a CUDA context")
    found += [f"a guess: {what}" for what in guessed]
    found += [
        f"`{one.flag}` cannot be {one.value}, planned as if it were not given" for one in nonsense(server)
    ]
    if not is_known(asked.model):
        found.append(
            f"`{asked.model.architecture}` is not known here; planned as its config.json describes it"
        )
    found += [f"not planned: what `{name}` takes" for name in UNPLANNED if server.flags.get(name)]
    if is_on(server.env.get("SGLANG_ENABLE_POST_CAPTURE_KV_SIZING")):
        found.append("not planned: pools that are sized after the graphs are captured")
    if asked.draft_tokens and asked.draft_path and not asked.model.mtp_layers:
        found.append("the draft model's own keys and values are not planned: its config.json is not here")
    found += [f"not planned: {what}" for what in asked.model.unread]
    return tuple(found)


def _host_notes(pinned: int, card: Card) -> tuple[str, ...]:
    if not pinned or card.host_free is not None:
        return ()
    what = f"the {pinned / 1e9:.1f} GB that the hierarchical cache pins"
    return (f"not checked: whether host memory has {what}; how much is free is not known here",)
