"""
Every flag of SGLang's server by version: how it is spelled, what it takes, and since when.

The table is flags.json beside this file, made from the released wheels 0.5.6 to 0.5.23 by
tests/flag_table/make_flags.py. A flag goes by the newest name of its field in `ServerArgs`
(`mamba_radix_cache_strategy`), whatever an older release calls it (`--mamba-scheduler-strategy`).
"""

import difflib
import functools
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from mtpdeploy.core.server import FlagValue
from mtpdeploy.engines.sglang.versions import Version, parse_version

Span = tuple[int, int]
"""First and last column of the table, both included; a column is a release."""

Kind = Literal["switch", "int", "size", "float", "str", "json"]
"""
What a flag takes: nothing, a whole number, one that may carry a suffix (8k, 2Mi), a number, text, JSON text.
"""

SHORTHANDS = {"tp": "tp_size", "dp": "dp_size", "speculative_algo": "speculative_algorithm"}
"""What people write: no option of any release, but argparse completes it in all of 0.5.6-0.5.23."""

SIZE_SUFFIXES = {
    "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12,
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40,
}  # fmt: skip
"""The suffixes of `human_readable_int` (SGLang 0.5.10-0.5.23, srt/utils/common.py)."""

_SIZE = re.compile(r"(\d+(?:\.\d+)?)(Ki|Mi|Gi|Ti|k|M|G|T)?")
_TRUE = {"true", "yes", "on", "1"}
_FALSE = {"false", "no", "off", "0"}


class Shape(Struct, frozen=True):
    """
    What a flag takes in some releases. `nargs` is argparse's: one value (""), an optional one, any number, at
    least one. `choices` is None where the parser takes anything of the kind.
    """

    span: Span
    kind: Kind
    nargs: Literal["", "?", "*", "+"] = ""
    choices: tuple[str | int, ...] | None = None


class Spelling(Struct, frozen=True):
    """
    One option string and where the parser takes it; `deprecated`: where it warns about it as well.
    """

    option: str
    spans: tuple[Span, ...]
    deprecated: tuple[Span, ...] = ()


class Field(Struct, frozen=True):
    """
    An older name of the flag's field in `ServerArgs`, as `/server_info` and the log's `server_args=` show it.
    """

    name: str
    spans: tuple[Span, ...]


class Flag(Struct, frozen=True):
    """
    One flag through all releases; `instead` is what SGLang has in its place once it is gone or deprecated.
    """

    name: str
    shapes: tuple[Shape, ...]
    spellings: tuple[Spelling, ...]
    negations: tuple[Spelling, ...] = ()
    fields: tuple[Field, ...] = ()
    instead: str = ""

    @property
    def kind(self) -> Kind:
        """
        What the flag takes in the newest release that has it.
        """
        return self.shapes[-1].kind

    @property
    def takes_many(self) -> bool:
        """
        Whether it takes a list of values in the newest release that has it.
        """
        return self.shapes[-1].nargs in {"*", "+"}


class _Default(Struct, frozen=True):
    span: Span
    value: bool | int | float | str


class _Variable(Struct, frozen=True):
    name: str
    spans: tuple[Span, ...]
    kind: str = ""
    defaults: tuple[_Default, ...] = ()


class _Table(Struct, frozen=True):
    versions: tuple[str, ...]
    flags: tuple[Flag, ...]
    variables: tuple[_Variable, ...]


def column_for(version: Version | None) -> tuple[Version, bool]:
    """
    The release of the table to go by, and whether it is exactly this one.

    That is the newest one not after it; the oldest for anything older, the newest for an unknown version.
    """
    columns = releases()
    if version is None:
        return columns[-1], False
    column = _column(version)
    return columns[column], columns[column] == version


def find(name: str) -> Flag | None:
    """
    The flag of that name, in any spelling of any release, with dashes or underscores, with `--` or without.
    """
    plain = _plain(name)
    return _index().get(SHORTHANDS.get(plain, plain))


