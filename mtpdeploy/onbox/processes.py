"""
Which processes matter to a deployment: runs of ours, SGLang servers, holders of a GPU or of the port.

What a process is, is decided by the words of its command line, never by a part of its text: an editor
on `sglang.md`, a `tail` of the log and the shell that asks all carry the name as well.
"""

from __future__ import annotations

import os
import re
from typing import Any

from mtpdeploy.onbox.identity import (
    LISTENING,
    MARKER,
    ancestors,
    below,
    identity_of,
    listeners,
    living,
    output_of,
    proc_root,
    read_file,
    sockets_of,
)

FIRST = 1
DEVICES = "CUDA_VISIBLE_DEVICES"
HOUSE = "MTPDEPLOY_DEMO_HOME"  # set on the built-in demo box, which shares a machine with real processes
LONGEST_COMMAND = 2000
PYTHON_NAME = re.compile(r"python[0-9.]*")
NOTED = (MARKER + "=", DEVICES + "=", HOUSE + "=")
SPAWNED = ("from multiprocessing.spawn import ", "from multiprocessing.resource_tracker import ")


def kind_of(words: list[str]) -> str:
    """
    "server", "worker", "helper" or "", from the words of a command line.

    A server is started as `python -m sglang.launch_server` or `sglang serve`; its children put
    `sglang::…` in the place of their command line (setproctitle), and before that, or for ever, are
    nameless children of Python's multiprocessing (SGLang 0.5.6-0.5.23).
    """
    if not words:
        return ""
    if words[0].startswith("sglang::"):
        return "worker"
    name = os.path.basename(words[0])
    if name == "sglang":
        return "server" if words[1:2] == ["serve"] else ""
    return python_kind(words[1:]) if PYTHON_NAME.fullmatch(name) else ""


def python_kind(words: list[str]) -> str:
    """
    The same for what follows the name of a Python interpreter.
    """
    at = 0
    while at < len(words) and words[at].startswith("-") and len(words[at]) > 1:
        letter, value, after = python_option(words, at)
        if letter == "m":
            return module_kind(value, words[after:])
        if letter == "c":
            return "helper" if value.startswith(SPAWNED) else ""
        at = after
    script = words[at] if at < len(words) else ""
    if os.path.basename(script) == "sglang":
        return module_kind("sglang", words[at + 1 :])
    return "server" if script.endswith("/sglang/launch_server.py") else ""


def python_option(words: list[str], at: int) -> tuple[str, str, int]:
    """
    The option of Python at a place: its letter, its value, and where the next word stands.
    """
    word = words[at]
    if word.startswith("--"):
        return "", "", at + (2 if word == "--check-hash-based-pycs" else 1)
    found = re.search("[cmXW]", word)
    if found is None:
        return "", "", at + 1
    attached = word[found.end() :]
    if attached:
        return found.group(), attached, at + 1
    return found.group(), "".join(words[at + 1 : at + 2]), at + 2


def module_kind(module: str, words: list[str]) -> str:
    """
    What `python -m module words…` is.
    """
    if module == "sglang.launch_server":
        return "server"
    return "server" if module in ("sglang", "sglang.cli.main") and words[:1] == ["serve"] else ""


def words_of(entry: dict[str, Any]) -> list[str]:
    """
    The words of a process's command line; parted at blanks where there is no /proc.
    """
    root = proc_root()
    if root is None:
        return str(entry["cmdline"]).split()
    text = read_file(f"{root}/{entry['pid']}/cmdline").decode("utf-8", "replace")
    return text.rstrip("\0 ").split("\0")


def environments(entries: list[dict[str, Any]]) -> dict[int, dict[str, str]]:
    """
    The run marker, the visible GPUs and the demo box of every process of our own user that has one of them.
    """
    root = proc_root()
    if root is None:
        lines = output_of(["ps", "axeww", "-o", "pid=,command="]).splitlines()
        words = {int(line.split()[0]): line.split()[1:] for line in lines if line.split()[:1]}
    else:
        mine = [entry["pid"] for entry in entries if entry["uid"] == os.geteuid() and entry["cmdline"]]
        words = {
            pid: read_file(f"{root}/{pid}/environ").decode("utf-8", "replace").split("\0") for pid in mine
        }
    found = {}
    for pid, listed in words.items():
        kept = [word.partition("=") for word in listed if word.startswith(NOTED)]
        if kept:
            found[pid] = {name: value for name, _, value in kept}
    return found


