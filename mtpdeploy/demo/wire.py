"""
The demo box's SSH server: asyncssh in a thread, real commands run in the demo's home.

Nothing is simulated here: the connection, the commands and the processes are real ones on this
machine; only the GPU and SGLang of the demo home are not.
"""

import asyncio
import contextlib
import os
import signal
import threading
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from cryptography.utils import CryptographyDeprecationWarning
from msgspec import Struct

with warnings.catch_warnings():
    # asyncssh names DSA's classes when it is imported, of which cryptography 51 says that they will go.
    warnings.simplefilter("ignore", CryptographyDeprecationWarning)
    import asyncssh

START_TIMEOUT = 20.0
"""Seconds for the SSH server to listen; it takes about 0.1 s (measured here, key creation included)."""


CLOSE_TIMEOUT = 2.0
"""Seconds for sessions to end by themselves once their lines are cut; they need some milliseconds."""

CHUNK = 1 << 16
"""Bytes moved at a time; a pipe holds as many."""


class Wire(Struct, frozen=True):
    """
    How the line to the demo box misbehaves. By default it does not.

    `drop_every` seconds after which every connection is cut without a word; `noise` is printed by the
    login shell before any command; `no_sftp` and `no_forwarding` take these away, as some providers do.
    """

    drop_every: float | None = None
    noise: str = ""
    no_sftp: bool = False
    no_forwarding: bool = False


class _Login(asyncssh.SSHServer):
    """
    One connection: forwarding allowed or not, and cut after a while if told to.
    """

    def __init__(self, wire: Wire, open_lines: set[asyncssh.SSHServerConnection]) -> None:
        self._wire = wire
        self._open_lines = open_lines
        self._line: asyncssh.SSHServerConnection | None = None
        self._cut: asyncio.TimerHandle | None = None

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        """
        Remember the line, and arrange its cut.
        """
        self._line = conn
        self._open_lines.add(conn)
        if self._wire.drop_every is not None:
            self._cut = asyncio.get_running_loop().call_later(self._wire.drop_every, conn.abort)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncssh's signature
        """
        Forget the line and its cut.
        """
        if self._line is not None:
            self._open_lines.discard(self._line)
        if self._cut is not None:
            self._cut.cancel()

    def connection_requested(
        self,
        dest_host: str,
        dest_port: int,  # noqa: ARG002
        orig_host: str,  # noqa: ARG002
        orig_port: int,  # noqa: ARG002
    ) -> bool:
        """
        Forward to this machine only.
        """
        return not self._wire.no_forwarding and dest_host in ("127.0.0.1", "localhost", "::1")


SETTLING_TURNS = 10
"""Turns of the loop in which whatever hangs on a cut line closes: line, channel, forwarder, socket."""


