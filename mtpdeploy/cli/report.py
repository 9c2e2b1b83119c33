"""
`mtpdeploy report`: an ascent as one file for somebody who was not there.
"""

from typing import TYPE_CHECKING

import click

from mtpdeploy.cli import options

if TYPE_CHECKING:
    from mtpdeploy.cli.output import Answer


@click.command("report")
@click.argument("ascent", type=options.Text(), required=False)
@click.option("--on", "host", type=options.Text(), help="Only ascents on this host.")
@click.option(
    "-o", "--output", type=options.Text(), metavar="FILE", help="Where the page goes; `-` is standard output."
)
@click.option(
    "--bundle", type=options.Text(), metavar="FILE", help="A .tar.gz of the page, scripts, logs and records."
)
@click.option("--redact", is_flag=True, help="Replace addresses, machines, users and their paths.")
@click.option("--force", is_flag=True, help="Overwrite a file that is there.")
@click.option("--json", "as_json", is_flag=True, help="One document on stdout: what was written.")
def command(
    ascent: str | None,
    host: str | None,
    output: str | None,
    bundle: str | None,
    *,
    redact: bool,
    force: bool,
    as_json: bool,
) -> "int | Answer":
    """
    Write an ascent as one HTML file: every attempt with its configuration, stages, memory and verdict.

    ASCENT is its name or the last part of it, as `history` shows it; the beginning of either will do. Without
    it, or with `latest`, it is the newest. Values that look like secrets are left out, also without
    --redact; ports stay. With --bundle alone only the bundle is written. Prints the path.
    """
    if as_json and output == "-":
        raise click.UsageError("`--json` and `--output -` exclude each other")
    if bundle == "-":
        raise click.UsageError("`--bundle` needs the name of a file: a bundle is no text")
    from mtpdeploy.cli.reporting import Wanted, write_report  # noqa: PLC0415 - imports of the work itself

    wanted = Wanted(ascent, host, output, bundle, redact=redact, force=force)
    return write_report(wanted, as_json=as_json)
