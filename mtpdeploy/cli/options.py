"""
Options that several commands share.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import click
from msgspec import Struct

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
        metavar="FILE",
        help="hosts.toml to read instead of the one in the current directory.",
    )(function)


def host(function: F) -> F:
    """
    `--on HOST`, `--config FILE` and `--strict`.
    """
    function = click.option(
        "--on",
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
    return host(click.argument("server", required=False)(function))


def server(function: F) -> F:
    """
    SERVER and everything that changes it, with the options of `host`.
    """
    function = click.option("--gpu", "gpus", type=click.IntRange(0), multiple=True, help="GPU to use.")(
        function
    )
    function = click.option("--port", type=click.IntRange(1, 65535), help="HTTP port on the box.")(function)
    function = click.option(
        "--set",
        "settings",
        metavar="KEY=VALUE",
        multiple=True,
        help="Any server field, by SGLang's own flag name; repeatable.",
    )(function)
    function = click.option("--ladder", metavar="NAME", help="Ladder to climb.")(function)
    return running(function)


def one_form(*, as_json: bool, json_events: bool) -> None:
    """
    Insist on one document, or on a line an event.

    Raises:
        UsageError: both are asked for.
    """
    if as_json and json_events:
        raise click.UsageError("`--json` and `--json-events` exclude each other")
