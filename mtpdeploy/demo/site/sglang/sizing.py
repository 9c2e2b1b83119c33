"""
How each release of SGLang divides a GPU's memory among its pools.

Written for the demo box alone, from `init_memory_pool` and `handle_max_mamba_cache` of the releases 0.5.6 to
0.5.23 (model_executor/model_runner*.py, from 0.5.17 mem_cache/kv_cache_configurator.py). A planner elsewhere
works the same sums out for itself; the two share nothing, so that each can find the other's mistakes.
Every size is in GiB, as in SGLang's log.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import List, Optional, Tuple

from .geometry import Geometry
from .release import release

GIB = 1 << 30
MIB = 1 << 20

# Allocations between the load and the sizing, seen in public logs of 0.5.12 to 0.5.20 (GiB).
UNNAMED_GIB = 0.06
# SGLANG_VLM_CACHE_SIZE_MB, reserved for multimodal models from 0.5.18 on.
VISION_CACHE_GIB = 100 / 1024
# SGLang's running requests without a flag and without speculation: clamp(tokens/context*512, 2048, 4096).
FEWEST_REQUESTS, MOST_REQUESTS = 2048, 4096
# Slots a request holds: its state and two copies for the radix tree (mem_cache/memory_pool.py).
BASE_SLOTS = 3


class PoolError(Exception):
    """The pools cannot be built; `kind` is the class SGLang raises, `origin` where it raises."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


@dataclass(frozen=True)
class Demand:
    """What sizing starts from. `free_gib`: free before the load; `draft_gib`: the draft's gross load."""

    version: str
    geometry: Geometry
    free_gib: float
    weights_gib: float
    mem_fraction_static: float
    draft_gib: float = 0.0
    draft_tokens: int = 0
    draft_path: bool = False
    topk: int = 1
    steps: int = 0
    max_running_requests: Optional[int] = None
    max_mamba_cache_size: Optional[int] = None
    max_total_tokens: Optional[int] = None
    mamba_full_memory_ratio: float = 0.9
    strategy: str = "no_buffer"
    radix: bool = True
    overlap: bool = True
    context_len: int = 262144
    page_size: int = 1
    tp: int = 1
    dp: int = 1
    state_itemsize: int = 4
    kv_itemsize: float = 2.0
    replay_len: int = 0
    skip_decode_lock: bool = False

    @property
    def era(self) -> Tuple[int, ...]:
        """The release as numbers."""
        return release(self.version)

    @property
    def slot_gib(self) -> float:
        """One mamba slot: convolution windows and recurrent state."""
        per = self.geometry.conv_bytes(self.tp) + self.geometry.state_bytes(self.tp, self.state_itemsize)
        return per / GIB


@dataclass(frozen=True)
class Pools:
    """What was allocated. `requests` is what the server can run at once, whatever was asked."""

    slots: int
    requests: int
    tokens: int
    conv_gib: float = 0.0
    ssm_gib: float = 0.0
    intermediate_ssm_gib: float = 0.0
    intermediate_conv_gib: float = 0.0
    replay_gib: float = 0.0
    k_gib: float = 0.0
    v_gib: float = 0.0
    table_gib: float = 0.0
    draft_kv_gib: float = 0.0
    slots_per_request: int = 1
    warnings: List[str] = field(default_factory=list)

    @property
    def mamba_gib(self) -> float:
        """Everything the mamba line names."""
        return (
            self.conv_gib
            + self.ssm_gib
            + self.intermediate_ssm_gib
            + self.intermediate_conv_gib
            + self.replay_gib
        )


def slots_per_request(demand: Demand) -> int:
    """`_calculate_mamba_ratio`: how many slots one running request reserves."""
    if not demand.radix:
        return 1
    era, extra = demand.era, demand.strategy.startswith("extra_buffer")
    if not extra:
        # 0.5.7 alone adds the ping-pong slots to a strategy that has none.
        return 5 if era[:3] == (0, 5, 7) else BASE_SLOTS
    if demand.strategy == "extra_buffer_lazy":
        if not demand.overlap:
            text = "Lazy extra buffer requires overlap schedule (--disable-overlap-schedule is incompatible)"
            raise PoolError("AssertionError", text)
        slots = BASE_SLOTS + 1
    elif era < (0, 5, 10):
        slots = BASE_SLOTS + (1 if demand.draft_tokens else 2)
    else:
        slots = BASE_SLOTS + (2 if demand.overlap else 1)
    return slots - 1 if demand.skip_decode_lock and era >= (0, 5, 17) else slots


