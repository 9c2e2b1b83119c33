"""
`mtpdeploy logs`: the server's log, from the box and kept here.
"""

from typing import Any

import click

from mtpdeploy.cli import options


@click.command("logs")
@options.running
@click.option("-f", "--follow", is_flag=True, help="Go on as the log grows, until Ctrl-C or the end.")
@click.option("--attempt", type=options.Whole(1), help="Attempt of the newest ascent; the newest by default.")
@click.option("--local", is_flag=True, help="Only the copy kept here; the box is not asked.")
def command(attempt: int | None, *, follow: bool, local: bool, **asked: Any) -> int:
    """
    Print the log of the newest run on a box (of SERVER, where it is named), byte for byte.
    """
    from mtpdeploy.cli.reading import print_local, print_remote  # noqa: PLC0415 - imports of the work itself

    target = options.Asked(**asked)
    if local:
        return print_local(target, attempt)
    return print_remote(target, attempt, follow=follow)
