"""
After an attempt's death: what the box can tell of it, before anything that is left is ended.
"""

from msgspec import structs

from mtpdeploy.core.aftermath import facts as told_facts
from mtpdeploy.core.diagnosis import End
from mtpdeploy.core.launch import AttemptRecord
from mtpdeploy.core.machine import Facts, RunRecord
from mtpdeploy.core.outcome import Outcome
from mtpdeploy.deploy.order import Tools
from mtpdeploy.deploy.watch import Ending
from mtpdeploy.errors import MtpDeployError
from mtpdeploy.remote.aftermath import look_after
from mtpdeploy.remote.retry import again
from mtpdeploy.remote.run import Run

ENDS = (End.EXITED, End.VANISHED, End.STALLED, End.DOOMED, End.DEAF)
"""The ends of which the box may know more than the log; the others name their reason themselves."""

PATIENCE = 30.0
"""Seconds for which a lost line is tried again: the verdict can do without, and what comes next waits."""


def with_aftermath(ending: Ending, record: AttemptRecord, run: Run, tools: Tools) -> Ending:
    """
    The ending with what the box told after it. A look that fails changes nothing, and is noted.
    """
    if ending.end not in ENDS:
        return ending
    return structs.replace(ending, after={**_told(record, run, tools), **ending.after})


def told_later(
    ended: RunRecord, record: AttemptRecord, seen: Outcome | None, facts: Facts, tools: Tools
) -> dict[str, str] | None:
    """
    What the box tells now of the end of a run that nobody saw failing; `seen` is its outcome, if it has one.

    None where it has not failed, where that was seen, or where others were started after it: what was its
    own cannot be told apart then.
    """
    newest = max(run.name for run in facts.runs) == ended.name
    failed = not (ended.alive or ended.launching or ended.stopped_by or ended.exit_status == 0)
    if not failed or not newest or (seen is not None and seen.end not in (End.READY, End.LOST)):
        return None
    run = Run(work_dir=facts.work_dir, name=ended.name, python=facts.python or "python3")
    return _told(record, run, tools)


def _told(record: AttemptRecord, run: Run, tools: Tools) -> dict[str, str]:
    server = record.server
    env = {**tools.box.host.env, **server.env}
    try:
        told = again(lambda: look_after(tools.box, run, model=server.model_path, env=env), limit=PATIENCE)
    except MtpDeployError as error:
        tools.note(f"what the box knows of the end could not be asked: {error}")
        return {}
    return told_facts(told, server.gpus)
