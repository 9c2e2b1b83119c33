"""
A channel to a port on the box, dressed as a socket.
"""

import io
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from mtpdeploy.errors import ConnectionLost

if TYPE_CHECKING:
    from paramiko import Channel


class ChannelSocket:
    """
    What `http.client` and a tunnel need of a socket, over an SSH channel.

    Unlike paramiko's own channel it stays open until the files made from it are closed too, as a socket
    does: http.client closes the socket before it reads a body that ends with the connection. And where
    the whole line breaks it says so, which is another thing than the end of one connection.
    """

    def __init__(self, channel: "Channel", lost: Callable[[Exception], ConnectionLost]) -> None:
        self._channel = channel
        self._lost = lost
        self._files = 0
        self._closed = False

    def sendall(self, data: bytes) -> None:
        """
        Send all of `data`.

        Raises:
            OSError: the other side is gone.
            ConnectionLost: the line is.
        """
        try:
            self._channel.sendall(data)
        except OSError as error:
            if self._line_is_up():
                raise
            raise self._lost(error) from error

    def recv(self, size: int) -> bytes:
        """
        Up to `size` bytes as soon as there are some; b"" at the end.

        Raises:
            TimeoutError: nothing came within the timeout set.
            ConnectionLost: the line broke.
        """
        data = self._channel.recv(size)
        if not data and not self._line_is_up():
            raise self._lost(EOFError("closed in the middle of a connection"))
        return data

    def recv_into(self, buffer: memoryview) -> int:
        """
        As `recv`, into `buffer`.
        """
        data = self.recv(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def makefile(self, mode: str = "rb") -> io.BufferedReader:
        """
        A buffered file to read from, the way of `socket.makefile`.

        Raises:
            ValueError: another mode than "rb" is asked for.
        """
        if mode != "rb":
            raise ValueError(f"only for reading: {mode}")
        self._files += 1
        raw = socket.SocketIO(cast("socket.socket", self), "r")
        return io.BufferedReader(raw)

    def settimeout(self, seconds: float | None) -> None:
        """
        Seconds that one call may wait; None for ever.
        """
        self._channel.settimeout(seconds)

    def gettimeout(self) -> float | None:
        """
        What `settimeout` was given.
        """
        return self._channel.gettimeout()

    def shutdown(self, how: int) -> None:
        """
        End one direction or both.
        """
        self._channel.shutdown(how)

    def close(self) -> None:
        """
        Close, once the files made from it are closed too.
        """
        self._closed = True
        self._close_if_unused()

    def _line_is_up(self) -> bool:
        transport = self._channel.get_transport()
        return transport is not None and transport.is_active()

    def _decref_socketios(self) -> None:
        """
        Called by `socket.SocketIO` when it is closed.
        """
        self._files -= 1
        if self._closed:
            self._close_if_unused()

    def _close_if_unused(self) -> None:
        if self._files <= 0:
            self._channel.close()