def nearest(name: str) -> list[str]:
    """
    Names of up to three flags that look like this one, the nearest first; empty where none does.
    """
    near = difflib.get_close_matches(_plain(name), _index(), n=6, cutoff=0.7)
    return list(dict.fromkeys(_index()[spelling].name for spelling in near))[:3]


def spell(flag: Flag, version: Version | None) -> str | None:
    """
    The option string for this version, one it does not warn about if there is one; None if it knows none.
    """
    return _spelled(flag.spellings, version)


def negation(flag: Flag, version: Version | None) -> str | None:
    """
    The option string that turns the flag off (`--no-…`), or None where this version has none.
    """
    return _spelled(flag.negations, version)


def field_name(flag: Flag, version: Version | None) -> str:
    """
    The flag's name in `ServerArgs` of this version, as `/server_info` reports it.
    """
    column = _column(version)
    return next((field.name for field in flag.fields if _within(field.spans, column)), flag.name)


def known_since(flag: Flag) -> Version:
    """
    The first release of the table that takes the flag, under whatever name.
    """
    return releases()[flag.shapes[0].span[0]]


def known_until(flag: Flag) -> Version | None:
    """
    The last release that takes the flag, or None where the newest one does.
    """
    last = flag.shapes[-1].span[1]
    return None if last == len(releases()) - 1 else releases()[last]


def why_unknown(flag: Flag, version: Version | None) -> str:
    """
    One sentence on why this version does not take the flag: not yet, or no longer, and what it has instead.
    """
    column, _ = column_for(version)
    named = version or column
    last = known_until(flag)
    if last is None or column < known_since(flag):
        return f"{flag.name} came with SGLang {known_since(flag)}; this is {named}"
    instead = f"; use {flag.instead}" if flag.instead else ""
    return f"{flag.name} is gone since SGLang {_after(last)}; this is {named}{instead}"


def check_value(flag: Flag, value: FlagValue, version: Version | None = None) -> str | None:
    """
    None, or one sentence on what is wrong with a value for this version; without one, for every release.
    """
    column = _column(version)
    here = [shape for shape in flag.shapes if version is not None and _within([shape.span], column)]
    wrong = [_wrong(flag, shape, value) for shape in here or flag.shapes]
    return None if None in wrong else wrong[-1]


def parse_text(flag: Flag, text: str) -> FlagValue:
    """
    The value that the text of `--set key=value` means for this flag; a list is written `1,2,4` or as JSON.

    Raises ValueError with one sentence where no release takes it.
    """
    value = _many_from(flag, text) if flag.takes_many else _one_from(flag.kind, text)
    wrong = check_value(flag, value)
    if wrong is not None:
        raise ValueError(wrong)
    return value


def env_known(name: str, version: Version | None) -> bool | None:
    """
    Whether this version reads the variable; None for a name that no release of SGLang reads.

    A name with the old prefix `SGL_` is read wherever its `SGLANG_` twin is (0.5.6-0.5.23, srt/environ.py).
    """
    column = _column(version)
    twins = [name, f"SGLANG_{name.removeprefix('SGL_')}"] if name.startswith("SGL_") else [name]
    known = [_variables()[twin] for twin in twins if twin in _variables()]
    return any(_within(variable.spans, column) for variable in known) if known else None


def env_default(name: str, version: Version | None) -> bool | int | float | str | None:
    """
    The variable's default in this version, or None where it is unset, computed or not in SGLang's registry.
    """
    variable = _variables().get(name)
    spans = variable.defaults if variable else ()
    column = _column(version)
    return next((default.value for default in spans if _within([default.span], column)), None)


def _plain(name: str) -> str:
    return name.strip().lstrip("-").replace("-", "_")


def _spelled(spellings: tuple[Spelling, ...], version: Version | None) -> str | None:
    column = _column(version)
    accepted = [spelling for spelling in spellings if _within(spelling.spans, column)]
    accepted.sort(key=lambda spelling: _within(spelling.deprecated, column))
    return accepted[0].option if accepted else None


