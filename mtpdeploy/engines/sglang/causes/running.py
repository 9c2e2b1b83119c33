"""
Causes in ports, processes and what runs: crashes, hangs, silence.
"""

from mtpdeploy.core.diagnosis import Cause, Knowledge, Next
from mtpdeploy.engines.sglang import host_remedies, quotes, remedies

KNOWLEDGE: dict[Cause, Knowledge] = {
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
    Cause.FILE_ACCESS: Knowledge(
        Next.STOP,
        "Let the server's user read (or write) what the line names, or point SGLang elsewhere: HF_HOME, "
        "TRITON_CACHE_DIR, TORCHINDUCTOR_CACHE_DIR and FLASHINFER_WORKSPACE_BASE move its caches.",
        quoted=quotes.access,
    ),
    Cause.OPEN_FILES: Knowledge(
        Next.STOP,
        "SGLang raises its limit of open files only up to the hard one (`ulimit -Hn`): raise that for its "
        "user or its container (`docker run --ulimit nofile=65536:65536`).",
    ),
    Cause.PROXIED: Knowledge(
        Next.STOP,
        "Variables like http_proxy send the server's requests to its own port through a proxy: give it "
        'no_proxy = "127.0.0.1,localhost,0.0.0.0" in `env`, or unset them.',
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
        remedies.crash,
        quotes.crash,
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
        "Something outside SGLang ended it, or it crashed without a word. Often that is host memory, but "
        "nothing here proves it: `dmesg -T | grep -i oom` on the box tells, or the provider's console.",
        host_remedies.killed,
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
