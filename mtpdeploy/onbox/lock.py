"""
One deployment per box at a time: a lease in `<work_dir>/lock`, kept alive by whoever follows.

The lease is a small JSON file with a token. Its modification time is the last sign of life of its
holder: the log reader touches it at every heartbeat. One without a sign of life for `stale_after`
seconds is taken over, so that a client that died leaves nothing locked.
"""

import fcntl
import json
import os
import time
from typing import Any, Dict, Optional


def holder(path: str) -> Optional[Dict[str, Any]]:
    """
    Who holds the lease, with `age` in seconds since the last sign of life; None where nobody does.
    """
    try:
        with open(path, encoding="utf-8") as lease:
            content = json.load(lease)
            age = max(0.0, time.time() - os.fstat(lease.fileno()).st_mtime)
    except (OSError, ValueError):
        return None
    return dict(content, age=age) if isinstance(content, dict) else None


def take(path: str, token: str, note: Dict[str, Any], stale_after: float, *, force: bool) -> Dict[str, Any]:
    """
    Take the lease, or tell who holds it.
    """
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    guard = os.open(path + ".guard", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(guard, fcntl.LOCK_EX)
        held = holder(path)
        if held and held.get("token") != token and held["age"] < stale_after and not force:
            return {"taken": False, "holder": held}
        fresh = path + ".new"
        with open(fresh, "w", encoding="utf-8") as lease:
            json.dump(dict(note, token=token, since=time.time()), lease)
        os.replace(fresh, path)
        return {"taken": True, "replaced": held}
    finally:
        os.close(guard)


def renew(path: str, token: str) -> bool:
    """
    Give a sign of life; False where the lease is no longer ours.
    """
    held = holder(path)
    if not held or held.get("token") != token:
        return False
    os.utime(path)
    return True


def release(path: str, token: str) -> bool:
    """
    Give the lease back if it is ours.
    """
    held = holder(path)
    if not held or held.get("token") != token:
        return False
    os.unlink(path)
    return True


def main(request: Dict[str, Any]) -> None:
    """
    Answer one request: `take` or `release`.
    """
    path = os.path.expanduser(os.path.join(request["work_dir"], "lock"))
    try:
        if request["do"] == "take":
            answer = take(
                path, request["token"], request["note"], request["stale_after"], force=request["force"]
            )
        else:
            answer = {"released": release(path, request["token"])}
    except OSError as error:
        answer = {"error": str(error), "kind": "not-writable"}
    print(json.dumps(answer))
