"""
`mtpdeploy history`: earlier ascents from the local journal.
"""

from typing import TYPE_CHECKING, Any

import click

from mtpdeploy.cli import options, tables
from mtpdeploy.cli.documents import ascent_document, exit_status
from mtpdeploy.cli.output import Answer
from mtpdeploy.cli.words import in_short
from mtpdeploy.core.units import duration

if TYPE_CHECKING:
    from mtpdeploy.deploy.journal import Past


@click.command("history")
@click.option("--on", "host", type=options.Text(), help="Only ascents on this host.")
@click.option("--server", type=options.Text(), help="Only ascents of this server.")
@click.option("-n", "--last", "count", type=options.Whole(1), default=20, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="One document on stdout.")
def command(host: str | None, server: str | None, count: int, *, as_json: bool) -> Answer | None:
    """
    Show earlier ascents from the local journal, newest first, every attempt with how it ended.
    """
    from mtpdeploy.deploy.journal import history, state_directory  # noqa: PLC0415

    unread: list[str] = []
    wanted = [
        past
        for past in history(state_directory(), unread.append)
        if host in (None, past.ascent.host) and server in (None, past.ascent.asked.name)
    ][:count]
    for sentence in unread:
        click.echo(sentence, err=True)
    if as_json:
        return Answer([_document(past) for past in wanted])
    if not wanted:
        click.echo("no other ascent in the journal" if unread else "no ascent in the journal", err=True)
        return None
    rows = []
    for past in wanted:
        for outcome in past.ascent.outcomes:
            first = outcome is past.ascent.outcomes[0]
            rows.append(
                (
                    tables.when(outcome.started_at),
                    past.ascent.id.rpartition("-")[2] if first else "",
                    past.ascent.host if first else "",
                    past.ascent.asked.name if first else "",
                    str(outcome.attempt),
                    outcome.rung
                    or ((past.ascent.purpose or "as asked") if outcome.attempt == 1 else "again"),
                    in_short(outcome),
                    duration(outcome.seconds),
                )
            )
    click.echo(
        tables.table(("started", "ascent", "host", "server", "attempt", "rung", "then", "after"), rows)
    )
    return None


def _document(past: "Past") -> dict[str, Any]:
    """
    An ascent as `--json` shows it; one without outcomes was left to itself, and its end is not known here.
    """
    status = exit_status(past.ascent) if past.ascent.outcomes else None
    return {**ascent_document(past.ascent, status), "folder": str(past.folder)}
