"""
The catalogue of SGLang's failures: what a line means, with a real example of it.

EXCEPTIONS are searched in the last line (and the message lines after it) of a traceback that ended a
process; RECORDS in log records and in argparse's last line. Numbers in comments are those of the
catalogue of sglang-facts, section 3. Where a source says "torch", "CUDA", "Transformers" …, the text is
printed by that library under SGLang. A weight of 5 is an exception without a name here, 6 to 9 a name that
a further line of the same message may better; how a process ended weighs less than what it said before.

A pattern with `(in ` is also searched in the exception followed by the place that raised it, as in
`AssertionError (in init_kv_buffer: assert x)`: some of SGLang's checks have no words, some words of a
library say nothing without the place.
"""

from mtpdeploy.core.diagnosis import Cause, Signature, Stage

NAMED = 10
"""The weight of a root cause with a name."""

_EARLY = (Stage.LAUNCHED, Stage.ARGUMENTS)
_LATER = tuple(stage for stage in Stage if stage not in _EARLY)
_AFTER_GRAPHS_BEGUN = (
    Stage.GRAPHS_BEGUN,
    Stage.GRAPHS_CAPTURED,
    Stage.SIZED,
    Stage.LISTENING,
    Stage.READY,
)

_OUT_OF_MEMORY = r"CUDA (?:error: )?out of memory|CUBLAS_STATUS_ALLOC_FAILED"
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
        seen_in="0.5.6-0.5.23",
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
        seen_in="0.5.14-0.5.23",
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
        seen_in="0.5.13-0.5.23",
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
        seen_in="0.5.13-0.5.23",
        source="sglang 0.5.23 mem_cache/kv_cache_configurator.py",
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
        seen_in="0.5.6-0.5.23",
        source="sglang 0.5.9 model_executor/cuda_graph_runner.py, 0.5.14 prefill_cuda_graph_runner.py; torch",
    ),
    # 5
    Signature(
        cause=Cause.OOM_WEIGHTS,
        pattern=_OUT_OF_MEMORY,
        example=_OOM_EXAMPLE,
        seen_in="0.5.6-0.5.23",
        source="torch; public report of 2026-06-11",
        stages=(Stage.LAUNCHED, Stage.ARGUMENTS, Stage.WEIGHTS_BEGUN),
    ),
    # 6
    Signature(
        cause=Cause.OOM_DRAFT_WEIGHTS,
        pattern=_OUT_OF_MEMORY,
        example=_OOM_EXAMPLE,
        seen_in="0.5.6-0.5.23",
        source="torch; sglang-facts 1.3: the draft of the 27B needs 5.53 GiB at its peak",
        stages=(Stage.DRAFT_BEGUN,),
    ),
    # 7
    Signature(
        cause=Cause.OOM_POOLS,
        pattern=_OUT_OF_MEMORY,
        example=_OOM_EXAMPLE,
        seen_in="0.5.6-0.5.23",
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
        seen_in="0.5.14-0.5.23",
        source="torch; sglang 0.5.23 model_executor/runner/prefill_cuda_graph_runner.py",
        stages=(Stage.GRAPHS_BEGUN, Stage.GRAPHS_CAPTURED),
    ),
    # 10
    Signature(
        cause=Cause.OOM_SERVING,
        pattern=_OUT_OF_MEMORY,
        example=_OOM_EXAMPLE,
        seen_in="0.5.6-0.5.23",
        source="torch; public report of 2026-09 (ready, then out of memory at the first prefill)",
        stages=(Stage.SIZED, Stage.LISTENING, Stage.READY),
    ),
    # 11
    Signature(
        cause=Cause.KV_EXHAUSTED,
        pattern=(
            r"(?:Prefill|Decode) out of memory\. Try to lower your batch size"
            r"|No space left for only one request"
            r"|Out of memory even after retracting all other requests"
        ),
        example="RuntimeError: Prefill out of memory. Try to lower your batch size.",
        seen_in="0.5.6-0.5.23",
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
        seen_in="0.5.6-0.5.23",
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
        seen_in="0.5.6-0.5.23",
        source=(
            "sglang 0.5.9 managers/scheduler_runtime_checker_mixin.py, "
            "mem_cache/mamba_radix_cache.py; issue 15840"
        ),
    ),
    # 17
    Signature(
        cause=Cause.HOST_MEMORY,
        pattern=r"Not enough host memory available\. Requesting",
        example=(
            "ValueError: Not enough host memory available. Requesting 40.00 GB but only have 34.87 GB free. "
            "Please reduce the size of the hierarchical cache."
        ),
        seen_in="0.5.6-0.5.23",
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
        seen_in="0.5.6-0.5.14",
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
        seen_in="0.5.6-0.5.23",
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
        seen_in="0.5.6-0.5.23",
        source="torch, Python, Linux",
    ),
    # 19
    Signature(
        cause=Cause.HOST_OOM_KILLED,
        pattern=r"scheduler died during initialization \(exit code: -9\)",
        example=(
            "RuntimeError: Rank 0 scheduler died during initialization (exit code: -9). If exit code is -9 "
            "(SIGKILL), a common cause is the OS OOM killer. Run `dmesg -T | grep -i oom` to check."
        ),
        seen_in="0.5.10-0.5.23",
        source="a real start on a CPU with mem_fraction_static 2.0, 0.5.23",
        weight=4,
    ),
    # 49
    Signature(
        cause=Cause.NATIVE_CRASH,
        pattern=r"scheduler died during initialization \(exit code: -(?:11|6)\)",
        example="RuntimeError: Rank 0 scheduler died during initialization (exit code: -11).",
        seen_in="0.5.10-0.5.23",
        source="sglang 0.5.10 entrypoints/engine.py; -11 is SIGSEGV, -6 SIGABRT",
        stages=_EARLY,
        weight=4,
    ),
    Signature(
        cause=Cause.CUDA_FAULT,
        pattern=r"scheduler died during initialization \(exit code: -(?:11|6)\)",
        example="RuntimeError: Rank 0 scheduler died during initialization (exit code: -11).",
        seen_in="0.5.10-0.5.23",
        source="sglang 0.5.10 entrypoints/engine.py; -11 is SIGSEGV, -6 SIGABRT",
        stages=_LATER,
        weight=4,
    ),
    # 82
    Signature(
        cause=Cause.SHARED_MEMORY_FULL,
        pattern=r"scheduler died during initialization \(exit code: -7\)",
        example="RuntimeError: Rank 0 scheduler died during initialization (exit code: -7).",
        seen_in="0.5.10-0.5.23",
        source="sglang 0.5.10 entrypoints/engine.py; -7 is SIGBUS; issue 40723",
        weight=4,
    ),
    Signature(
        cause=Cause.SCHEDULER_DIED,
        pattern=r"scheduler died during initialization \(exit code: ",
        example="RuntimeError: Rank 0 scheduler died during initialization (exit code: 1).",
        seen_in="0.5.10-0.5.23",
        source="sglang 0.5.10 entrypoints/engine.py",
        weight=3,
    ),
    # 22
    Signature(
        cause=Cause.STRATEGY_NEEDS_EXTRA_BUFFER,
        pattern=r"is not compatible with radix cache when using --mamba-scheduler-strategy no_buffer",
        example=(
            "ValueError: Speculative decoding for Qwen3_5MoeForConditionalGeneration is not compatible "
            "with radix "
            "cache when using --mamba-scheduler-strategy no_buffer."
        ),
        seen_in="0.5.10-0.5.13",
        source="sglang 0.5.10 server_args.py; QwenLM/Qwen3.8 issue 108",
    ),
    # 23
    Signature(
        cause=Cause.STRATEGY_NEEDS_RADIX,
        pattern=r"mamba extra_buffer is not compatible with --disable-radix-cache",
        example=(
            "ValueError: mamba extra_buffer is not compatible with --disable-radix-cache. Overlap "
            "scheduling is "
            "already supported with no_buffer + disable_radix_cache."
        ),
        seen_in="0.5.10-0.5.13",
        source="sglang 0.5.13 server_args.py",
    ),
    # 24
    Signature(
        cause=Cause.STRATEGY_NEEDS_NO_OVERLAP,
        pattern=r"no_buffer do not support overlap schedule",
        example=(
            "AssertionError: no_buffer do not support overlap schedule. "
            "Try to set disable_overlap_schedule=True."
        ),
        seen_in="0.5.14-0.5.23",
        source="sglang 0.5.14 server_args.py, 0.5.23 arg_groups/mamba_hook.py",
    ),
    # 25
    Signature(
        cause=Cause.PAGE_SIZE,
        pattern=(
            r"no_buffer only supports page_size=1|Page size must be 1 for MambaRadixCache"
            r"|either FLA_CHUNK_SIZE or page_size must be divisible"
            r"|AssertionError \(in .{0,200}TokenToKVPoolAllocator"
        ),
        example="AssertionError: Page size must be 1 for MambaRadixCache v1, got 128",
        seen_in="0.5.6-0.5.23",
        source="sglang 0.5.6 and 0.5.9 mem_cache/mamba_radix_cache.py, 0.5.14 server_args.py; issue 14527",
    ),
    Signature(
        cause=Cause.ATTENTION_BACKEND,
        pattern=r"no_buffer do not support trtllm_mha",
        example="AssertionError: no_buffer do not support trtllm_mha attention backend.",
        seen_in="0.5.14-0.5.23",
        source="sglang 0.5.14 server_args.py, 0.5.23 arg_groups/mamba_hook.py",
    ),
    # 26
    Signature(
        cause=Cause.EXTRA_BUFFER_UNSUPPORTED,
        pattern=r"extra_buffer (?:is not supported for|is only supported on|requires platform support)",
        example="AssertionError: Mamba extra_buffer is only supported on CUDA devices with FLA backend",
        seen_in="0.5.7-0.5.23",
        source="sglang 0.5.9 server_args.py, 0.5.23 arg_groups/mamba_hook.py; PR 22908",
    ),
    # 27
    Signature(
        cause=Cause.LAZY_WITHOUT_MTP,
        pattern=r"extra_buffer_lazy (?:is not yet supported with speculative decoding|unsupported with spec)",
        example=(
            "AssertionError: extra_buffer_lazy is not yet supported with speculative decoding. "
            "Use --mamba-scheduler-strategy extra_buffer instead."
        ),
        seen_in="0.5.13-0.5.16",
        source="sglang 0.5.13 and 0.5.14 server_args.py",
    ),
    # 28
    Signature(
        cause=Cause.TRACK_INTERVAL,
        pattern=(
            r"mamba_track_interval \d+ must be (?:greater than or equal to|divisible by)"
            r"|AssertionError \(in .{0,200}mamba_track_interval"
        ),
        example=(
            "AssertionError: mamba_track_interval 2 must be greater than or equal to "
            "speculative_num_draft_tokens 4"
        ),
        seen_in="0.5.7-0.5.23 (without a text from 0.5.14)",
        source="sglang 0.5.9 server_args.py, 0.5.23 arg_groups/mamba_hook.py",
    ),
    # 29, 31
    Signature(
        cause=Cause.SPEC_TOPK,
        pattern=(
            r"Spec v2 currently only supports topk = 1|trtllm_mha backend only supports topk = 1"
            r"|speculative_eagle_topk > 1 with page_size > 1"
        ),
        example="ValueError: Spec v2 currently only supports topk = 1 for speculative decoding.",
        seen_in="0.5.6-0.5.23",
        source="sglang 0.5.10 server_args.py, 0.5.23 arg_groups/speculative_hook.py",
    ),
    # 30: no text; the function is what tells it from other assertions
    Signature(
        cause=Cause.SPEC_INCOMPLETE,
        pattern=(
            r"AssertionError \(in (?:_handle_speculative_decoding|_handle_eagle_family)\b"
            r"|NoneType.{0,60} \(in .{0,200}speculative_"
        ),
        example="AssertionError (in _handle_eagle_family: assert ()",
        seen_in="0.5.6-0.5.23",
        source="sglang 0.5.9 server_args.py, 0.5.23 arg_groups/speculative_hook.py",
    ),
    # 30
    Signature(
        cause=Cause.SPEC_NUMBERS,
        pattern=r"selected index k out of range",
        example="RuntimeError: selected index k out of range",
        seen_in="0.5.6-0.5.23",
        source="torch (topk); sgl-project/sglang issue 5160",
    ),
    # 33, 34
    Signature(
        cause=Cause.LINEAR_ATTENTION,
        pattern=(
            r"--enable-(?:linear|gdn)-replayssm(?:-spec)? (?:requires|is not supported|with)"
            r"|replayssm.{0,120}mutually exclusive"
            r"|--linear-attn-(?:decode|prefill|verify)-backend \w+ (?:on SM100\+ requires|is not supported)"
            r"|FlashInfer GDN decode .{0,80}is not compatible"
        ),
        example=(
            "ValueError: --enable-linear-replayssm requires the Triton linear-attn decode backend, got "
            "'flashinfer'."
        ),
        seen_in="0.5.10-0.5.23",
        source="sglang 0.5.10 and 0.5.17 server_args.py, 0.5.23 arg_groups/attention_hook.py",
    ),
    # 35, 67, 80
    Signature(
        cause=Cause.BAD_ARGUMENT,
        pattern=(
            r"Unknown speculative algorithm name:|Unsupported kv_cache_dtype"
            r"|Cannot find the config file for \w+$|please provide --dist-init-addr as host:port"
            r"|must be divisible by number of nodes"
        ),
        example="ValueError: Unknown speculative algorithm name: NEXTTWO",
        seen_in="0.5.6-0.5.23",
        source="a real start with a misspelt algorithm, 0.5.23",
    ),
    # 36
    Signature(
        cause=Cause.HICACHE_NEEDS_RADIX,
        pattern=r"enable-hierarchical-cache and disable-radix-cache are mutually exclusive",
        example=(
            "ValueError: The arguments enable-hierarchical-cache and disable-radix-cache are mutually "
            "exclusive "
            "and cannot be used at the same time. Please use only one of them."
        ),
        seen_in="0.5.6-0.5.23",
        source="sglang 0.5.9 server_args.py",
    ),
    # 37
    Signature(
        cause=Cause.HICACHE_UNSUPPORTED,
        pattern=r"HiRadixCache only supports MHA and MLA yet",
        example="ValueError: HiRadixCache only supports MHA and MLA yet",
        seen_in="0.5.6-0.5.10",
        source="sglang 0.5.9 mem_cache/hiradix_cache.py",
    ),
    # 38, 39
    Signature(
        cause=Cause.ATTENTION_BACKEND,
        pattern=(
            r"(?:are the only supported backends|backends are supported) on Blackwell GPUs for hybrid GDN "
            r"models"
        ),
        example=(
            "AssertionError: triton or trtllm_mha backend are the only supported backends on Blackwell "
            "GPUs for "
            "hybrid GDN models, use --attention-backend triton or --attention-backend trtllm_mha."
        ),
        seen_in="0.5.6-0.5.23",
        source="sglang 0.5.9 and 0.5.23 layers/attention/attention_registry.py",
    ),
    # 40
    Signature(
        cause=Cause.ATTENTION_BACKEND,
        pattern=r"FlashAttention v3 Backend requires SM>=80 and SM<=90",
        example=(
            "AssertionError: FlashAttention v3 Backend requires SM>=80 and SM<=90. "
            "Please use --attention-backend flashinfer."
        ),
        seen_in="0.5.6-0.5.23",
        source="sglang 0.5.9 layers/attention/attention_registry.py",
    ),
    Signature(
        cause=Cause.ATTENTION_BACKEND,
        pattern=r"EAGLE is not supported in (?:decode )?attention backend",
        example="ValueError: EAGLE is not supported in decode attention backend torch_native",
        seen_in="0.5.6-0.5.23",
        source="a real start with NEXTN on a CPU, 0.5.23",
    ),
    # 41
    Signature(
        cause=Cause.KERNEL_MISSING,
        pattern=r"no kernel image is available for execution on the device",
        example="RuntimeError: CUDA error: no kernel image is available for execution on the device",
        seen_in="0.5.6-0.5.23",
        source="CUDA",
    ),
    # 41: what is compiled on the box; the text of ptxas comes in a further line
    Signature(
        cause=Cause.PTXAS_TOO_OLD,
        pattern=r"Value 'sm_\w+' is not defined for option 'gpu-name'",
        example="ptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'",
        seen_in="0.5.6-0.5.23",
        source="Triton; triton-lang/triton issue 8539",
    ),
    Signature(
        cause=Cause.KERNEL_UNFIT,
        pattern=r"ptxas fatal|PTXAS error:|triton\.compiler\.errors\.\w+|out of resource: shared memory",
        example=(
            "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 163840, "
            "Hardware limit: 101376."
        ),
        seen_in="0.5.6-0.5.23",
        source="Triton; sgl-project/sglang issues 5995 and 8879",
        weight=9,
    ),
    # 55
    Signature(
        cause=Cause.GPU_TOO_OLD,
        pattern=r"SGLang only supports sm75 and above",
        example="RuntimeError: SGLang only supports sm75 and above.",
        seen_in="0.5.6-0.5.23",
        source="sglang 0.5.9 model_executor/model_runner.py",
    ),
    # 42
    Signature(
        cause=Cause.KERNEL_MISMATCH,
        pattern=(
            r"Could not load any common_ops library|libnvrtc\.so\.|libnuma\.so\.|version `GLIBC_|undefined "
            r"symbol|needs a native ROCm build"
            r"|No module named '(?:sgl_kernel|flashinfer|torch|triton)'"
        ),
        example="ModuleNotFoundError: No module named 'sgl_kernel'",
        seen_in="0.5.6-0.5.23",
        source="a real start without the kernel package, 0.5.23; sgl-kernel",
    ),
    # 43
    Signature(
        cause=Cause.KERNEL_MISMATCH,
        pattern=(
            r"is installed with version .{1,80} less than the minimum required version"
            r"|with minimum required version .{1,80} is not installed"
        ),
        example=(
            "Exception: sglang-kernel is installed with version 0.4.2, which is less than the minimum "
            "required "
            "version 0.4.9. Please reinstall the latest version"
        ),
        seen_in="0.5.6-0.5.23",
        source="sglang 0.5.23 utils/common.py and entrypoints/engine.py",
    ),
    # 44
    Signature(
        cause=Cause.TOOLCHAIN_MISSING,
        pattern=(
            r"Could not find nvcc|No such file or directory: 'ninja'"
            r"|fatal error: [\w/.]+\.h(?:pp)?: No such file"
            r"|ld: cannot find -l"
        ),
        example="csrc/x.cuh:21:10: fatal error: cuda_fp8.h: No such file or directory",
        seen_in="0.5.6-0.5.23",
        source="flashinfer, torch; sgl-project/sglang issue 5389",
    ),
    # 44: what the compilers said comes in further lines, if at all
    Signature(
        cause=Cause.BUILD_KILLED,
        pattern=(
            r"died due to signal 9|Killed signal terminated program|^(?:.{0,200}\s)?Killed\s*$"
            r"|(?:nvcc|cicc|cc1plus|ptxas)\b.{0,80}\bKilled\b"
        ),
        example="nvcc error   : 'cicc' died due to signal 9 (Kill signal)",
        seen_in="0.5.6-0.5.23",
        source="nvcc, gcc; a public report of 2026-08-07 (flashinfer 0.6.14)",
    ),
    Signature(
        cause=Cause.TOOLCHAIN_MISSING,
        pattern=(
            r"Ninja build failed|\['ninja', .{0,80}returned non-zero exit status|Error building extension '"
        ),
        example="subprocess.CalledProcessError: Command '['ninja', '-v']' returned non-zero exit status 1.",
        seen_in="0.5.6-0.5.23",
        source="flashinfer, torch; sgl-project/sglang issue 5389",
        weight=8,
    ),
    Signature(
        cause=Cause.JIT_CACHE,
        pattern=r"Check failed: \(lib_handle_ != nullptr\)|\.so: (?:file too short|invalid ELF header)",
        example=(
            "RuntimeError: Check failed: (lib_handle_ != nullptr) is false: Failed to load /root/.cache/x.so"
        ),
        seen_in="0.5.10-0.5.23",
        source="apache-tvm-ffi, the dynamic linker; a public report of 2026-07",
    ),
    # 45
    Signature(
        cause=Cause.TOOLCHAIN_MISSING,
        pattern=r"Failed to find C compiler|Python\.h: No such file",
        example="RuntimeError: Failed to find C compiler. Please specify via CC environment variable.",
        seen_in="0.5.6-0.5.23",
        source="Triton",
    ),
    # 46
    Signature(
        cause=Cause.CUDNN_TOO_OLD,
        pattern=r"CuDNN Compatibility Issue Detected",
        example="RuntimeError: CRITICAL WARNING: PyTorch 2.9.1 & CuDNN Compatibility Issue Detected",
        seen_in="0.5.6-0.5.9",
        source="sglang 0.5.9 server_args.py",
    ),
    # 47
    Signature(
        cause=Cause.CUDA_FAULT,
        pattern=r"an illegal memory access was encountered|device-side assert|unspecified launch failure",
        example="RuntimeError: CUDA error: an illegal memory access was encountered",
        seen_in="0.5.6-0.5.23",
        source="CUDA; sgl-project/sglang issue 28569",
    ),
    # 48: with a check of it, or where torch meets it
    Signature(
        cause=Cause.NAN_LOGITS,
        pattern=r"NaN in the logits|probability tensor contains either `inf`, `nan` or element < 0",
        example="ValueError: Detected errors during sampling! NaN in the logits.",
        seen_in="0.5.6-0.5.23",
        source="sglang 0.5.9 layers/sampler.py; torch",
    ),
    # 8, 9, and graphs that are replayed with shapes they were not captured for
    Signature(
        cause=Cause.GRAPHS_FAILED,
        pattern=(
            r"(?:Capture (?:[\w-]+ ){1,3}|Piecewise )(?:cuda |CUDA |CPU )?graph failed"
            r"|for prefill runner\.|Unsupported BCG output type"
        ),
        example=(
            "TypeError: Unsupported BCG output type: "
            "<class 'sglang.srt.layers.logits_processor.LogitsProcessorOutput'>"
        ),
        seen_in="0.5.6-0.5.23",
        source="sglang 0.5.9 model_executor/cuda_graph_runner.py, 0.5.17 model_executor/runner_backend_utils",
        weight=7,
    ),
    Signature(
        cause=Cause.GRAPHS_FAILED,
        pattern=(
            r"'\w+Wrapper' object has no attribute"
            r"|The expanded size of the tensor \(\d+\) must match the existing size"
        ),
        example=(
            "RuntimeError: The expanded size of the tensor (4096) must match the existing size (4112) at "
            "non-singleton dimension 0."
        ),
        seen_in="0.5.6-0.5.23",
        source="torch, flashinfer; public reports of 2026-06-26 (0.5.14) and 2026-07",
        stages=_AFTER_GRAPHS_BEGUN,
        weight=6,
    ),
    # 50, 51
    Signature(
        cause=Cause.DRIVER_TOO_OLD,
        pattern=(
            r"The NVIDIA driver on your system is too old|CUDA driver version is insufficient"
            r"|forward compatibility was attempted|system has unsupported display driver"
        ),
        example=(
            "RuntimeError: The NVIDIA driver on your system is too old (found version 12040). Please "
            "update your "
            "GPU driver"
        ),
        seen_in="0.5.6-0.5.23",
        source="torch, CUDA errors 803 and 804",
    ),
    # 52, 54
    Signature(
        cause=Cause.NO_GPU,
        pattern=(
            r"No CUDA GPUs are available|No accelerator \(CUDA|Found no NVIDIA driver on your system"
            r"|Torch not compiled with CUDA enabled|module 'torch\._C' has no attribute '_cuda_setDevice'"
            r"|nvidia-smi not found|nvidia-smi error:"
        ),
        example=(
            "RuntimeError: No accelerator (CUDA, XPU, HPU, NPU, MUSA, MPS) or platform plugin is available."
        ),
        seen_in="0.5.6-0.5.23",
        source="a real start without a GPU, 0.5.23; torch; sglang 0.5.9 utils/common.py",
    ),
    # 53
    Signature(
        cause=Cause.GPU_COUNT,
        pattern=r"invalid device ordinal|AssertionError.{0,200}gpu_id < num_gpus",
        example="torch.AcceleratorError: CUDA error: invalid device ordinal",
        seen_in="0.5.6-0.5.23",
        source="CUDA",
    ),
    # 68
    Signature(
        cause=Cause.PARALLEL_SHAPE,
        pattern=(
            r"\b\d+ is not divisible by \d+|size_k = \d+, is not divisible by"
            r"|must be divisible by (?:moe_tp_size|ep_size)"
            r"|is not divisible by (?:weight quantization|min_thread|group_size)"
            r"|AssertionError \(in .{0,200}% [\w.]*tp_size == 0"
        ),
        example="AssertionError: 64 is not divisible by 7",
        seen_in="0.5.6-0.5.23",
        source=(
            "sglang 0.5.9 distributed/utils.py and model_executor/model_runner.py; a public report "
            "of 2026-06-11"
        ),
    ),
    Signature(
        cause=Cause.OFFLOAD_UNSUPPORTED,
        pattern=r"functional_call got multiple values for keys",
        example=(
            "ValueError: functional_call got multiple values for keys "
            "['linear_attn.attn.dt_bias', 'linear_attn.dt_bias']"
        ),
        seen_in="0.5.6-0.5.23",
        source="torch, from sglang 0.5.12 utils/offloader.py; a public report of 2026-05-20",
    ),
    # 66: where the draft's tensors do not fit at all, it is said
    Signature(
        cause=Cause.DRAFT_FORMAT,
        pattern=(
            r"Attempted to load weight|size mismatch for|The size of tensor a \(\d+\) must match"
            r"|KeyError: '[\w.]*(?:weight|scales?|qzeros|g_idx)\w*'"
        ),
        example=(
            "AssertionError: Attempted to load weight (torch.Size([5120, 10240])) into parameter "
            "(torch.Size([640, 5120]))"
        ),
        seen_in="0.5.6-0.5.23",
        source="sglang 0.5.12 model_loader/weight_utils.py; a public report of 2026-05 (0.5.12-0.5.20)",
        stages=(Stage.DRAFT_BEGUN,),
        weight=7,
    ),
    # 20
    Signature(
        cause=Cause.GPUS_UNBALANCED,
        pattern=r"The memory capacity is unbalanced",
        example=(
            "ValueError: The memory capacity is unbalanced. Some GPUs may be occupied by other processes. "
            "min_per_gpu_memory=8.88, local_gpu_memory=11.90"
        ),
        seen_in="0.5.6-0.5.23",
        source="sglang 0.5.6 model_executor/model_runner.py, 0.5.23 distributed/bootstrap.py; issue 1533",
    ),
    # 57, before 56: what the hub answers for a gated name also says that it is no local folder
    Signature(
        cause=Cause.MODEL_ACCESS,
        pattern=r"gated repo|401 Client Error|403 (?:Client Error|Forbidden)",
        example="OSError: You are trying to access a gated repo.",
        seen_in="0.5.6-0.5.23",
        source="Transformers, Hugging Face Hub",
    ),
    # 56
    Signature(
        cause=Cause.MODEL_NOT_FOUND,
        pattern=(
            r"is not a local folder and is not a valid model identifier|Repository Not Found"
            r"|Repo id must (?:be in the form|use alphanumeric)"
        ),
        example=(
            "OSError: Repo id must be in the form 'repo_name' or 'namespace/repo_name': "
            "'/nonexistent/model'. "
            "Use `repo_type` argument if needed."
        ),
        seen_in="0.5.6-0.5.23",
        source="a real start with a missing folder, 0.5.23; Transformers",
    ),
    # 58
    Signature(
        cause=Cause.MODEL_OFFLINE,
        pattern=(
            r"couldn't connect to 'https://huggingface\.co'|LocalEntryNotFoundError|OfflineModeIsEnabled"
        ),
        example=(
            "OSError: We couldn't connect to 'https://huggingface.co' to load the files, and couldn't find "
            "them "
            "in the cached files."
        ),
        seen_in="0.5.6-0.5.23",
        source="a real start without a line to the hub, 0.5.23; Transformers",
    ),
    # 59, 60
    Signature(
        cause=Cause.MODEL_INCOMPLETE,
        pattern=(
            r"Cannot find any model weights with|SafetensorError|incomplete metadata"
            r"|Should have a `model_type` key|Can't load (?:image processor|tokenizer|feature extractor) for"
        ),
        example="RuntimeError: Cannot find any model weights with `/models/27b`",
        seen_in="0.5.6-0.5.23",
        source="real starts with damaged folders, 0.5.23; safetensors, Transformers",
    ),
    # 82, before 61: shared memory is a disk of its own
    Signature(
        cause=Cause.SHARED_MEMORY_FULL,
        pattern=(
            r"No space left on device.{0,120}/dev/shm|/dev/shm.{0,200}No space left"
            r"|unable to (?:write to|mmap|resize) file </torch_|unable to allocate shared memory\(shm\)"
        ),
        example="OSError: [Errno 28] No space left on device: '/dev/shm/sgl_shm_mm_1'",
        seen_in="0.5.6-0.5.23",
        source="Linux, torch; sgl-project/sglang issue 40723",
    ),
    # 61
    Signature(
        cause=Cause.DISK_FULL,
        pattern=r"No space left on device",
        example="OSError: [Errno 28] No space left on device",
        seen_in="0.5.6-0.5.23",
        source="Linux",
    ),
    # 62, 63
    Signature(
        cause=Cause.MODEL_UNSUPPORTED,
        pattern=(
            r"does not recognize this architecture|Model architectures .{1,300} are not supported for now"
            r"|is not a registered model in the Transformers library"
        ),
        example=(
            "ValueError: Model architectures ['Qwen3_5ForConditionalGeneration'] are not supported for now. "
            "Supported architectures: dict_keys(['ApertusForCausalLM'"
        ),
        seen_in="0.5.6-0.5.23",
        source="sglang 0.5.9 models/registry.py; a real start with an unknown name, 0.5.23; Transformers",
    ),
    # 64
    Signature(
        cause=Cause.REMOTE_CODE,
        pattern=r"trust_remote_code=True|requires you to execute the configuration file",
        example=(
            "ValueError: The repository contains custom code which must be executed to correctly load the "
            "model. "
            "Please pass the argument `trust_remote_code=True` to allow custom code to be run."
        ),
        seen_in="0.5.6-0.5.23",
        source="Transformers; sglang 0.5.9 utils/hf_transformers_utils.py",
    ),
    # 65
    Signature(
        cause=Cause.CONTEXT_TOO_LONG,
        pattern=r"context_length \(\d+\) is greater than the derived context_length \(\d+\)",
        example=(
            "ValueError: Warning: User-specified context_length (1000000) is greater than the derived "
            "context_length (262144). This may lead to incorrect model outputs or CUDA errors."
        ),
        seen_in="0.5.6-0.5.23",
        source="sglang 0.5.9 and 0.5.23 configs/model_config.py",
    ),
    # 71, 72
    Signature(
        cause=Cause.INTERNAL_PORT_TAKEN,
        pattern=(
            r"Port is already in use\. dist_init_port|\w+ at \d+ is not available in \d+ seconds"
            r"|EADDRINUSE|server socket has failed to listen|ZMQError: Address already in use"
        ),
        example="ValueError: dist_init_port at 30233 is not available in 30 seconds.",
        seen_in="0.5.6-0.5.23",
        source="sglang 0.5.9 server_args.py and utils/common.py; torch, ZeroMQ",
    ),
    # 78
    Signature(
        cause=Cause.NCCL_FAILED,
        pattern=r"NCCL error|nccl\w+Error\b|unhandled (?:system|cuda) error|DistBackendError",
        example=(
            "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3690, unhandled "
            "system error, "
            "NCCL version 2.29.7"
        ),
        seen_in="0.5.6-0.5.23",
        source="torch, NCCL",
    ),
    # 79, after 72, which wears the same name
    Signature(
        cause=Cause.PEER_UNREACHABLE,
        pattern=r"client socket has (?:timed out|failed to connect)|DistNetworkError",
        example=(
            "torch.distributed.DistNetworkError: The client socket has timed out after 600000ms "
            "while trying to "
            "connect to (10.0.0.1, 20000)."
        ),
        seen_in="0.5.6-0.5.23",
        source="torch",
    ),
    Signature(
        cause=Cause.PEER_ACCESS,
        pattern=r"peer access is not supported|CUDART error:|custom_all_reduce\S* .{0,80}failed",
        example="RuntimeError: CUDART error: peer access is not supported between these two devices",
        seen_in="0.5.6-0.5.23",
        source="CUDA, from sglang 0.5.12 distributed/device_communicators/cuda_wrapper.py",
    ),
    # 74: says only that something was said above
    Signature(
        cause=Cause.SCHEDULER_DIED,
        pattern=r"Initialization failed\. Please see the error messages above",
        example="RuntimeError: Initialization failed. Please see the error messages above.",
        seen_in="0.5.6-0.5.23",
        source="sglang 0.5.9 entrypoints/engine.py",
        weight=1,
    ),
)
"""What the exception that ended a process means."""

