"""
Logging in: which keys are offered, each once, and what is said when none is taken.
"""

import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mtpdeploy.remote import auth
from mtpdeploy.remote.connect import Opener
from tests.fakes.sshd import DEADLINE, Sshd, make_key
from tests.remote.doors import enter, failed_logins, refusal

MakeSshd = Callable[..., Sshd]

pytestmark = pytest.mark.usefixtures("no_agent")


class TestLogin:
    """
    Keys from files.
    """

    def test_with_a_wrong_key_is_tried_once(self, make_sshd: MakeSshd, tmp_path: Path) -> None:
        """
        One connection, one offer, and the key is named.
        """
        sshd = make_sshd()
        wrong = make_key(tmp_path / "wrong")
        error = refusal(sshd, tmp_path, sshd.host(identity_file=str(wrong)))

        assert (True, 1, 1) == (
            f"accepts none of our keys: {wrong}" in error.message,
            failed_logins(sshd),
            sshd.log.read_text().count("Connection from"),
        )

    def test_with_an_encrypted_key_and_no_terminal(self, sshd: Sshd, tmp_path: Path) -> None:
        """
        The key is named, and how to unlock it.
        """
        locked = make_key(tmp_path / "locked", passphrase="secret")
        error = refusal(sshd, tmp_path, sshd.host(identity_file=str(locked)))

        assert f"the key {locked} is encrypted" in error.message
        assert f"ssh-add {locked}" == error.hint

    def test_asks_for_a_passphrase_once(self, make_sshd: MakeSshd, tmp_path: Path) -> None:
        """
        Two lines of one box need one question.
        """
        asked: list[Path] = []

        def ask(path: Path) -> str:
            asked.append(path)
            return "secret"

        (tmp_path / "sshd1").mkdir()
        key = make_key(tmp_path / "sshd1" / "client_key", passphrase="secret")
        sshd = make_sshd()
        opener = Opener(sshd.host(), pins=tmp_path / "pins", config=sshd.client_config, ask=ask)
        for line in (opener.open(), opener.reopen()):
            line.close()

        assert [key] == asked

    def test_with_a_wrong_passphrase(self, sshd: Sshd, tmp_path: Path) -> None:
        """
        Said as such, and not asked again.
        """
        locked = make_key(tmp_path / "locked", passphrase="secret")
        error = refusal(sshd, tmp_path, sshd.host(identity_file=str(locked)), ask=lambda _: "other")

        assert "has another passphrase" in error.message

    @pytest.mark.parametrize(
        ("name", "content", "why"),
        [
            ("absent", None, "is not there"),
            ("key.pub", "ssh-ed25519 AAAA", "is the public half"),
            ("notes", "hello", "is no private key"),
        ],
    )
    def test_with_a_file_that_is_no_key(
        self, sshd: Sshd, tmp_path: Path, name: str, content: str | None, why: str
    ) -> None:
        """
        The file that the host's entry names is unusable: said by name.
        """
        path = tmp_path / name
        if content is not None:
            path.write_text(content)
        error = refusal(sshd, tmp_path, sshd.host(identity_file=str(path)))

        assert f"the key {path} {why}" == error.message

    def test_passes_over_missing_files_of_the_configuration(self, sshd: Sshd, tmp_path: Path) -> None:
        """
        As OpenSSH does: the next key is good.
        """
        files = (f"IdentityFile={tmp_path}/absent", f"IdentityFile={sshd.key}")
        enter(sshd, tmp_path, sshd.host(identity_file=None, ssh_options=files))

    def test_without_any_key(self, sshd: Sshd, tmp_path: Path) -> None:
        """
        Nothing to offer, and nothing is offered.
        """
        host = sshd.host(identity_file=None, ssh_options=(f"IdentityFile={tmp_path}/absent",))
        error = refusal(sshd, tmp_path, host)

        assert "no key to offer" in error.message

    def test_where_only_passwords_are_taken(self, make_sshd: MakeSshd, tmp_path: Path) -> None:
        """
        What the server wants instead is said.
        """
        sshd = make_sshd(lines=["PubkeyAuthentication no", "PasswordAuthentication yes"])
        error = refusal(sshd, tmp_path)

        assert "wants another kind of login: password" in error.message

    def test_that_needs_a_second_factor(self, make_sshd: MakeSshd, tmp_path: Path) -> None:
        """
        The key was right, and is not enough.
        """
        sshd = make_sshd(lines=["AuthenticationMethods publickey,password", "PasswordAuthentication yes"])
        error = refusal(sshd, tmp_path)

        assert "wants another kind of login: password" in error.message

    def test_with_more_keys_than_the_server_bears(self, make_sshd: MakeSshd, tmp_path: Path) -> None:
        """
        `MaxAuthTries` is named, not "no existing session".
        """
        sshd = make_sshd(lines=["MaxAuthTries 2"])
        keys = tuple(f"IdentityFile={make_key(tmp_path / name)}" for name in "abc")
        error = refusal(sshd, tmp_path, sshd.host(identity_file=None, ssh_options=keys))

        assert "closed the connection during the login, after 2 key(s)" in error.message
        assert "MaxAuthTries" in error.hint

    def test_warns_of_a_key_that_others_can_read(self, sshd: Sshd, tmp_path: Path) -> None:
        """
        OpenSSH would refuse such a key.
        """
        copy = tmp_path / "copy"
        copy.write_bytes(sshd.key.read_bytes())
        copy.chmod(0o644)
        told: list[str] = []
        enter(sshd, tmp_path, sshd.host(identity_file=str(copy)), told=told.append)

        assert f"the key {copy} can be read by others: chmod 600 {copy}" in told

    def test_nobody_is_asked_without_a_terminal(self, tmp_path: Path) -> None:
        """
        A question that nobody sees would hang for ever.
        """
        assert auth.ask_on_terminal(tmp_path) is None


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path], None]]:
    """
    An ssh-agent of the test's own; call it with a key to add.
    """
    path = tmp_path / "agent"
    process = subprocess.Popen(["ssh-agent", "-D", "-a", str(path)], stdout=subprocess.DEVNULL)
    monkeypatch.setenv("SSH_AUTH_SOCK", str(path))

    def add(key: Path) -> None:
        subprocess.run(["ssh-add", "-q", str(key)], check=True, stdin=subprocess.DEVNULL)

    deadline = threading.Event()
    while not path.exists():
        deadline.wait(0.01)
    yield add
    process.terminate()
    process.wait(DEADLINE)


