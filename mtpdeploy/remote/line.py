"""
One SSH connection that stands, and the sessions on it.
"""

import contextlib
import threading
import time
from collections.abc import Callable

from paramiko import Channel, ChannelException, Message, SSHException, Transport
from paramiko.common import OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED, cMSG_CHANNEL_REQUEST

from mtpdeploy.errors import ConnectionLost
from mtpdeploy.remote.box import ForwardingForbiddenError
from mtpdeploy.remote.channel_socket import ChannelSocket
from mtpdeploy.remote.retry import HEARTBEAT

CHANNEL_LIMIT = 10.0
"""
Seconds for a channel to open. paramiko's own is 3600 s (source; ssh-faults, E17), ten is what A3 26 advises.
"""

RECEIVE = 1 << 22
"""Bytes taken at a time: more than paramiko's window of 2 MiB, so that its buffer is emptied, not cut."""

_BROKEN = (SSHException, EOFError, OSError)
"""What paramiko raises when a transport is gone (ssh-faults, E1, E8, E17)."""


class SessionRefused(Exception):
    """
    The connection stands, but sshd gives no further session on it (`MaxSessions`).
    """


class Line:
    """
    One connection; `shut` closes it, with the connections to jump hosts that it runs through.
    """

    def __init__(self, label: str, transport: Transport, shut: Callable[[], None]) -> None:
        self.label = label
        self._transport = transport
        self._shut = shut
        self._question: threading.Thread | None = None
        self._asked = 0.0

    @property
    def alive(self) -> bool:
        """
        Whether the connection stands as far as this side knows; a dead peer takes asking: `unanswered`.
        """
        return bool(self._transport.is_active())

    def start(self, command: str) -> "Session":
        """
        Open a session and have it run `command`, without waiting for the word that it was started.

        Raises:
            SessionRefused: sshd gives no session.
            ConnectionLost: the line is dead.
        """
        try:
            channel = self._transport.open_session(timeout=CHANNEL_LIMIT)
            message = Message()
            message.add_byte(cMSG_CHANNEL_REQUEST)
            message.add_int(channel.remote_chanid)
            message.add_string("exec")
            message.add_boolean(True)
            message.add_string(command)
            # paramiko's exec_command would wait a round trip for the answer, which says nothing new: a
            # refused request closes the channel.
            self._transport._send_user_message(message)  # type: ignore[attr-defined]  # noqa: SLF001
        except ChannelException as error:
            raise SessionRefused(str(error)) from error
        except _BROKEN as error:
            raise self.lost(error) from error
        return Session(self, channel)

    def open_port(self, port: int) -> ChannelSocket:
        """
        A connection to 127.0.0.1:`port` on the box.

        Raises:
            ConnectionRefusedError: nothing listens there.
            ForwardingForbiddenError: the box's sshd forwards no ports.
            ConnectionLost: the line is dead.
        """
        try:
            channel = self._transport.open_channel(
                "direct-tcpip", ("127.0.0.1", port), ("127.0.0.1", 0), timeout=CHANNEL_LIMIT
            )
        except ChannelException as error:
            prohibited = error.code == OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED
            refused = ForwardingForbiddenError if prohibited else ConnectionRefusedError
            raise refused(f"port {port} of {self.label}: {error.text}") from error
        except _BROKEN as error:
            raise self.lost(error) from error
        return ChannelSocket(channel, self.lost)

    def unanswered(self) -> float:
        """
        Ask the other side for a sign of life, and say for how many seconds it has owed one.

        Even "request denied" is an answer (RFC 4254, section 4); one question at a time, and a new one not
        sooner than a heartbeat after the last.
        """
        now = time.monotonic()
        if self._question is not None and self._question.is_alive():
            return now - self._asked
        if self._question is None or now - self._asked >= HEARTBEAT:
            self._asked = now
            self._question = threading.Thread(target=self._ask, name="sign of life", daemon=True)
            self._question.start()
        return 0.0

    def answers_within(self, seconds: float) -> bool:
        """
        Whether the other side shows a sign of life within `seconds`.
        """
        self.unanswered()
        if self._question is not None:
            self._question.join(seconds)
        return self.alive and self.unanswered() == 0.0

    def lost(self, error: Exception) -> ConnectionLost:
        """
        Close the line, and say so in one of our errors.
        """
        self.close()
        return ConnectionLost(
            f"the line to {self.label} broke: {error or type(error).__name__}",
            hint="the server on the box goes on; `mtpdeploy attach` follows it again",
        )

    def close(self) -> None:
        """
        Close the connection and those it runs through; safe to call twice and from any thread.
        """
        with contextlib.suppress(*_BROKEN):
            self._shut()

    def _ask(self) -> None:
        with contextlib.suppress(*_BROKEN):
            self._transport.global_request("keepalive@openssh.com", wait=True)


class Session:
    """
    A command running on the box: bytes in, bytes out on two streams.
    """

    def __init__(self, line: Line, channel: Channel) -> None:
        self.line = line
        self._channel = channel
        self._bell = _Bell()
        channel.in_buffer.set_event(self._bell)
        channel.in_stderr_buffer.set_event(self._bell)

    @property
    def ended(self) -> bool:
        """
        Whether the box said that the command's output is complete: not so when the line broke.

        Servers other than OpenSSH leave out the end of file (RFC 4254 allows it) and give the exit status.
        """
        return bool(self._channel.eof_received) or self._channel.exit_status >= 0

    def send(self, data: bytes, *, limit: float) -> None:
        """
        Send all of `data`, at most `limit` seconds long.

        Raises:
            ConnectionLost: the line is dead, or did not take it in time.
        """
        watch = threading.Timer(limit, self.line.close)
        watch.daemon = True
        watch.start()
        try:
            self._channel.settimeout(limit)
            self._channel.sendall(data)
        except _BROKEN as error:
            if not self.ended:
                raise self.line.lost(error) from error
        finally:
            watch.cancel()

    def send_end(self) -> None:
        """
        Let the command see the end of its input.
        """
        with contextlib.suppress(*_BROKEN):
            self._channel.shutdown_write()

    def receive(self, wait: float) -> tuple[bytes, bytes] | None:
        """
        What came on standard output and standard error; both empty at the end; None after `wait` seconds.
        """
        deadline = time.monotonic() + wait
        while True:
            self._bell.hush()
            over = self._channel.eof_received or self._channel.closed
            out = self._channel.recv(RECEIVE) if self._channel.recv_ready() else b""
            err = self._channel.recv_stderr(RECEIVE) if self._channel.recv_stderr_ready() else b""
            if out or err or over:
                return out, err
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            self._bell.wait(left)

    def close(self) -> None:
        """
        Give the session up; the command on the box is not ended by that.
        """
        with contextlib.suppress(*_BROKEN):
            self._channel.close()


class _Bell(threading.Event):
    """
    Rung by two buffers when data came. A buffer that is empty may not silence the other's ringing.
    """

    def clear(self) -> None:
        pass

    def hush(self) -> None:
        """
        Silence it, before both buffers are looked at.
        """
        super().clear()