def ports_of(pids: set[int]) -> dict[int, list[int]]:
    """
    The TCP ports on which each of some processes listens.
    """
    root = proc_root()
    if root is None or not pids:
        return ports_by_lsof(pids) if pids else {}
    by_inode: dict[str, int] = {}
    for name in ("tcp", "tcp6"):
        for line in read_file(f"{root}/self/net/{name}").decode("ascii", "replace").splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTENING:
                by_inode[fields[9]] = int(fields[1].rpartition(":")[2], 16)
    sockets = {pid: sockets_of(root, pid) & set(by_inode) for pid in pids}
    return {pid: sorted({by_inode[inode] for inode in inodes}) for pid, inodes in sockets.items()}


def ports_by_lsof(pids: set[int]) -> dict[int, list[int]]:
    """
    `ports_of()` where there is no /proc.
    """
    found: dict[int, list[int]] = {}
    pid = 0
    for line in output_of(["lsof", "-nP", "-iTCP", "-sTCP:LISTEN", "-Fpn"]).splitlines():
        if line.startswith("p"):
            pid = int(line[1:])
        elif line.startswith("n") and pid in pids:
            port = line.rpartition(":")[2]
            found[pid] = sorted({*found.get(pid, []), *([int(port)] if port.isdigit() else [])})
    return found


class Crowd:
    """
    All living processes at one moment, and the questions that a survey asks of them.

    Who asks, and what stands above it, is never taken for part of a run or a server, so that no answer
    can lead to its end. Of these the first process alone is looked at: where it is a server itself
    (a container made for it), its children are no orphans. On the demo box nothing counts but what was
    started there: what else runs on that machine is none of its business.
    """

    def __init__(self, entries: list[dict[str, Any]]) -> None:
        self.by_pid = {entry["pid"]: entry for entry in entries}
        self.asking = ancestors(os.getpid(), self.by_pid) - {FIRST}
        self.entries = [e for e in entries if living(e) and e["pid"] not in self.asking]
        self.environments = environments(self.entries)
        house = os.environ.get(HOUSE)
        if house:
            self.entries = [
                e for e in self.entries if self.environments.get(e["pid"], {}).get(HOUSE) == house
            ]
            mine = {entry["pid"] for entry in self.entries}
            self.environments = {pid: env for pid, env in self.environments.items() if pid in mine}
        self.kinds = self._kinds()

    def _kinds(self) -> dict[int, str]:
        found = {}
        for entry in self.entries:
            if "sglang" in entry["cmdline"] or "multiprocessing" in entry["cmdline"]:
                found[entry["pid"]] = kind_of(words_of(entry))
        return found

    def run_of(self, pid: int) -> str | None:
        """
        The run whose marker a process carries.
        """
        return self.environments.get(pid, {}).get(MARKER)

    def family(self, run: str, main: int | None) -> list[dict[str, Any]]:
        """
        The identities of what belongs to a run, its main process (where that one lives) left out.
        """
        roots = {pid for pid in self.environments if self.run_of(pid) == run} | ({main} if main else set())
        members = below(roots - {FIRST}, self.entries) - {main}
        alive = {entry["pid"]: entry for entry in self.entries}
        return [identity_of(alive[pid]) for pid in sorted(members) if pid in alive]

    def of_interest(self, pids: set[int], port: int | None) -> dict[str, Any]:
        """
        The processes that a deployment has to know of: `pids`, runs, servers with what is below and beside
        them, and who listens on the port.
        """
        holders = [] if port is None else listeners(port)
        servers = {pid for pid, kind in self.kinds.items() if kind in ("server", "worker")} - {FIRST}
        runs = {pid for pid in self.environments if self.run_of(pid)}
        groups = {self.by_pid[pid]["pgid"] for pid in servers}
        helpers = {
            pid for pid, kind in self.kinds.items() if kind == "helper" and self.by_pid[pid]["pgid"] in groups
        }
        wanted = below(servers | (runs - {FIRST}) | helpers, self.entries)
        wanted |= {FIRST} if self.kinds.get(FIRST) == "server" else set()
        seen = pids | set(holders)
        chosen = [entry for entry in self.entries if entry["pid"] in wanted | seen]
        chosen += [self.by_pid[pid] for pid in sorted(seen & self.asking)]
        ports = ports_of({entry["pid"] for entry in chosen})
        return {"port_holders": holders, "processes": [self._told(entry, ports) for entry in chosen]}

    def _told(self, entry: dict[str, Any], ports: dict[int, list[int]]) -> dict[str, Any]:
        pid = entry["pid"]
        return {
            "id": identity_of(entry),
            "ppid": entry["ppid"],
            "pgid": entry["pgid"],
            "user": entry["user"],
            "command": entry["cmdline"][:LONGEST_COMMAND],
            "kind": self.kinds.get(pid, ""),
            "run": self.run_of(pid),
            "devices": self.environments.get(pid, {}).get(DEVICES),
            "listens": ports.get(pid, []),
        }
