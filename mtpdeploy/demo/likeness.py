"""
What a demo box is like, read from what stands behind `demo:`.
"""

import math
from dataclasses import replace
from typing import Any, get_args, get_type_hints

from msgspec import Struct, ValidationError, convert, structs

from mtpdeploy.demo.home import H100, PLACED, RTX_PRO_6000, STAGES, Hostile, stages_of
from mtpdeploy.demo.wire import Wire
from mtpdeploy.engines.sglang.flag_table import column_for
from mtpdeploy.engines.sglang.versions import NEWEST, Version, parse_version
from mtpdeploy.errors import ConfigError

CARDS = {"rtx-pro-6000": RTX_PRO_6000, "h100": H100}
"""The cards that the demo box can have."""

OLDEST = column_for(Version((0,)))[0]
"""The oldest SGLang that it can have; the newest is that of the table of flags."""

LARGEST_PORT = 65535

CHOICES = {
    "gpu": ("card", tuple(CARDS)),
    **{place: ("stage", stages_of(place)) for place in PLACED},
    "listener": ("listener", ("silent", "http")),
    "watchdog": ("watchdog", ("warmup", "serving")),
    "nvidia_smi": ("nvidia-smi", ("missing", "hangs", "no-gpu")),
}
"""The words that a key takes, and what they are."""

ABOVE_NOTHING = ("speed", "drop_every")
"""Numbers that are a divisor, or a time in which something has to happen."""

PORTS = ("listener_port", "stale_port")


class Likeness(Struct, frozen=True):
    """
    What a demo box is like: `demo:sglang=0.5.23,gpu=h100,hang_at=graphs`.
    """

    sglang: str = "0.5.9"
    gpu: str = "rtx-pro-6000"
    speed: float = 30.0
    hostile: Hostile = Hostile()
    wire: Wire = Wire()


LIKENESS = ("sglang", "gpu", "speed")
"""The keys of a likeness itself; all others are of `hostile` or of `wire`, which goes first."""


def read_likeness(address: str) -> Likeness:
    """
    Read what stands behind `demo:`.

    Raises:
        ConfigError: an unknown key or a value that cannot be; says what may be given.
    """
    likeness = Likeness()
    for part in filter(None, address.partition(":")[2].split(",")):
        key, _, text = part.partition("=")
        likeness = _with(likeness, key.strip(), text.strip())
    return likeness


def _with(likeness: Likeness, key: str, text: str) -> Likeness:
    wire, hostile = get_type_hints(Wire), get_type_hints(Hostile)
    if key in LIKENESS:
        value = _value(key, text, get_type_hints(Likeness)[key])
        return structs.replace(likeness, **{key: value})
    if key in wire:
        changed = structs.replace(likeness.wire, **{key: _value(key, text or "true", wire[key])})
        return structs.replace(likeness, wire=changed)
    if key in hostile:
        misbehaved = replace(likeness.hostile, **{key: _value(key, text or "true", hostile[key])})
        return structs.replace(likeness, hostile=misbehaved)
    known = ", ".join(sorted({*LIKENESS, *wire, *hostile}))
    raise ConfigError(f"the demo box knows no `{key}`", hint=f"it knows {known}")


def _value(key: str, text: str, kind: Any) -> Any:  # noqa: ANN401 - a field of any of the three
    """
    The value that a text means for a key.

    Raises:
        ConfigError: it means none.
    """
    if key in CHOICES:
        what, words = CHOICES[key]
        if text not in words:
            of = f" for `{key}`" if text in STAGES else ""
            raise ConfigError(f"the demo box has no {what} `{text}`{of}", hint="it has " + ", ".join(words))
        return text
    if key == "sglang":
        version = parse_version(text)
        if version is None or not OLDEST <= version <= NEWEST:
            raise ConfigError(f"the demo box has no SGLang `{text}`", hint=f"it has {OLDEST} to {NEWEST}")
        return text
    (plain,) = [one for one in get_args(kind) or (kind,) if one is not type(None)]
    try:
        value = convert(text, type=plain, strict=False)
    except ValidationError:
        value = None
    if value is None or not _holds(key, value):
        raise ConfigError(
            f"the demo box cannot have `{key}={text}`", hint=f"`{key}` wants {_wants(key, plain)}"
        )
    return value


def _wants(key: str, plain: type) -> str:
    if key in PORTS:
        return f"a port from 1 to {LARGEST_PORT}"
    if key == "drops_variable":
        return "the name of a variable"
    if key in ABOVE_NOTHING:
        return "a number above 0"
    return {bool: "true or false", int: "a whole number from 0", float: "a number from 0"}.get(
        plain, "a text"
    )


def _holds(key: str, value: object) -> bool:
    if key == "drops_variable":
        return str(value).isascii() and str(value).isidentifier()
    if isinstance(value, (bool, str)):
        return True
    if not isinstance(value, (int, float)) or not math.isfinite(value):
        return False
    if key in PORTS:
        return 1 <= value <= LARGEST_PORT
    return value > 0 if key in ABOVE_NOTHING else value >= 0
