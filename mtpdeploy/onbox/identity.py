"""
Who a process is, beyond a pid that may be given to another one: pid, start time, boot and namespace.

Reads /proc where there is one; elsewhere (macOS) asks ps and lsof. `MTPDEPLOY_PROC` names another
place for /proc; a place that does not exist means that there is none.
"""

from __future__ import annotations

import errno
import functools
import os
import pwd
import signal
import subprocess
import sys
from typing import Any

MARKER = "MTPDEPLOY_RUN"
DEAD_STATES = "ZXx"
LISTENING = "0A"


def proc_root() -> str | None:
    """
    Where the kernel shows its processes, or None where it does not.
    """
    root = os.environ.get("MTPDEPLOY_PROC", "/proc")
    return root if os.path.exists(root + "/self/stat") else None


def identify(pid: int) -> dict[str, Any] | None:
    """
    `{"pid", "start", "boot", "pid_ns"}` of a living process; None for a dead one and for a zombie.
    """
    root = proc_root()
    if root is None:
        found = [entry for entry in ps_table(["-p", str(pid)]) if entry["pid"] == pid]
        return identity_of(found[0]) if found and living(found[0]) else None
    fields = read_stat(root, pid)
    if fields is None or fields[0] in DEAD_STATES:
        return None
    return identity_of({"pid": pid, "start": fields[19]})


def same(identity: dict[str, Any]) -> bool:
    """
    Whether that very process is still alive: nothing else has its pid now, and the box was not restarted.
    """
    now = identify(int(identity["pid"]))
    if now is None or now["start"] != str(identity["start"]):
        return False
    return all(
        not identity.get(key) or not now[key] or identity[key] == now[key] for key in ("boot", "pid_ns")
    )


def identity_of(entry: dict[str, Any]) -> dict[str, Any]:
    """
    The identity of an entry of `table()`.
    """
    root = proc_root()
    return {
        "pid": entry["pid"],
        "start": entry["start"],
        "boot": boot_id(root),
        "pid_ns": pid_namespace(root),
    }


def living(entry: dict[str, Any]) -> bool:
    """
    Whether an entry of `table()` is more than a dead process that nobody has reaped yet.
    """
    return entry["state"][:1] not in DEAD_STATES


def table() -> list[dict[str, Any]]:
    """
    All processes, zombies too: pid, ppid, pgid, sid, uid, user, state, start and cmdline of each.
    """
    root = proc_root()
    if root is None:
        return ps_table(["-A"])
    entries = (proc_entry(root, int(name)) for name in os.listdir(root) if name.isdigit())
    return [entry for entry in entries if entry is not None]


def family(
    identity: dict[str, Any] | None, run: str | None, processes: list[dict[str, Any]] | None = None
) -> list[dict[str, Any]]:
    """
    The identities of the living family of a process, itself left out.

    That is everything below it, and, where `run` is given, everything of the same user that carries
    the run's marker in its environment, with everything below that. Who asks, and what stands above
    it, is never part of it. `processes` is a `table()` that was just taken.
    """
    entries = table() if processes is None else processes
    by_pid = {entry["pid"]: entry for entry in entries}
    root = identity["pid"] if identity is not None and same(identity) else None
    owner = by_pid[root]["uid"] if root in by_pid else os.geteuid()
    roots = set() if root is None else {root}
    if run is not None:
        roots |= marked(run, [entry["pid"] for entry in entries if entry["uid"] == owner and living(entry)])
    members = below(roots - ancestors(os.getpid(), by_pid), entries) - {root, os.getpid()}
    return [identity_of(by_pid[pid]) for pid in sorted(members) if pid in by_pid and living(by_pid[pid])]


def below(roots: set[int], entries: list[dict[str, Any]]) -> set[int]:
    """
    The pids `roots` and of all their descendants.
    """
    children: dict[int, list[int]] = {}
    for entry in entries:
        children.setdefault(entry["ppid"], []).append(entry["pid"])
    found: set[int] = set()
    waiting = list(roots)
    while waiting:
        pid = waiting.pop()
        if pid not in found:
            found.add(pid)
            waiting += children.get(pid, [])
    return found


def ancestors(pid: int, by_pid: dict[int, dict[str, Any]]) -> set[int]:
    """
    `pid` and everything that it descends from.
    """
    found: set[int] = set()
    while pid in by_pid and pid not in found:
        found.add(pid)
        pid = by_pid[pid]["ppid"]
    return found


def marked(run: str, pids: list[int]) -> set[int]:
    """
    Those of `pids` that carry the run's marker in the environment they were started with.
    """
    root = proc_root()
    if root is None:
        return ps_marked(run, set(pids))
    wanted = os.fsencode(MARKER + "=" + run)
    return {pid for pid in pids if wanted in read_file(f"{root}/{pid}/environ").split(b"\0")}


def listeners(port: int) -> list[int]:
    """
    The pids that listen on a TCP port; 0 stands for one whose owner cannot be seen.
    """
    root = proc_root()
    if root is None:
        words = output_of(["lsof", "-nP", f"-iTCP:{port}", "-sTCP:LISTEN", "-t"]).split()
        return sorted({int(word) for word in words if word.isdigit()})
    wanted = listening_sockets(root, port)
    if not wanted:
        return []
    owners: dict[str, int] = {}
    for name in os.listdir(root):
        if name.isdigit():
            owners.update({inode: int(name) for inode in sockets_of(root, int(name)) & wanted})
    return sorted(set(owners.values()) | ({0} if wanted - set(owners) else set()))


