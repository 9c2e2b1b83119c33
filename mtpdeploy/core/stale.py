"""
Who is in the way of a server, and who of them may be ended: decided from facts, before anything is done.

Ours are the families of our own run directories. Others are SGLang servers of the same user. Whatever
cannot be judged is foreign, and foreign is never ended.
"""

from collections.abc import Iterable, Mapping
from itertools import pairwise

from msgspec import DecodeError, Struct, ValidationError, json, structs

from mtpdeploy.core.launch import AttemptRecord
from mtpdeploy.core.machine import Facts, Gpu, Process, ProcessId, RunRecord
from mtpdeploy.core.server import ServerSpec
from mtpdeploy.core.units import GIB, gib

FOREIGN_BYTES = GIB
"""Memory of a GPU that may be held by strangers without being in the way (ssh-faults, fault 71)."""

FIRST_PROCESS = 1
"""The first process of a box or container: with it everything ends."""

DEVICES = "CUDA_VISIBLE_DEVICES"
"""The variable that decides which GPUs a process can use."""

TP_FLAGS = ("--tp", "--tp-size", "--tensor-parallel-size")
PP_FLAGS = ("--pp", "--pp-size", "--pipeline-parallel-size")
DP_FLAGS = ("--dp", "--dp-size", "--data-parallel-size")
"""How SGLang's parser spells the sizes that decide how many cards a server takes (0.5.6-0.5.23)."""

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


class Family(Struct, frozen=True):
    """
    Processes that live and end together; `declared` is what they were told of GPUs (None: nothing).
    """

    members: tuple[Process, ...]
    run: RunRecord | None = None
    declared: frozenset[int] | None = None
    port: int | None = None

    @property
    def held(self) -> dict[str, int]:
        """
        Bytes by GPU UUID that nvidia-smi says they hold.
        """
        found: dict[str, int] = {}
        for member in self.members:
            for uuid, amount in member.gpu_bytes.items():
                found[uuid] = found.get(uuid, 0) + amount
        return found

    @property
    def ports(self) -> tuple[int, ...]:
        """
        Where they listen, the port of the command line or of the record first.
        """
        listens = sorted({port for member in self.members for port in member.listens})
        return tuple(sorted(listens, key=lambda port: port != self.port))


