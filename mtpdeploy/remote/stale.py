"""
Clearing the way: ask who works, refuse what must not be ended, end the rest, and see that all is free again.
"""

import time
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from mtpdeploy.core.events import Emit, Note
from mtpdeploy.core.machine import Facts
from mtpdeploy.core.stale import Blocker, Clearance, needs_take
from mtpdeploy.core.units import gib
from mtpdeploy.errors import BoxUnfit
from mtpdeploy.remote import http
from mtpdeploy.remote.box import Box
from mtpdeploy.remote.run import Card, Run, Stopped, stop

ASK_TIMEOUT = 5.0
"""Seconds for a server to say how many requests it has: a healthy one answers in milliseconds."""

PORTS_ASKED = 3
"""How many of the ports on which a server listens are asked: its own, and where that is not known some."""

LOAD_PATHS = ("/v1/loads?include=core", "/get_load", "/metrics")
"""
Where SGLang tells how many requests it has: /v1/loads from 0.5.8 on, /get_load to 0.5.20 (entrypoints),
/metrics with --enable-metrics, and beside an API key too.
"""

RUNNING_METRICS = ("sglang:num_running_reqs", "sglang:num_queue_reqs")
"""Gauges of /metrics that count the requests in the server (observability/metrics_collector.py)."""

MEMORY_WAIT = 90.0
"""
Seconds for the GPU memory of what was ended: some seconds as a rule, tens where much host memory is
pinned for the hierarchical cache (SGLang PR 31746).
"""

SETTLING_WAIT = 30.0
"""Seconds for memory that no process accounts for; a process that died before we came freed it by then."""


class Cleared(Struct, frozen=True):
    """
    What was done: pids that ended when asked, pids that had to be killed, and how long it took.
    """

    ended: tuple[int, ...] = ()
    killed: tuple[int, ...] = ()
    seconds: float = 0.0


def clear(box: Box, facts: Facts, clearance: Clearance, *, take: bool, emit: Emit) -> Cleared:
    """
    End what is ours and what else may be ended, and wait until the port and the GPU memory are free.

    Nothing is ended as long as something stays in the way anyhow.

    Raises:
        BoxUnfit: something that is never ended is in the way, or a server that works on requests
            (without `take`), or what was ended does not go, or its port or memory does not come back.
        ConnectionLost: the line broke; how far it came is unknown, and it may be done again.
    """
    host = box.host.name
    fixed = never_ended(host, clearance)
    if fixed is not None:
        raise fixed
    if clearance.others and not take:
        _refuse_busy(box, facts, clearance, emit)
    settling = [blocker for blocker in clearance.foreign if blocker.settles]
    if not (clearance.ours or clearance.others or settling):
        return Cleared()
    python = facts.python or "python3"
    stopped = stop(
        box,
        python=python,
        runs=[Run(work_dir=facts.work_dir, name=o.run, python=python) for o in clearance.ours if o.run],
        processes=[main for other in clearance.others for main in other.mains],
        port=clearance.port,
        gpus=clearance.memory,
        wait=MEMORY_WAIT if clearance.ours or clearance.others else SETTLING_WAIT,
    )
    _require_gone(host, stopped, clearance)
    _require_free(host, stopped, facts, settling)
    return Cleared(
        ended=tuple(process.pid for process in stopped.ended),
        killed=tuple(process.pid for process in stopped.killed),
        seconds=stopped.seconds,
    )


def never_ended(host: str, clearance: Clearance) -> BoxUnfit | None:
    """
    The error for what stays in the way whatever is done; None where nothing does.
    """
    fixed = [blocker for blocker in clearance.foreign if not blocker.settles]
    return in_the_way(host, fixed) if fixed else None


def in_the_way(host: str, blockers: list[Blocker]) -> BoxUnfit:
    """
    The error that names what is in the way and is not ended.
    """
    listed = "; ".join(f"{_named(blocker)}: {blocker.why}" for blocker in blockers)
    ways = ["end it yourself", "choose another GPU with `--gpu`", "choose another port with `--port`"]
    return BoxUnfit(
        f"something on `{host}` is in the way, and mtpdeploy never ends it: {listed}", hint=", or ".join(ways)
    )


