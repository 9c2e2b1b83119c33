"""
The local copy of ascents, runs and events: it outlives the rented box.

Layout below the state directory: `ascents/<ascent>/ascent.json`, `events.jsonl`, `clients.jsonl` (who worked
on it, on which box), and one folder a run with its files (`attempt.json`, `launch.sh`, the log,
`outcome.json`).
"""

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from importlib import metadata
from io import FileIO
from pathlib import Path
from typing import Self

from msgspec import DecodeError, Struct, json, structs

from mtpdeploy.core.events import TRANSIENT, AnyEvent
from mtpdeploy.core.foreign import is_plain_name
from mtpdeploy.core.launch import OUTCOME_FILE, STACKS_FILE, AttemptRecord
from mtpdeploy.core.machine import Facts, Host
from mtpdeploy.core.outcome import Ascent, Outcome
from mtpdeploy.core.server import ServerSpec
from mtpdeploy.errors import ConfigError
from mtpdeploy.remote.frames import LogChanged
from mtpdeploy.remote.link import HEAD

ASCENT_FILE = "ascent.json"
"""The state of the whole ascent, written when an attempt has ended."""

EVENTS_FILE = "events.jsonl"
"""What happened, an event a line."""

CLIENTS_FILE = "clients.jsonl"
"""Who worked on the ascent, a client a line."""

STATE_HINT = "set MTPDEPLOY_STATE_DIR to a directory that you can write to, or mend that path"


