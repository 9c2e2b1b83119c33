"""
Why a server failed: causes, the signatures that prove them, and the verdict.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum

from msgspec import Struct


class Stage(StrEnum):
    """
    The named stages of a start, in the order in which a log passes them.

    The draft's stages stand between WEIGHTS_LOADED and POOLS_READY from SGLang 0.5.14, and after
    GRAPHS_CAPTURED before it (sglang-facts, launch timeline), so order is never compared by number.
    """

    LAUNCHED = "launched"
    ARGUMENTS = "arguments resolved"
    WEIGHTS_BEGUN = "loading weights"
    WEIGHTS_LOADED = "weights loaded"
    DRAFT_BEGUN = "loading draft weights"
    DRAFT_LOADED = "draft weights loaded"
    STATE_ALLOCATED = "state cache allocated"
    KV_ALLOCATED = "kv cache allocated"
    POOLS_READY = "memory pools ready"
    GRAPHS_BEGUN = "capturing graphs"
    GRAPHS_CAPTURED = "graphs captured"
    SIZED = "sized"
    LISTENING = "listening"
    READY = "ready"


class Cause(StrEnum):
    """
    Why a server failed. A closed list; what each calls for is in the engine's causes.
    """

    OOM_KV_POOL = "memory left after the weights is too small for the pools"
    OOM_STATE_POOL = "memory is too small for the recurrent state of even one request"
    OOM_WEIGHTS = "out of GPU memory while loading weights"
    OOM_DRAFT_WEIGHTS = "out of GPU memory while loading the draft weights"
    OOM_POOLS = "out of GPU memory while allocating the pools"
    OOM_GRAPHS = "out of GPU memory while capturing CUDA graphs"
    OOM_SERVING = "out of GPU memory while serving"
    KV_EXHAUSTED = "the pool of tokens ran out while requests were running"
    STATE_SLOTS = "no slot was free for the recurrent state of a request"
    POOL_CHECK = "SGLang found its own bookkeeping of the pools wrong"
    HOST_MEMORY = "not enough host memory for the hierarchical cache"
    HOST_POOL_TOO_SMALL = "the hierarchical cache's host pool is smaller than the device pool"
    HOST_PINNING = "the hierarchical cache's host memory could not be pinned"
    HOST_ALLOCATION = "an allocation of host memory failed"
    HOST_OOM_KILLED = "killed from outside, most likely out of host memory"
    KILLED = "a process of the server was killed from outside (SIGKILL)"
    SHARED_MEMORY_FULL = "shared memory (/dev/shm) is full or too small"
    BUS_ERROR = "a bus error: shared memory is full, or a file that was being read is cut short"
    HICACHE_UNSUPPORTED = "the hierarchical cache does not support this hybrid model"
    HICACHE_NEEDS_RADIX = "the hierarchical cache needs the radix cache"
    STRATEGY_NEEDS_EXTRA_BUFFER = "MTP with the radix cache needs the extra_buffer strategy"
    STRATEGY_NEEDS_RADIX = "the extra_buffer strategy needs the radix cache"
    STRATEGY_NEEDS_NO_OVERLAP = "the no_buffer strategy does not work with the overlap scheduler"
    EXTRA_BUFFER_UNSUPPORTED = "the extra_buffer strategy does not work with this model or device"
    LAZY_WITHOUT_MTP = "extra_buffer_lazy does not work with MTP in this version"
    TRACK_INTERVAL = "mamba_track_interval does not fit the page size or the draft tokens"
    PAGE_SIZE = "the page size does not fit the prefix cache of a hybrid model"
    LINEAR_ATTENTION = "a setting of the linear attention does not go with the others"
    SPEC_TOPK = "this version's speculation works with speculative_eagle_topk 1 only"
    SPEC_INCOMPLETE = "the speculative flags were given only in part"
    SPEC_NUMBERS = "the speculative numbers do not fit together"
    SPEC_FAULT = "SGLang's own speculative code failed"
    DRAFT_FORMAT = "the draft's weights do not have the format that they are loaded in"
    ATTENTION_BACKEND = "the attention backend does not work with this GPU, this model or speculation"
    KERNEL_MISMATCH = "packages are missing, or do not match this SGLang version"
    KERNEL_MISSING = "a GPU kernel is missing for this card"
    KERNEL_UNFIT = "a kernel cannot be compiled, or asks more of this card than it has"
    PTXAS_TOO_OLD = "the ptxas that Triton brings does not know this card"
    GPU_TOO_OLD = "this GPU is too old for SGLang"
    GRAPHS_FAILED = "CUDA graphs fail with this configuration, and not for want of memory"
    SGLANG_MISSING = "SGLang is not installed where it was started"
    TOOLCHAIN_MISSING = "a compiler or CUDA toolkit is missing on the box"
    BUILD_KILLED = "the compilers of a kernel were killed, most likely out of host memory"
    JIT_CACHE = "a kernel in the cache is half built"
    DRIVER_TOO_OLD = "the NVIDIA driver is too old or does not match"
    NO_GPU = "SGLang sees no GPU"
    GPU_COUNT = "more GPUs were asked for than there are"
    GPUS_UNBALANCED = "one GPU of the server has much less free memory than another"
    PARALLEL_SHAPE = "the model cannot be divided among that many GPUs"
    MODEL_NOT_FOUND = "the model is neither a folder on the box nor a hub name"
    MODEL_ACCESS = "the hub refuses access to the model"
    MODEL_OFFLINE = "the hub cannot be reached"
    MODEL_INCOMPLETE = "the model's weight files are missing or damaged"
    CHECKPOINT_UNFIT = "this SGLang cannot load the model's weights as they are stored"
    MODEL_UNSUPPORTED = "this SGLang version does not know the model's architecture, or not its config.json"
    REMOTE_CODE = "the model needs trust_remote_code"
    OFFLOAD_UNSUPPORTED = "weights of this model cannot be offloaded to host memory"
    CONTEXT_TOO_LONG = "context_length is longer than the model's"
    BAD_ARGUMENT = "SGLang refuses an argument"
    PORT_TAKEN = "the HTTP port is taken"
    INTERNAL_PORT_TAKEN = "a port SGLang uses inside is taken"
    DISK_FULL = "no space left on a disk"
    FILE_ACCESS = "SGLang may not read or write a file, or use a port"
    OPEN_FILES = "the limit of open files is too low"
    PROXIED = "a proxy answers the server's own requests to itself"
    WARMUP_FAILED = "the warm-up request failed"
    WATCHDOG = "the scheduler's watchdog ended a hanging forward"
    CUDA_FAULT = "a kernel crashed, or CUDA refused one of its calls"
    GPU_FAULT = "the GPU itself reported a fault"
    NATIVE_CRASH = "a process crashed outside Python before any kernel of the model ran"
    NAN_LOGITS = "the model computes NaN"
    CUDNN_TOO_OLD = "cuDNN is too old for this PyTorch"
    NCCL_FAILED = "NCCL, through which GPUs and processes talk, failed"
    PEER_ACCESS = "the GPUs cannot reach each other's memory directly"
    PEER_UNREACHABLE = "the first process of the server cannot be reached over the network"
    SCHEDULER_DIED = "a scheduler process died without an exception"
    DETOKENIZER_DIED = "the detokenizer process died"
    SCHEDULER_EXCEPTION = "an exception in the scheduler that has no name here"
    PYTHON_EXCEPTION = "an exception before the scheduler started that has no name here"
    STALLED = "nothing moved for longer than this stage may take"
    VANISHED = "the server is gone, and its log does not say why"
    BOX_RESTARTED = "the box was restarted"
    STOPPED = "stopped by somebody"
    DEAF = "the process lives, but no request is answered"
    REQUESTS_REFUSED = "the server answers, but refuses the requests that were to prove it"
    UNKNOWN = "not known"


class Next(StrEnum):
    """
    What a cause calls for; GUESS: nothing is known of it, so a guess that says that it is one.
    """

    CLIMB = "climb"
    REPEAT = "repeat"
    GUESS = "guess"
    STOP = "stop"


class Signature(Struct, frozen=True):
    """
    A pattern that means a cause, with a real example and who prints it.

    `pattern` is searched (re.search) in one line. It counts only while the last stage reached is in
    `stages` (empty: any), and in the releases from the first to the last of `versions` (empty: no end on that
    side), where the version is known. `weight` orders findings: the highest wins, then the earliest; 10 for a
    root cause, 6 to 9 for one that a further line of the same message may name better, 5 for a general
    exception, 1 for what merely accompanies a death. `fatal` says that no waiting can mend what the
    line tells; what is not fatal explains only a server that lives on.
    """

    cause: Cause
    pattern: str
    example: str
    source: str
    versions: tuple[str, str] = ("", "")
    stages: tuple[Stage, ...] = ()
    weight: int = 10
    fatal: bool = True


class Finding(Struct, frozen=True):
    """
    A signature that matched: the cause, and the line that proves it.

    `line` counts from 1 in the attempt's log; `figures` are numbers read from the text
    (`mem_fraction_static`, `asked_mib`, `free_mib`…).
    """

    cause: Cause
    line: int
    text: str
    stage: Stage
    weight: int = 10
    fatal: bool = True
    rank: str = ""
    figures: dict[str, float] = {}


class Milestone(Struct, frozen=True):
    """
    A stage that a log line proves, with the numbers SGLang prints there.
    """

    stage: Stage
    line: int
    text: str
    figures: dict[str, float] = {}


class End(StrEnum):
    """
    How an attempt ended; UNTOLD where there is only its log.
    """

    READY = "ready"
    EXITED = "exited"
    VANISHED = "vanished"
    STALLED = "stalled"
    DOOMED = "ended by mtpdeploy after a failure that no waiting can mend"
    DEAF = "alive but deaf"
    REFUSING = "alive but refusing requests"
    LOST = "lost"
    STOPPED = "stopped"
    UNTOLD = "untold"


EARLY = (Stage.LAUNCHED, Stage.ARGUMENTS)
"""Before any weights."""

BEFORE_KERNELS = (Stage.LAUNCHED, Stage.ARGUMENTS, Stage.WEIGHTS_BEGUN)
"""Stages at which no kernel of the model has run yet."""


class Evidence(Struct, frozen=True):
    """
    What a verdict is made from.

    `findings` in the order of the log; `tail` the last lines, with their numbers; `exit_status` as a
    shell shows it (137 for SIGKILL); `after` what the box said after the death (`oom_kill`,
    `box_restarted`, …: `core.aftermath.facts`), name to text; `told_to_stop` the line in which the server
    acknowledges that. `figures` are those of the log that go with every finding, for where there is none;
    `releases` those that may have written it, none where nothing is known.
    """

    end: End
    stage: Stage
    findings: tuple[Finding, ...] = ()
    tail: tuple[tuple[int, str], ...] = ()
    exit_status: int | None = None
    after: dict[str, str] = {}
    told_to_stop: tuple[int, str] | None = None
    figures: dict[str, float] = {}
    releases: tuple[str, ...] = ()

    @property
    def told(self) -> dict[str, float]:
        """
        The figures of the log, and of what the box said after the death.
        """
        counted = {"oom_kills": 0.0} if "no_oom_kill" in self.after else {}
        return {**self.figures, **counted, "kernels_ran": float(self.stage not in BEFORE_KERNELS)}


class Verdict(Struct, frozen=True):
    """
    A cause, the line that proves it, and what it calls for.

    `proof` is empty only where nothing was printed at all; `because` then says what the verdict rests
    on (exit status, box restarted, …). `remedy` is one or two sentences a person can act on. `further`
    is what else was found, and did not decide. `stage` is the last one reached, None where it is not known.
    """

    cause: Cause
    next: Next
    proof: str = ""
    line: int | None = None
    rank: str = ""
    because: str = ""
    remedy: str = ""
    figures: dict[str, float] = {}
    further: tuple[str, ...] = ()
    stage: Stage | None = None


class Knowledge(Struct, frozen=True):
    """
    What an engine knows of one cause: what it calls for, and what to tell the user.

    `remedy` holds without any figures. `figured` says it with those of a verdict, and returns None where
    the log did not print the ones that it needs; `quoted` says it with the words of the proving line, before
    both. `spelled` names flags as the releases do that may have written the log.
    """

    next: Next
    remedy: str
    figured: Callable[[Mapping[str, float]], str | None] | None = None
    quoted: Callable[[str], str | None] | None = None
    spelled: Callable[[str, str, tuple[str, ...]], str] | None = None

    def advice(
        self, figures: Mapping[str, float], proof: str = "", releases: tuple[str, ...] | None = None
    ) -> str:
        """
        What to tell the user: with the words and figures of the log where it printed them. Flags bear their
        newest names where no `releases` are given.
        """
        told = self.quoted(proof) if self.quoted is not None and proof else None
        if told is None and self.figured is not None:
            told = self.figured(figures)
        told = told or self.remedy
        return told if self.spelled is None or releases is None else self.spelled(told, proof, releases)
