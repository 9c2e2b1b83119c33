"""
Where a value came from, and how an error says so.
"""

from collections.abc import Collection
from enum import StrEnum
from typing import Any, Generic, TypeVar

from msgspec import Struct

from mtpdeploy.errors import ConfigError
from mtpdeploy.inventory.secrecy import masked

LONGEST_SHOWN = 80
"""Characters of a user's text that an error repeats: a line of a terminal, so the rest stays readable."""


MOST_LISTED = 16
"""Names that an error lists: two or three lines of a terminal."""


class Kind(StrEnum):
    """
    The four places a value can come from, the one that wins first, and what holds without any.
    """

    OPTION = "option"
    VARIABLE = "variable"
    FILE = "file"
    BUILT_IN = "built in"


class Origin(Struct, frozen=True):
    """
    One place: an option of the command line, a variable, or a line of a file.
    """

    kind: Kind
    name: str = ""
    line: int | None = None

    def __str__(self) -> str:
        match self.kind:
            case Kind.FILE:
                return f"{self.name}:{self.line}" if self.line else self.name
            case Kind.BUILT_IN:
                return "built in"
            case _:
                return self.name

    @property
    def place(self) -> str:
        """
        As errors name it: `hosts.toml`, line 12.
        """
        if self.kind is Kind.FILE and self.line:
            return f"`{shown(self.name)}`, line {self.line}"
        return f"`{shown(self.name)}`"


BUILT_IN = Origin(Kind.BUILT_IN)

T = TypeVar("T")


class Claim(Struct, Generic[T], frozen=True):
    """
    A value that one place gives to a key. Of several claims on a key the first wins.
    """

    value: T
    origin: Origin


Claims = dict[str, tuple[Claim[Any], ...]]
"""Every key of one host or server with all claims on it, the winning one first."""


def over(upper: Claims, lower: Claims) -> Claims:
    """
    Both sets of claims, those of `upper` before those of `lower`.
    """
    return {key: upper.get(key, ()) + lower.get(key, ()) for key in {**upper, **lower}}


def wrong(origin: Origin, what: str, hint: str) -> ConfigError:
    """
    The one error for a thing that stands at `origin` and cannot be.
    """
    return ConfigError(f"{origin.place}: {what}", hint=hint)


def shown(value: object) -> str:
    """
    A user's text as an error repeats it: on one line, no control characters, not endless, no secret.
    """
    text = masked(value if isinstance(value, str) else repr(value))
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 1] + "…"


def in_toml(value: object) -> str:
    """
    A value as TOML would write it, for errors and explanations.
    """
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return '"' + shown(value.replace("\\", "\\\\").replace('"', '\\"')) + '"'
        case list() | tuple():
            return "[" + ", ".join(in_toml(item) for item in value) + "]"
        case _:
            return shown(value)


def nearest(name: str, names: list[str]) -> str | None:
    """
    The name that `name` was most likely meant to be, or None where nothing comes near.
    """
    from difflib import get_close_matches  # noqa: PLC0415 (only on the way to an error)

    found = get_close_matches(name, names, n=1, cutoff=0.6)
    return found[0] if found else None


def did_you_mean(name: str, names: list[str], otherwise: str) -> str:
    """
    A hint with the nearest right name, or with those there are.
    """
    near = nearest(name, names)
    if near is not None:
        return f"the nearest right name is `{near}`"
    return f"{otherwise}: {listed(names)}" if names else otherwise


def listed(names: Collection[str]) -> str:
    """
    Names as an error lists them: all, or the first few and how many more there are.
    """
    first = ", ".join(f"`{name}`" for name in list(names)[:MOST_LISTED])
    more = len(names) - MOST_LISTED
    return f"{first} and {more} more" if more > 0 else first
