"""
The concessions, and the ladder of them for MTP on one GPU.

Which memory errors a rung answers depends on how the version on the box sizes its pools; the rules are
those of sglang-facts, sections 1.3 to 1.8. A rung that cannot help there gives nothing.
"""

from mtpdeploy.core.diagnosis import Cause
from mtpdeploy.core.ladder import Ladder, Rung
from mtpdeploy.engines.sglang import concessions as give
from mtpdeploy.engines.sglang import memory_concessions as memory

_OOM_AFTER_WEIGHTS = (Cause.OOM_POOLS, Cause.OOM_GRAPHS, Cause.OOM_SERVING)
_POOLS_TOO_SMALL = (Cause.OOM_KV_POOL, Cause.OOM_STATE_POOL)


def _rung(name: str, causes: tuple[Cause, ...], gives_up: str, change: give.Change) -> Rung:
    return Rung(name=name, causes=frozenset(causes), gives_up=gives_up, change=change)


_RUNGS = (
    _rung(
        "complete-speculative-flags",
        (Cause.SPEC_INCOMPLETE,),
        "nothing: the missing ones are filled in",
        give.complete_speculative_flags,
    ),
    _rung("topk-one", (Cause.SPEC_TOPK, Cause.SPEC_NUMBERS), "branches of the draft tree", give.topk_one),
    _rung(
        "drop-track-interval",
        (Cause.TRACK_INTERVAL,),
        "the wanted spacing of saved states",
        give.drop_track_interval,
    ),
    _rung(
        "fitting-draft-tokens",
        (Cause.SPEC_NUMBERS,),
        "draft tokens that the tree cannot hold",
        give.fitting_draft_tokens,
    ),
    _rung(
        "unquantized-draft",
        (Cause.DRAFT_FORMAT,),
        "the target's quantisation for the draft",
        give.unquantized_draft,
    ),
    _rung("page-size-one", (Cause.PAGE_SIZE,), "pages larger than one token", give.page_size_one),
    _rung(
        "plain-linear-attention",
        (Cause.LINEAR_ATTENTION, Cause.EXTRA_BUFFER_UNSUPPORTED),
        "the linear attention kernels asked for",
        give.plain_linear_attention,
    ),
    _rung(
        "full-precision-state",
        (Cause.NAN_LOGITS,),
        "memory: the recurrent state takes twice as much",
        give.full_precision_state,
    ),
    _rung("system-ptxas", (Cause.PTXAS_TOO_OLD,), "the compiler that Triton brings", give.system_ptxas),
    _rung("fewer-build-jobs", (Cause.BUILD_KILLED,), "time of the first start", give.fewer_build_jobs),
    _rung(
        "without-balance-check",
        (Cause.GPUS_UNBALANCED,),
        "memory that only some of the GPUs have free",
        give.without_balance_check,
    ),
    _rung(
        "room-for-the-draft",
        (Cause.GPUS_UNBALANCED,),
        "part of the pools, which fill a GPU before the draft is loaded",
        memory.room_beside_pools,
    ),
    _rung(
        "no-custom-all-reduce",
        (Cause.PEER_ACCESS,),
        "some speed between the GPUs",
        give.no_custom_all_reduce,
    ),
    _rung(
        "no-weight-offload",
        (Cause.OFFLOAD_UNSUPPORTED,),
        "GPU memory: all weights lie there",
        give.no_weight_offload,
    ),
    _rung(
        "extra-buffer",
        (
            Cause.STRATEGY_NEEDS_EXTRA_BUFFER,
            Cause.LAZY_WITHOUT_MTP,
            Cause.STRATEGY_NEEDS_NO_OVERLAP,
        ),
        "two state slots a request, for the overlap scheduler",
        give.extra_buffer,
    ),
    _rung(
        "triton-attention",
        (
            Cause.ATTENTION_BACKEND,
            Cause.PAGE_SIZE,
            Cause.TOOLCHAIN_MISSING,
            Cause.CUDA_FAULT,
            Cause.NAN_LOGITS,
        ),
        "the speed of the attention kernels asked for",
        give.triton_attention,
    ),
    _rung(
        "without-cudnn-check",
        (Cause.CUDNN_TOO_OLD,),
        "the guard against a slow image encoder",
        give.without_cudnn_check,
    ),
    _rung("longer-watchdog", (Cause.WATCHDOG,), "a quick end of a hanging server", give.longer_watchdog),
    _rung(
        "shorter-context", (Cause.CONTEXT_TOO_LONG,), "context beyond the model's own", give.shorter_context
    ),
    _rung(
        "computed-state-slots",
        _POOLS_TOO_SMALL,
        "the wanted number of state slots",
        memory.computed_state_slots,
    ),
    Rung(
        name="less-static-memory",
        causes=frozenset((*_OOM_AFTER_WEIGHTS, Cause.OOM_DRAFT_WEIGHTS)),
        gives_up="part of the pools: fewer tokens and requests at a time",
        change=memory.less_static_memory,
        moves="mem_fraction_static",
    ),
    Rung(
        name="guess-less-static-memory",
        causes=frozenset((Cause.SCHEDULER_EXCEPTION, Cause.UNKNOWN)),
        gives_up="part of the pools, on a guess",
        change=memory.guess_less_static_memory,
        moves="mem_fraction_static",
        guess=True,
    ),
    _rung(
        "fewer-requests",
        (Cause.OOM_KV_POOL, Cause.OOM_POOLS),
        "requests running at the same time; the others wait",
        memory.fewer_requests,
    ),
    Rung(
        name="more-static-memory",
        causes=frozenset(_POOLS_TOO_SMALL),
        gives_up="room for graphs and activations",
        change=memory.more_static_memory,
        moves="mem_fraction_static",
        up=True,
    ),
    _rung(
        "smaller-hierarchical-cache",
        (Cause.HOST_MEMORY, Cause.HOST_PINNING, Cause.HOST_ALLOCATION),
        "part of the prefix cache in host memory",
        memory.smaller_hierarchical_cache,
    ),
    _rung(
        "hierarchical-cache-by-ratio",
        (Cause.HOST_POOL_TOO_SMALL,),
        "the wanted size of the cache in host memory",
        memory.hierarchical_cache_by_ratio,
    ),
    _rung(
        "no-hierarchical-cache",
        (
            Cause.HICACHE_UNSUPPORTED,
            Cause.HICACHE_NEEDS_RADIX,
            Cause.HOST_MEMORY,
            Cause.HOST_POOL_TOO_SMALL,
            Cause.HOST_PINNING,
            Cause.HOST_ALLOCATION,
            Cause.HOST_OOM_KILLED,
            Cause.STATE_SLOTS,
            Cause.POOL_CHECK,
        ),
        "the prefix cache in host memory",
        memory.no_hierarchical_cache,
    ),
    _rung(
        "smaller-prefill-chunk",
        (Cause.OOM_SERVING,),
        "speed of long prompts",
        memory.smaller_prefill_chunk,
    ),
    _rung(
        "smaller-graph-batch",
        (Cause.OOM_GRAPHS,),
        "speed of decoding beyond that batch size",
        memory.smaller_graph_batch,
    ),
    _rung(
        "no-prefill-graphs",
        (Cause.OOM_GRAPHS, Cause.GRAPHS_FAILED),
        "some speed of prefill",
        memory.no_prefill_graphs,
    ),
    _rung(
        "half-the-requests",
        (Cause.KV_EXHAUSTED, Cause.STATE_SLOTS),
        "half of the requests running at the same time; they wait",
        memory.half_the_requests,
    ),
    _rung(
        "without-idle-check",
        (Cause.POOL_CHECK,),
        "the end of a server whose pools leak",
        give.without_idle_check,
    ),
    _rung(
        "bf16-state",
        (*_POOLS_TOO_SMALL, Cause.OOM_POOLS),
        "precision of the recurrent state",
        memory.bf16_state,
    ),
    _rung(
        "fewest-requests",
        (Cause.OOM_KV_POOL, Cause.OOM_POOLS),
        "almost all requests running at the same time",
        memory.fewest_requests,
    ),
    _rung(
        "fewer-draft-tokens",
        (*_POOLS_TOO_SMALL, Cause.OOM_POOLS, Cause.OOM_GRAPHS, Cause.KV_EXHAUSTED),
        "drafted tokens a step",
        memory.fewer_draft_tokens,
    ),
    _rung(
        "no-buffer",
        (Cause.STRATEGY_NEEDS_RADIX, Cause.EXTRA_BUFFER_UNSUPPORTED, Cause.OOM_STATE_POOL),
        "the overlap scheduler or the prefix cache, whichever the version demands",
        give.no_buffer,
    ),
    _rung(
        "no-overlap",
        (Cause.STRATEGY_NEEDS_NO_OVERLAP, Cause.SPEC_FAULT),
        "the overlap scheduler",
        give.no_overlap,
    ),
    _rung(
        "no-radix-cache",
        (
            Cause.STRATEGY_NEEDS_EXTRA_BUFFER,
            Cause.EXTRA_BUFFER_UNSUPPORTED,
            Cause.PAGE_SIZE,
            Cause.OOM_STATE_POOL,
            Cause.STATE_SLOTS,
            Cause.POOL_CHECK,
            Cause.CUDA_FAULT,
        ),
        "the prefix cache",
        give.no_radix_cache,
    ),
    _rung(
        "no-decode-graphs",
        (Cause.GRAPHS_FAILED, Cause.CUDA_FAULT),
        "much of the speed of decoding",
        give.no_decode_graphs,
    ),
    _rung(
        "without-mtp",
        (
            *_POOLS_TOO_SMALL,
            *_OOM_AFTER_WEIGHTS,
            Cause.OOM_DRAFT_WEIGHTS,
            Cause.ATTENTION_BACKEND,
            Cause.CUDA_FAULT,
            Cause.GRAPHS_FAILED,
            Cause.DRAFT_FORMAT,
            Cause.SPEC_TOPK,
            Cause.SPEC_NUMBERS,
            Cause.SPEC_FAULT,
            Cause.STRATEGY_NEEDS_EXTRA_BUFFER,
        ),
        "multi-token prediction, and its speed",
        give.without_mtp,
    ),
)

RUNGS: dict[str, Rung] = {rung.name: rung for rung in _RUNGS}
"""Every rung by name."""

LADDERS: dict[str, Ladder] = {"default": Ladder(name="default", rungs=_RUNGS)}
"""
The ladders by name. `default`: MTP for a hybrid model on one GPU, cheapest concession first. MTP itself
is given up last, and only where the server's table allows it.
"""
