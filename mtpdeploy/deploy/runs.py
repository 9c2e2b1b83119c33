"""
Which run directories of a box are meant, and what to say where they do not tell enough.
"""

from mtpdeploy.core.launch import ATTEMPT_FILE, PROCESS_FILE, UNSAFE, told_by_name
from mtpdeploy.core.machine import Facts, RunRecord
from mtpdeploy.deploy.up import read_record
from mtpdeploy.errors import BoxUnfit

WHAT_TO_DO = "`mtpdeploy status` shows what runs there; `mtpdeploy down` ends it, `mtpdeploy up` starts anew"


def require_runs(facts: Facts) -> None:
    """
    Raises:
        BoxUnfit: the run directories cannot be looked at; names what can be seen of them all the same.
    """
    if not facts.runs_problem:
        return
    seen = sorted({p.run for p in facts.processes if p.run})
    living = f"; processes of these live: {', '.join(seen)}" if seen else ""
    raise BoxUnfit(
        f"the runs on the box cannot be looked at: {facts.runs_problem}{living}",
        hint="mend that path there (its owner, its mode by chmod u+rwx, or what stands in its place)",
    )


def is_meant(run: RunRecord, server: str | None) -> bool:
    """
    Whether a run is one of a server (of any, without a name); where its record cannot be read, its name says.

    A directory that neither has a record nor is called like a run, and of which nothing lives, is none.
    """
    record = read_record(run)
    if record is not None:
        return server in (None, record.asked.name)
    told = told_by_name(run.name)
    if told is None:
        return server is None and bool(run.family)
    return server is None or told[1] == server.translate(UNSAFE)


def listens_of(facts: Facts, run: RunRecord) -> set[int]:
    """
    The ports on which the processes of a run listen.
    """
    members = {member.pid for member in (*run.family, *((run.process,) if run.process else ()))}
    return {port for process in facts.processes if process.id.pid in members for port in process.listens}


def unreadable(run: RunRecord) -> BoxUnfit:
    """
    The error of a run whose record does not say what it is.
    """
    return BoxUnfit(f"the record of run `{run.name}` cannot be read ({ATTEMPT_FILE})", hint=WHAT_TO_DO)


def untold(run: RunRecord) -> BoxUnfit:
    """
    The error of a run that lives, and whose own process is not known.
    """
    pids = ", ".join(str(member.pid) for member in run.family)
    return BoxUnfit(
        f"run `{run.name}` does not tell its process (`{PROCESS_FILE}` is missing, damaged or names another"
        f" one), and processes of it live: {pids}",
        hint=WHAT_TO_DO,
    )
