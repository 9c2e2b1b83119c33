"""
Every value with where it came from: what `mtpdeploy config explain` shows.
"""

from typing import Any

from msgspec import Struct

from mtpdeploy.inventory.document import dotted
from mtpdeploy.inventory.origin import Claim, Claims, Origin
from mtpdeploy.inventory.tables import REACH


class Row(Struct, frozen=True):
    """
    One key with the value that holds, its origin, and the claims that it overrides.
    """

    key: str
    value: Any
    origin: Origin
    overridden: tuple[Claim[Any], ...] = ()


class Explained(Struct, frozen=True):
    """
    The rows, and a limit of attempts where one is given.
    """

    rows: tuple[Row, ...]
    max_attempts: int | None = None


def rows_of(path: tuple[str, str], claims: Claims) -> list[Row]:
    """
    The rows of one server or host, in the order in which its keys were first given.
    """
    rows = []
    for key, (winner, *others) in claims.items():
        if key == REACH:
            way, text = winner.value
            rest = tuple(Claim(f"{o.value[0]} = {o.value[1]}", o.origin) for o in others)
            if way == "ssh" or rest:
                rows.append(Row(f"{dotted(path)}.{way}", text, winner.origin, rest))
        else:
            rows.append(Row(f"{dotted(path)}.{key}", winner.value, winner.origin, tuple(others)))
    return rows
