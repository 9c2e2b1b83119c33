"""
The open line to a real box.
"""

import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, cast

from mtpdeploy.core.machine import Host
from mtpdeploy.errors import BoxUnreachable, ConnectionLost
from mtpdeploy.remote import control
from mtpdeploy.remote.box import Result
from mtpdeploy.remote.retry import HEARTBEAT, SILENCE_LIMIT

if TYPE_CHECKING:
    import socket

    from mtpdeploy.remote.connect import Opener
    from mtpdeploy.remote.line import Line, Session

OPENING = 2
"""
Round trips until a new channel takes a script: one opens it, and sshd lets input in only when the command
is started (its session channels begin with a window of 0; measured, 313 ms to the first answer at 100 ms).
"""

LONGEST_ANSWER = 64 << 20
"""Bytes of an answer: a survey of fifty runs has one hundredth. Logs come by streams."""

LOOK_EVERY = 1.0
"""Seconds between two looks whether a silent line is still alive."""

LAST_QUESTION = 3.0
"""Seconds for a sign of life before a silent shell is blamed, not the line: a slow round trip thrice."""

SEND_LIMIT = 20.0
"""Seconds for sending a stream's script: what `run` allows by default."""

NO_SHELL_HINT = (
    "an auto-tmux login (Vast.ai: touch ~/.no_auto_tmux on the box), a ForceCommand in its sshd_config, or"
    " nologin as login shell (chsh -s /bin/sh) does this; RunPod's ssh.runpod.io cannot run commands at"
    " all: use its address for `SSH over exposed TCP`"
)


