"""
What the box tells after the death of a run: the kernel, the control group, the disks, the GPUs.

Every source is optional, and none is waited for longer than some seconds.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from typing import Any

from mtpdeploy.onbox.asked import Asked
from mtpdeploy.onbox.baseline import recalled, standing
from mtpdeploy.onbox.cgroups import memory_groups
from mtpdeploy.onbox.kernellog import kernel_log
from mtpdeploy.onbox.model import expanded, hub_cache
from mtpdeploy.onbox.survey import NvidiaSmi

OF_INTEREST = re.compile(
    r"Killed process \d|Out of memory|oom-kill:|NVRM: (?:Xid|GPU)|fallen off the bus|segfault at |traps: "
)
"""What a line of the kernel's log has to hold to be told."""

LINES = 60
"""Lines told at most, the oldest first: what comes later is mostly a consequence."""

LONGEST_LINE = 400

TEMPORARY = "/tmp"  # noqa: S108 - where programs write that are given no TMPDIR
SHARED = "/dev/shm"  # noqa: S108 - the place has no other name

ADDRESSES = "--query-gpu=index,pci.bus_id"

ROOM = """
import json, os, sys
path = sys.argv[1]
while not os.path.exists(path) and os.path.dirname(path) != path:
    path = os.path.dirname(path)
disk = os.statvfs(path)
numbers = disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize, disk.f_favail, disk.f_files
print(json.dumps([os.stat(path).st_dev, *numbers]))
"""
"""Asked in a process of its own for each place: a disk behind a dead network hangs whoever looks."""

ROOM_LIMIT = 3.0
"""Seconds for all disks; a local one answers in microseconds."""


def main(request: dict[str, Any]) -> None:
    """
    Answer `{"run_dir", "work_dir", "model", "env", "nvidia_smi_limit"}` with what is told of the run's end.
    """
    env = dict(os.environ, **request["env"])
    nvidia_smi = NvidiaSmi(env, request["nvidia_smi_limit"])
    addresses = asked_addresses(nvidia_smi)
    rooms = {name: asked_room(path) for name, path in places(request, env).items()}
    before = recalled(os.path.abspath(os.path.expanduser(request["run_dir"])))
    now = standing()
    groups = before.get("groups") or []
    answer = {
        "before": before or None,
        "boot": now["boot"],
        "first": now["first"],
        "groups": memory_groups([str(group["path"]) for group in groups] if before else None),
        "kernel": since(before, now),
        "rooms": rooms_told(rooms),
        "nvidia_smi": nvidia_smi.answer(),
        "addresses": addresses_told(addresses, nvidia_smi.until),
    }
    print(json.dumps(answer), flush=True)


def since(before: dict[str, Any], now: dict[str, Any]) -> list[str] | None:
    """
    The lines of interest that the kernel has written since the launch; None where that cannot be told.
    """
    if before.get("kernel") is None or before.get("boot") != now["boot"]:
        return None
    lines = kernel_log()
    if lines is None:
        return None
    later = [text for seconds, text in lines if seconds > float(before["kernel"])]
    return [text[:LONGEST_LINE] for text in later if OF_INTEREST.search(text)][:LINES]


def asked_addresses(nvidia_smi: NvidiaSmi) -> Asked | None:
    """
    The question for the PCI address of each GPU, which an Xid goes by.
    """
    if nvidia_smi.program is None:
        return None
    return Asked([nvidia_smi.program, ADDRESSES, "--format=csv,noheader"], dict(os.environ))


def addresses_told(asked: Asked | None, until: float) -> dict[str, str]:
    """
    PCI addresses by the index of the GPU; none where nvidia-smi does not tell.
    """
    table = asked.answer(until) if asked is not None else None
    if asked is None or table is None or asked.status:
        return {}
    rows = [[field.strip() for field in line.split(",")] for line in table.splitlines()]
    return {row[0]: row[1] for row in rows if len(row) == 2 and row[0].isdigit()}


def places(request: dict[str, Any], env: dict[str, str]) -> dict[str, str]:
    """
    Where a server writes, and where its model lies, by name.
    """
    found = {"work_dir": os.path.abspath(os.path.expanduser(request["work_dir"]))}
    model = expanded(request["model"], env)
    if os.path.isabs(model):
        found["model"] = model
    return {**found, "cache": hub_cache(env), "tmp": env.get("TMPDIR") or TEMPORARY, "shm": SHARED}


def asked_room(path: str) -> tuple[str, Asked]:
    """
    The question for the room at a place.
    """
    return path, Asked([sys.executable, "-I", "-S", "-c", ROOM, path], dict(os.environ))


def rooms_told(rooms: dict[str, tuple[str, Asked]]) -> dict[str, dict[str, Any]]:
    """
    What was answered in time, each disk once and under the first of its names.
    """
    until = time.monotonic() + ROOM_LIMIT
    told: dict[str, dict[str, Any]] = {}
    seen = set()
    for name, (path, asked) in rooms.items():
        answer = asked.answer(until)
        if answer is None or asked.status:
            continue
        device, free, total, files_free, files = json.loads(answer)
        if device not in seen:
            told[name] = {"path": path, "free": free, "total": total}
            told[name]["files_free"] = files_free if files else None
        seen.add(device)
    return told
