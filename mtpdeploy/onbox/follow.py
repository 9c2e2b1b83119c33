"""
Follow the log of a run and push what is new as frames, until the run has ended.

After the line `MTPDEPLOY-FOLLOW <nonce>` standard output carries `I` (what is followed), `D` (bytes of
the log), `H` (heartbeat), `L` (who listens on the port), `T` (the log was truncated, replaced or
deleted), `B` (time to be renewed) and `X` (the run has ended), each a letter, a JSON object and a line
feed; `D <offset> <length>` is followed by that many bytes. `remote/frames.py` reads them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import select
import signal
import threading
import time
from typing import Any

from mtpdeploy.onbox.census import SLOW_POLL, Census
from mtpdeploy.onbox.gpus import Gpus
from mtpdeploy.onbox.identity import family, pidfd, proc_root, same
from mtpdeploy.onbox.lock import renew
from mtpdeploy.onbox.record import process_of
from mtpdeploy.onbox.workdir import launching

MAGIC = "MTPDEPLOY-FOLLOW"
CHUNK = 262144  # four pipe buffers of Linux (64 KiB, pipe(7)); larger ones were not faster
LIFE_POLL = 0.05  # seconds between two looks at a process without a handle: an end is known within 100 ms
UNTOLD = 5.0  # seconds without a process and without a launch under way after which a run counts as gone
BURST = 16  # chunks between two looks at anything else: 4 MiB, some 20 ms


class ClientGone(Exception):
    """
    Nobody reads our output any more.
    """


class Wire:
    """
    Frames on a descriptor.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.handle: int | None = None
        self.events = select.poll()
        self.events.register(descriptor, 0)

    def write(self, *pieces: bytes) -> None:
        """
        Write everything, waiting for a slow client.
        """
        left = [memoryview(piece) for piece in pieces if piece]
        while left:
            try:
                done = os.writev(self.descriptor, left)
            except (BrokenPipeError, ConnectionResetError):
                raise ClientGone from None
            while left and done >= len(left[0]):
                done -= len(left.pop(0))
            if done:
                left[0] = left[0][done:]

    def send(self, kind: str, content: dict[str, Any]) -> None:
        """
        Write one frame of JSON.
        """
        self.write(f"{kind} {json.dumps(content)}\n".encode("ascii"))

    def wait(self, seconds: float, handle: int | None) -> None:
        """
        Sleep, but wake at once when the client has gone or the process of `handle` has ended.
        """
        if handle != self.handle:
            if self.handle is not None:
                self.events.unregister(self.handle)
            if handle is not None:
                self.events.register(handle, select.POLLIN)
            self.handle = handle
        if any(ready == self.descriptor for ready, _ in self.events.poll(max(1, int(seconds * 1000)))):
            raise ClientGone


