"""
`mtpdeploy rungs`: what each rung concedes, and which causes it answers.
"""

import click

from mtpdeploy.cli import options, tables
from mtpdeploy.cli.output import Answer
from mtpdeploy.cli.words import cause_name


@click.command("rungs")
@options.config
@click.option(
    "--ladder", "name", type=options.Text(), default="default", show_default=True, help="Ladder to list."
)
@click.option("--json", "as_json", is_flag=True, help="One document on stdout.")
def command(config_file: str | None, name: str, *, as_json: bool) -> Answer | None:
    """
    List the rungs of a ladder, cheapest concession first.
    """
    from mtpdeploy.cli.choose import find_ladder  # noqa: PLC0415 - imports of the work itself
    from mtpdeploy.cli.documents import ladder_document  # noqa: PLC0415

    ladder = find_ladder(config_file, name)
    if as_json:
        return Answer(ladder_document(ladder))
    rows = [(r.name, r.gives_up, ", ".join(sorted(map(cause_name, r.causes)))) for r in ladder.rungs]
    click.echo(tables.table(("rung", "gives up", "answers"), rows))
    return None