def requests_running(box: Box, ports: Sequence[int], python: str = http.PYTHON) -> int | None:
    """
    How many requests a server has at this moment, running or waiting; None where it does not say.

    `ports` are where it listens, the likeliest first.

    Raises:
        ConnectionLost: the line to the box broke.
    """
    for port in ports[:PORTS_ASKED]:
        for path in LOAD_PATHS:
            reply = http.get(box, port, path, timeout=ASK_TIMEOUT, python=python)
            if reply.status == 0:
                break
            count = None
            if reply.status == 200:
                count = metric_count(reply.body) if path == "/metrics" else load_count(reply.json())
            if count is not None:
                return count
    return None


def load_count(answer: Any) -> int | None:  # noqa: ANN401 - JSON is anything
    """
    The requests in an answer of /v1/loads (`loads`, a rank each) or /get_load (a list, a rank each).
    """
    ranks = answer.get("loads") if isinstance(answer, dict) else answer
    if not isinstance(ranks, list):
        return None
    counts = [_rank_count(rank) for rank in ranks]
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _rank_count(rank: Any) -> int | None:  # noqa: ANN401
    if not isinstance(rank, dict):
        return None
    if isinstance(rank.get("num_reqs"), int):
        return int(rank["num_reqs"])
    told = [rank.get("num_running_reqs"), rank.get("num_waiting_reqs")]
    numbers = [number for number in told if isinstance(number, int)]
    return sum(numbers) if numbers else None


def metric_count(body: bytes) -> int | None:
    """
    The requests in a page of Prometheus metrics.
    """
    found = []
    for line in body.decode("utf-8", "replace").splitlines():
        name, _, value = line.rpartition(" ")
        if name.partition("{")[0] in RUNNING_METRICS:
            try:
                found.append(int(float(value)))
            except (ValueError, OverflowError):
                continue
    return sum(found) if found else None


def _refuse_busy(box: Box, facts: Facts, clearance: Clearance, emit: Emit) -> None:
    running: dict[int, int] = {}
    for other in clearance.others:
        count = requests_running(box, other.ports, facts.python or http.PYTHON)
        if count is None:
            said = "does not say whether it works on requests; taken for idle"
            emit(Note(at=time.time(), text=f"{_named(other)} {said}"))
        else:
            running[other.pid] = count
    busy = needs_take(clearance, running)
    if busy:
        listed = "; ".join(f"{_named(b)} ({b.why}) has {running[b.pid]} running" for b in busy)
        raise BoxUnfit(
            f"a server in the way on `{box.host.name}` is working on requests: {listed}",
            hint="end it all the same with `--take`, or choose another GPU (`--gpu`) and port (`--port`)",
        )


def _require_gone(host: str, stopped: Stopped, clearance: Clearance) -> None:
    if not stopped.survivors:
        return
    named = {p.pid: b for b in clearance.ours + clearance.others for p in b.family}
    pids = [process.pid for process in stopped.survivors]
    commands = {_named(named[pid]) for pid in pids if pid in named}
    raise BoxUnfit(
        f"what was ended on `{host}` does not go: {', '.join(sorted(commands) or map(str, pids))}",
        hint="a process stuck in the driver goes late or never: try again, or restart the box",
    )


def _require_free(host: str, stopped: Stopped, facts: Facts, settling: list[Blocker]) -> None:
    if stopped.port_holder is not None:
        known = {process.id.pid: process.command for process in facts.processes}
        holder = stopped.port_holder
        who = (
            f"{known.get(holder, 'a process')} (pid {holder})" if holder else "a process that cannot be seen"
        )
        raise BoxUnfit(
            f"the port on `{host}` is still taken by {who}",
            hint="something starts it again (a service, a loop): stop that, or choose another `--port`",
        )
    late = [card for card in stopped.gpus if not card.back and card.free is not None]
    if late and settling:
        raise in_the_way(host, settling)
    if late:
        raise BoxUnfit(
            f"GPU memory on `{host}` did not come back within {stopped.seconds:.0f} s: {_cards(late, facts)}",
            hint="the driver frees it late when much host memory was pinned: try again in a minute,"
            " or see `nvidia-smi` on the box",
        )


def _cards(late: list[Card], facts: Facts) -> str:
    index = {gpu.uuid: gpu.index for gpu in facts.gpus}
    told = (f"GPU {index.get(c.uuid, c.uuid)} has {gib(c.free or 0)} free of {gib(c.wanted)}" for c in late)
    return ", ".join(told)


def _named(blocker: Blocker) -> str:
    command = blocker.command if len(blocker.command) <= 100 else blocker.command[:99] + "…"
    pid = f"pid {blocker.pid}" if blocker.pid else "no pid here"
    owner = f", {blocker.user}" if blocker.user else ""
    return f"{command} ({pid}{owner})"
