"""
Asking a box whether a run's server has the environment that it was to be given.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from mtpdeploy.remote.box import Box
from mtpdeploy.remote.run import Run, ask, understood


class Environment(Struct, frozen=True):
    """
    The names that the process `pid` lacks, and those with another value; `problem` where it shows none.
    """

    pid: int | None
    missing: tuple[str, ...] = ()
    different: tuple[str, ...] = ()
    problem: str = ""


def compare_environment(
    box: Box, run: Run, *, port: int, variables: Mapping[str, str], secrets: Sequence[str]
) -> Environment:
    """
    Compare on the box; values go there, and none comes back. Of `secrets` only the names are known. The
    server is what listens on `port`, if anything of the run does.

    Raises:
        BoxUnfit: no Python.
        CommandFailed: it failed otherwise.
        ConnectionLost: the line broke; it may be asked again.
    """
    request = {
        "run_dir": run.directory,
        "port": port,
        "variables": dict(variables),
        "secrets": list(secrets),
    }
    return understood(box, "environment", ask(box, "environment", request, run.python), Environment)
