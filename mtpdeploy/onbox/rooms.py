"""
How much room there is on disks, asked so that one behind a dead network hangs nobody.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time
from typing import Any


class Rooms:
    """
    Looks at each of some places in a child of its own, which holds nothing of ours but its answer's pipe.

    To be made before any thread is started: the children are forks.
    """

    def __init__(self, places: dict[str, str]) -> None:
        self.children = {name: (path, *self._child(path)) for name, path in places.items()}

    def _child(self, path: str) -> tuple[int, int]:
        """
        Pid and the pipe of the answer; pid 0 and an empty pipe where the box has no room for a child.
        """
        reader, writer = os.pipe()
        try:
            pid = os.fork()
        except OSError:
            os.close(writer)
            return 0, reader
        if pid == 0:
            try:
                os.setsid()
                os.closerange(0, 3)
                os.write(writer, json.dumps(room(path)).encode())
            finally:
                os._exit(0)
        os.close(writer)
        return pid, reader

    def answer(self, until: float) -> dict[str, dict[str, Any]]:
        """
        `{"path", "free", "total", "files_free"}` of what was answered by then (monotonic clock), by name.

        Each disk is told once, under the first of its names; `files_free` is None where it does not count.
        """
        told: dict[str, dict[str, Any]] = {}
        seen = set()
        for name, (path, pid, reader) in self.children.items():
            ready, _, _ = select.select([reader], [], [], max(0.0, until - time.monotonic()))
            text = os.read(reader, 4096) if ready else b""
            os.close(reader)
            if not ready and pid > 0:
                os.kill(pid, signal.SIGKILL)
            if text:
                device, free, total, files_free, files = json.loads(text)
                if device not in seen:
                    told[name] = {"path": path, "free": free, "total": total}
                    told[name]["files_free"] = files_free if files else None
                seen.add(device)
        return told


def room(path: str) -> list[int]:
    """
    Device, free and all bytes, free and all files of the disk at a path, or where it would be made.
    """
    while not os.path.exists(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)
    disk = os.statvfs(path)
    sizes = [disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize]
    return [os.stat(path).st_dev, *sizes, disk.f_favail, disk.f_files]
