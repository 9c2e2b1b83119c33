"""
An ascent in one file for somebody else: the report, and what it was made from, without secrets.
"""

import gzip
import io
import tarfile
from collections.abc import Iterator
from pathlib import Path

from msgspec import DecodeError, json

from mtpdeploy.core.launch import ATTEMPT_FILE, OUTCOME_FILE, SCRIPT_FILE
from mtpdeploy.deploy.dossier import Dossier
from mtpdeploy.deploy.journal import ASCENT_FILE, CLIENTS_FILE, EVENTS_FILE
from mtpdeploy.deploy.redaction import Redactor

HEAD_BYTES, TAIL_BYTES = 1 << 20, 3 << 20
"""Bytes of a log that a bundle has of its beginning and its end, where it is longer than both."""


LATEST = 2**32 - 1
"""The last moment that the head of a gzip file can hold (RFC 1952, MTIME)."""


def bundle(folder: Path, dossier: Dossier, page: str, redactor: Redactor) -> bytes:
    """
    A gzipped tar of an ascent, below one directory; the same journal makes the same bytes.
    """
    top = redactor.text(dossier.ascent.id).replace("/", "-")
    moment = _moment(dossier)
    packed = io.BytesIO()
    # Without the moment and the name of a file in its own head, the same content is the same file.
    with (
        gzip.GzipFile("", "wb", fileobj=packed, mtime=moment) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name, content in [("report.html", page.encode()), *_files(folder, dossier, redactor)]:
            member = tarfile.TarInfo(f"{top}/{name}")
            member.size, member.mode, member.mtime = len(content), 0o600, moment
            tar.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def _moment(dossier: Dossier) -> int:
    begun = [tried.record.started_at for tried in dossier.tried if tried.record is not None]
    begun += [client.at for client in dossier.clients]
    return int(min(max(0.0, min(begun, default=0.0)), LATEST))


def _files(folder: Path, dossier: Dossier, redactor: Redactor) -> Iterator[tuple[str, bytes]]:
    for name in (ASCENT_FILE, CLIENTS_FILE, EVENTS_FILE):
        yield from _json(folder / name, name, redactor)
    used: set[str] = set()
    for tried in dossier.tried:
        place, count = f"attempt-{tried.number}", 1
        while place in used:
            count += 1
            place = f"attempt-{tried.number}-{count}"
        used.add(place)
        run = folder / tried.run
        for name in (ATTEMPT_FILE, OUTCOME_FILE):
            yield from _json(run / name, f"{place}/{name}", redactor)
        yield from _text(run / SCRIPT_FILE, f"{place}/{SCRIPT_FILE}", redactor)
        yield from _text(folder / tried.run / tried.log, f"{place}/log", redactor)


def _json(path: Path, name: str, redactor: Redactor) -> Iterator[tuple[str, bytes]]:
    """
    A file of JSON documents, a line each, with every value redacted; what is damaged is text.
    """
    content = _content(path)
    if content is None:
        return
    lines = []
    for line in content.splitlines():
        try:
            lines.append(json.encode(redactor.value(json.decode(line))))
        except (DecodeError, RecursionError, UnicodeError):
            lines.append(_clean(line, redactor))
    yield name, b"\n".join([*lines, b""])


def _text(path: Path, name: str, redactor: Redactor) -> Iterator[tuple[str, bytes]]:
    content = _content(path)
    if content is not None:
        yield name, _clean(content, redactor)


def _clean(content: bytes, redactor: Redactor) -> bytes:
    return redactor.text(content.decode("utf-8", "replace")).encode("utf-8", "replace")


def _content(path: Path) -> bytes | None:
    """
    A file, of a very long one the beginning and the end, cut at line ends so that no word is cut in two.
    """
    try:
        with path.open("rb") as file:
            size = file.seek(0, io.SEEK_END)
            file.seek(0)
            if size <= HEAD_BYTES + TAIL_BYTES:
                return file.read()
            head = file.read(HEAD_BYTES).rpartition(b"\n")[0]
            file.seek(size - TAIL_BYTES)
            tail = file.read().partition(b"\n")[2]
    except OSError:
        return None
    left_out = size - len(head) - len(tail)
    return head + f"\n[mtpdeploy: {left_out:,} of {size:,} bytes are left out here]\n".encode() + tail
