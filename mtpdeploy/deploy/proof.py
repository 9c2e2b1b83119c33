"""
The proof, asked of what serves already.
"""

from mtpdeploy.core.launch import AttemptRecord, RunState, run_state
from mtpdeploy.core.machine import Facts
from mtpdeploy.core.outcome import Report
from mtpdeploy.deploy.attach import newest
from mtpdeploy.deploy.environment import with_environment
from mtpdeploy.deploy.ground import look
from mtpdeploy.deploy.order import Tools
from mtpdeploy.deploy.verify import verifier
from mtpdeploy.errors import BoxUnfit
from mtpdeploy.remote import http
from mtpdeploy.remote.retry import again
from mtpdeploy.remote.run import Run


def verify_running(tools: Tools, *, server: str | None) -> tuple[AttemptRecord, Report]:
    """
    Ask the newest run that lives on a box, of one server where a name is given.

    Raises:
        BoxUnfit: there is no run, or the newest one does not live.
        ConnectionLost: the line to the box broke.
    """
    facts, record = running(tools, server=server)
    report = again(verifier(tools, record, facts, full=True).report)
    run = Run(work_dir=facts.work_dir, name=record.run, python=facts.python or http.PYTHON)
    return record, with_environment(report, record, run, tools)


def running(tools: Tools, *, server: str | None) -> tuple[Facts, AttemptRecord]:
    """
    The newest run that lives on a box, of one server where a name is given, with a look at the box.

    Raises:
        BoxUnfit: there is no run, or the newest one does not live.
        ConnectionLost: the line to the box broke.
    """
    facts = look(tools, None)
    run, record = newest(facts, server=server)
    if run_state(run) is not RunState.RUNNING:
        raise BoxUnfit(
            f"the server of run `{run.name}` does not run",
            hint="`mtpdeploy up` starts it; `mtpdeploy status --all` tells how it ended",
        )
    return facts, record
