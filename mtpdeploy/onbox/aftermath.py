"""
What the box tells after the death of a run: the kernel, the control group, the disks, the GPUs.

Every source is optional, and none is waited for longer than some seconds.
"""

from __future__ import annotations

import json
import os
import re
import time
from typing import Any

from mtpdeploy.onbox.baseline import recalled, standing
from mtpdeploy.onbox.cgroups import memory_groups
from mtpdeploy.onbox.kernellog import kernel_log
from mtpdeploy.onbox.model import expanded, hub_cache
from mtpdeploy.onbox.nvidiasmi import GPU_FIELDS, NvidiaSmi
from mtpdeploy.onbox.rooms import Rooms

OF_INTEREST = re.compile(
    r"Killed process \d|Out of memory|oom-kill:|NVRM: (?:Xid|GPU)|fallen off the bus|segfault at |traps: "
)
"""What a line of the kernel's log has to hold to be told."""

LINES = 60
"""Lines told at most, the oldest first: what comes later is mostly a consequence."""

LONGEST_LINE = 400

TEMPORARY = "/tmp"  # noqa: S108 - where programs write that are given no TMPDIR
SHARED = "/dev/shm"  # noqa: S108 - the place has no other name

ROOM_LIMIT = 3.0
"""Seconds for all disks; a local one answers in microseconds, one behind a dead network never."""


def main(request: dict[str, Any]) -> None:
    """
    Answer `{"run_dir", "work_dir", "model", "env", "nvidia_smi_limit"}` with what is told of the run's end.
    """
    env = dict(os.environ, **request["env"])
    rooms = Rooms(places(request, env))
    until = time.monotonic() + ROOM_LIMIT
    nvidia_smi = NvidiaSmi(env, request["nvidia_smi_limit"], GPU_FIELDS + ",pci.bus_id")
    before = recalled(os.path.abspath(os.path.expanduser(request["run_dir"])))
    now = standing()
    groups = [str(group["path"]) for group in before.get("groups") or []]
    answer = {
        "before": before or None,
        "boot": now["boot"],
        "first": now["first"],
        "groups": memory_groups(groups if before else None),
        "kernel": since(before, now),
        "rooms": rooms.answer(until),
        "nvidia_smi": nvidia_smi.answer(),
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


def places(request: dict[str, Any], env: dict[str, str]) -> dict[str, str]:
    """
    Where a server writes, and where its model lies, by name.
    """
    found = {"work_dir": os.path.abspath(os.path.expanduser(request["work_dir"]))}
    model = expanded(request["model"], env)
    if os.path.isabs(model):
        found["model"] = model
    return {**found, "cache": hub_cache(env), "tmp": env.get("TMPDIR") or TEMPORARY, "shm": SHARED}
