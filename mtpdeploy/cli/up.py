"""
`mtpdeploy up`: the main job.
"""

from typing import TYPE_CHECKING, Any

import click

from mtpdeploy.cli import options

if TYPE_CHECKING:
    from mtpdeploy.cli.output import Answer


@click.command("up")
@options.server
@click.option("--max-attempts", type=options.Whole(1), help="Attempts of this ascent at most.")
@click.option("--dry-run", is_flag=True, help="Show script, ladder and what would be stopped; touch nothing.")
@click.option("--detach", is_flag=True, help="Launch the first attempt and leave; `attach` goes on.")
@click.option("--force", is_flag=True, help="Restart although the same configuration is already serving.")
@click.option("--keep-others", is_flag=True, help="Leave other sglang servers in the way alone.")
@click.option("--take", is_flag=True, help="End even a server that is working on requests.")
@click.option("--break-lock", is_flag=True, help="Take over from whoever is deploying there.")
@click.option(
    "--plan/--no-plan", default=True, help="Whether to pass over what the forecast says cannot fit."
)
@click.option("--no-early-end", is_flag=True, help="Wait for an attempt whose figures say that it must fail.")
@click.option("--allow-no-mtp", is_flag=True, help="Go on although the model has no tensors for the draft.")
@click.option("--json", "as_json", is_flag=True, help="One document on stdout at the end.")
@click.option("--json-events", is_flag=True, help="A line of JSON per event on stdout.")
@click.option("--no-log", is_flag=True, help="Do not show the server's log lines.")
def command(
    max_attempts: int | None,
    *,
    dry_run: bool,
    detach: bool,
    force: bool,
    keep_others: bool,
    take: bool,
    break_lock: bool,
    plan: bool,
    no_early_end: bool,
    allow_no_mtp: bool,
    as_json: bool,
    json_events: bool,
    no_log: bool,
    **asked: Any,
) -> "int | Answer":
    """
    Bring SERVER up on a box, climbing the ladder by cause until it is ready.

    With one server and one host in hosts.toml both names may be left out. Ctrl-C detaches: the server
    goes on, and `mtpdeploy attach` goes on with it.
    """
    options.one_form(as_json=as_json, json_events=json_events)
    if dry_run and json_events:
        raise click.UsageError("`--dry-run` has no events to tell: use `--json`")
    from mtpdeploy.cli import session  # noqa: PLC0415 - imports of the work itself
    from mtpdeploy.deploy.order import MAX_ATTEMPTS, Options  # noqa: PLC0415

    chosen = Options(
        max_attempts=max_attempts or MAX_ATTEMPTS,
        keep_others=keep_others,
        take=take,
        force=force,
        break_lock=break_lock,
        detach=detach,
        plan=plan,
        early_end=not no_early_end,
        allow_no_mtp=allow_no_mtp,
    )
    target = options.Asked(**asked, max_attempts=max_attempts)
    screen = session.Screens(as_json=as_json, json_events=json_events, show_log=not no_log)
    if dry_run:
        return session.dry_run(target, chosen, screen)
    return session.up(target, chosen, screen)
