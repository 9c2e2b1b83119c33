"""
Go on where another client stopped: follow what runs, and climb on.
"""

from msgspec import ValidationError, convert, structs

from mtpdeploy.core.diagnosis import End
from mtpdeploy.core.launch import AttemptRecord, Original, RunState, run_state
from mtpdeploy.core.machine import Facts, Host, RunRecord
from mtpdeploy.core.outcome import Ascent
from mtpdeploy.deploy.ground import look
from mtpdeploy.deploy.order import Options, Order, Tools
from mtpdeploy.deploy.runs import is_meant, require_runs, unreadable, untold
from mtpdeploy.deploy.up import ascent_id, begin, damaged, read_outcome, read_record, resume
from mtpdeploy.errors import BoxUnfit
from mtpdeploy.remote import lock

LIVING = (RunState.RUNNING, RunState.STARTING, RunState.UNTOLD)
"""States of a run of which something lives or is about to."""


def attach(host: Host, tools: Tools, *, server: str | None = None, break_lock: bool = False) -> Ascent:
    """
    Go on with the ascent of the newest run on the box (of one server, where a name is given).

    One that runs without speculation, for a comparison that was broken off, is restarted as it was before.

    Raises:
        BoxUnfit: there is no run, its server was ready and has ended since, or what the run left does not
            tell how it stands.
        BoxLocked: its client lives and is still at it.
    """
    facts = look(tools, None)
    run, record = newest(facts, server=server)
    outcome = read_outcome(run)
    if run_state(run) is RunState.UNTOLD:
        raise untold(run)
    if run_state(run) not in LIVING and (run.stopped_by or (outcome and outcome.end is End.STOPPED)):
        by = run.stopped_by or "somebody"
        raise BoxUnfit(f"run `{run.name}` was stopped by {by}", hint="`mtpdeploy up` starts it again")
    ended = outcome is not None and outcome.end is End.READY and run_state(run) not in LIVING
    if ended and record.original is None:
        status = "not known" if run.exit_status is None else run.exit_status
        raise BoxUnfit(
            f"the server of run `{run.name}` was ready and has ended since (exit status {status})",
            hint=f"`mtpdeploy logs --on {host.name}` shows its last lines; `mtpdeploy up` starts it again",
        )
    lease = lock.take(
        tools.box,
        work_dir=facts.work_dir,
        python=facts.python or "python3",
        purpose=f"attach to {record.asked.name}",
        clock=tools.clock,
        told=tools.note,
        force=break_lock,
    )
    try:
        if record.original is not None:
            return _bring_back(host, tools, lease, record, record.original)
        done = None if outcome is not None and outcome.end is End.LOST else outcome
        return resume(as_begun(host, tools, record), tools, facts, lease, record, done)
    finally:
        lock.release(tools.box, lease)


def _bring_back(
    host: Host, tools: Tools, lease: lock.Lease, record: AttemptRecord, original: Original
) -> Ascent:
    """
    Finish what a comparison began: launch the very configuration that ran before it.
    """
    tools.note(f"run `{record.run}` is {record.purpose}: restarting with speculation as before")
    order = structs.replace(as_begun(host, tools, record), server=original.server)
    facts = look(tools, order.server)
    ascent = Ascent(
        id=ascent_id(tools.clock.now(), order),
        host=host.name,
        asked=original.asked,
        compares=original.run,
    )
    return begin(order, tools, facts, lease, ascent).from_start()


def newest(facts: Facts, *, server: str | None = None) -> tuple[RunRecord, AttemptRecord]:
    """
    The newest run on the box, of one server where a name is given; one that lives goes first.

    Raises:
        BoxUnfit: there is none, its record cannot be read, or the runs cannot be looked at.
    """
    require_runs(facts)
    found = [run for run in facts.runs if is_meant(run, server)]
    if not found:
        of = f" of `{server}`" if server else ""
        raise BoxUnfit(f"there is no run{of} on the box", hint="`mtpdeploy up` starts one")
    run = max(found, key=lambda run: (run_state(run) in LIVING, run.name))
    record = read_record(run)
    if record is None:
        raise unreadable(run)
    return run, record


def as_begun(host: Host, tools: Tools, record: AttemptRecord) -> Order:
    """
    The order as the client that began the ascent had it, on the host of this command.

    Raises:
        ConfigError: its ladder is not configured here.
        BoxUnfit: the record tells other options than there are.
    """
    try:
        options = convert(record.options.get("order", {}), type=Options)
    except ValidationError as error:
        raise damaged(record.run, str(error)) from error
    return Order(
        server=record.asked,
        host=host,
        ladder=tools.ladder(str(record.options.get("ladder", record.asked.ladder))),
        options=options,
    )
