"""
Whole small files on the box: written so that a reader sees the old one or the new one, and read in pieces.
"""

from __future__ import annotations

import base64
import errno
import json
import os
from typing import Any

KINDS = {
    errno.ENOSPC: "no-space",
    errno.EDQUOT: "no-space",
    errno.EACCES: "not-writable",
    errno.EPERM: "not-writable",
    errno.EROFS: "not-writable",
    errno.ENOTDIR: "in-the-way",
    errno.EISDIR: "in-the-way",
    errno.EEXIST: "in-the-way",
    errno.ENOTEMPTY: "in-the-way",
    errno.ELOOP: "in-the-way",
    errno.ENAMETOOLONG: "in-the-way",
    errno.EIO: "broken-disk",
    errno.ESTALE: "broken-disk",
    errno.ENOTCONN: "broken-disk",
    errno.ENOLCK: "broken-disk",
    errno.ENOMEM: "exhausted",
    errno.EAGAIN: "exhausted",
    errno.EMFILE: "exhausted",
    errno.ENFILE: "exhausted",
    errno.ENOENT: "absent",
}
"""What the box is to be blamed for; any other error is one of ours."""


def store(path: str, text: str, mode: int) -> None:
    """
    Write a file beside its place, check its size, bring it to the disk, and move it into place.

    Raises:
        OSError: it could not be written; nothing of it is left.
    """
    data = text.encode("utf-8")
    beside = f"{path}.new.{os.getpid()}"
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        try:
            written = 0
            while written < len(data):
                written += os.write(handle, data[written:])
            os.fchmod(handle, mode)
            os.fsync(handle)
            if os.fstat(handle).st_size != len(data):
                raise OSError(errno.EIO, "the size on the disk is another one", path)
        finally:
            os.close(handle)
        os.rename(beside, path)
    except OSError:
        os.unlink(beside)
        raise
    sync_folder(os.path.dirname(path))


def sync_folder(path: str) -> None:
    """
    Bring the names in a folder to the disk.
    """
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def refusal(error: OSError) -> dict[str, Any]:
    """
    What the system refused, as an answer: `{"error", "kind", "path"}`.
    """
    kind = KINDS.get(error.errno or 0, "system")
    return {"error": error.strerror or str(error), "kind": kind, "path": error.filename}


def read_record(path: str) -> dict[str, Any] | None:
    """
    The JSON object in a file; None where there is none.
    """
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def main(request: dict[str, Any]) -> None:
    """
    Answer `{"path", "text", "mode"}` by writing, `{"path", "offset", "limit"}` by reading.
    """
    path = os.path.expanduser(request["path"])
    try:
        if "text" in request:
            store(path, request["text"], request["mode"])
            answer: dict[str, Any] = {"written": len(request["text"].encode("utf-8"))}
        else:
            with open(path, "rb") as file:
                file.seek(request["offset"])
                data = base64.b64encode(file.read(request["limit"])).decode("ascii")
                answer = {"size": os.fstat(file.fileno()).st_size, "data": data}
    except OSError as error:
        answer = refusal(error)
    print(json.dumps(answer))