class SshServer:
    """
    An SSH server on loopback whose logins land in `home`. A context manager.

    `address`, `port`, `user` and `identity_file` are what a client needs. Host key and client key are
    made once and stay in `keys`, so that the address keeps its host key between commands.

    Raises:
        OSError: no port could be had.
    """

    user = "demo"
    address = "127.0.0.1"

    def __init__(
        self, home: Path, keys: Path, environment: Mapping[str, str], wire: Wire | None = None
    ) -> None:
        self._home = home
        self._environment = {**_base_environment(), **environment, "HOME": str(home), "SHELL": "/bin/sh"}
        self._wire = wire or Wire()
        self._keys = keys
        self._loop = asyncio.new_event_loop()
        self._listening = threading.Event()
        self._failure: BaseException | None = None
        self._server: asyncssh.SSHAcceptor | None = None
        self._open_lines: set[asyncssh.SSHServerConnection] = set()
        self._thread = threading.Thread(target=self._serve, name="demo-sshd", daemon=True)
        self.identity_file = keys / "client"
        self.port = 0

    def __enter__(self) -> Self:
        self._keys.mkdir(parents=True, mode=0o700, exist_ok=True)
        for name in ("host", "client"):
            _make_key(self._keys / name)
        self._thread.start()
        self._listening.wait(START_TIMEOUT)
        if self._failure is not None or not self.port:
            raise OSError(f"the demo box's SSH server did not start: {self._failure}")
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(START_TIMEOUT)

    async def _close(self) -> None:
        if self._server is not None:
            self._server.close()
        for line in list(self._open_lines):
            line.abort()
        sessions = asyncio.all_tasks() - {asyncio.current_task()}
        if sessions:
            # Cutting the lines ends them; one cancelled while it starts its shell would hang (Python 3.11).
            _, sessions = await asyncio.wait(sessions, timeout=CLOSE_TIMEOUT)
        for session in sessions:
            session.cancel()
        await asyncio.gather(*sessions, return_exceptions=True)
        for _ in range(SETTLING_TURNS):
            # A line may have been accepted meanwhile; a forwarded connection closes a turn after its line.
            for line in list(self._open_lines):
                line.abort()
            await asyncio.sleep(0)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._server = self._loop.run_until_complete(self._listen())
            self.port = self._server.get_port()
        except BaseException as failure:  # noqa: BLE001 - told to the thread that waits
            self._failure = failure
        finally:
            self._listening.set()
        if self._failure is None:
            self._loop.run_forever()
            self._loop.run_until_complete(self._close())
        self._loop.close()

    async def _listen(self) -> asyncssh.SSHAcceptor:
        return await asyncssh.create_server(
            lambda: _Login(self._wire, self._open_lines),
            self.address,
            0,
            server_host_keys=[str(self._keys / "host")],
            authorized_client_keys=str(self._keys / "client.pub"),
            process_factory=self._session,
            sftp_factory=None if self._wire.no_sftp else True,
            encoding=None,
            line_editor=False,
        )

    async def _session(self, process: "asyncssh.SSHServerProcess[bytes]") -> None:
        """
        Run what was asked for in a real shell, as sshd does.
        """
        shell = await asyncio.create_subprocess_exec(
            "/bin/sh",
            *(["-c", process.command] if process.command else []),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self._environment,
            cwd=self._home,
        )
        if self._wire.noise:
            process.stdout.write(self._wire.noise.encode())
        feeding = asyncio.ensure_future(_feed(process, shell))
        closed = asyncio.ensure_future(process.wait_closed())
        output = asyncio.ensure_future(_show(shell, process))
        try:
            await asyncio.wait((closed, output), return_when=asyncio.FIRST_COMPLETED)
            if not closed.done():
                process.exit(_status(await shell.wait()))
        finally:
            for task in (feeding, closed, output):
                task.cancel()
            await _end(shell)
            await asyncio.gather(feeding, closed, output, return_exceptions=True)


async def _feed(process: "asyncssh.SSHServerProcess[bytes]", shell: asyncio.subprocess.Process) -> None:
    """
    What the client sends is the shell's standard input, up to its end.
    """
    if shell.stdin is None:
        return
    with contextlib.suppress(asyncssh.Error, OSError):
        while data := await process.stdin.read(CHUNK):
            shell.stdin.write(data)
            await shell.stdin.drain()
    shell.stdin.close()


async def _show(shell: asyncio.subprocess.Process, process: "asyncssh.SSHServerProcess[bytes]") -> None:
    """
    What the shell prints goes to the client, up to the end of both.
    """
    async with asyncio.TaskGroup() as pumps:
        pumps.create_task(_pump(shell.stdout, process.stdout))
        pumps.create_task(_pump(shell.stderr, process.stderr))


async def _pump(source: asyncio.StreamReader | None, sink: "asyncssh.SSHWriter[bytes]") -> None:
    if source is None:
        return
    with contextlib.suppress(asyncssh.Error, OSError):
        while data := await source.read(CHUNK):
            sink.write(data)
            await sink.drain()


async def _end(shell: asyncio.subprocess.Process) -> None:
    """
    End the shell of a session that is over; what it detached goes on, as under sshd.

    Neither `shell.kill()` nor closing its transport will do while asyncio has not seen its end: both ask
    after it (`Popen.poll`) and so reap it, and asyncio's own watcher then complains of an unknown child.
    """
    if shell.stdin is not None:
        shell.stdin.close()
    if shell.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(shell.pid, signal.SIGKILL)
    try:
        await _seen(shell)
    finally:
        # A detached process may hold the pipes for ever; asyncio closes its ends only when told to.
        shell._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001


async def _seen(shell: asyncio.subprocess.Process) -> None:
    """
    Wait until asyncio knows of the end of a shell that was killed, also where the session is cancelled.
    """
    end = asyncio.ensure_future(shell.wait())
    while not end.done():
        try:
            await asyncio.shield(end)
        except asyncio.CancelledError:
            continue


def _status(returncode: int) -> int:
    return returncode if returncode >= 0 else 128 - returncode


def _base_environment() -> dict[str, str]:
    """
    What a login starts with here; nothing of the user's own variables leaks into the box.
    """
    return {"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8", "USER": "demo"}


def _make_key(path: Path) -> None:
    if path.exists():
        return
    key = asyncssh.generate_private_key("ssh-ed25519", comment="mtpdeploy demo")
    path.touch(mode=0o600)
    path.write_bytes(key.export_private_key())
    path.with_suffix(".pub").write_bytes(key.export_public_key())
