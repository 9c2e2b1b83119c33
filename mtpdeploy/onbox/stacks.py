"""
Where the processes of a run stand, before they are ended: by py-spy where it is on the box, else by /proc.

Nothing is installed for it. Only frames are kept: a command line may hold a key.
"""

from __future__ import annotations

import collections
import contextlib
import json
import os
import re
import shutil
import time
from typing import Any

from mtpdeploy.onbox.asked import Asked
from mtpdeploy.onbox.files import store
from mtpdeploy.onbox.identity import family, proc_root, read_file, read_stat, table
from mtpdeploy.onbox.processes import kind_of, words_of
from mtpdeploy.onbox.record import process_of

DUMP_LIMIT = 10.0
"""Seconds for one py-spy, which stops the process for as long as it reads it (under 1 s, py-spy 0.4.3)."""

ALL_LIMIT = 40.0
"""Seconds for all of them."""

MOST = 9
"""Processes that are looked at: the main one and the schedulers of eight cards."""

LONGEST_COMPLAINT = 120
"""Characters of what py-spy says against it; its first line is the error, a stack of its own follows."""

INNERMOST = 4
"""Frames of a process that a verdict shows."""

FRAME = re.compile(r"    (\S.*) \(([^()]*?)(?::(\d+))?\)$")
THREAD = re.compile(r"Thread .*\((idle|active[^)]*)\)")
SCHEDULER = "sglang::scheduler"
UNTITLED = "from multiprocessing.spawn import "  # a scheduler while it imports (sglang 0.5.6-0.5.23)


def main(request: dict[str, Any]) -> None:
    """
    Answer `{"run_dir", "python", "file"}` with `{"text", "short", "how"}`; `text` is stored in that file of
    the run's directory where the disk takes it, and empty where nothing is told. `python` is the server's
    interpreter, beside which py-spy may lie.
    """
    run_dir = os.path.expanduser(request["run_dir"])
    chosen = processes_of(run_dir)
    program = spy(os.path.expanduser(request["python"]))
    texts, shorts, hows = [], [], set()
    until = time.monotonic() + ALL_LIMIT
    for pid, title in chosen:
        frames, how = dump(program, pid, until)
        if not frames:
            continue
        hows.add(how)
        texts.append(f"{title} (pid {pid}), told by {how}:\n{frames}")
        shorts.append(f"{title} {innermost(frames)}")
    text = "\n".join(texts)
    if text:
        with contextlib.suppress(OSError):
            store(os.path.join(run_dir, request["file"]), text, 0o600)
    print(json.dumps({"text": text, "short": "; ".join(shorts), "how": ", ".join(sorted(hows))}))


def processes_of(run_dir: str) -> list[tuple[int, str]]:
    """
    The schedulers of a run, its main process, and children that have no title yet: pid and name of each.
    """
    processes = table()
    members = {entry["pid"] for entry in family(process_of(run_dir), os.path.basename(run_dir), processes)}
    words = {entry["pid"]: words_of(entry) for entry in processes if entry["pid"] in members}
    schedulers = [
        (pid, line[0]) for pid, line in sorted(words.items()) if line and line[0].startswith(SCHEDULER)
    ]
    mains = [(pid, "main process") for pid, line in sorted(words.items()) if kind_of(line) == "server"]
    nameless = [(pid, "child") for pid, line in sorted(words.items()) if UNTITLED in " ".join(line)]
    return (schedulers[: MOST - 1] + mains + nameless)[:MOST]


def spy(python: str) -> str | None:
    """
    The path of py-spy, on PATH or beside an interpreter; None where there is none.
    """
    beside = [os.path.dirname(path) for path in (python, os.path.realpath(python)) if os.path.isabs(path)]
    return shutil.which("py-spy", path=os.pathsep.join([*beside, os.environ.get("PATH", os.defpath)]))


def dump(program: str | None, pid: int, until: float) -> tuple[str, str]:
    """
    The frames of a process, and who told them.

    py-spy stops a process to read it, which fails now and then, and always for one that is stopped; without
    stopping it a busy process fails one time in five (measured with 0.4.3 on SGLang 0.5.23).
    """
    if program is None:
        return waits(pid), "the kernel (no py-spy there)"
    why = ""
    for options in ([], ["--nonblocking"]):
        asked = Asked([program, "dump", *options, "--pid", str(pid)], dict(os.environ))
        text = asked.answer(min(until, time.monotonic() + DUMP_LIMIT))
        frames = frames_of(text or "") if asked.status == 0 else ""
        if frames:
            return frames, "py-spy"
        complaint = asked.err.decode("utf-8", "replace").strip() if asked.status is not None else "no answer"
        why = why or complaint.partition("\n")[0][:LONGEST_COMPLAINT] or "it told no frames"
    return waits(pid), f"the kernel (py-spy could not: {why})"


def frames_of(text: str) -> str:
    """
    Of what py-spy prints, the threads and their frames: neither the command line nor the interpreter.
    """
    kept = [line for line in text.splitlines() if THREAD.match(line) or FRAME.match(line)]
    return "".join(f"{line}\n" for line in kept)


def waits(pid: int) -> str:
    """
    What the kernel tells of a process's threads: state, what they wait in, and its own frames if shown.
    """
    root = proc_root()
    counts: collections.Counter[str] = collections.Counter()
    first = ""
    try:
        threads = os.listdir(f"{root}/{pid}/task") if root else []
    except OSError:
        threads = []
    for thread in threads:
        fields = read_stat(f"{root}/{pid}/task", int(thread)) if thread.isdigit() else None
        where = read_file(f"{root}/{pid}/task/{thread}/wchan").decode("ascii", "replace").strip()
        stack = read_file(f"{root}/{pid}/task/{thread}/stack").decode("ascii", "replace").splitlines()
        calls = [line.split()[-1].partition("+")[0] for line in stack if line.strip()]
        if fields:
            waiting = f" in {where}" if where not in ("", "0") else ""
            called = f": {' < '.join(calls[:INNERMOST])}" if calls else ""
            told = f"state {fields[0]}{waiting}{called}"
            first, counts[told] = (told if int(thread) == pid else first), counts[told] + 1
    threads_told = [f"{count} x {what}\n" for what, count in counts.most_common()]
    return "".join([f"main thread {first}\n", "of all threads:\n", *threads_told]) if first else ""


def innermost(frames: str) -> str:
    """
    The innermost frames of the first thread that is not idle, else of the first; the kernel's main thread.
    """
    threads: list[tuple[str, list[str]]] = []
    for line in frames.splitlines():
        found, frame = THREAD.match(line), FRAME.match(line)
        if found:
            threads.append((found.group(1), []))
        elif frame and threads:
            place = os.path.basename(frame.group(2)) + (f":{frame.group(3)}" if frame.group(3) else "")
            threads[-1][1].append(f"{frame.group(1)} ({place})")
    if not threads:
        return f"stood: {frames.splitlines()[0]}" if frames else "stood where nothing tells"
    shown = next((calls for state, calls in threads if state != "idle" and calls), threads[0][1])
    return "stood in " + " < ".join(shown[:INNERMOST])
