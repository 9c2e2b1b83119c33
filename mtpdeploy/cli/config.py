"""
`mtpdeploy config explain`: every value with where it came from.
"""

from typing import Any

import click
from msgspec import to_builtins

from mtpdeploy.cli import options, tables
from mtpdeploy.cli.output import Answer


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
            str(row.value),
            str(row.origin),
            "; ".join(f"{claim.value} ({claim.origin})" for claim in row.overridden),
        )
        for row in told.rows
    ]
    click.echo(tables.table(("key", "value", "from", "overrides"), cells))
    return 0
