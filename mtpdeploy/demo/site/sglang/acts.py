"""Hostility, carried out: dying, hanging, shouting and leaving children behind at a stage."""

from __future__ import annotations

import contextlib
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
        self.scheduler_pid = 0
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
        if hostile.killed_at == stage:
            kernel.kill_for_memory(home(), self._scheduler(), "sglang::scheduler")
            _kill(self._scheduler())
        if hostile.oom_kill_at == stage:
            kernel.kill_for_memory(home(), os.getppid() if self.scheduler else os.getpid(), "python")
            self.kill_family()
        if hostile.xid_at == stage:
            self._lose_gpu()
        if hostile.die_at == stage:
            self.kill_family()
        if hostile.scheduler_dies_at == stage:
            _kill(self._scheduler())
        self._linger(stage)

    def _scheduler(self) -> int:
        """The scheduler's pid, in whichever process this is."""
        return os.getpid() if self.scheduler else self.scheduler_pid

    def _linger(self, stage: str) -> None:
        """Be slow for some seconds, or stand still for ever."""
        hostile = self.hostile
        for place, work in SLOW.items():
            if getattr(hostile, place) == stage:
                work(hostile.slow_s)
        if hostile.spin_at == stage:
            spin(float("inf"))
        if hostile.hang_at == stage:
            while True:
                time.sleep(3600)

    def _lose_gpu(self) -> None:
        """The driver's report, and what a program sees of it: an error in the scheduler, else no line."""
        kernel.report_xid(home(), self.hostile.xid, os.getpid())
        if self.scheduler:
            raise RefusedError("torch.AcceleratorError", "CUDA error: unspecified launch failure", SCHEDULER)
        self.kill_family()

    def ready(self) -> None:
        """What begins once the server is ready."""
        self.at("ready")
        if self.hostile.flood_mb:
            threading.Thread(target=chatter, args=(self.hostile.flood_mb, 0.0), daemon=True).start()
        if self.hostile.dies_ready_s:
            timer = threading.Timer(self.hostile.dies_ready_s, _kill, (self.scheduler_pid,))
            timer.daemon = True
            timer.start()


def _kill(pid: int) -> None:
    if pid:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def spin(seconds: float) -> None:
    """Burn half a core: enough to be seen, and bearable on the machine that plays the box."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pause = time.monotonic() + 0.02
        while time.monotonic() < pause:
            pass
        time.sleep(0.02)


def compile_kernels(seconds: float) -> None:
    """A build, as a process table shows it: ninja, which waits, and cicc, which computes."""
    code = "import sys; from sglang import acts; acts.ninja(sys.argv[1])"
    subprocess.run([_named("ninja"), "-S", "-c", code, str(seconds)], check=False)


def ninja(seconds: str) -> None:
    """The build's driver."""
    code = "import sys; from sglang import acts; acts.spin(float(sys.argv[1]))"
    subprocess.run([_named("cicc"), "-S", "-c", code, seconds], check=False)


def _named(name: str) -> str:
    """This interpreter under the name of another program."""
    path = home() / "bin" / name
    with contextlib.suppress(FileExistsError):
        path.symlink_to(sys.executable)
    return str(path)


def download(seconds: float) -> None:
    """A file that grows by 2 MB a second, as a hub's client leaves one; it never takes more than 20 MB."""
    path = home() / "shard.incomplete"
    until = time.monotonic() + seconds
    with path.open("wb", buffering=0) as file:
        while time.monotonic() < until:
            file.write(b"x" * 200_000)
            if file.tell() > 20_000_000:
                file.seek(0)
            time.sleep(0.1)
    path.unlink()


def pin(seconds: float) -> None:
    """Host memory that fills by 32 MiB a second, page by page."""
    until, held = time.monotonic() + seconds, []
    while time.monotonic() < until:
        held.append(b"x" * (8 << 20))
        time.sleep(0.25)


SLOW = {"compile_at": compile_kernels, "download_at": download, "pin_at": pin}


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
