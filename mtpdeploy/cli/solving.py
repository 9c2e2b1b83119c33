"""
`mtpdeploy plan --solve`: from wishes to a configuration, in words and as data.
"""

import shlex
from collections.abc import Collection, Mapping
from typing import Any, Self

import click
from msgspec import Struct, to_builtins

from mtpdeploy.cli import budget, tables
from mtpdeploy.cli.output import Answer
from mtpdeploy.core.memory import Fit
from mtpdeploy.core.server import ServerSpec
from mtpdeploy.core.units import gib
from mtpdeploy.core.wish import Solution, Unsolved, Wish
from mtpdeploy.deploy.planner import Predict
from mtpdeploy.engines.sglang.sizing.solve import solve
from mtpdeploy.errors import SERVER_NOT_UP, ConfigError
from mtpdeploy.inventory.flags import newest_name

WISHES = ("requests", "context", "tokens")
"""What `--want` takes."""

LONGEST = 12
"""Digits of a wish at most."""


class UpCommand(Struct, frozen=True):
    """
    The `mtpdeploy up` of a server as it was asked for: its first words, and the settings given.
    """

    words: str
    settings: tuple[str, ...]

    @classmethod
    def of(cls, asked: Mapping[str, Any], *, offline: bool) -> Self:
        """
        From the options of `plan`; without a box it is left open which server and host are meant.
        """
        parts = ["mtpdeploy up", asked["server"] or ("SERVER" if offline else "")]
        on = asked["on"] or ("HOST" if offline else "")
        parts += [f"--on {shlex.quote(on)}" if on else ""]
        parts += [f"--config {shlex.quote(asked['config_file'])}" if asked.get("config_file") else ""]
        return cls(" ".join(filter(None, parts)), tuple(asked["settings"]))

    def with_settings(self, changed: Mapping[str, object], gone: Collection[str]) -> str:
        """
        The command with further settings in place of those given.
        """
        kept = [text for text in self.settings if _flag_of(text) not in {*changed, *gone}]
        texts = [*kept, *(f"{name}={_text(value)}" for name, value in changed.items())]
        return " ".join([self.words, *(f"--set {shlex.quote(text)}" for text in texts)])


def _flag_of(setting: str) -> str:
    key = setting.partition("=")[0]
    return newest_name(key) or key


def show_solution(
    server: ServerSpec, predict: Predict, want: tuple[str, ...], up: UpCommand, *, as_json: bool
) -> Answer | int:
    """
    Find the configuration that a wish needs and show it; its document, or the exit status.

    `up` brings up the server as asked.

    Raises:
        ConfigError: a wish that is none.
    """
    wish = read_wish(want)
    asked = predict(server)
    if asked is None:
        raise ConfigError("the box has none of the GPUs that are asked for", hint="`--gpu N` names others")
    found = solve(server, asked.version, predict, asked, wish)
    status = SERVER_NOT_UP if isinstance(found, Unsolved) else 0
    if as_json:
        return Answer(_document(wish, found), status)
    if isinstance(found, Unsolved):
        click.echo(f"asked: {asked.fit}: {asked.reason}\n")
        click.secho(f"nothing fits: no configuration gives {wish}: {found.because}", fg="red", bold=True)
    else:
        _show(server, wish, found, up)
    return status


def read_wish(want: tuple[str, ...]) -> Wish:
    """
    The wish that `--want` texts make up.

    Raises:
        ConfigError: a text that is no wish.
    """
    found: dict[str, int] = {}
    for text in (part for given in want for part in given.split(",")):
        name, _, value = text.partition("=")
        if name.strip() not in WISHES or not _counts(value.strip()):
            raise ConfigError(
                f"`--want {text}` is no wish",
                hint="write `requests=16`, `context=32768` or `tokens=300000`; a whole number from 1",
            )
        if name.strip() in found:
            raise ConfigError(f"`--want {name.strip()}` is given twice", hint="keep one of the two")
        found[name.strip()] = int(value)
    return Wish(**found)


def _counts(value: str) -> bool:
    return value.isascii() and value.isdigit() and len(value) <= LONGEST and int(value) >= 1


def _show(server: ServerSpec, wish: Wish, solution: Solution, up: UpCommand) -> None:
    click.echo(f"asked: {solution.asked.fit}: {solution.asked.reason}\n")
    rows = [(one.change, one.costs or "nothing") for one in solution.concessions]
    if rows:
        click.echo(tables.table(("change", "costs"), rows) + "\n")
    first, *rest = budget.verdict_lines(solution.forecast)
    colour = "green" if solution.forecast.fit is Fit.FITS else "yellow"
    click.secho(f"{wish}: {first}", fg=colour, bold=True)
    click.echo("\n".join([*rest, *_less(solution)]))
    click.echo("\n" + "\n".join(_commands(server, solution.server, up)))


def _less(solution: Solution) -> list[str]:
    """
    What the solution has less of than the asked configuration would have, where that would start.
    """
    asked, found = solution.asked, solution.forecast
    if asked.error is not None:
        return []
    told = []
    if found.kv_tokens < asked.kv_tokens:
        told.append(f"tokens {asked.kv_tokens:,} → {found.kv_tokens:,}")
    if found.graph_margin < asked.graph_margin:
        told.append(f"room to the graphs' cliff {gib(asked.graph_margin)} → {gib(found.graph_margin)}")
    return [f"less than asked would have: {', '.join(told)}"] if told else []


def _commands(asked: ServerSpec, solved: ServerSpec, up: UpCommand) -> list[str]:
    """
    What a user types to get the solution, and what has to go from hosts.toml because no option takes it out.
    """
    changed = {name: value for name, value in solved.flags.items() if asked.flags.get(name) != value}
    gone = {name: value for name, value in asked.flags.items() if name not in solved.flags}
    switches = {name: False for name, value in gone.items() if value is True}
    lines = [up.with_settings({**changed, **switches}, gone)]
    rest = [f"`{name}`" for name in gone if name not in switches]
    return [*lines, f"and take {', '.join(rest)} out of the server's table"] if rest else lines


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _document(wish: Wish, solution: Solution | Unsolved) -> dict[str, object]:
    if isinstance(solution, Unsolved):
        asked = budget.document(solution.asked)
        return {"wish": to_builtins(wish), "solution": None, "because": solution.because, "asked": asked}
    return {
        "wish": to_builtins(wish),
        "solution": {
            "flags": solution.server.flags,
            "concessions": to_builtins(solution.concessions),
            "forecast": budget.document(solution.forecast),
        },
        "asked": budget.document(solution.asked),
    }