class SshBox:
    """
    A `Box` over SSH: one connection for `run` and `open_port`, others for streams.

    Each connection carries one session at a time, so that `MaxSessions 1` is enough. The connection for
    the first stream, and the shell that waits there for its script, are opened in the background. A line
    that was lost is opened anew by the next call. `noise` is what the account's start-up files print.

    Our known_hosts file lies in the folder `state` (the user's state directory). `strict` refuses a host
    whose key was never seen; `told` is given what the user should know (a first contact). `config`
    stands in for ~/.ssh/config.
    """

    def __init__(
        self,
        host: Host,
        *,
        state: Path | None = None,
        strict: bool = False,
        config: Path | None = None,
        told: Callable[[str], None] = lambda _text: None,
    ) -> None:
        self.host = host
        self.round_trips = 0
        self.noise = ""
        self._pins = state / "known_hosts" if state else None
        self._strict = strict
        self._config = config
        self._told = told
        self._lock = threading.Lock()
        self._opening = threading.Lock()
        self._closed = False
        self._lines: list[Line] = []
        self._idle: list[Line] = []
        self._ready: Session | None = None
        self._opener: Opener | None = None
        self._main: Line | None = None
        self._shell: Session | None = None
        self._shell_answered = False
        self._spare = threading.Thread(target=self._open_spare, name="second connection", daemon=True)

    def connect(self) -> None:
        """
        Open the first connection, unless that was done; every other method does it where it was not.

        Raises:
            ConfigError: the OpenSSH configuration is wrong.
            BoxUnreachable: the host cannot be reached or entered.
            HostKeyChanged: something else answers there.
        """
        self._main_line()

    def run(
        self, script: str, *, limit: float = 20, on_output: Callable[[bytes], None] | None = None
    ) -> Result:
        """
        See `Box.run`. A `limit` that passes costs the control shell, not the connection.
        """
        deadline = time.monotonic() + limit
        mark = control.new_mark()
        text = control.request(script, mark)
        shell = self._control_shell()
        answer = control.Answer(mark)
        try:
            shell.send(text, limit=limit)
            result = self._await(shell, answer, deadline, on_output)
        except BaseException:
            self._shell = None
            shell.close()
            raise
        self.round_trips += 1
        self._shell_answered = True
        return result

    def stream(self, script: str) -> "SshStream":
        """
        See `Box.stream`.

        Raises:
            ConnectionLost: the box cannot be reached any more.
            BoxUnreachable: it cannot be entered any more.
        """
        mark = control.new_mark()
        text = control.single(script, mark)
        session = self._free_session()
        session.send(text, limit=SEND_LIMIT)
        session.send_end()
        return SshStream(session, mark, self._give_back)

    def open_port(self, port: int) -> "socket.socket":
        """
        See `Box.open_port`.
        """
        channel = self._main_line().open_port(port)
        self.round_trips += 1
        return cast("socket.socket", channel)

    def close(self) -> None:
        """
        See `Box.close`.
        """
        with self._lock:
            self._closed = True
            lines, self._lines = self._lines, []
        for line in lines:
            line.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _await(
        self,
        shell: "Session",
        answer: control.Answer,
        deadline: float,
        on_output: Callable[[bytes], None] | None,
    ) -> Result:
        """
        Take the answer as it comes, and ask for signs of life while nothing does.
        """
        heard, size = time.monotonic(), 0
        while (result := answer.result) is None:
            now = time.monotonic()
            if now >= deadline:
                raise self._overdue(shell, answer)
            got = shell.receive(min(LOOK_EVERY, deadline - now))
            if got is None:
                if time.monotonic() - heard >= HEARTBEAT and shell.line.unanswered() >= SILENCE_LIMIT:
                    raise shell.line.lost(TimeoutError(f"no sign of life for {SILENCE_LIMIT:.0f} s"))
                continue
            heard = time.monotonic()
            out, err = got
            if not out and not err:
                raise self._broken_off(shell, answer)
            size += len(out) + len(err)
            if size > LONGEST_ANSWER:
                raise BoxUnreachable(
                    f"{self._label} answers without end: more than {LONGEST_ANSWER} bytes",
                    hint="what prints there? `ssh` to it and look at the account's start-up files",
                )
            fresh = answer.feed_output(out)
            answer.feed_errors(err)
            if fresh and on_output is not None:
                on_output(fresh)
        if not self._shell_answered:
            self.noise = (answer.out.noise + answer.err.noise).decode("utf-8", "replace")
        return result

    def _overdue(self, shell: "Session", answer: control.Answer) -> BoxUnreachable:
        if answer.out.begun or self._shell_answered:
            return ConnectionLost(f"{self._label} did not answer in time")
        if shell.line.answers_within(LAST_QUESTION):
            return _no_shell(self._label, answer)
        return shell.line.lost(TimeoutError("no sign of life"))

    def _broken_off(self, shell: "Session", answer: control.Answer) -> BoxUnreachable:
        """
        The channel ended before the answer did.
        """
        if not shell.ended:
            return shell.line.lost(EOFError("closed in the middle of an answer"))
        if answer.out.begun or self._shell_answered:
            return ConnectionLost(f"the shell on {self._label} was ended in the middle of an answer")
        return _no_shell(self._label, answer)

    def _control_shell(self) -> "Session":
        """
        The shell that answers requests; opened when there is none.
        """
        if self._shell is not None and self._shell.line.alive and not self._shell.ended:
            return self._shell
        self._shell_answered = False
        self._shell = self._start(self._main_line(), control.CONTROL)
        self._main = self._shell.line
        self.round_trips += OPENING
        return self._shell

    @property
    def _label(self) -> str:
        return self._opener.label if self._opener else self.host.name

    def _main_line(self) -> "Line":
        """
        The connection for `run` and `open_port`, opened if it is not there or broke.
        """
        with self._opening:
            if self._opener is None:
                self._main = self._first_line()
            elif self._main is None or not self._main.alive:
                self._main = self._keep(self._opener.reopen())
            return self._main

    def _first_line(self) -> "Line":
        from mtpdeploy.remote.connect import Opener  # noqa: PLC0415 - 0.3 s that only this needs

        opener = Opener(self.host, strict=self._strict, pins=self._pins, config=self._config, told=self._told)
        line = self._keep(opener.open())
        self._opener = opener
        self._spare.start()
        return line

    def _another_line(self) -> "Line":
        """
        A connection beside the main one.
        """
        opener = self._opener
        if opener is None:
            raise ConnectionLost(f"the line to {self._label} was never opened")
        return self._keep(opener.reopen())

    def _free_session(self) -> "Session":
        """
        A session on a connection that carries no other.
        """
        self._main_line()
        self._spare.join()
        with self._lock:
            ready, self._ready = self._ready, None
        if ready is not None and ready.line.alive:
            self.round_trips += 1
            return ready
        with self._lock:
            line = self._idle.pop() if self._idle else None
        if line is None or not line.alive:
            line = self._another_line()
        self.round_trips += OPENING
        return self._start(line, control.SINGLE)

    def _start(self, line: "Line", command: str) -> "Session":
        """
        Start a session on `line`, or on a fresh connection where sshd gives no more on that one.
        """
        from mtpdeploy.remote.line import SessionRefused  # noqa: PLC0415 - loaded since the box stands

        try:
            return line.start(command)
        except SessionRefused:
            fresh = self._another_line()
        try:
            return fresh.start(command)
        except SessionRefused as error:
            raise BoxUnreachable(
                f"{self._label} runs no command: {error}",
                hint="does its sshd_config say `MaxSessions 0`?",
            ) from error

    def _keep(self, line: "Line") -> "Line":
        """
        Remember the line, so that closing the box closes it.
        """
        with self._lock:
            if not self._closed:
                self._lines = [*(kept for kept in self._lines if kept.alive), line]
                return line
        line.close()
        raise ConnectionLost(f"the line to {self._label} was closed")

    def _give_back(self, session: "Session") -> None:
        """
        Keep a stream's connection for the next stream, if the stream came to its end.
        """
        session.close()
        if not session.ended:
            session.line.close()
            return
        with self._lock:
            self._idle.append(session.line)

    def _open_spare(self) -> None:
        with contextlib.suppress(BoxUnreachable):  # the first stream tries again, and says why
            self._ready = self._start(self._another_line(), control.SINGLE)


