"""
The pools as SGLang will allocate them, or the error with which it refuses them.

From model_executor/model_runner*.py (0.5.6-0.5.16), mem_cache/kv_cache_configurator.py and memory_pool.py
(0.5.17-0.5.23). All bytes are on one GPU.
"""

import math

from msgspec import Struct

from mtpdeploy.core.diagnosis import Cause
from mtpdeploy.core.units import GIB, MIB
from mtpdeploy.engines.sglang.sizing.asked import Asked
from mtpdeploy.engines.sglang.sizing.division import (
    UNNAMED_BYTES,
    Division,
    Lack,
    Loads,
    Units,
    divide,
    lack,
    rest_bytes,
    token_layer_bytes,
    units_of,
)
from mtpdeploy.engines.sglang.sizing.state import (
    conv_bytes,
    fullest_stage,
    intermediate_conv_bytes,
    intermediate_ssm_bytes,
    ssm_bytes,
)

OWN_POOL = ("EAGLE", "EAGLE3")
"""Algorithms whose draft keeps keys of its own, of one layer at least and as wide as the target's."""


class Refusal(Struct, frozen=True):
    """
    The error that SGLang would raise, and the cause that its text means.

    `floor` is the fraction above which its text says to go, None where it says none.
    """

    cause: Cause
    text: str
    floor: float | None = None


class Pools(Struct, frozen=True):
    """
    The pools as SGLang will allocate them, in bytes, or why it will not.

    `rest` is what the fraction leaves for all pools; `charged_drafts` what the draft states are charged
    for before slots are counted. `requests` is what can run at once, of one worker.
    """

    rest: int
    slots: int
    tokens: int
    requests: int
    charged_drafts: int
    conv: int = 0
    ssm: int = 0
    intermediate_ssm: int = 0
    intermediate_conv: int = 0
    ring: int = 0
    keys: int = 0
    values: int = 0
    draft_kv: int = 0
    table: int = 0
    refusal: Refusal | None = None

    @property
    def total(self) -> int:
        """
        Everything allocated for them.
        """
        states = self.conv + self.ssm + self.intermediate_ssm + self.intermediate_conv + self.ring
        return states + self.keys + self.values + self.draft_kv + self.table


def size_pools(asked: Asked, loads: Loads) -> Pools:
    """
    The pools that a server will have beside these loads.
    """
    rest, units = rest_bytes(asked, loads), units_of(asked)
    division = divide(asked, units, rest)
    refusal = _refusal(asked, loads, units, division)
    pools = Pools(
        rest=int(rest),
        slots=division.slots,
        tokens=max(0, division.tokens),
        requests=division.requests,
        charged_drafts=int(division.charged_drafts),
        refusal=refusal,
    )
    return pools if refusal is not None else _allocated(asked, units, pools)


def refused_loads(asked: Asked, loads: Loads) -> Refusal | None:
    """
    Torch's error where the weights themselves do not fit, or None; from 0.5.14 on the draft's come next.
    """
    text = "CUDA out of memory."
    if loads.weights > loads.free:
        return Refusal(Cause.OOM_WEIGHTS, text)
    if asked.release >= (0, 5, 14) and loads.weights + loads.draft > loads.free:
        return Refusal(Cause.OOM_DRAFT_WEIGHTS, text)
    return None


def _refusal(asked: Asked, loads: Loads, units: Units, division: Division) -> Refusal | None:
    match lack(asked, division):
        case Lack.SLOTS:
            return _no_slots(units, division)
        case Lack.MEMORY:
            return _weights_leave_nothing(asked, loads)
        case Lack.TOKENS:
            return _no_tokens(asked)
        case Lack.REQUESTS:
            return _no_requests(asked, units, division.slots)
        case None:
            return None


def _no_slots(units: Units, division: Division) -> Refusal:
    text = (
        "Not enough GPU memory for hybrid (mamba/linear-attention) state cache. Computed "
        f"max_mamba_cache_size={division.slots} (total_rest_memory={division.undivided / GIB:.2f} GB, "
        f"mamba_cache_per_req={units.slot / MIB:.2f} MB). Try: (1) reduce --max-running-requests, "
        "(2) increase --mem-fraction-static, (3) reduce --speculative-num-draft-tokens, or "
        "(4) use GPUs with more memory."
    )
    return Refusal(Cause.OOM_STATE_POOL, text)


def _weights_leave_nothing(asked: Asked, loads: Loads) -> Refusal:
    resident = loads.weights + loads.draft + UNNAMED_BYTES
    least = resident / max(1, loads.free)
    floor = math.ceil(least * 1000) / 1000
    text = (
        "Loaded weights leave no GPU memory for the KV cache under "
        f"--mem-fraction-static={asked.mem_fraction_static}. Raise --mem-fraction-static above "
        f"{floor:.3f} (minimum viable = 1 - available/pre = {least:.4f}). "
        "If using speculative decoding, draft weights are now counted."
    )
    return Refusal(Cause.OOM_KV_POOL, text, floor)


def _no_tokens(asked: Asked) -> Refusal:
    named = "self.server_args." if asked.release < (0, 5, 10) else ""
    text = (
        "Not enough memory. Please try to increase --mem-fraction-static. Current value: "
        f"{named}mem_fraction_static={asked.mem_fraction_static}"
    )
    return Refusal(Cause.OOM_KV_POOL, text)


def _no_requests(asked: Asked, units: Units, slots: int) -> Refusal:
    if asked.model.state is None:
        return Refusal(Cause.OOM_KV_POOL, "max_running_request is zero")
    if asked.release < (0, 5, 13):
        # Nothing checks it here: graphs of no batch size are refused, or else a server of no requests.
        text = "capture_bs=[0]" if asked.graph_batch else "max_running_request is zero"
        return Refusal(Cause.OOM_STATE_POOL, text)
    text = (
        "Hybrid (mamba/linear-attention) state cache is too small to serve any requests. "
        f"max_mamba_cache_size={slots}, mamba_ratio={units.slots_per_request}, resulting max_num_reqs=0. "
        "Try: (1) reduce --max-running-requests, (2) increase --mem-fraction-static, or "
        "(3) use GPUs with more memory."
    )
    return Refusal(Cause.OOM_STATE_POOL, text)


def _allocated(asked: Asked, units: Units, pools: Pools) -> Pools:
    """
    The tensors: in every release one slot and one page more than counted, for padding.
    """
    model, hybrid = asked.model, asked.model.state is not None
    tokens = pools.tokens + asked.page_size
    layer = token_layer_bytes(asked)
    kept = layer * fullest_stage(model, model.attention_numbers, asked.pp) * tokens
    keys = kept if model.latent_size else kept * model.head_dim / (model.head_dim + model.v_head_dim)
    return Pools(
        rest=pools.rest,
        slots=pools.slots,
        tokens=pools.tokens,
        requests=pools.requests,
        charged_drafts=pools.charged_drafts,
        conv=(pools.slots + 1) * conv_bytes(asked) if hybrid else 0,
        ssm=(pools.slots + 1) * ssm_bytes(asked) if hybrid else 0,
        intermediate_ssm=intermediate_ssm_bytes(asked, pools.slots, pools.requests),
        intermediate_conv=intermediate_conv_bytes(asked, pools.slots, pools.requests),
        ring=units.ring_of_slot * (pools.slots + 1) + units.ring_of_all,
        keys=int(keys),
        values=int(kept - keys),
        draft_kv=int(layer * tokens * max(1, model.mtp_layers)) if asked.algorithm in OWN_POOL else 0,
        table=pools.requests * (asked.context_length + 4 + asked.draft_tokens) * 4,
    )
