"""
`mtpdeploy config explain`: every value with where it came from.
"""

import sys
from typing import Any

import click
from msgspec import to_builtins

from mtpdeploy.cli import options, tables
from mtpdeploy.cli.output import Answer

IN_A_PIPE = 400
"""Columns where nobody looks: no key is broken."""


@click.group("config")
def command() -> None:
    """
    Look at the configuration: hosts.toml, the environment, the command line.
    """


@command.command("explain")
@options.server
@click.option("--json", "as_json", is_flag=True, help="One document on stdout.")
def explain(*, as_json: bool, **asked: Any) -> int | Answer:
    """
    Print every value with where it came from, and what it overrides.

    Precedence: command line, environment (MTPDEPLOY_…), hosts.toml of the project, hosts.toml of the
    user's configuration directory, built in.
    """
    from mtpdeploy.cli.choose import explained  # noqa: PLC0415 - imports of the work itself

    told = explained(options.Asked(**asked))
    if as_json:
        rows = [
            {
                "key": row.key,
                "value": to_builtins(row.value),
                "from": str(row.origin),
                "overrides": [
                    {"value": to_builtins(claim.value), "from": str(claim.origin)} for claim in row.overridden
                ],
            }
            for row in told.rows
        ]
        return Answer({"values": rows})
    cells = [
        (
            row.key,
            _text(row.value),
            str(row.origin),
            "; ".join(f"{_text(claim.value)} ({claim.origin})" for claim in row.overridden),
        )
        for row in told.rows
    ]
    width = None if sys.stdout.isatty() else IN_A_PIPE
    click.echo(tables.table(("key", "value", "from", "overrides"), cells, width=width))
    return 0


def _text(value: Any) -> str:
    """
    A value as hosts.toml writes it, less the quotes.
    """
    if isinstance(value, bool):
        return str(value).lower()
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
