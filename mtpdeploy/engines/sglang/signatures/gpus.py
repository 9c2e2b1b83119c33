"""
The GPUs of the box: drivers, how many there are, what is free on each, how a model divides among them.
"""

from mtpdeploy.core.diagnosis import Cause, Signature, Stage

EXCEPTIONS: tuple[Signature, ...] = (
    # 55
    Signature(
        cause=Cause.GPU_TOO_OLD,
        pattern=r"SGLang only supports sm75 and above",
        example="RuntimeError: SGLang only supports sm75 and above.",
        source="sglang 0.5.9 model_executor/model_runner.py",
    ),
    # 46
    Signature(
        cause=Cause.CUDNN_TOO_OLD,
        pattern=r"CuDNN Compatibility Issue Detected",
        example="RuntimeError: CRITICAL WARNING: PyTorch 2.9.1 & CuDNN Compatibility Issue Detected",
        versions=("", "0.5.9"),
        source="sglang 0.5.9 server_args.py",
    ),
    # 50, 51
    Signature(
        cause=Cause.DRIVER_TOO_OLD,
        pattern=(
            r"The NVIDIA driver on your system is too old|CUDA driver version is insufficient"
            r"|cudaErrorInsufficientDriver|Driver/library version mismatch"
            r"|forward compatibility was attempted"
            r"|system has unsupported display driver"
        ),
        example=(
            "RuntimeError: The NVIDIA driver on your system is too old (found version 12040). Please "
            "update your "
            "GPU driver"
        ),
        source="torch, CUDA errors 803 and 804",
    ),
    # 51, 52: what torch says of any reason
    Signature(
        cause=Cause.DRIVER_TOO_OLD,
        pattern=r"Unexpected error from cudaGetDeviceCount|CUDA driver (?:error|initialization failed)",
        example=(
            "RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some functions before "
            "calling NumCudaDevices()? Error 500: named symbol not found"
        ),
        source="torch; transcriptionstream/transcriptionstream issue 13",
        weight=8,
    ),
    # 52, 54
    Signature(
        cause=Cause.NO_GPU,
        pattern=(
            r"No CUDA GPUs are available|No accelerator \(CUDA|Found no NVIDIA driver on your system"
            r"|Torch not compiled with CUDA enabled|module 'torch\._C' has no attribute '_cuda_setDevice'"
            r"|nvidia-smi not found|nvidia-smi error:|system not yet initialized|Failed to initialize NVML"
            r"|CUDA unknown error - this may be due to an incorrectly set up environment"
        ),
        example=(
            "RuntimeError: No accelerator (CUDA, XPU, HPU, NPU, MUSA, MPS) or platform plugin is available."
        ),
        source="a real start without a GPU, 0.5.23; torch; sglang 0.5.9 utils/common.py",
    ),
    # 53
    Signature(
        cause=Cause.GPU_COUNT,
        pattern=r"invalid device ordinal|AssertionError.{0,200}gpu_id < num_gpus",
        example="torch.AcceleratorError: CUDA error: invalid device ordinal",
        source="CUDA",
    ),
    # 68
    Signature(
        cause=Cause.PARALLEL_SHAPE,
        pattern=r"(?:must be|is not|not) (?:a )?(?:divisible by|multiple of)",
        example="AssertionError: K must be divisible by blockK",
        source="flashinfer, sgl-kernel; sgl-project/sglang PR 16824, vllm-project/vllm issue 41360",
        stages=(
            Stage.WEIGHTS_BEGUN,
            Stage.WEIGHTS_LOADED,
            Stage.STATE_ALLOCATED,
            Stage.KV_ALLOCATED,
            Stage.POOLS_READY,
            Stage.GRAPHS_BEGUN,
        ),
        weight=8,
    ),
    Signature(
        cause=Cause.PARALLEL_SHAPE,
        pattern=(
            r"\b\d+ is not divisible by \d+|size_k = \d+, is not divisible by"
            r"|must be divisible by (?:moe_tp_size|ep_size)"
            r"|is not divisible by (?:weight quantization|min_thread|group_size)"
            r"|AssertionError \(in .{0,200}% [\w.]*tp_size == 0"
            r"|start \(\d+\) \+ length \(\d+\) exceeds dimension size"
        ),
        example="AssertionError: 64 is not divisible by 7",
        source=(
            "sglang 0.5.9 distributed/utils.py and model_executor/model_runner.py; a public report "
            "of 2026-06-11"
        ),
    ),
    # 20
    Signature(
        cause=Cause.GPUS_UNBALANCED,
        pattern=r"The memory capacity is unbalanced",
        example=(
            "ValueError: The memory capacity is unbalanced. Some GPUs may be occupied by other processes. "
            "min_per_gpu_memory=8.88, local_gpu_memory=11.90"
        ),
        source="sglang 0.5.6 model_executor/model_runner.py, 0.5.23 distributed/bootstrap.py; issue 1533",
    ),
)
