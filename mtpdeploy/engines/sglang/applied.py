"""
What was asked for and is not what runs: the flags of a server against its own `/server_info`.
"""

from typing import Any

from msgspec import Struct

from mtpdeploy.core.server import ServerSpec
from mtpdeploy.engines.sglang.flag_table import field_name, find
from mtpdeploy.engines.sglang.versions import parse_version

BY_DESIGN = {("speculative_algorithm", "nextn", "eagle")}
"""
Flags that SGLang changes without changing what they mean: NEXTN is its other name for EAGLE with the model's
own layers (0.5.6-0.5.23, server_args.py).
"""

TOLD_ELSEWHERE = ("max_running_requests", "mem_fraction_static")
"""Flags of which the effective value is another figure, or that are rounded on the way."""


class Unapplied(Struct, frozen=True):
    """
    One flag that runs with another value. `runs` is None where the server knows nothing of it.
    """

    flag: str
    asked: Any
    runs: Any

    def __str__(self) -> str:
        return f"{self.flag} {_shown(self.asked)} asked for, {_shown(self.runs)} runs"


def unapplied(server: ServerSpec, info: dict[str, Any], version: str) -> tuple[Unapplied, ...]:
    """
    The flags whose value in `/server_info` is not the one asked for; those it does not tell are left out.
    """
    release = parse_version(version)
    found = []
    for name, asked in server.flags.items():
        flag = find(name)
        field = field_name(flag, release) if flag else name
        if name in TOLD_ELSEWHERE or field not in info:
            continue
        runs = info[field]
        if not _same(asked, runs) and (name, _plain(asked), _plain(runs)) not in BY_DESIGN:
            found.append(Unapplied(name, asked, runs))
    return tuple(found)


def _same(asked: Any, runs: Any) -> bool:  # noqa: ANN401 - JSON is anything
    if isinstance(asked, bool) or isinstance(runs, bool):
        return bool(asked) == bool(runs)
    if isinstance(asked, (int, float)) and isinstance(runs, (int, float)):
        return abs(asked - runs) <= 1e-6 * max(1.0, abs(asked))
    if isinstance(asked, list) or isinstance(runs, list):
        return _list(asked) == _list(runs)
    # A structured flag may come back as an object, a path as what a link leads to.
    return isinstance(runs, dict) or _plain(asked) == _plain(runs) or "/" in str(asked)


def _list(value: Any) -> list[str]:  # noqa: ANN401
    return [_plain(one) for one in value] if isinstance(value, list) else [_plain(value)]


def _plain(value: Any) -> str:  # noqa: ANN401
    return str(value).lower()


def _shown(value: Any) -> str:  # noqa: ANN401
    return "nothing" if value is None else str(value)
