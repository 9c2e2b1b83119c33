"""
`mtpdeploy plan`: what a server will make of a card, before it is launched.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mtpdeploy.cli import options
from mtpdeploy.cli.output import Answer
from mtpdeploy.errors import SERVER_NOT_UP, ConfigError

if TYPE_CHECKING:
    from mtpdeploy.cli.planning import Subject
    from mtpdeploy.core.memory import Forecast
    from mtpdeploy.core.server import ServerSpec
    from mtpdeploy.deploy.planner import Predict

NEWEST = "0.5.23"
"""SGLang's newest known release: what a plan without a box takes where no version is named."""


@click.command("plan")
@click.argument("server", required=False)
@options.host
@click.option("--set", "settings", metavar="KEY=VALUE", multiple=True, help="Any server field; repeatable.")
@click.option("--model", metavar="PATH", help="Without a box: a model's folder, or its config.json.")
@click.option("--weights-gib", type=float, help="The target's weights as SGLang prints them.")
@click.option("--draft-gib", type=float, help="The draft's weights as SGLang prints them at its load.")
@click.option(
    "--gpu", metavar="NAME", help="A card: rtx-pro-6000, h100, …; `list` shows them; on a box an index."
)
@click.option("--gpu-mib", type=int, help="A card by its memory, as nvidia-smi prints it.")
@click.option("--free-gib", type=float, help="What is free before the weights are loaded.")
@click.option("--sglang", metavar="VERSION", help=f"SGLang's version (without a box; {NEWEST} if not given).")
@click.option("--compare", metavar="KEY=A,B,C", help="Several values of one field side by side.")
@click.option("--solve", is_flag=True, help="Find the best configuration for what --want says.")
@click.option(
    "--want",
    metavar="WISH",
    multiple=True,
    help="requests=N, context=N or tokens=N; repeatable, with --solve.",
)
@click.option("--svg", metavar="FILE", help="Draw the bar into a file.")
@click.option("--json", "as_json", is_flag=True, help="One document on stdout.")
def command(
    *, compare: str | None, solve: bool, want: tuple[str, ...], svg: str | None, as_json: bool, **asked: Any
) -> Answer | int:
    """
    Say whether a server fits, how many requests and tokens it gets, and what would fail.

    With --on (or where hosts.toml has one host) on the box's own figures, else for --model on --gpu.
    """
    if want and not solve:
        raise ConfigError(f"`--want {want[0]}` is for `--solve`", hint="give `--solve` with it")
    shown = {"--compare": compare is not None, "--solve": solve, "--svg": svg is not None}
    both = [option for option, given in shown.items() if given]
    if len(both) > 1:
        raise ConfigError(f"`{both[0]}` and `{both[1]}` do not go together", hint="keep one of the two")
    if asked["gpu"] == "list":
        return _cards(as_json=as_json)
    offline, named = asked["model"] is not None, dict(asked)
    subject = _subject(asked, search=solve)
    if compare is not None:
        return _compare(subject, compare, as_json=as_json)
    if solve:
        from mtpdeploy.cli.solving import UpCommand, show_solution  # noqa: PLC0415 - only with --solve

        as_asked = UpCommand.of(named, offline=offline)
        return show_solution(subject.server, subject.predict, want, as_asked, as_json=as_json)
    from mtpdeploy.engines.sglang import SGLANG  # noqa: PLC0415 - imports of the work itself

    server, predict = subject.server, subject.predict
    forecast = SGLANG.with_fewer(server, _predicted(server, predict), predict)
    return _show(server, forecast, svg=svg, as_json=as_json)


def _cards(*, as_json: bool) -> Answer | int:
    """
    The cards that `--gpu` knows by name.
    """
    from msgspec import to_builtins  # noqa: PLC0415 - only to list cards

    from mtpdeploy.cli.tables import table  # noqa: PLC0415
    from mtpdeploy.core.cards import CARDS  # noqa: PLC0415

    if as_json:
        return Answer({"cards": to_builtins(CARDS)})
    rows = [(card.name, f"{card.total_mib:,}", card.capability) for card in CARDS]
    click.echo(table(("card", "MiB", "compute capability"), rows))
    return 0


