"""
A channel to a port on the box, dressed as a socket.
"""

import io
import socket
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from paramiko import Channel


class ChannelSocket:
    """
    What `http.client` and a tunnel need of a socket, over an SSH channel.

    Unlike paramiko's own channel it stays open until the files made from it are closed too, as a socket
    does: http.client closes the socket before it reads a body that ends with the connection.
    """

    def __init__(self, channel: "Channel") -> None:
        self._channel = channel
        self._files = 0
        self._closed = False

    def sendall(self, data: bytes) -> None:
        """
        Send all of `data`.

        Raises:
            OSError: the other side or the line is gone.
        """
        self._channel.sendall(data)

    def recv(self, size: int) -> bytes:
        """
        Up to `size` bytes as soon as there are some; b"" at the end.

        Raises:
            TimeoutError: nothing came within the timeout set.
        """
        return self._channel.recv(size)

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
