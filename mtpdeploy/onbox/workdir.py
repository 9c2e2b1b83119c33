"""
The work directory as a launch will need it: everything that would keep one from being made is found out.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import stat
import time
from typing import Any

LOCKS = ("launch.lock", "lock.guard")
"""Files that a launch and the lease open for writing and lock: onbox/launch.py, onbox/lock.py."""

REPLACED = ("latest", "lock")
"""Names that are moved into place: anything but a folder may stand there."""

ALREADY_LOCKED = (errno.EWOULDBLOCK, errno.EACCES)
"""What a lock that another holds answers (flock(2), and NFS through fcntl)."""


def work_dir_facts(work_dir: str) -> dict[str, Any]:
    """
    Whether a run could be made in a folder that may not be there yet, and the free bytes of its disk.

    Nothing is left behind: where the folder is missing, its nearest parent is tried.
    """
    place = work_dir
    while not os.path.lexists(place) and os.path.dirname(place) != place:
        place = os.path.dirname(place)
    problem = ""
    try:
        try_run(place)
        if place == work_dir:
            try_standing(work_dir)
    except OSError as error:
        problem = f"{error.strerror}: {error.filename or place}"
    try:
        disk = os.statvfs(place)
        free = disk.f_bavail * disk.f_frsize
    except OSError:
        free = 0
    return {"path": work_dir, "problem": problem, "free": free}


def try_run(folder: str) -> None:
    """
    Do in a folder what a launch does there: a folder of its own, a file, a lock and a link in it.

    Raises:
        OSError: one of them cannot be made.
    """
    trial = os.path.join(folder, f".mtpdeploy-{os.getpid()}-{time.time_ns()}")
    try:
        os.mkdir(trial, 0o700)
    except OSError as error:
        raise OSError(error.errno, error.strerror, folder) from None
    try:
        handle = os.open(os.path.join(trial, "file"), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        try:
            os.write(handle, b"\0" * 4096)
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            os.close(handle)
        os.symlink("file", os.path.join(trial, "link"))
    except OSError as error:
        raise OSError(error.errno, error.strerror, folder) from None
    finally:
        shutil.rmtree(trial, ignore_errors=True)


def try_standing(work_dir: str) -> None:
    """
    Try what earlier runs left in a work directory and the next one has to work with.

    Raises:
        OSError: something of it cannot be used; names it.
    """
    runs = os.path.join(work_dir, "runs")
    if os.path.lexists(runs):
        try_run(runs)
        os.listdir(runs)
    for path in (os.path.join(work_dir, name) for name in LOCKS):
        if os.path.lexists(path):
            try_lock_file(path)
    for path in (os.path.join(work_dir, name) for name in REPLACED):
        if os.path.isdir(path) and not os.path.islink(path):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), path)


def try_lock_file(path: str) -> None:
    """
    Open a lock file as its users do; it is not locked, so that nobody has to wait for us.

    Raises:
        OSError: it cannot be opened for writing, or is no regular file.
    """
    handle = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "Not a regular file", path)
    finally:
        os.close(handle)


def launching(work_dir: str) -> bool:
    """
    Whether a launch is under way at this moment: its lock is held until `proc` stands.
    """
    try:
        handle = os.open(os.path.join(work_dir, LOCKS[0]), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in ALREADY_LOCKED
    finally:
        with contextlib.suppress(OSError):
            os.close(handle)
    return False
