"""
What each cause calls for, and what a person can do about it.

CLIMB: another configuration may help. REPEAT: it may pass by itself, so the same again (where a rung
answers it, that rung first). GUESS: nothing is known, and the ladder may guess. STOP: only the user can
help. Source of the directions: sglang-facts,
section 3, column "retry with other config helps".
"""

from mtpdeploy.core.diagnosis import Cause, Knowledge, Next
from mtpdeploy.engines.sglang import remedies

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
    ),
    Cause.HOST_MEMORY: Knowledge(
        Next.CLIMB,
        "Make the hierarchical cache smaller (hicache_size, GB; for a hybrid model it is taken twice from "
        "0.5.10 to 0.5.16), or leave it out.",
        remedies.host_cache,
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
    ),
    Cause.HOST_ALLOCATION: Knowledge(
        Next.CLIMB,
        "The box or its container has too little host memory: leave the hierarchical cache out or make it "
        "smaller, or rent more RAM.",
        remedies.host_allocation,
    ),
    Cause.HOST_OOM_KILLED: Knowledge(
        Next.CLIMB,
        "A process was killed with SIGKILL, most likely because the box or its container ran out of host "
        "memory (`dmesg -T | grep -i oom`). Leave the hierarchical cache out, or rent more RAM.",
    ),
    Cause.SHARED_MEMORY_FULL: Knowledge(
        Next.STOP,
        "Make room in /dev/shm: `df -h /dev/shm`; dead servers leave files there (sgl_shm_*, nccl-*, "
        "psm_*) that may be removed. In a container give it more (--shm-size or --ipc=host).",
    ),
    Cause.HICACHE_UNSUPPORTED: Knowledge(
        Next.CLIMB,
        "Leave enable_hierarchical_cache out, or use SGLang 0.5.10 or newer, which has one for hybrid "
        "models.",
    ),
    Cause.HICACHE_NEEDS_RADIX: Knowledge(
        Next.CLIMB,
        "Give either enable_hierarchical_cache or disable_radix_cache. SGLang 0.5.9 switches the radix "
        "cache off by itself for MTP with the no_buffer strategy.",
    ),
    Cause.STRATEGY_NEEDS_EXTRA_BUFFER: Knowledge(
        Next.CLIMB,
        'Set mamba_radix_cache_strategy = "extra_buffer" (0.5.10 also needs SGLANG_ENABLE_SPEC_V2=1), or '
        "disable_radix_cache.",
    ),
    Cause.STRATEGY_NEEDS_RADIX: Knowledge(
        Next.CLIMB,
        "Give either the extra_buffer strategy or disable_radix_cache.",
    ),
    Cause.STRATEGY_NEEDS_NO_OVERLAP: Knowledge(
        Next.CLIMB,
        "Leave the strategy to SGLang (extra_buffer), or add disable_overlap_schedule.",
    ),
    Cause.EXTRA_BUFFER_UNSUPPORTED: Knowledge(
        Next.CLIMB,
        'Use mamba_radix_cache_strategy = "no_buffer" (with disable_overlap_schedule from 0.5.14 on), or '
        "disable_radix_cache. Another linear_attn_backend than triton may be the reason.",
    ),
    Cause.LAZY_WITHOUT_MTP: Knowledge(
        Next.CLIMB,
        'Use mamba_radix_cache_strategy = "extra_buffer", or SGLang 0.5.17 or newer.',
    ),
    Cause.TRACK_INTERVAL: Knowledge(
        Next.CLIMB,
        "Leave mamba_track_interval out (256), and choose a page_size that divides it.",
    ),
    Cause.PAGE_SIZE: Knowledge(
        Next.CLIMB,
        "Set page_size = 1, or an attention_backend that takes it (triton, flashinfer); or "
        "disable_radix_cache.",
    ),
    Cause.LINEAR_ATTENTION: Knowledge(
        Next.CLIMB,
        "Leave the flag out that the line names: triton as linear_attn_backend works with every state, "
        'flashinfer needs mamba_ssm_dtype = "bfloat16" on Blackwell.',
    ),
    Cause.SPEC_TOPK: Knowledge(
        Next.CLIMB,
        "Set speculative_eagle_topk = 1 and speculative_num_draft_tokens = speculative_num_steps + 1.",
    ),
    Cause.SPEC_INCOMPLETE: Knowledge(
        Next.CLIMB,
        "Give speculative_num_steps, speculative_eagle_topk and speculative_num_draft_tokens together, or "
        "none.",
    ),
    Cause.SPEC_NUMBERS: Knowledge(
        Next.CLIMB,
        "Choose speculative_num_draft_tokens of at most speculative_num_steps x speculative_eagle_topk + 1.",
    ),
    Cause.DRAFT_FORMAT: Knowledge(
        Next.CLIMB,
        'Set speculative_draft_model_quantization = "unquant" where the draft is not quantised like the '
        "target, or use a draft made for this checkpoint.",
    ),
    Cause.ATTENTION_BACKEND: Knowledge(
        Next.CLIMB,
        'Set attention_backend = "triton", which works on every card and with MTP.',
    ),
    Cause.KERNEL_MISMATCH: Knowledge(
        Next.STOP,
        "Reinstall the kernel packages that this SGLang version pins (sgl-kernel or sglang-kernel, "
        "flashinfer, torch for the box's CUDA) and the libraries they load (libnuma, glibc 2.34 from "
        "0.5.11 on).",
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
        "Check `nvidia-smi` on the box, CUDA_VISIBLE_DEVICES, and that torch is a CUDA build.",
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
    Cause.MODEL_NOT_FOUND: Knowledge(
        Next.STOP,
        "Correct model_path: a folder on the box, or a name as the hub writes it (owner/model).",
    ),
    Cause.MODEL_ACCESS: Knowledge(
        Next.STOP,
        "Accept the model's terms on the hub and give the server HF_TOKEN as a secret.",
    ),
    Cause.MODEL_OFFLINE: Knowledge(
        Next.REPEAT,
        "Download the model on the box before the launch and give its folder as model_path, or let the box "
        "reach the hub (HF_HUB_OFFLINE unset, HF_ENDPOINT for a mirror).",
    ),
    Cause.MODEL_INCOMPLETE: Knowledge(
        Next.STOP,
        "Download the model's folder again: a file is missing or cut short. A vision model also needs its "
        "preprocessor_config.json.",
    ),
    Cause.MODEL_UNSUPPORTED: Knowledge(
        Next.STOP,
        "Use a newer SGLang: Qwen3.5 and 3.6 need 0.5.9, and their text-only form 0.5.17.",
    ),
    Cause.REMOTE_CODE: Knowledge(
        Next.STOP,
        "Set trust_remote_code = true, if you trust the code in the model's folder.",
    ),
    Cause.OFFLOAD_UNSUPPORTED: Knowledge(
        Next.CLIMB,
        "Leave cpu_offload_gb out, and use a smaller quantisation or more GPUs (tp_size) instead.",
    ),
    Cause.CONTEXT_TOO_LONG: Knowledge(
        Next.CLIMB,
        "Lower context_length to what the model was made for, or set "
        "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1 together with a rope setting for it.",
        remedies.context,
    ),
    Cause.BAD_ARGUMENT: Knowledge(
        Next.STOP,
        "Correct or leave out the argument that the line names.",
    ),
    Cause.PORT_TAKEN: Knowledge(
        Next.REPEAT,
        "Another process listens on this port of the box: end it, or choose another port.",
        remedies.port,
    ),
    Cause.INTERNAL_PORT_TAKEN: Knowledge(
        Next.REPEAT,
        "A port that SGLang chose for itself is held, often by a server that has just ended: wait, or "
        "choose another port or nccl_port.",
        remedies.port,
    ),
    Cause.DISK_FULL: Knowledge(
        Next.STOP,
        "Free space on the box: `df -h` tells which disk; /dev/shm counts too, and dead servers leave "
        "files there.",
    ),
    Cause.WARMUP_FAILED: Knowledge(
        Next.STOP,
        "Read the lines above the failure. If kernels were still being built, set SGLANG_WARMUP_TIMEOUT "
        "(seconds) and try again.",
    ),
    Cause.WATCHDOG: Knowledge(
        Next.CLIMB,
        "One forward took longer than watchdog_timeout: raise it if kernels were being built, otherwise "
        "look for a GPU that hangs (nvidia-smi, NCCL).",
        remedies.watchdog,
    ),
    Cause.CUDA_FAULT: Knowledge(
        Next.CLIMB,
        "A kernel crashed: use another attention_backend or mamba_radix_cache_strategy, or another SGLang "
        "version.",
    ),
    Cause.GPU_FAULT: Knowledge(
        Next.STOP,
        "No flag mends this: rent another box, or have its provider reset the GPU or restart the machine.",
    ),
    Cause.NATIVE_CRASH: Knowledge(
        Next.STOP,
        "Look at the driver, at NCCL and at the CUDA packages: a virtual GPU without what NCCL needs, or "
        "packages for another CUDA, crash like this. NCCL_DEBUG=INFO tells more.",
    ),
    Cause.NAN_LOGITS: Knowledge(
        Next.CLIMB,
        "Use another attention_backend (triton), the recurrent state in float32, or another version; a "
        "damaged or wrongly quantised checkpoint does the same.",
    ),
    Cause.CUDNN_TOO_OLD: Knowledge(
        Next.CLIMB,
        "Upgrade cuDNN on the box (nvidia-cudnn-cu12 9.15 or newer).",
    ),
    Cause.NCCL_FAILED: Knowledge(
        Next.STOP,
        "Check NCCL_SOCKET_IFNAME, the size of /dev/shm, and whether NCCL_P2P_DISABLE=1 helps; with "
        "several GPUs `nvidia-smi topo -m` shows how they are connected.",
    ),
    Cause.PEER_ACCESS: Knowledge(
        Next.CLIMB,
        "Set disable_custom_all_reduce = true, or let the GPUs reach each other (`nvidia-smi topo -m`; a "
        "container may need --ipc=host).",
    ),
    Cause.PEER_UNREACHABLE: Knowledge(
        Next.STOP,
        "Check dist_init_addr, the firewall between the boxes, and whether the first one was started at "
        "all; raise dist_timeout where it only comes up late.",
    ),
    Cause.SCHEDULER_DIED: Knowledge(
        Next.REPEAT,
        "Read the last lines of the log and the kernel's (`dmesg -T`): nothing else tells why the process "
        "went.",
    ),
    Cause.DETOKENIZER_DIED: Knowledge(
        Next.REPEAT,
        "Start again; if it dies again, read the lines above and look at the box's free host memory.",
    ),
    Cause.SCHEDULER_EXCEPTION: Knowledge(
        Next.GUESS,
        "Read the exception and the frames above it in the log; search SGLang's issues for its text.",
    ),
    Cause.PYTHON_EXCEPTION: Knowledge(
        Next.STOP,
        "Read the exception and the frames above it in the log: it comes from the arguments, the model's "
        "folder, or the installation.",
    ),
    Cause.STALLED: Knowledge(
        Next.REPEAT,
        "Look at where its threads stood (stacks.txt beside the log; with py-spy on the box it names the "
        "functions): a download, a kernel build or NCCL may hang. What was downloaded or built is kept for "
        "the next start.",
    ),
    Cause.VANISHED: Knowledge(
        Next.REPEAT,
        "Look at the kernel's log (`dmesg -T`) and the provider's console: something outside SGLang ended "
        "it, mostly for want of host memory.",
    ),
    Cause.BOX_RESTARTED: Knowledge(
        Next.REPEAT,
        "The box was restarted meanwhile; the same start may well succeed now.",
    ),
    Cause.STOPPED: Knowledge(
        Next.STOP,
        "It was ended on purpose; start it again when you want it.",
    ),
    Cause.DEAF: Knowledge(
        Next.REPEAT,
        "The process lived and answered nothing: look at where its scheduler stood (stacks.txt beside the "
        "log; with py-spy on the box it names the functions).",
    ),
    Cause.REQUESTS_REFUSED: Knowledge(
        Next.STOP,
        "The answer says what the server objects to: mend that flag or the model's folder and start again.",
    ),
    Cause.UNKNOWN: Knowledge(
        Next.GUESS,
        "Read the last lines of the log: they are kept with the attempt.",
    ),
}
"""One entry for every cause."""
