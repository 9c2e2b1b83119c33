"""Starting the server's child processes, and becoming one: names, pipes and the parent's death."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Callable, Sequence

from . import processes
from .settings import home

PR_SET_PDEATHSIG = 1  # linux/prctl.h
LINUX = sys.platform == "linux"


def spawn(role: str, descriptors: Sequence[int]) -> subprocess.Popen[bytes]:
    """
    Start `sglang::role`.

    On Linux it is, like SGLang's, a `python -c … --multiprocessing-fork` for its first seconds and renames
    itself then; elsewhere it has its name from the start.
    """
    code = f"from sglang.child import spawn_main; spawn_main({role!r}, {tuple(descriptors)!r})"
    first = sys.executable if LINUX else f"sglang::{role}"
    environment = dict(os.environ, MTPDEPLOY_DEMO_PARENT=str(os.getpid()))
    return subprocess.Popen(
        [first, "-S", "-c", code, "--multiprocessing-fork"],
        executable=sys.executable,
        pass_fds=tuple(descriptors),
        stdin=subprocess.DEVNULL,
        env=environment,
    )


def spawn_main(role: str, descriptors: Sequence[int]) -> None:
    """The child's whole life."""
    # The main process holds some signals back while it starts children; that is inherited.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    processes.record(home(), role)
    if role == "scheduler":
        from .scheduler import run_scheduler_process  # noqa: PLC0415  # each child needs its own half

        run_scheduler_process(*descriptors)
    else:
        from .detokenizer import run_detokenizer_process  # noqa: PLC0415

        run_detokenizer_process(*descriptors)


def become(name: str) -> None:
    """Take SGLang's process title and die with the parent from now on, not before."""
    if LINUX:
        import ctypes  # noqa: PLC0415  # slow to import, and the main process has no use for it

        _retitle(name, ctypes.memmove)
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    else:
        threading.Thread(target=_follow_parent, daemon=True).start()


def _retitle(name: str, memmove: Callable[[int, bytes, int], object]) -> None:
    """Overwrite the command line in place, as setproctitle does (fields 48 and 49 of /proc/self/stat)."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        with open("/proc/self/stat", encoding="utf-8", errors="replace") as file:
            after_name = file.read().rpartition(")")[2].split()
        start, end = int(after_name[45]), int(after_name[46])
        if 0 < start < end:
            memmove(start, name.encode().ljust(end - start, b"\0")[: end - start], end - start)
        with open("/proc/self/comm", "w", encoding="utf-8") as file:
            file.write(name[:15])


def _follow_parent() -> None:
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGKILL)


def parent_pid() -> int:
    """The main process, or 0 if this one has been handed to another parent."""
    parent = int(os.environ.get("MTPDEPLOY_DEMO_PARENT", "0"))
    return parent if parent > 1 and os.getppid() == parent else 0


def signal_parent(number: int) -> None:
    """Signal the main process, never a stranger that inherited this child."""
    parent = parent_pid()
    if parent:
        with contextlib.suppress(ProcessLookupError):
            os.kill(parent, number)
