"""
One deployment per box at a time, with who and since when.
"""

import contextlib
import getpass
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import getnode, uuid4

from msgspec import Struct, json

from mtpdeploy import onbox
from mtpdeploy.clock import Clock
from mtpdeploy.core.units import duration
from mtpdeploy.errors import BoxLocked, BoxUnfit, BoxUnreachable, CommandFailed
from mtpdeploy.onbox.identity import identify, same
from mtpdeploy.remote.box import Box

STALE_AFTER = 30.0
"""Seconds without a sign of life after which a lease is taken over (ssh-faults D1, P5: freed within 30 s)."""


LOOK_EVERY = 6.0
"""Seconds between two looks at a lease that another holds: its reader renews it every 5 (retry.HEARTBEAT)."""


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


def take(
    box: Box,
    *,
    work_dir: str,
    python: str,
    purpose: str,
    clock: Clock,
    told: Callable[[str], None],
    force: bool = False,
) -> Lease:
    """
    Take the lease on a box; one whose holder shows no sign of life is waited out and taken over.

    Raises:
        BoxLocked: somebody else deploys there; names who, since when and the last sign of life.
        BoxUnfit: the work directory cannot be written.
    """
    lease = Lease(work_dir=work_dir, token=uuid4().hex, python=python, purpose=purpose)
    holder = _take(box, lease, force=force)
    if holder is not None and _died_here(holder):
        holder = _take(box, lease, force=True)
    if holder is not None:
        told(f"{_sentence(box.host.name, holder)}; watching whether it lives")
    while holder is not None:
        age = float(holder["age"])
        clock.sleep(LOOK_EVERY)
        holder = _take(box, lease, force=False)
        if holder is not None and float(holder["age"]) < age + LOOK_EVERY / 2:
            raise _locked(box.host.name, holder)
    return lease


def keep(box: Box, lease: Lease) -> None:
    """
    Make sure that the lease is still ours after a time without a reader that renewed it.

    Raises:
        BoxLocked: somebody took it over.
    """
    holder = _take(box, lease, force=False)
    if holder is not None:
        raise _locked(box.host.name, holder)


def release(box: Box, lease: Lease) -> None:
    """
    Give the lease back; one that somebody took over in the meantime is left alone.

    Over a lost line nothing is given back: the lease goes stale by itself.
    """
    with contextlib.suppress(BoxUnreachable):
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


def _take(box: Box, lease: Lease, *, force: bool) -> dict[str, Any] | None:
    """
    Try once: None where the lease is ours now, else who holds it.
    """
    note = {
        "who": whoami(),
        "purpose": lease.purpose,
        "machine": _machine(),
        "process": identify(os.getpid()),
    }
    answer = _ask(box, lease, {"do": "take", "note": note, "stale_after": STALE_AFTER, "force": force})
    holder: dict[str, Any] | None = None if answer.get("taken") else answer["holder"]
    return holder


def _machine() -> str:
    """
    What tells this machine, since its last start, from others.
    """
    boot = Path("/proc/sys/kernel/random/boot_id")
    return f"{getnode():x}-{boot.read_text().strip() if boot.exists() else ''}"


def _died_here(holder: dict[str, Any]) -> bool:
    """
    Whether the holder was a process of this machine that is no more.
    """
    return holder.get("machine") == _machine() and not same(holder.get("process") or {})


def _ask(box: Box, lease: Lease, request: dict[str, Any]) -> dict[str, Any]:
    request = {**request, "work_dir": lease.work_dir, "token": lease.token}
    result = box.run(onbox.script("lock", request, lease.python))
    if result.status != 0:
        raise CommandFailed(
            f"the lock on `{box.host.name}` could not be asked for: {result.err[-500:]!r}",
            hint="is the box out of memory, or was Python taken away? otherwise please report it",
        )
    answer: dict[str, Any] = json.decode(result.out)
    if "error" in answer:
        raise BoxUnfit(
            f"the work directory on `{box.host.name}` cannot be written: {answer['error']}",
            hint="set `work_dir` of the host in hosts.toml to a folder that can",
        )
    return answer


def _locked(host: str, holder: dict[str, Any]) -> BoxLocked:
    return BoxLocked(
        _sentence(host, holder),
        hint="wait for it, watch with `mtpdeploy logs -f`, or take over with `--break-lock`",
    )


def _sentence(host: str, holder: dict[str, Any]) -> str:
    return (
        f"`{holder.get('who', 'somebody')}` is deploying on `{host}`: {holder.get('purpose', '')}"
        f" (last sign of life {duration(float(holder.get('age', 0)))} ago)"
    )
