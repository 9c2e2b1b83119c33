"""
How each release divides what is left after the weights: slots of state, tokens of keys and values, requests.

From `handle_max_mamba_cache`, `profile_max_num_token` and `resolve_max_num_reqs` (0.5.6-0.5.23). All bytes
are on one GPU; "rest" is what the fraction leaves after the weights.
"""

import functools
import math
from enum import Enum, auto

from msgspec import Struct, structs

from mtpdeploy.core.units import GIB, MIB
from mtpdeploy.engines.sglang.sizing.asked import Asked
from mtpdeploy.engines.sglang.sizing.state import (
    conv_bytes,
    fullest_stage,
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

MOST_BYTES, HALVINGS = 1 << 44, 34
"""The least rest is looked for among 16 TiB, down to 1 KiB."""


NEARLY_NOTHING = 1e-6
"""A fraction of nothing has no least memory."""


class Loads(Struct, frozen=True):
    """
    What is on one GPU before the pools, in bytes: free before any weight, the target's weights, the draft's.

    `draft` is what its load takes at first, `draft_kept` what stays once it shares the target's tables.
    """

    free: int
    weights: int
    draft: int = 0
    draft_kept: int = 0


class Units(Struct, frozen=True):
    """
    What one of each takes, in bytes: a slot as it is charged, a token, ReplaySSM's rings of a slot (to
    0.5.19) and of all requests together (from 0.5.20 on); and how many slots a request has.
    """

    slot: int
    token: float
    ring_of_slot: int
    ring_of_all: int
    slots_per_request: int


class Lack(Enum):
    """
    What the first of SGLang's checks that fails is about.
    """

    SLOTS = auto()
    MEMORY = auto()
    TOKENS = auto()
    REQUESTS = auto()


class Division(Struct, frozen=True):
    """
    What a release makes of the rest.

    `left` is for tokens, `charged_drafts` for draft states, `undivided` for slots and tokens together.
    """

    slots: int
    tokens: int
    requests: int
    left: float
    charged_drafts: float
    undivided: float


class _Split(Struct, frozen=True):
    slots: int
    left: float
    charged_drafts: float = 0.0
    undivided: float = 0.0


def units_of(asked: Asked) -> Units:
    """
    The sizes that a division is made of.
    """
    ring_of_slot, ring_of_all = rings(asked)
    return Units(
        slot=_slot_bytes(asked),
        token=cell_bytes(asked),
        ring_of_slot=ring_of_slot,
        ring_of_all=ring_of_all,
        slots_per_request=slots_per_request(asked),
    )


def divide(asked: Asked, units: Units, rest: float) -> Division:
    """
    Divide the rest, as the release does.
    """
    split = _split(asked, units, rest)
    # A model that keeps no keys has the tokens of one context (0.5.17-0.5.23).
    without_keys = asked.max_total_tokens or asked.context_length
    profiled = int(int(split.left) // units.token) if units.token else without_keys
    tokens, requests = _limited(asked, profiled), _requests(asked, units, profiled, split.slots)
    if asked.release < (0, 5, 7) and asked.draft_tokens:
        # Room for drafts is added to what memory allows; a given number of tokens limits the sum.
        tokens = _limited(asked, profiled + requests * (asked.steps * asked.topk + asked.draft_tokens) + 100)
    return Division(split.slots, tokens, requests, split.left, split.charged_drafts, split.undivided)


def lack(asked: Asked, division: Division) -> Lack | None:
    """
    The first of SGLang's checks that fails, in their order; None where none does.
    """
    if asked.model.state is not None and asked.release >= (0, 5, 13) and division.slots <= 0:
        return Lack.SLOTS
    if asked.release >= (0, 5, 14) and division.left <= 0:
        return Lack.MEMORY
    if division.tokens <= 0:
        return Lack.TOKENS
    return Lack.REQUESTS if division.requests <= 0 else None


def rest_bytes(asked: Asked, loads: Loads) -> float:
    """
    What the fraction leaves after the weights; from 0.5.14 on the draft's are counted as they load.
    """
    rest = loads.free * asked.mem_fraction_static - loads.weights - UNNAMED_BYTES
    if asked.release >= (0, 5, 14):
        rest -= loads.draft
    return rest - asked.multimodal_reserve_mib * MIB


def least_free(asked: Asked, loads: Loads) -> int | None:
    """
    The least free memory before the weights with which the pools are not refused, all else being equal;
    None where no memory would do.
    """
    # The rest grows with the free memory in proportion to the fraction.
    without = rest_bytes(asked, structs.replace(loads, free=0))
    least = _least_rest(structs.replace(asked, mem_fraction_static=0.0))
    return (
        None
        if least is None
        else max(0, math.ceil((least - without) / max(asked.mem_fraction_static, NEARLY_NOTHING)))
    )


@functools.lru_cache(maxsize=256)
def _least_rest(asked: Asked) -> int | None:
    """
    The least rest that is not refused; it is the same for every fraction, and looked for once.
    """
    units = units_of(asked)

    def refused(rest: int) -> bool:
        return lack(asked, divide(asked, units, rest)) is not None

    if refused(MOST_BYTES):
        return None
    low, high = 0, MOST_BYTES
    for _ in range(HALVINGS):
        middle = (low + high) // 2
        low, high = (middle, high) if refused(middle) else (low, middle)
    return high


def cell_bytes(asked: Asked) -> float:
    """
    Keys and values of one token, of the layers that keep them; with a draft where the release counts it.
    """
    model = asked.model
    layers = fullest_stage(model, model.attention_numbers, asked.pp)
    cell = token_layer_bytes(asked) * layers
    if not (asked.draft_path and asked.draft_tokens and asked.release >= (0, 5, 14)):
        return cell
    # To 0.5.17 the draft's layers are looked for where Qwen3.5 has those of the target (fixed in 0.5.18).
    mistaken = asked.release < (0, 5, 18) and model.is_multimodal
    draft_layers = model.layers if mistaken else max(1, model.mtp_layers)
    return int(cell * (1 + draft_layers / max(1, layers)))


def token_layer_bytes(asked: Asked) -> float:
    """
    Keys and values of one token in one layer.
    """
    model = asked.model
    if model.latent_size:
        return model.latent_size * asked.kv_itemsize
    heads = max(1, model.kv_heads // asked.attn_tp)
    return heads * (model.head_dim + model.v_head_dim) * asked.kv_itemsize


def rings(asked: Asked) -> tuple[int, int]:
    """
    ReplaySSM's rings: of each slot, and of all requests together.
    """
    ring, state = ring_bytes(asked), asked.model.state
    if asked.release < (0, 5, 20) or (state is not None and state.kind == "kda"):
        return ring, 0
    return 0, ring * ((asked.requests_per_worker or 0) + 1)


def _slot_bytes(asked: Asked) -> int:
    """
    What a slot is charged with: to 0.5.16 the states of all layers, whatever a pipeline stage has of them.
    """
    charged = structs.replace(asked, pp=1) if asked.pp > 1 and asked.release < (0, 5, 17) else asked
    return conv_bytes(charged) + ssm_bytes(charged)


def _share(asked: Asked, rest: float) -> float:
    return rest * asked.ratio / (1 + asked.ratio)


def _split(asked: Asked, units: Units, rest: float) -> _Split:
    if asked.model.state is None:
        return _Split(0, rest)
    if asked.release < (0, 5, 7):
        return _split_0_5_6(asked, units, rest)
    if asked.release < (0, 5, 13):
        return _split_off_the_top(asked, units, rest)
    return _split_jointly(asked, units, rest)


def _split_0_5_6(asked: Asked, units: Units, rest: float) -> _Split:
    """
    Every slot has a set of draft states, and with the radix cache a given number of slots is overwritten.
    """
    sets = units.slot * (1 + asked.draft_tokens)
    if asked.radix:
        slots = int(_share(asked, rest) // sets)
    else:
        slots = asked.max_mamba_cache_size or asked.max_running_requests or SLOTS_WITHOUT_LIMIT
    slots //= asked.attn_dp
    return _Split(slots, rest - slots * sets, slots * units.slot * asked.draft_tokens)


def _split_off_the_top(asked: Asked, units: Units, rest: float) -> _Split:
    """
    0.5.7 to 0.5.12: the draft states of all requests asked for come off first, whether they fit or not.

    0.5.7 does so only where it counts the slots by the ratio.
    """
    early = asked.release < (0, 5, 8)
    requests = (asked.max_running_requests or 0) // (1 if early else asked.attn_dp)
    fixed = _fixed_slots(asked)
    drafts = 0.0 if early and fixed is not None else float(units.slot * requests * asked.draft_tokens)
    left = rest - drafts
    slots = int(_share(asked, left) // units.slot) if fixed is None else fixed
    return _Split(slots, left - slots * units.slot, drafts)


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


def _split_jointly(asked: Asked, units: Units, rest: float) -> _Split:
    """
    0.5.13 on: slots and draft states are solved together; from 0.5.17 with a padding slot of each.
    """
    padding = 1 if asked.release >= (0, 5, 17) else 0
    drafts, each = 0 if asked.replay else asked.draft_tokens, units.slot + units.ring_of_slot
    fixed = _fixed_slots(asked)
    if fixed is not None:
        slots = fixed
    elif drafts:
        room = _share(asked, rest) - padding * units.slot * (1 + drafts)
        slots = int(room // (units.slot * (1 + drafts / units.slots_per_request)))
    else:
        slots = int((_share(asked, rest) - units.ring_of_all - padding * each) // each)
    charged = units.slot * (_verifying(asked, units, slots) + padding) * drafts
    left = rest - charged - (slots + padding) * each - units.ring_of_all
    return _Split(slots, left, charged, rest - charged)


def _verifying(asked: Asked, units: Units, slots: int) -> int:
    """
    For how many requests draft states are charged.
    """
    if asked.max_mamba_cache_size is None and not asked.radix:
        return slots
    return min(asked.requests_per_worker or 0, slots // units.slots_per_request)


def _limited(asked: Asked, tokens: int) -> int:
    """
    No more tokens than are wanted, in whole pages.
    """
    if asked.max_total_tokens is not None:
        tokens = min(tokens, asked.max_total_tokens)
    return tokens // asked.page_size * asked.page_size


def _requests(asked: Asked, units: Units, profiled: int, slots: int) -> int:
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
        count = min(count, slots // units.slots_per_request)
    return max(0, count)
