"""
After an attempt's death: what the box can tell of it, before anything that is left is ended.
"""

from msgspec import structs

from mtpdeploy.core.aftermath import facts
from mtpdeploy.core.diagnosis import End
from mtpdeploy.core.launch import AttemptRecord
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
    env = {**tools.box.host.env, **record.server.env}
    try:
        told = again(
            lambda: look_after(tools.box, run, model=record.server.model_path, env=env), limit=PATIENCE
        )
    except MtpDeployError as error:
        tools.note(f"what the box knows of the end could not be asked: {error}")
        return ending
    return structs.replace(ending, after={**facts(told, record.server.gpus), **ending.after})
