"""
One deployment per box at a time, with who and since when.
"""

import getpass
import socket
from typing import Any
from uuid import uuid4

from msgspec import Struct, json

from mtpdeploy import onbox
from mtpdeploy.core.units import duration
from mtpdeploy.errors import BoxLocked, BoxUnfit, CommandFailed
from mtpdeploy.remote.box import Box

STALE_AFTER = 30.0
"""Seconds without a sign of life after which a lease is taken over (ssh-faults D1, P5: freed within 30 s)."""


class Lease(Struct, frozen=True):
    """
    Our hold on a box: the token that the log reader renews.
    """

    work_dir: str
    token: str
    python: str
    purpose: str

    @property
    def path(self) -> str:
        """
        The lease's file on the box.
        """
        return f"{self.work_dir}/lock"


def take(box: Box, *, work_dir: str, python: str, purpose: str, force: bool = False) -> Lease:
    """
    Take the lease on a box.

    Raises:
        BoxLocked: somebody else deploys there; names who, since when and the last sign of life.
        BoxUnfit: the work directory cannot be written.
    """
    lease = Lease(work_dir=work_dir, token=uuid4().hex, python=python, purpose=purpose)
    _take(box, lease, force=force)
    return lease


def keep(box: Box, lease: Lease) -> None:
    """
    Make sure that the lease is still ours after a time without a reader that renewed it.

    Raises:
        BoxLocked: somebody took it over.
    """
    _take(box, lease, force=False)


def release(box: Box, lease: Lease) -> None:
    """
    Give the lease back; one that somebody took over in the meantime is left alone.
    """
    _ask(box, lease, {"do": "release"})


def whoami() -> str:
    """
    The person and machine that others are shown: `ada@laptop`.
    """
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "unknown"
    return f"{user}@{socket.gethostname()}"


def _take(box: Box, lease: Lease, *, force: bool) -> None:
    note = {"who": whoami(), "purpose": lease.purpose}
    answer = _ask(box, lease, {"do": "take", "note": note, "stale_after": STALE_AFTER, "force": force})
    if not answer.get("taken"):
        raise _locked(box.host.name, answer["holder"])


def _ask(box: Box, lease: Lease, request: dict[str, Any]) -> dict[str, Any]:
    request = {**request, "work_dir": lease.work_dir, "token": lease.token}
    result = box.run(onbox.script("lock", request, lease.python))
    if result.status != 0:
        raise CommandFailed(f"the lock on `{box.host.name}` could not be asked for: {result.err[-500:]!r}")
    answer: dict[str, Any] = json.decode(result.out)
    if "error" in answer:
        raise BoxUnfit(
            f"the work directory on `{box.host.name}` cannot be written: {answer['error']}",
            hint="set `work_dir` of the host in hosts.toml to a folder that can",
        )
    return answer


def _locked(host: str, holder: dict[str, Any]) -> BoxLocked:
    return BoxLocked(
        f"`{holder.get('who', 'somebody')}` is deploying on `{host}`: {holder.get('purpose', '')}"
        f" (last sign of life {duration(float(holder.get('age', 0)))} ago)",
        hint="wait, follow along with `mtpdeploy attach`, or take over with `--break-lock`",
    )
