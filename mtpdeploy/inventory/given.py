"""
One key as somebody wrote it, and the errors that every table can have.
"""

from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from mtpdeploy.core.launch import LONGEST_WORD, READ_ONLY
from mtpdeploy.errors import ConfigError
from mtpdeploy.inventory.document import Document, dotted
from mtpdeploy.inventory.key_lines import KeyPath
from mtpdeploy.inventory.keys import DEMO, ENV_NAME, Key, is_name
from mtpdeploy.inventory.origin import Claim, Claims, Origin, in_toml, shown, wrong
from mtpdeploy.inventory.secrecy import is_secret


class Given(Struct, frozen=True):
    """
    One key as somebody wrote it. `table` is what errors call its table, "" on the command line.
    """

    key: str
    value: Any
    origin: Origin
    table: str = ""

    @property
    def named(self) -> str:
        """
        The key with its table, as errors name it.
        """
        return f"`{shown(self.key)}`" + (f" in `[{self.table}]`" if self.table else "")


def given_in(document: Document, path: KeyPath, table: dict[str, Any]) -> Iterable[Given]:
    """
    The keys of one table, in the order of the file.
    """
    name = dotted(path)
    return (Given(key, value, document.origin(*path, key), name) for key, value in table.items())


def own_key(given: Given, keys: dict[str, Key]) -> Key | None:
    """
    The key of mtpdeploy's own that is given, its value checked; None where it is no own key.

    Raises:
        ConfigError: the value is not what the key wants.
    """
    key = keys.get(given.key)
    if key is not None and not key.holds(given.value):
        raise wrong(
            given.origin,
            f"{given.named} is {in_toml(given.value)}, and wants {key.wants}",
            f"write `{key.example}`",
        )
    return key


def unknown(given: Given, near: str | None, otherwise: str) -> ConfigError:
    """
    The error for a key that does not exist, with the nearest right name.
    """
    what = f"`[{given.table}]` has no key `{shown(given.key)}`"
    if not given.table:
        what = f"a server has no key `{shown(given.key)}`"
    if isinstance(given.value, dict) and near != "env":
        kind, _, name = f"{given.table}.{given.key}".partition(".")
        return wrong(
            given.origin, what, f'a name with a dot in it stands in quotes: `[{kind}."{shown(name)}"]`'
        )
    return wrong(given.origin, what, f"the nearest right name is `{near}`" if near else otherwise)


def twice(first: Given, second: Given, name: str) -> ConfigError:
    """
    The error for one key given by two spellings, or by two options or variables.
    """
    if not first.table:
        return wrong(
            second.origin,
            f"`{shown(name)}` is given twice: also by {first.origin.place}",
            "keep one of the two",
        )
    return wrong(
        second.origin,
        f"`{shown(first.key)}` (line {first.origin.line}) and {second.named} are the same flag",
        f"keep one; its newest name is `{name}`",
    )


def check_name(origin: Origin, what: str, name: object) -> None:
    """
    Insist on a name that may stand in file names on the box.

    Raises:
        ConfigError: it may not, or it is taken by the built-in demo box.
    """
    if not is_name(name):
        raise wrong(
            origin,
            f"`{shown(name)}` is no name for a {what}",
            "use 1 to 64 letters, digits, `.`, `_` and `-`, the first a letter or digit",
        )
    if what == "host" and name == DEMO:
        raise wrong(origin, f"the host `{DEMO}` is built in", "give your host another name")


def env_claims(document: Document, path: KeyPath, table: dict[str, Any]) -> Claims:
    """
    What a table of variables says, as keys `env.NAME`.

    Raises:
        ConfigError: a name that no shell can export, a value that is no text, or a secret.
    """
    claims: Claims = {}
    for given in given_in(document, path, table):
        check_variable(given)
        claims[f"env.{given.key}"] = (Claim(given.value, given.origin),)
    return claims


def check_variable(given: Given) -> None:
    """
    Insist that a variable can be exported, and may be written down.

    Raises:
        ConfigError: it cannot, or may not. A secret's value is not repeated.
    """
    if not ENV_NAME.fullmatch(given.key):
        raise wrong(
            given.origin,
            f"{given.named} is no name of a variable",
            "use letters, digits and `_`, the first no digit",
        )
    refuse_read_only(given, given.key)
    if given.key.startswith("MTPDEPLOY_"):
        raise wrong(
            given.origin,
            f"{given.named}: variables that begin with `MTPDEPLOY_` are mtpdeploy's own",
            "give it another name, or set it where mtpdeploy itself is started",
        )
    if is_secret(given.key, given.value):
        raise wrong(
            given.origin,
            f"{given.named} is a secret, and a secret's value is not written down here",
            f'take it out and write `secrets = ["{given.key}"]` in the server\'s table: names only',
        )
    if not isinstance(given.value, str):
        scalar = isinstance(given.value, (bool, int, float))
        raise wrong(
            given.origin,
            f"{given.named} is {in_toml(given.value)}, and wants a text",
            f'write `{given.key} = "{in_toml(given.value)}"`' if scalar else f'write `{given.key} = "…"`',
        )
    if len(f"{given.key}={given.value}".encode(errors="replace")) > LONGEST_WORD:
        raise wrong(
            given.origin,
            f"{given.named} is too long for a variable: Linux takes {LONGEST_WORD} bytes, name and all",
            "put it into a file on the box and name the file",
        )
    if "\0" in given.value or not _encodes(given.value):
        raise wrong(
            given.origin,
            f"{given.named} holds a character that no variable can hold",
            "leave out NUL and bytes that are not UTF-8",
        )


def refuse_read_only(given: Given, name: str) -> None:
    """
    Insist on a variable that the shell lets be set.

    Raises:
        ConfigError: it is one of the shell's own.
    """
    if name in READ_ONLY:
        named = given.named if name == given.key else f"{given.named}: `{name}`"
        raise wrong(given.origin, f"{named} is the shell's own variable, and cannot be set", "take it out")


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
