"""
Who is in the way of a server, and who of them may be ended: decided from facts, before anything is done.

Ours are the families of our own run directories. Others are SGLang servers of the same user. Whatever
cannot be judged is foreign, and foreign is never ended.
"""

from collections.abc import Mapping

from msgspec import Struct, structs

from mtpdeploy.core.families import (
    DEVICES,
    Family,
    other_families,
    our_families,
    pids_of,
    visible_devices,
)
from mtpdeploy.core.machine import Facts, Gpu, Process, ProcessId
from mtpdeploy.core.server import ServerSpec
from mtpdeploy.core.units import GIB, gib

FOREIGN_BYTES = GIB
"""Memory of a GPU that may be held by strangers without being in the way (ssh-faults, fault 71)."""

STUCK = "it belongs to the first process of this box, and with that one the box would end"
"""Why a server of ours by name is left alone after all."""


class Blocker(Struct, frozen=True):
    """
    Something in the way, and why.

    `pid` is 0 where it cannot be seen. `family` are all its processes and `mains` those of them that
    no other member started: what gets the first signal. `ports` are where it listens, the one of its
    command line first. `run` is set for a run of ours. `settles` says that waiting may mend it: memory
    that no process accounts for is still being freed for some seconds after one has died.
    """

    pid: int
    command: str
    user: str
    why: str
    family: tuple[ProcessId, ...] = ()
    mains: tuple[ProcessId, ...] = ()
    ports: tuple[int, ...] = ()
    run: str | None = None
    settles: bool = False


class Clearance(Struct, frozen=True):
    """
    What has to be cleared for a server, in the order of who may be ended.

    `kept` are other servers that share a wanted GPU and are left alone because the user said so.
    `memory` is what has to be free of each GPU afterwards (UUID to bytes).
    """

    ours: tuple[Blocker, ...] = ()
    others: tuple[Blocker, ...] = ()
    foreign: tuple[Blocker, ...] = ()
    kept: tuple[Blocker, ...] = ()
    port: int = 0
    memory: dict[str, int] = {}


def judge(facts: Facts, server: ServerSpec, *, keep_others: bool) -> Clearance:
    """
    Find what is in the way of a server on a box, and who of it may be ended.

    A server without `gpus` may use all of them. With `keep_others` an SGLang server that is not ours is
    foreign where it holds the port, and kept where it only shares a GPU.
    """
    wanted = {gpu.uuid: gpu for gpu in wanted_gpus(facts, server)}
    ours = our_families(facts)
    claimed = pids_of(ours)
    others, stuck = other_families(facts, claimed)
    claimed |= pids_of(others)
    blocking = {id(family): _why(family, server.port, wanted) for family in ours + others}
    mine = tuple(_blocker(f, blocking[id(f)]) for f in ours if blocking[id(f)])
    theirs = tuple(_blocker(f, blocking[id(f)]) for f in others if blocking[id(f)])
    kept = tuple(b for b in theirs if keep_others and server.port not in b.ports)
    refused = tuple(
        structs.replace(b, why=f"{b.why}; kept because of `--keep-others`")
        for b in theirs
        if keep_others and server.port in b.ports
    )
    in_way = [f for f in ours + others if blocking[id(f)]]
    untold = any(not f.held or 0 in f.held.values() for f in in_way)
    foreign = (
        *refused,
        *(_blocker(f, f"{why}; {STUCK}") for f in stuck if (why := _why(f, server.port, wanted))),
        *_port_strangers(facts, server.port, claimed | pids_of(stuck)),
        *_gpu_strangers(facts, wanted, claimed | pids_of(stuck), untold=untold),
    )
    return Clearance(
        ours=mine,
        others=() if keep_others else theirs,
        foreign=foreign,
        kept=kept,
        port=server.port,
        memory={} if kept else _memory(wanted, in_way, foreign),
    )


def needs_take(clearance: Clearance, running: Mapping[int, int]) -> tuple[Blocker, ...]:
    """
    Those of the others that work on requests now and are only ended by `--take`.

    `running` is how many requests each (by its pid) said it has; one that could not be asked is left out.
    """
    return tuple(other for other in clearance.others if running.get(other.pid, 0) > 0)


def wanted_gpus(facts: Facts, server: ServerSpec) -> tuple[Gpu, ...]:
    """
    The cards that a server may use: as asked, else those it is shown by CUDA_VISIBLE_DEVICES, else all.
    """
    indices = frozenset(server.gpus) or visible_devices(facts, server.env.get(DEVICES))
    return tuple(gpu for gpu in facts.gpus if indices is None or gpu.index in indices)


