"""
How each release divides what is left after the weights: slots of state, tokens of keys and values, requests.

From `handle_max_mamba_cache`, `profile_max_num_token` and `resolve_max_num_reqs` (0.5.6-0.5.23). All bytes
are on one GPU; "rest" is what the fraction leaves after the weights.
"""

import math

from msgspec import Struct, structs

from mtpdeploy.core.diagnosis import Cause
from mtpdeploy.core.units import GIB, MIB
from mtpdeploy.engines.sglang.sizing.asked import Asked
from mtpdeploy.engines.sglang.sizing.state import (
    conv_bytes,
    fullest_stage,
    intermediate_conv_bytes,
    intermediate_ssm_bytes,
    ring_bytes,
    slots_per_request,
    ssm_bytes,
)

UNNAMED_BYTES = int(0.06 * GIB)
"""Allocated between the loads and the sizing (public logs of 0.5.12 to 0.5.20; measured)."""

FEWEST, MOST = 2048, 4096
"""Bounds of SGLang's own estimate of running requests (0.5.6-0.5.23)."""

SLOTS_WITHOUT_LIMIT = 512
"""Slots without the radix cache where no number of requests is given (0.5.6, 0.5.7)."""


class Loads(Struct, frozen=True):
    """
    What is on one GPU before the pools, in bytes: free before any weight, the target's weights, the draft's.

    `draft` is what its load takes at first, `draft_kept` what stays once it shares the target's tables.
    """

    free: int
    weights: int
    draft: int = 0
    draft_kept: int = 0


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


class _Split(Struct, frozen=True):
    """
    `undivided` is what is left for slots and tokens together, once the draft states are charged.
    """

    slots: int
    left: float
    charged_drafts: float = 0.0
    undivided: float = 0.0


def size_pools(asked: Asked, loads: Loads) -> Pools:
    """
    Divide what the fraction leaves, as the release does.
    """
    rest = rest_bytes(asked, loads)
    split = _split(asked, rest)
    profiled = _profiled(asked, split.left)
    tokens, requests = _limited(asked, profiled), _requests(asked, profiled, split.slots)
    if asked.release < (0, 5, 7) and asked.draft_tokens:
        # Room for drafts is added to what memory allows; a given number of tokens limits the sum.
        tokens = _limited(asked, profiled + requests * (asked.steps * asked.topk + asked.draft_tokens) + 100)
    refusal = _refusal(asked, loads, split, tokens, requests)
    pools = Pools(
        rest=int(rest),
        slots=split.slots,
        tokens=max(0, tokens),
        requests=requests,
        charged_drafts=int(split.charged_drafts),
        refusal=refusal,
    )
    return pools if refusal is not None else _allocated(asked, pools)