class Log:
    """
    The file at `path` from byte `offset` on. `known` is what the client remembers of it.
    """

    def __init__(self, path: str, offset: int, known: dict[str, Any]) -> None:
        self.path = path
        self.offset = offset
        self.known = known
        self.descriptor = -1
        self.device = 0
        self.inode = 0
        self.deleted = bool(known.get("deleted"))

    def open(self) -> dict[str, Any] | None:
        """
        Open the file if it is there; what has changed since the client saw it, or None.
        """
        try:
            self.descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return self.lost() if self.known.get("ino") else None
        status = os.fstat(self.descriptor)
        self.device, self.inode, self.deleted = status.st_dev, status.st_ino, False
        if self.offset < 0:
            self.offset = max(0, status.st_size + self.offset)
        what = self.compare(status)
        return self.restart(what, status.st_size) if what else None

    def compare(self, status: os.stat_result) -> str:
        """
        Whether this is another log than the one the client knows: "replaced", "truncated" or "".
        """
        known, self.known = self.known, {}
        if known.get("ino") and (known["dev"], known["ino"]) != (status.st_dev, status.st_ino):
            return "replaced"
        if status.st_size < self.offset:
            return "truncated"
        length = known.get("head_bytes", 0)
        if length and hashlib.sha256(os.pread(self.descriptor, length, 0)).hexdigest() != known["head"]:
            return "replaced"
        return ""

    def change(self) -> dict[str, Any] | None:
        """
        What happened to the file since the last look; it is read from the start where that is due.

        Call it when everything has been read, so that nothing of the old file is left behind.
        """
        if self.descriptor < 0:
            return self.open()
        size = os.fstat(self.descriptor).st_size
        if size < self.offset:
            return self.restart("truncated", size)
        try:
            status = os.stat(self.path)
        except FileNotFoundError:
            return self.lost()
        if (status.st_dev, status.st_ino) == (self.device, self.inode):
            return None
        os.close(self.descriptor)
        self.descriptor = -1
        self.known = {"dev": self.device, "ino": self.inode}
        return self.open()

    def lost(self) -> dict[str, Any] | None:
        """
        Tell once that the file was deleted; what is still written into it goes on being read.
        """
        if self.deleted:
            return None
        self.deleted = True
        return {"what": "deleted", "had": self.offset, "size": 0}

    def restart(self, what: str, size: int) -> dict[str, Any]:
        """
        Begin at the start of a new content.
        """
        had, self.offset = self.offset, 0
        return {"what": what, "had": had, "size": size}

    def read(self) -> bytes:
        """
        The next bytes; b"" when there are none yet.
        """
        if self.descriptor < 0:
            return b""
        data = os.pread(self.descriptor, CHUNK, self.offset)
        self.offset += len(data)
        return data

    def size(self) -> int:
        """
        Bytes in the file now.
        """
        return os.fstat(self.descriptor).st_size if self.descriptor >= 0 else 0


