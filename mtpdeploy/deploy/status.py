"""
What runs on a box, told from its files and processes.
"""

from msgspec import Struct

from mtpdeploy.core.launch import AttemptRecord, RunState, run_state, told_by_name
from mtpdeploy.core.machine import Facts, RunRecord
from mtpdeploy.core.outcome import Outcome
from mtpdeploy.core.roster import lacks_scheduler
from mtpdeploy.deploy.runs import is_meant, listens_of, require_runs
from mtpdeploy.deploy.up import read_outcome, read_record


class RunStatus(Struct, frozen=True):
    """
    One run on the box: what was asked, what runs, how it stands.

    `state` is `ready` where the outcome says so and the process lives, and its scheduler with it, else what
    the files say; with what it is for, where that is a comparison with run `compares`. Of a run whose record
    cannot be read only what its name and its processes tell is there.
    """

    run: str
    server: str
    attempt: int
    state: str
    port: int
    started_at: float
    pid: int | None
    log: str
    ascent: str
    accept_length: float | None
    exit_status: int | None
    compares: str = ""


def statuses(facts: Facts) -> list[RunStatus]:
    """
    All runs, newest first.

    Raises:
        BoxUnfit: they cannot be looked at.
    """
    require_runs(facts)
    found = []
    for run in sorted(facts.runs, key=lambda r: r.name, reverse=True):
        record = read_record(run)
        if record is not None:
            found.append(_status(facts, run, record, read_outcome(run)))
        elif is_meant(run, None):
            found.append(_without_record(facts, run))
    return found


def unfinished(facts: Facts) -> RunStatus | None:
    """
    The newest run, where it has ended without an outcome that somebody saw: its client is gone, too.
    """
    found = statuses(facts)
    newest = max(facts.runs, key=lambda run: run.name, default=None)
    if newest is None or newest.outcome is not None or newest.stopped_by or not found:
        return None
    return None if is_living(found[0]) or found[0].run != newest.name else found[0]


def is_living(status: RunStatus) -> bool:
    """
    Whether anything of the run lives.
    """
    return status.state.startswith(("ready", RunState.RUNNING, RunState.STARTING, RunState.UNTOLD))


def _without_record(facts: Facts, run: RunRecord) -> RunStatus:
    started_at, server, attempt = told_by_name(run.name) or (0.0, run.name, 0)
    return RunStatus(
        run=run.name,
        server=server,
        attempt=attempt,
        state=f"{run_state(run)}, its record cannot be read",
        port=min(listens_of(facts, run), default=0),
        started_at=started_at,
        pid=run.process.pid if run.process else None,
        log=f"{facts.work_dir}/runs/{run.name}/{run.log}" if run.log else "",
        ascent="",
        accept_length=None,
        exit_status=run.exit_status,
    )


def _titles(facts: Facts, run: RunRecord) -> set[str]:
    """
    The titles of the child processes of a run.
    """
    members = {member.pid for member in run.family}
    workers = [p for p in facts.processes if p.id.pid in members and p.kind == "worker"]
    return {worker.command.split(" ")[0] for worker in workers}


def _status(facts: Facts, run: RunRecord, record: AttemptRecord, outcome: Outcome | None) -> RunStatus:
    state = run_state(run)
    proved = outcome.report if outcome else None
    told: str = state
    if state is RunState.RUNNING and proved is not None and lacks_scheduler(_titles(facts, run)):
        told = f"{state}, but its scheduler is gone: it answers nothing"
    elif state is RunState.RUNNING and proved is not None:
        told = proved.state
    elif state is not RunState.RUNNING and outcome is not None and outcome.verdict is not None:
        told = f"{state}: {outcome.verdict.cause}"
    if record.original is not None:
        told = f"{told}, {record.purpose}"
    return RunStatus(
        run=run.name,
        server=record.asked.name,
        attempt=record.attempt,
        state=told,
        port=record.server.port,
        started_at=record.started_at,
        pid=run.process.pid if run.process else None,
        log=f"{facts.work_dir}/runs/{run.name}/{record.log}",
        ascent=record.ascent,
        accept_length=proved.accept_length if proved else None,
        exit_status=run.exit_status,
        compares=record.compares,
    )
