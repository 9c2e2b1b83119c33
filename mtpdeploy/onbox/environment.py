"""
Whether a run's server has the environment that it was to be given. No value leaves the box.
"""

from __future__ import annotations

import json
import os
from typing import Any

from mtpdeploy.onbox.identity import (
    ancestors,
    below,
    listeners,
    listening_sockets,
    living,
    proc_root,
    read_file,
    sockets_of,
    table,
)
from mtpdeploy.onbox.record import process_of


def main(request: dict[str, Any]) -> None:
    """
    Answer `{"run_dir", "port", "variables", "secrets"}` with the names that are missing or have other values.

    `variables` are names with their values, `secrets` names alone, which must have any value but "". The
    answer is `{"pid", "missing", "different", "problem"}`.
    """
    pid = server_of(os.path.abspath(os.path.expanduser(request["run_dir"])), request["port"])
    given = None if pid is None else environment_of(pid)
    answer: dict[str, Any] = {"pid": pid, "missing": [], "different": [], "problem": ""}
    if pid is None:
        answer["problem"] = "the run's process is not there"
    elif given is None:
        answer["problem"] = f"the environment of process {pid} cannot be read"
    else:
        wanted = {os.fsencode(name): os.fsencode(value) for name, value in request["variables"].items()}
        secrets = [os.fsencode(name) for name in request["secrets"]]
        missing = [name for name in wanted if name not in given] + [n for n in secrets if not given.get(n)]
        different = [name for name in wanted if name in given and given[name] != wanted[name]]
        answer["missing"] = sorted(os.fsdecode(name) for name in missing)
        answer["different"] = sorted(os.fsdecode(name) for name in different)
    print(json.dumps(answer))


def server_of(run_dir: str, port: int) -> int | None:
    """
    The server's main process: the one of the run that listens on the port, else what the supervisor started.

    A wrapper may start the server as a child, so the listener goes first; of several (workers inherit the
    socket, and carry titles in the place of their environment) the one nearest to the supervisor. That one
    starts the server alone in a session of its own (templates/supervise.py). A recorded process without
    such a child is the server itself: a template without a supervisor.
    """
    record = process_of(run_dir)
    entries = {entry["pid"]: entry for entry in table() if living(entry)}
    if record is None or record["pid"] not in entries:
        return None
    top = int(record["pid"])
    members = below({top}, list(entries.values()))
    listening = listening_among(members, port)
    started = [pid for pid in members if entries[pid]["ppid"] == top and entries[pid]["sid"] == pid]
    nearest = sorted(listening or started, key=lambda pid: (len(ancestors(pid, entries)), pid))
    return nearest[0] if nearest else top


def listening_among(pids: set[int], port: int) -> list[int]:
    """
    Those of some processes that listen on a port, all of them where several share the socket.
    """
    root = proc_root()
    if root is None:
        return [pid for pid in listeners(port) if pid in pids]
    wanted = listening_sockets(root, port)
    return [pid for pid in pids if wanted and sockets_of(root, pid) & wanted]


def environment_of(pid: int) -> dict[bytes, bytes] | None:
    """
    The environment that a process was started with; None where it shows none.

    What writes a title over it (setproctitle) leaves no `NAME=value`: SGLang's main process does not.
    """
    words = read_file(f"{proc_root() or '/nowhere'}/{pid}/environ").split(b"\0")
    found = dict(word.split(b"=", 1) for word in words if b"=" in word)
    return found or None
