"""
What containers and services put before the lines of a log: found out from the log itself, and taken off.
"""

import json
import re
from collections.abc import Callable, Sequence

from msgspec import Struct

_MOMENT = rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)"
_UNIT = rb"[\w.-]+ [\w./@-]+\[\d+\]: "

TEXTS = ("log", "MESSAGE", "message", "msg", "textPayload", "line")
"""Under which key a line stands in JSON: docker's json-file driver, journalctl -o json, log collectors."""


def _from_json(data: bytes) -> bytes:
    return b"\n".join(_text_of(line) for line in data.split(b"\n"))


def _text_of(line: bytes) -> bytes:
    if not line.startswith(b"{"):
        return line
    try:
        record = json.loads(line)
    except ValueError:
        return line
    found = next((record[key] for key in TEXTS if isinstance(record.get(key), str)), None)
    # One record stays one line, so that its number is that of the file.
    return line if found is None else found.removesuffix("\n").replace("\n", " ").encode()


def _from_dynamo(data: bytes) -> bytes:
    """
    NVIDIA Dynamo writes its own moment and place in place of SGLang's stamp, which is put back.
    """
    return _DYNAMO.sub(rb"[\1 \2] ", data)


_DYNAMO = re.compile(rb"^(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(?:\.\d+)?Z +[A-Z]+ [\w.]+: ", re.MULTILINE)


class Wrapping(Struct, frozen=True):
    """
    What stands before lines: how such a line begins, and, where that is more than a prefix, how to undo it.
    """

    name: str
    beginning: "re.Pattern[bytes]"
    undo: Callable[[bytes], bytes] | None = None

    def take_off(self, data: bytes) -> bytes:
        """
        Whole lines without it.
        """
        return self.beginning.sub(b"", data) if self.undo is None else self.undo(data)


def _prefix(name: str, pattern: bytes) -> Wrapping:
    return Wrapping(name, re.compile(b"^(?:" + pattern + b")", re.MULTILINE))


WRAPPINGS: tuple[Wrapping, ...] = (
    Wrapping(
        "json",
        re.compile(rb'^\{.{0,4000}"(?:' + "|".join(TEXTS).encode() + rb')" ?: ?"', re.MULTILINE),
        _from_json,
    ),
    _prefix("kubernetes", rb"\[(?:pod/)?[\w.-]+(?:/[\w.-]+){0,2}\] "),
    _prefix("docker compose", rb"[\w.-]+ +\| ?"),
    _prefix("container runtime", _MOMENT + rb" (?:stdout|stderr) [FP] "),
    _prefix("journal", _MOMENT + b" " + _UNIT),
    _prefix("journal", rb"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)? " + _UNIT),
    _prefix("journal", rb"[A-Z][a-z]{2} \d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)? \w+ " + _UNIT),
    Wrapping("dynamo", re.compile(rb"^" + _MOMENT + rb" +[A-Z]+ [\w.]+: ", re.MULTILINE), _from_dynamo),
    _prefix("docker", _MOMENT + rb" "),
    _prefix("collector", rb"\[" + _MOMENT + rb"\] "),
    _prefix("collector", rb"\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} "),
    _prefix("logging", rb"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[,.]\d+(?:[+-]\d\d:\d\d)? - \S+ - [A-Z]+ - "),
    _prefix("loguru", rb"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)? \| [A-Z]+ +\| [^|\n]{1,80} \| "),
    _prefix("ray", rb"\(\w+ pid=\d+(?:, ip=[\w.:]+)?\) "),
    _prefix("torchrun", rb"\[default\d+\]:"),
    _prefix("mpirun", rb"\[\d+,\d+\]<std(?:out|err)>:"),
    _prefix("slurm", rb" *\d+: "),
)
"""
As these put them: docker's json-file driver and journalctl -o json, `kubectl logs --prefix`, `docker compose
logs`, CRI log files, journalctl (short-iso, short, full), NVIDIA Dynamo, `docker logs -t`, build servers,
Python's logging and loguru around a child's output, Ray's driver (worker output), `torchrun --tee`, `mpirun
--tag-output`, `srun --label`.
"""

COLOURS = re.compile(rb"\x1b\[[0-9;]*[mK]")
"""Colours, and the erasing of a line."""

MOST = 0.5
"""Share of the lines that a prefix has to stand before: SGLang's own may begin with a bracket as well."""

RECORD = re.compile(rb"^\[20\d\d-\d\d-\d\d \d\d:\d\d:\d\d", re.MULTILINE)
"""How SGLang's own records begin."""


def find_wrappings(sample: bytes) -> tuple[Wrapping, ...]:
    """
    The prefixes before the lines of a log, outermost first, from a sample of its beginning.
    """
    found: list[Wrapping] = []
    sample = _bleached(sample)
    while len(found) < len(WRAPPINGS):
        wrapping = _outermost(sample)
        if wrapping is None or wrapping in found:
            break
        found.append(wrapping)
        sample = _bleached(wrapping.take_off(sample))
    return tuple(found)


def _outermost(sample: bytes) -> Wrapping | None:
    lines = [line for line in sample.split(b"\n") if line.strip()]
    if not lines:
        return None
    bare = sum(RECORD.match(line) is not None for line in lines)
    for wrapping in WRAPPINGS:
        wrapped = sum(wrapping.beginning.match(line) is not None for line in lines)
        if wrapped > max(bare, MOST * len(lines)):
            return wrapping
    return None


def unwrap(data: bytes, wrappings: Sequence[Wrapping]) -> bytes:
    """
    Whole lines without their prefixes and colours.
    """
    data = _bleached(data)
    for wrapping in wrappings:
        data = _bleached(wrapping.take_off(data))
    return data


def _bleached(data: bytes) -> bytes:
    return COLOURS.sub(b"", data) if b"\x1b" in data else data
