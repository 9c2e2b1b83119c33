"""Who a process is, beyond a pid that the system may give away again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import List, Optional, Tuple


def _stat(pid: int) -> List[str]:
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        return file.read().rpartition(")")[2].split()


def start_of(pid: int) -> Optional[str]:
    """
    When the process began, as the system counts it; None if it is gone or a zombie.

    Linux: field 22 of /proc/PID/stat. Elsewhere: `ps -o lstart`.
    """
    if sys.platform == "linux":
        try:
            after_name = _stat(pid)
        except OSError:
            return None
        return None if after_name[0] in "ZX" else after_name[19]
    answer = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    state, _, start = answer.stdout.strip().partition(" ")
    return None if not state or state.startswith("Z") else start.strip()


def alive(pid: int, start: str) -> bool:
    """Whether the process with this pid is still the one that began then."""
    return start_of(pid) == start


def record(home: Path, role: str) -> None:
    """Note this process in the home, so that `DemoHome.clean` finds and ends it by identity."""
    directory = home / "processes"
    directory.mkdir(exist_ok=True)
    pid = os.getpid()
    entry = {"pid": pid, "start": start_of(pid), "role": role}
    new = directory / f".{pid}"
    new.write_text(json.dumps(entry), encoding="utf-8")
    new.replace(directory / f"{pid}.json")


def recorded(home: Path) -> List[Tuple[int, str, str]]:
    """(pid, start, role) of every living process that the home has noted."""
    found = []
    for path in sorted((home / "processes").glob("*.json")):
        try:
            entry = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if alive(entry["pid"], entry["start"]):
            found.append((entry["pid"], entry["start"], entry["role"]))
    return found


def marked(home: Path, variable: str) -> List[Tuple[int, str, str]]:
    """(pid, start, command) of every process whose environment names this home. Linux only, else empty."""
    if sys.platform != "linux":
        return []
    mark = f"{variable}={home}".encode()
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            with open(f"/proc/{entry}/environ", "rb") as file:
                inside = mark in file.read().split(b"\0")
            with open(f"/proc/{entry}/cmdline", "rb") as file:
                command = file.read().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            continue
        start = start_of(int(entry)) if inside else None
        if start is not None:
            found.append((int(entry), start, command))
    return found


def end(pid: int, start: str) -> None:
    """SIGKILL that process and no other."""
    if alive(pid, start):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return


def wait_gone(pid: int, start: str, seconds: float) -> bool:
    """Whether the process is gone within so many seconds."""
    until = time.monotonic() + seconds
    while alive(pid, start):
        if time.monotonic() > until:
            return False
        time.sleep(0.005)
    return True
