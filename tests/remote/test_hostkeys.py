"""
Host keys: trusted once, then never another one.
"""

import base64
import subprocess
import threading
from pathlib import Path

import pytest

from mtpdeploy.errors import BoxUnreachable, ConfigError, HostKeyChanged
from mtpdeploy.remote.faults import Passing, explain
from mtpdeploy.remote.hostkeys import (
    Changed,
    HostKeys,
    fingerprint,
    forget,
    pin_name,
    read_known_hosts,
)

NAME = "[203.0.113.20]:19248"
CHANGED = Changed("gpu", "root@203.0.113.20:19248")


def key(seed: int, kind: str = "ssh-ed25519") -> bytes:
    """
    A public key as it goes over the wire, RFC 8709.
    """
    return b"".join(len(part).to_bytes(4, "big") + part for part in (kind.encode(), bytes([seed]) * 32))


def line(name: str, blob: bytes, kind: str = "ssh-ed25519") -> str:
    """
    A line of a known_hosts file.
    """
    return f"{name} {kind} {base64.b64encode(blob).decode()}\n"


@pytest.fixture
def pins(tmp_path: Path) -> Path:
    """
    Our own file, in a folder that does not exist yet.
    """
    return tmp_path / "state" / "known_hosts"


@pytest.fixture
def users(tmp_path: Path) -> Path:
    """
    The user's file.
    """
    return tmp_path / "users_known_hosts"


class Known:
    """
    Host keys under test, and what they told.
    """

    def __init__(self, pins: Path, *known: Path, strict: bool = False) -> None:
        self.told: list[str] = []
        self.keys = HostKeys(pins, known, strict=strict, told=self.told.append)

    def show(self, blob: bytes, kind: str = "ssh-ed25519", name: str = NAME) -> None:
        """
        The server shows a key.
        """
        self.keys.judge(name, kind, blob, CHANGED)


