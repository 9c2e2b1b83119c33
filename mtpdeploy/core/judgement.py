"""
The verdict on an attempt: what its log proves, weighed against what the box told after its death.
"""

from collections.abc import Iterable, Mapping

from msgspec import structs

from mtpdeploy.core.diagnosis import BEFORE_KERNELS, Cause, Evidence, Knowledge, Next, Verdict
from mtpdeploy.core.verdict import diagnose

STRONG = {
    "box_restarted": Cause.BOX_RESTARTED,
    "gpu_lost": Cause.GPU_FAULT,
    "gpu_fault": Cause.GPU_FAULT,
    "oom_kill": Cause.HOST_OOM_KILLED,
}
"""What ends any server, whatever it was doing, by the names of `core.aftermath.facts`."""

WEAK = {
    "xid": Cause.CUDA_FAULT,
    "segfault": Cause.NATIVE_CRASH,
    "disk_full": Cause.DISK_FULL,
    "shm_full": Cause.SHARED_MEMORY_FULL,
}
"""What explains an end that nothing else explains."""

BESIDE = {
    Cause.VANISHED: ("no_oom_kill", "memory", "untold"),
    Cause.KILLED: ("no_oom_kill", "memory", "untold"),
    Cause.SHARED_MEMORY_FULL: ("shm",),
    Cause.BUS_ERROR: ("shm", "disk"),
    Cause.DISK_FULL: ("disk",),
}
"""What is worth knowing with a cause, though it explains nothing by itself."""

NAMELESS = (
    Cause.SCHEDULER_DIED,
    Cause.DETOKENIZER_DIED,
    Cause.SCHEDULER_EXCEPTION,
    Cause.PYTHON_EXCEPTION,
    Cause.WARMUP_FAILED,
)
"""Causes that say who failed, and not of what."""

SEEN_OF_A_GPU = (Cause.CUDA_FAULT, Cause.NCCL_FAILED, Cause.WATCHDOG, Cause.NATIVE_CRASH)
"""What a program sees of a GPU that fails under it."""

UNEXPLAINED = (Cause.BUS_ERROR, Cause.KILLED, Cause.VANISHED, Cause.STALLED, Cause.DEAF, Cause.UNKNOWN)
"""Causes that say how it ended, and not why."""

GPU_WORDS = ("gpu_lost", "gpu_fault")


def judge(evidence: Evidence, knowledge: Mapping[Cause, Knowledge]) -> Verdict:
    """
    Name the cause of an ended attempt; pure.

    A root cause that the log proves stays, and what the box told stands beside it (`further`). The box
    decides where the log names none: the kernel's kill, a restart, a full disk. A fault of the GPU
    goes before what a program sees of one, and a kill that the kernel did not count was not for memory.
    """
    verdict = diagnose(evidence, knowledge)
    name = _decisive(verdict, evidence)
    if name == "oom_kill" and verdict.cause is Cause.KILLED:
        verdict = _counted(verdict, Cause.HOST_OOM_KILLED, evidence, knowledge)
    elif name is not None:
        verdict = _by_box(name, verdict, evidence, knowledge)
    elif verdict.cause is Cause.HOST_OOM_KILLED and "no_oom_kill" in evidence.after:
        verdict = _counted(verdict, Cause.KILLED, evidence, knowledge)
    return structs.replace(verdict, further=verdict.further + _further(verdict, evidence.after))


def _counted(
    verdict: Verdict, cause: Cause, evidence: Evidence, knowledge: Mapping[Cause, Knowledge]
) -> Verdict:
    """
    The same death, by what the kernel counted of kills for memory.
    """
    known = knowledge[cause]
    remedy = known.advice({**verdict.figures, **evidence.told})
    return structs.replace(verdict, cause=cause, next=known.next, remedy=remedy)


def _decisive(verdict: Verdict, evidence: Evidence) -> str | None:
    """
    The name of what the box told that says more than the verdict; None where the verdict stays.
    """
    if verdict.cause in (*STRONG.values(), Cause.STOPPED, Cause.REQUESTS_REFUSED) and verdict.because:
        return None
    if verdict.cause in (*NAMELESS, *UNEXPLAINED):
        return _first((*STRONG, *WEAK), evidence.after)
    return _first(GPU_WORDS, evidence.after) if verdict.cause in SEEN_OF_A_GPU else None


def _first(names: Iterable[str], after: Mapping[str, str]) -> str | None:
    return next((name for name in names if name in after), None)


def _by_box(name: str, verdict: Verdict, evidence: Evidence, knowledge: Mapping[Cause, Knowledge]) -> Verdict:
    """
    The verdict by what the box told; what the log said is kept beside it.

    An Xid before any kernel of the model ran is no kernel's fault that another configuration would avoid.
    """
    cause = {**STRONG, **WEAK}[name]
    if name == "segfault" and evidence.stage not in BEFORE_KERNELS:
        cause = Cause.CUDA_FAULT
    passing = name == "xid" and evidence.stage in BEFORE_KERNELS
    line, last = evidence.tail[-1] if evidence.tail else (None, "")
    said = () if verdict.because else (f"log line {verdict.line}: {verdict.proof}",)
    return Verdict(
        cause=cause,
        next=Next.REPEAT if passing else knowledge[cause].next,
        proof=last,
        line=line,
        because=evidence.after[name],
        remedy=knowledge[cause].advice(evidence.told),
        further=said,
        stage=evidence.stage,
    )


def _further(verdict: Verdict, after: Mapping[str, str]) -> tuple[str, ...]:
    """
    What else the box told that a reader should know.
    """
    names = (*STRONG, *WEAK, *BESIDE.get(verdict.cause, ()))
    told = [after[name] for name in names if name in after]
    return tuple(text for text in told if text != verdict.because)
