"""
Count what a run's family uses and watch who listens on its port.
"""

from __future__ import annotations

import os
import time
from typing import Any

from mtpdeploy.onbox.identity import (
    family,
    listeners,
    listening_sockets,
    output_of,
    proc_root,
    read_stat,
    same,
    table,
)

PORT_POLL = 0.25  # seconds: a listener is known long before the model answers
SLOW_POLL = 1.0  # seconds between two looks that start a program (ps, lsof), where there is no /proc
COMPILERS = frozenset(
    {"nvcc", "cicc", "ptxas", "fatbinary", "cudafe++", "nvlink", "ninja", "cmake", "ld"}
    | {"cc", "c++", "gcc", "g++", "cc1", "cc1plus", "clang", "clang++"}
)
"""Names of programs that triton, flashinfer, DeepGEMM and torch extensions start while a log is silent."""


class Census:
    """
    What the family of the run `name` uses and who listens on its port, counted in a thread: it can take
    long. `process` is the run's recorded process, set from outside.
    """

    def __init__(self, name: str, port: int | None, every: float) -> None:
        self.name = name
        self.port = port
        self.every = every
        self.process: dict[str, Any] | None = None
        self.usage: dict[str, Any] = {}
        self.listening: dict[str, Any] | None = None
        self.sockets: set[str] | None = None

    def work(self) -> None:
        """
        Count for ever.
        """
        pause = PORT_POLL if proc_root() else SLOW_POLL
        while True:
            members = self.count()
            self.ask_port(members)
            until = time.monotonic() + self.every
            while time.monotonic() < until:
                time.sleep(min(pause, self.every))
                if self.port_changed():
                    self.ask_port(self.members(table()))

    def members(self, processes: list[dict[str, Any]]) -> set[int]:
        """
        The pids of the living family, the recorded process included.
        """
        process = self.process
        pids = {entry["pid"] for entry in family(process, self.name, processes)}
        return pids | ({process["pid"]} if process is not None and same(process) else set())

    def count(self) -> set[int]:
        """
        Add up what the family uses.
        """
        processes = table()
        pids = self.members(processes)
        seconds, resident = usage(pids)
        programs = (os.path.basename(e["cmdline"].split(" ")[0]) for e in processes if e["pid"] in pids)
        compilers = sum(1 for program in programs if program in COMPILERS)
        self.usage = {"cpu": seconds, "rss": resident, "procs": len(pids), "compilers": compilers}
        return pids

    def port_changed(self) -> bool:
        """
        Whether other sockets listen than at the last look; cheap where there is a /proc.
        """
        root = proc_root()
        if self.port is None or root is None:
            return self.port is not None
        return listening_sockets(root, self.port) != self.sockets

    def ask_port(self, members: set[int]) -> None:
        """
        Find out who listens on the port: the run's family, another one, nobody.
        """
        if self.port is None:
            return
        root = proc_root()
        self.sockets = listening_sockets(root, self.port) if root else None
        pids = listeners(self.port)
        strangers = [pid for pid in pids if pid not in members]
        owner = "other" if strangers else "run" if pids else "none"
        self.listening = {"owner": owner, "pid": (strangers or pids or [0])[0]}


def usage(pids: set[int]) -> tuple[float, int]:
    """
    CPU seconds, those of ended and reaped children included, and resident bytes of some processes.
    """
    root = proc_root()
    if root is None:
        return ps_usage(pids)
    ticks = pages = 0
    for fields in (read_stat(root, pid) for pid in pids):
        if fields is not None:
            ticks += sum(int(field) for field in fields[11:15])
            pages += int(fields[21])
    return ticks / os.sysconf("SC_CLK_TCK"), pages * os.sysconf("SC_PAGE_SIZE")


def ps_usage(pids: set[int]) -> tuple[float, int]:
    """
    `usage()` where there is no /proc; children that ended are not counted there.
    """
    words = ["ps", "-o", "time=,rss=", "-p", ",".join(str(pid) for pid in pids) or "0"]
    figures = [ps_figures(line) for line in output_of(words).splitlines()]
    return sum(seconds for seconds, _ in figures), sum(resident for _, resident in figures)


def ps_figures(line: str) -> tuple[float, int]:
    """
    CPU seconds and resident bytes from a line such as `1:02.50 1024` (macOS) or `1-02:03:04 1024`.
    """
    clock, kibibytes = line.split()
    days, _, rest = clock.rpartition("-")
    seconds = 0.0
    for part in rest.split(":"):
        seconds = seconds * 60 + float(part)
    return seconds + int(days or 0) * 86400, int(kibibytes) * 1024
