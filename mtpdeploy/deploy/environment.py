"""
Asked and arrived: whether the server's process has every variable that it was to be given.

An image's own wrapper, or a launcher that cleans the environment, drops variables without a word (public
reports, lesson 17).
"""

from msgspec import structs

from mtpdeploy.core.launch import AttemptRecord
from mtpdeploy.core.outcome import ENVIRONMENT, Check, Report
from mtpdeploy.deploy.order import Tools
from mtpdeploy.errors import MtpDeployError
from mtpdeploy.remote.environment import Environment, compare_environment
from mtpdeploy.remote.retry import again
from mtpdeploy.remote.run import Run
from mtpdeploy.render import variables


def with_environment(report: Report, record: AttemptRecord, run: Run, tools: Tools) -> Report:
    """
    The report with one more check. What is not as asked is noted as well: a server goes on without it.
    """
    command = tools.engine.command(record.server, run.python, record.sglang_version)
    wanted = variables(tools.box.host.env, command, record.run)
    port, secrets = record.server.port, record.server.secrets
    try:
        told = again(
            lambda: compare_environment(tools.box, run, port=port, variables=wanted, secrets=secrets)
        )
    except MtpDeployError as error:
        return _added(report, Check(ENVIRONMENT, None, f"could not be asked: {error}"))
    if told.missing or told.different:
        detail = _differences(told)
        tools.note(f"the server's process does not have the environment that was asked for: {detail}")
        return _added(report, Check(ENVIRONMENT, False, detail))
    if told.problem:
        return _added(report, Check(ENVIRONMENT, None, told.problem))
    return _added(report, Check(ENVIRONMENT, True, f"all {len(wanted) + len(secrets)} variables arrived"))


def _added(report: Report, check: Check) -> Report:
    return structs.replace(report, checks=(*report.checks, check))


def _differences(told: Environment) -> str:
    parts = {"missing": told.missing, "with another value": told.different}
    named = "; ".join(f"{what}: {', '.join(names)}" for what, names in parts.items() if names)
    return f"{named} (process {told.pid})"
