"""
`mtpdeploy hosts add`: a host more in hosts.toml, and everything else as it was, byte for byte.
"""

import os
import re
import shlex
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

from mtpdeploy.errors import ConfigError
from mtpdeploy.inventory import document as documents
from mtpdeploy.inventory.document import BYTE_ORDER_MARK, Document
from mtpdeploy.inventory.given import check_name
from mtpdeploy.inventory.key_lines import KeyPath, key_lines
from mtpdeploy.inventory.keys import REACHES
from mtpdeploy.inventory.load import check
from mtpdeploy.inventory.origin import Kind, Origin, shown, wrong
from mtpdeploy.inventory.reach import ReadAddress
from mtpdeploy.inventory.tables import host_claims

NEW_FILE_MODE = 0o644
"""Others may read a hosts.toml: no secret stands in it. The user's umask takes away from that."""

ANYONE_WRITES = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH
"""The bits of a mode without which a file is meant to stay as it is, also for root."""


def add_host(
    path: Path,
    name: str,
    entry: str | Mapping[str, Any],
    *,
    force: bool = False,
    read_address: ReadAddress | None = None,
) -> None:
    """
    Write `[hosts.NAME]` into the file at `path`, which is made where there is none.

    `entry` is a pasted line, or the keys of the table. All other bytes of the file stay as they are.
    The result is read and checked before it takes the file's place in one step; the file keeps its
    mode, and a symbolic link goes on pointing where it did. With `force` a host of that name is given
    the new keys; those that it had already stay in their places, with their comments.

    Raises:
        ConfigError: the name is taken and `force` is not given, the entry cannot be, the file is wrong
            already, no regular file, write-protected, or cannot be written; it is then as it was.
    """
    keys = {"ssh": entry} if isinstance(entry, str) else dict(entry)
    _check_entry(name, keys, read_address)
    target = Path(os.path.realpath(path))
    with _held(target):
        _refuse_protected(target)
        before = documents.read(target, str(path)) if target.exists() else _empty(target, str(path))
        _refuse_taken(before, name, force=force)
        check(before)
        content = target.read_bytes() if target.exists() else b""
        _replace(target, _edited(content, before, name, keys))


def _check_entry(name: str, keys: dict[str, Any], read_address: ReadAddress | None) -> None:
    here = Origin(Kind.OPTION, "hosts add")
    check_name(here, "host", name)
    host_claims(Document(path=Path(), name=here.name, tables={}, lines={}), ("hosts", name), keys)
    if not any(way in keys for way in REACHES):
        raise wrong(
            here,
            f"nothing says where `{name}` is",
            "give the line your provider shows in quotes, or an address",
        )
    if read_address is not None and "ssh" in keys:
        read_address(keys["ssh"])


def _edited(content: bytes, before: Document, name: str, keys: dict[str, Any]) -> bytes:
    """
    The content with the host in it, the first way of writing that says what it should.
    """
    mark = BYTE_ORDER_MARK if content.startswith(BYTE_ORDER_MARK) else b""
    text = content.removeprefix(mark).decode()
    expected = {**before.tables, "hosts": {**before.tables.get("hosts", {}), name: keys}}
    for way in _ways(text, before, name, keys):
        with suppress(ConfigError, TOMLKitError, ValueError):
            new = way()
            if documents.parse(new, before.path, before.name).tables == expected:
                return mark + new.encode()
    raise ConfigError(
        f"`{shown(before.name)}` is written in a way that `hosts add` cannot keep",
        hint=f"write this into it by hand (what stands in braces is complete):\n{_table(name, keys)}",
    )


def _ways(text: str, before: Document, name: str, keys: dict[str, Any]) -> list[Callable[[], str]]:
    """
    How the host can be written, the neatest first.
    """
    if name in before.tables.get("hosts", {}):
        return [partial(_changed, text, name, keys)]
    lines = _lines(text)
    table = _table(name, keys)
    places = (_behind(lines, before.lines, ("hosts",)), len(lines))
    return [partial(_inserted, lines, place, table, apart=True) for place in places]


def _lines(text: str) -> list[str]:
    """
    The lines with their ends; only a newline ends one, as in TOML.
    """
    return re.findall(r"[^\n]*\n|[^\n]+$", text)


def _table(name: str, keys: dict[str, Any]) -> str:
    """
    The lines of a new table.
    """
    document = tomlkit.document()
    hosts = tomlkit.table(is_super_table=True)
    table = tomlkit.table()
    for key, value in keys.items():
        table.add(key, _item(value))
    hosts.add(name, table)
    document.add("hosts", hosts)
    return tomlkit.dumps(document).strip("\n")