def state_directory() -> Path:
    """
    The place where everything local is kept, made where it is not there yet.

    Raises:
        ConfigError: it cannot be used; names it.
    """
    place = state_place()
    try:
        place.mkdir(parents=True, mode=0o700, exist_ok=True)
        if not os.access(place, os.R_OK | os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        why = "it is not a directory" if isinstance(error, FileExistsError) else error.strerror or str(error)
        raise ConfigError(f"the state directory {place} cannot be used: {why}", hint=STATE_HINT) from error
    return place


def state_place() -> Path:
    """
    Where everything local is kept: `MTPDEPLOY_STATE_DIR`, else the platform's place for state.

    Raises:
        ConfigError: it begins with the home directory of a user that does not exist.
    """
    given = os.environ.get("MTPDEPLOY_STATE_DIR")
    if given:
        try:
            return Path(given).expanduser()
        except RuntimeError as error:
            raise ConfigError(
                f"the state directory {given} cannot be used: {error}", hint=STATE_HINT
            ) from error
    import platformdirs  # noqa: PLC0415 - only where no directory is given

    return Path(platformdirs.user_state_dir("mtpdeploy"))


class Client(Struct, frozen=True):
    """
    One client that worked on an ascent: who, with which mtpdeploy, and the box as it surveyed it first.

    `asked` is the server that the user wants there. `facts` go without what others run there: no processes,
    no run directories.
    """

    at: float
    name: str
    version: str
    host: Host
    asked: ServerSpec
    facts: Facts


class Journal:
    """
    The place where one ascent is written down as it happens; nobody else can read it (0700).

    Every method raises a ConfigError that names the path where something cannot be written.
    """

    def __init__(self, state: Path, ascent: str) -> None:
        self.folder = state / "ascents" / _plain(ascent)
        with _writing(self.folder):
            self.folder.mkdir(parents=True, mode=0o700, exist_ok=True)

    def event(self, event: AnyEvent) -> None:
        """
        Append an event, except those that only screens need.
        """
        if not isinstance(event, TRANSIENT):
            _append(self.folder / EVENTS_FILE, json.encode(event) + b"\n")

    def client(self, name: str, host: Host, asked: ServerSpec, facts: Facts, at: float) -> None:
        """
        Write down who works on this ascent from now on, and what the box is like.
        """
        told = structs.replace(
            facts, processes=(), gpu_holders=(), port_holders=(), runs=(), sglang_flags=(), noise=""
        )
        client = Client(at=at, name=name, version=own_version(), host=host, asked=asked, facts=told)
        _append(self.folder / CLIENTS_FILE, json.encode(client) + b"\n")

    def run_folder(self, run: str) -> Path:
        """
        The folder of one run's files.
        """
        folder = self.folder / _plain(run)
        with _writing(folder):
            folder.mkdir(mode=0o700, exist_ok=True)
        return folder

    def log_path(self, record: AttemptRecord) -> Path:
        """
        Where the copy of an attempt's log grows, byte for byte.
        """
        return self.run_folder(record.run) / _plain(record.log)

    def attempt(self, record: AttemptRecord, files: dict[str, str]) -> None:
        """
        Keep what an attempt is about to try: the files of its run directory.
        """
        folder = self.run_folder(record.run)
        for name, text in files.items():
            _replace(folder / name, text.encode())

    def stacks(self, record: AttemptRecord, text: str) -> Path:
        """
        Keep where the processes of an attempt stood before they were ended; the path.
        """
        path = self.run_folder(record.run) / STACKS_FILE
        _replace(path, text.encode())
        return path

    def outcome(self, outcome: Outcome) -> None:
        """
        Keep how an attempt ended.
        """
        _replace(self.run_folder(outcome.run) / OUTCOME_FILE, json.encode(outcome))

    def ascent(self, ascent: Ascent) -> None:
        """
        Keep the state of the whole ascent.
        """
        _replace(self.folder / ASCENT_FILE, json.encode(ascent))


class LocalCopy:
    """
    The copy of one log, which grows byte for byte. A context manager.

    `length` is how much of the log on the box it holds, and so where following goes on.

    Raises:
        ConfigError: it cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with _writing(path):
            self.length = path.stat().st_size if path.exists() else 0
            self._file = self._open()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, data: bytes) -> None:
        """
        Append what came; it is on its way to the disk when this returns.
        """
        self._file.write(data)
        self.length += len(data)

    def head(self) -> bytes:
        """
        The first bytes, by which another log of the same name is known.
        """
        with self.path.open("rb") as file:
            return file.read(HEAD)

    def begin_anew(self, changed: LogChanged) -> None:
        """
        Keep what stands under another name, since the log on the box was truncated or replaced.
        """
        if changed.what == "deleted":
            return
        self._file.close()
        older = len(list(self.path.parent.glob(self.path.name + ".before-*")))
        self.path.rename(self.path.with_name(f"{self.path.name}.before-{older + 1}"))
        self._file, self.length = self._open(), 0

    def _open(self) -> FileIO:
        descriptor = os.open(self.path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
        return FileIO(descriptor, "ab")


def own_version() -> str:
    """
    The version of mtpdeploy that runs here.
    """
    try:
        return metadata.version("mtpdeploy")
    except metadata.PackageNotFoundError:
        return "not installed"


class Past(Struct, frozen=True):
    """
    One ascent as the journal has it.
    """

    ascent: Ascent
    folder: Path


def history(
    state: Path,
    told: Callable[[str], object] = lambda _text: None,
    unended: Callable[[Path], Ascent | None] = lambda _folder: None,
) -> Iterator[Past]:
    """
    The ascents in the journal, newest first. `told` is given a sentence for each that cannot be read.

    One whose first attempt has not ended has no record yet: it is what `unended` makes of its folder, and
    passed over where that is nothing.
    """
    root = state / "ascents"
    try:
        folders = sorted(root.iterdir(), reverse=True)
    except FileNotFoundError:
        return
    except OSError as error:
        told(f"the journal cannot be read: {error.strerror}: {root}")
        return
    for folder in folders:
        path = folder / ASCENT_FILE
        try:
            ascent = json.decode(path.read_bytes(), type=Ascent)
        except (FileNotFoundError, NotADirectoryError):
            begun = unended(folder) if folder.is_dir() else None
            if begun is not None:
                yield Past(begun, folder)
            continue
        except (OSError, DecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else f"damaged ({error})"
            told(f"an ascent in the journal cannot be read: {path}: {why}")
            continue
        yield Past(ascent, folder)


def _plain(name: str) -> str:
    """
    A name that leads to nothing but a place in the journal, whoever chose it.
    """
    if not is_plain_name(name):
        raise ConfigError(f"not a name in the journal: {name[:80]!r}", hint="a record on the box is damaged")
    return name


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    """
    Turn the system's refusal to write in the journal into an error of ours.
    """
    try:
        yield
    except OSError as error:
        raise ConfigError(
            f"the journal cannot be written: {error.strerror}: {error.filename or path}",
            hint="mend that path, or set MTPDEPLOY_STATE_DIR to another directory;\n"
            "what runs on the box goes on, and `mtpdeploy attach` goes on with it",
        ) from error


def _append(path: Path, content: bytes) -> None:
    with _writing(path):
        descriptor = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)


def _replace(path: Path, content: bytes) -> None:
    fresh = path.with_name(path.name + ".new")
    with _writing(path):
        descriptor = os.open(fresh, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        fresh.replace(path)
