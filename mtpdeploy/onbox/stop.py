"""
End runs and other servers by identity, and wait until what they held is free again.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
import time
from typing import Any

from mtpdeploy.onbox.files import store
from mtpdeploy.onbox.identity import (
    below,
    family,
    identity_of,
    listeners,
    living,
    output_of,
    proc_root,
    read_file,
    same,
    send,
    table,
)
from mtpdeploy.onbox.record import process_of

SHARED = "/dev/shm"  # noqa: S108 - where the kernel keeps shared memory

LEAVINGS = (
    "psm_",
    "sem.",
    "torch_",
    "nccl-",
    "cuda.shm.",
    "sglang_loads_",
    "sgl_shm_",
    "multi_tokenizer_args_",
)
"""
Beginnings of names in /dev/shm that servers make for themselves: CPython 3.12 (shared_memory.py),
glibc (sem_open), PyTorch 2.9 (libshm), NCCL 2.28 (shmutils.cc), and what SGLang 0.5.23 sweeps up after itself
in its own CI (srt/utils/stale_shm_cleanup.py). Anything else may be a user's.
"""

FIRST_PAUSE = 0.02
LONGEST_PAUSE = 0.25
"""Seconds between two looks: from a quick death to a slow one."""

MIB = 1024 * 1024
"""Bytes in the unit that nvidia-smi counts memory in."""


class Targets:
    """
    What is to end: every process seen in the families so far, by identity.
    """

    def __init__(self, runs: list[str], processes: list[dict[str, Any]]) -> None:
        self.runs = [os.path.abspath(os.path.expanduser(run)) for run in runs]
        self.members: dict[tuple[int, str], dict[str, Any]] = {}
        self.supervisors: set[tuple[int, str]] = set()
        self.killed: set[tuple[int, str]] = set()
        self.first: list[dict[str, Any]] = []
        entries = table()
        for run in self.runs:
            self.add_run(run, entries)
        for identity in processes:
            if same(identity):
                self.add_process(identity, entries)

    def add_run(self, run: str, entries: list[dict[str, Any]]) -> None:
        """
        Take in the family of a run; asked first is its supervisor, or all where that is dead.
        """
        record = process_of(run)
        members = family(record, os.path.basename(run), entries)
        self.add(members)
        if record is not None and same(record):
            supervisor = {key: record[key] for key in ("pid", "start", "boot", "pid_ns")}
            self.add([supervisor])
            self.supervisors.add(key_of(supervisor))
            self.first.append(supervisor)
            return
        self.first += members

    def add_process(self, identity: dict[str, Any], entries: list[dict[str, Any]]) -> None:
        """
        Take in a process with everything below it, and its process group where it leads one.
        """
        pid = identity["pid"]
        leads = any(entry["pid"] == pid == entry["pgid"] for entry in entries)
        group = [entry for entry in entries if leads and entry["pgid"] == pid and living(entry)]
        self.add([identity, *family(identity, None, entries), *(identity_of(entry) for entry in group)])
        self.first.append(identity)

    def add(self, identities: list[dict[str, Any]]) -> None:
        """
        Remember identities; one that is known stays as it is.
        """
        for identity in identities:
            self.members.setdefault(key_of(identity), identity)

    def alive(self) -> list[dict[str, Any]]:
        """
        Those that still live, and what they have started meanwhile.
        """
        entries = table()
        now = {(entry["pid"], entry["start"]) for entry in entries if living(entry)}
        pids = {pid for pid, start in self.members if (pid, start) in now}
        grown = below(pids, entries) - {os.getpid()}
        self.add([identity_of(entry) for entry in entries if entry["pid"] in grown and living(entry)])
        return [identity for key, identity in self.members.items() if key in now]

    def ask(self) -> None:
        """
        TERM to those that are asked first.
        """
        for identity in self.first:
            send(identity, signal.SIGTERM)

    def gone_within(self, seconds: float, *, kill: bool) -> bool:
        """
        Wait until all are dead. What outlives all that were asked first is asked too.

        With `kill`, end each that lives; the supervisors when half the time is over.
        """
        began = time.monotonic()
        pause = FIRST_PAUSE
        while True:
            alive = self.alive()
            if not alive:
                return True
            passed = time.monotonic() - began
            if passed >= seconds:
                return False
            if kill:
                self.kill(alive, supervisors=passed > seconds / 2)
            elif not any(identity in self.first for identity in alive):
                self.first = alive
                self.ask()
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def kill(self, alive: list[dict[str, Any]], *, supervisors: bool) -> None:
        """
        KILL each of `alive`; a supervisor only if told so, since it still has the end to record.
        """
        for identity in alive:
            key = key_of(identity)
            if (supervisors or key not in self.supervisors) and send(identity, signal.SIGKILL):
                self.killed.add(key)


def main(request: dict[str, Any]) -> None:
    """
    Answer `{"runs", "processes", "grace", "kill_wait", "port", "gpus", "wait", "note"}`.

    `note` says who stops and why; it is left in each run's `stop` file before anything is signalled, so
    that an ordered end is not taken for a failure by whoever follows the run.

    The answer is `{"ended", "killed", "survivors", "port_holder", "gpus", "shared", "seconds"}`;
    `shared` names what was taken out of /dev/shm.
    """
    began = time.monotonic()
    targets = Targets(request["runs"], request["processes"])
    shared = shared_by([key[0] for key in targets.members])
    for run in targets.runs if request["note"] else []:
        leave_note(run, request["note"])
    targets.ask()
    if not targets.gone_within(request["grace"], kill=False):
        for run in targets.runs:
            targets.add(family(None, os.path.basename(run)))
        targets.gone_within(request["kill_wait"], kill=True)
    alive = {key_of(identity) for identity in targets.alive()}
    members = targets.members
    answer: dict[str, Any] = {
        "ended": [members[key] for key in members if key not in alive and key not in targets.killed],
        "killed": [members[key] for key in members if key not in alive and key in targets.killed],
        "survivors": [members[key] for key in members if key in alive],
        "shared": clear_shared(shared, {key[0] for key in members if key not in alive}),
    }
    answer.update(freed(request["port"], request["gpus"], request["wait"], {key[0] for key in members}))
    answer["seconds"] = round(time.monotonic() - began, 3)
    print(json.dumps(answer))


def leave_note(run: str, note: str) -> None:
    """
    Say in a run's directory that it is stopped on purpose; a full disk does not keep it from being stopped.
    """
    with contextlib.suppress(OSError):
        store(os.path.join(run, "stop"), json.dumps({"by": note, "at": time.time()}), 0o600)


def key_of(identity: dict[str, Any]) -> tuple[int, str]:
    """
    What tells two processes of one boot apart.
    """
    return int(identity["pid"]), str(identity["start"])


def freed(port: int | None, gpus: list[dict[str, Any]], wait: float, ours: set[int]) -> dict[str, Any]:
    """
    Wait until the port is free and the memory is back; a port that others hold is not waited for.
    """
    end = time.monotonic() + wait
    pause = FIRST_PAUSE
    while True:
        holders = listeners(port) if port else []
        cards = memory_back(gpus)
        strangers = [pid for pid in holders if pid and pid not in ours]
        settled = not holders or bool(strangers)
        known = all(card["back"] or card["free"] is None for card in cards)
        if (settled and known) or time.monotonic() >= end:
            holder = strangers[0] if strangers else (holders[0] if holders else None)
            return {"port_holder": holder, "gpus": cards}
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)


def memory_back(gpus: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """
    Free bytes of each GPU beside those wanted; `free` is None where nvidia-smi does not tell.
    """
    if not gpus:
        return []
    query = ["nvidia-smi", "--query-gpu=uuid,memory.free", "--format=csv,noheader,nounits"]
    free: dict[str, int] = {}
    for line in output_of(query).splitlines():
        uuid, _, number = line.partition(",")
        if number.strip().isdigit():
            free[uuid.strip()] = int(number) * MIB
    return [card_of(gpu["uuid"], free.get(gpu["uuid"]), gpu["free_at_least"]) for gpu in gpus]


def card_of(uuid: str, free: int | None, wanted: int) -> dict[str, Any]:
    """
    One GPU as the answer tells it.
    """
    return {"uuid": uuid, "free": free, "wanted": wanted, "back": free is not None and free >= wanted}


def shared_by(pids: list[int]) -> set[str]:
    """
    The names in /dev/shm that processes have mapped.
    """
    root = proc_root()
    found: set[str] = set()
    beginning = SHARED.encode() + b"/"
    for pid in pids if root else []:
        for line in read_file(f"{root}/{pid}/maps").splitlines():
            place = line.find(beginning)
            if place >= 0 and not line.endswith(b"(deleted)"):
                found.add(os.fsdecode(line[place + len(beginning) :]))
    return found


def clear_shared(mapped: set[str], dead: set[int]) -> list[str]:
    """
    Remove what the dead left in /dev/shm: their own kind of names, our user's, used by nobody alive.

    Theirs is what they had mapped, and what carries the pid of one of them in its name.
    """
    if not os.path.isdir(SHARED) or not dead:
        return []
    names = [name for name in os.listdir(SHARED) if name.startswith(LEAVINGS)]
    theirs = [name for name in names if name in mapped or named_after(name, dead)]
    in_use = shared_by([entry["pid"] for entry in table()]) if theirs else set()
    removed = []
    for name in theirs:
        path = os.path.join(SHARED, name)
        try:
            about = os.lstat(path)
            if name not in in_use and about.st_uid == os.geteuid() and stat.S_ISREG(about.st_mode):
                os.unlink(path)
                removed.append(name)
        except OSError:
            continue
    return sorted(removed)


def named_after(name: str, pids: set[int]) -> bool:
    """
    Whether one of the parts of a name is one of the pids.
    """
    return any(part.isdigit() and int(part) in pids for part in name.replace("-", "_").split("_"))
