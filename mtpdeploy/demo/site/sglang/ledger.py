"""
The GPU's memory as a ledger of files: one JSON for each process that holds some, void once it is dead.

All sizes are bytes unless the name says otherwise.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List

from . import processes
from .settings import Settings

MIB = 1 << 20
GIB = 1 << 30


class OutOfMemoryError(Exception):
    """An allocation that does not fit; the text is torch's."""

    def __init__(self, wanted: float, ledger: Ledger, others: float, own: float) -> None:
        total = ledger.settings.gpu.torch_total_mib * MIB
        free = max(total - others - own, 0)
        held = f"Process {ledger.other_pid()} has {size(others)} memory in use. " if others else ""
        super().__init__(
            f"CUDA out of memory. Tried to allocate {size(wanted)}. GPU 0 has a total capacity of "
            f"{size(total)} of which {size(free)} is free. {held}Including non-PyTorch memory, this process "
            f"has {size(own)} memory in use. Of the allocated memory {size(max(own - 700 * MIB, 0))} is "
            "allocated by PyTorch, and 24.55 MiB is reserved by PyTorch but unallocated. If reserved but "
            "unallocated memory is large try setting PYTORCH_ALLOC_CONF=expandable_segments:True to avoid "
            "fragmentation.  See documentation for Memory Management"
        )


def size(number: float) -> str:
    """Bytes as torch prints them."""
    return f"{number / GIB:.2f} GiB" if number >= GIB else f"{number / MIB:.2f} MiB"


class Ledger:
    """This process's page in the box's ledger, and the view over all pages."""

    def __init__(self, home: Path, settings: Settings, name: str = "python") -> None:
        self.settings = settings
        self.directory = home / "ledger"
        self.directory.mkdir(exist_ok=True)
        self.name = name
        self.activity = "loading"
        self.requests = 0
        self.pid = os.getpid()
        self.held: Dict[str, float] = {}

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with open(self.directory / ".lock", "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _write(self) -> None:
        page = {
            "pid": self.pid,
            "start": processes.start_of(self.pid),
            "name": self.name,
            "activity": self.activity,
            "requests": self.requests,
            "allocations": self.held,
        }
        new = self.directory / f".{self.pid}"
        new.write_text(json.dumps(page), encoding="utf-8")
        new.replace(self.directory / f"{self.pid}.json")

    def pages(self) -> List[Dict[str, Any]]:
        """The pages of the living, and of the dead whose memory has not come back yet."""
        found = []
        for path in sorted(self.directory.glob("*.json")):
            try:
                page = json.loads(path.read_text(encoding="utf-8"))
            except (OSError, ValueError):
                continue
            page["alive"] = processes.alive(page["pid"], page["start"])
            if page["alive"] or self._lingers(path):
                found.append(page)
        return found

    def _lingers(self, path: Path) -> bool:
        late = self.settings.hostile.free_late_s
        if not late:
            return False
        died = path.with_suffix(".dead")
        with contextlib.suppress(FileExistsError), open(died, "x", encoding="utf-8") as file:
            file.write(str(time.time()))
        try:
            since = float(died.read_text(encoding="utf-8") or time.time())
        except (OSError, ValueError):
            since = time.time()
        return time.time() - since < late

    def used(self) -> float:
        """Bytes held by everybody."""
        return sum(sum(page["allocations"].values()) for page in self.pages())

    def own(self) -> float:
        """Bytes held by this process."""
        return sum(self.held.values())

    def free(self) -> float:
        """Bytes that torch would report as free now."""
        return self.settings.gpu.torch_total_mib * MIB - self.used()

    def free_gib(self) -> float:
        """`free`, in GiB."""
        return self.free() / GIB

    def other_pid(self) -> int:
        """The pid of another process that holds memory (0: none)."""
        return next((page["pid"] for page in self.pages() if page["pid"] != self.pid), 0)

    def allocate(self, label: str, wanted: float) -> None:
        """Take memory; raises OutOfMemoryError with torch's text when there is not enough."""
        with self._locked():
            others = self.used() - self.own()
            if wanted > self.settings.gpu.torch_total_mib * MIB - others - self.own():
                raise OutOfMemoryError(wanted, self, others, self.own())
            self.held[label] = self.held.get(label, 0) + wanted
            self._write()

    def require(self, wanted: float) -> None:
        """Raise OutOfMemoryError if a passing allocation of this size would not fit."""
        others = self.used() - self.own()
        if wanted > self.settings.gpu.torch_total_mib * MIB - others - self.own():
            raise OutOfMemoryError(wanted, self, others, self.own())

    def release(self, label: str, returned: float) -> None:
        """Give some of an allocation back."""
        with self._locked():
            self.held[label] = max(self.held.get(label, 0) - returned, 0)
            self._write()

    def busy(self, activity: str, requests: int = 0) -> None:
        """Say what the GPU does for this process: loading, idle or decoding so many (nvidia-smi shows it)."""
        if (activity, requests) != (self.activity, self.requests):
            self.activity, self.requests = activity, requests
            self._write()
