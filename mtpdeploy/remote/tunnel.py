"""
A port of this machine that leads to a port of the box, kept open whatever happens to the line.
"""

import contextlib
import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from mtpdeploy.errors import BoxUnreachable, ConfigError, ConnectionLost
from mtpdeploy.remote.box import Box

BUFFER = 1 << 16
"""Bytes moved at a time (ssh-faults, A8 fault 96)."""

BACKLOG = 128
"""Connections that may wait to be accepted: what Linux allows without being asked (SOMAXCONN before 5.4)."""

OTHER_PORTS = 20
"""Ports after the wanted one that are tried where it is taken."""

LOOPBACKS = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))
"""`localhost` may mean either (ssh-faults, A8 fault 97)."""


class Tunnel:
    """
    Listens on loopback and moves bytes to `remote_port` on the box. A context manager.

    A client whose connection cannot be opened on the box is closed, and only that one; the listener
    stays, and the next client is served as soon as the box is back. `told` gets a sentence when the
    line breaks or comes back.
    """

    def __init__(
        self, box: Box, remote_port: int, local_port: int, told: Callable[[str], None] = lambda _text: None
    ) -> None:
        self._box = box
        self._remote_port = remote_port
        self._told = told
        self._listeners = _bind(local_port)
        self._open = threading.Lock()
        self._broken = False
        self.port = int(self._listeners[0].getsockname()[1])

    def __enter__(self) -> Self:
        for listener in self._listeners:
            threading.Thread(target=self._accept, args=(listener,), name="tunnel", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._told = lambda _text: None
        for listener in self._listeners:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), name="tunnel client", daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        channel = self._channel()
        if channel is None:
            client.close()
            return
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        back = threading.Thread(target=_move, args=(channel, client), name="tunnel back", daemon=True)
        back.start()
        _move(client, channel)
        back.join()
        client.close()
        channel.close()

    def _channel(self) -> socket.socket | None:
        """
        A connection on the box; opening goes one at a time, so that a broken line is mended once.
        """
        with self._open:
            try:
                channel = self._box.open_port(self._remote_port)
            except ConnectionRefusedError:
                self._told(f"nothing answers on port {self._remote_port} of the box yet")
                return None
            except BoxUnreachable as error:
                self._note_broken(error.message)
                return None
            if self._broken:
                self._broken = False
                self._told("the line to the box is back")
            return channel

    def _note_broken(self, why: str) -> None:
        if not self._broken:
            self._broken = True
            self._told(f"the line to the box broke: {why}")


def _move(source: socket.socket, sink: socket.socket) -> None:
    """
    Move bytes one way until the source ends, then end that way only.
    """
    with contextlib.suppress(OSError, EOFError, ConnectionLost):
        while data := source.recv(BUFFER):
            sink.sendall(data)
    with contextlib.suppress(OSError, EOFError):
        sink.shutdown(socket.SHUT_WR)


def _bind(port: int) -> list[socket.socket]:
    """
    Listeners on both loopback addresses, on `port` or one of the next few where it is taken.

    Raises:
        ConfigError: all of them are taken.
    """
    for candidate in range(port, min(port + OTHER_PORTS, 65536)):
        listeners = _bind_all(candidate)
        if listeners:
            return listeners
    raise ConfigError(
        f"the local ports {port} to {port + OTHER_PORTS - 1} are all taken",
        hint="choose another with `--local-port`",
    )


def _bind_all(port: int) -> list[socket.socket]:
    listeners: list[socket.socket] = []
    for family, address in LOOPBACKS:
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((address, port if not listeners else listeners[0].getsockname()[1]))
            listener.listen(BACKLOG)
        except OSError:
            listener.close()
            if not listeners:
                return []
            continue
        listeners.append(listener)
    return listeners
