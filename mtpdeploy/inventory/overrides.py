"""
What the command line and the environment say: claims that go before those of any file.
"""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from mtpdeploy.errors import ConfigError
from mtpdeploy.inventory import flags
from mtpdeploy.inventory.given import Given, check_variable, twice
from mtpdeploy.inventory.keys import INNER_VARIABLES, SERVER_KEYS, SET_PREFIX, VARIABLES
from mtpdeploy.inventory.origin import Claim, Claims, Kind, Origin, nearest, shown, wrong
from mtpdeploy.inventory.tables import known_flag, server_key_claims


class Overrides(Struct, frozen=True):
    """
    The options of one command line, as they were given; what is not given stays empty.

    `sets` are the texts of `--set`, each `key=value`.
    """

    sets: tuple[str, ...] = ()
    port: int | None = None
    gpus: tuple[int, ...] = ()
    ladder: str | None = None
    max_attempts: int | None = None


class Environment(Struct, frozen=True):
    """
    What the variables say: the server's keys, and the other settings by name.
    """

    server: Claims
    settings: dict[str, Claim[str]]


def option_claims(overrides: Overrides) -> Claims:
    """
    The claims of a command line on a server's keys.

    Raises:
        ConfigError: an unknown key, a wrong value, or one key given twice.
    """
    given = [_from_set(text) for text in overrides.sets]
    for key, value in (
        ("port", overrides.port),
        ("gpus", list(overrides.gpus) or None),
        ("ladder", overrides.ladder),
    ):
        if value is not None:
            given.append(Given(key, value, Origin(Kind.OPTION, "--gpu" if key == "gpus" else f"--{key}")))
    return _claims(given)


def read_environment(environ: Mapping[str, str]) -> Environment:
    """
    Read every variable that begins with `MTPDEPLOY_`; an empty one counts as not given.

    Raises:
        ConfigError: a name that means nothing, `MTPDEPLOY_SET_…` that names no flag, or a wrong value.
    """
    given: list[Given] = []
    settings: dict[str, Claim[str]] = {}
    for name in sorted(environ):
        text = environ[name]
        origin = Origin(Kind.VARIABLE, name)
        if not name.upper().startswith("MTPDEPLOY_") or name in INNER_VARIABLES or not text:
            continue
        if name.startswith(SET_PREFIX) and name.isupper():
            given.append(_from_text(name.removeprefix(SET_PREFIX).lower(), text, origin))
        elif name in SERVER_VARIABLES:
            given.append(_from_text(SERVER_VARIABLES[name], text, origin))
        elif name in VARIABLES:
            settings[name] = Claim(_clean(text, origin), origin)
        else:
            raise _unknown(name, origin)
    return Environment(_claims(given), settings)


def _unknown(name: str, origin: Origin) -> ConfigError:
    """
    The error for a variable that is meant for mtpdeploy, and means nothing to it.
    """
    upper = name.upper()
    names = [known.removeprefix("MTPDEPLOY_") for known in VARIABLES]
    near = nearest(upper.removeprefix("MTPDEPLOY_"), names)
    if upper.startswith(SET_PREFIX):
        key = upper.removeprefix(SET_PREFIX).lower()
        flag = key if key in SERVER_KEYS or flags.newest_name(key) else flags.nearest_name(key)
        near = f"SET_{flag.upper()}" if flag else None
    known = ", ".join(f"`{variable}`" for variable in (*VARIABLES, f"{SET_PREFIX}…"))
    return wrong(
        origin,
        "this variable means nothing to mtpdeploy",
        f"the nearest right name is `MTPDEPLOY_{shown(near)}`" if near else f"the variables are {known}",
    )


LONGEST_NUMBER = 9
"""Digits of a GPU index or a number of attempts at most: what 32 bits hold, far above any of either."""

SERVER_VARIABLES = {"MTPDEPLOY_PORT": "port", "MTPDEPLOY_GPU": "gpus", "MTPDEPLOY_LADDER": "ladder"}
"""Variables that stand for a key of the server's table."""


def max_attempts(overrides: Overrides, environment: Environment) -> Claim[int] | None:
    """
    How many attempts an ascent may make, where somebody says so.

    Raises:
        ConfigError: it is no whole number from 1.
    """
    origin = Origin(Kind.OPTION, "--max-attempts")
    value: int | None = overrides.max_attempts
    variable = environment.settings.get("MTPDEPLOY_MAX_ATTEMPTS")
    if value is None and variable is not None:
        origin = variable.origin
        number = _number(variable.value)
        value = number if isinstance(number, int) else 0
    if value is None:
        return None
    if value < 1:
        text = value if variable is None or origin.kind is Kind.OPTION else variable.value
        raise wrong(origin, f"`{shown(text)}` is no number of attempts", "give a whole number from 1")
    return Claim(value, origin)


def _claims(given: list[Given]) -> Claims:
    variables = [one for one in given if one.key.startswith("env.")]
    claims = server_key_claims(one for one in given if not one.key.startswith("env."))
    for one in variables:
        check_variable(Given(one.key.removeprefix("env."), one.value, one.origin))
        if one.key in claims:
            raise twice(Given(one.key, one.value, claims[one.key][0].origin), one, one.key)
        claims[one.key] = (Claim(one.value, one.origin),)
    return claims


def _from_set(text: str) -> Given:
    key, equals, value = text.partition("=")
    origin = Origin(Kind.OPTION, f"--set {key.strip()}")
    if not equals or not key.strip():
        raise wrong(
            Origin(Kind.OPTION, "--set"),
            f"`{shown(key)}` gives no value",
            "write `--set key=value`, for example `--set mem_fraction_static=0.85`",
        )
    return _from_text(key.strip().removeprefix("--"), value, origin)


def _from_text(key: str, text: str, origin: Origin) -> Given:
    _clean(text, origin)
    if key.startswith("env."):
        return Given(key, text, origin)
    if key == "env":
        raise wrong(origin, "`env` wants the name of a variable", "write `--set env.NAME=value`")
    if key in SERVER_KEYS:
        return Given(key, OWN_TEXTS[key](text), origin)
    known_flag(Given(key, text, origin))
    return Given(key, flags.from_text(key, text), origin)


def _clean(text: str, origin: Origin) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        text = "\0"
    if "\0" in text:
        raise wrong(origin, "the value is no UTF-8 text", "give it in UTF-8, without NUL")
    return text


def _names(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _numbers(text: str) -> list[Any]:
    return [_number(part) for part in _names(text)]


def _number(text: str) -> Any:  # noqa: ANN401 (what is no number is refused by the key's own check)
    text = text.strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) <= LONGEST_NUMBER else text


def _switch(text: str) -> Any:  # noqa: ANN401 (what is no switch is refused by the key's own check)
    return {"true": True, "1": True, "false": False, "0": False}.get(text.strip().lower(), text)


OWN_TEXTS: dict[str, Callable[[str], Any]] = {
    "secrets": _names,
    "ladder": str.strip,
    "allow_without_mtp": _switch,
    "gpus": _numbers,
}
"""How a text of the command line becomes a value of mtpdeploy's own keys; lists are given as `0,1`."""
