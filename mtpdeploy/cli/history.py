"""
`mtpdeploy history`: earlier ascents from the local journal.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mtpdeploy.cli import options, tables
from mtpdeploy.cli.documents import ascent_document, exit_status
from mtpdeploy.cli.heading import begun_at, exit_of
from mtpdeploy.cli.output import Answer
from mtpdeploy.cli.words import in_short
from mtpdeploy.core.units import duration

if TYPE_CHECKING:
    from mtpdeploy.core.outcome import Ascent
    from mtpdeploy.deploy.dossier import Dossier
    from mtpdeploy.deploy.journal import Past


@click.command("history")
@click.option("--on", "host", type=options.Text(), help="Only ascents on this host.")
@click.option("--server", type=options.Text(), help="Only ascents of this server.")
@click.option("-n", "--last", "count", type=options.Whole(1), default=20, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="One document on stdout.")
def command(host: str | None, server: str | None, count: int, *, as_json: bool) -> Answer | None:
    """
    Show the ascents of the local journal, newest first, every attempt with how it ended; those that go on,
    were interrupted or refused as well.
    """
    from mtpdeploy.deploy.journal import history, state_directory  # noqa: PLC0415 - only where it is shown

    unread: list[str] = []
    wanted = [
        past
        for past in history(state_directory(), unread.append, _unended)
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
        named = (past.ascent.id.rpartition("-")[2], past.ascent.host, past.ascent.asked.name)
        for moment, *rest in _rows(past):
            rows.append((moment, *named, *rest))
            named = ("", "", "")
    click.echo(
        tables.table(("started", "ascent", "host", "server", "attempt", "rung", "then", "after"), rows)
    )
    return None


def _rows(past: "Past") -> list[tuple[str, ...]]:
    """
    When each attempt was launched, its number, what it gave up, how it ended and after how long; and what
    ended the ascent, where that was no outcome.
    """
    first = past.ascent.purpose or "as asked"
    rows: list[tuple[str, ...]] = [
        (
            tables.when(outcome.started_at),
            str(outcome.attempt),
            outcome.rung or (first if outcome.attempt == 1 else "again"),
            in_short(outcome),
            duration(outcome.seconds),
        )
        for outcome in past.ascent.outcomes
    ]
    dossier = _dossier(past)
    if dossier is None:
        return rows
    for tried in dossier.tried:
        if tried.outcome is None:
            record = tried.record
            rung = (record.rung if record else None) or (first if tried.number == 1 else "again")
            moment = tables.when(record.started_at) if record else ""
            rows.append((moment, str(tried.number), rung, "no outcome yet", ""))
    if dossier.error is not None:
        error = dossier.error
        rows.append((tables.when(error.at), "", "", f"ended by an error: {error.error}", ""))
    return rows or [(tables.when(begun_at(dossier)), "", "", "nothing was launched", "")]


def _dossier(past: "Past") -> "Dossier | None":
    """
    All that the journal has of an ascent whose end does not stand in its record.
    """
    from mtpdeploy.deploy.dossier import read_dossier  # noqa: PLC0415 - only where it is needed
    from mtpdeploy.engines.sglang import SGLANG  # noqa: PLC0415

    ended = past.ascent.ready is not None or past.ascent.stopped_because
    return None if ended else read_dossier(past.folder, SGLANG)


def _unended(folder: Path) -> "Ascent | None":
    from mtpdeploy.deploy.dossier import read_dossier  # noqa: PLC0415 - only where it is needed
    from mtpdeploy.engines.sglang import SGLANG  # noqa: PLC0415

    dossier = read_dossier(folder, SGLANG)
    return dossier.ascent if dossier.tried or dossier.clients else None


def _document(past: "Past") -> dict[str, Any]:
    """
    An ascent as `--json` shows it; the status of one whose end is not in the journal is null.
    """
    dossier = _dossier(past)
    status = exit_status(past.ascent) if dossier is None else exit_of(dossier)
    error = dossier.error.error if dossier is not None and dossier.error is not None else None
    still = [tried.run for tried in dossier.tried if tried.outcome is None] if dossier else []
    told = {"folder": str(past.folder), "error": error, "without_outcome": still}
    return {**ascent_document(past.ascent, status), **told}