RECORDS: tuple[Signature, ...] = (
    # 70
    Signature(
        cause=Cause.PORT_TAKEN,
        pattern=r"error while attempting to bind on address .{1,200}(?:address already in use|in use)",
        example=(
            "ERROR:    [Errno 98] error while attempting to bind on address ('127.0.0.1', 33001): "
            "address already in use"
        ),
        seen_in="0.5.6-0.5.23",
        source="a real start on a port that another SGLang held, 0.5.23; uvicorn",
    ),
    # 69, 35
    Signature(
        cause=Cause.BAD_ARGUMENT,
        pattern=(
            r"^(?:[\w. ]+: )?error: (?:unrecognized arguments|argument |ambiguous option"
            r"|the following arguments are required)"
        ),
        example="error: unrecognized arguments: --no-such-flag 3",
        seen_in="0.5.6-0.5.23",
        source="a real start with an unknown flag, 0.5.23; argparse",
        stages=(Stage.LAUNCHED,),
    ),
    # 41: kernels in C++ print and leave
    Signature(
        cause=Cause.KERNEL_MISSING,
        pattern=r"failed with error code no kernel image is available",
        example="RMSNorm failed with error code no kernel image is available for execution on the device",
        seen_in="0.5.6-0.5.23",
        source="sgl-project/sglang issue 7249",
    ),
    # 75
    Signature(
        cause=Cause.WATCHDOG,
        pattern=r"watchdog timeout \((?![^)]*self\.soft=True)",
        example="Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)",
        seen_in="0.5.6-0.5.23",
        source="sglang 0.5.9 and 0.5.23 utils/watchdog.py",
    ),
    # 19
    Signature(
        cause=Cause.HOST_OOM_KILLED,
        pattern=r"^Subprocess scheduler\w* \(pid=\d+\) crashed with exit code -9\b|^Exit code: -9$",
        example=(
            "Subprocess scheduler_0 (pid=9822) crashed with exit code -9. Triggering SIGQUIT for cleanup..."
        ),
        seen_in="0.5.6-0.5.23",
        source="a real scheduler killed with -9, 0.5.23; sglang 0.5.9 entrypoints/engine.py",
        weight=4,
    ),
    # 49
    Signature(
        cause=Cause.CUDA_FAULT,
        pattern=(
            r"^Subprocess scheduler\w* \(pid=\d+\) crashed with exit code -(?:11|6)\b|^Exit code: -(?:11"
            r"|6)$|^Fatal Python error: (?:Segmentation fault|Aborted)"
        ),
        example=(
            "Subprocess scheduler_0 (pid=9822) crashed with exit code -11. Triggering SIGQUIT for cleanup..."
        ),
        seen_in="0.5.6-0.5.23",
        source="sglang 0.5.10 utils/watchdog.py; -11 is SIGSEGV, -6 SIGABRT; Python",
        stages=_LATER,
        weight=4,
    ),
    Signature(
        cause=Cause.NATIVE_CRASH,
        pattern=r"^Fatal Python error: (?:Segmentation fault|Aborted)|^Exit code: -(?:11|6)$",
        example="Fatal Python error: Segmentation fault",
        seen_in="0.5.6-0.5.23",
        source="Python; sgl-project/sglang issue 3451",
        stages=_EARLY,
        weight=4,
    ),
    # 82
    Signature(
        cause=Cause.SHARED_MEMORY_FULL,
        pattern=(
            r"^Subprocess scheduler\w* \(pid=\d+\) crashed with exit code -7\b|^Exit code: -7$"
            r"|^Fatal Python error: Bus error"
        ),
        example="Fatal Python error: Bus error",
        seen_in="0.5.6-0.5.23",
        source="sglang 0.5.10 utils/watchdog.py; -7 is SIGBUS; Python",
        weight=4,
    ),
    Signature(
        cause=Cause.SHARED_MEMORY_FULL,
        pattern=(
            r"Error while creating shared memory segment|failed to extend /dev/shm/"
            r"|/dev/shm/.{0,200}No space left on device"
        ),
        example=(
            "box:9822:9901 [0] NCCL WARN Error while creating shared memory segment /dev/shm/nccl-x "
            "(size 9637888), "
            "error: No space left on device (28)"
        ),
        seen_in="0.5.6-0.5.23",
        source="NCCL",
    ),
    Signature(
        cause=Cause.SCHEDULER_DIED,
        pattern=r"^Subprocess scheduler\w* \(pid=\d+\) crashed with exit code|^Rank \d+ scheduler is dead",
        example="Rank 0 scheduler is dead. Please check if there are relevant logs.",
        seen_in="0.5.6-0.5.23",
        source="sglang 0.5.9 entrypoints/engine.py, 0.5.10 utils/watchdog.py",
        weight=3,
    ),
    # 76: a busy scheduler's as well as a dead one's, so it ends nothing
    Signature(
        cause=Cause.DEAF,
        pattern=r"^Health check failed\. Server couldn't get a response from detokenizer",
        example=(
            "Health check failed. Server couldn't get a response from detokenizer for last 20 seconds. "
            "tic start time: 03:15:56. last_heartbeat time: 03:15:30"
        ),
        seen_in="0.5.6-0.5.23",
        source="sglang 0.5.9 and 0.5.23 entrypoints/http_server.py",
        weight=2,
        fatal=False,
    ),
    # 48: a warning, after which the server goes on to answer nonsense
    Signature(
        cause=Cause.NAN_LOGITS,
        pattern=r"^Detected errors during sampling! NaN in the logits",
        example="Detected errors during sampling! NaN in the logits.",
        seen_in="0.5.6-0.5.12",
        source="sglang 0.5.9 layers/sampler.py",
        weight=3,
        fatal=False,
    ),
    # 77
    Signature(
        cause=Cause.DETOKENIZER_DIED,
        pattern=r"^Subprocess detokenizer\w* \(pid=\d+\) crashed with exit code",
        example=(
            "Subprocess detokenizer (pid=10150) crashed with exit code -9. Triggering SIGQUIT for cleanup..."
        ),
        seen_in="0.5.10-0.5.23",
        source="a real detokenizer killed with -9, 0.5.23",
        weight=5,
    ),
)
"""What a log record, or a bare line outside any traceback, means."""

