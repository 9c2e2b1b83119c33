"""
`mtpdeploy attach`: go on where another client stopped.
"""

from typing import TYPE_CHECKING, Any

import click

from mtpdeploy.cli import options

if TYPE_CHECKING:
    from mtpdeploy.cli.output import Answer


@click.command("attach")
@options.running
@click.option("--break-lock", is_flag=True, help="Take over from a client that is still at it.")
@click.option("--json", "as_json", is_flag=True, help="One document on stdout at the end.")
@click.option("--json-events", is_flag=True, help="A line of JSON per event on stdout.")
@click.option("--no-log", is_flag=True, help="Do not show the server's log lines.")
def command(
    *, break_lock: bool, as_json: bool, json_events: bool, no_log: bool, **asked: Any
) -> "int | Answer":
    """
    Follow what was launched on a box, and climb on where its client stopped.

    What to run is read from the box itself; SERVER chooses among several. What a comparison that was broken
    off left without MTP is restarted as it was before.
    """
    options.one_form(as_json=as_json, json_events=json_events)
    from mtpdeploy.cli import session  # noqa: PLC0415 - imports of the work itself
    from mtpdeploy.deploy.order import Options  # noqa: PLC0415

    screens = session.Screens(as_json=as_json, json_events=json_events, show_log=not no_log)
    return session.attach(options.Asked(**asked), Options(break_lock=break_lock), screens)
