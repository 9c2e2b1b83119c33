"""
Processes and what they need of the box: deaths without an exception, /dev/shm, disks, silence.
"""

from mtpdeploy.core.diagnosis import BEFORE_KERNELS, Cause, Signature, Stage

_EARLY = BEFORE_KERNELS
_LATER = tuple(stage for stage in Stage if stage not in _EARLY)

EXCEPTIONS: tuple[Signature, ...] = (
    # 19
    Signature(
        cause=Cause.KILLED,
        pattern=r"scheduler died during initialization \(exit code: -9\)",
        example=(
            "RuntimeError: Rank 0 scheduler died during initialization (exit code: -9). If exit code is -9 "
            "(SIGKILL), a common cause is the OS OOM killer. Run `dmesg -T | grep -i oom` to check."
        ),
        versions=("0.5.10", ""),
        source="a real start on a CPU with mem_fraction_static 2.0, 0.5.23",
        weight=4,
    ),
    # 49
    Signature(
        cause=Cause.NATIVE_CRASH,
        pattern=r"scheduler died during initialization \(exit code: -(?:11|8|6|4)\)",
        example="RuntimeError: Rank 0 scheduler died during initialization (exit code: -11).",
        versions=("0.5.10", ""),
        source="sglang 0.5.10 entrypoints/engine.py; -11 is SIGSEGV, -8 SIGFPE, -6 SIGABRT, -4 SIGILL",
        stages=_EARLY,
        weight=4,
    ),
    Signature(
        cause=Cause.CUDA_FAULT,
        pattern=r"scheduler died during initialization \(exit code: -(?:11|8|6|4)\)",
        example="RuntimeError: Rank 0 scheduler died during initialization (exit code: -11).",
        versions=("0.5.10", ""),
        source="sglang 0.5.10 entrypoints/engine.py; -11 is SIGSEGV, -8 SIGFPE, -6 SIGABRT, -4 SIGILL",
        stages=_LATER,
        weight=4,
    ),
    # 82
    Signature(
        cause=Cause.BUS_ERROR,
        pattern=r"scheduler died during initialization \(exit code: -7\)",
        example="RuntimeError: Rank 0 scheduler died during initialization (exit code: -7).",
        versions=("0.5.10", ""),
        source="sglang 0.5.10 entrypoints/engine.py; -7 is SIGBUS; issue 40723",
        weight=4,
    ),
    Signature(
        cause=Cause.SCHEDULER_DIED,
        pattern=r"scheduler died during initialization \(exit code: ",
        example="RuntimeError: Rank 0 scheduler died during initialization (exit code: 1).",
        versions=("0.5.10", ""),
        source="sglang 0.5.10 entrypoints/engine.py",
        weight=3,
    ),
    # 82, before 61: shared memory is a disk of its own
    Signature(
        cause=Cause.SHARED_MEMORY_FULL,
        pattern=(
            r"No space left on device.{0,120}/dev/shm|/dev/shm.{0,200}No space left"
            r"|unable to (?:write to|mmap|resize) file </torch_|unable to open shared memory object"
            r"|unable to allocate shared memory\(shm\)"
        ),
        example="OSError: [Errno 28] No space left on device: '/dev/shm/sgl_shm_mm_1'",
        source="Linux, torch; sgl-project/sglang issue 40723",
    ),
    Signature(
        cause=Cause.FILE_ACCESS,
        pattern=r"\[Errno (?:13|30)\] (?:Permission denied|Read-only file system)",
        example="PermissionError: [Errno 13] Permission denied: '/root/.triton/cache'",
        source="Linux",
        weight=9,
    ),
    Signature(
        cause=Cause.OPEN_FILES,
        pattern=r"Too many open files",
        example="zmq.error.ZMQError: Too many open files",
        source="Linux; sglang 0.5.9 utils/common.py set_ulimit",
    ),
    # 61
    Signature(
        cause=Cause.DISK_FULL,
        pattern=r"No space left on device",
        example="OSError: [Errno 28] No space left on device",
        source="Linux",
    ),
    # 74: says only that something was said above
    Signature(
        cause=Cause.SCHEDULER_DIED,
        pattern=r"Initialization failed\. Please see the error messages above",
        example="RuntimeError: Initialization failed. Please see the error messages above.",
        source="sglang 0.5.9 entrypoints/engine.py",
        weight=1,
    ),
)