def _profiled(asked: Asked, left: float) -> int:
    """
    The tokens that memory allows; a model that keeps no keys has those of one context (0.5.17-0.5.23).
    """
    cell = cell_bytes(asked)
    return int(int(left) // cell) if cell else asked.max_total_tokens or asked.context_length


def rest_bytes(asked: Asked, loads: Loads) -> float:
    """
    What the fraction leaves after the weights; from 0.5.14 on the draft's are counted as they load.
    """
    rest = loads.free * asked.mem_fraction_static - loads.weights - UNNAMED_BYTES
    if asked.release >= (0, 5, 14):
        rest -= loads.draft
    return rest - asked.multimodal_reserve_mib * MIB


def cell_bytes(asked: Asked) -> float:
    """
    Keys and values of one token, of the layers that keep them; with a draft where the release counts it.
    """
    model = asked.model
    layers = fullest_stage(model, model.attention_numbers, asked.pp)
    cell = _token_layer_bytes(asked) * layers
    if not (asked.draft_path and asked.draft_tokens and asked.release >= (0, 5, 14)):
        return cell
    # To 0.5.17 the draft's layers are looked for where Qwen3.5 has those of the target (fixed in 0.5.18).
    mistaken = asked.release < (0, 5, 18) and model.is_multimodal
    draft_layers = model.layers if mistaken else max(1, model.mtp_layers)
    return int(cell * (1 + draft_layers / max(1, layers)))


def _token_layer_bytes(asked: Asked) -> float:
    model = asked.model
    if model.latent_size:
        return model.latent_size * asked.kv_itemsize
    heads = max(1, model.kv_heads // asked.attn_tp)
    return heads * (model.head_dim + model.v_head_dim) * asked.kv_itemsize


def _split(asked: Asked, rest: float) -> _Split:
    if asked.model.state is None:
        return _Split(0, rest)
    if asked.release < (0, 5, 7):
        return _split_0_5_6(asked, rest)
    if asked.release < (0, 5, 13):
        return _split_off_the_top(asked, rest)
    return _split_jointly(asked, rest)


def _slot_bytes(asked: Asked) -> int:
    """
    What a slot is charged with: to 0.5.16 the states of all layers, whatever a pipeline stage has of them.
    """
    charged = asked if asked.release >= (0, 5, 17) else structs.replace(asked, pp=1)
    return conv_bytes(charged) + ssm_bytes(charged)


def _share(asked: Asked, rest: float) -> float:
    return rest * asked.ratio / (1 + asked.ratio)


def _split_0_5_6(asked: Asked, rest: float) -> _Split:
    """
    Every slot has a set of draft states, and with the radix cache a given number of slots is overwritten.
    """
    sets = _slot_bytes(asked) * (1 + asked.draft_tokens)
    if asked.radix:
        slots = int(_share(asked, rest) // sets)
    else:
        slots = asked.max_mamba_cache_size or asked.max_running_requests or SLOTS_WITHOUT_LIMIT
    slots //= asked.attn_dp
    return _Split(slots, rest - slots * sets, slots * _slot_bytes(asked) * asked.draft_tokens)


def _split_off_the_top(asked: Asked, rest: float) -> _Split:
    """
    0.5.7 to 0.5.12: the draft states of all requests asked for come off first, whether they fit or not.

    0.5.7 does so only where it counts the slots by the ratio.
    """
    slot, workers = _slot_bytes(asked), asked.attn_dp
    early = asked.release < (0, 5, 8)
    requests = (asked.max_running_requests or 0) // (1 if early else workers)
    fixed = _fixed_slots(asked)
    drafts = 0.0 if early and fixed is not None else float(slot * requests * asked.draft_tokens)
    left = rest - drafts
    slots = int(_share(asked, left) // slot) if fixed is None else fixed
    return _Split(slots, left - slots * slot, drafts)


def _fixed_slots(asked: Asked) -> int | None:
    """
    The number of slots where it does not follow from memory.
    """
    if asked.max_mamba_cache_size is not None:
        return asked.max_mamba_cache_size // asked.attn_dp
    if asked.radix:
        return None
    if asked.max_running_requests is not None:
        # From 0.5.18 on a worker has one at least.
        least = 1 if asked.release >= (0, 5, 18) else 0
        return max(least, asked.max_running_requests // asked.attn_dp)
    return SLOTS_WITHOUT_LIMIT // asked.attn_dp if asked.release < (0, 5, 8) else None


def _split_jointly(asked: Asked, rest: float) -> _Split:
    """
    0.5.13 on: slots and draft states are solved together; from 0.5.17 with a padding slot of each.
    """
    padding = 1 if asked.release >= (0, 5, 17) else 0
    slot, drafts = _slot_bytes(asked), 0 if asked.replay else asked.draft_tokens
    ring_of_slot, ring_of_all = _rings(asked)
    fixed = _fixed_slots(asked)
    if fixed is not None:
        slots = fixed
    elif drafts:
        room = _share(asked, rest) - padding * slot * (1 + drafts)
        slots = int(room // (slot * (1 + drafts / slots_per_request(asked))))
    else:
        each = slot + ring_of_slot
        slots = int((_share(asked, rest) - ring_of_all - padding * each) // each)
    charged = slot * (_verifying(asked, slots) + padding) * drafts
    left = rest - charged - (slots + padding) * (slot + ring_of_slot) - ring_of_all
    return _Split(slots, left, charged, rest - charged)


def _verifying(asked: Asked, slots: int) -> int:
    """
    For how many requests draft states are charged.
    """
    if asked.max_mamba_cache_size is None and not asked.radix:
        return slots
    return min(asked.requests_per_worker or 0, slots // slots_per_request(asked))


def _rings(asked: Asked) -> tuple[int, int]:
    """
    ReplaySSM's rings: of each slot (to 0.5.19), and of all requests together (from 0.5.20 on).
    """
    ring, state = ring_bytes(asked), asked.model.state
    if asked.release < (0, 5, 20) or (state is not None and state.kind == "kda"):
        return ring, 0
    return 0, ring * ((asked.requests_per_worker or 0) + 1)


def _limited(asked: Asked, tokens: int) -> int:
    """
    No more tokens than are wanted, in whole pages.
    """
    if asked.max_total_tokens is not None:
        tokens = min(tokens, asked.max_total_tokens)
    return tokens // asked.page_size * asked.page_size


def _requests(asked: Asked, profiled: int, slots: int) -> int:
    tokens = _limited(asked, profiled)
    # To 0.5.9 the estimate is made before the number of tokens is limited.
    known = profiled if asked.release < (0, 5, 10) else tokens
    estimate = min(max(int(known / asked.context_length * 512), FEWEST), MOST)
    wanted = asked.requests_per_worker
    if wanted is None:
        count = min(estimate, tokens // 2)
    elif asked.release >= (0, 5, 14):
        count = min(wanted, tokens // 2)
    else:
        count = min(wanted, estimate) if asked.release >= (0, 5, 10) else wanted
    if asked.model.state is not None:
        count = min(count, slots // slots_per_request(asked))
    return max(0, count)


def _refusal(asked: Asked, loads: Loads, split: _Split, tokens: int, requests: int) -> Refusal | None:
    """
    The first of SGLang's checks that fails, in their order.
    """
    hybrid = asked.model.state is not None
    if hybrid and asked.release >= (0, 5, 13) and split.slots <= 0:
        return _no_slots(asked, split)
    if asked.release >= (0, 5, 14) and split.left <= 0:
        return _weights_leave_nothing(asked, loads)
    if tokens <= 0:
        return _no_tokens(asked)
    if requests <= 0:
        return _no_requests(asked, split.slots)
    return None


def _no_slots(asked: Asked, split: _Split) -> Refusal:
    text = (
        "Not enough GPU memory for hybrid (mamba/linear-attention) state cache. Computed "
        f"max_mamba_cache_size={split.slots} (total_rest_memory={split.undivided / GIB:.2f} GB, "
        f"mamba_cache_per_req={_slot_bytes(asked) / MIB:.2f} MB). Try: (1) reduce --max-running-requests, "
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


def _no_requests(asked: Asked, slots: int) -> Refusal:
    if asked.model.state is None:
        return Refusal(Cause.OOM_KV_POOL, "max_running_request is zero")
    if asked.release < (0, 5, 13):
        # Nothing checks it here: graphs of no batch size are refused, or else a server of no requests.
        text = "capture_bs=[0]" if asked.graph_batch else "max_running_request is zero"
        return Refusal(Cause.OOM_STATE_POOL, text)
    text = (
        "Hybrid (mamba/linear-attention) state cache is too small to serve any requests. "
        f"max_mamba_cache_size={slots}, mamba_ratio={slots_per_request(asked)}, resulting max_num_reqs=0. "
        "Try: (1) reduce --max-running-requests, (2) increase --mem-fraction-static, or "
        "(3) use GPUs with more memory."
    )
    return Refusal(Cause.OOM_STATE_POOL, text)


def _allocated(asked: Asked, pools: Pools) -> Pools:
    """
    The tensors: in every release one slot and one page more than counted, for padding.
    """
    model, hybrid = asked.model, asked.model.state is not None
    tokens = pools.tokens + asked.page_size
    layer = _token_layer_bytes(asked)
    kept = layer * fullest_stage(model, model.attention_numbers, asked.pp) * tokens
    keys = kept if model.latent_size else kept * model.head_dim / (model.head_dim + model.v_head_dim)
    ring_of_slot, ring_of_all = _rings(asked)
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
        ring=ring_of_slot * (pools.slots + 1) + ring_of_all,
        keys=int(keys),
        values=int(kept - keys),
        draft_kv=int(layer * tokens * model.mtp_layers) if asked.draft_tokens else 0,
        table=pools.requests * (asked.context_length + 4 + asked.draft_tokens) * 4,
    )