class Run:
    """
    The files of a run directory that tell who it is and how it ended.

    `handle` tells the death of the process at once, where the kernel and Python have pidfd.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.exit = os.path.join(folder, "exit")
        self.process: dict[str, Any] | None = None
        self.handle: int | None = None
        self.death = select.poll()
        self.next_look = 0.0
        self.untold_since: float | None = None

    def read(self, name: str) -> dict[str, Any] | None:
        """
        A file of JSON; None when it does not stand yet.
        """
        try:
            with open(os.path.join(self.folder, name), encoding="utf-8", errors="replace") as file:
                content = json.loads(file.read())
        except (OSError, ValueError):
            return None
        return content if isinstance(content, dict) else {"status": content}

    def alive(self) -> bool | None:
        """
        Whether the recorded process lives; None while there is no record that tells it.
        """
        if self.handle is not None and not self.death.poll(0):
            return True
        if self.handle is None and self.process is not None and same(self.process):
            return True
        self.let_go()
        process = process_of(self.folder)  # also after a death: a run started again by hand has a new one
        if process is None:
            return None
        self.process = process
        self.handle = pidfd(process["pid"])
        if not same(process):
            self.let_go()
            return False
        if self.handle is not None:
            self.death.register(self.handle, select.POLLIN)
        return True

    def never_told(self, now: float) -> bool:
        """
        Whether no record will tell the process any more: nobody launches, and nothing of the run lives.
        """
        if self.untold_since is None or launching(os.path.dirname(os.path.dirname(self.folder))):
            self.untold_since = now
        if now - self.untold_since < UNTOLD:
            return False
        self.untold_since = now
        return not family(None, os.path.basename(self.folder))

    def let_go(self) -> None:
        """
        Close the handle of a process that is dead.
        """
        if self.handle is not None:
            with contextlib.suppress(KeyError):
                self.death.unregister(self.handle)
            os.close(self.handle)
            self.handle = None

    def end(self) -> dict[str, Any] | None:
        """
        How the run ended; None while it goes on.
        """
        now = time.monotonic()
        gone = False
        if self.handle is not None or now >= self.next_look:
            self.next_look = now + (LIFE_POLL if proc_root() else SLOW_POLL)
            alive = self.alive()
            gone = alive is False or (alive is None and self.never_told(now))
        # The record is written before the process ends, so it is looked for after the process.
        record = self.read("exit") if gone or os.path.exists(self.exit) else None
        return record or ({"vanished": True} if gone else None)


class Reader:
    """
    One reader: serves one client until the run ends, the client goes, or its time is over.
    """

    def __init__(self, request: dict[str, Any], wire: Wire) -> None:
        self.wire = wire
        self.run = Run(os.path.expanduser(request["run_dir"]))
        path = os.path.join(self.run.folder, os.path.expanduser(request["log"]))
        self.log = Log(path, request["offset"], request.get("known", {}))
        self.census = Census(os.path.basename(self.run.folder), request.get("port"), request["heartbeat"])
        self.gpus = Gpus()
        self.poll: float = request["poll"]
        self.heartbeat: float = request["heartbeat"]
        self.next_heartbeat = 0.0
        self.told: dict[str, Any] | None = None
        self.lease: dict[str, Any] | None = request.get("lease")
        self.described: tuple[int, int] | None = None
        self.renew_at: float = time.monotonic() + request["limit"]
        self.last: float = self.renew_at + request["grace"]

    def serve(self) -> None:
        """
        Push until there is nothing more to push.
        """
        self.changed(self.log.open())
        for work in (self.census.work, self.gpus.work):
            threading.Thread(target=work, daemon=True).start()
        while time.monotonic() < self.last:
            end = self.run.end()
            moved = self.pump()
            if not moved:
                self.changed(self.log.change())
            if end is not None:
                while self.pump():
                    pass
                self.wire.send("X", {**end, "stopped": (self.run.read("stop") or {}).get("by", "")})
                return
            self.report()
            if not moved:
                self.wire.wait(self.poll, self.run.handle)

    def pump(self) -> bool:
        """
        Send what is new, at most a burst; whether there was anything.
        """
        for sent in range(BURST):
            offset = self.log.offset
            data = self.log.read()
            if not data:
                return sent > 0
            self.wire.write(b"D %d %d\n" % (offset, len(data)), data)
        return True

    def changed(self, change: dict[str, Any] | None) -> None:
        """
        Tell what happened to the log, and what is followed from now on.
        """
        if change is not None:
            self.wire.send("T", change)
        if (self.log.descriptor, self.log.inode) == self.described:
            return
        self.described = (self.log.descriptor, self.log.inode)
        alive = self.run.alive()
        identity = {"dev": self.log.device, "ino": self.log.inode, "size": self.log.size()}
        self.wire.send(
            "I", {**identity, "offset": self.log.offset, "process": self.run.process, "alive": alive}
        )

    def report(self) -> None:
        """
        Send heartbeats, the listener and the wish to be renewed when they are due.
        """
        now = time.monotonic()
        self.census.process = self.gpus.process = self.run.process
        listening = self.census.listening
        if listening != self.told:
            self.told = listening
            self.wire.send("L", dict(listening or {}))
        if now >= self.next_heartbeat and (self.census.usage or self.next_heartbeat):
            self.next_heartbeat = now + self.heartbeat
            activity = {**self.census.usage, **self.gpus.usage} if self.census.usage else None
            self.wire.send("H", {"t": time.time(), "size": self.log.size(), "activity": activity})
            if self.lease:
                with contextlib.suppress(OSError):  # given back at this very moment
                    renew(os.path.expanduser(self.lease["path"]), self.lease["token"])
        if now >= self.renew_at:
            self.renew_at = float("inf")
            self.wire.send("B", {})


def main(request: dict[str, Any]) -> None:
    """
    Follow as `request` says: `run_dir`, `log` (in it, or absolute), `offset` (below 0: from the end),
    `port`, `poll`, `heartbeat`, `limit` and `grace` in seconds, `nonce`, and `known` (`dev`, `ino`,
    `head`, `head_bytes`, `deleted`): what the client remembers of the log. `lease` (`path`, `token`),
    where there is one, is given a sign of life with every heartbeat: see `onbox/lock.py`.
    """
    # Also ends a reader that is stuck in a write because nobody empties the pipe any more.
    signal.setitimer(signal.ITIMER_REAL, request["limit"] + request["grace"] + 2)
    wire = Wire(1)
    reader = Reader(request, wire)
    try:
        wire.write(f"{MAGIC} {request['nonce']}\n".encode("ascii"))
        reader.serve()
    except ClientGone:
        pass
    finally:
        reader.gpus.close()
