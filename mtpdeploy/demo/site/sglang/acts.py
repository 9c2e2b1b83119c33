"""Hostility, carried out: dying, hanging, shouting and leaving children behind at a stage."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from typing import Callable, List

from . import kernel, lines, processes
from .refusals import SCHEDULER, RefusedError
from .settings import Hostile, Settings, home

PARENT_VARIABLE = "MTPDEPLOY_DEMO_PARENT"
# 300 kB without a newline: more than any line buffer a reader may think enough.
LONG_LINE = 300_000


class Acts:
    """This start's hostility in one of the server's processes. `kill_family` must not return."""

    def __init__(self, settings: Settings, *, scheduler: bool, kill_family: Callable[[], None]) -> None:
        self.hostile: Hostile = settings.hostile_now()
        self.scheduler = scheduler
        self.kill_family = kill_family
        if self.hostile.hang_at and self.hostile.ignore_term:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def at(self, stage: str) -> None:
        """Do what this stage calls for; returns when that is nothing, or only noise."""
        hostile = self.hostile
        if hostile.noise and stage in ("init", "weights", "pools", "http"):
            shout(stage)
        if hostile.escape and stage == "loaded":
            escape()
        if hostile.fast_log_mb and stage == "weights":
            chatter(hostile.fast_log_mb, hostile.fast_log_mb_s)
        if hostile.killed_at == stage and self.scheduler:
            kernel.kill_for_memory(home(), os.getpid(), "sglang::scheduler")
            os.kill(os.getpid(), signal.SIGKILL)
        if hostile.oom_kill_at == stage:
            kernel.kill_for_memory(home(), os.getppid() if self.scheduler else os.getpid(), "python")
            self.kill_family()
        if hostile.xid_at == stage:
            self._lose_gpu()
        if hostile.die_at == stage:
            self.kill_family()
        if hostile.hang_at == stage:
            while True:
                time.sleep(3600)

    def _lose_gpu(self) -> None:
        """The driver's report, and what a program sees of it: an error in the scheduler, else no line."""
        kernel.report_xid(home(), self.hostile.xid, os.getpid())
        if self.scheduler:
            raise RefusedError("torch.AcceleratorError", "CUDA error: unspecified launch failure", SCHEDULER)
        self.kill_family()

    def ready(self, scheduler_pid: int) -> None:
        """What begins once the server is ready."""
        self.at("ready")
        if self.hostile.flood_mb:
            threading.Thread(target=chatter, args=(self.hostile.flood_mb, 0.0), daemon=True).start()
        if self.hostile.dies_ready_s:
            timer = threading.Timer(self.hostile.dies_ready_s, _kill, (scheduler_pid,))
            timer.daemon = True
            timer.start()


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def shout(stage: str) -> None:
    """Bytes that are not UTF-8, colours, cursor movements, a bar, a secret and a line without an end."""
    lines.raw(b"\xff\xfe\xc3\x28 invalid utf-8 at " + stage.encode() + b" \xe2\x82\n")
    lines.raw(b"\x1b[31mred\x1b[0m \x1b[2K\x1b[1A\x1b]0;title\x07 ansi\n")
    lines.raw(b"".join(b"\rFetching files: %3d%%" % percent for percent in range(0, 101, 10)) + b"\n")
    secret = "-".join(("sk", "demo", "0123456789abcdef" * 2))
    lines.log(f"Using Authorization: Bearer {secret} for the model registry")
    if stage == "weights":
        lines.raw(b"x" * LONG_LINE + b"\n")


def chatter(megabytes: float, rate: float) -> None:
    """So many megabytes of harmless lines, at so many megabytes a second (0: as fast as it goes)."""
    stamp = time.strftime("%Y-%m-%d %H:%M:%S")
    line = f"[{stamp}] Decode batch, #running-req: 1, #token: 42, token usage: 0.00, #queue-req: 0\n"
    block = (line * (65536 // len(line))).encode()
    began, sent = time.monotonic(), 0
    while sent < megabytes * 1e6:
        lines.raw(block)
        sent += len(block)
        ahead = sent / (rate * 1e6) - (time.monotonic() - began) if rate else 0.0
        if ahead > 0:
            time.sleep(ahead)


def escape() -> None:
    """A compile worker in a session of its own, which outlives the server and keeps GPU memory."""
    code = "from sglang.acts import escaped; escaped()"
    argv: List[str] = [sys.executable, "-c", code]
    subprocess.Popen(argv, stdin=subprocess.DEVNULL, start_new_session=True, close_fds=True)


def escaped() -> None:
    """The escaped process itself: reparented at once, and in no hurry."""
    if os.fork():
        os._exit(0)
    from .ledger import GIB, Ledger  # noqa: PLC0415  # only this process needs it
    from .settings import load  # noqa: PLC0415

    processes.record(home(), "escaped")
    Ledger(home(), load(), "python").allocate("compile cache", 0.5 * GIB)
    time.sleep(86400)
