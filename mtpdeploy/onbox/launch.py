"""
Make a run directory and start its script, once: the intent first, then the files, then the process.

Asking again for the same run answers with what stands there, so a client that lost the line may repeat.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import signal
import subprocess
import time
from typing import Any, Iterator

from mtpdeploy.onbox.baseline import remember
from mtpdeploy.onbox.files import read_record, refusal, store, sync_folder
from mtpdeploy.onbox.record import checked

INTENT = "attempt.json"
SCRIPT = "launch.sh"
PROCESS = "proc"

LOCK_DESCRIPTOR = 9
"""The script holds the lock on it until `proc` stands; sh can name single digits only."""

LOCK_PATIENCE = 30.0
"""Seconds to wait for another launch, which holds the lock for the time of a few file writes."""

START_PATIENCE = 20.0
"""Seconds for a shell to reach its first act, on a box that is busy loading weights."""

POLL = 0.002
"""Seconds between two looks; a shell needs about as long for its first act."""


def main(request: dict[str, Any]) -> None:
    """
    Answer `{"work_dir", "run", "files", "modes"?, "lock_note"}` with the process of the run.

    The answer is `{"process", "log", "existed"}`, or `{"error", "kind"}` with nothing half done left.
    """
    os.umask(0o077)
    work_dir = os.path.abspath(os.path.expanduser(request["work_dir"]))
    try:
        os.makedirs(os.path.join(work_dir, "runs"), mode=0o700, exist_ok=True)
        with locked(os.path.join(work_dir, "launch.lock"), request["lock_note"]) as holder:
            if holder is None:
                answer = launch(work_dir, request)
            else:
                answer = {"error": "another launch is under way", "kind": "locked", "holder": holder}
    except OSError as error:
        answer = refusal(error)
    print(json.dumps(answer))


@contextlib.contextmanager
def locked(path: str, note: str) -> Iterator[str | None]:
    """
    Hold the launch lock; the value is None, or the note of whoever kept it all the time.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if handle != LOCK_DESCRIPTOR:
        os.dup2(handle, LOCK_DESCRIPTOR, inheritable=False)
        os.close(handle)
    try:
        if taken(LOCK_DESCRIPTOR):
            os.ftruncate(LOCK_DESCRIPTOR, 0)
            os.pwrite(LOCK_DESCRIPTOR, note.encode("utf-8"), 0)
            yield None
        else:
            yield os.pread(LOCK_DESCRIPTOR, 1000, 0).decode("utf-8", "replace")
    finally:
        os.close(LOCK_DESCRIPTOR)


def taken(handle: int) -> bool:
    """
    Take the lock on an open file within `LOCK_PATIENCE`.
    """
    end = time.monotonic() + LOCK_PATIENCE
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES, errno.EINTR):
                raise
            if time.monotonic() > end:
                return False
            time.sleep(0.02)
        else:
            return True


def launch(work_dir: str, request: dict[str, Any]) -> dict[str, Any]:
    """
    Under the lock: answer with the run that stands, or make it and start it.
    """
    run_dir = os.path.join(work_dir, "runs", request["run"])
    standing = checked(read_record(os.path.join(run_dir, PROCESS)))
    if standing is not None:
        return answer_of(standing, existed=True)
    try:
        os.makedirs(run_dir, mode=0o700, exist_ok=True)
        fill(run_dir, request["files"], request.get("modes", {}))
    except OSError:
        shutil.rmtree(run_dir, ignore_errors=True)
        raise
    point(os.path.join(work_dir, "latest"), os.path.join("runs", request["run"]))
    remember(run_dir)
    return start(run_dir)


def fill(run_dir: str, files: dict[str, str], modes: dict[str, int]) -> None:
    """
    Write the files of a run, the intent before anything else.
    """
    for name in sorted(files, key=lambda name: name != INTENT):
        store(os.path.join(run_dir, name), files[name], modes.get(name, 0o600))
    sync_folder(os.path.dirname(run_dir))


def point(link: str, target: str) -> None:
    """
    Make or turn a symbolic link in one step.
    """
    beside = f"{link}.new.{os.getpid()}"
    os.symlink(target, beside)
    os.replace(beside, link)


def start(run_dir: str) -> dict[str, Any]:
    """
    Start the script in a session of its own and wait for its first act.
    """
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    null = subprocess.DEVNULL
    words = ["sh", os.path.join(run_dir, SCRIPT)]
    child = subprocess.Popen(
        words, stdin=null, stdout=null, stderr=null, start_new_session=True, pass_fds=[LOCK_DESCRIPTOR]
    )
    end = time.monotonic() + START_PATIENCE
    while time.monotonic() < end:
        ended = child.poll()
        standing = checked(read_record(os.path.join(run_dir, PROCESS)))
        if standing is not None:
            return answer_of(standing, existed=False)
        if ended is not None:
            return {"error": f"the script ended with status {ended} before its first act", "kind": "script"}
        time.sleep(POLL)
    return {"error": f"the script did nothing within {START_PATIENCE:g} seconds", "kind": "script"}


def answer_of(record: dict[str, Any], *, existed: bool) -> dict[str, Any]:
    """
    The answer about a run that has a process.
    """
    process = {key: record[key] for key in ("pid", "start", "boot", "pid_ns")}
    return {"process": process, "log": record["log"], "existed": existed}
