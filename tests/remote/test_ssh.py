"""
The open line to a real box: strange login shells, small sshd settings, and lines that break.
"""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from mtpdeploy.errors import BoxUnreachable, ConnectionLost
from mtpdeploy.remote import control, line, ssh
from mtpdeploy.remote.ssh import SshBox
from tests.fakes.sshd import DEADLINE, Relay, Sshd, until

MakeSshd = Callable[..., Sshd]

OpenBox = Callable[..., SshBox]

NOISY = "#!/bin/sh\necho 'Welcome to vast.ai!'\nprintf 'half a line'\necho 'warning: no disk' >&2\n"


@pytest.fixture
def open_box(tmp_path: Path) -> Iterator[OpenBox]:
    """
    Opens a box on an sshd, through another port where one is given; closes it after the test.
    """
    with ExitStack() as stack:

        def make(sshd: Sshd, port: int | None = None) -> SshBox:
            box = SshBox(sshd.host(port=port), state=tmp_path / "state", config=sshd.client_config)
            return stack.enter_context(box)

        yield make


class TestLoginShells:
    """
    Whatever the account's shell is.
    """

    @pytest.mark.parametrize(
        "shell", ["bash -c", "dash -c", "busybox sh -c", "zsh -c", "fish -c", "tcsh -c", "bash -lc"]
    )
    def test_all_do(self, make_sshd: MakeSshd, open_box: OpenBox, shell: str) -> None:
        """
        The login shell only ever sees one harmless line; scripts and streams run in sh below it.
        """
        box = open_box(make_sshd(login_shell=f"exec {shell}"))
        text = "$HOME `x` 'y' \"z\" \\ ! ✓\n" * 9000
        result = box.run(f"cat <<'EOF-1'\n{text}EOF-1\ncat; exit 3")
        stream = box.stream('echo "it\'s"')

        assert (3, text, b"it's\n") == (result.status, result.text, stream.read(DEADLINE))

    def test_that_speak_are_heard_apart(self, make_sshd: MakeSshd, open_box: OpenBox) -> None:
        """
        What start-up files print is kept as noise, and is in no answer.
        """
        sshd = make_sshd(login_shell='BASH_ENV="$HOME/.bashrc" exec bash -c')
        (sshd.home / ".bashrc").write_text(NOISY)
        box = open_box(sshd)
        result = box.run("echo out; echo err >&2")
        stream = box.stream("echo streamed")

        assert (b"out\n", b"err\n", b"streamed\n") == (result.out, result.err, stream.read(DEADLINE))
        assert "Welcome to vast.ai!\nhalf a line" in box.noise
        assert "warning: no disk" in box.noise

    def test_that_are_none_are_named(self, make_sshd: MakeSshd, open_box: OpenBox) -> None:
        """
        nologin: what it says is shown, and the three things that do this are named.
        """
        box = open_box(make_sshd(lines=["ForceCommand /usr/sbin/nologin"]))
        with pytest.raises(BoxUnreachable, match="not available") as caught:
            box.run("echo hi")
        stream = box.stream("echo hi")
        with pytest.raises(BoxUnreachable, match="not available"):
            stream.read(DEADLINE)

        assert [] == [w for w in ("auto-tmux", "ForceCommand", "nologin") if w not in caught.value.hint]
        assert not isinstance(caught.value, ConnectionLost)

    def test_that_hang_are_named(self, make_sshd: MakeSshd, open_box: OpenBox) -> None:
        """
        An auto-tmux login waits for a terminal for ever: not the line is at fault, but the account.
        """
        box = open_box(make_sshd(lines=["ForceCommand echo '[exited]'; exec sleep 30"]))
        with pytest.raises(BoxUnreachable, match=r"\[exited\]") as caught:
            box.run("echo hi", limit=0.5)

        assert not isinstance(caught.value, ConnectionLost)

    def test_may_keep_heredocs_in_a_full_tmp(self) -> None:
        """
        Where sh is bash, it is told to keep a large heredoc in memory where /tmp is the only other place.
        """
        script = 'echo "${TMPDIR-}"; sh -c \'echo "${TMPDIR-none}"\''
        runner = control.SINGLE.removeprefix("exec sh -c '").removesuffix("' mtpdeploy")
        done = subprocess.run(
            ["bash", "-c", runner],
            input=script.encode(),
            capture_output=True,
            env={"PATH": "/usr/bin:/bin"},
            check=True,
        )

        assert b"/dev/shm\nnone\n" == done.stdout


