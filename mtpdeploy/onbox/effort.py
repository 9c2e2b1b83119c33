"""
What a family of processes has used up to now: what shows that a silent server is at work.
"""

from __future__ import annotations

import os
import re
import time
from typing import Any

from mtpdeploy.onbox.identity import living, output_of, proc_root, read_file, read_stat

COMPILER = re.compile(
    r"(?:[\w.]+-linux-\w+-)?"  # as gcc and its kin are called where several targets are installed
    r"(nvcc|cicc|ptxas(?:-\w+)?|fatbinary|cudafe\+\+|nvlink|ninja|cmake|make|cc1|cc1plus|cc|c\+\+|gcc|g\+\+"
    r"|clang|clang\+\+|lld|ld|ld\.\w+|collect2|as)"
    r"(?:-[\d.]+)?"
)
"""
Names of programs that Triton (`ptxas-blackwell` in its wheel, gcc or clang for its launcher), flashinfer
(ninja, nvcc), DeepGEMM (nvcc), tilelang (nvcc) and torch's extensions start while a log is silent.
"""

WORKER = "sglang::"
"""How SGLang's child processes begin their title (setproctitle, 0.5.6-0.5.23)."""

UNTITLED = " --multiprocessing-fork"
"""
How the command line of a child ends that Python's multiprocessing spawned, until it takes its title; that of
its resource tracker does not (CPython 3.9-3.14, multiprocessing/spawn.py, get_command_line).
"""

PINNED = (b"VmPin:", b"VmLck:")
"""Memory that is locked, in /proc/PID/status (proc(5)): what a driver or mlock holds in place."""

KIB = 1024


def effort(pids: set[int], processes: list[dict[str, Any]]) -> dict[str, Any]:
    """
    The fields of an `Activity` (core/patience.py) that the system tells of some processes; `processes` is a
    `table()` that was just taken. What it does not tell is None.
    """
    members = [entry for entry in processes if entry["pid"] in pids and living(entry)]
    seconds, resident = usage(pids)
    read, written = transferred(pids)
    return {
        "at": time.monotonic(),
        "processes": len(pids),
        "cpu_seconds": seconds,
        "resident_bytes": resident,
        "pinned_bytes": pinned(pids),
        "read_bytes": read,
        "written_bytes": written,
        "received_bytes": received() if written is None else None,
        "compilers": sorted({name for name in map(compiler, members) if name}),
        "workers": [worker(entry) for entry in members if entry["cmdline"].startswith(WORKER)],
        "untitled": sum(entry["cmdline"].rstrip().endswith(UNTITLED) for entry in members),
    }


def compiler(entry: dict[str, Any]) -> str | None:
    """
    The name of the compiler that a process is; None for any other.
    """
    found = COMPILER.fullmatch(os.path.basename(entry["cmdline"].split(" ")[0]))
    return found.group(1) if found else None


def worker(entry: dict[str, Any]) -> dict[str, Any]:
    """
    A child process of SGLang by its title, and by what no other process can have.
    """
    return {"pid": entry["pid"], "start": entry["start"], "title": entry["cmdline"].split(" ")[0]}


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


def transferred(pids: set[int]) -> tuple[int | None, int | None]:
    """
    Bytes read and written, those of ended and reaped children included; None where no process tells.

    Of a file that is read through a mapping only what comes from the disk is counted, of one in the page
    cache only what read() hands over: the larger figure of each pair of proc(5) is taken.
    """
    root = proc_root()
    read = written = 0
    told = False
    for pid in pids if root else ():
        lines = (line.partition(b":") for line in read_file(f"{root}/{pid}/io").splitlines())
        counts = {name: int(number) for name, _, number in lines if number.strip().isdigit()}
        told = told or bool(counts)
        read += max(counts.get(b"rchar", 0), counts.get(b"read_bytes", 0))
        written += max(counts.get(b"wchar", 0), counts.get(b"write_bytes", 0))
    return (read, written) if told else (None, None)


def received() -> int | None:
    """
    Bytes that came over the network of this container, whoever they were for; None where it is not told.
    """
    root = proc_root()
    lines = read_file(f"{root}/self/net/dev").decode("ascii", "replace").splitlines() if root else []
    total, told = 0, False
    for name, _, counts in (line.partition(":") for line in lines[2:]):
        if name.strip() != "lo" and counts.split():
            total += int(counts.split()[0])
            told = True
    return total if told else None


def pinned(pids: set[int]) -> int:
    """
    Bytes of memory that some processes have locked, as far as it is told.
    """
    root = proc_root()
    total = 0
    for pid in pids if root else ():
        lines = [line.split() for line in read_file(f"{root}/{pid}/status").splitlines()]
        sizes = [int(words[1]) for words in lines if words and words[0] in PINNED]
        total += max(sizes, default=0) * KIB
    return total


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
    return seconds + int(days or 0) * 86400, int(kibibytes) * KIB
