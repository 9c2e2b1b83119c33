"""
The story: look, take the lease, clear, climb, hand over.
"""

import secrets
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import PurePosixPath

from msgspec import ValidationError, convert, structs

from mtpdeploy.core.diagnosis import End
from mtpdeploy.core.events import AnyEvent
from mtpdeploy.core.foreign import decoded, is_plain_name
from mtpdeploy.core.launch import UNSAFE, AttemptRecord, RunState, run_state, stamp
from mtpdeploy.core.machine import Facts, RunRecord
from mtpdeploy.core.outcome import Ascent, Outcome
from mtpdeploy.deploy.climb import Climb
from mtpdeploy.deploy.ground import look
from mtpdeploy.deploy.journal import Journal
from mtpdeploy.deploy.order import Order, Tools
from mtpdeploy.errors import BoxUnfit
from mtpdeploy.remote import lock
from mtpdeploy.remote.facts import unfit
from mtpdeploy.remote.fitness import require_mtp

ANEW = "`mtpdeploy down` ends that run, `mtpdeploy up --force` starts anew"


def bring_up(order: Order, tools: Tools) -> Ascent:
    """
    Bring the server up, whatever it takes within the ladder; return how it went.

    What already serves (or starts) in the same configuration is proved (or followed), not restarted.

    Raises:
        BoxUnfit: the box lacks something, or something in the way is not to be ended.
        BoxLocked: somebody else deploys there.
        ConnectionLost: the box went out of reach for good.
    """
    facts = look(tools, order.server)
    problem = unfit(facts, order.host, order.server)
    if problem is not None:
        raise problem
    require_drafts(order, facts)
    lease = lock.take(
        tools.box,
        work_dir=facts.work_dir,
        python=facts.python or "python3",
        purpose=f"up {order.server.name}",
        clock=tools.clock,
        told=tools.note,
        force=order.options.break_lock,
    )
    try:
        return _climb(order, tools, facts, lease)
    finally:
        lock.release(tools.box, lease)


def _climb(order: Order, tools: Tools, facts: Facts, lease: lock.Lease) -> Ascent:
    same = None if order.options.force else same_server(facts, order)
    if same is not None:
        record, done = same
        return resume(order, tools, facts, lease, record, done)
    ascent = Ascent(id=ascent_id(tools.clock.now(), order), host=order.host.name, asked=order.server)
    return begin(order, tools, facts, lease, ascent).from_start()


def require_drafts(order: Order, facts: Facts) -> None:
    """
    Raises:
        BoxUnfit: the checkpoint cannot speculate as it was asked to, and nobody allowed that.
    """
    if order.options.plan and not order.options.allow_no_mtp:
        require_mtp(facts, order.host, order.server)


def same_server(facts: Facts, order: Order) -> tuple[AttemptRecord, Outcome | None] | None:
    """
    The newest living run that was asked for the same server, with its outcome where it has one.

    One that runs without speculation for a comparison is none: it was to become another again.
    """
    for run in sorted(facts.runs, key=lambda r: r.name, reverse=True):
        if run_state(run) is not RunState.RUNNING:
            continue
        record = read_record(run)
        if record is not None and record.asked == order.server and record.original is None:
            return record, read_outcome(run)
    return None


def resume(
    order: Order,
    tools: Tools,
    facts: Facts,
    lease: lock.Lease,
    record: AttemptRecord,
    done: Outcome | None,
) -> Ascent:
    """
    Go on with an ascent from what its newest run says.
    """
    ascent = Ascent(
        id=record.ascent,
        host=order.host.name,
        asked=record.asked,
        outcomes=earlier(record),
        already_running=done is not None and done.end is End.READY,
        compares=record.compares,
    )
    climb = begin(order, tools, facts, lease, ascent)
    if done is not None and done.end is not End.READY:
        climb.ascent = structs.replace(ascent, outcomes=(*ascent.outcomes, done))
        return climb.from_outcome()
    return climb.from_running(record, done)


def earlier(record: AttemptRecord) -> tuple[Outcome, ...]:
    """
    The outcomes of the attempts before one, as its record tells them.

    Raises:
        BoxUnfit: they are none.
    """
    try:
        outcomes = tuple(convert(outcome, type=Outcome) for outcome in record.before)
    except ValidationError as error:
        raise damaged(record.run, str(error)) from error
    if not all(map(is_named_plainly, outcomes)):
        raise damaged(record.run, "an earlier attempt names a path in the place of a run")
    return outcomes


def damaged(run: str, why: str) -> BoxUnfit:
    """
    The error of a record that is of no use.
    """
    return BoxUnfit(f"the record of run `{run}` is damaged: {why}", hint=ANEW)


def begin(order: Order, tools: Tools, facts: Facts, lease: lock.Lease, ascent: Ascent) -> Climb:
    """
    A climb whose events are written down, too.
    """
    journal = Journal(tools.state, ascent.id)
    journal.client(lock.whoami(), order.host, ascent.asked, facts, tools.clock.now())

    def emit(event: AnyEvent) -> None:
        journal.event(event)
        tools.emit(event)

    return Climb(order, replace(tools, emit=emit), journal, facts, lease, ascent)


def read_record(run: RunRecord) -> AttemptRecord | None:
    """
    A run's attempt.json, or None where it cannot be read or names paths.

    Whoever can write there chose the names in it, and ours become files of the journal here.
    """
    try:
        record = decoded(run.attempt, AttemptRecord)
    except ValueError:
        return None
    names = (record.ascent, record.run, record.log)
    return record if all(map(is_plain_name, names)) else None


def read_outcome(run: RunRecord) -> Outcome | None:
    """
    A run's outcome.json, or None where there is none.
    """
    if run.outcome is None:
        return None
    try:
        outcome = decoded(run.outcome, Outcome)
    except ValueError:
        return None
    return outcome if is_named_plainly(outcome) else None


def is_named_plainly(outcome: Outcome) -> bool:
    """
    Whether the names of an outcome lead nowhere out of the journal.
    """
    return is_plain_name(outcome.run) and is_plain_name(PurePosixPath(outcome.log).name)


def ascent_id(now: float, order: Order) -> str:
    """
    A name for an ascent: sortable by time, and not shared by two that begin in the same second.
    """
    moment = datetime.fromtimestamp(now, UTC)
    return f"{stamp(moment)}-{order.server.name.translate(UNSAFE)}-{secrets.token_hex(4)}"
