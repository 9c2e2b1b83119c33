"""
Host keys: trusted on first use, kept in a file of our own, and never accepted when they changed.
"""

import base64
import binascii
import contextlib
import fcntl
import hashlib
import hmac
import os
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from threading import Lock

import platformdirs
from msgspec import Struct

from mtpdeploy.errors import BoxUnreachable, HostKeyChanged, MtpDeployError
from mtpdeploy.remote.own_files import using
from mtpdeploy.remote.ssh_config import SSH_PORT

_DATE = re.compile(r"mtpdeploy (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)")

_WRITING = Lock()
"""Two connections of this process; between processes the lock file decides."""


class KnownKey(Struct, frozen=True):
    """
    One readable line of a known_hosts file, format of sshd(8).

    `patterns` are host names as they stand there, possibly hashed or with wildcards. `marker` is
    "@revoked", "@cert-authority" or empty. `since` is the date of first trust, where we wrote the line.
    """

    patterns: tuple[str, ...]
    kind: str
    blob: bytes
    marker: str
    since: str
    file: Path
    line: int

    def names(self, name: str) -> bool:
        """
        Whether the line speaks of `name`; a negated pattern that matches overrules the others.
        """
        hits = [pattern for pattern in self.patterns if _matches(pattern.removeprefix("!"), name)]
        return bool(hits) and not any(pattern.startswith("!") for pattern in hits)


class Changed(Struct, frozen=True):
    """
    How to tell the user of a changed key: by what words the host is called in the two commands.
    """

    host: str
    label: str


def default_pins() -> Path:
    """
    Our own known_hosts file, in the user's state directory.
    """
    return platformdirs.user_state_path("mtpdeploy") / "known_hosts"


def fingerprint(blob: bytes) -> str:
    """
    A public key's fingerprint as `ssh-keygen -l` prints it.
    """
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def pin_name(address: str, port: int) -> str:
    """
    What a host's key is filed under: `[address]:port`, or the bare address on port 22, as OpenSSH does.
    """
    return address if port == SSH_PORT else f"[{address}]:{port}"


def forget(address: str, port: int, *, pins: Path | None = None) -> bool:
    """
    Forget the key that was trusted for exactly this address and port; False when there was none.

    Raises:
        ConfigError: our file cannot be read or written.
    """
    path = pins or default_pins()
    with using(path):
        if not path.exists():
            return False
    with _locked(path), using(path):
        lines = path.read_text("utf-8", "surrogateescape").splitlines(keepends=True)
        gone = {key.line for key in read_known_hosts(path)[0] if key.names(pin_name(address, port))}
        kept = [line for number, line in enumerate(lines, 1) if number not in gone]
        if gone:
            fresh = path.with_name(path.name + ".new")
            descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
                file.writelines(kept)
            fresh.replace(path)
    return bool(gone)


def read_known_hosts(path: Path) -> tuple[list[KnownKey], int]:
    """
    The keys of a known_hosts file, and how many of its lines could not be understood.

    A file that is not there has no keys. In one that cannot be read a key may be revoked, or another one
    be known: it is not passed over.

    Raises:
        ConfigError: it cannot be read.
    """
    with using(path):
        try:
            text = path.read_text("utf-8", "surrogateescape")
        except (FileNotFoundError, NotADirectoryError):
            return [], 0
    keys, skipped = [], 0
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        key = _read_line(words, path, number)
        if key is None:
            skipped += 1
        else:
            keys.append(key)
    return keys, skipped


