"""
`mtpdeploy plan --solve`: from wishes to a configuration, in words and as data.
"""

import click
from msgspec import to_builtins

from mtpdeploy.cli import budget, tables
from mtpdeploy.cli.output import Answer
from mtpdeploy.core.memory import Fit
from mtpdeploy.core.server import ServerSpec
from mtpdeploy.core.wish import Solution, Wish
from mtpdeploy.deploy.planner import Predict
from mtpdeploy.engines.sglang.sizing.solve import solve
from mtpdeploy.errors import SERVER_NOT_UP, ConfigError

WISHES = ("requests", "context", "tokens")
"""What `--want` takes."""

LONGEST = 12
"""Digits of a wish at most."""


def show_solution(
    server: ServerSpec, predict: Predict, want: tuple[str, ...], *, as_json: bool
) -> Answer | int:
    """
    Find the configuration that a wish needs and show it; its document, or the exit status.

    Raises:
        ConfigError: a wish that is none.
    """
    wish = read_wish(want)
    asked = predict(server)
    if asked is None:
        raise ConfigError("the box has none of the GPUs that are asked for", hint="`--gpu N` names others")
    solution = solve(server, asked.version, predict, wish)
    status = SERVER_NOT_UP if solution is None else 0
    if as_json:
        return Answer(_document(wish, solution), status)
    _show(server, wish, solution)
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


def _show(server: ServerSpec, wish: Wish, solution: Solution | None) -> None:
    if solution is None:
        click.secho(f"nothing fits: no configuration gives {wish}", fg="red", bold=True)
        return
    click.echo(f"asked: {solution.asked.fit}: {solution.asked.reason}\n")
    rows = [(one.change, one.costs or "nothing") for one in solution.concessions]
    if rows:
        click.echo(tables.table(("change", "costs"), rows) + "\n")
    first, *rest = budget.verdict_lines(solution.forecast)
    colour = "green" if solution.forecast.fit is Fit.FITS else "yellow"
    click.secho(f"{wish}: {first}", fg=colour, bold=True)
    click.echo("\n".join(rest))
    click.echo("\n" + "\n".join(_commands(server, solution.server)))


def _commands(asked: ServerSpec, solved: ServerSpec) -> list[str]:
    """
    What a user types to get the solution, and what has to go from hosts.toml because no option takes it out.
    """
    changed = {name: value for name, value in solved.flags.items() if asked.flags.get(name) != value}
    gone = {name: value for name, value in asked.flags.items() if name not in solved.flags}
    switches = {name: False for name, value in gone.items() if value is True}
    settings = [f"--set {name}={_text(value)}" for name, value in {**changed, **switches}.items()]
    lines = [f"mtpdeploy up {' '.join(settings)}"] if settings else []
    rest = [f"`{name}`" for name in gone if name not in switches]
    return [*lines, f"and take {', '.join(rest)} out of the server's table"] if rest else lines


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _document(wish: Wish, solution: Solution | None) -> dict[str, object]:
    if solution is None:
        return {"wish": to_builtins(wish), "solution": None}
    return {
        "wish": to_builtins(wish),
        "solution": {
            "flags": solution.server.flags,
            "concessions": to_builtins(solution.concessions),
            "forecast": budget.document(solution.forecast),
        },
        "asked": budget.document(solution.asked),
    }