def judge(facts: Facts, server: ServerSpec, *, keep_others: bool) -> Clearance:
    """
    Find what is in the way of a server on a box, and who of it may be ended.

    A server without `gpus` may use all of them. With `keep_others` an SGLang server that is not ours is
    foreign where it holds the port, and kept where it only shares a GPU.
    """
    wanted = {gpu.uuid: gpu for gpu in wanted_gpus(facts, server)}
    ours = _ours(facts)
    claimed = _pids(ours)
    others, stuck = _others(facts, claimed)
    claimed |= _pids(others)
    blocking = {id(family): _why(family, server.port, wanted) for family in ours + others}
    mine = tuple(_blocker(f, blocking[id(f)]) for f in ours if blocking[id(f)])
    theirs = tuple(_blocker(f, blocking[id(f)]) for f in others if blocking[id(f)])
    kept = tuple(b for b in theirs if keep_others and server.port not in b.ports)
    refused = tuple(b for b in theirs if keep_others and server.port in b.ports)
    in_way = [f for f in ours + others if blocking[id(f)]]
    untold = any(not f.held or 0 in f.held.values() for f in in_way)
    foreign = (
        *refused,
        *(_blocker(f, f"{why}; {STUCK}") for f in stuck if (why := _why(f, server.port, wanted))),
        *_port_strangers(facts, server.port, claimed | _pids(stuck)),
        *_gpu_strangers(facts, wanted, claimed | _pids(stuck), untold=untold),
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
    indices = frozenset(server.gpus) or _visible(facts, server.env.get(DEVICES))
    return tuple(gpu for gpu in facts.gpus if indices is None or gpu.index in indices)


def _visible(facts: Facts, devices: str | None) -> frozenset[int] | None:
    """
    The cards that a value of CUDA_VISIBLE_DEVICES names; None where it says nothing that is understood.
    """
    if not devices:
        return None
    found = set()
    for word in (part.strip() for part in devices.split(",")):
        if word.isdigit():
            found.add(int(word))
        else:
            found |= {gpu.index for gpu in facts.gpus if word and gpu.uuid.startswith(word)}
    return frozenset(found) or None


def _ours(facts: Facts) -> list[Family]:
    known = {process.id: process for process in facts.processes if _may_be_ended(facts, process)}
    families = []
    for run in facts.runs:
        identities = (*((run.process,) if run.process and run.alive else ()), *run.family)
        members = tuple(known[identity] for identity in identities if identity in known)
        if members:
            asked = _server_of(run)
            families.append(
                Family(
                    members,
                    run,
                    declared=_declared(facts, asked),
                    port=asked.port if asked else None,
                )
            )
    return families


def _server_of(run: RunRecord) -> ServerSpec | None:
    try:
        return json.decode(run.attempt, type=AttemptRecord).server
    except (DecodeError, ValidationError):
        return None


def _declared(facts: Facts, server: ServerSpec | None) -> frozenset[int] | None:
    if server is None:
        return None
    return frozenset(server.gpus) or _visible(facts, server.env.get(DEVICES))


def _others(facts: Facts, claimed: frozenset[int]) -> tuple[list[Family], list[Family]]:
    """
    Families of SGLang servers that are not ours: those that may be ended, and those that may not.

    A family is what descends from a server or worker. Workers and helpers without a living parent belong
    together by their process group, never to a server that shares it: two servers started by one script
    have one group.
    """
    rest = {p.id.pid: p for p in facts.processes if p.id.pid not in claimed and _may_be_ended(facts, p)}
    groups: dict[tuple[str, int], list[Process]] = {}
    for process in rest.values():
        top = _top(process, rest)
        if top.kind in ("worker", "helper"):
            groups.setdefault(("group", top.pgid or top.id.pid), []).append(process)
        elif top.kind == "server":
            groups.setdefault(("server", top.id.pid), []).append(process)
    families = [_family(facts, members) for members in groups.values() if _has_sglang(members)]
    first_is_server = any(p.id.pid == FIRST_PROCESS and p.kind == "server" for p in facts.processes)
    stuck = [f for f in families if first_is_server and f.members[0].ppid == FIRST_PROCESS]
    return [f for f in families if f not in stuck], stuck


def _top(process: Process, rest: Mapping[int, Process]) -> Process:
    """
    The highest SGLang process that a process descends from, itself where there is none.
    """
    top, at, seen = process, process, {process.id.pid}
    while at.ppid in rest and at.ppid not in seen:
        at = rest[at.ppid]
        seen.add(at.id.pid)
        if at.kind in ("server", "worker") or (at.kind == "helper" and top.kind == ""):
            top = at
    return top


def _has_sglang(members: Iterable[Process]) -> bool:
    return any(member.kind in ("server", "worker") for member in members)


def _family(facts: Facts, members: list[Process]) -> Family:
    ordered = sorted(members, key=lambda p: ("server", "worker", "helper", "").index(p.kind))
    shown = next((_visible(facts, p.devices) for p in ordered if p.devices), None)
    family = Family(tuple(ordered), port=_number_after(ordered[0].command, "--port"))
    if family.held:
        return family
    return structs.replace(family, declared=shown or _by_flags(ordered[0]))


def _by_flags(main: Process) -> frozenset[int] | None:
    """
    The cards that a server which holds none yet will take by its flags; None where they do not say.

    SGLang takes `tp_size * pp_size` cards from `base_gpu_id` on (0.5.6-0.5.23, entrypoints/engine.py).
    """
    words = {word.partition("=")[0] for word in main.command.split()}
    if main.kind != "server" or words & {"--config", "--gpu-id-step", *DP_FLAGS}:
        return None
    base = _number_after(main.command, "--base-gpu-id") or 0
    count = (_number_after(main.command, *TP_FLAGS) or 1) * (_number_after(main.command, *PP_FLAGS) or 1)
    return frozenset(range(base, base + count))


def _number_after(command: str, *flags: str) -> int | None:
    words = [part for word in command.split() for part in word.split("=", 1)]
    for word, value in pairwise(words):
        if word in flags and value.isdigit():
            return int(value)
    return None


def _may_be_ended(facts: Facts, process: Process) -> bool:
    return process.user == facts.user and process.id.pid > FIRST_PROCESS


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


def _pids(families: Iterable[Family]) -> frozenset[int]:
    return frozenset(member.id.pid for family in families for member in family.members)