class HostKeys:
    """
    What is known of one host's key, and the judgement of the key that it shows.

    `pins` is our own file, which is the only one ever written; `known` are the user's. `strict` refuses a
    host never seen before. `skipped` counts the lines of all files that could not be understood.
    """

    def __init__(
        self, pins: Path, known: Sequence[Path], *, strict: bool, told: Callable[[str], None]
    ) -> None:
        self._pins = pins
        self._known = tuple(known)
        self._strict = strict
        self._told = told
        self.skipped = 0

    def kinds(self, name: str) -> tuple[str, ...]:
        """
        The key types known for `name`, ours first: what should be asked of the server.
        """
        return tuple(dict.fromkeys(key.kind for key in self._trusted(name)))

    def judge(self, name: str, kind: str, blob: bytes, changed: Changed) -> None:
        """
        Accept the key shown by `name`, pinning it if it is the first one ever seen there.

        Raises:
            HostKeyChanged: another key is known for it.
            BoxUnreachable: the key is revoked, or is the first and `strict` holds.
            ConfigError: a file of known keys cannot be read, or ours cannot be written.
        """
        with using(self._pins):
            self._pins.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _locked(self._pins):
            self._refuse_revoked(name, blob, changed)
            trusted = self._trusted(name)
            if any(key.blob == blob for key in trusted):
                return
            if trusted:
                raise _changed(trusted[0], self._pins, kind, blob, name, changed)
            if self._strict:
                raise BoxUnreachable(
                    f"`{changed.label}` was never seen before and shows {kind} {fingerprint(blob)}",
                    hint="compare it with the provider's page, then connect once without --strict",
                )
            self._pin(name, kind, blob)
        self._told(f"first contact with {changed.label}: its {kind} key {fingerprint(blob)} is now trusted")

    def _trusted(self, name: str) -> list[KnownKey]:
        self.skipped = 0
        return [key for key in self._all() if not key.marker and key.names(name)]

    def _all(self) -> Iterator[KnownKey]:
        for path in (self._pins, *self._known):
            keys, skipped = read_known_hosts(path)
            self.skipped += skipped
            yield from keys

    def _refuse_revoked(self, name: str, blob: bytes, changed: Changed) -> None:
        for key in self._all():
            if key.marker == "@revoked" and key.blob == blob and key.names(name):
                raise BoxUnreachable(
                    f"`{changed.label}` shows a key that {key.file}, line {key.line} calls revoked:"
                    f" {fingerprint(blob)}",
                    hint="do not trust this machine; ask the provider, or rent another one",
                )

    def _pin(self, name: str, kind: str, blob: bytes) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        line = f"{name} {kind} {base64.b64encode(blob).decode()} mtpdeploy {now}\n"
        with using(self._pins):
            descriptor = os.open(self._pins, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            with os.fdopen(descriptor, "ab") as file:
                file.write(line.encode())


def _changed(
    known: KnownKey, pins: Path, kind: str, blob: bytes, name: str, changed: Changed
) -> MtpDeployError:
    """
    Say that another key is known, since when, why that happens, and the one command that forgets it.
    """
    since = f"since {known.since}" if known.since else f"by {known.file}, line {known.line}"
    forgetting = f"mtpdeploy hosts forget {changed.host}"
    if known.file != pins:
        forgetting = f"ssh-keygen -R '{name}' -f {known.file}"
    return HostKeyChanged(
        f"`{changed.label}` shows another host key than before\n"
        f"  known  {known.kind} {fingerprint(known.blob)}, trusted {since}\n"
        f"  shown  {kind} {fingerprint(blob)}",
        hint="rented addresses are reused: if a new machine stands at an old address, forget the old key\n"
        f"      {forgetting}\n"
        "      if it is the same machine as before, somebody may be in between: do not go on",
    )


def _read_line(words: list[str], path: Path, number: int) -> KnownKey | None:
    """
    One line, already split at blanks; None when it is not understood.
    """
    marker = words[0] if words[0].startswith("@") else ""
    fields = words[1:] if marker else words
    if len(fields) < 3 or marker not in ("", "@revoked", "@cert-authority"):
        return None
    try:
        blob = base64.b64decode(fields[2].encode("ascii", "strict"), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        return None
    kind = fields[1].encode("utf-8", "surrogateescape")
    if blob[: 4 + len(kind)] != len(kind).to_bytes(4, "big") + kind:
        return None
    date = _DATE.search(" ".join(fields[3:]))
    return KnownKey(
        patterns=tuple(fields[0].split(",")),
        kind=fields[1],
        blob=blob,
        marker=marker,
        since=date[1] if date else "",
        file=path,
        line=number,
    )


def _matches(pattern: str, name: str) -> bool:
    """
    Whether one pattern names the host: hashed (`|1|salt|HMAC-SHA1`), or plain with `*` and `?`.
    """
    if not pattern.startswith("|1|"):
        return fnmatchcase(name.lower(), pattern.lower().replace("[", "[[]"))
    try:
        salt, digest = (base64.b64decode(part, validate=True) for part in pattern[3:].split("|"))
    except (binascii.Error, ValueError):
        return False
    return hmac.compare_digest(hmac.new(salt, name.encode(), "sha1").digest(), digest)


@contextlib.contextmanager
def _locked(pins: Path) -> Iterator[None]:
    """
    Hold our known_hosts file against other threads and other processes.
    """
    path = pins.with_name(pins.name + ".lock")
    with using(path):
        lock = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        with _WRITING:
            with using(path):
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield
    finally:
        os.close(lock)
