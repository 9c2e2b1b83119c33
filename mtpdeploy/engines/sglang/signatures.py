"""
The catalogue of SGLang's failures: what a line means, with a real example of it.

EXCEPTIONS are searched in the last line (and the message lines after it) of a traceback that ended a
process; RECORDS in log records and in argparse's last line. Numbers in comments are those of the
catalogue of sglang-facts, section 3. Where a source says "torch", "CUDA", "Transformers" …, the text is
printed by that library under SGLang. A weight of 5 is an exception without a name here; how a process
ended weighs less than what it said before.
"""

from mtpdeploy.core.diagnosis import Cause, Signature, Stage

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
        pattern=rf"Capture (?:\w+ )?(?:cuda|CUDA) graph failed: .*(?:{_OUT_OF_MEMORY})",
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
        cause=Cause.CUDA_FAULT,
        pattern=r"scheduler died during initialization \(exit code: -(?:11|6|7)\)",
        example="RuntimeError: Rank 0 scheduler died during initialization (exit code: -11).",
        seen_in="0.5.10-0.5.23",
        source="sglang 0.5.10 entrypoints/engine.py; -11 is SIGSEGV, -6 SIGABRT, -7 SIGBUS",
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
            r"|AssertionError \(in .*mamba_track_interval"
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
        pattern=r"AssertionError \(in (?:_handle_speculative_decoding|_handle_eagle_family)\b",
        example="AssertionError (in _handle_eagle_family: assert ()",
        seen_in="0.5.6-0.5.23",
        source="sglang 0.5.9 server_args.py, 0.5.23 arg_groups/speculative_hook.py",
    ),
    # 35, 67
    Signature(
        cause=Cause.BAD_ARGUMENT,
        pattern=(
            r"Unknown speculative algorithm name:|Unsupported kv_cache_dtype"
            r"|Cannot find the config file for \w+$|extra_buffer (?:is not supported for|requires platform "
            r"support)"
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
        pattern=(
            r"no kernel image is available for execution on the device|ptxas fatal|PTXAS error:"
            r"|out of resource: shared memory"
        ),
        example="RuntimeError: CUDA error: no kernel image is available for execution on the device",
        seen_in="0.5.6-0.5.23",
        source="CUDA, Triton; triton-lang/triton issue 8539, sgl-project/sglang issues 5995 and 8879",
    ),
    # 42
    Signature(
        cause=Cause.KERNEL_MISMATCH,
        pattern=(
            r"Could not load any common_ops library|libnvrtc\.so\.|libnuma\.so\.|version `GLIBC_|undefined "
            r"symbol"
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
            r"is installed with version .* less than the minimum required version"
            r"|with minimum required version .* is not installed"
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
            r"Could not find nvcc|Ninja build failed|No such file or directory: 'ninja'"
            r"|\['ninja', .*returned non-zero exit status|fatal error: cuda\w*\.h: No such file"
        ),
        example="subprocess.CalledProcessError: Command '['ninja', '-v']' returned non-zero exit status 1.",
        seen_in="0.5.6-0.5.23",
        source="flashinfer, torch; a public report of 0.4.5",
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
        pattern=r"invalid device ordinal|AssertionError.*gpu_id < num_gpus",
        example="torch.AcceleratorError: CUDA error: invalid device ordinal",
        seen_in="0.5.6-0.5.23",
        source="CUDA",
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
            r"does not recognize this architecture|Model architectures .* are not supported for now"
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
        pattern=r"NCCL error|ncclSystemError|unhandled system error|DistBackendError",
        example=(
            "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3690, unhandled "
            "system error, "
            "NCCL version 2.29.7"
        ),
        seen_in="0.5.6-0.5.23",
        source="torch, NCCL",
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
        pattern=r"error while attempting to bind on address .*(?:address already in use|in use)",
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
            r"^Subprocess scheduler\w* \(pid=\d+\) crashed with exit code -(?:11|6|7)\b|^Exit code: -(?:11"
            r"|6|7)$"
        ),
        example=(
            "Subprocess scheduler_0 (pid=9822) crashed with exit code -11. Triggering SIGQUIT for cleanup..."
        ),
        seen_in="0.5.6-0.5.23",
        source="sglang 0.5.10 utils/watchdog.py; -11 is SIGSEGV, -6 SIGABRT, -7 SIGBUS",
        weight=4,
    ),
    Signature(
        cause=Cause.CUDA_FAULT,
        pattern=r"^Fatal Python error: (?:Segmentation fault|Aborted|Bus error)",
        example="Fatal Python error: Segmentation fault",
        seen_in="0.5.6-0.5.23",
        source="Python; a public report of 0.4.2",
        weight=4,
    ),
    Signature(
        cause=Cause.SCHEDULER_DIED,
        pattern=r"^Subprocess scheduler\w* \(pid=\d+\) crashed with exit code|^Rank \d+ scheduler is dead",
        example="Rank 0 scheduler is dead. Please check if there are relevant logs.",
        seen_in="0.5.6-0.5.23",
        source="sglang 0.5.9 entrypoints/engine.py, 0.5.10 utils/watchdog.py",
        weight=3,
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