class TestFirstUse:
    """
    A host never seen before.
    """

    def test_is_trusted_and_told_once(self, pins: Path) -> None:
        """
        The first key is kept with its date, told with its fingerprint, and silent from then on.
        """
        known = Known(pins)
        known.show(key(1))
        known.show(key(1))
        found, skipped = read_known_hosts(pins)

        assert (1, 0, [key(1)], True) == (
            len(known.told),
            skipped,
            [k.blob for k in found],
            bool(found[0].since),
        )
        assert fingerprint(key(1)) in known.told[0]

    def test_keeps_the_file_to_ourselves(self, pins: Path) -> None:
        """
        Mode 0600 in a folder of mode 0700.
        """
        Known(pins).show(key(1))

        assert (0o600, 0o700) == (pins.stat().st_mode & 0o777, pins.parent.stat().st_mode & 0o777)

    def test_is_refused_when_strict(self, pins: Path) -> None:
        """
        `--strict` accepts no key that was not known before, and pins nothing.
        """
        with pytest.raises(BoxUnreachable, match="never seen before"):
            Known(pins, strict=True).show(key(1))

        assert not pins.exists()

    def test_does_not_race(self, pins: Path) -> None:
        """
        Of two keys shown at the same moment by one address one is trusted, and the other refused.
        """
        refused: list[int] = []
        start = threading.Barrier(8)

        def show(seed: int) -> None:
            start.wait()
            try:
                Known(pins).show(key(seed))
            except HostKeyChanged:
                refused.append(seed)

        threads = [threading.Thread(target=show, args=(number % 2,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert (1, 4, 1) == (len(read_known_hosts(pins)[0]), len(refused), len(set(refused)))


class TestChangedKey:
    """
    A host that shows another key.
    """

    def test_says_everything_needed(self, pins: Path) -> None:
        """
        Both fingerprints, the date of first trust, that addresses are reused, and the one command.
        """
        known = Known(pins)
        known.show(key(1))
        since = read_known_hosts(pins)[0][0].since
        with pytest.raises(HostKeyChanged) as caught:
            known.show(key(2))
        message, hint = caught.value.message, caught.value.hint

        assert [] == [
            text for text in (fingerprint(key(1)), fingerprint(key(2)), since) if text not in message
        ]
        assert [] == [text for text in ("reused", "mtpdeploy hosts forget gpu") if text not in hint]

    def test_of_another_type_is_changed_too(self, pins: Path) -> None:
        """
        A server that no longer has the pinned type of key is another server.
        """
        known = Known(pins)
        known.show(key(1))

        with pytest.raises(HostKeyChanged):
            known.show(key(1, "ssh-rsa"), "ssh-rsa")

    def test_in_the_users_file_names_the_command_for_that_file(self, pins: Path, users: Path) -> None:
        """
        Ours cannot forget what is not ours: OpenSSH's own command does.
        """
        users.write_text("# mine\n" + line(NAME, key(1)))
        with pytest.raises(HostKeyChanged) as caught:
            Known(pins, users).show(key(2))

        assert f"{users}, line 2" in caught.value.message
        assert f"ssh-keygen -R '{NAME}' -f {users}" in caught.value.hint

    def test_does_not_touch_other_ports(self, pins: Path) -> None:
        """
        Another port at the same address is another box.
        """
        known = Known(pins)
        known.show(key(1))
        known.show(key(2), name="[203.0.113.20]:19249")
        known.show(key(3), name="203.0.113.20")

        assert 3 == len(read_known_hosts(pins)[0])


class TestForget:
    """
    Accepting a new key.
    """

    def test_forgets_exactly_that_pin(self, pins: Path) -> None:
        """
        The next key of that address is trusted, and others stay.
        """
        known = Known(pins)
        known.show(key(1))
        known.show(key(2), name=pin_name("203.0.113.20", 22))
        gone = forget("203.0.113.20", 19248, pins=pins)
        known.show(key(3))
        found, _ = read_known_hosts(pins)

        assert (True, [key(2), key(3)], 0o600) == (gone, [k.blob for k in found], pins.stat().st_mode & 0o777)

    def test_says_when_there_was_nothing(self, pins: Path) -> None:
        """
        Neither file nor pin.
        """
        before = forget("203.0.113.20", 22, pins=pins)
        Known(pins).show(key(1))

        assert (False, False) == (before, forget("203.0.113.20", 22, pins=pins))


class TestUsersFile:
    """
    What OpenSSH's own files say.
    """

    @pytest.mark.parametrize(
        "name", [NAME, f"other,{NAME}", "[203.0.113.*]:19248", "[203.0.113.2?]:19248", "*"]
    )
    def test_is_believed(self, pins: Path, users: Path, name: str) -> None:
        """
        What the user's OpenSSH trusts is trusted, without a word and without a pin of ours.
        """
        users.write_text(line(name, key(1)))
        known = Known(pins, users)
        known.show(key(1))

        assert ([], False) == (known.told, pins.exists())

    def test_may_be_hashed(self, pins: Path, users: Path) -> None:
        """
        As `HashKnownHosts` makes it; the hash is OpenSSH's own.
        """
        users.write_text(line(NAME, key(1)))
        subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(users)], check=True, capture_output=True)
        assert "203.0.113.20" not in users.read_text()

        with pytest.raises(HostKeyChanged):
            Known(pins, users).show(key(2))

    def test_negation_overrules(self, pins: Path, users: Path) -> None:
        """
        `*,!name` does not speak of that name.
        """
        users.write_text(line(f"*,!{NAME}", key(1)))
        known = Known(pins, users)
        known.show(key(2))

        assert 1 == len(known.told)

    def test_may_hold_rubbish(self, pins: Path, users: Path) -> None:
        """
        Lines that nobody understands are skipped and counted; the good one among them still counts.
        """
        rubbish = f"\n{NAME}\n{NAME} ssh-ed25519 AAA!\n{NAME} ssh-rsa {base64.b64encode(key(9)).decode()}\n"
        users.write_bytes(
            b"caf\xe9 \xff\xfe\n@weird * x y\n" + rubbish.encode() + line(NAME, key(1)).encode()
        )
        known = Known(pins, users)
        with pytest.raises(HostKeyChanged):
            known.show(key(2))
        known.keys.kinds(NAME)

        assert 5 == known.keys.skipped

    def test_revocation_is_honoured(self, pins: Path, users: Path) -> None:
        """
        A key called `@revoked` is refused although it is also pinned.
        """
        Known(pins).show(key(1))
        users.write_text("@revoked " + line("*", key(1)))

        with pytest.raises(BoxUnreachable, match="revoked"):
            Known(pins, users).show(key(1))

    def test_an_authority_is_no_host_key(self, pins: Path, users: Path) -> None:
        """
        `@cert-authority` lines neither break anything nor count as a known key.
        """
        users.write_text("@cert-authority " + line("*", key(1)))
        known = Known(pins, users)
        known.show(key(2))

        assert 1 == len(known.told)


class TestUnusable:
    """
    Files of this machine that are not what they should be.
    """

    @pytest.mark.parametrize("name", ["known_hosts", "known_hosts.lock"])
    def test_our_own_are_named(self, pins: Path, name: str) -> None:
        """
        It is not the box that is out of reach.
        """
        path = pins.with_name(name)
        path.mkdir(parents=True)

        for ask in (lambda: Known(pins).show(key(1)), lambda: forget("203.0.113.20", 19248, pins=pins)):
            if name == "known_hosts.lock":
                pins.touch()
            with pytest.raises(ConfigError, match=f"cannot be used: Is a directory: {path}$") as raised:
                ask()

            assert raised.value.hint

    def test_a_state_that_is_a_file(self, pins: Path) -> None:
        """
        Neither is it when there is no place for our own.
        """
        pins.parent.touch()

        with pytest.raises(ConfigError, match=f"cannot be used: File exists: {pins.parent}"):
            Known(pins).show(key(1))

    def test_the_users_are_named(self, pins: Path, users: Path) -> None:
        """
        One that cannot be read may know another key: it is not passed over. One that is not there is none.
        """
        users.mkdir()

        with pytest.raises(ConfigError, match=f"cannot be used: Is a directory: {users}"):
            Known(pins, users).keys.kinds(NAME)
        with pytest.raises(ConfigError, match=f"cannot be used: Is a directory: {users}"):
            Known(pins, users).show(key(1))
        assert not pins.exists()
        assert () == Known(pins, users / "none", pins / "none").keys.kinds(NAME)


def test_any_file_is_told_from_the_line(tmp_path: Path) -> None:
    """
    An error of the system that names a file is about this machine, whichever file it is.
    """
    error = PermissionError(13, "Permission denied", str(tmp_path))

    assert isinstance(explain(error, "root@box", b"", hung_up=False), ConfigError)
    assert isinstance(explain(PermissionError(13, "Permission denied"), "b", b"", hung_up=False), Passing)


def test_the_types_to_ask_for_are_those_known(pins: Path, users: Path) -> None:
    """
    So that a server with several keys shows the one that is known.
    """
    users.write_text(line(NAME, key(1, "ssh-rsa"), "ssh-rsa"))

    assert ("ssh-rsa",) == Known(pins, users).keys.kinds(NAME)


def test_fingerprints_are_openssh_ones(tmp_path: Path) -> None:
    """
    So that they can be compared with `ssh-keygen -l`.
    """
    path = tmp_path / "key.pub"
    path.write_text(line("", key(1)).strip() + "\n")
    told = subprocess.run(["ssh-keygen", "-l", "-f", str(path)], check=True, capture_output=True).stdout

    assert fingerprint(key(1)) in told.decode()
