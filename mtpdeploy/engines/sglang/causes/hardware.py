"""
Causes in kernels, packages, drivers and GPUs.
"""

from mtpdeploy.core.diagnosis import Cause, Knowledge, Next
from mtpdeploy.engines.sglang import quotes, remedies

KNOWLEDGE: dict[Cause, Knowledge] = {
    Cause.KERNEL_MISMATCH: Knowledge(
        Next.STOP,
        "Reinstall what this SGLang version pins (sgl-kernel or sglang-kernel, flashinfer, transformers, "
        "torch for the box's CUDA) and the libraries that those load (libnuma, glibc 2.34 from 0.5.11 on).",
        quoted=quotes.packages,
    ),
    Cause.KERNEL_MISSING: Knowledge(
        Next.STOP,
        "The installed kernels were not built for this GPU: install the CUDA 13 build of SGLang and its "
        "kernels, or another version. No flag mends this.",
    ),
    Cause.KERNEL_UNFIT: Knowledge(
        Next.STOP,
        "A kernel is made for another kind of card: use another moe_runner_backend or attention_backend, "
        "or a newer SGLang or Triton. No memory flag matters.",
        remedies.kernel,
        quotes.compilation,
    ),
    Cause.PTXAS_TOO_OLD: Knowledge(
        Next.CLIMB,
        "Let Triton use the CUDA toolkit's own compiler: TRITON_PTXAS_PATH=/usr/local/cuda/bin/ptxas in "
        "the server's env, with a toolkit that knows the card.",
    ),
    Cause.GPU_TOO_OLD: Knowledge(
        Next.STOP,
        "Rent a GPU of compute capability 7.5 or newer (Turing); no flag mends this.",
    ),
    Cause.GRAPHS_FAILED: Knowledge(
        Next.CLIMB,
        "Memory flags do not matter here: switch off the graphs that failed (cuda_graph_backend_prefill or "
        '_decode = "disabled", up to 0.5.13 disable_cuda_graph), or use another backend or version.',
    ),
    Cause.TOOLCHAIN_MISSING: Knowledge(
        Next.CLIMB,
        "Install what kernels are built with on the box: gcc, the Python headers, ninja, and a CUDA "
        "toolkit with CUDA_HOME set; or use a devel image.",
    ),
    Cause.BUILD_KILLED: Knowledge(
        Next.CLIMB,
        "Let fewer compilers run at the same time (MAX_JOBS=2 in the server's env), or rent more RAM; what "
        "was built is kept for the next start.",
    ),
    Cause.JIT_CACHE: Knowledge(
        Next.STOP,
        "A start that was ended while a kernel was built left it half done: remove the cache that the line "
        "names (mostly under ~/.cache) and start again.",
    ),
    Cause.DRIVER_TOO_OLD: Knowledge(
        Next.STOP,
        "SGLang 0.5.11 and newer need driver 580 or newer (CUDA 13): rent a box with it, or use SGLang "
        "0.5.10.post1, the last for CUDA 12.9.",
    ),
    Cause.NO_GPU: Knowledge(
        Next.STOP,
        "Check `nvidia-smi` on the box, CUDA_VISIBLE_DEVICES, and that torch is a CUDA build; where GPUs are "
        "joined by NVSwitch also that nvidia-fabricmanager runs, in the driver's own version.",
    ),
    Cause.GPU_COUNT: Knowledge(
        Next.STOP,
        "Lower tp_size to the number of GPUs on the box, or name GPUs that exist.",
    ),
    Cause.GPUS_UNBALANCED: Knowledge(
        Next.CLIMB,
        "End what else holds memory on one of the GPUs (nvidia-smi). Where the cards differ, or the server "
        "itself holds it, set SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK=0 and a lower mem_fraction_static.",
        remedies.unbalanced,
    ),
    Cause.PARALLEL_SHAPE: Knowledge(
        Next.STOP,
        "Choose a tp_size that divides the model's heads and, where it is quantised, leaves whole groups "
        "of weights to each GPU; or use another quantisation. No memory flag matters.",
    ),
}
