"""
What the box tells after the death of a run, and which of it explains one.
"""

import re
from collections.abc import Collection, Iterator
from typing import Any

from msgspec import Struct

from mtpdeploy.core.machine import Gpu, GpuHolder
from mtpdeploy.core.units import MIB, counted, gib
from mtpdeploy.core.xids import UNLISTED, XIDS, Kind

FULL = 32 * MIB
"""
Free bytes below which a disk counts as full. Ours: no write of weights, kernels or a log goes on with less,
and what a failed write gives back is mostly a part of one file.
"""

SHM_FULL = 4 * MIB
"""The same for /dev/shm, whose size is 64 MiB in a container that was given none (Docker's --shm-size)."""

OURS = re.compile(r"sglang|python|pt_main_thread|nvcc|cicc|ptxas|ninja|cc1plus|^ld$", re.IGNORECASE)
"""
Names under which the kernel knows the processes of a server: titles, interpreters, PyTorch's main thread,
and the compilers that it starts. The pids in the kernel's log are the host's, not a container's.
"""

KILLED = re.compile(r"Killed process (\d+) \(([^)]*)\)")
"""Linux mm/oom_kill.c: `Out of memory: Killed process 7 (python3) total-vm:…`, or with `Memory cgroup`."""

SEGFAULT = re.compile(r"(?:^|traps: )(\S+?)\[\d+\]:? (?:segfault at|general protection|trap )")
"""Linux arch/x86 (mm/fault.c, kernel/traps.c): `python3[7]: segfault at 0 …`, `traps: python3[7] trap …`."""

XID_LINE = re.compile(r"NVRM: Xid \((?:PCI:)?([^)]*)\): (\d+)")
"""`NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.` (NVIDIA, Xid Errors)."""

GPU_GONE = re.compile(r"GPU is lost|fallen off the bus|Unable to determine the device handle", re.IGNORECASE)
"""What nvidia-smi says of a card that no longer answers."""

PLACES = {
    "work_dir": "the work directory",
    "model": "the model",
    "cache": "the hub's cache",
    "tmp": "temporary files",
}
"""Where a server writes or reads, in words."""


class MemoryGroup(Struct, frozen=True):
    """
    One control group: bytes of its limit and use, `oom_kill` and `hit` as the kernel counts them since it
    was made (processes killed for want of memory, times the limit was reached). None: not told. `below`
    says that they count what happened in groups below it as well.
    """

    path: str
    limit: int | None = None
    used: int | None = None
    oom_kill: int | None = None
    hit: int | None = None
    below: bool = False


class Room(Struct, frozen=True):
    """
    A disk: the path that it was asked by, bytes free and in all, and how many files may still be made.
    """

    path: str
    free: int
    total: int
    files_free: int | None = None


class Baseline(Struct, frozen=True):
    """
    What stood when the run was launched. `gpus` are PCI addresses, as far as the driver shows them.
    """

    boot: str = ""
    first: str = ""
    groups: tuple[MemoryGroup, ...] = ()
    gpus: tuple[str, ...] = ()


class Aftermath(Struct, frozen=True):
    """
    The answers of one look after a death. `before` is None where nothing was remembered at the launch,
    `kernel` (lines since the launch) where the kernel's log may not be read. `groups` are the run's own
    control group first, then those above it; `first` is the start time of the box's first process;
    `addresses` are PCI addresses by the index of the GPU.
    """

    before: Baseline | None
    boot: str
    first: str
    groups: tuple[MemoryGroup, ...]
    kernel: tuple[str, ...] | None
    rooms: dict[str, Room]
    nvidia_smi: str = ""
    addresses: dict[int, str] = {}
    gpus: tuple[Gpu, ...] = ()
    holders: tuple[GpuHolder, ...] = ()


def facts(aftermath: Aftermath, used: Collection[int] = ()) -> dict[str, str]:
    """
    What was found, name to text, for `Evidence.after`; `used` are the GPUs of the run, empty for all.

    `box_restarted`, `gpu_lost`, `gpu_fault`, `oom_kill`, `xid`, `segfault`, `disk_full` and `shm_full` are
    there only where they may explain a death; what is not known is not there, or is in `untold`.
    """
    restarted = _restarted(aftermath)
    found = {
        "box_restarted": restarted,
        **_gpu_faults(aftermath, used),
        **({} if restarted else _memory(aftermath)),
        "segfault": _first_of(SEGFAULT, aftermath.kernel or ()),
        **_rooms(aftermath.rooms),
        "gpu_memory": _gpu_memory(aftermath),
        "untold": _untold(aftermath),
    }
    return {name: text for name, text in found.items() if text}


def _restarted(aftermath: Aftermath) -> str:
    before = aftermath.before
    if before is None:
        return ""
    if before.boot and aftermath.boot and before.boot != aftermath.boot:
        return "the box was restarted: its boot id is another one than at the launch"
    if before.first and aftermath.first and before.first != aftermath.first:
        return "the container was restarted: its first process is another one than at the launch"
    return ""


def _memory(aftermath: Aftermath) -> dict[str, str]:
    """
    Kills for want of memory, by the count of the run's own control group, else by the kernel's log.
    """
    kills = [line for line in aftermath.kernel or () if KILLED.search(line)]
    limits = [group.limit for group in aftermath.groups if group.limit is not None]
    limit = f"limit {gib(min(limits))}" if limits else "no limit"
    own = aftermath.groups[0] if aftermath.groups else None
    found = {}
    if own is not None and own.used is not None:
        found["memory"] = f"memory of its control group: {gib(own.used)} in use now, {limit}"
    more = _more_kills(aftermath)
    if own is not None and more:
        suspect = "the memory limit of its control group" if limits else "the memory of the box"
        said = f"; the kernel: {kills[-1]}" if kills else ""
        count = f"`oom_kill {own.oom_kill}` (+{more} since the launch), {limit}"
        return {**found, "oom_kill": f"most likely {suspect}: {count}{said}"}
    if more == 0:
        hits = _more_hits(aftermath)
        reached = f", though its limit was reached {counted(hits, 'time', 'times')}" if hits else ""
        found["no_oom_kill"] = f"its control group counts no kill for memory since the launch{reached}"
        return {**found, "oom_elsewhere": kills[-1] if kills else ""}
    ours = _first_of(KILLED, kills, name=2)
    return {**found, "oom_kill": f"the kernel: {ours}" if ours else ""}


