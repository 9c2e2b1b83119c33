"""
Where a server stood that is about to be ended for doing nothing.
"""

from msgspec import structs

from mtpdeploy.core.diagnosis import End
from mtpdeploy.core.launch import AttemptRecord
from mtpdeploy.deploy.journal import Journal
from mtpdeploy.deploy.order import Tools
from mtpdeploy.deploy.watch import Ending
from mtpdeploy.errors import MtpDeployError
from mtpdeploy.remote.retry import again
from mtpdeploy.remote.run import Run, take_stacks

ALIVE = (End.STALLED, End.DEAF)
"""Ends of servers that live and say nothing of why they do not go on."""


STACKS_LIMIT = 20.0
"""Seconds for which a lost line is waited for: less than for what has to be done, since they only explain."""


def with_stacks(ending: Ending, record: AttemptRecord, run: Run, tools: Tools, journal: Journal) -> Ending:
    """
    The ending with the innermost frames of a server that still lives (`after["stack"]`); the whole stacks are
    kept in the run's directory and beside the local log. Where they cannot be had the ending stays as it is.
    """
    if ending.end not in ALIVE:
        return ending
    try:
        stacks = again(lambda: take_stacks(tools.box, run), STACKS_LIMIT)
    except MtpDeployError as error:
        tools.note(f"the stacks of its processes could not be taken: {error.message}")
        return ending
    if stacks is None:
        return ending
    path = journal.stacks(record, stacks.text)
    tools.note(f"the stacks of its processes, told by {stacks.how}: {path}")
    return structs.replace(ending, after={**ending.after, "stack": stacks.short})
