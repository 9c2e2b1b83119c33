"""
`mtpdeploy verify --compare-without-mtp`: both restarts shown as they happen, then both measurements.
"""

import shlex
from typing import Any

import click
from msgspec import to_builtins

from mtpdeploy.cli import words
from mtpdeploy.cli.choose import host_from
from mtpdeploy.cli.documents import report_status
from mtpdeploy.cli.opening import open_tools
from mtpdeploy.cli.options import Asked
from mtpdeploy.cli.output import Answer
from mtpdeploy.cli.plain import Plain
from mtpdeploy.cli.proof_words import rate, verdict_of
from mtpdeploy.cli.tables import table
from mtpdeploy.core.proof import Pair, Speed
from mtpdeploy.deploy.compare import Comparer, Comparison, Phase
from mtpdeploy.errors import SERVER_NOT_UP, Interrupted

HEADINGS = (
    "at once",
    "without",
    "with MTP",
    "speed-up",
    "W without",
    "W with",
    "tokens/J without",
    "tokens/J with",
)


def compare(asked: Asked, *, take: bool, break_lock: bool, as_json: bool) -> int | Answer:
    """
    Compare, show it, and return the exit status, with the document where one is wanted.

    Raises:
        Interrupted: Ctrl-C; says what runs now.
    """
    host = host_from(asked)
    with open_tools(host, asked, Plain(show_log=False).show) as tools:
        comparer = Comparer(host, tools, server=asked.server, take=take, break_lock=break_lock)
        try:
            found = comparer.run()
        except KeyboardInterrupt:
            on = words.same_box(asked.on or host.name, asked.config_file)
            raise _interrupted(comparer.phase, comparer.server, on) from None
    status = exit_status(found)
    if as_json:
        return Answer(document(found, status), status)
    click.echo("\n".join(lines(found)))
    if found.problem:
        click.secho(f"error: {found.problem}", err=True, fg="red")
    return status


def exit_status(found: Comparison) -> int:
    """
    1 where there is nothing to compare, else what the report with speculation calls for.
    """
    if found.problem or found.speculating is None:
        return SERVER_NOT_UP
    return report_status(found.speculating)


def document(found: Comparison, status: int) -> dict[str, Any]:
    """
    A comparison for programs.
    """
    return {
        "server": found.server,
        "run": found.run,
        "compared": to_builtins(found.pairs),
        "problem": found.problem or None,
        "without": to_builtins(found.without) if found.without else None,
        "with": to_builtins(found.speculating) if found.speculating else None,
        "exit_status": status,
    }


def lines(found: Comparison) -> list[str]:
    """
    The reports, and both speeds side by side.
    """
    told = []
    for name, report in (("without speculation", found.without), ("with speculation", found.speculating)):
        if report is not None:
            told += [f"{name}:", *words.report_lines(report)]
    if not found.pairs:
        return told
    speculation = found.speculating.speculation if found.speculating else None
    verdict = verdict_of(speculation) if speculation else []
    return [*told, "", "tokens a second, decoding alone:", table(HEADINGS, map(_row, found.pairs)), *verdict]


def _row(pair: Pair) -> tuple[str, ...]:
    both = (pair.without, pair.speculating)
    return (
        str(pair.at_once),
        *(rate(speed.tokens_per_second) for speed in both),
        f"{pair.speed_up:.2f}",
        *map(_watts, both),
        *("-" if s.tokens_per_joule is None else f"{s.tokens_per_joule:.2f}" for s in both),
    )


def _watts(speed: Speed) -> str:
    known = speed.power is not None and speed.power.watts is not None
    return f"{speed.power.watts:,.0f}" if speed.power and known else "-"


def _interrupted(phase: Phase, server: str, on: str) -> Interrupted:
    """
    What Ctrl-C leaves; whatever was given on a command line, the box itself knows what to bring back.
    """
    if phase is Phase.BEFORE:
        return Interrupted(f"interrupted: {phase.value}")
    return Interrupted(
        f"interrupted: {phase.value}",
        hint=f"see what runs:          mtpdeploy status {on}\n"
        f"with speculation again: mtpdeploy attach {shlex.quote(server)} {on}",
    )