def _rest(demand: Demand) -> float:
    rest = demand.free_gib * demand.mem_fraction_static - demand.weights_gib - UNNAMED_GIB
    if demand.era >= (0, 5, 14):
        rest -= demand.draft_gib
    if demand.era >= (0, 5, 18) and demand.geometry.multimodal:
        rest -= VISION_CACHE_GIB
    return rest


def _share(demand: Demand, rest: float) -> float:
    ratio = demand.mamba_full_memory_ratio
    return rest * ratio / (1 + ratio)


def _asked(demand: Demand) -> int:
    return max(1, (demand.max_running_requests or 0) // demand.dp)


def _split_0_5_6(demand: Demand, rest: float) -> Tuple[int, float]:
    sets = 1 + demand.draft_tokens
    if demand.radix:
        slots = int(_share(demand, rest) // (demand.slot_gib * sets))
    else:
        slots = demand.max_mamba_cache_size or demand.max_running_requests or 512
    return slots, rest - slots * demand.slot_gib * sets


def _split_0_5_7(demand: Demand, rest: float) -> Tuple[int, float]:
    if not demand.radix or demand.max_mamba_cache_size is not None:
        slots = (demand.max_mamba_cache_size or demand.max_running_requests or 512) // demand.dp
    else:
        if demand.draft_tokens:
            rest -= demand.slot_gib * (demand.max_running_requests or 0) * demand.draft_tokens
        slots = int(_share(demand, rest) // demand.slot_gib)
    return slots, rest - slots * demand.slot_gib


def _split_0_5_8(demand: Demand, rest: float) -> Tuple[int, float]:
    """0.5.8 to 0.5.12: the verify states of every *asked* request come off the top."""
    if demand.draft_tokens:
        rest -= demand.slot_gib * _asked(demand) * demand.draft_tokens
    if demand.max_mamba_cache_size is not None:
        slots = demand.max_mamba_cache_size // demand.dp
    elif not demand.radix and demand.max_running_requests is not None:
        slots = demand.max_running_requests // demand.dp
    else:
        slots = int(_share(demand, rest) // demand.slot_gib)
    return slots, rest - slots * demand.slot_gib


def _split_0_5_13(demand: Demand, rest: float) -> Tuple[int, float]:
    """0.5.13 on: states and verify states are solved together; from 0.5.17 with a padding slot each."""
    pad = 1 if demand.era >= (0, 5, 17) else 0
    per, per_request = demand.slot_gib, slots_per_request(demand)
    replay_fixed, replay_slot = _replay(demand)
    drafts = 0 if demand.replay_len else demand.draft_tokens
    slot = per + replay_slot
    if demand.max_mamba_cache_size is not None:
        slots = demand.max_mamba_cache_size // demand.dp
    elif not demand.radix and demand.max_running_requests is not None:
        slots = _asked(demand)
    elif drafts:
        room = _share(demand, rest) - pad * (per * (1 + drafts) + replay_slot)
        slots = int(room // (per * (1 + drafts / per_request) + replay_slot))
    else:
        slots = int((_share(demand, rest) - replay_fixed - pad * slot) // slot)
    if drafts:
        capped = min(_asked(demand), slots // per_request)
        rest -= per * (capped + pad) * drafts
    if slots <= 0:
        raise PoolError(
            "RuntimeError",
            "Not enough GPU memory for hybrid (mamba/linear-attention) state cache. "
            f"Computed max_mamba_cache_size={slots} (total_rest_memory={rest:.2f} GB, "
            f"mamba_cache_per_req={per * 1024:.2f} MB). Try: (1) reduce --max-running-requests, "
            "(2) increase --mem-fraction-static, (3) reduce --speculative-num-draft-tokens, or "
            "(4) use GPUs with more memory.",
        )
    return slots, rest - (slots + pad) * slot - replay_fixed


def _replay(demand: Demand) -> Tuple[float, float]:
    """
    ReplaySSM's ring, fixed and for each slot: per slot to 0.5.19, per request from 0.5.20 on.

    `replayssm_ring_bytes_per_req` (configs/mamba_utils.py): keys and values in two bytes each, from 0.5.20 on
    with their low parts, and two gates of four bytes, from 0.5.20 on one.
    """
    if not demand.replay_len:
        return 0.0, 0.0
    shape = demand.geometry
    keys, values = shape.linear_key_heads * shape.linear_key_dim, shape.linear_value_heads
    width = keys + values * shape.linear_value_dim
    late = demand.era >= (0, 5, 20)
    if late and demand.max_running_requests is None:
        raise PoolError("TypeError", "unsupported operand type(s) for //: 'NoneType' and 'int'")
    layer = width * (4 if late else 2) + values * (4 if late else 8)
    ring = shape.linear_layers * layer / demand.tp * demand.replay_len / GIB
    return (ring * (_asked(demand) + 1), 0.0) if late else (0.0, ring)


def _divide(demand: Demand, rest: float) -> Tuple[int, float]:
    if not demand.geometry.hybrid:
        return 0, rest
    if demand.era < (0, 5, 7):
        return _split_0_5_6(demand, rest)
    if demand.era < (0, 5, 8):
        return _split_0_5_7(demand, rest)
    if demand.era < (0, 5, 13):
        return _split_0_5_8(demand, rest)
    return _split_0_5_13(demand, rest)


def _refuse_weights(demand: Demand) -> PoolError:
    resident = demand.weights_gib + demand.draft_gib + UNNAMED_GIB
    least = resident / demand.free_gib
    return PoolError(
        "ValueError",
        "Loaded weights leave no GPU memory for the KV cache under "
        f"--mem-fraction-static={demand.mem_fraction_static}. Raise --mem-fraction-static above "
        f"{math.ceil(least * 1000) / 1000:.3f} (minimum viable = 1 - available/pre = {least:.4f}). "
        "If using speculative decoding, draft weights are now counted.",
    )


def _cell_bytes(demand: Demand) -> float:
    shape = demand.geometry
    cell = shape.kv_bytes(demand.tp, demand.kv_itemsize)
    if demand.draft_path and demand.draft_tokens and demand.era >= (0, 5, 14):
        # 0.5.14-0.5.17 take the whole target for the draft where the config has a part for the text, since
        # num_nextn_predict_layers is set on the outer one.
        layers = shape.hidden_layers if demand.era < (0, 5, 18) and shape.multimodal else 1
        cell = int(cell * (1 + layers / max(shape.full_layers, 1)))
    return cell


def _limited(demand: Demand, tokens: int) -> int:
    if demand.max_total_tokens is not None:
        tokens = min(tokens, demand.max_total_tokens)
    return tokens // demand.page_size * demand.page_size


def _checked(demand: Demand, tokens: int) -> int:
    if tokens <= 0:
        old = demand.era < (0, 5, 10)
        value = ("self.server_args." if old else "") + f"mem_fraction_static={demand.mem_fraction_static}"
        raise PoolError(
            "RuntimeError",
            f"Not enough memory. Please try to increase --mem-fraction-static. Current value: {value}",
        )
    return tokens


def _requests(demand: Demand, profiled: int, slots: int) -> Tuple[int, List[str]]:
    """`_resolve_max_num_reqs`: the effective number of running requests, and what SGLang warns about."""
    era, tokens = demand.era, _limited(demand, profiled)
    known = profiled if era < (0, 5, 10) else tokens
    estimate = min(max(int(known / demand.context_len * 512), FEWEST_REQUESTS), MOST_REQUESTS)
    asked = None if demand.max_running_requests is None else _asked(demand)
    if asked is None:
        count = min(estimate, tokens // 2)
    elif era >= (0, 5, 14):
        count = min(asked, tokens // 2)
    else:
        count = min(asked, estimate) if era >= (0, 5, 10) else asked
    capped = False
    if demand.geometry.hybrid:
        per_request = slots_per_request(demand)
        capped = slots // per_request < count
        count = min(count, slots // per_request)
        if count <= 0 and tokens > 0 and era < (0, 5, 13):
            # get_batch_sizes_to_capture: no size is left. Without graphs the worker asserts it a bit later.
            raise PoolError("AssertionError", "capture_bs=[0]")
        if count <= 0 and era >= (0, 5, 13):
            raise PoolError(
                "RuntimeError",
                "Hybrid (mamba/linear-attention) state cache is too small to serve any requests. "
                f"max_mamba_cache_size={slots}, mamba_ratio={per_request}, resulting max_num_reqs={count}. "
                "Try: (1) reduce --max-running-requests, (2) increase --mem-fraction-static, or "
                "(3) use GPUs with more memory.",
            )
    if count <= 0 < tokens:
        raise PoolError("AssertionError", "max_running_request is zero")
    return max(count, 0), _warnings(demand, asked, count, slots, capped=capped)


def _warnings(demand: Demand, asked: Optional[int], count: int, slots: int, *, capped: bool) -> List[str]:
    era = demand.era
    text = ""
    if capped and era >= (0, 5, 17):
        text = (
            f"max_running_requests is capped to {count} by the mamba state cache "
            f"(max_mamba_cache_size={slots}, {slots_per_request(demand)} state slots per request). To raise "
            "it: increase --mamba-full-memory-ratio or --max-mamba-cache-size, or halve the state size with "
            "--mamba-ssm-dtype bfloat16."
        )
    elif asked is not None and count < asked and era >= (0, 5, 14):
        text = (
            f"max_running_requests was reduced from the requested {asked} to {count} (per dp worker) due to "
            "the available KV cache capacity."
        )
    return [text] if text else []


def size_pools(demand: Demand) -> Pools:
    """The pools of this demand, or PoolError with SGLang's own words."""
    slots, rest = _divide(demand, _rest(demand))
    if demand.era >= (0, 5, 14) and rest <= 0:
        raise _refuse_weights(demand)
    profiled = int(int(rest * GIB) // _cell_bytes(demand))
    early = demand.era < (0, 5, 7) and demand.draft_tokens > 0
    tokens = _limited(demand, profiled)
    if not early:
        _checked(demand, tokens)
    requests, warnings = _requests(demand, profiled, slots)
    if early:
        room = requests * (demand.steps * demand.topk + demand.draft_tokens) + 100
        tokens = _checked(demand, _limited(demand, profiled + room))
    return _allocate(demand, Pools(slots, requests, tokens, warnings=warnings))


def _allocate(demand: Demand, pools: Pools) -> Pools:
    """Tensor sizes: slot 0 and one page are padding in every release."""
    shape, tp = demand.geometry, demand.tp
    conv, ssm = shape.conv_bytes(tp), shape.state_bytes(tp, demand.state_itemsize)
    drafts = demand.draft_tokens
    sets = (pools.slots if demand.era < (0, 5, 7) else pools.requests) + 1
    columns = float(drafts)
    if demand.era >= (0, 5, 14) and demand.topk <= 1:
        columns = (drafts + shape.conv_kernel - 2) / max(shape.conv_kernel - 1, 1)
    if not drafts or not shape.hybrid:
        sets = 0
    half_cell = shape.kv_bytes(tp, demand.kv_itemsize) / 2
    tokens = pools.tokens + demand.page_size
    replay_fixed, replay_slot = _replay(demand)
    return replace(
        pools,
        conv_gib=(pools.slots + 1) * conv / GIB if shape.hybrid else 0.0,
        ssm_gib=(pools.slots + 1) * ssm / GIB if shape.hybrid else 0.0,
        # ReplaySSM keeps no states, but the windows of the convolutions all the same.
        intermediate_ssm_gib=0.0 if demand.replay_len else sets * drafts * ssm / GIB,
        intermediate_conv_gib=sets * columns * conv / GIB,
        replay_gib=replay_fixed + replay_slot * (pools.slots + 1),
        k_gib=tokens * half_cell / GIB,
        v_gib=tokens * half_cell / GIB,
        table_gib=pools.requests * (demand.context_len + 4 + drafts) * 4 / GIB,
        draft_kv_gib=tokens * shape.kv_bytes(tp, demand.kv_itemsize, 1) / GIB if drafts else 0.0,
        slots_per_request=slots_per_request(demand) if shape.hybrid else 1,
    )
