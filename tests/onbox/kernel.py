"""
A made-up kernel for the programs that ask one: /proc, control groups of either version, and a log.
"""

from collections.abc import Mapping
from pathlib import Path

import pytest

BOOT = "11111111-2222-3333-4444-555555555555"


class Kernel:
    """
    Folders that stand for /proc, /sys/fs/cgroup and /dev/kmsg, in force for this process and its children.
    """

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, cgroup: str = "0::/\n") -> None:
        self.folder = folder
        self.proc, self.groups, self.log = folder / "proc", folder / "cgroup", folder / "kmsg"
        (self.proc / "self").mkdir(parents=True)
        self.groups.mkdir()
        (self.proc / "self" / "stat").write_text("1 (x) R 1\n")
        (self.proc / "self" / "cgroup").write_text(cgroup)
        self.boot(BOOT, first=7)
        patch.setenv("MTPDEPLOY_PROC", str(self.proc))
        patch.setenv("MTPDEPLOY_CGROUP", str(self.groups))
        patch.setenv("MTPDEPLOY_KMSG", str(self.log))

    def boot(self, boot: str, *, first: int) -> None:
        """
        Another start of the machine, or of its first process.
        """
        names = self.proc / "sys" / "kernel" / "random" / "boot_id"
        names.parent.mkdir(parents=True, exist_ok=True)
        names.write_text(f"{boot}\n")
        (self.proc / "1").mkdir(exist_ok=True)
        fields = ["S", *["0"] * 18, str(first), *["0"] * 20]
        (self.proc / "1" / "stat").write_text(f"1 (init) {' '.join(fields)}\n")

    def group(self, path: str = "", **files: str) -> Path:
        """
        A control group with these files, `memory_max="…"` being the file `memory.max`.
        """
        folder = self.groups / path
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name.replace("_", ".", 1)).write_text(text)
        return folder

    def say(self, lines: Mapping[float, str]) -> None:
        """
        More lines of the kernel's log, each with its seconds.
        """
        with self.log.open("a") as file:
            for seconds, text in lines.items():
                file.write(f"6,1,{int(seconds * 1e6)},-;{text}\n SUBSYSTEM=x\n")
