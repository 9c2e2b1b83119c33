"""
Which ascent is reported, and where the report goes.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import click
from msgspec import Struct

from mtpdeploy.cli.heading import exit_of, is_simulated
from mtpdeploy.cli.output import Answer, print_verbatim
from mtpdeploy.cli.page import page_of
from mtpdeploy.deploy.bundle import bundle
from mtpdeploy.deploy.dossier import Dossier, read_dossier
from mtpdeploy.deploy.journal import state_directory
from mtpdeploy.deploy.redaction import Known, Redactor, known_of
from mtpdeploy.engines.sglang import SGLANG
from mtpdeploy.errors import CommandFailed, ConfigError
from mtpdeploy.remote.lock import whoami
from mtpdeploy.render import render_report

NEWEST = 5
"""Names of ascents that an error lists."""


class Wanted(Struct, frozen=True):
    """
    What the command line asks for.
    """

    ascent: str | None
    host: str | None
    output: str | None
    bundle: str | None
    redact: bool
    force: bool


def write_report(wanted: Wanted, *, as_json: bool) -> int | Answer:
    """
    Write the page, the bundle, or both; print where they are.

    Raises:
        ConfigError: there is no such ascent; a file is there already, or cannot be made.
        CommandFailed: a file cannot be written.
    """
    folder, dossier = _choose(state_directory(), wanted)
    redactor = Redactor(_known(dossier) if wanted.redact else None)
    page = render_report(page_of(redactor.value(dossier), redacted=wanted.redact))
    paths = _paths(wanted, redactor.text(dossier.ascent.id))
    for path in paths:
        _check(path, force=wanted.force)
    written = []
    for path in paths:
        packed = wanted.bundle is not None and path == Path(wanted.bundle)
        _write(path, bundle(folder, dossier, page, redactor) if packed else page.encode(), wanted)
        written.append(os.fsencode(path))
    if as_json:
        problems = [redactor.text(problem) for problem in dossier.problems]
        told = {"ascent": dossier.ascent.id, "exit_status": exit_of(dossier), "problems": problems}
        names = [name.decode("utf-8", "replace") for name in written]
        return Answer({"written": names, "finished": dossier.finished, **told})
    if wanted.output == "-":
        print_verbatim(page)
    for name in written:
        click.echo(name, err=wanted.output == "-")
    return 0


def _paths(wanted: Wanted, ascent: str) -> list[Path]:
    found = []
    if wanted.output is None and wanted.bundle is None:
        found.append(Path(f"mtpdeploy-report-{ascent.replace('/', '-')}.html"))
    elif wanted.output not in (None, "-"):
        found.append(Path(str(wanted.output)))
    if wanted.bundle is not None:
        found.append(Path(wanted.bundle))
    if len(set(found)) < len(found):
        raise ConfigError("the page and the bundle cannot be the same file", hint="name two files")
    return found


def _known(dossier: Dossier) -> Iterator[Known]:
    """
    What the journal tells of where the box is and who uses it, and what this machine is called.
    """
    clients = dossier.clients
    records = [tried.record for tried in dossier.tried if tried.record is not None]
    people = {client.name for client in clients} | {record.client for record in records} | {whoami()}
    yield from known_of((client.host for client in clients), people)
    if not is_simulated(dossier):
        yield from known_of((), [dossier.ascent.host])
    for client in clients:
        yield Known("user", client.facts.user)
        yield Known("path", client.facts.home)
    yield Known("path", str(Path.home()))
    yield Known("path", str(state_directory().resolve()))
    yield Known("path", str(state_directory()))


def _choose(state: Path, wanted: Wanted) -> tuple[Path, Dossier]:
    root = state / "ascents"
    try:
        folders = sorted((path for path in root.iterdir() if path.is_dir()), reverse=True)
    except FileNotFoundError:
        folders = []
    except OSError as error:
        raise ConfigError(f"the journal cannot be read: {error.strerror}: {root}", hint="mend it") from error
    meant = [folder for folder in folders if _is_meant(folder.name, wanted.ascent)]
    exact = [folder for folder in meant if folder.name == wanted.ascent]
    found: list[tuple[Path, Dossier]] = []
    for folder in exact or meant:
        dossier = read_dossier(folder, SGLANG)
        if wanted.host in (None, dossier.ascent.host):
            found.append((folder, dossier))
            if wanted.ascent in (None, "latest"):
                break
    if len(found) == 1:
        return found[0]
    names = [folder.name for folder, _ in found] or [folder.name for folder in folders]
    listed = "\n".join(["the newest ascents are:", *names[:NEWEST]]) if names else "`mtpdeploy up` makes one"
    named = f" `{wanted.ascent}`" if wanted.ascent else ""
    on = f" on `{wanted.host}`" if wanted.host else ""
    if found:
        raise ConfigError(f"several ascents are meant by{named}", hint=f"give more of the name; {listed}")
    raise ConfigError(f"there is no ascent{named}{on} in the journal", hint=listed)


def _is_meant(name: str, wanted: str | None) -> bool:
    if wanted in (None, "latest"):
        return True
    begins = name.startswith(str(wanted)) or name.rpartition("-")[2].startswith(str(wanted))
    return begins or name.endswith(f"-{wanted}")


def _check(path: Path, *, force: bool) -> None:
    """
    Insist on a file that may be written, before anything is.
    """
    if path.is_dir():
        raise ConfigError(f"{path} is a directory", hint="name a file")
    if not force and os.path.lexists(path):
        raise ConfigError(f"{path} is there already", hint="`--force` overwrites it; `-o` names another")


def _write(path: Path, content: bytes, wanted: Wanted) -> None:
    """
    Make a file that nobody else can read; with `force` it takes the place of the old one when it is whole.
    """
    fresh = path.with_name(f".{path.name}.{os.getpid()}.new") if wanted.force else path
    try:
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise ConfigError(f"{path} is there already", hint="`--force` overwrites it") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"{path} cannot be written: {reason}", hint="name another file") from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        fresh.replace(path)
    except OSError as error:
        fresh.unlink(missing_ok=True)
        raise CommandFailed(f"{path} cannot be written: {error.strerror}", hint="make room there") from error
