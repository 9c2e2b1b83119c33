"""
One hosts.toml as read from disk: its tables, and on which line each key stands.
"""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from mtpdeploy.errors import ConfigError
from mtpdeploy.inventory.key_lines import KeyPath, key_lines
from mtpdeploy.inventory.origin import Kind, Origin, shown
from mtpdeploy.inventory.secrecy import without_secret

LARGEST = 16 * 1024 * 1024
"""Bytes read of a file at most. Our own limit, so that a wrong path (a log, a device) cannot fill memory;
20,000 hosts with every key take a third of it."""

BYTE_ORDER_MARK = b"\xef\xbb\xbf"

AT = re.compile(r" \((?:at line (?P<line>\d+), column (?P<column>\d+)|at end of document)\)$")
"""How tomllib ends its messages (CPython 3.11-3.14, Lib/tomllib/_parser.py)."""

TOO_LONG = re.compile(r"[0-9_]{4301,}")
"""The one thing that tomllib refuses without a place: a number above Python's limit of digits (3.11-3.14)."""

ADVICE = {
    "Invalid value": "text stands in double quotes, and switches are `true` or `false` in small letters",
    "Unterminated string": "close the text with the same quotes that open it",
    "Illegal character": "close the text with the same quotes, on the same line",
    "Unclosed array": "close the list with `]`",
    "Expected newline or end": "write one `key = value` a line; text and dates stand in double quotes",
    "Expected '='": "write `key = value`; a table's name stands in brackets: `[hosts.NAME]`",
    "Expected ']'": "close the table's name with `]`, or `]]` where it began with `[[`",
    "Unescaped": "write a backslash twice, or use single quotes",
    "Cannot mutate immutable": "a table written as `{ … }` is complete: put the key between its braces",
    "Cannot declare": "a table stands once: put its keys together, or give the second another name",
}


class Document(Struct, frozen=True):
    """
    A file that tomllib accepts.

    `name` is what errors call it; `lines` the first and last line of each header and key, and for a table
    without a header those of the first thing in it.
    """

    path: Path
    name: str
    tables: dict[str, Any]
    lines: Mapping[KeyPath, tuple[int, int]]

    def origin(self, *path: str | int) -> Origin:
        """
        Where a key stands; for one inside `{ … }` the line of the key it belongs to.
        """
        while path and path not in self.lines:
            path = path[:-1]
        return Origin(Kind.FILE, self.name, self.lines[path][0] if path else None)


def read(path: Path, name: str) -> Document:
    """
    Read one file.

    Raises:
        ConfigError: the file is absent, unreadable, not UTF-8 or not TOML; names line, column and what
            was read there.
    """
    return parse(_text(_bytes(path, name), name), path, name)


def parse(text: str, path: Path, name: str) -> Document:
    """
    Make a document of a text.

    Raises:
        ConfigError: the text is not TOML.
    """
    text = text.replace("\r\n", "\n")
    try:
        tables = tomllib.loads(text)
    except RecursionError as error:
        raise ConfigError(
            f"`{shown(name)}`: brackets are nested too deeply to be read",
            hint="no key of hosts.toml needs more than an array of texts; look for a run of `[`",
        ) from error
    except ValueError as error:
        raise _not_toml(text, name, str(error)) from error
    lines: dict[KeyPath, tuple[int, int]] = {}
    for key, line, last in key_lines(text):
        for length in range(1, len(key) + 1):
            lines.setdefault(key[:length], (line, last))
    return Document(path=path, name=name, tables=tables, lines=lines)


def _bytes(path: Path, name: str) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
    except FileNotFoundError as error:
        raise ConfigError(
            f"there is no file `{shown(name)}`",
            hint="check `--config` or MTPDEPLOY_CONFIG, or leave both out to read ./hosts.toml",
        ) from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ConfigError(
            f"`{shown(name)}` cannot be read: {reason}",
            hint="give the path of a file that you may read (`ls -l` shows whose it is)",
        ) from error
    if len(content) > LARGEST:
        raise ConfigError(
            f"`{shown(name)}` is larger than {LARGEST // 1024 // 1024} MiB and is no hosts.toml",
            hint="give the path of a hosts.toml",
        )
    return content


def _text(content: bytes, name: str) -> str:
    content = content.removeprefix(BYTE_ORDER_MARK)
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        bad = " ".join(f"{b:02x}" for b in content[error.start : error.end])
        raise ConfigError(
            f"`{shown(name)}`, line {line}: not UTF-8 (byte {bad} at offset {error.start})",
            hint="save the file as UTF-8 (Windows editors and PowerShell's `>` may write UTF-16)",
        ) from error


def _not_toml(text: str, name: str, message: str) -> ConfigError:
    at = AT.search(message)
    problem = message[: at.start()] if at else message
    if problem.startswith(("Cannot overwrite", "Cannot declare", "Duplicate inline")):
        twice = _given_twice(text, name)
        if twice is not None:
            return twice
    if not at:
        problem = "a number has too many digits"
    lines = text.split("\n")
    line, column = _place(at, text, lines)
    words = without_secret(lines[line - 1].strip())
    read_here = f", read: `{shown(words)}`" if words else ""
    advice = (hint for start, hint in ADVICE.items() if problem.startswith(start))
    return ConfigError(
        f"`{shown(name)}`, line {line}, column {column}: not TOML:"
        f" {problem[:1].lower()}{shown(problem[1:])}{read_here}",
        hint=next(advice, "correct that line; https://toml.io shows how values are written"),
    )


def _place(at: re.Match[str] | None, text: str, lines: list[str]) -> tuple[int, int]:
    """
    Line and column of a problem: as tomllib says, at the end, or (it says nothing) at the long number.
    """
    if at and at["line"]:
        return int(at["line"]), int(at["column"])
    number = None if at else TOO_LONG.search(text)
    if number:
        start = number.start()
        return text.count("\n", 0, start) + 1, start - text.rfind("\n", 0, start)
    line = len(lines) - (len(lines) > 1 and not lines[-1])
    return line, len(lines[line - 1]) + 1


def _given_twice(text: str, name: str) -> ConfigError | None:
    """
    Name the key or table that stands twice, with both lines; None where it is another conflict.
    """
    first: dict[KeyPath, int] = {}
    for path, line, _ in key_lines(text):
        if path in first:
            what = dotted(path)
            return ConfigError(
                f"`{shown(name)}`, line {line}: `{what}` is given twice (first on line {first[path]})",
                hint=f"keep one of lines {first[path]} and {line}",
            )
        first[path] = line
    return None


def dotted(path: KeyPath) -> str:
    """
    A path as TOML writes a table's name: `servers."qwen3.6-27b".env`.
    """
    words = ""
    for part in path:
        if isinstance(part, int):
            words += f"[{part}]"
        else:
            bare = re.fullmatch(r"[A-Za-z0-9_-]+", part)
            words += ("." if words else "") + (part if bare else '"' + shown(part) + '"')
    return words
