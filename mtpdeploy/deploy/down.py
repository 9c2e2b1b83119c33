"""
Stop and prove it: processes gone, port free, GPU memory back.
"""

from collections.abc import Sequence

from msgspec import Struct

from mtpdeploy.core.launch import RunState, run_state
from mtpdeploy.core.machine import Facts, RunRecord
from mtpdeploy.core.units import MIB, gib
from mtpdeploy.deploy.ground import look
from mtpdeploy.deploy.order import Tools
from mtpdeploy.deploy.runs import is_meant, listens_of, require_runs
from mtpdeploy.deploy.up import read_record
from mtpdeploy.remote import lock
from mtpdeploy.remote.retry import again
from mtpdeploy.remote.run import Run, Stopped, stop

TOLERANCE = 500 * MIB
"""GPU memory that may stay behind: driver and contexts of others move by as much (ssh-faults, A6 72)."""

GRACE = 30.0
"""Seconds to drain running requests before KILL: SGLang itself waits without end (facts, section 6)."""


class TakenDown(Struct, frozen=True):
    """
    What was stopped, and what is left that should not be. `left` is empty when all is proved.
    """

    runs: tuple[str, ...]
    ended: tuple[int, ...]
    killed: tuple[int, ...]
    left: tuple[str, ...]
    seconds: float


def take_down(tools: Tools, *, server: str | None) -> TakenDown:
    """
    Stop all runs of ours on the box, or those of one server.

    Raises:
        BoxUnfit: the runs cannot be looked at.
        ConnectionLost: the box does not answer within the retry policy.
    """
    facts = look(tools, None)
    require_runs(facts)
    found = living(facts, server=server)
    if not found:
        return TakenDown((), (), (), (), 0.0)
    python = facts.python or "python3"
    runs = [Run(work_dir=facts.work_dir, name=run.name, python=python) for run in found]
    ports = {port for run in found for port in _ports(facts, run)}
    stopped = again(
        lambda: stop(
            tools.box,
            python=python,
            runs=runs,
            port=ports.pop() if len(ports) == 1 else None,
            gpus=_wanted(facts, {run.name for run in found}),
            grace=GRACE,
            note=f"{lock.whoami()}, mtpdeploy down",
        )
    )
    return TakenDown(
        runs=tuple(run.name for run in runs),
        ended=tuple(p.pid for p in stopped.ended),
        killed=tuple(p.pid for p in stopped.killed),
        left=tuple(_left(stopped)),
        seconds=stopped.seconds,
    )


def living(facts: Facts, *, server: str | None) -> Sequence[RunRecord]:
    """
    The runs that live, or have left living processes behind; those of one server where a name is given.
    """
    return [
        run
        for run in facts.runs
        if (run_state(run) in (RunState.RUNNING, RunState.STARTING) or run.family) and is_meant(run, server)
    ]


def _ports(facts: Facts, run: RunRecord) -> set[int]:
    """
    The port of a run, from its record; where that cannot be read, those on which its processes listen.
    """
    record = read_record(run)
    if record is not None:
        return {record.server.port}
    return listens_of(facts, run)


def _wanted(facts: Facts, runs: set[str]) -> dict[str, int]:
    """
    The free bytes that each GPU must have once the runs are gone.
    """
    held: dict[str, int] = {}
    for process in facts.processes:
        if process.run in runs:
            for uuid, used in process.gpu_bytes.items():
                held[uuid] = held.get(uuid, 0) + used
    # What a card had used and free comes from one answer; the list of holders may be a moment older.
    return {
        gpu.uuid: gpu.free_bytes + min(held[gpu.uuid], gpu.used_bytes) - TOLERANCE
        for gpu in facts.gpus
        if held.get(gpu.uuid, 0) > TOLERANCE
    }


def _left(stopped: Stopped) -> list[str]:
    left = [f"process {p.pid} lives still" for p in stopped.survivors]
    if stopped.port_holder is not None:
        left.append(f"the port is held by process {stopped.port_holder or 'unknown'}")
    for card in stopped.gpus:
        if not card.back:
            free = "unknown" if card.free is None else gib(card.free)
            left.append(f"GPU {card.uuid}: {free} free, {gib(card.wanted)} expected")
    return left