def _item(value: object) -> Any:  # noqa: ANN401 (tomlkit's items share no public type)
    if not isinstance(value, Mapping):
        return tomlkit.item(value)
    inline = tomlkit.inline_table()
    inline.update(value)
    return inline


def _inserted(lines: list[str], at: int, words: str, *, apart: bool) -> str:
    """
    The text with `words` behind the first `at` lines; with empty lines around them where they stand apart.
    """
    newline = "\r\n" if lines and lines[0].endswith("\r\n") else "\n"
    head, tail = "".join(lines[:at]), "".join(lines[at:])
    if head and not head.endswith("\n"):
        head += newline
    if head and apart:
        head += newline
    if apart and tail and lines[at].strip():
        tail = newline + tail
    return head + words.replace("\n", newline) + newline + tail


def _behind(lines: list[str], places: Mapping[KeyPath, tuple[int, int]], path: KeyPath) -> int:
    """
    How many lines stand before what is added to a table: up to its last one, else all.

    Comments right below that line belong to it, if an empty line or the end follows them.
    """
    end = max((last for key, (_, last) in places.items() if key[: len(path)] == path), default=len(lines))
    comments = end
    while comments < len(lines) and lines[comments].lstrip().startswith("#"):
        comments += 1
    return comments if comments == len(lines) or not lines[comments].strip() else end


def _changed(text: str, name: str, keys: dict[str, Any]) -> str:
    """
    The text with the keys of one host replaced, those that stay in their places and with their comments.
    """
    document = tomlkit.parse(text)
    hosts: Any = document["hosts"]
    table = hosts[name]
    new = {key: value for key, value in keys.items() if key not in table}
    for key in list(table):
        if key in keys:
            table[key] = _item(keys[key])
        else:
            table.remove(key)
    text = tomlkit.dumps(document)
    if not new:
        return text
    lines = _lines(text)
    places = {
        path: (first, last) for path, first, last in key_lines(text) if path[:3] != ("hosts", name, "env")
    }
    place = max(last for path, (_, last) in places.items() if path[:2] == ("hosts", name))
    return _inserted(lines, place, _table(name, new).partition("\n")[2], apart=False)


def _refuse_taken(before: Document, name: str, *, force: bool) -> None:
    hosts = before.tables.get("hosts", {})
    if isinstance(hosts, dict) and name in hosts and not force:
        raise wrong(
            before.origin("hosts", name),
            f"there is a host `{name}` already",
            "give `--force` to replace it, or another name",
        )


@contextmanager
def _held(target: Path) -> Iterator[None]:
    """
    Keep a second `hosts add` waiting until this one is through: a lock on the folder leaves no file behind.
    """
    import fcntl  # noqa: PLC0415 (there is none on Windows, where the rest of the inventory works)

    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        folder = os.open(target.parent, os.O_RDONLY)
    except OSError as error:
        raise _unwritable(target, error) from error
    try:
        with suppress(OSError):  # a network folder may know no locks; adding a host still works there
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _refuse_protected(target: Path) -> None:
    """
    Insist on a regular file that may be written, or none: a renamed file would take the place of any other.
    """
    try:
        mode = target.lstat().st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise _unwritable(target, error) from error
    if not stat.S_ISREG(mode):
        raise ConfigError(
            f"`{shown(str(target))}` is no regular file, and only those are written",
            hint="give the path of a hosts.toml with `--config`; it is made where there is none",
        )
    if not (mode & ANYONE_WRITES and os.access(target, os.W_OK)):  # root may write what nobody else may
        raise ConfigError(
            f"`{shown(str(target))}` is write-protected",
            hint=f"write to it after `chmod u+w {shlex.quote(str(target))}`, or give another with `--config`",
        )


def _replace(target: Path, content: bytes) -> None:
    """
    Put the content in the place of the file in one step, or leave it as it was.
    """
    try:
        mode = target.stat().st_mode & 0o7777 if target.exists() else NEW_FILE_MODE & ~_umask()
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    except OSError as error:
        raise _unwritable(target, error) from error
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        Path(temporary).replace(target)
    except OSError as error:
        raise _unwritable(target, error) from error
    finally:
        with suppress(FileNotFoundError):
            Path(temporary).unlink()


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _unwritable(target: Path, error: OSError) -> ConfigError:
    return ConfigError(
        f"`{shown(str(target))}` cannot be written: {error.strerror or error}",
        hint="give another file with `--config`, or make its folder writable",
    )


def _empty(path: Path, name: str) -> Document:
    return Document(path=path, name=name, tables={}, lines={})