RECORDS: tuple[Signature, ...] = (
    # 75
    Signature(
        cause=Cause.WATCHDOG,
        pattern=r"[Ww]atchdog timeout \((?![^)]*self\.soft=True)",
        example="Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)",
        source="sglang 0.5.9 and 0.5.23 utils/watchdog.py",
    ),
    # 19
    Signature(
        cause=Cause.KILLED,
        pattern=r"^Subprocess scheduler\w* \(pid=\d+\) crashed with exit code -9\b|^Exit code: -9$",
        example=(
            "Subprocess scheduler_0 (pid=9822) crashed with exit code -9. Triggering SIGQUIT for cleanup..."
        ),
        source="a real scheduler killed with -9, 0.5.23; sglang 0.5.9 entrypoints/engine.py",
        weight=4,
    ),
    # 49
    Signature(
        cause=Cause.CUDA_FAULT,
        pattern=(
            r"^Subprocess scheduler\w* \(pid=\d+\) crashed with exit code -(?:11|8|6|4)\b"
            r"|^Exit code: -(?:11|8|6|4)$"
            r"|^Fatal Python error: (?:Segmentation fault|Aborted|Floating point|Illegal instruction)"
            r"|^Memory access fault by GPU node"
        ),
        example=(
            "Subprocess scheduler_0 (pid=9822) crashed with exit code -11. Triggering SIGQUIT for cleanup..."
        ),
        source="sglang 0.5.10 utils/watchdog.py; -11 is SIGSEGV, -8 SIGFPE, -6 SIGABRT, -4 SIGILL; Python",
        stages=_LATER,
        weight=4,
    ),
    Signature(
        cause=Cause.NATIVE_CRASH,
        pattern=(
            r"^Fatal Python error: (?:Segmentation fault|Aborted|Floating point|Illegal instruction)"
            r"|^Subprocess scheduler\w* \(pid=\d+\) crashed with exit code -(?:11|8|6|4)\b"
            r"|^Exit code: -(?:11|8|6|4)$"
        ),
        example="Fatal Python error: Segmentation fault",
        source="Python; sgl-project/sglang issue 3451",
        stages=_EARLY,
        weight=4,
    ),
    # 82
    Signature(
        cause=Cause.BUS_ERROR,
        pattern=(
            r"^Subprocess scheduler\w* \(pid=\d+\) crashed with exit code -7\b|^Exit code: -7$"
            r"|^Fatal Python error: Bus error"
        ),
        example="Fatal Python error: Bus error",
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
        source="NCCL",
    ),
    Signature(
        cause=Cause.SCHEDULER_DIED,
        pattern=r"^Subprocess scheduler\w* \(pid=\d+\) crashed with exit code|^Rank \d+ scheduler is dead",
        example="Rank 0 scheduler is dead. Please check if there are relevant logs.",
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
        source="sglang 0.5.9 and 0.5.23 entrypoints/http_server.py",
        weight=2,
        fatal=False,
    ),
    # 77
    Signature(
        cause=Cause.DETOKENIZER_DIED,
        pattern=r"^Subprocess detokenizer\w* \(pid=\d+\) crashed with exit code",
        example=(
            "Subprocess detokenizer (pid=10150) crashed with exit code -9. Triggering SIGQUIT for cleanup..."
        ),
        versions=("0.5.10", ""),
        source="a real detokenizer killed with -9, 0.5.23",
        weight=5,
    ),
)