def _subject(asked: dict[str, Any], *, search: bool) -> "Subject":
    """
    The server in question, and what it is planned for.
    """
    from mtpdeploy.cli.offline import Given  # noqa: PLC0415 - imports of the work itself

    given = Given(**{name: asked.pop(name) for name in Given.__struct_fields__ if name != "gpu"})
    gpu = asked.pop("gpu")
    if given.model is not None:
        if asked.get("on"):
            raise ConfigError(
                "`--model` is for a plan without a box, and `--on` names one",
                hint="keep one of the two; on a box `--set model_path=PATH` names another model",
            )
        from mtpdeploy.cli.planning import without_box  # noqa: PLC0415

        return without_box(options.Asked(**asked), Given(**{**_fields(given), "gpu": gpu}))
    alone = [name for name, value in _fields(given).items() if value is not None]
    if alone:
        option = "--" + alone[0].replace("_", "-")
        raise ConfigError(f"`{option}` is for a plan without a box", hint="give `--model PATH` with it")
    from mtpdeploy.cli.planning import on_box  # noqa: PLC0415

    indices = tuple(int(word) for word in gpu.split(",")) if gpu and gpu.replace(",", "").isdigit() else ()
    if gpu and not indices:
        raise ConfigError(
            f"`--gpu {gpu}`: a plan for a card needs `--model`", hint="or name a box's GPU by its index"
        )
    return on_box(options.Asked(gpus=indices, **asked), search=search)


def _fields(given: Any) -> dict[str, Any]:
    return {name: getattr(given, name) for name in given.__struct_fields__}


def _predicted(server: "ServerSpec", predict: "Predict") -> "Forecast":
    forecast = predict(server)
    if forecast is None:
        raise ConfigError("the box has none of the GPUs that are asked for", hint="`--gpu N` names others")
    return forecast


def _show(server: "ServerSpec", forecast: "Forecast", *, svg: str | None, as_json: bool) -> Answer | int:
    from mtpdeploy.cli import budget  # noqa: PLC0415 - only to show a plan

    if svg is not None:
        title = f"{server.name} on {forecast.total / 2**30:.1f} GiB, SGLang {forecast.version}"
        try:
            Path(svg).write_text(budget.svg(forecast, title), "utf-8")
        except OSError as error:
            raise ConfigError(
                f"`--svg {svg}`: {error.strerror}", hint="name a file that can be written"
            ) from None
    status = SERVER_NOT_UP if forecast.fit == "does not fit" else 0
    if as_json:
        return Answer(budget.document(forecast), status)
    for text, colour in budget.bar(forecast):
        click.secho(text, fg=colour, nl=False)
    click.echo("\n\n" + budget.budget_table(forecast) + "\n")
    colours = {"fits": "green", "close": "yellow"}
    first, *rest = budget.verdict_lines(forecast)
    click.secho(first, fg=colours.get(str(forecast.fit), "red"), bold=True)
    click.echo("\n".join(rest))
    return status


def _compare(subject: "Subject", compare: str, *, as_json: bool) -> Answer | int:
    from mtpdeploy.cli import budget  # noqa: PLC0415 - only to show a plan
    from mtpdeploy.cli.planning import with_setting  # noqa: PLC0415

    key, equals, values = compare.partition("=")
    if not equals or not key or not values:
        raise ConfigError(f"`--compare {compare}` gives no values", hint="write `--compare key=a,b,c`")
    servers = {value: with_setting(subject, key, value) for value in values.split(",")}
    forecasts = {value: _predicted(server, subject.predict) for value, server in servers.items()}
    status = SERVER_NOT_UP if all(f.fit == "does not fit" for f in forecasts.values()) else 0
    if as_json:
        document = {f"{key}={value}": budget.document(forecast) for value, forecast in forecasts.items()}
        return Answer(document, status)
    click.echo(f"{key}:\n\n{budget.compared(forecasts)}")
    return status
