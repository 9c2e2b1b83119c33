"""
Slow or dead: what a silent server shows of its work, and how long it is waited for.

A line of the log says most. Compilers that compute, bytes that are read or written, memory that fills and
memory of the GPU that moves are work as well: each begins the patience anew. CPU time and a busy GPU alone
are not enough: a rank that waits in NCCL and a scheduler that waits for a message burn a whole core, and the
waiting kernel a whole GPU, for ever. But an import, a Python loop over tensors and a compiler inside the
process (NVRTC, Triton's own passes) show nothing else either, so that they extend it, up to a multiple.
"""

from enum import StrEnum

from msgspec import Struct

from mtpdeploy.core.units import MIB

CPU_IS_WORK = 0.1
"""
Cores in use from which a family counts as computing: an importing or compiling one uses a whole core, a
stopped one 0.002, one whose scheduler waits for a message 0.96 to 0.99 (SGLang 0.5.23, CPU, two cores).
"""

BYTES_ARE_WORK = MIB / 4
"""
Bytes a second from which reading, writing or receiving is work. Ours: a download of 52 GiB (seen in 591 s,
public reports) would take two days at this rate. A server that waits moves none at all, one that imports
reads 20 to 57 MB a second (SGLang 0.5.23, CPU).
"""

MEMORY_IS_WORK = 64 * MIB
"""
Bytes above its highest mark by which a family's memory has grown: pinning fills 1.7 GB a second (60 s per
100 GB, SGLang PR 31746), and a loop that takes and gives back the same buffer never counts.
"""

GPU_MEMORY_IS_WORK = 16 * MIB
"""Bytes by which the GPUs' memory has moved: the smallest capture seen takes 0.10 GiB (0.5.18, H100)."""

GPU_IS_BUSY = 5.0
"""Per cent of the time in which a kernel ran, from which a GPU counts as busy; an idle one shows 0."""

ALONE_MULTIPLE = 2.0
"""
Times its stage's patience that a family may only compute, with no other sign. Ours: DeepGEMM's warm-up takes
10 to 20 minutes by its own words, which may pass in a compiler inside the process, and twice the patience of
the stages in which that happens (20 min, engines/sglang) leaves it as much again.
"""

BLIND_MULTIPLE = 4.0
"""
Times its stage's patience where nothing but the log can be seen (a box without a reader): 40 minutes of
download were reported (public reports, lesson 13), and an hour is four times the patience of that stage.
"""


class Worker(Struct, frozen=True):
    """
    A child process of the server: its title (`sglang::scheduler_TP0`), and who it is.
    """

    pid: int
    start: str
    title: str


class Activity(Struct, frozen=True):
    """
    What a run's family has used up to a moment, and what its GPUs do then.

    `at` is the box's own clock in seconds, which never jumps. CPU seconds and bytes grow for ever; memory is
    what is held now. `received_bytes` is the network's of the whole container, and stands only where the
    family's own bytes are not told. `untitled` counts children that have not taken their title yet.
    `gpu_busy` is per cent, of the busiest card. None: not told.
    """

    at: float
    processes: int
    cpu_seconds: float
    resident_bytes: int
    pinned_bytes: int = 0
    read_bytes: int | None = None
    written_bytes: int | None = None
    received_bytes: int | None = None
    compilers: tuple[str, ...] = ()
    workers: tuple[Worker, ...] = ()
    untitled: int | None = None
    gpu_bytes: float | None = None
    gpu_busy: float | None = None
    gpu_watts: float | None = None


class Kind(StrEnum):
    """
    What shows that a silent server is at work.
    """

    COMPILERS = "compilers"
    READ = "read"
    WRITTEN = "written"
    RECEIVED = "received"
    MEMORY = "memory"
    GPU_MEMORY = "gpu memory"
    CPU = "cpu"
    GPU = "gpu"


ALONE = frozenset({Kind.CPU, Kind.GPU})
"""Kinds that a deadlock shows as well."""

FLOWS = {Kind.READ: "read_bytes", Kind.WRITTEN: "written_bytes", Kind.RECEIVED: "received_bytes"}
"""Where an `Activity` counts the bytes of a kind."""


class Sign(Struct, frozen=True):
    """
    One kind of work since the log's last line: `amount` in bytes, CPU seconds or per cent, by its kind;
    `names` of compilers; `watts` of busy GPUs. Memory of GPUs that moves up and down again counts twice.
    """

    kind: Kind
    amount: float = 0.0
    names: tuple[str, ...] = ()
    watts: float | None = None


