"""
What stood on the box when a run was launched, for whoever asks after its death what has changed since.

A container that had an `oom_kill` last week still counts it today.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any

from mtpdeploy.onbox.cgroups import memory_groups
from mtpdeploy.onbox.files import read_record, store
from mtpdeploy.onbox.identity import boot_id, proc_root, read_stat
from mtpdeploy.onbox.kernellog import last_moment

BASELINE = "baseline"
"""Its name in a run's directory."""

FRESH = 90.0
"""
Seconds between the baseline and the script's first act: a launch waits at most 20 for that (onbox/launch.py).
A script that somebody ran by hand later is another start, of which nothing is known.
"""


def remember(run_dir: str) -> None:
    """
    Write the baseline of a run that is about to start. What cannot be told or written is left out.
    """
    told = {"at": time.time(), **standing(), "kernel": last_moment()}
    try:
        store(os.path.join(run_dir, BASELINE), json.dumps(told) + "\n", 0o600)
    except OSError:
        return


def recalled(run_dir: str) -> dict[str, Any]:
    """
    The baseline of a run; empty where there is none, or where it is another start's.
    """
    told = read_record(os.path.join(run_dir, BASELINE)) or {}
    try:
        late = os.stat(os.path.join(run_dir, "proc")).st_mtime - float(told["at"])
    except (OSError, KeyError, TypeError, ValueError):
        return {}
    return told if abs(late) < FRESH else {}


def standing() -> dict[str, Any]:
    """
    What stands now: `{"boot", "first", "groups", "gpus"}`.

    `first` is the start time of the first process; `gpus` are the PCI addresses of the GPUs that the driver
    shows, in a container those that were given to it.
    """
    root = proc_root()
    fields = read_stat(root, 1) if root else None
    return {
        "boot": boot_id(root),
        "first": fields[19] if fields is not None and len(fields) > 19 else "",
        "groups": memory_groups(),
        "gpus": cards(root),
    }


def cards(root: str | None) -> list[str]:
    """
    The names in the driver's folder of GPUs: `0000:01:00.0`.
    """
    try:
        return sorted(os.listdir(f"{root}/driver/nvidia/gpus")) if root else []
    except OSError:
        return []