class TestAgent:
    """
    Keys from ssh-agent.
    """

    def test_offers_at_most_three_keys(
        self, make_sshd: MakeSshd, tmp_path: Path, agent: Callable[[Path], None]
    ) -> None:
        """
        Six keys in the agent do not use up `MaxAuthTries`; the configured key is still reached.
        """
        sshd = make_sshd()
        for name in "abcdef":
            agent(make_key(tmp_path / name))
        host = sshd.host(identity_file=None)
        refusal(sshd, tmp_path, host)
        offered = failed_logins(sshd)
        enter(sshd, tmp_path, sshd.host(identity_file=None, ssh_options=(f"IdentityFile={sshd.key}",)))

        assert (3, 3) == (offered, failed_logins(sshd))

    def test_is_left_alone_when_a_key_is_named(
        self, make_sshd: MakeSshd, tmp_path: Path, agent: Callable[[Path], None]
    ) -> None:
        """
        The key of the host's entry is the only one offered, although the agent has the right one.
        """
        sshd = make_sshd()
        agent(sshd.key)
        refusal(sshd, tmp_path, sshd.host(identity_file=str(make_key(tmp_path / "wrong"))))

        assert 1 == failed_logins(sshd)

    def test_logs_in_by_itself(
        self, make_sshd: MakeSshd, tmp_path: Path, agent: Callable[[Path], None]
    ) -> None:
        """
        No key file is needed.
        """
        sshd = make_sshd()
        agent(sshd.key)
        enter(sshd, tmp_path, sshd.host(identity_file=None))

        assert 0 == failed_logins(sshd)

    def test_unlocks_the_key_that_is_named(
        self, make_sshd: MakeSshd, tmp_path: Path, agent: Callable[[Path], None]
    ) -> None:
        """
        An encrypted key whose copy is in the agent needs no passphrase.
        """
        sshd = make_sshd()
        agent(sshd.key)
        change = ["ssh-keygen", "-q", "-p", "-P", "", "-N", "secret", "-f", str(sshd.key)]
        subprocess.run(change, check=True, capture_output=True)
        enter(sshd, tmp_path)

        assert 0 == failed_logins(sshd)
