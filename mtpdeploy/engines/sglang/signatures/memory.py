"""
Memory of the GPU and of the host: the pools, weights, graphs, slots and tokens.
"""

from mtpdeploy.core.diagnosis import Cause, Signature, Stage

_OUT_OF_MEMORY = (
    r"(?:CUDA|HIP) (?:error: )?out of memory|CUBLAS_STATUS_ALLOC_FAILED|CUDA_ERROR_OUT_OF_MEMORY"
    r"|cudaErrorMemoryAllocation|Cuda failure (?:2 )?'out of memory'"
)
_OOM_EXAMPLE = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 384.00 MiB. GPU 0 has a total capacity of "
    "94.97 GiB of which 338.75 MiB is free."
)

EXCEPTIONS: tuple[Signature, ...] = (
    # 1
    Signature(
        cause=Cause.OOM_KV_POOL,
        pattern=r"Not enough memory\. Please try to increase --mem-fraction-static",
        example=(
            "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. "
            "Current value: self.server_args.mem_fraction_static=0.8"
        ),
        source="sglang 0.5.9 model_executor/model_runner_kv_cache_mixin.py, 0.5.12 pool_configurator.py",
    ),
    # 2
    Signature(
        cause=Cause.OOM_KV_POOL,
        pattern=r"Loaded weights leave no GPU memory for the KV cache",
        example=(
            "ValueError: Loaded weights leave no GPU memory for the KV cache under "
            "--mem-fraction-static=0.7. "
            "Raise --mem-fraction-static above 0.773 (minimum viable = 1 - available/pre = 0.7724)."
        ),
        versions=("0.5.14", ""),
        source="sglang 0.5.23 mem_cache/kv_cache_configurator.py",
    ),
    # 3
    Signature(
        cause=Cause.OOM_STATE_POOL,
        pattern=r"Not enough GPU memory for hybrid \(mamba/linear-attention\) state cache",
        example=(
            "RuntimeError: Not enough GPU memory for hybrid (mamba/linear-attention) state cache. Computed "
            "max_mamba_cache_size=-28 (total_rest_memory=-7.96 GB, mamba_cache_per_req=146.81 MB)."
        ),
        versions=("0.5.13", ""),
        source="sglang 0.5.13 model_executor/model_runner_kv_cache_mixin.py; figures of an MI355X log",
    ),
    # 4
    Signature(
        cause=Cause.OOM_STATE_POOL,
        pattern=r"state cache is too small to serve any requests",
        example=(
            "RuntimeError: Hybrid (mamba/linear-attention) state cache is too small to serve any requests. "
            "max_mamba_cache_size=4, mamba_ratio=5, resulting max_num_reqs=0."
        ),
        versions=("0.5.13", ""),
        source="sglang 0.5.23 mem_cache/kv_cache_configurator.py",
    ),
    # 4 before 0.5.13, where nothing checks it until graphs of no batch are captured or the worker begins
    Signature(
        cause=Cause.OOM_STATE_POOL,
        pattern=r"capture_bs=\[(?:0(?:, \d+)*)?\]|max_running_request is zero",
        example="AssertionError: capture_bs=[0]",
        source="sglang 0.5.6-0.5.23 model_executor/cuda_graph_runner.py and managers/tp_worker.py",
    ),
    # 8
    Signature(
        cause=Cause.OOM_GRAPHS,
        pattern=rf"Capture (?:\w+ )?(?:cuda|CUDA) graph failed: .{{0,300}}?(?:{_OUT_OF_MEMORY})",
        example=(
            "Exception: Capture cuda graph failed: CUDA out of memory. Tried to allocate 970.00 MiB. GPU 0 "
            "has "
            "a total capacity of 94.50 GiB of which 512.00 MiB is free."
        ),
        source="sglang 0.5.9 model_executor/cuda_graph_runner.py, 0.5.14 prefill_cuda_graph_runner.py; torch",
    ),
    # 5
    Signature(
        cause=Cause.OOM_WEIGHTS,
        pattern=_OUT_OF_MEMORY,
        example=_OOM_EXAMPLE,
        source="torch; public report of 2026-06-11",
        stages=(Stage.LAUNCHED, Stage.ARGUMENTS, Stage.WEIGHTS_BEGUN),
    ),
    # 6
    Signature(
        cause=Cause.OOM_DRAFT_WEIGHTS,
        pattern=_OUT_OF_MEMORY,
        example=_OOM_EXAMPLE,
        source="torch; sglang-facts 1.3: the draft of the 27B needs 5.53 GiB at its peak",
        stages=(Stage.DRAFT_BEGUN,),
    ),
    # 7
    Signature(
        cause=Cause.OOM_POOLS,
        pattern=_OUT_OF_MEMORY,
        example=_OOM_EXAMPLE,
        source="torch; public report of 2026-06-11 (workspace after `Memory pool end`)",
        stages=(
            Stage.WEIGHTS_LOADED,
            Stage.DRAFT_LOADED,
            Stage.STATE_ALLOCATED,
            Stage.KV_ALLOCATED,
            Stage.POOLS_READY,
        ),
    ),
    # 8: prefill graphs of 0.5.16 on pass torch's own exception through
    Signature(
        cause=Cause.OOM_GRAPHS,
        pattern=_OUT_OF_MEMORY,
        example="torch.AcceleratorError: CUDA error: out of memory",
        source="torch; sglang 0.5.23 model_executor/runner/prefill_cuda_graph_runner.py",
        stages=(Stage.GRAPHS_BEGUN, Stage.GRAPHS_CAPTURED),
    ),
    # 10
    Signature(
        cause=Cause.OOM_SERVING,
        pattern=_OUT_OF_MEMORY,
        example=_OOM_EXAMPLE,
        source="torch; public report of 2026-09 (ready, then out of memory at the first prefill)",
        stages=(Stage.SIZED, Stage.LISTENING, Stage.READY),
    ),
    # 11
    Signature(
        cause=Cause.KV_EXHAUSTED,
        pattern=(
            r"(?:Prefill|Decode) out of memory\. Try to lower your batch size"
            r"|No space left for only one request"
            r"|Out of memory even after retracting all other requests|alloc_req_slots runs out of memory"
        ),
        example="RuntimeError: Prefill out of memory. Try to lower your batch size.",
        source="sglang 0.5.9 mem_cache/common.py, 0.5.23 mem_cache/allocation.py; issue 34676",
    ),
    # 13, 14, 15
    Signature(
        cause=Cause.STATE_SLOTS,
        pattern=r"Not enough space for mamba (?:cache|ping pong idx)|Can not alloc mamba cache",
        example=(
            "AssertionError: Not enough space for mamba cache, try to increase --mamba-full-memory-ratio or "
            "--max-mamba-cache-size."
        ),
        source=(
            "sglang 0.5.6 and 0.5.23 mem_cache/memory_pool.py, 0.5.20 "
            "mem_cache/mamba_radix_cache.py; PR 36770"
        ),
    ),
    # 16
    Signature(
        cause=Cause.POOL_CHECK,
        pattern=r"memory leak detected!|evict leaf node invalid",
        example="ValueError: token_to_kv_pool_allocator memory leak detected!",
        source=(
            "sglang 0.5.9 managers/scheduler_runtime_checker_mixin.py, "
            "mem_cache/mamba_radix_cache.py; issue 15840"
        ),
    ),
    # 17
    Signature(
        cause=Cause.HOST_MEMORY,
        pattern=r"Not enough host memory (?:available\. Requesting|for )",
        example=(
            "ValueError: Not enough host memory available. Requesting 40.00 GB but only have 34.87 GB free. "
            "Please reduce the size of the hierarchical cache."
        ),
        source="sglang 0.5.9 mem_cache/memory_pool_host.py, 0.5.23 mem_cache/pool_host/base.py",
    ),
    # 18
    Signature(
        cause=Cause.HOST_POOL_TOO_SMALL,
        pattern=r"The host memory should be larger than the device memory",
        example=(
            "AssertionError: The host memory should be larger than the device memory with the current "
            "protocol"
        ),
        versions=("", "0.5.14"),
        source="sglang 0.5.9 mem_cache/memory_pool_host.py",
    ),
    # 17: a page-locked allocation that the driver refuses; its words alone could be a kernel's
    Signature(
        cause=Cause.HOST_PINNING,
        pattern=(
            r"cudaHostRegister failed"
            r"|CUDA error: invalid argument \(in (?:init_kv_buffer|alloc_with_pin_memory"
            r"|alloc_with_host_register)\b"
        ),
        example="RuntimeError: CUDA error: invalid argument (in init_kv_buffer: return torch.empty()",
        source="sglang 0.5.6 mem_cache/memory_pool_host.py, 0.5.14 mem_cache/pool_host/common.py; issue 7666",
    ),
    # 19
    Signature(
        cause=Cause.HOST_ALLOCATION,
        pattern=(
            r"can't allocate memory: you tried|Cannot allocate "
            r"memory|^(?:[\w.]+\.)?_?(?:Array)?MemoryError\b"
        ),
        example=(
            "RuntimeError: [enforce fail at alloc_cpu.cpp:121] err == 0. DefaultCPUAllocator: can't allocate "
            "memory: you tried to allocate 40000000000 bytes. Error code 12 (Cannot allocate memory)"
        ),
        source="torch, Python, Linux",
    ),
)
