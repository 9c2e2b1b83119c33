"""
Before a launch: look at the box, and clear what is in the way.
"""

from collections.abc import Iterator

from mtpdeploy.core import events
from mtpdeploy.core.machine import Facts
from mtpdeploy.core.server import ServerSpec
from mtpdeploy.core.stale import Blocker, Clearance, judge
from mtpdeploy.core.units import gib
from mtpdeploy.deploy.order import Order, Tools
from mtpdeploy.remote import stale
from mtpdeploy.remote.facts import survey, unfit
from mtpdeploy.remote.retry import again


def look(tools: Tools, server: ServerSpec | None) -> Facts:
    """
    Ask the box everything in one round trip; what `server` needs too, where one is given.

    Raises:
        ConnectionLost: the box does not answer within the retry policy.
    """
    begun = tools.clock.monotonic()
    facts = again(lambda: survey(tools.box, host=tools.box.host, server=server))
    tools.emit(
        events.Surveyed(
            at=tools.clock.now(),
            gpus=tuple(f"{g.name} ({gib(g.free_bytes)} of {gib(g.total_bytes)} free)" for g in facts.gpus),
            sglang_version=facts.sglang_version or "not found",
            python=facts.python or "not found",
            clock_offset=facts.clock_offset,
            seconds=tools.clock.monotonic() - begun,
            simulated=facts.simulated,
        )
    )
    return facts


def clear_way(order: Order, tools: Tools, facts: Facts) -> Facts:
    """
    End what is ours and in the way, wait until port and GPU memory are back, and look again.

    Raises:
        BoxUnfit: something that is not to be ended is in the way, or the launch would fail anyhow; nothing
            has been ended then.
    """
    problem = unfit(facts, order.host, order.server)
    if problem is not None:
        raise problem
    clearance = judge(facts, order.server, keep_others=order.options.keep_others)
    if not (clearance.ours or clearance.others or clearance.foreign):
        return facts
    tell(clearance, tools)
    cleared = again(
        lambda: stale.clear(tools.box, facts, clearance, take=order.options.take, emit=tools.emit)
    )
    tools.emit(
        events.Cleared(
            at=tools.clock.now(), ended=cleared.ended, killed=cleared.killed, seconds=cleared.seconds
        )
    )
    return look(tools, order.server)


def tell(clearance: Clearance, tools: Tools) -> None:
    """
    Name everything that is in the way, and what happens to it.
    """
    for blocker, fate in _fates(clearance):
        tools.emit(
            events.InTheWay(
                at=tools.clock.now(), pid=blocker.pid, command=blocker.command, why=blocker.why, fate=fate
            )
        )


def describe(clearance: Clearance) -> list[str]:
    """
    What is in the way and what would happen to it, a line each.
    """
    return [
        f"pid {blocker.pid} of {blocker.user or 'unknown'}: {blocker.command[:100]} ({blocker.why}): {fate}"
        for blocker, fate in _fates(clearance)
    ]


def _fates(clearance: Clearance) -> Iterator[tuple[Blocker, str]]:
    for blocker in clearance.ours:
        yield blocker, "ours, ended"
    for blocker in clearance.others:
        yield blocker, "another SGLang server of this user, ended unless it is working on requests"
    for blocker in clearance.kept:
        yield blocker, "kept (--keep-others)"
    for blocker in clearance.foreign:
        yield blocker, "waited for" if blocker.settles else "not ours, never ended"
