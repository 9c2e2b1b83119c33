"""
The memory of our control group and of those above it: limits, use, and how often something was killed.

Versions 2 and 1, in containers and outside of them. `MTPDEPLOY_CGROUP` names another place for
/sys/fs/cgroup.
"""

from __future__ import annotations

import os
from typing import Any

from mtpdeploy.onbox.identity import proc_root, read_file

UNLIMITED = 1 << 60
"""No limit is "max" in version 2 and a number near 2**63 in version 1."""

KNOWN_BY = ("memory.max", "memory.events", "memory.limit_in_bytes", "memory.oom_control")
"""Files of which a folder has one where it is a control group with memory; the topmost may lack others."""


def memory_groups(places: list[str] | None = None) -> list[dict[str, Any]]:
    """
    Our own control group first, then those above it as far as they can be seen: `memory_group()` of each.

    In a container the topmost that is seen is the container's own. `places` are asked instead where given:
    the groups of a run are not those of a later login. One that is gone (a login's, with its last process)
    is passed over.
    """
    return [memory_group(place) for place in (folders() if places is None else places) if is_group(place)]


def folders() -> list[str]:
    """
    Where our control groups may be, the own one first. Version 1 has memory apart, where it has it.
    """
    root = os.environ.get("MTPDEPLOY_CGROUP", "/sys/fs/cgroup")
    places: list[str] = []
    listed = read_file(f"{proc_root() or '/proc'}/self/cgroup").decode("utf-8", "replace")
    for line in sorted(listed.splitlines(), reverse=True):
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if "memory" in controllers.split(","):
            places += upwards(os.path.join(root, "memory"), path)
        elif number == "0":
            places += upwards(root, path)
    return list(dict.fromkeys([*places, root, os.path.join(root, "memory")]))


def upwards(top: str, path: str) -> list[str]:
    """
    The folder of a control group below `top`, and all above it.

    A path that leads out of what is seen ("/../…", from another namespace) means the topmost.
    """
    names = [name for name in path.split("/") if name]
    if ".." in names:
        names = []
    return [os.path.join(top, *names[:count]) for count in range(len(names), -1, -1)]


def is_group(folder: str) -> bool:
    """
    Whether a folder is a control group that counts memory.
    """
    return any(os.path.exists(os.path.join(folder, name)) for name in KNOWN_BY)


def memory_group(folder: str) -> dict[str, Any]:
    """
    `{"path", "limit", "used", "oom_kill", "hit", "below"}` of one control group, None for what is not told.

    `limit` and `used` are bytes, `used` without the page cache. `oom_kill` counts the processes that were
    killed for want of memory, by the group's limit or the machine's, and `hit` how often the limit was
    reached; both since the group was made, and with what happened `below` it in version 2 only
    (linux/mm/memcontrol: memcg_memory_event).
    """
    events = counters(folder, "memory.events") or counters(folder, "memory.events.local")
    control = counters(folder, "memory.oom_control")
    limit = first_number(folder, "memory.max", "memory.limit_in_bytes")
    used = first_number(folder, "memory.current", "memory.usage_in_bytes")
    if used is not None:
        cache = counters(folder, "memory.stat")
        used = max(0, used - cache.get("total_inactive_file", cache.get("inactive_file", 0)))
    return {
        "path": folder,
        "limit": None if limit is None or limit >= UNLIMITED else limit,
        "used": used,
        "oom_kill": events.get("oom_kill", control.get("oom_kill")),
        "hit": events.get("max", first_number(folder, "memory.failcnt")),
        "below": bool(events),
    }


def counters(folder: str, name: str) -> dict[str, int]:
    """
    A file of lines `name number`; what is written otherwise is left out.
    """
    found = {}
    for line in read_file(os.path.join(folder, name)).splitlines():
        key, _, value = line.partition(b" ")
        if value.strip().isdigit():
            found[key.decode("utf-8", "replace")] = int(value)
    return found


def first_number(folder: str, *names: str) -> int | None:
    """
    The number in the first of some files that holds one.
    """
    for name in names:
        text = read_file(os.path.join(folder, name)).strip()
        if text.isdigit():
            return int(text)
    return None