class TestSmallServers:
    """
    Servers that allow little.
    """

    def test_one_session_is_enough(self, make_sshd: MakeSshd, open_box: OpenBox) -> None:
        """
        `MaxSessions 1`: scripts, a stream and a port at once, and a new shell after a limit that passed.
        """
        sshd = make_sshd(lines=["MaxSessions 1"])
        box = open_box(sshd)
        first = box.run("echo 1").out
        stream = box.stream("echo 2; sleep 20")
        second = stream.read(DEADLINE)
        box.open_port(sshd.port).close()
        with pytest.raises(ConnectionLost):
            box.run("sleep 20", limit=0.3)
        third = box.run("echo 3").out
        again = box.stream("echo 4")

        assert (b"1\n", b"2\n", b"3\n", b"4\n") == (first, second, third, again.read(DEADLINE))

    def test_no_session_at_all_is_named(self, make_sshd: MakeSshd, open_box: OpenBox) -> None:
        """
        `MaxSessions 0` allows forwarding only.
        """
        with pytest.raises(BoxUnreachable, match="runs no command"):
            open_box(make_sshd(lines=["MaxSessions 0"])).run("true")

    def test_forbidden_forwarding_is_a_refused_connection(
        self, make_sshd: MakeSshd, open_box: OpenBox
    ) -> None:
        """
        `AllowTcpForwarding no`, although something listens; scripts go on.
        """
        sshd = make_sshd(lines=["AllowTcpForwarding no"])
        box = open_box(sshd)
        with pytest.raises(ConnectionRefusedError, match=r"(?i)prohibited"):
            box.open_port(sshd.port)

        assert b"ok\n" == box.run("echo ok").out

    def test_ended_streams_hand_their_connection_on(self, make_sshd: MakeSshd, open_box: OpenBox) -> None:
        """
        Ten streams after one another use two logins: one for scripts, one for streams.
        """
        sshd = make_sshd()
        box = open_box(sshd)
        for _ in range(10):
            stream = box.stream("echo x")
            while stream.read(DEADLINE):
                pass
            stream.close()

        assert 2 == sshd.log.read_text().count("Accepted publickey")


class TestRoundTrips:
    """
    Counted honestly.
    """

    def test_the_first_answer_costs_three(self, sshd: Sshd, open_box: OpenBox) -> None:
        """
        Two until the channel takes a script, one for the answer; streams find their channel open.
        """
        box = open_box(sshd)
        box.connect()
        assert 0 == box.round_trips
        box.run("true")
        box.run("true")
        assert 4 == box.round_trips
        box.stream("true").close()
        box.open_port(sshd.port).close()

        assert 6 == box.round_trips

    def test_are_what_the_wire_sees(self, sshd: Sshd, open_box: OpenBox) -> None:
        """
        With 100 ms there and back, four round trips take no less than four times that.
        """
        with Relay(sshd.port, delay=0.05) as relay:
            box = open_box(sshd, relay.port)
            box.connect()
            begun = time.monotonic()
            box.run("true")
            box.run("true")

            assert time.monotonic() - begun >= 0.1 * box.round_trips
            box.close()