PLACED: tuple[Signature, ...] = tuple(s for s in EXCEPTIONS if r" \(in " in s.pattern)
"""Those that name the place in which an exception was raised."""

SIGNATURES: tuple[Signature, ...] = EXCEPTIONS + RECORDS
"""The whole catalogue."""

ORDINARY_SCHEDULER = Signature(
    cause=Cause.SCHEDULER_EXCEPTION,
    pattern=r"^[\w.]+",
    example="ModuleNotFoundError: No module named 'vllm'",
    seen_in="0.5.6-0.5.23",
    source="a real start without kernels, 0.5.23",
    weight=5,
)
"""An exception that ended the scheduler and that the catalogue has no name for."""

ORDINARY_PARENT = Signature(
    cause=Cause.PYTHON_EXCEPTION,
    pattern=r"^[\w.]+",
    example=(
        "json.decoder.JSONDecodeError: Expecting property name enclosed in double quotes: line 1 column 2"
    ),
    seen_in="0.5.6-0.5.23",
    source="a real start with a broken override, 0.5.23",
    weight=5,
)
"""An exception that ended the main process and that the catalogue has no name for."""

ORDINARY_DETOKENIZER = Signature(
    cause=Cause.DETOKENIZER_DIED,
    pattern=r"^[\w.]+",
    example="UnicodeDecodeError: 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte",
    seen_in="0.5.6-0.5.23",
    source="sglang 0.5.9 managers/detokenizer_manager.py",
    weight=5,
)
"""Any exception that ended the detokenizer (77)."""

WARMUP = Signature(
    cause=Cause.WARMUP_FAILED,
    pattern=r"^Initialization failed\. warmup error:",
    example="Initialization failed. warmup error: Traceback (most recent call last):",
    seen_in="0.5.6-0.5.23",
    source="sglang 0.5.9 entrypoints/http_server.py",
    weight=3,
)
"""The first request failed (73): what the scheduler says, before it or after, goes before."""

SILENT = Signature(
    cause=Cause.SCHEDULER_DIED,
    pattern=r"^(?:Received sigquit from a child process|SIGQUIT received)",
    example="Received sigquit from a child process. It usually means the child failed.",
    seen_in="0.5.6-0.5.23",
    source="sglang 0.5.9 entrypoints/engine.py; a real start, 0.5.23",
    weight=1,
)
"""A child failed: always a consequence, and worth naming only where nothing was said before."""
