"""
`mtpdeploy down`: stop, and prove it.
"""

from typing import Any

import click
from msgspec import to_builtins

from mtpdeploy.cli import options
from mtpdeploy.cli.output import Answer
from mtpdeploy.errors import SERVER_NOT_UP


@click.command("down")
@options.running
@click.option("--json", "as_json", is_flag=True, help="One document on stdout.")
def command(*, as_json: bool, **asked: Any) -> int | Answer:
    """
    Stop what mtpdeploy started on a box (only SERVER's, where it is named), and prove that it is gone.
    """
    from mtpdeploy.cli.choose import host_from  # noqa: PLC0415 - imports of the work itself
    from mtpdeploy.cli.opening import open_tools  # noqa: PLC0415
    from mtpdeploy.cli.plain import Plain  # noqa: PLC0415
    from mtpdeploy.core.units import counted, duration  # noqa: PLC0415
    from mtpdeploy.deploy.down import take_down  # noqa: PLC0415

    target = options.Asked(**asked)
    with open_tools(host_from(target), target, Plain().show) as tools:
        down = take_down(tools, server=target.server)
    status = SERVER_NOT_UP if down.left else 0
    if as_json:
        return Answer(to_builtins(down), status)
    if not down.runs:
        click.echo("nothing of mtpdeploy runs there", err=True)
    else:
        for run in down.runs:
            click.echo(f"stopped {run}", err=True)
        forced = f" ({len(down.killed)} by KILL)" if down.killed else ""
        count = len(down.ended) + len(down.killed)
        click.echo(
            f"{counted(count, 'process', 'processes')} ended{forced} in {duration(down.seconds)}", err=True
        )
        for left in down.left:
            click.secho(f"still there: {left}", err=True, fg="red")
        if not down.left:
            click.echo("port free, GPU memory back, no process left", err=True)
    return status
