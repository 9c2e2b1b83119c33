"""
Which process a run is: what its `proc` says, believed only as far as the process itself bears it out.
"""

from __future__ import annotations

import os
from typing import Any

from mtpdeploy.onbox.files import read_record
from mtpdeploy.onbox.identity import MARKER, proc_entry, proc_root, read_file, same

HIGHEST_PID = 1 << 22
"""Linux gives no higher ones (PID_MAX_LIMIT, linux/threads.h); other systems stay far below."""


def process_of(run_dir: str) -> dict[str, Any] | None:
    """
    The content of a run's `proc`, of a dead process too; None where it does not tell the run's process.

    That is so where there is no such file or it is damaged, and where it names the first process of the
    box or a living stranger: then nothing may be concluded from it, least of all whom to end.
    """
    record = checked(read_record(os.path.join(run_dir, "proc")))
    if record is None or not same(record) or owned(record["pid"], run_dir):
        return record
    return None if same(record) else record  # one that died meanwhile shows nothing of its own


def checked(record: dict[str, Any] | None) -> dict[str, Any] | None:
    """
    A record with all that an identity needs, as text where it is compared as text; None for any other.
    """
    if record is None:
        return None
    pid, start = record.get("pid"), record.get("start")
    if isinstance(pid, bool) or not isinstance(pid, int) or not 1 < pid <= HIGHEST_PID or not start:
        return None
    texts = {key: str(record.get(key) or "") for key in ("start", "boot", "pid_ns")}
    return dict(record, pid=pid, **texts)


def owned(pid: int, run_dir: str) -> bool:
    """
    Whether a process is a run's own: it works in the run's directory or was started with the run's marker.

    The script has the first from its first act on, the supervisor both. Where a process shows no
    environment (no /proc; in the middle of an exec; a program with capabilities of its own), it has to be
    our user's.
    """
    root = proc_root()
    if root is None:
        return True
    try:
        here, there = os.stat(run_dir), os.stat(f"{root}/{pid}/cwd")
    except OSError:
        here, there = None, None
    if here is not None and there is not None and (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino):
        return True
    words = read_file(f"{root}/{pid}/environ")
    if words:
        return os.fsencode(f"{MARKER}={os.path.basename(run_dir)}") in words.split(b"\0")
    entry = proc_entry(root, pid)
    return entry is not None and entry["uid"] == os.geteuid()
