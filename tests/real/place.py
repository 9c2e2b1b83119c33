"""
A box whose server is the real SGLang: an OpenSSH server on loopback, hosts.toml, and who lives there.
"""

import contextlib
import getpass
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from tests.e2e.client import Client, Done, Going
from tests.fakes.sshd import Sshd, free_port
from tests.real.installation import Installation

PATIENCE = 600.0
"""Seconds within which a real server has started, or ended, however busy the machine is."""

SMALL: dict[str, Any] = {
    "device": "cpu",
    "max_total_tokens": 8192,
    "max_running_requests": 4,
    "chunked_prefill_size": 512,
}
"""Without these sizes the pool takes most of the machine's memory."""

GATED_DELTA_NET: dict[str, Any] = {
    "max_mamba_cache_size": 16,
    "mamba_radix_cache_strategy": "no_buffer",
    "disable_overlap_schedule": True,
}
"""What a hybrid model needs on a CPU: SGLang 0.5.23 asserts it while it resolves its arguments."""

NEXTN: dict[str, Any] = {
    "speculative_algorithm": "NEXTN",
    "speculative_num_steps": 3,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 4,
}

NGRAM: dict[str, Any] = {"speculative_algorithm": "NGRAM", "speculative_num_draft_tokens": 4}

SERVERS: dict[str, tuple[str, dict[str, Any]]] = {
    "dense": ("dense", {}),
    "ngram": ("dense-chain", NGRAM),
    "hybrid": ("hybrid", {**GATED_DELTA_NET, **NEXTN}),
    "chain": ("chain", {**GATED_DELTA_NET, **NEXTN}),
}
"""The servers in hosts.toml: the model, and flags beside the sizes."""

ENVIRONMENT = {"SGLANG_USE_CPU_ENGINE": "1", "HF_HUB_OFFLINE": "1"}
"""Without the first SGLang 0.5.23 does not take the CPU for a platform; nothing is to be downloaded."""


class RealClient(Client):
    """
    A client whose commands may take as long as a real server does.
    """

    def run(self, *words: str) -> Done:
        """
        Run a command to its end.
        """
        going = self.start(*words)
        try:
            return going.done(PATIENCE)
        finally:
            going.process.kill()
            going.process.wait()


class Box:
    """
    One box, one client of it, and the port that its servers are to listen on.
    """

    def __init__(self, folder: Path, installed: Installation) -> None:
        self.folder = folder
        self.installed = installed
        self.port = free_port()
        self.sshd = Sshd(folder / "box")
        self.client = RealClient(folder / "client")
        self.write_hosts()

    def write_hosts(self, **further: dict[str, Any]) -> None:
        """
        A hosts.toml with this box and its servers; `further` are more of them, or other flags of these.

        A flag that is None is left out; `model` names a tiny model, `env` further variables.
        """
        line = f"ssh -p {self.sshd.port} -i {self.sshd.key} {getpass.getuser()}@127.0.0.1"
        parts = [f'[hosts.box]\nssh = "{line}"\npython = "{self.installed.python}"']
        for name in {**SERVERS, **further}:
            model, flags = SERVERS.get(name, ("dense", {}))
            given = {"port": self.port, **SMALL, **flags, **further.get(name, {})}
            given.setdefault("model_path", str(self.installed.models / given.pop("model", model)))
            variables = {**ENVIRONMENT, **given.pop("env", {})}
            lines = [f"{key} = {_toml(value)}" for key, value in given.items() if value is not None]
            parts.append("\n".join([f"[servers.{name}]", *lines]))
            lines = [f"{key} = {_toml(value)}" for key, value in variables.items()]
            parts.append("\n".join([f"[servers.{name}.env]", *lines]))
        self.client.write_hosts("\n\n".join(parts) + "\n")

    def run(self, *words: str) -> Done:
        """
        Run a command on this box to its end.
        """
        return self.client.run(*words, "--on", "box")

    def start(self, *words: str) -> Going:
        """
        Start a command on this box.
        """
        return self.client.start(*words, "--on", "box")

    def family(self) -> dict[int, str]:
        """
        Every process of this box's servers by its pid, with its title: all work in their run's folder.
        """
        return {pid: _read(pid, "cmdline").replace("\0", " ").strip() for pid in self._living()}

    def shared_memory(self) -> set[Path]:
        """
        The files in /dev/shm that its servers have mapped.
        """
        mapped = " ".join(_read(pid, "maps") for pid in self.family())
        return {Path(word) for word in mapped.split() if word.startswith("/dev/shm/")}

    def _living(self) -> list[int]:
        runs = str(self.sshd.home / ".mtpdeploy" / "runs")
        pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
        return [pid for pid in pids if _works_in(pid).startswith(runs)]

    def pid(self, role: str) -> int:
        """
        The process with this role: `main`, `scheduler` or `detokenizer`.
        """
        wanted = "sglang.launch_server" if role == "main" else f"sglang::{role}"
        found = [
            pid for pid, title in self.family().items() if wanted in title and "supervise.py" not in title
        ]
        assert found, f"no {role} among {self.family()}"
        return min(found)

    def has(self, role: str) -> bool:
        """
        Whether a process with this role lives.
        """
        return any(f"sglang::{role}" in title for title in self.family().values())

    def kill(self, role: str, number: signal.Signals = signal.SIGKILL) -> None:
        """
        Send a signal to the process with this role.
        """
        os.kill(self.pid(role), number)

    def spoil(self, model: str, **changes: Any) -> Path:
        """
        A copy of a tiny model with another config.json.
        """
        copy = Path(tempfile.mkdtemp(prefix=f"{model}-", dir=self.folder))
        shutil.copytree(self.installed.models / model, copy, dirs_exist_ok=True)
        config = copy / "config.json"
        config.write_text(json.dumps({**json.loads(config.read_text()), **changes}))
        return copy

    def by_hand(self, *flags: str, log: Path | None = None) -> subprocess.Popen[bytes]:
        """
        Start a server as somebody would at a prompt.
        """
        words = [str(self.installed.python), "-m", "sglang.launch_server", "--device", "cpu", *flags]
        with (log or self.folder / "by-hand.log").open("wb") as said:
            return subprocess.Popen(
                words,
                env={**os.environ, **ENVIRONMENT},
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )

    def answers(self) -> bool:
        """
        Whether the server on the box's port is healthy.
        """
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=30) as reply:
                return bool(reply.status == 200)
        except OSError:
            return False

    def is_empty(self) -> bool:
        """
        Whether nothing of it lives any more, shortly after a command.
        """
        until(lambda: not self.family(), f"the end of {self.family()}")
        return not self.listens(self.port)

    def listens(self, port: int) -> bool:
        """
        Whether somebody takes connections there.
        """
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    def clear(self) -> None:
        """
        End what a test left behind, and forget its runs.
        """
        for pid in self.family():
            _kill(pid)
        shutil.rmtree(self.sshd.home / ".mtpdeploy", ignore_errors=True)

    def __enter__(self) -> Self:
        self.sshd.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.sshd.stop()
        self.clear()


def until(happened: Callable[[], bool], what: str) -> None:
    """
    Wait until a condition holds.
    """
    deadline = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < deadline, f"{what} did not happen"
        time.sleep(0.2)


def _works_in(pid: int) -> str:
    try:
        return str(Path(f"/proc/{pid}/cwd").readlink())
    except OSError:
        return ""


def _read(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text(errors="replace")
    except OSError:
        return ""


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    # A text of JSON is one of TOML as well, for what stands here.
    return json.dumps(value) if isinstance(value, str) else str(value)
