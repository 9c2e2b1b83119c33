"""
supervise.py LOG COMMAND [WORD...]: run one server, keep its whole family, record how it ended.

A part of mtpdeploy, which starts it from launch.sh in a run directory; it can be read and run by hand.

- The server runs in a session of its own, its output goes to LOG, a file that did not exist before.
- TERM, INT and QUIT are passed on to the server's main process.
- When that has ended, `exit` says how, at once. What is left of its family then has some seconds to
  end by itself, is asked to (TERM), and is ended (KILL). When the last one is gone, `family` says so.
- On Linux no process can leave the family: the kernel gives orphans to this program. Elsewhere the
  family is the server's process group.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import select
import signal
import subprocess
import sys
import time
from typing import Any

BY_ITSELF = 5.0
"""Seconds for the rest of the family to end once the main process has."""

WHEN_ORDERED = 1.0
"""The same when the end was ordered by a signal, so that nobody waits for it longer than needed."""

AFTER_TERM = 5.0
"""Seconds between asking and killing."""

RECORD_PATIENCE = 60.0
"""Seconds to go on trying to write a record on a full disk."""

RECORD_BYTES = 512
"""Size of a record; the room for it is taken at the start, so that a full disk cannot swallow it."""

CANNOT_CREATE = 73
"""EX_CANTCREAT of sysexits.h: the log could not be opened."""

PR_SET_CHILD_SUBREAPER = 36
"""From linux/prctl.h."""

PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)

PROC = os.environ.get("MTPDEPLOY_PROC", "/proc")


class Supervisor:
    """
    The server, its family, and the signals that arrive meanwhile.
    """

    def __init__(self) -> None:
        self.adopts = adopt_orphans()
        self.server = 0
        self.status: int | None = None
        self.ordered = False
        self.killed: set[tuple[int, str]] = set()
        self.wake, inlet = os.pipe()
        os.set_blocking(self.wake, False)
        os.set_blocking(inlet, False)
        signal.set_wakeup_fd(inlet, warn_on_full_buffer=False)
        for number in (*PASSED_ON, signal.SIGCHLD):
            signal.signal(number, lambda *_: None)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def run(self, log: str, command: list[str]) -> int:
        """
        From the first act to the last; the server's status as a shell shows it.
        """
        for name in ("exit", "family"):
            reserve(name)
        status, number = self.serve(log, command)
        ended = {"status": status, "signal": number, "at": time.time()}
        told = record("exit", ended)
        left_over = self.end_family() if self.server else 0
        if not told:
            insist("exit", ended)
        insist("family", {"at": time.time(), "left_over": left_over, "killed": len(self.killed)})
        return status

    def serve(self, log: str, command: list[str]) -> tuple[int, int | None]:
        """
        Run the server to its end: its status, and the signal that ended it.
        """
        try:
            handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError as error:
            print(f"supervise.py: cannot open {log}: {error.strerror}", file=sys.stderr)
            return CANNOT_CREATE, None
        try:
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=handle, stderr=handle, start_new_session=True
            )
        except OSError as error:
            os.write(handle, f"supervise.py: cannot run {command[0]}: {error.strerror}\n".encode())
            return (127 if error.errno == errno.ENOENT else 126), None
        finally:
            os.close(handle)
        self.server = child.pid
        while self.reap() and self.status is None:
            for number in self.signals(None):
                self.ordered = True
                os.kill(self.server, number)
        child.returncode = self.status
        status = self.status or 0
        return (128 - status, -status) if status < 0 else (status, None)

    def signals(self, limit: float | None) -> list[int]:
        """
        Wait until something happens, at most `limit` seconds: the signals to be passed on.
        """
        if not select.select([self.wake], [], [], limit)[0]:
            return []
        return [number for number in os.read(self.wake, 4096) if number in PASSED_ON]

    def reap(self) -> bool:
        """
        Take the status of every child that has ended; whether there are any left.
        """
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self.server:
                self.status = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)

    def end_family(self) -> int:
        """
        See the last of the family go; how many had to be told to.
        """
        if self.gone_within(WHEN_ORDERED if self.ordered else BY_ITSELF):
            return 0
        left_over = self.tell(signal.SIGTERM)
        if not self.gone_within(AFTER_TERM):
            pause = 0.05
            while True:
                self.tell(signal.SIGKILL)
                if self.gone_within(pause):
                    break
                pause = min(2 * pause, 2.0)
        return left_over

    def gone_within(self, limit: float) -> bool:
        """
        Wait until nothing of the family is left; an ordered stop cuts the wait short.
        """
        end = time.monotonic() + limit
        while self.any_left():
            rest = end - time.monotonic()
            if rest <= 0 or self.signals(rest if self.adopts else min(rest, 0.05)):
                return not self.any_left()
        return True

    def any_left(self) -> bool:
        """
        Whether any process of the family lives.
        """
        children = self.reap()
        if children or self.adopts:
            return children
        try:
            os.killpg(self.server, 0)
        except OSError:
            return False
        return True

    def tell(self, number: int) -> int:
        """
        Send a signal to all that is left; to how many.
        """
        if not self.adopts:
            try:
                os.killpg(self.server, number)
            except OSError:
                return 0
            return 1
        members = descendants(os.getpid())
        for pid, start in members:
            send(pid, start, number)
        if number == signal.SIGKILL:
            self.killed |= set(members)
        return len(members)


def adopt_orphans() -> bool:
    """
    Have the kernel hand us what our descendants leave behind; whether it will.
    """
    if not os.path.exists(PROC + "/self/stat"):
        return False
    try:
        return bool(ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False


def descendants(root: int) -> list[tuple[int, str]]:
    """
    The living descendants of a process: pid and start time of each.
    """
    children: dict[int, list[tuple[int, str]]] = {}
    for name in os.listdir(PROC):
        fields = stat_of(int(name)) if name.isdigit() else None
        if fields is not None:
            children.setdefault(int(fields[1]), []).append((int(name), fields[19]))
    found: list[tuple[int, str]] = []
    waiting = [root]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += [pid for pid, _ in below]
    return found


def stat_of(pid: int) -> list[str] | None:
    """
    The fields of /proc/PID/stat from the state on; None for a dead process.
    """
    try:
        with open(f"{PROC}/{pid}/stat", "rb") as file:
            fields = file.read().decode("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return None
    return fields if fields and fields[0] not in "ZXx" else None


def send(pid: int, start: str, number: int) -> None:
    """
    Signal that very process, and none that was given its pid since.
    """
    handle = None
    try:
        if hasattr(os, "pidfd_open") and hasattr(signal, "pidfd_send_signal"):
            handle = os.pidfd_open(pid)
        fields = stat_of(pid)
        if fields is None or fields[19] != start:
            return
        if handle is None:
            os.kill(pid, number)
        else:
            signal.pidfd_send_signal(handle, number)
    except OSError:
        return
    finally:
        if handle is not None:
            os.close(handle)


def reserve(name: str) -> None:
    """
    Take the room for a record while there is some.
    """
    record(name + ".new", {}, final=False)


def insist(name: str, content: dict[str, Any]) -> None:
    """
    Record something, again and again while the disk is full.
    """
    end = time.monotonic() + RECORD_PATIENCE
    while not record(name, content) and time.monotonic() < end:
        time.sleep(1.0)


def record(name: str, content: dict[str, Any], *, final: bool = True) -> bool:
    """
    Write a record and move it into place; whether that worked. Readers see it whole or not at all.
    """
    text = json.dumps(content).encode().ljust(RECORD_BYTES - 1) + b"\n"
    beside = name + ".new" if final else name
    try:
        handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            whole = os.pwrite(handle, text, 0) == len(text)
            if whole and final:
                os.rename(beside, name)
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError:
        return False
    return whole


if __name__ == "__main__":
    sys.exit(Supervisor().run(sys.argv[1], sys.argv[2:]))