def send(identity: dict[str, Any], number: int) -> bool:
    """
    Send a signal to that very process and to none that took its pid; whether it was sent.
    """
    pid = int(identity["pid"])
    handle = pidfd(pid)
    try:
        if not same(identity):
            return False
        if handle is None:
            os.kill(pid, number)
        else:
            signal.pidfd_send_signal(handle, number)  # type: ignore[attr-defined,unused-ignore]
    except OSError as error:
        if error.errno in (errno.ESRCH, errno.EPERM):
            return False
        raise
    finally:
        if handle is not None:
            os.close(handle)
    return True


def pidfd(pid: int) -> int | None:
    """
    A handle of a process that no other one can inherit; None where the kernel or Python has none.
    """
    if not hasattr(os, "pidfd_open") or not hasattr(signal, "pidfd_send_signal"):
        return None
    try:
        return os.pidfd_open(pid)  # type: ignore[attr-defined,no-any-return,unused-ignore]
    except OSError:
        return None


@functools.lru_cache(maxsize=None)
def boot_id(root: str | None) -> str:
    """
    What changes with every start of the machine; "" where it is not told.
    """
    if root is None:
        return output_of(["sysctl", "-n", "kern.bootsessionuuid"]).strip()
    return read_file(root + "/sys/kernel/random/boot_id").decode("ascii", "replace").strip()


@functools.lru_cache(maxsize=None)
def pid_namespace(root: str | None) -> str:
    """
    The inode of the namespace that our pids are counted in; "" where there are none.
    """
    try:
        return str(os.stat(f"{root}/self/ns/pid").st_ino) if root else ""
    except OSError:
        return ""


def read_file(path: str) -> bytes:
    """
    A file of /proc; b"" when the process is gone or not ours to look at.
    """
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def read_stat(root: str, pid: int) -> list[str] | None:
    """
    The fields of /proc/PID/stat from the third (the state) on; None when there is no such process.

    The second field is the name, which may hold blanks and brackets.
    """
    text = read_file(f"{root}/{pid}/stat").decode("utf-8", "replace")
    return text.rpartition(")")[2].split() if ")" in text else None


def proc_entry(root: str, pid: int) -> dict[str, Any] | None:
    """
    One process as `table()` tells it; None when it is gone.
    """
    fields = read_stat(root, pid)
    if fields is None:
        return None
    status = read_file(f"{root}/{pid}/status")
    uid = next((int(line.split()[1]) for line in status.splitlines() if line.startswith(b"Uid:")), -1)
    words = read_file(f"{root}/{pid}/cmdline").replace(b"\0", b" ").decode("utf-8", "replace")
    return {
        "pid": pid,
        "ppid": int(fields[1]),
        "pgid": int(fields[2]),
        "sid": int(fields[3]),
        "uid": uid,
        "user": user_name(uid),
        "state": fields[0],
        "start": fields[19],
        "cmdline": words.strip(),
    }


@functools.lru_cache(maxsize=None)
def user_name(uid: int) -> str:
    """
    The name of a user; the number where it has none.
    """
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return str(uid)


def listening_sockets(root: str, port: int) -> set[str]:
    """
    The inodes of the sockets that listen on `port`.
    """
    found: set[str] = set()
    for name in ("tcp", "tcp6"):
        for line in read_file(f"{root}/self/net/{name}").decode("ascii", "replace").splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                found.add(fields[9])
    return found


def sockets_of(root: str, pid: int) -> set[str]:
    """
    The inodes of the sockets that a process has open; none where it may not be looked at.
    """
    folder = f"{root}/{pid}/fd"
    found: set[str] = set()
    try:
        names = os.listdir(folder)
    except OSError:
        return found
    for name in names:
        try:
            target = os.readlink(f"{folder}/{name}")
        except OSError:
            continue
        if target.startswith("socket:["):
            found.add(target[8:-1])
    return found


def output_of(words: list[str]) -> str:
    """
    What a small program prints, in plain English and UTC; "" when it cannot be run.
    """
    env = dict(os.environ, LC_ALL="C", TZ="UTC")
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env=env, timeout=20, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode("utf-8", "replace")


def ps_table(which: list[str]) -> list[dict[str, Any]]:
    """
    `table()` where there is no /proc. The start time has a resolution of one second there.
    """
    entries = []
    columns = "pid=,ppid=,pgid=,uid=,state=,lstart=,command="
    for line in output_of(["ps", *which, "-ww", "-o", columns]).splitlines():
        words = line.split(None, 10)
        if len(words) < 10:
            continue
        pid, ppid, pgid, uid = (int(word) for word in words[:4])
        entries.append(
            {
                "pid": pid,
                "ppid": ppid,
                "pgid": pgid,
                "sid": session_of(pid),
                "uid": uid,
                "user": user_name(uid),
                "state": words[4],
                "start": " ".join(words[5:10]),
                "cmdline": " ".join(words[10:]),
            }
        )
    return entries


def session_of(pid: int) -> int:
    """
    The session of a process; 0 when it cannot be told.
    """
    try:
        return os.getsid(pid)
    except OSError:
        return 0


def ps_marked(run: str, pids: set[int]) -> set[int]:
    """
    `marked()` where there is no /proc.
    """
    options = ["-AEww"] if sys.platform == "darwin" else ["axeww"]
    found = set()
    for line in output_of(["ps", *options, "-o", "pid=,command="]).splitlines():
        words = line.split()
        if words and words[0].isdigit() and MARKER + "=" + run in words:
            found.add(int(words[0]))
    return found & pids
