"""
Getting in: every way in which it fails is named, and a login is never tried twice.
"""

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from mtpdeploy.core.machine import Host
from mtpdeploy.errors import ConfigError, ConnectionLost, HostKeyChanged
from mtpdeploy.remote import connect
from mtpdeploy.remote.connect import Opener
from mtpdeploy.remote.hostkeys import forget
from tests.fakes.sshd import Sshd, free_port, make_key, until
from tests.remote.doors import enter, refusal

MakeSshd = Callable[..., Sshd]


pytestmark = pytest.mark.usefixtures("no_agent")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    No waiting between tries.
    """
    monkeypatch.setattr(connect, "CONNECT_WAITS", (0.0, 0.0, 0.0, 0.0))


@contextmanager
def impostor(serve: Callable[[socket.socket], None]) -> Iterator[tuple[Host, list[int]]]:
    """
    Something else than an SSH server on a port; the list grows by every connection it gets.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    served: list[int] = []

    def work() -> None:
        with ExitStack() as stack:
            while True:
                client, _ = listener.accept()
                served.append(1)
                stack.push(client)
                if stop.is_set():
                    return
                serve(client)

    stop = threading.Event()
    thread = threading.Thread(target=work)
    thread.start()
    port = listener.getsockname()[1]
    try:
        yield Host(name="odd", address="127.0.0.1", port=port, user="root"), served
    finally:
        stop.set()
        socket.create_connection(("127.0.0.1", port)).close()
        thread.join()
        listener.close()