class SshStream:
    """
    A `Stream` over SSH. `err` are the last bytes of standard error, `noise` what came before the script.
    """

    def __init__(self, session: "Session", mark: str, give_back: Callable[["Session"], None]) -> None:
        self.err = b""
        self._session = session
        self._frame = control.Frame(mark)
        self._give_back = give_back
        self._lock = threading.Lock()
        self._closed = False

    def read(self, timeout: float) -> bytes | None:
        """
        See `Stream.read`.

        Raises:
            ConnectionLost: the line to the box broke.
            BoxUnreachable: the account has no usable shell.
        """
        deadline = time.monotonic() + timeout
        while (left := deadline - time.monotonic()) > 0 or timeout == 0:
            got = self._session.receive(max(left, 0))
            if got is None:
                return None
            out, err = got
            self.err = (self.err + err)[-control.NO_SHELL_LIMIT :]
            if not out and not err:
                return self._end()
            fresh = self._frame.feed(out)
            if fresh:
                return fresh
        return None

    def close(self) -> None:
        """
        See `Stream.close`.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._give_back(self._session)

    def _end(self) -> bytes:
        if self._closed:
            return b""
        if not self._session.ended:
            raise self._session.line.lost(EOFError("closed in the middle of a stream"))
        if not self._frame.begun:
            raise _no_shell(self._session.line.label, self._frame, self.err)
        return b""


def _no_shell(label: str, seen: control.Answer | control.Frame, err: bytes = b"") -> BoxUnreachable:
    """
    Something else than a shell took the command.
    """
    if isinstance(seen, control.Answer):
        text = seen.out.foreign() + seen.err.foreign()
    else:
        text = seen.foreign() + err
    said = text[-control.NO_SHELL_LIMIT :].decode("utf-8", "replace").strip() or "nothing"
    return BoxUnreachable(
        f"the account on {label} runs no commands; instead of a shell it said: {said}", hint=NO_SHELL_HINT
    )
