"""
Kernels: attention backends, packages, compilers, graphs, crashes on the GPU.
"""

from mtpdeploy.core.diagnosis import Cause, Signature, Stage

_AFTER_GRAPHS_BEGUN = (
    Stage.GRAPHS_BEGUN,
    Stage.GRAPHS_CAPTURED,
    Stage.SIZED,
    Stage.LISTENING,
    Stage.READY,
)

EXCEPTIONS: tuple[Signature, ...] = (
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
        source="sglang 0.5.9 and 0.5.23 layers/attention/attention_registry.py",
    ),
    Signature(
        cause=Cause.ATTENTION_BACKEND,
        pattern=(
            r"(?:[Aa]ttention[ _-]?|Attn)[Bb]ackend\b.{0,60}(?:not|only) support"
            r"|not support\w*.{0,60}attention[ _-]backend"
        ),
        example="AssertionError: Currently HybridAttentionBackend does not support speculative decoding.",
        source="sgl-project/sglang issue 9330",
        weight=9,
    ),
    # 40
    Signature(
        cause=Cause.ATTENTION_BACKEND,
        pattern=r"FlashAttention v3 Backend requires SM>=80 and SM<=90",
        example=(
            "AssertionError: FlashAttention v3 Backend requires SM>=80 and SM<=90. "
            "Please use --attention-backend flashinfer."
        ),
        source="sglang 0.5.9 layers/attention/attention_registry.py",
    ),
    Signature(
        cause=Cause.ATTENTION_BACKEND,
        pattern=r"EAGLE is not supported in (?:decode )?attention backend",
        example="ValueError: EAGLE is not supported in decode attention backend torch_native",
        source="a real start with NEXTN on a CPU, 0.5.23",
    ),
    # 41
    Signature(
        cause=Cause.KERNEL_MISSING,
        pattern=r"no kernel image is available for execution on the device",
        example="RuntimeError: CUDA error: no kernel image is available for execution on the device",
        source="CUDA",
    ),
    # 41: what is compiled on the box; the text of ptxas comes in a further line
    Signature(
        cause=Cause.PTXAS_TOO_OLD,
        pattern=r"Value 'sm_\w+' is not defined for option 'gpu-name'",
        example="ptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'",
        source="Triton; triton-lang/triton issue 8539",
    ),
    Signature(
        cause=Cause.KERNEL_UNFIT,
        pattern=r"Mismatched type for \w+ between",
        example=(
            "AssertionError('Mismatched type for token_k_indices between then block (int64) and else block "
            "(int32)')"
        ),
        source="Triton, in a further line; a public report of 2026-04-07",
    ),
    Signature(
        cause=Cause.KERNEL_UNFIT,
        pattern=r"ptxas fatal|PTXAS error:|triton\.compiler\.errors\.\w+|out of resource: shared memory",
        example=(
            "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 163840, "
            "Hardware limit: 101376."
        ),
        source="Triton; sgl-project/sglang issues 5995 and 8879",
        weight=9,
    ),
    # what says of a kernel or feature that it is for other cards
    Signature(
        cause=Cause.KERNEL_UNFIT,
        pattern=(
            r"[Uu]nsupported (?:compute capability|(?:CUDA |GPU )?arch(?:itecture)?\b|SM version)"
            r"|No supported CUDA architectures found"
            r"|[Aa]ssertion error \(?(?:csrc|[\w./-]{0,100}deep_gemm)"
            r"|(?:only|not)(?: yet)? (?:supported|implemented|available) (?:on|by|for|in) "
            r"(?:this |your |NVIDIA |the )?"
            r"(?:GPU|architecture|device|SM|sm|Hopper|Blackwell|compute capability)"
            r"|Failed to (?:run|initialize) (?:the )?(?:cutlass|CUTLASS|TMA)|DSLRuntimeError|Error Internal$"
            r"|PassManager::run failed|LLVM ERROR"
            r"|No valid tactics|for CUDA device capability|No compiled \w+:|not supported on \.target"
            r"|requires? (?:an? )?(?:NVIDIA )?(?:Hopper|Blackwell|SM ?\d|sm_?\d|compute capability)"
        ),
        example="ValueError: Unsupported compute capability: 12.0",
        source="sgl-project/sglang issue 32933 and PR 24692, deepseek-ai/DeepGEMM issue 143; flashinfer",
        weight=8,
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
        source="sglang 0.5.23 utils/common.py and entrypoints/engine.py",
    ),
    # 42, 43: whatever a package lacks that this version imports
    Signature(
        cause=Cause.KERNEL_MISMATCH,
        pattern=(
            r"ImportError: cannot import name '|No module named '|cannot open shared object file"
            r"|NameError: name '(?:sgl_|flashinfer|deep_gemm|triton)\w*' is not defined"
            r"|'\w+Config' object has no attribute 'rope_\w+'|[Pp]lease install|pip install "
            r"|'_OpNamespace' '\w+' object has no attribute|operator torchvision::|version `GLIBCXX_"
            r"|module '[\w.]+' has no attribute|Failed to import transformers|numpy\.(?:_?core|dtype)\b"
        ),
        example=(
            "ImportError: cannot import name 'fused_marlin_moe' from 'sgl_kernel' "
            "(/opt/venv/lib/python3.10/site-packages/sgl_kernel/__init__.py)"
        ),
        source="Python; sgl-project/sglang issues 3582 and 8654; Ascend/sglang issue 121",
        weight=8,
    ),
    # 44
    Signature(
        cause=Cause.TOOLCHAIN_MISSING,
        pattern=r"\(in _find_cuda_home: assert|CUDA_HOME environment variable is not set",
        example="AssertionError (in _find_cuda_home: assert cuda_home is not None)",
        source="DeepGEMM, torch; sgl-project/sglang issue 13468",
    ),
    Signature(
        cause=Cause.TOOLCHAIN_MISSING,
        pattern=(
            r"Could not find nvcc|No such file or directory: 'ninja'|nvcc: (?:not found|No such file)"
            r"|nvcc fatal\s+: Unsupported gpu architecture"
            r"|fatal error: [\w/.]+\.h(?:pp)?: No such file"
            r"|ld: cannot find -l"
        ),
        example="csrc/x.cuh:21:10: fatal error: cuda_fp8.h: No such file or directory",
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
        source="nvcc, gcc; a public report of 2026-08-07 (flashinfer 0.6.14)",
    ),
    Signature(
        cause=Cause.TOOLCHAIN_MISSING,
        pattern=(
            r"Command '\['[\w./-]{0,100}(?:gcc|g\+\+|clang|nvcc)'|Ninja build failed"
            r"|\['ninja', .{0,300}returned non-zero exit status|Error building extension '"
        ),
        example="subprocess.CalledProcessError: Command '['ninja', '-v']' returned non-zero exit status 1.",
        source="flashinfer, torch; sgl-project/sglang issue 5389",
        weight=8,
    ),
    Signature(
        cause=Cause.JIT_CACHE,
        pattern=(
            r"Check failed: \(lib_handle_ != nullptr\)|\.so: (?:file too short|invalid ELF header)"
            r"|No such file or directory: '[^']{0,300}/\.cache/[^']{0,300}\.so'"
        ),
        example=(
            "RuntimeError: Check failed: (lib_handle_ != nullptr) is false: Failed to load /root/.cache/x.so"
        ),
        source="apache-tvm-ffi, the dynamic linker; a public report of 2026-07",
    ),
    # 45
    Signature(
        cause=Cause.TOOLCHAIN_MISSING,
        pattern=r"Failed to find C compiler|Python\.h: No such file",
        example="RuntimeError: Failed to find C compiler. Please specify via CC environment variable.",
        source="Triton",
    ),
    # what is no other error of CUDA
    Signature(
        cause=Cause.CUDA_FAULT,
        pattern=(
            r"CUDA error(?:: | /)|HIP error: |Triton Error \[CUDA\]|CUDA_ERROR_\w+|\bcudaError[A-Z]\w+"
            r"|(?:CUBLAS|CUDNN|CUSPARSE)_STATUS_\w+"
        ),
        example="torch.AcceleratorError: CUDA error: the launch timed out and was terminated",
        source="CUDA; NVIDIA/open-gpu-kernel-modules issue 1159",
        weight=6,
    ),
    # 47
    Signature(
        cause=Cause.CUDA_FAULT,
        pattern=r"an illegal memory access was encountered|device-side assert|unspecified launch failure",
        example="RuntimeError: CUDA error: an illegal memory access was encountered",
        source="CUDA; sgl-project/sglang issue 28569",
    ),
    # 48: with a check of it, or where torch meets it
    Signature(
        cause=Cause.NAN_LOGITS,
        pattern=r"NaN in the logits|probability tensor contains either `inf`, `nan` or element < 0",
        example="ValueError: Detected errors during sampling! NaN in the logits.",
        source="sglang 0.5.9 layers/sampler.py; torch",
    ),
    # 8, 9, and graphs that are replayed with shapes they were not captured for
    Signature(
        cause=Cause.GRAPHS_FAILED,
        pattern=(
            r"(?:Capture (?:[\w-]+ ){1,3}|Piecewise )(?:cuda |CUDA |CPU )?graph failed"
            r"|torch\._(?:inductor|dynamo)\.exc\.\w+|for prefill runner\.|Unsupported BCG output type"
        ),
        example=(
            "TypeError: Unsupported BCG output type: "
            "<class 'sglang.srt.layers.logits_processor.LogitsProcessorOutput'>"
        ),
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
        source="torch, flashinfer; public reports of 2026-06-26 (0.5.14) and 2026-07",
        stages=_AFTER_GRAPHS_BEGUN,
        weight=6,
    ),
)

