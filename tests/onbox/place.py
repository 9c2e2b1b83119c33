"""
A made-up home on this machine, to be surveyed for real.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from mtpdeploy.core.machine import Facts, Host, Process
from mtpdeploy.core.server import ServerSpec
from mtpdeploy.remote import facts
from tests.onbox.runs import ShBox

GPU_TABLE = """0, GPU-aaaa, NVIDIA RTX PRO 6000 Blackwell, 97887, 97250, 4, 12.0, 13.42
1, GPU-bbbb, NVIDIA RTX PRO 6000 Blackwell, 97887, 1200, 96054, 12.0, [N/A]
"""


class Place:
    """
    A made-up home with a `bin` of its own, where only what a test puts there (and plain tools) is found.
    """

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.bin = folder / "bin"
        self.work_dir = self.home / ".mtpdeploy"
        self.bin.mkdir(parents=True)
        self.home.mkdir()
        self.shell: tuple[str, ...] = ("sh", "-s")
        self.box = ShBox()

    def program(self, name: str, text: str) -> Path:
        """
        Put a sh script on PATH.
        """
        path = self.bin / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return path

    def plain_tools(self) -> None:
        """
        What the shell's part of the survey needs, for a PATH without anything else of this machine.
        """
        for tool in ("sh", "uname", "id", "cat"):
            (self.bin / tool).symlink_to(shutil.which(tool) or tool)

    def python(self) -> None:
        """
        Put the Python of the tests on PATH.
        """
        self.program("python3", f'exec {sys.executable} "$@"')

    def nvidia_smi(self, gpus: str, holders: str = "") -> None:
        """
        An nvidia-smi with these two tables.
        """
        (self.bin / "gpus").write_text(gpus)
        (self.bin / "holders").write_text(holders)
        self.program(
            "nvidia-smi", f"case $1 in *query-gpu*) cat {self.bin}/gpus ;; *) cat {self.bin}/holders ;; esac"
        )

    def survey(
        self,
        *,
        model: str = "/nowhere",
        port: int = 1,
        env: Mapping[str, str] | None = None,
        python: str | None = None,
        tools: str = "/usr/bin:/bin",
        limit: float = 8,
        secrets: tuple[str, ...] = (),
        **variables: str,
    ) -> Facts:
        """
        Survey this machine as a login in the made-up home sees it.
        """
        self.box = ShBox({"HOME": str(self.home), "PATH": f"{self.bin}:{tools}", **variables}, self.shell)
        host = Host(
            name="here", address="127.0.0.1", work_dir="~/.mtpdeploy", env=dict(env or {}), python=python
        )
        server = ServerSpec(name="q", flags={"model_path": model, "port": port}, secrets=secrets)
        return facts.survey(self.box, host=host, server=server, nvidia_smi_limit=limit)


@contextmanager
def running(words: list[str], **options: object) -> Iterator[subprocess.Popen[bytes]]:
    """
    A process for as long as the block lasts.
    """
    process = subprocess.Popen(words, stdin=subprocess.PIPE, **options)  # type: ignore[call-overload]
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def sglang_at(folder: Path, version: str = "0.5.9") -> Path:
    """
    An SGLang that is installed, and whose import (like torch's) would be noticed.
    """
    (folder / "sglang" / "srt" / "arg_groups" / "fields").mkdir(parents=True)
    (folder / "torch").mkdir()
    for package in ("sglang", "torch"):
        (folder / package / "__init__.py").write_text("raise SystemExit('imported')")
    for record in (
        f"sglang-{version}", "sgl_kernel-0.3.21", "torch-2.9.1+cu129", "flashinfer_python-0.6.3",
        "transformers-4.57.1", "torchvision-0.24.0",
    ):  # fmt: skip
        (folder / f"{record}.dist-info").mkdir()
    return folder


def of_pid(found: Facts, pid: int) -> Process | None:
    """
    What the survey says of a process.
    """
    return next((process for process in found.processes if process.id.pid == pid), None)
