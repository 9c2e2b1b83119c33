"""
Everything a deployment asks of a box, answered at once.

The request: {work_dir, configured, pythons, env, model, port, known_versions, runs, nvidia_smi_limit,
secrets_file, secrets}.
What takes long (nvidia-smi, other interpreters) is asked beside the rest.
"""

from __future__ import annotations

import base64
import json
import os
import re
import time
import zlib
from typing import Any

from mtpdeploy.onbox.cgroups import memory_groups
from mtpdeploy.onbox.identity import identify, proc_root, read_file, same, table, user_name
from mtpdeploy.onbox.interpreters import Interpreters
from mtpdeploy.onbox.model import model_facts, small_text
from mtpdeploy.onbox.nvidiasmi import NvidiaSmi
from mtpdeploy.onbox.processes import HOUSE, Crowd
from mtpdeploy.onbox.record import process_of
from mtpdeploy.onbox.secretsfile import secrets_facts
from mtpdeploy.onbox.workdir import launching, work_dir_facts

LONGEST_PLAIN = 64 * 1024
LONGEST_RECORD = 1024 * 1024


def holder_pids(holders: str) -> set[int]:
    """
    The pids in nvidia-smi's table of compute processes.
    """
    fields = [line.split(",")[1].strip() for line in holders.splitlines() if line.count(",") >= 2]
    return {int(field) for field in fields if field.isdigit()}


def memory_facts() -> dict[str, Any]:
    """
    Bytes of memory that a server may still take, and the least limit of its control groups if there is one.

    `MTPDEPLOY_MEMINFO` names another place for /proc/meminfo.
    """
    place = os.environ.get("MTPDEPLOY_MEMINFO") or f"{proc_root() or '/proc'}/meminfo"
    found = re.search(rb"(?m)^MemAvailable: +(\d+) kB", read_file(place))
    room = [int(found[1]) * 1024] if found else []
    limited = [group for group in memory_groups() if group["limit"] is not None]
    room += [max(0, group["limit"] - group["used"]) for group in limited if group["used"] is not None]
    return {"free": min(room, default=None), "limit": min((g["limit"] for g in limited), default=None)}


def run_records(folder: str, newest: int, crowd: Crowd) -> dict[str, Any]:
    """
    What the newest run directories say, and who of them lives; and why they could not be looked at.
    """
    problem = ""
    names = []
    try:
        with os.scandir(folder) as entries:
            names = sorted(e.name for e in entries if e.is_dir(follow_symlinks=False))
        os.stat(os.path.join(folder, "."))
    except FileNotFoundError:
        pass
    except OSError as error:
        problem = f"{error.strerror}: {folder}"
    records = [run_record(os.path.join(folder, name), crowd) for name in reversed(names[-newest:])]
    return {"runs": records, "runs_problem": problem}


def run_record(folder: str, crowd: Crowd) -> dict[str, Any]:
    """
    One run directory. A file that cannot be read counts as one that is not there.
    """
    name = os.path.basename(folder)
    process = process_of(folder)
    ended = document(os.path.join(folder, "exit"))
    starting = False
    if process is None and ended is None:
        # The lock is held until `proc` stands: where it is free, what `proc` says now is the last word.
        starting = launching(os.path.dirname(os.path.dirname(folder)))
        process = process_of(folder)
    attempt = small_text(os.path.join(folder, "attempt.json"), LONGEST_RECORD) or ""
    alive = process is not None and same(process)
    status = None if ended is None else ended.get("status")
    log = log_of(attempt, process)
    return {
        "name": name,
        "attempt": attempt,
        "process": (identify(process["pid"]) if process is not None and alive else None) or process,
        "alive": alive,
        "launching": starting,
        "exit_status": status if isinstance(status, int) else None,
        "log": log,
        "log_bytes": size_of(os.path.join(folder, log)) if log else 0,
        "outcome": small_text(os.path.join(folder, "outcome.json"), LONGEST_RECORD),
        "stopped_by": str((document(os.path.join(folder, "stop")) or {}).get("by") or "") or None,
        "family": crowd.family(name, process["pid"] if process is not None and alive else None),
    }


def log_of(attempt: str, process: dict[str, Any] | None) -> str | None:
    """
    The name of a run's log: what the running script says, else what was intended.
    """
    if process is not None and process.get("log"):
        return os.path.basename(str(process["log"]))
    try:
        log = json.loads(attempt or "{}").get("log")
    except (ValueError, AttributeError):
        return None
    return os.path.basename(log) if isinstance(log, str) else None


def document(path: str) -> dict[str, Any] | None:
    """
    A small JSON object in a file, or None.
    """
    try:
        content = json.loads(small_text(path) or "")
    except ValueError:
        return None
    return content if isinstance(content, dict) else None


def size_of(path: str) -> int:
    """
    The bytes of a file; 0 where it is not there.
    """
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def environment(request: dict[str, Any]) -> dict[str, str]:
    """
    What a server would see: our own environment with the variables of the host and the server on top.
    """
    return dict(os.environ, **request["env"])


def packed(answer: dict[str, Any]) -> str:
    """
    The answer as JSON, deflated where it is long: many runs over a slow line.
    """
    text = json.dumps(answer)
    if len(text) <= LONGEST_PLAIN:
        return text
    return json.dumps({"zlib": base64.b64encode(zlib.compress(text.encode(), 1)).decode()})


def main(request: dict[str, Any]) -> None:
    """
    Ask everything and print one JSON document.
    """
    begun = time.time()
    env = environment(request)
    cards = NvidiaSmi(env, request["nvidia_smi_limit"])
    interpreters = Interpreters(request["configured"], request["pythons"], env)
    work_dir = os.path.abspath(os.path.expanduser(request["work_dir"]))
    crowd = Crowd(table())
    answer: dict[str, Any] = {
        "begun": begun,
        "user": user_name(os.geteuid()),
        "home": os.path.expanduser("~"),
        "work_dir": work_dir_facts(work_dir),
        "memory": memory_facts(),
        **run_records(os.path.join(work_dir, "runs"), request["runs"], crowd),
        "model": model_facts(request["model"], env) if request["model"] else None,
        "secrets": secrets_facts(os.path.join(work_dir, request["secrets_file"]), request["secrets"], env)
        if request["secrets"]
        else None,
        "simulated": HOUSE in env or env.get("MTPDEPLOY_DEMO") == "1",
        "python": interpreters.answer(request["known_versions"]),
    }
    answer["nvidia_smi"] = cards.answer()
    answer["crowd"] = crowd.of_interest(holder_pids(answer["nvidia_smi"].get("holders", "")), request["port"])
    answer["now"] = time.time()
    print(packed(answer), flush=True)