class TestBrokenLines:
    """
    Every way in which a line breaks.
    """

    @pytest.mark.parametrize("how", ["closed", "reset", "killed"])
    def test_in_the_middle_of_a_script(self, make_sshd: MakeSshd, open_box: OpenBox, how: str) -> None:
        """
        However the line breaks: the answer is unknown, a stream says so too, and the next call is answered.
        """
        sshd = make_sshd()
        with Relay(sshd.port) as relay:
            box = open_box(sshd, relay.port)
            stream = box.stream("echo up; sleep 20")
            assert b"up\n" == stream.read(DEADLINE)

            def cut(_: bytes) -> None:
                if how == "killed":
                    sshd.signal_sessions(signal.SIGKILL)
                else:
                    relay.cut(reset=how == "reset")

            with pytest.raises(ConnectionLost):
                box.run("echo begun; sleep 20", on_output=cut)
            with pytest.raises(ConnectionLost):
                stream.read(DEADLINE)
            stream.close()
            again = box.stream("echo back")

            assert (b"here\n", b"back\n") == (box.run("echo here").out, again.read(DEADLINE))
            box.close()

    def test_where_the_far_end_is_frozen(
        self, make_sshd: MakeSshd, open_box: OpenBox, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """
        TCP still acknowledges, but no sign of life comes: that alone ends the waiting.
        """
        for module, name, seconds in (
            (ssh, "HEARTBEAT", 0.1),
            (line, "HEARTBEAT", 0.1),
            (ssh, "SILENCE_LIMIT", 0.4),
        ):
            monkeypatch.setattr(module, name, seconds)
        monkeypatch.setattr(ssh, "LOOK_EVERY", 0.05)
        sshd = make_sshd()
        box = open_box(sshd)

        with pytest.raises(ConnectionLost, match="no sign of life"):
            box.run(
                "echo begun; sleep 20",
                limit=DEADLINE,
                on_output=lambda _: sshd.signal_sessions(signal.SIGSTOP),
            )
        assert b"again\n" == box.run("echo again").out

    def test_a_silent_script_is_not_taken_for_dead(
        self, sshd: Sshd, open_box: OpenBox, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """
        A box that answers "request denied" is alive, however long its script says nothing.
        """
        for module, name, seconds in (
            (ssh, "HEARTBEAT", 0.05),
            (line, "HEARTBEAT", 0.05),
            (ssh, "SILENCE_LIMIT", 0.3),
        ):
            monkeypatch.setattr(module, name, seconds)
        monkeypatch.setattr(ssh, "LOOK_EVERY", 0.05)

        assert b"done\n" == open_box(sshd).run("sleep 1; echo done").out

    def test_while_the_box_is_away(self, make_sshd: MakeSshd, open_box: OpenBox) -> None:
        """
        As long as it is away calls say "lost"; when it is back, so is the line.
        """
        sshd = make_sshd()
        box = open_box(sshd)
        box.run("true")
        sshd.stop()
        until(lambda: box._main is not None and not box._main.alive)
        for call in (lambda: box.run("true"), lambda: box.stream("true"), lambda: box.open_port(1)):
            with pytest.raises(ConnectionLost):
                call()
        sshd.start()

        assert b"back\n" == box.run("echo back").out

    def test_a_killed_control_shell_is_replaced(self, sshd: Sshd, open_box: OpenBox) -> None:
        """
        A script that kills its whole process group gets no answer, and the next one a new shell.
        """
        box = open_box(sshd)
        box.run("true")
        with pytest.raises(ConnectionLost):
            box.run("kill -9 0")

        assert b"new\n" == box.run("echo new").out

    def test_a_script_that_kills_its_parent(self, sshd: Sshd, open_box: OpenBox) -> None:
        """
        Above a script's shell stands one that is only for it.
        """
        box = open_box(sshd)
        box.run("kill -9 $PPID")

        assert b"still here\n" == box.run("echo still here").out

    def test_after_closing(self, sshd: Sshd, open_box: OpenBox) -> None:
        """
        A closed box opens no new lines.
        """
        box = open_box(sshd)
        box.run("true")
        box.close()

        with pytest.raises(ConnectionLost):
            box.run("true")


def test_closing_leaves_no_threads(sshd: Sshd, open_box: OpenBox) -> None:
    """
    Nor a connection.
    """
    before = set(threading.enumerate())
    box = open_box(sshd)
    box.run("true")
    box.stream("echo x").read(DEADLINE)
    box.close()
    until(lambda: set(threading.enumerate()) <= before)
    until(lambda: not sshd.sessions())


def test_importing_is_cheap() -> None:
    """
    Neither Fabric nor paramiko is loaded before a box is opened.
    """
    program = (
        "import sys, mtpdeploy.remote.ssh, mtpdeploy.remote.hostkeys, mtpdeploy.remote.address;"
        "print([name for name in ('fabric', 'paramiko', 'invoke') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)

    assert b"[]\n" == done.stdout


class TestFrame:
    """
    Cutting the answer out.
    """

    def test_is_found_however_the_bytes_are_cut(self) -> None:
        """
        One byte at a time, with false starts of the end mark in the output.
        """
        frame = control.Frame("mark")
        text = b"noise\nmark begin\nmark en mark enmark \nmarmark end 12\n"
        out = b"".join(frame.feed(text[at : at + 1]) for at in range(len(text)))

        assert (b"noise\n", b"mark en mark enmark \nmar", 12) == (frame.noise, out, frame.status)

    def test_holds_back_no_more_than_may_be_the_end(self) -> None:
        """
        Live output is not delayed by looking for its end.
        """
        frame = control.Frame("mark")
        frame.feed(b"mark begin\n")

        assert (b"abc", b"", b"ma.") == (frame.feed(b"abc"), frame.feed(b"ma"), frame.feed(b"."))


def test_a_script_with_nul_is_refused(sshd: Sshd, open_box: OpenBox) -> None:
    """
    No shell could carry it.
    """
    with pytest.raises(ValueError, match="NUL"):
        open_box(sshd).run("echo \0")
