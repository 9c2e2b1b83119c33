"""
Flags of SGLang as hosts.toml, the command line and variables give them.

Which version will take them is not known here, so a value is right if any version that the table knows takes
it; the command for the version on the box is checked when it is built.
"""

import math
from collections.abc import Iterator

from msgspec import json, structs

from mtpdeploy.core.server import FlagValue
from mtpdeploy.engines.sglang import flag_table
from mtpdeploy.engines.sglang.flag_table import Flag
from mtpdeploy.engines.sglang.limits import FIXED, RANGES
from mtpdeploy.inventory.keys import LARGEST_PORT, is_port
from mtpdeploy.inventory.origin import LONGEST_SHOWN, in_toml, nearest, shown

LARGEST_INT = (1 << 63) - 1
"""The largest whole number of 64 bits: what attempt.json, read by msgspec, and SGLang's readers hold."""

FEW = 8
"""So many values of a flag still fit into the sentence that refuses another one."""

EXAMPLES = {
    "switch": "true",
    "int": "8",
    "size": "8192",
    "float": "0.8",
    "str": '"text"',
    "json": "'{\"a\": 1}'",
}
"""A value of each kind as TOML writes it."""


def newest_name(key: str) -> str | None:
    """
    The newest name of a flag in whatever spelling it has had, or None for no flag.
    """
    flag = flag_table.find(key)
    return flag.name if flag else None


def nearest_name(key: str) -> str | None:
    """
    The flag that `key` was most likely meant to be, or None where nothing comes near.
    """
    return next(iter(flag_table.nearest(key)), None)


def complaint(key: str, value: object) -> tuple[str, str] | None:
    """
    Why a flag, spelled as `key`, cannot have a value, and what to write; None where it can.
    """
    flag = _flag(key)
    if flag.name == "port" and not is_port(value):
        return f"wants a whole number from 1 to {LARGEST_PORT}, not {in_toml(value)}", "write `port = 30000`"
    if isinstance(value, dict):
        text = _as_json(value)
        return "wants no table", f"write it as JSON in single quotes: `{key} = '{text}'`"
    if not _is_writable(value):
        return f"cannot be {shown(str(value))}", f"write a value as in `{key} = {EXAMPLES[flag.kind]}`"
    reasons = [flag_table.check_value(era, value) for era in _eras(flag)]  # type: ignore[arg-type]
    if None in reasons:
        return _out_of_range(flag, key, value)
    reason = str(reasons[0]).removeprefix(f"{flag.name} takes ")
    choices = flag.shapes[-1].choices or ()
    if len(choices) > FEW and isinstance(value, type(choices[0])):
        reason = f"one of {len(choices)} values, not {in_toml(value)}"
    elif len(repr(value)) > LONGEST_SHOWN:
        reason = reason.replace(repr(value), shown(repr(value)))
    return f"wants {reason}", _advice(flag, key, value)


def is_fixed(key: str) -> bool:
    """
    Whether a flag, in whatever spelling, says what is served and where, which no concession changes.
    """
    return newest_name(key) in FIXED


def _out_of_range(flag: Flag, key: str, value: object) -> tuple[str, str] | None:
    """
    As `complaint`, for a value of the right kind.
    """
    allowed = RANGES.get(flag.name)
    numbers = [
        one for one in (value if isinstance(value, list) else [value]) if isinstance(one, (int, float))
    ]
    if allowed is None or all(map(allowed.holds, numbers)):
        return None
    what = "a number" if flag.kind == "float" else "a whole number"
    wants = f"numbers {allowed}" if isinstance(value, list) else f"{what} {allowed}"
    return f"wants {wants}, not {in_toml(value)}", f"write a value as in `{key} = {EXAMPLES[flag.kind]}`"


def from_text(key: str, text: str) -> FlagValue:
    """
    The value that a text of the command line or of a variable means for a flag.

    A text that no version takes is given back as it is: `complaint` then says why.
    """
    for era in _eras(_flag(key)):
        try:
            return flag_table.parse_text(era, text)
        except ValueError:
            continue
    return text


def _eras(flag: Flag) -> Iterator[Flag]:
    """
    The flag as each era of versions takes it, the newest first.
    """
    return (structs.replace(flag, shapes=(shape,)) for shape in reversed(flag.shapes))


def _flag(key: str) -> Flag:
    flag = flag_table.find(key)
    if flag is None:
        raise LookupError(key)
    return flag


def _advice(flag: Flag, key: str, value: object) -> str:
    choices = [str(choice) for shape in flag.shapes for choice in shape.choices or ()]
    near = nearest(str(value), choices)
    if near is not None and near != value:
        return f"the nearest right value is `{near}`"
    if isinstance(value, str) and from_text(key, value) != value:
        return f"write it without quotes: `{key} = {in_toml(from_text(key, value))}`"
    if flag.kind == "str" and isinstance(value, (int, float)) and not choices:
        return f'write it in quotes: `{key} = "{in_toml(value)}"`'
    if choices and len(choices) > FEW:
        return "the values are " + ", ".join(f"`{choice}`" for choice in dict.fromkeys(choices))
    example = in_toml(choices[-1]) if choices else EXAMPLES[flag.kind]
    return f"write a value as in `{key} = {example}`"


def _is_writable(value: object) -> bool:
    """
    Whether a value survives the way to the box: finite, of 64 bits, UTF-8 without NUL.
    """
    match value:
        case float():
            return math.isfinite(value)
        case int():
            return abs(value) <= LARGEST_INT
        case str():
            return "\0" not in value and value == value.encode(errors="replace").decode()
        case list():
            return all(_is_writable(item) for item in value)
        case _:
            return False


def _as_json(value: object) -> str:
    try:
        return json.encode(value).decode()
    except (TypeError, ValueError, OverflowError):
        return "{…}"