def _more_kills(aftermath: Aftermath) -> int | None:
    own = aftermath.groups[0] if aftermath.groups else None
    then = _then(aftermath)
    if own is None or own.oom_kill is None or then is None or then.oom_kill is None:
        return None
    more = own.oom_kill - then.oom_kill
    return more if more >= 0 else None


def _more_hits(aftermath: Aftermath) -> int:
    own, then = aftermath.groups[0], _then(aftermath)
    known = own.hit is not None and then is not None and then.hit is not None
    return max(0, (own.hit or 0) - (then.hit or 0)) if known and then is not None else 0


def _then(aftermath: Aftermath) -> MemoryGroup | None:
    """
    The run's own control group as it stood at the launch; the nearest above it where its own is gone and
    that one counts for it.
    """
    if aftermath.before is None or not aftermath.groups:
        return None
    now = aftermath.groups[0]
    found = [group for group in aftermath.before.groups if group.path == now.path]
    return found[0] if found and (now.below or found[0] is aftermath.before.groups[0]) else None


def _gpu_faults(aftermath: Aftermath, used: Collection[int]) -> dict[str, str]:
    """
    What the driver reported, by who is at fault, and a card that no longer answers.
    """
    told: dict[Kind, list[str]] = {kind: [] for kind in Kind}
    for number, address in dict.fromkeys(_xids(aftermath, used)):
        xid = XIDS.get(number, UNLISTED)
        advice = f"; NVIDIA advises: {xid.advice}" if xid.advice else ""
        told[xid.kind].append(f"Xid {number} on {address} ({xid.meaning}{advice})")
    lost = aftermath.nvidia_smi if GPU_GONE.search(aftermath.nvidia_smi) else ""
    named = {
        "gpu_fault": told[Kind.HARDWARE],
        "xid": told[Kind.PROGRAM],
        "xid_noted": told[Kind.NOTICE],
    }
    found = {name: f"the driver reported {', '.join(ones)}" for name, ones in named.items() if ones}
    return {"gpu_lost": f"nvidia-smi: {lost}" if lost else "", **found}


def _xids(aftermath: Aftermath, used: Collection[int]) -> Iterator[tuple[int, str]]:
    """
    Number and PCI address of each Xid, but for GPUs that are known to be none of the box's or the run's.
    """
    ours = {_address(gpu) for gpu in aftermath.before.gpus} if aftermath.before else set()
    others = {_address(gpu) for index, gpu in aftermath.addresses.items() if used and index not in used}
    for line in aftermath.kernel or ():
        match = XID_LINE.search(line)
        address = _address(match[1]) if match else ()
        if match and (not ours or address in ours) and address not in others:
            yield int(match[2]), match[1]


def _address(text: str) -> tuple[str, ...]:
    """
    Domain, bus and device of a PCI address: `0000:01:00` in an Xid, `00000000:01:00.0` in nvidia-smi.
    """
    return tuple(part.lstrip("0") for part in text.lower().partition(".")[0].split(":"))


def _first_of(pattern: re.Pattern[str], lines: Any, name: int = 1) -> str:  # noqa: ANN401
    """
    The first line that a pattern finds under a name that a process of a server has.
    """
    for line in lines:
        match = pattern.search(line)
        if match and OURS.search(match[name]):
            return str(line)
    return ""


def _rooms(rooms: dict[str, Room]) -> dict[str, str]:
    disks = {name: room for name, room in rooms.items() if name in PLACES}
    full = [
        f"no room on the disk of {PLACES[name]}: {_left(room)}"
        for name, room in disks.items()
        if room.total and (room.free < FULL or room.files_free == 0)
    ]
    found = {
        "disk_full": "; ".join(full),
        "disk": "; ".join(f"{PLACES[name]}: {_left(room)}" for name, room in disks.items()),
    }
    shm = rooms.get("shm")
    if shm is not None:
        found["shm"] = f"shared memory: {_left(shm)}"
        full_shm = shm.total > 0 and shm.free < SHM_FULL
        found["shm_full"] = f"no room in shared memory: {_left(shm)}" if full_shm else ""
    return found


def _left(room: Room) -> str:
    files = ", no file can be made" if room.files_free == 0 else ""
    return f"{gib(room.free)} of {gib(room.total)} free{files} ({room.path})"


def _gpu_memory(aftermath: Aftermath) -> str:
    told = []
    for gpu in aftermath.gpus:
        who = [
            f"pid {holder.pid} {holder.name} {gib(holder.used_bytes or 0)}"
            for holder in aftermath.holders
            if holder.gpu_uuid == gpu.uuid
        ]
        told.append(f"GPU {gpu.index} {gib(gpu.used_bytes)} in use{': ' if who else ''}{', '.join(who)}")
    return "; ".join(told)


def _untold(aftermath: Aftermath) -> str:
    unknown = []
    if aftermath.before is None:
        unknown.append("what stood at the launch")
    elif aftermath.kernel is None:
        unknown.append("the kernel's log")
    if _more_kills(aftermath) is None:
        unknown.append("how often its control group had something killed")
    return f"not told here: {', '.join(unknown)}" if unknown else ""
