"""
Causes of memory: of the GPU, of the host, of the pools.
"""

from mtpdeploy.core.diagnosis import Cause, Knowledge, Next
from mtpdeploy.engines.sglang import host_remedies, remedies

KNOWLEDGE: dict[Cause, Knowledge] = {
    Cause.OOM_KV_POOL: Knowledge(
        Next.CLIMB,
        "Ask for fewer running requests (with MTP each reserves recurrent state before the pools are "
        "sized), or raise mem_fraction_static. If that is not enough, use a quantised model or more GPUs "
        "(tp_size).",
        remedies.pools,
    ),
    Cause.OOM_STATE_POOL: Knowledge(
        Next.CLIMB,
        'Raise mem_fraction_static, halve the state with mamba_ssm_dtype = "bfloat16", or draft fewer '
        "tokens. If that is not enough, use a quantised model or more GPUs (tp_size).",
        remedies.state_pool,
    ),
    Cause.OOM_WEIGHTS: Knowledge(
        Next.STOP,
        "The weights do not fit into what was free on the GPU: end what else holds its memory (nvidia-smi "
        "names it), use a quantised model, or spread it over more GPUs (tp_size). mem_fraction_static does "
        "not matter.",
        remedies.weights,
    ),
    Cause.OOM_DRAFT_WEIGHTS: Knowledge(
        Next.CLIMB,
        "The draft needs more at its load than it keeps: lower mem_fraction_static (up to SGLang 0.5.13), "
        "or use a quantised model.",
        remedies.draft_weights,
    ),
    Cause.OOM_POOLS: Knowledge(
        Next.CLIMB,
        "Lower mem_fraction_static, or ask for fewer running requests. Make sure that nothing else grows "
        "on the same GPU meanwhile.",
        remedies.smaller_pools,
    ),
    Cause.OOM_GRAPHS: Knowledge(
        Next.CLIMB,
        "Lower mem_fraction_static so that the CUDA graphs find room beside the pools, or capture smaller "
        "ones (cuda_graph_max_bs_decode).",
        remedies.smaller_graphs,
    ),
    Cause.OOM_SERVING: Knowledge(
        Next.CLIMB,
        "Lower mem_fraction_static or chunked_prefill_size: activations need room beside the pools.",
        remedies.smaller_chunks,
    ),
    Cause.KV_EXHAUSTED: Knowledge(
        Next.CLIMB,
        "Lower max_running_requests, context_length or the draft tokens: the pool of tokens was full, and "
        "GPU memory was not. Newer versions of SGLang count better.",
        remedies.tokens,
    ),
    Cause.STATE_SLOTS: Knowledge(
        Next.CLIMB,
        "Raise max_mamba_cache_size by at least one slot more than the running requests need, or lower "
        "max_running_requests; leave the hierarchical cache out, which holds slots while it copies.",
        remedies.state_slots,
    ),
    Cause.POOL_CHECK: Knowledge(
        Next.CLIMB,
        "A fault of SGLang's own bookkeeping, not of memory: leave the hierarchical or the radix cache "
        "out, or use a newer version.",
        remedies.pool_check,
    ),
    Cause.HOST_MEMORY: Knowledge(
        Next.CLIMB,
        "Make the hierarchical cache smaller (hicache_size, GB; for a hybrid model it is taken twice from "
        "0.5.10 to 0.5.16), or leave it out.",
        host_remedies.host_cache,
    ),
    Cause.HOST_POOL_TOO_SMALL: Knowledge(
        Next.CLIMB,
        "Up to SGLang 0.5.14 the host pool must be larger than the device pool: raise hicache_size, or use "
        "hicache_ratio above 1.",
    ),
    Cause.HOST_PINNING: Knowledge(
        Next.CLIMB,
        "The driver refused to pin that much host memory in one piece: make the hierarchical cache smaller "
        "(hicache_size), leave it out, or use a newer SGLang, which pins in pieces.",
        host_remedies.pinning,
    ),
    Cause.HOST_ALLOCATION: Knowledge(
        Next.CLIMB,
        "The box or its container has too little host memory: leave the hierarchical cache out or make it "
        "smaller, or rent more RAM.",
        host_remedies.host_allocation,
    ),
    Cause.HOST_OOM_KILLED: Knowledge(
        Next.CLIMB,
        "A process was killed with SIGKILL, most likely because the box or its container ran out of host "
        "memory (`dmesg -T | grep -i oom`). Rent more RAM; where the hierarchical cache is on, leave it out.",
        host_remedies.killed_for_memory,
    ),
    Cause.KILLED: Knowledge(
        Next.REPEAT,
        "Often that is host memory, but nothing here proves it: `dmesg -T | grep -i oom` on the box tells, "
        "or the provider's console.",
        host_remedies.killed,
    ),
    Cause.BUS_ERROR: Knowledge(
        Next.STOP,
        "Look at `df -h /dev/shm`: in a container it is mostly too small (--shm-size or --ipc=host). While "
        "weights are loaded, compare the sizes of the model's files with the hub's: one may be cut short.",
    ),
    Cause.SHARED_MEMORY_FULL: Knowledge(
        Next.STOP,
        "Make room in /dev/shm: `df -h /dev/shm`; dead servers leave files there (sgl_shm_*, nccl-*, "
        "psm_*) that may be removed. In a container give it more (--shm-size or --ipc=host).",
    ),
}