class Patience:
    """
    A fold over the log's growth and the heartbeats of one attempt. `now` is always our monotonic clock.
    """

    def __init__(self, now: float) -> None:
        self.quiet_since = now
        self._worked = now
        self._signed = now
        self._seen: dict[Kind, Sign] = {}
        self._last: Activity | None = None
        self._base: Activity | None = None
        self._peak = 0
        self._gpu_level: float | None = None

    def begin_anew(self, now: float) -> None:
        """
        The log grew, or the line to the box is back.
        """
        self.quiet_since = self._worked = self._signed = now
        self._seen = {}
        self._base = None

    def note(self, now: float, activity: Activity) -> None:
        """
        Take a heartbeat's count; one that was taken before tells nothing new.

        The first after a line may tell of what was before it: it is waited for, and no sign since that line.
        """
        before, self._last = self._last, activity
        held = activity.resident_bytes + activity.pinned_bytes
        if before is None or activity.at < before.at:
            self._base, self._peak, self._gpu_level = activity, held, activity.gpu_bytes
            return
        moved = self._moved(activity, held)
        kinds = rated(before, activity) | moved.keys()
        base, self._base = self._base, self._base or activity
        if base is not None:
            self._show(kinds, moved, base, activity)
        if kinds:
            self._signed = now
        if kinds - ALONE:
            self._worked = now

    def ends(self, patience: float) -> float:
        """
        When the attempt counts as stalled if nothing more is seen; `patience` is that of its stage.
        """
        if self._last is None:
            return self._signed + BLIND_MULTIPLE * patience
        return min(self._signed + patience, self._worked + ALONE_MULTIPLE * patience)

    @property
    def signs(self) -> tuple[Sign, ...]:
        """
        What was seen since the log's last line, the weightiest first.
        """
        return tuple(self._seen[kind] for kind in Kind if kind in self._seen)

    def because(self, now: float) -> str:
        """
        Why it counts as stalled, in words.
        """
        silent, still = now - self.quiet_since, now - self._signed
        if self.is_blind:
            return f"no line for {silent:.0f} s, and nothing but the log can be seen there"
        if not self._seen:
            return f"no line for {silent:.0f} s, and no other sign of work"
        if self._worked == self._signed:
            return f"no line for {silent:.0f} s, and no other sign of work for {still:.0f} s"
        alone = now - self._worked
        return (
            f"no line for {silent:.0f} s, and for {alone:.0f} s nothing but CPU time or a busy GPU, "
            "which a deadlock shows as well"
        )

    @property
    def is_blind(self) -> bool:
        """
        Whether nothing but the log can be seen.
        """
        return self._last is None

    def _show(self, kinds: set[Kind], moved: dict[Kind, float], base: Activity, activity: Activity) -> None:
        """
        Keep what is to be told of the kinds of work that a heartbeat shows.
        """
        for kind in kinds:
            earlier = self._seen[kind].amount if kind in self._seen else 0.0
            counted = kind in moved
            self._seen[kind] = Sign(kind, earlier + moved[kind]) if counted else _sign(kind, base, activity)

    def _moved(self, activity: Activity, held: int) -> dict[Kind, float]:
        """
        Bytes by which memory has grown beyond its highest mark, and that of GPUs has moved at all.
        """
        moved: dict[Kind, float] = {}
        if held - self._peak >= MEMORY_IS_WORK:
            moved[Kind.MEMORY] = held - self._peak
            self._peak = held
        level = activity.gpu_bytes
        if self._gpu_level is None:
            self._gpu_level = level
        elif level is not None and abs(level - self._gpu_level) >= GPU_MEMORY_IS_WORK:
            moved[Kind.GPU_MEMORY] = abs(level - self._gpu_level)
            self._gpu_level = level
        return moved


def rated(before: Activity, now: Activity) -> set[Kind]:
    """
    The kinds of work that went on between two counts, by their rates; none between a count and itself.
    """
    seconds = now.at - before.at
    if seconds <= 0:
        return set()
    kinds = set()
    if (now.cpu_seconds - before.cpu_seconds) / seconds >= CPU_IS_WORK:
        # A compiler that hangs computes nothing.
        kinds |= {Kind.CPU, Kind.COMPILERS} if now.compilers else {Kind.CPU}
    for kind, field in FLOWS.items():
        if _grown(before, now, field) / seconds >= BYTES_ARE_WORK:
            kinds.add(kind)
    if now.gpu_busy is not None and now.gpu_busy >= GPU_IS_BUSY:
        kinds.add(Kind.GPU)
    return kinds


def _grown(before: Activity, now: Activity, field: str) -> float:
    earlier, later = getattr(before, field), getattr(now, field)
    return 0.0 if earlier is None or later is None else float(later - earlier)


def _sign(kind: Kind, base: Activity, now: Activity) -> Sign:
    if kind in FLOWS:
        return Sign(kind, max(0.0, _grown(base, now, FLOWS[kind])))
    match kind:
        case Kind.COMPILERS:
            return Sign(kind, names=now.compilers)
        case Kind.GPU:
            return Sign(kind, now.gpu_busy or 0.0, watts=now.gpu_watts)
        case _:
            return Sign(kind, max(0.0, now.cpu_seconds - base.cpu_seconds))
