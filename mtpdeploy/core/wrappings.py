"""
What containers and services put before the lines of a log: found out from the log itself, and taken off.
"""

import re
from collections.abc import Sequence

_MOMENT = rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)"

WRAPPINGS: tuple[tuple[str, "re.Pattern[bytes]"], ...] = (
    ("kubernetes", re.compile(rb"^\[(?:pod/)?[\w.-]+(?:/[\w.-]+){0,2}\] ", re.MULTILINE)),
    ("docker compose", re.compile(rb"^[\w.-]+ +\| ?", re.MULTILINE)),
    ("container runtime", re.compile(rb"^" + _MOMENT + rb" (?:stdout|stderr) [FP] ", re.MULTILINE)),
    ("docker", re.compile(rb"^" + _MOMENT + rb" ", re.MULTILINE)),
    (
        "journal",
        re.compile(rb"^[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d [\w.-]+ [\w./-]+\[\d+\]: ", re.MULTILINE),
    ),
)
"""
As `kubectl logs --prefix`, `docker compose logs`, CRI log files, `docker logs -t` and journalctl put them.
"""

COLOURS = re.compile(rb"\x1b\[[0-9;]*[mK]")
"""Colours, and the erasing of a line."""

MOST = 0.5
"""Share of the lines that a prefix has to stand before: SGLang's own may begin with a bracket as well."""

RECORD = re.compile(rb"^\[20\d\d-\d\d-\d\d \d\d:\d\d:\d\d", re.MULTILINE)
"""How SGLang's own records begin."""


def find_wrappings(sample: bytes) -> tuple["re.Pattern[bytes]", ...]:
    """
    The prefixes before the lines of a log, outermost first, from a sample of its beginning.
    """
    found: list[re.Pattern[bytes]] = []
    while len(found) < len(WRAPPINGS):
        pattern = _outermost(sample)
        if pattern is None or pattern in found:
            break
        found.append(pattern)
        sample = pattern.sub(b"", sample)
    return tuple(found)


def _outermost(sample: bytes) -> "re.Pattern[bytes] | None":
    lines = [line for line in sample.split(b"\n") if line.strip()]
    if not lines:
        return None
    bare = sum(RECORD.match(line) is not None for line in lines)
    for _, pattern in WRAPPINGS:
        wrapped = sum(pattern.match(line) is not None for line in lines)
        if wrapped > max(bare, MOST * len(lines)):
            return pattern
    return None


def unwrap(data: bytes, wrappings: Sequence["re.Pattern[bytes]"]) -> bytes:
    """
    Whole lines without their prefixes and colours.
    """
    for pattern in wrappings:
        data = pattern.sub(b"", data)
    return COLOURS.sub(b"", data) if b"\x1b" in data else data
