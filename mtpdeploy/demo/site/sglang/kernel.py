"""What the box's kernel would show of memory and faults: a simulated log and control group in the home."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Dict

# Where mtpdeploy's programs look for them in place of /dev/kmsg, /sys/fs/cgroup and /proc/meminfo.
LOG_VARIABLE, GROUP_VARIABLE, MEMORY_VARIABLE = "MTPDEPLOY_KMSG", "MTPDEPLOY_CGROUP", "MTPDEPLOY_MEMINFO"

# NVIDIA's wording of some Xids in the kernel's log, as public reports quote them.
XID_TEXTS = {
    13: "pid=%d, name=python3, Graphics Exception: ESR 0x504648=0x12000e",
    31: "pid=%d, name=python3, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS faulted",
    48: "pid=%d, name=python3, An uncorrectable double bit error (DBE) has been detected on GPU",
    79: "pid=%d, name=python3, GPU has fallen off the bus.",
    119: "pid=%d, name=python3, Timeout after 45s of waiting for RPC response from GPU0 GSP!",
}


def variables(home: Path) -> Dict[str, str]:
    """The environment by which a login's programs find the simulated kernel."""
    names = {LOG_VARIABLE: "kmsg", GROUP_VARIABLE: "cgroup", MEMORY_VARIABLE: "meminfo"}
    return {variable: str(home / "kernel" / name) for variable, name in names.items()}


def lay_out(home: Path, free: int, limit: int) -> None:
    """
    A control group of version 2 in which nothing was killed and which uses nothing yet, free memory of the
    machine, and a log that says that it is simulated.
    """
    group = home / "kernel" / "cgroup"
    group.mkdir(parents=True)
    (group / "memory.max").write_text(f"{limit}\n")
    (group / "memory.current").write_text("0\n")
    (home / "kernel" / "meminfo").write_text(f"MemAvailable: {free // 1024} kB\n")
    _count(group, kills=0)
    say(home, "mtpdeploy: the kernel of this demo box is simulated")


def say(home: Path, text: str) -> None:
    """One more line of the kernel's log, in the format of /dev/kmsg."""
    log = home / "kernel" / "kmsg"
    number = len(log.read_text().splitlines()) if log.exists() else 0
    with log.open("a") as file:
        file.write(f"4,{number},{int(time.monotonic() * 1e6)},-;{text}\n")


def kill_for_memory(home: Path, pid: int, name: str) -> None:
    """Count and tell a kill by the control group's limit. The signal is the caller's."""
    group = home / "kernel" / "cgroup"
    limit = int((group / "memory.max").read_text())
    kills = int((group / "memory.events").read_text().rpartition(" ")[2])
    _count(group, kills=kills + 1)
    (group / "memory.current").write_text(f"{limit}\n")
    rss = limit // 1024
    say(home, f"Memory cgroup out of memory: Killed process {pid} ({name[:15]}) anon-rss:{rss}kB")


def report_xid(home: Path, number: int, pid: int) -> None:
    """Tell a fault of the GPU as NVIDIA's driver does."""
    text = XID_TEXTS.get(number, "pid=%d, name=python3")
    say(home, f"NVRM: Xid (PCI:0000:01:00): {number}, {text % pid}")


def _count(group: Path, kills: int) -> None:
    (group / "memory.events").write_text(f"low 0\nhigh 0\nmax {kills}\noom {kills}\noom_kill {kills}\n")
