"""
What was written by others: a box, a server on it, a file. Believed only as far as it can do no harm.
"""

import zlib
from typing import Any, TypeVar, overload

from msgspec import DecodeError, ValidationError, json

T = TypeVar("T")

LONGEST_NAME = 255
"""Bytes of a file's name at most (Linux: NAME_MAX)."""


class Foreign(ValueError):
    """
    What came is not what it should be; the message is fit for an error.
    """


@overload
def decoded(data: bytes | bytearray | str) -> Any: ...  # noqa: ANN401 - JSON is anything


@overload
def decoded(data: bytes | bytearray | str, kind: type[T]) -> T: ...


def decoded(data: bytes | bytearray | str, kind: Any = Any) -> Any:
    """
    The JSON document of a `kind`.

    Raises:
        Foreign: it is none, is of another kind, or is nested deeper than anything that we write.
    """
    try:
        return json.decode(data, type=kind)
    except (DecodeError, ValidationError, UnicodeError, OverflowError) as error:
        raise Foreign(str(error)) from error
    except RecursionError as error:
        raise Foreign("it is nested too deeply") from error


def unpacked(data: bytes, limit: int) -> bytes:
    """
    What zlib has packed, at most `limit` bytes of it.

    Raises:
        Foreign: it is damaged, or more than `limit`.
    """
    packed = zlib.decompressobj()
    try:
        plain = packed.decompress(data, limit)
    except zlib.error as error:
        raise Foreign(str(error)) from error
    if not packed.eof:
        raise Foreign("it is cut off" if not packed.unconsumed_tail else f"it is larger than {limit} bytes")
    return plain


def is_plain_name(name: str) -> bool:
    """
    Whether a name is one of a file in the folder at hand: no path, nothing hidden, nothing a terminal obeys.
    """
    return (
        bool(name)
        and not name.startswith(".")
        and "/" not in name
        and "\\" not in name
        and name.isprintable()
        and len(name.encode(errors="replace")) <= LONGEST_NAME
    )
