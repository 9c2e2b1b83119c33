"""
The recurrent state of a hybrid model: bytes of a slot, slots of a request, and what drafts add.

From configs/mamba_utils.py and `_calculate_mamba_ratio` (0.5.6-0.5.23). All bytes are on one GPU.
"""

from mtpdeploy.core.model import ModelShape, StateShape
from mtpdeploy.engines.sglang.sizing.asked import Asked

BASE_SLOTS = 3
"""Slots of one request with the radix cache: its state and two copies."""


def conv_bytes(asked: Asked) -> int:
    """
    The windows of the convolutions of one slot, all layers of the fullest pipeline stage.
    """
    state = asked.model.state
    if state is None:
        return 0
    groups = state.groups
    if groups % asked.attn_tp:
        # Groups are repeated until every rank has those of its heads.
        groups = asked.attn_tp
    channels = (state.inner_size + 2 * groups * state.state_size) // asked.attn_tp
    return int(stage_layers(asked, state) * channels * state.conv_columns * asked.conv_itemsize)


def ssm_bytes(asked: Asked) -> int:
    """
    The recurrent state of one slot, all layers of the fullest pipeline stage.
    """
    state = asked.model.state
    if state is None:
        return 0
    elements = max(1, state.heads // asked.attn_tp) * state.head_dim * state.state_size
    return int(stage_layers(asked, state) * elements * asked.state_itemsize)


def stage_layers(asked: Asked, state: StateShape) -> int:
    """
    How many recurrent layers the fullest pipeline stage has.
    """
    return fullest_stage(asked.model, state.numbers, asked.pp)


def fullest_stage(model: ModelShape, numbers: tuple[int, ...], pp: int) -> int:
    """
    How many of some layers the fullest of `pp` stages has; the last stages take what does not divide.
    """
    if pp <= 1:
        return len(numbers)
    small, left = divmod(model.layers, pp)
    ends = [small * (stage + 1) + max(0, stage + 1 - (pp - left)) for stage in range(pp)]
    starts = [0, *ends[:-1]]
    return max(sum(a <= n < b for n in numbers) for a, b in zip(starts, ends, strict=True))


def slots_per_request(asked: Asked) -> int:
    """
    How many slots are reserved for one running request.
    """
    if not asked.radix:
        return 1
    extra = asked.strategy.startswith("extra_buffer")
    if asked.release[:3] == (0, 5, 7):
        # This one release adds the second tracking slot whenever the strategy has none, too.
        return BASE_SLOTS + (1 if extra and asked.draft_tokens else 2)
    if not extra:
        return BASE_SLOTS
    if asked.release < (0, 5, 10):
        tracked = 1 if asked.draft_tokens else 2
    elif asked.strategy == "extra_buffer_lazy" or not asked.overlap:
        tracked = 1
    else:
        tracked = 2
    return BASE_SLOTS + tracked - (1 if asked.skip_decode_lock else 0)


def ring_bytes(asked: Asked) -> int:
    """
    ReplaySSM's ring of one request (to 0.5.19: of one slot), all layers of the fullest pipeline stage.

    It records keys, values and gates, of KDA more than of GDN; from 0.5.20 on GDN keeps the low parts of both
    and is as long as `linear_replayssm_cache_len` says, before as the draft (configs/mamba_utils.py).
    """
    state = asked.model.state
    if state is None or not asked.replay:
        return 0
    late, kda = asked.release >= (0, 5, 20), state.kind == "kda"
    length = asked.replay_length if late or kda or not asked.draft_tokens else asked.draft_tokens
    heads = state.heads // asked.attn_tp
    keys = max(1, state.groups // asked.attn_tp) * state.state_size
    recorded = (heads * state.head_dim + keys) * asked.conv_itemsize
    gate = 4 * heads
    if kda:
        layer = 2 * recorded + gate * (1 + state.state_size)
    elif late:
        layer = recorded * (2 if asked.conv_itemsize < 4 else 1) + gate
    else:
        layer = recorded + 2 * gate
    return int(stage_layers(asked, state) * length * layer)


def intermediate_ssm_bytes(asked: Asked, slots: int, requests: int) -> int:
    """
    The states that verifying a draft keeps: one for each draft token of each request, and of a padding one.
    """
    if not asked.draft_tokens or asked.replay:
        return 0
    return _sets(asked, slots, requests) * asked.draft_tokens * ssm_bytes(asked)


def intermediate_conv_bytes(asked: Asked, slots: int, requests: int) -> int:
    """
    The same for the windows of the convolutions, which overlap from 0.5.14 on where there are no branches.
    """
    state = asked.model.state
    if not asked.draft_tokens or state is None:
        return 0
    sets, conv = _sets(asked, slots, requests), conv_bytes(asked)
    if asked.release < (0, 5, 14) or asked.topk > 1 or state.kind == "kda":
        return sets * asked.draft_tokens * conv
    return sets * (asked.draft_tokens + state.conv_columns - 1) * conv // state.conv_columns


def _sets(asked: Asked, slots: int, requests: int) -> int:
    return (slots if asked.release < (0, 5, 7) else requests) + 1
