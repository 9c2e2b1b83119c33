"""
Options that several commands share.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click
from msgspec import Struct


class Text(click.types.StringParamType):
    """
    A text with something in it: an empty one is mostly a shell variable that is not set, and means nothing.
    """

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """
        The text as it is.
        """
        if not str(value).strip():
            self.fail("it is empty", param, ctx)
        return str(value)


class Whole(click.IntRange):
    """
    A whole number from `min` to `max`; another text is told in plain words.
    """

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """
        The number that a text means.
        """
        text = str(value).strip()
        plain = text.isascii() and text.removeprefix("-").isdigit() and len(text) <= LONGEST_NUMBER
        number = int(text) if plain else None
        if number is None or number < (self.min or 0) or (self.max is not None and number > self.max):
            most = "" if self.max is None else f" to {self.max}"
            self.fail(f"'{value}' is not a whole number from {self.min}{most}", param, ctx)
        return number


LONGEST_NUMBER = 9
"""Digits of a number at most: far above any index, port or count."""


def _gpus(context: click.Context, option: click.Parameter, given: Sequence[str]) -> tuple[int, ...]:
    """
    The indices of all `--gpu`, each of which may name several with commas between them.
    """
    whole = Whole(0)
    return tuple(whole.convert(part, option, context) for text in given for part in text.split(","))


F = TypeVar("F", bound=Callable[..., Any])


class Asked(Struct, frozen=True):
    """
    What the command line says about which server on which host, and how to change it.
    """

    server: str | None = None
    on: str | None = None
    config_file: str | None = None
    gpus: tuple[int, ...] = ()
    port: int | None = None
    settings: tuple[str, ...] = ()
    ladder: str | None = None
    max_attempts: int | None = None
    strict: bool = False


def config(function: F) -> F:
    """
    `--config FILE`.
    """
    return click.option(
        "--config",
        "config_file",
        type=Text(),
        metavar="FILE",
        help="hosts.toml to read instead of the one in the current directory.",
    )(function)


def host(function: F) -> F:
    """
    `--on HOST`, `--config FILE` and `--strict`.
    """
    function = click.option(
        "--on",
        type=Text(),
        metavar="HOST",
        help="A host of hosts.toml, a pasted ssh line, root@ip:port, ssh://…, an OpenSSH alias, or demo.",
    )(function)
    function = click.option("--strict", is_flag=True, help="Refuse a host key that was never seen before.")(
        function
    )
    return config(function)


def running(function: F) -> F:
    """
    SERVER among those that run on the box, with the options of `host`.
    """
    return host(click.argument("server", type=Text(), required=False)(function))


def server(function: F) -> F:
    """
    SERVER and everything that changes it, with the options of `host`.
    """
    function = click.option(
        "--gpu",
        "gpus",
        metavar="INDEX",
        multiple=True,
        callback=_gpus,
        help="GPU to use; repeatable, or several as 0,1.",
    )(function)
    function = click.option("--port", type=Whole(1, 65535), help="HTTP port on the box.")(function)
    function = click.option(
        "--set",
        "settings",
        metavar="KEY=VALUE",
        multiple=True,
        help="Any server field, by SGLang's own flag name; repeatable.",
    )(function)
    function = click.option("--ladder", type=Text(), metavar="NAME", help="Ladder to climb.")(function)
    return running(function)


def one_form(*, as_json: bool, json_events: bool) -> None:
    """
    Insist on one document, or on a line an event.

    Raises:
        UsageError: both are asked for.
    """
    if as_json and json_events:
        raise click.UsageError("`--json` and `--json-events` exclude each other")
