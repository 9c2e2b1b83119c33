"""
The whole contact with a box, as the rest of the program sees it.
"""

import socket
from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self

from msgspec import Struct

from mtpdeploy.core.machine import Host


class Result(Struct, frozen=True):
    """
    A command that ran to its end. `status` as a shell shows it; a failing command is no error.
    """

    status: int
    out: bytes
    err: bytes

    @property
    def text(self) -> str:
        """
        What it printed, decoded; damaged bytes are replaced.
        """
        return self.out.decode("utf-8", "replace")


class ForwardingForbiddenError(ConnectionRefusedError):
    """
    The box's sshd forwards no ports (AllowTcpForwarding no), whatever listens there.
    """


class Stream(Protocol):
    """
    A long-lived command whose output is read as it comes.
    """

    def read(self, timeout: float) -> bytes | None:
        """
        Bytes as soon as there are some; b"" at the end; None when nothing came within `timeout` seconds.

        Raises:
            ConnectionLost: the line to the box broke.
        """

    def close(self) -> None:
        """
        End the command's channel; safe to call twice and from another thread.
        """


class Box(Protocol):
    """
    An open line to one host.

    `run` may be called from one thread at a time, `stream` and `open_port` from any. No method
    retries: what may be repeated is known by the caller. `round_trips` counts how often an answer of
    the box was awaited since the connection stood (opening a channel counts as one).
    """

    host: Host
    round_trips: int

    def run(
        self, script: str, *, limit: float = 20, on_output: Callable[[bytes], None] | None = None
    ) -> Result:
        """
        Run POSIX sh text on the box, apart from the login shell, and wait at most `limit` seconds.

        The answer is read between frames that carry a nonce, so that banners and noisy start-up files
        do no harm. `on_output` is given standard output as it comes.

        Raises:
            ConnectionLost: no end frame came: the line broke, or `limit` passed; whether the script ran
                is then unknown.
            BoxUnreachable: the account has no usable shell (auto-tmux, ForceCommand, nologin).
        """

    def stream(self, script: str) -> Stream:
        """
        Start POSIX sh text on a connection of its own and read its standard output as it comes.

        Raises:
            ConnectionLost: the box cannot be reached any more.
        """

    def open_port(self, port: int) -> socket.socket:
        """
        Open a TCP connection to 127.0.0.1:`port` on the box; what comes back works like a socket.

        Raises:
            ConnectionRefusedError: nothing listens there.
            ForwardingForbiddenError: one of these: the box's sshd forwards no ports.
            ConnectionLost: the line to the box broke.
        """

    def close(self) -> None:
        """
        Close every connection; safe to call twice.
        """

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