RECORDS: tuple[Signature, ...] = (
    # 44: the build's own lines, above the exception of whoever ran it
    Signature(
        cause=Cause.BUILD_KILLED,
        pattern=r"^nvcc error\s+: '\w+' died due to signal 9|fatal error: Killed signal terminated program",
        example="nvcc error   : 'cicc' died due to signal 9 (Kill signal)",
        source="nvcc, gcc; a public report of 2026-08-07 (flashinfer 0.6.14)",
        weight=9,
    ),
    # 47: torch's own watchdog meets it first
    Signature(
        cause=Cause.CUDA_FAULT,
        pattern=r"watchdog thread terminated with exception: CUDA error: ",
        example=(
            "[rank1]:[E909 08:45:30.126 ProcessGroupNCCL.cpp:2068] [PG ID 2 PG GUID 3 Rank 1] Process group "
            "watchdog thread terminated with exception: CUDA error: an illegal memory access was encountered"
        ),
        source="torch; sgl-project/sglang issue 10216",
        weight=8,
    ),
    # 41: kernels in C++ print and leave
    Signature(
        cause=Cause.KERNEL_MISSING,
        pattern=r"failed with error code no kernel image is available",
        example="RMSNorm failed with error code no kernel image is available for execution on the device",
        source="sgl-project/sglang issue 7249",
    ),
    # 48: a warning, after which the server goes on to answer nonsense
    Signature(
        cause=Cause.NAN_LOGITS,
        pattern=r"^Detected errors during sampling! NaN in the logits",
        example="Detected errors during sampling! NaN in the logits.",
        versions=("", "0.5.12"),
        source="sglang 0.5.9 layers/sampler.py",
        weight=3,
        fatal=False,
    ),
)
