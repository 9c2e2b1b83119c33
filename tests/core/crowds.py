"""
Boxes as values: who runs on them, and what holds which card.
"""

from typing import Any

from msgspec import json, structs

from mtpdeploy.core.launch import AttemptRecord
from mtpdeploy.core.machine import Facts, Gpu, GpuHolder, Process, ProcessId, RunRecord
from mtpdeploy.core.server import ServerSpec
from mtpdeploy.core.units import GIB

CARDS = ("GPU-aaaa", "GPU-bbbb")
SERVED = "/opt/venv/bin/python -m sglang.launch_server --model-path /m"


def pid(number: int) -> ProcessId:
    """
    A process identity.
    """
    return ProcessId(pid=number, start=str(number * 100), boot="b", pid_ns="4026531836")


def process(number: int, command: str = SERVED, **other: Any) -> Process:
    """
    A process of root; its kind is "server" unless told otherwise.
    """
    given_kind = {"kind": "server", "ppid": 1, "user": "root", "pgid": number}
    return Process(id=pid(number), command=command, **{**given_kind, **other})


def tree(first: int = 100, *, port: int = 30000, gpu: str | None = None, **other: Any) -> tuple[Process, ...]:
    """
    A server as SGLang 0.5.23 shows it when ready: main, resource tracker, scheduler, detokenizer.
    """
    below = {"ppid": first, "pgid": first, **other}
    held = {gpu: 90 * GIB} if gpu else {}
    return (
        process(first, f"{SERVED} --port {port}", listens=(port,), **other),
        process(
            first + 1, "/opt/venv/bin/python -B -c from multiprocessing.…", **{**below, "kind": "helper"}
        ),
        process(first + 2, "sglang::scheduler", **{**below, "kind": "worker", "gpu_bytes": held}),
        process(first + 3, "sglang::detokenizer", **{**below, "kind": "worker"}),
    )


def server(port: int = 30000, gpus: tuple[int, ...] = (), **other: Any) -> ServerSpec:
    """
    The server that is wanted.
    """
    return ServerSpec(name="q", flags={"model_path": "/m", "port": port}, gpus=gpus, **other)


def facts(
    *processes: Process,
    runs: tuple[RunRecord, ...] = (),
    holders: tuple[GpuHolder, ...] = (),
    used: tuple[int, ...] = (4, 4),
    port_holders: tuple[int, ...] | None = None,
    port: int = 30000,
) -> Facts:
    """
    A box with two cards of 96 GiB; `used` is in MiB. What processes hold is listed by nvidia-smi.
    """
    listed = tuple(
        GpuHolder(uuid, p.id.pid, p.command.split()[0], amount, visible=True)
        for p in processes
        for uuid, amount in p.gpu_bytes.items()
    )
    sums = {uuid: sum(h.used_bytes or 0 for h in listed + holders if h.gpu_uuid == uuid) for uuid in CARDS}
    gpus = tuple(
        Gpu(
            n,
            uuid,
            "RTX",
            96 * GIB,
            96 * GIB - max(used[n] << 20, sums[uuid]),
            used_bytes=max(used[n] << 20, sums[uuid]),
        )
        for n, uuid in enumerate(CARDS[: len(used)])
    )
    listening = tuple(p.id.pid for p in processes if port in p.listens)
    return Facts(
        taken_at=0, clock_offset=0, system="Linux", user="root", home="/root", work_dir="/root/.mtpdeploy",
        work_dir_writable=True, disk_free_bytes=GIB, python="/usr/bin/python3", python_version="3.12",
        sglang_version="0.5.9", packages={}, nvidia_smi="ok", gpus=gpus, gpu_holders=listed + holders,
        processes=processes, runs=runs, model=None,
        port_holders=listening if port_holders is None else port_holders,
    )  # fmt: skip


def ours(name: str, members: tuple[Process, ...], asked: ServerSpec | None, **other: Any) -> RunRecord:
    """
    A run of ours whose supervisor is the first of `members`.
    """
    attempt = "damaged"
    if asked is not None:
        record = AttemptRecord("a", 1, name, "l", 0.0, asked, asked, None, "0.5.9")
        attempt = json.encode(record).decode()
    run = RunRecord(
        name=name, attempt=attempt, process=members[0].id, alive=True, family=tuple(m.id for m in members[1:])
    )
    return structs.replace(run, **other)


def pids(blockers: Any) -> list[list[int]]:
    """
    The families of some blockers, as numbers.
    """
    return [sorted(member.pid for member in blocker.family) for blocker in blockers]


def supervised(first: int = 100, **other: Any) -> tuple[Process, ...]:
    """
    A run of ours: the supervisor and the server below it.
    """
    first_of_server = process(first + 1).id.pid
    main, *children = tree(first_of_server, **other)
    supervisor = process(first, "/usr/bin/python3 supervise.py", kind="", run="r")
    return (supervisor, structs.replace(main, ppid=first), *children)