def _wrong(flag: Flag, shape: Shape, value: FlagValue) -> str | None:
    many = shape.nargs in {"*", "+"}
    if shape.nargs == "+" and value == []:
        return f"{flag.name} takes at least one value"
    if shape.nargs == "?" and value is True:
        return None
    values = value if many and isinstance(value, list) else [value]
    return next((wrong for one in values if (wrong := _wrong_one(flag, shape, one))), None)


def _wrong_one(flag: Flag, shape: Shape, value: object) -> str | None:
    wanted, fits = _TAKES[shape.kind]
    if not fits(value):
        return f"{flag.name} takes {wanted}, not {value!r}"
    if shape.choices is None or value in shape.choices:
        return None
    release = releases()[shape.span[1]]
    return f"{flag.name} takes one of {', '.join(map(str, shape.choices))} (SGLang {release}), not {value!r}"


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _json(value: object) -> bool:
    try:
        msgspec.json.decode(value if isinstance(value, str) else msgspec.json.encode(value))
    except (msgspec.DecodeError, TypeError):
        return False
    return isinstance(value, (str, list, dict))


_TAKES: dict[Kind, tuple[str, Callable[[object], bool]]] = {
    "switch": ("true or false", lambda value: isinstance(value, bool)),
    "int": ("a whole number", _whole),
    "size": (
        "a whole number or text such as 8k or 2Mi",
        lambda value: _whole(value) or _size_of(value) is not None,
    ),
    "float": ("a number", lambda value: isinstance(value, float) or _whole(value)),
    "str": ("text", lambda value: isinstance(value, str)),
    "json": ("JSON text", _json),
}


def _one_from(kind: Kind, text: str) -> FlagValue:
    """
    The text as a value of that kind; as it is where it is none, so that the check can say so.
    """
    if kind == "switch" and text.lower() in _TRUE | _FALSE:
        return text.lower() in _TRUE
    if kind == "size":
        size = _size_of(text)
        return text if size is None else size
    if kind in {"int", "float"}:
        try:
            return int(text) if kind == "int" else float(text)
        except ValueError:
            return text
    return text


def _many_from(flag: Flag, text: str) -> FlagValue:
    if text.startswith("["):
        try:
            return msgspec.json.decode(text, type=list)
        except msgspec.DecodeError as wrong:
            raise ValueError(f"{flag.name} takes a list; {text!r} is not JSON: {wrong}") from None
    parts = [text] if text.startswith("{") else text.replace(",", " ").split()
    return [_one_from(flag.kind, part) for part in parts]


def _size_of(text: object) -> int | None:
    match = _SIZE.fullmatch(text) if isinstance(text, str) else None
    if match is None or ("." in match[1] and match[2] not in {"k", "M", "G", "T"}):
        return None
    size = float(match[1]) * SIZE_SUFFIXES[match[2]] if match[2] else int(match[1])
    return int(size) if size == int(size) else None


def _within(spans: Iterable[Span], column: int) -> bool:
    return any(first <= column <= last for first, last in spans)


def _after(version: Version) -> Version:
    return releases()[releases().index(version) + 1]


def _column(version: Version | None) -> int:
    columns = releases()
    if version is None:
        return len(columns) - 1
    return max(sum(column <= version for column in columns) - 1, 0)


@functools.cache
def _table() -> _Table:
    return msgspec.json.decode(Path(__file__).with_name("flags.json").read_bytes(), type=_Table)


@functools.cache
def releases() -> tuple[Version, ...]:
    """
    The releases that the table knows, the oldest first.
    """
    return tuple(version for text in _table().versions if (version := parse_version(text)))


@functools.cache
def _index() -> dict[str, Flag]:
    spelled = {_plain(s.option): flag for flag in _table().flags for s in flag.spellings}
    fields = {field.name: flag for flag in _table().flags for field in flag.fields}
    return spelled | fields | {flag.name: flag for flag in _table().flags}


@functools.cache
def _variables() -> dict[str, _Variable]:
    return {variable.name: variable for variable in _table().variables}