class TestReaching:
    """
    From a name to the first word of SSH.
    """

    @pytest.mark.usefixtures("quick")
    def test_refused(self, sshd: Sshd, tmp_path: Path) -> None:
        """
        Nothing listens there.
        """
        error = refusal(sshd, tmp_path, sshd.host(port=free_port()))

        assert "connection refused" in error.message

    @pytest.mark.usefixtures("quick")
    def test_a_name_that_cannot_be_resolved(self, sshd: Sshd, tmp_path: Path) -> None:
        """
        A v4 address asked for as v6, and a name longer than names can be.
        """
        for host in (sshd.host(ssh_options=("AddressFamily=inet6",)), sshd.host(address="a" * 70)):
            assert "cannot be resolved" in refusal(sshd, tmp_path, host).message

    def test_the_next_address_is_tried(
        self, sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """
        An address that refuses does not hide the one that answers.
        """
        real = socket.getaddrinfo

        def with_dead_one_first(*words: object) -> object:
            found = real(*words)  # type: ignore[arg-type]
            return [(*found[0][:4], ("127.0.0.1", free_port())), *found]

        monkeypatch.setattr(socket, "getaddrinfo", with_dead_one_first)
        enter(sshd, tmp_path)

    def test_a_box_that_is_still_booting(self, tmp_path: Path) -> None:
        """
        A port that opens while we are trying is reached.
        """
        sshd = Sshd(tmp_path / "late")
        starting = threading.Timer(0.3, sshd.start)
        starting.start()
        try:
            enter(sshd, tmp_path)
        finally:
            starting.join()
            sshd.stop()

    @pytest.mark.usefixtures("quick")
    def test_a_server_that_says_nothing(
        self, sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """
        It accepts, and is silent.
        """
        monkeypatch.setattr(connect, "BANNER_LIMIT", 0.1)
        with impostor(lambda _: None) as (host, _):
            error = refusal(sshd, tmp_path, host)

        assert "falls silent" in error.message

    @pytest.mark.usefixtures("quick")
    def test_a_server_that_falls_silent_after_its_name(
        self, sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """
        A frozen sshd whose listener still speaks.
        """
        monkeypatch.setattr(connect, "BANNER_LIMIT", 0.1)
        with impostor(lambda client: client.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")) as (host, _):
            error = refusal(sshd, tmp_path, host)

        assert "falls silent" in error.message

    @pytest.mark.usefixtures("quick")
    def test_a_web_server(self, sshd: Sshd, tmp_path: Path) -> None:
        """
        What answers is shown, and it is not asked a second time.
        """

        def answer(client: socket.socket) -> None:
            client.recv(1000)
            client.sendall(b"HTTP/1.1 400 Bad Request\r\nServer: nginx\r\n\r\n")
            client.shutdown(socket.SHUT_RDWR)

        with impostor(answer) as (host, served):
            error = refusal(sshd, tmp_path, host)

            assert 1 == len(served)
        assert "'HTTP/1.1 400 Bad Request'" in error.message

    @pytest.mark.parametrize("ending", ["closes", "resets"])
    @pytest.mark.usefixtures("quick")
    def test_a_server_that_hangs_up(self, sshd: Sshd, tmp_path: Path, ending: str) -> None:
        """
        As sshd does under `MaxStartups`: tried five times, then said.
        """

        def hang_up(client: socket.socket) -> None:
            if ending == "resets":
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()

        with impostor(hang_up) as (host, served):
            error = refusal(sshd, tmp_path, host)

            assert 5 == len(served)
        assert "closed the connection before logging in" in error.message

    def test_reopening_tries_once_and_may_be_tried_again(self, sshd: Sshd, tmp_path: Path) -> None:
        """
        After a line was lost the caller decides how long to go on.
        """
        opener = Opener(sshd.host(port=free_port()), pins=tmp_path / "pins", config=sshd.client_config)

        with pytest.raises(ConnectionLost, match="refused"):
            opener.reopen()


class TestHostKey:
    """
    Who answers there.
    """

    def test_that_changed_is_refused_until_forgotten(self, make_sshd: MakeSshd, tmp_path: Path) -> None:
        """
        A rebuilt box at an old address: no login is sent to it, and one command accepts it.
        """
        first = make_sshd()
        enter(first, tmp_path)
        first.stop()
        second = make_sshd(port=first.port)
        with pytest.raises(HostKeyChanged, match="another host key") as caught:
            enter(second, tmp_path)
        before = second.log.read_text()
        forget("127.0.0.1", first.port, pins=tmp_path / "known_hosts")
        enter(second, tmp_path)

        assert "mtpdeploy hosts forget here" in caught.value.hint
        assert "publickey" not in before
        assert "Accepted publickey" in second.log.read_text()

    def test_is_told_on_first_contact_only(self, sshd: Sshd, tmp_path: Path) -> None:
        """
        Trust on first use says so, once.
        """
        told: list[str] = []
        enter(sshd, tmp_path, told=told.append)
        enter(sshd, tmp_path, told=told.append)

        assert 1 == len(told)
        assert "SHA256:" in told[0]

    def test_must_be_known_when_strict(self, sshd: Sshd, tmp_path: Path) -> None:
        """
        By `--strict`, or by `StrictHostKeyChecking yes` of the user's own configuration.
        """
        for options in ({"strict": True}, {"host": sshd.host(ssh_options=("StrictHostKeyChecking=yes",))}):
            error = refusal(sshd, tmp_path, **options)

            assert "never seen before" in error.message

    def test_of_the_known_type_is_asked_for(self, make_sshd: MakeSshd, tmp_path: Path) -> None:
        """
        Where only the RSA key is known, a server that prefers another type is no changed server.
        """
        rsa = make_key(tmp_path / "rsa", "rsa")
        sshd = make_sshd(lines=[f"HostKey {rsa}"])
        kind, blob = rsa.with_suffix(".pub").read_text().split()[:2]
        (sshd.folder / "users_known_hosts").write_text(f"[127.0.0.1]:{sshd.port} {kind} {blob}\n")
        told: list[str] = []
        enter(sshd, tmp_path, told=told.append)

        assert [] == told

    def test_is_filed_under_its_alias(self, sshd: Sshd, tmp_path: Path) -> None:
        """
        `HostKeyAlias` names the box where addresses are reused.
        """
        enter(sshd, tmp_path, sshd.host(ssh_options=("HostKeyAlias=my-gpu",)))

        assert "my-gpu" == (tmp_path / "known_hosts").read_text().split()[0]


class TestJump:
    """
    Through another host.
    """

    def test_goes_through_another_host(self, make_sshd: MakeSshd, tmp_path: Path) -> None:
        """
        The box sees the jump host, and both host keys are judged.
        """
        gate, sshd = make_sshd(), make_sshd()
        sshd.client_config.write_text(
            f"Host gate\n  HostName 127.0.0.1\n  Port {gate.port}\n  IdentityFile {gate.key}\n"
            "Host *\n  UserKnownHostsFile none\n"
        )
        enter(sshd, tmp_path, sshd.host(proxy_jump="gate"))
        names = [line.split()[0] for line in (tmp_path / "known_hosts").read_text().splitlines()]

        assert [f"[127.0.0.1]:{gate.port}", f"[127.0.0.1]:{sshd.port}"] == names
        assert "Accepted publickey" in gate.log.read_text()

    @pytest.mark.usefixtures("quick")
    def test_that_cannot_forward(self, make_sshd: MakeSshd, tmp_path: Path) -> None:
        """
        Which of the two hosts is at fault is said.
        """
        gate, sshd = make_sshd(lines=["AllowTcpForwarding no"]), make_sshd()
        sshd.client_config.write_text(f"IdentityFile {gate.key}\nUserKnownHostsFile none\n")
        error = refusal(sshd, tmp_path, sshd.host(proxy_jump=f"127.0.0.1:{gate.port}"))

        assert "the jump host" in error.message
        assert "AllowTcpForwarding" in error.hint

    def test_that_jumps_over_itself(self, sshd: Sshd, tmp_path: Path) -> None:
        """
        A circle in the configuration is an error, not an endless one.
        """
        config = tmp_path / "config"
        config.write_text("Host gate\n  ProxyJump gate2\nHost gate2\n  ProxyJump gate\n")

        with pytest.raises(ConfigError, match="circle"):
            Opener(sshd.host(proxy_jump="gate"), config=config)


def test_nothing_is_left_open(sshd: Sshd, tmp_path: Path) -> None:
    """
    Lines that were closed and logins that failed leave neither descriptors nor threads.
    """
    wrong = sshd.host(identity_file=str(make_key(tmp_path / "wrong")))
    enter(sshd, tmp_path)
    refusal(sshd, tmp_path, wrong)
    threads = set(threading.enumerate())
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        enter(sshd, tmp_path)
        refusal(sshd, tmp_path, wrong)
    until(lambda: set(threading.enumerate()) <= threads)

    assert before >= len(list(Path("/proc/self/fd").iterdir()))
