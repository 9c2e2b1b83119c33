"""
Which processes on a box live and end together: families of our runs, and of SGLang servers that are not ours.
"""

from collections.abc import Iterable, Mapping
from itertools import pairwise

from msgspec import DecodeError, Struct, ValidationError, json, structs

from mtpdeploy.core.launch import AttemptRecord
from mtpdeploy.core.machine import Facts, Process, RunRecord
from mtpdeploy.core.server import ServerSpec

FIRST_PROCESS = 1
"""The first process of a box or container: with it everything ends."""

DEVICES = "CUDA_VISIBLE_DEVICES"
"""The variable that decides which GPUs a process can use."""

TP_FLAGS = ("--tp", "--tp-size", "--tensor-parallel-size")
PP_FLAGS = ("--pp", "--pp-size", "--pipeline-parallel-size")
DP_FLAGS = ("--dp", "--dp-size", "--data-parallel-size")
"""How SGLang's parser spells the sizes that decide how many cards a server takes (0.5.6-0.5.23)."""


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


def our_families(facts: Facts) -> list[Family]:
    """
    The living families of our own run directories, as far as they may be ended.
    """
    known = {process.id: process for process in facts.processes if may_be_ended(facts, process)}
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


def other_families(facts: Facts, claimed: frozenset[int]) -> tuple[list[Family], list[Family]]:
    """
    Families of SGLang servers that are not ours: those that may be ended, and those that may not.

    A family is what descends from a server or worker. Workers and helpers without a living parent belong
    together by their process group, never to a server that shares it: two servers started by one script
    have one group.
    """
    rest = {p.id.pid: p for p in facts.processes if p.id.pid not in claimed and may_be_ended(facts, p)}
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


def bystanders(facts: Facts) -> list[Family]:
    """
    What runs beside our runs: SGLang servers that are not ours, and whatever else is of interest, one by one.
    """
    ours = {p.pid for run in facts.runs for p in (*((run.process,) if run.alive else ()), *run.family) if p}
    servers = [family for group in other_families(facts, frozenset(ours)) for family in group]
    told = ours | pids_of(servers)
    return servers + [Family((process,)) for process in facts.processes if process.id.pid not in told]


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
    shown = next((visible_devices(facts, p.devices) for p in ordered if p.devices), None)
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


def may_be_ended(facts: Facts, process: Process) -> bool:
    """
    Whether a process is the login user's own, and not the box's first.
    """
    return process.user == facts.user and process.id.pid > FIRST_PROCESS


def _server_of(run: RunRecord) -> ServerSpec | None:
    try:
        return json.decode(run.attempt, type=AttemptRecord).server
    except (DecodeError, ValidationError):
        return None


def _declared(facts: Facts, server: ServerSpec | None) -> frozenset[int] | None:
    if server is None:
        return None
    return frozenset(server.gpus) or visible_devices(facts, server.env.get(DEVICES))


def visible_devices(facts: Facts, devices: str | None) -> frozenset[int] | None:
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


def pids_of(families: Iterable[Family]) -> frozenset[int]:
    """
    The pids of all members.
    """
    return frozenset(member.id.pid for family in families for member in family.members)