def _why(family: Family, port: int, wanted: Mapping[str, Gpu]) -> str:
    """
    Why a family is in the way of a server, or "" where it is not.
    """
    reasons = [f"listens on port {port}"] if port in family.ports else []
    if not reasons and family.port == port:
        reasons.append(f"is to listen on port {port}")
    held = family.held
    for uuid, gpu in wanted.items():
        if uuid in held:
            reasons.append(f"holds {_amount(held[uuid])} of GPU {gpu.index}")
        elif _may_use(family, gpu, told=bool(held)):
            reasons.append(f"may use GPU {gpu.index}")
    return ", ".join(reasons)


def _may_use(family: Family, gpu: Gpu, *, told: bool) -> bool:
    if any(" --device cpu" in member.command for member in family.members):
        return False
    return gpu.index in family.declared if family.declared is not None else not told


def _amount(held: int) -> str:
    return gib(held) if held else "memory"


def _blocker(family: Family, why: str) -> Blocker:
    members = family.members
    pids = {member.id.pid for member in members}
    main = members[0]
    return Blocker(
        pid=main.id.pid,
        command=main.command,
        user=main.user,
        why=why,
        family=tuple(member.id for member in members),
        mains=tuple(member.id for member in members if member.ppid not in pids),
        ports=family.ports,
        run=family.run.name if family.run else None,
    )


def _port_strangers(facts: Facts, port: int, claimed: frozenset[int]) -> list[Blocker]:
    known = {process.id.pid: process for process in facts.processes}
    found = []
    for pid in facts.port_holders:
        if pid not in claimed:
            process = known.get(pid)
            command = process.command if process else "a process that cannot be seen"
            user = process.user if process else ""
            found.append(Blocker(pid=pid, command=command, user=user, why=f"listens on port {port}"))
    return found


def _gpu_strangers(
    facts: Facts, wanted: Mapping[str, Gpu], claimed: frozenset[int], *, untold: bool
) -> list[Blocker]:
    """
    What holds more than the tolerated part of a wanted GPU without being ours or another server.

    Memory that nobody is listed for is put down to a family in the way whose memory is not told.
    """
    known = {process.id.pid: process for process in facts.processes}
    found = []
    for uuid, gpu in wanted.items():
        listed = [holder for holder in facts.gpu_holders if holder.gpu_uuid == uuid]
        strange = [h for h in listed if not (h.visible and h.pid in claimed)]
        told = sum(holder.used_bytes or 0 for holder in strange)
        unclear = any(holder.used_bytes is None for holder in strange) and not untold
        if told > FOREIGN_BYTES or (unclear and gpu.used_bytes > FOREIGN_BYTES):
            for holder in strange:
                process = known.get(holder.pid) if holder.visible else None
                found.append(_holder(gpu, holder.used_bytes, holder.pid, process, holder.name))
        unlisted = gpu.used_bytes - sum(holder.used_bytes or 0 for holder in listed)
        complete = all(holder.used_bytes is not None for holder in listed)
        if complete and unlisted > FOREIGN_BYTES and not untold:
            why = f"{gib(unlisted)} of GPU {gpu.index} are held outside this container, or still being freed"
            found.append(
                Blocker(pid=0, command="no process that can be seen", user="", why=why, settles=True)
            )
    return found


def _holder(gpu: Gpu, used: int | None, pid: int, process: Process | None, name: str) -> Blocker:
    amount = "memory" if used is None else gib(used)
    if process is None:
        why = f"holds {amount} of GPU {gpu.index} from outside this container (its pid there is {pid})"
        return Blocker(pid=0, command=name, user="", why=why)
    why = f"holds {amount} of GPU {gpu.index}"
    return Blocker(pid=pid, command=process.command, user=process.user, why=why)


def _memory(wanted: Mapping[str, Gpu], ending: list[Family], foreign: tuple[Blocker, ...]) -> dict[str, int]:
    """
    What each wanted GPU has to have free again: all that is used now, but for what is tolerated.
    """
    if not (ending or any(blocker.settles for blocker in foreign)):
        return {}
    return {
        uuid: max(0, gpu.free_bytes + gpu.used_bytes - FOREIGN_BYTES)
        for uuid, gpu in wanted.items()
        if gpu.used_bytes > FOREIGN_BYTES
    }
