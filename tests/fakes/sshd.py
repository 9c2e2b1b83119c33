"""
A real OpenSSH server on loopback, and a wire to it that is slow or breaks.
"""

import asyncio
import contextlib
import os
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from mtpdeploy.core.machine import Host

DEADLINE = 20.0
"""Seconds within which what must happen at all has to happen."""


PENALTIES = (9, 8)
"""The OpenSSH that began to shut out addresses with failed logins: loopback, here (its release notes)."""


def make_key(path: Path, kind: str = "ed25519", passphrase: str = "") -> Path:
    """
    A key pair: `path` and `path`.pub.
    """
    words = ["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-C", path.name, "-f", str(path)]
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL)
    return path


def free_port() -> int:
    """
    A port on which nothing listens at the moment.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


class Sshd:
    """
    sshd in the foreground, for the user who runs the tests, with keys and files below `folder`.

    `lines` are further lines of sshd_config. `login_shell` stands in for the login shell: it is given the
    command the way sshd gives it. Sessions have `home` as HOME. There is no sftp subsystem.
    """

    def __init__(
        self, folder: Path, *, lines: Sequence[str] = (), login_shell: str = "", port: int = 0
    ) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.home.mkdir(parents=True, exist_ok=True)
        self.port = port or free_port()
        self.log = folder / "sshd.log"
        self.host_key = folder / "host_key"
        self.key = folder / "client_key"
        for path in (self.host_key, self.key):
            if not path.exists():
                make_key(path)
        self.client_config = folder / "ssh_config"
        self.client_config.write_text(f"UserKnownHostsFile {folder}/users_known_hosts\n")
        forced = [f'ForceCommand {login_shell} "$SSH_ORIGINAL_COMMAND"'] if login_shell else []
        self._config = folder / "sshd_config"
        self._config.write_text("\n".join([*lines, *forced, *self._settings(), ""]))
        self._process: subprocess.Popen[bytes] | None = None

    def _settings(self) -> list[str]:
        return [
            f"Port {self.port}",
            "ListenAddress 127.0.0.1",
            f"HostKey {self.host_key}",
            f"AuthorizedKeysFile {self.key}.pub",
            f"SetEnv HOME={self.home}",
            "StrictModes no",
            "UsePAM no",
            "PermitRootLogin yes",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "PidFile none",
            "LogLevel VERBOSE",
            *(["PerSourcePenalties no"] if _version() >= PENALTIES else []),
        ]

    def host(self, port: int | None = None, **changes: object) -> Host:
        """
        The entry of hosts.toml that leads here.
        """
        fields = {"name": "here", "address": "127.0.0.1", "port": port or self.port, **changes}
        return Host(**{"identity_file": str(self.key), **fields})  # type: ignore[arg-type]

    def start(self) -> Self:
        """
        Start it, and wait until it listens.
        """
        if os.getuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                ["/usr/sbin/sshd", "-D", "-e", "-f", str(self._config)], stdin=subprocess.DEVNULL, stderr=log
            )
        until(lambda: "Server listening" in self.log.read_text())
        return self

    def sessions(self) -> list[int]:
        """
        The pids of the sshd processes that serve a connection now.
        """
        assert self._process is not None
        return _children(self._process.pid)

    def signal_sessions(self, number: signal.Signals) -> None:
        """
        Send a signal to each of them: STOP freezes the far end, KILL drops the connection.
        """
        for pid in self.sessions():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def stop(self) -> None:
        """
        End it, with the sessions that are left.
        """
        if self._process is not None:
            self.signal_sessions(signal.SIGKILL)
            self._process.terminate()
            self._process.wait()
            self._process = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class Relay:
    """
    A wire to a port on loopback that takes `delay` seconds each way, and can be cut.
    """

    def __init__(self, target: int, delay: float = 0.0) -> None:
        self._target = target
        self._delay = delay
        self._loop = asyncio.new_event_loop()
        self._sockets: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setblocking(False)
        self.port = int(self._listener.getsockname()[1])
        self.accepted = 0
        self._thread = threading.Thread(target=self._work, name="relay")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def cut(self, *, reset: bool = False) -> None:
        """
        Break every connection now: by an orderly end, or by RST.
        """
        done = threading.Event()
        self._loop.call_soon_threadsafe(self._cut, reset, done)
        done.wait(DEADLINE)

    def _cut(self, reset: bool, done: threading.Event) -> None:
        for task in self._tasks:
            task.cancel()
        for sock in self._sockets:
            if reset:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            else:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)
            sock.close()
        self._sockets.clear()
        done.set()

    def _work(self) -> None:
        accepting = self._loop.create_task(self._accept())
        self._loop.run_forever()
        accepting.cancel()
        self._cut(reset=False, done=threading.Event())
        self._loop.run_until_complete(asyncio.gather(accepting, *self._tasks, return_exceptions=True))
        self._listener.close()
        self._loop.close()

    async def _accept(self) -> None:
        while True:
            near, _ = await self._loop.sock_accept(self._listener)
            self.accepted += 1
            far = socket.create_connection(("127.0.0.1", self._target))
            for sock in (near, far):
                sock.setblocking(False)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._sockets.append(sock)
            for source, sink in ((near, far), (far, near)):
                self._start(self._carry(source, sink))

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        self._start(self._deliver(queue, sink))
        data = b"-"
        while data:
            try:
                data = await self._loop.sock_recv(source, 1 << 16)
            except OSError:
                data = b""
            queue.put_nowait((self._loop.time() + self._delay, data))

    async def _deliver(self, queue: asyncio.Queue[tuple[float, bytes]], sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                due, data = await queue.get()
                await asyncio.sleep(due - self._loop.time())
                if not data:
                    sink.shutdown(socket.SHUT_WR)
                    return
                await self._loop.sock_sendall(sink, data)


def until(happened: Callable[[], bool]) -> None:
    """
    Wait until a condition holds.
    """
    deadline = time.monotonic() + DEADLINE
    while not happened():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.005)


def _version() -> tuple[int, ...]:
    """
    OpenSSH's version, as `ssh -V` prints it.
    """
    told = subprocess.run(["ssh", "-V"], capture_output=True, check=True).stderr.decode()
    found = re.search(r"OpenSSH_(\d+)\.(\d+)", told)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _children(pid: int) -> list[int]:
    """
    The sshd processes below `pid`.
    """
    found: list[int] = []
    with contextlib.suppress(OSError):
        for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            if Path(f"/proc/{word}/comm").read_text().startswith("sshd"):
                found += [int(word), *_children(int(word))]
    return found
