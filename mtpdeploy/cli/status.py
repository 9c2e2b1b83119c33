"""
`mtpdeploy status`: what runs on a box.
"""

from typing import TYPE_CHECKING, Any

import click
from msgspec import to_builtins

from mtpdeploy.cli import options, tables
from mtpdeploy.cli.output import Answer

if TYPE_CHECKING:
    from mtpdeploy.core.families import Family


@click.command("status")
@options.running
@click.option("--all", "show_all", is_flag=True, help="Runs that have ended, too.")
@click.option("--json", "as_json", is_flag=True, help="One document on stdout.")
def command(*, show_all: bool, as_json: bool, **asked: Any) -> int | Answer:
    """
    Show what runs on a box: GPUs, servers of mtpdeploy and others, with state, port and pid.
    """
    from mtpdeploy.cli.choose import host_from  # noqa: PLC0415 - imports of the work itself
    from mtpdeploy.cli.opening import open_tools  # noqa: PLC0415
    from mtpdeploy.cli.plain import Plain  # noqa: PLC0415
    from mtpdeploy.core.families import bystanders  # noqa: PLC0415
    from mtpdeploy.deploy.ground import look  # noqa: PLC0415
    from mtpdeploy.deploy.status import is_living, statuses, unfinished  # noqa: PLC0415

    target = options.Asked(**asked)
    host = host_from(target)
    with open_tools(host, target, Plain().show) as tools:
        facts = look(tools, None)
    runs = [s for s in statuses(facts) if (show_all or is_living(s)) and target.server in (None, s.server)]
    others = bystanders(facts)
    if as_json:
        told = {
            "host": host.name,
            "sglang_version": facts.sglang_version,
            "simulated": facts.simulated,
            "gpus": [to_builtins(g) for g in facts.gpus],
            "runs": [to_builtins(s) for s in runs],
            "others": [_beside(family) for family in others],
        }
        return Answer(told)
    rows = [
        (
            s.server,
            s.state,
            str(s.port),
            str(s.pid or ""),
            str(s.attempt),
            tables.when(s.started_at),
            "" if s.accept_length is None else f"{s.accept_length:.2f}",
        )
        for s in runs
    ]
    headings = ("server", "state", "port", "pid", "attempt", "started", "accept length")
    if not rows and (left := unfinished(facts)):
        click.echo(f"the ascent of {left.server} stands still: attempt {left.attempt}: {left.state}")
        click.echo("`mtpdeploy attach` goes on with it")
    click.echo(tables.table(headings, rows) if rows else "nothing of mtpdeploy runs there")
    for family in others:
        first, ports = family.members[0], "".join(f", port {port}" for port in family.ports)
        click.echo(f"not ours: pid {first.id.pid} of {first.user}{ports}: {first.command[:120]}")
    return 0


def _beside(family: "Family") -> dict[str, Any]:
    """
    What `--json` tells of processes that are not ours.
    """
    first = family.members[0]
    return {
        "pid": first.id.pid,
        "user": first.user,
        "command": first.command,
        "ports": list(family.ports),
        "gpu_bytes": family.held,
        "pids": sorted(member.id.pid for member in family.members),
    }
