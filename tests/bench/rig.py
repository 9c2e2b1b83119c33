"""
A box to measure on: the demo home behind OpenSSH's own sshd, with a wire that may be slow.
"""

import getpass
import queue
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from mtpdeploy.clock import SystemClock
from mtpdeploy.core.events import AnyEvent
from mtpdeploy.core.launch import RUN_MARKER
from mtpdeploy.core.machine import Host
from mtpdeploy.core.outcome import Ascent
from mtpdeploy.core.server import ServerSpec
from mtpdeploy.demo.home import Hostile, make_home
from mtpdeploy.demo.site.sglang import processes
from mtpdeploy.demo.site.sglang.settings import HOME_VARIABLE
from mtpdeploy.deploy.order import Options, Order, Tools
from mtpdeploy.deploy.up import bring_up
from mtpdeploy.engines.sglang import SGLANG
from mtpdeploy.engines.sglang.rungs import LADDERS
from mtpdeploy.remote.ssh import SshBox
from tests.deploy.place import FAST, FITTING
from tests.fakes.sshd import Relay, Sshd, free_port

READY_LINE = b"[2026-12-01 09:30:12] The server is fired up and ready to roll!\n"
DELAY = 0.1
"""Seconds that the slow wire adds to a round trip: half of it each way."""


class Rig:
    """
    One demo home, one sshd that leads there, one state directory.
    """

    def __init__(self, folder: Path, *, hostile: Hostile | None = None, speed: float = FAST) -> None:
        self.folder = folder
        self.home = make_home(folder / "home", hostile=hostile, speed=speed)
        environment = self.home.environment
        kept = " ".join(f'"{name}={environment[name]}"' for name in ("HOME", "PATH", HOME_VARIABLE))
        self.sshd = Sshd(
            folder / "sshd", lines=[f"SetEnv {kept}", "Subsystem sftp internal-sftp", "MaxStartups 100"]
        )
        self.state = folder / "state"
        self.server_port = free_port()

    def host(self, port: int | None = None) -> Host:
        """
        The box as hosts.toml would have it; `port` is that of a relay in front.
        """
        return self.sshd.host(port, python=str(self.home.bin / "python"))

    def box(self, port: int | None = None) -> SshBox:
        """
        A line to it.
        """
        return SshBox(self.host(port), state=self.state, config=self.sshd.client_config)

    def server(self, **flags: Any) -> ServerSpec:
        """
        A server that fits the card at the first attempt.
        """
        return self.server_of(str(self.home.model()), self.server_port, **flags)

    @staticmethod
    def server_of(model: str, port: int, **flags: Any) -> ServerSpec:
        """
        The same with any model and port.
        """
        given = {"model_path": model, "port": port, **FITTING, **flags}
        return ServerSpec(name="qwen", flags=given, env={"SGLANG_ENABLE_SPEC_V2": "1"})

    def up(self, box: SshBox, emit: Callable[[AnyEvent], None], **options: Any) -> Ascent:
        """
        Bring it up over an open line.
        """
        order = Order(self.server(), box.host, LADDERS["default"], Options(**options))
        ladder = LADDERS.__getitem__
        tools = Tools(box=box, engine=SGLANG, clock=SystemClock(), emit=emit, state=self.state, ladder=ladder)
        return bring_up(order, tools)

    def kill_server(self) -> float:
        """
        SIGKILL every process of the run, the supervisor first; the moment before the first signal.
        """
        family = [entry for entry in self.home.living() if _is_of_a_run(entry[0])]
        assert family, "there is no server to kill"
        family.sort(key=lambda entry: "supervise.py" not in entry[2])
        killed = time.perf_counter()
        for pid, start, _ in family:
            processes.end(pid, start)
        return killed

    def stop_server(self) -> None:
        """
        End what was started, between two measurements.
        """
        family = [entry for entry in self.home.living() if _is_of_a_run(entry[0])]
        for pid, start, _ in family:
            processes.end(pid, start)
        for pid, start, _ in family:
            assert processes.wait_gone(pid, start, 10)

    def ssh(self, command: str) -> "subprocess.Popen[bytes]":
        """
        OpenSSH's own client running a command there.
        """
        return subprocess.Popen(
            self.ssh_words(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def ssh_words(self, command: str) -> list[str]:
        """
        Its command line.
        """
        options = [
            "BatchMode=yes",
            "StrictHostKeyChecking=no",
            f"UserKnownHostsFile={self.folder}/ssh_known_hosts",
            "LogLevel=ERROR",
            "IdentitiesOnly=yes",
        ]
        given = [word for option in options for word in ("-o", option)]
        where = ["-F", "/dev/null", "-p", str(self.sshd.port), "-i", str(self.sshd.key)]
        return ["ssh", *where, *given, f"{getpass.getuser()}@127.0.0.1", command]

    def __enter__(self) -> Self:
        self.sshd.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.sshd.stop()
        self.home.clean()


@contextmanager
def wire(rig: Rig, delay: float) -> Iterator[int]:
    """
    The port that leads to the rig's sshd with so many seconds added to a round trip.
    """
    if not delay:
        yield rig.sshd.port
        return
    with Relay(rig.sshd.port, delay / 2) as relay:
        yield relay.port


def round_trip(box: SshBox, times: int = 9) -> float:
    """
    Seconds for a question and its answer on the open connection: what the wire and both ends take.
    """
    taken = []
    line = box._main_line()
    for _ in range(times):
        begun = time.perf_counter()
        line._ask()
        taken.append(time.perf_counter() - begun)
    return sorted(taken)[times // 2]


Told = queue.Queue[tuple[float, AnyEvent]]
"""Events with the moment at which they were told, on `time.perf_counter`'s clock."""


def next_event(told: Told, kind: type, seconds: float = 60.0) -> tuple[float, Any]:
    """
    The next event of a kind.

    Raises:
        TimeoutError: it did not come.
    """
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        try:
            moment, event = told.get(timeout=left)
        except queue.Empty:
            break
        if isinstance(event, kind):
            return moment, event
    raise TimeoutError(f"no {kind.__name__} within {seconds:.0f} s")


def _is_of_a_run(pid: int) -> bool:
    try:
        return f"{RUN_MARKER}=".encode() in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
