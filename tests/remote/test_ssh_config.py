"""
The effective OpenSSH configuration of a host.
"""

import getpass
from pathlib import Path

import pytest

from mtpdeploy.core.machine import Host
from mtpdeploy.errors import ConfigError
from mtpdeploy.remote.address import parse_address
from mtpdeploy.remote.ssh_config import DEFAULT_KEYS, SshSettings, effective

GPU = """
Host gpu
  HostName 203.0.113.20
  Port 19248
  User root
  IdentityFile ~/keys/one
  IdentityFile %d/keys/%r-%h
  IdentitiesOnly yes
  ProxyJump me@gate:2200
  HostKeyAlias my-gpu
  StrictHostKeyChecking yes
  UserKnownHostsFile ~/kh1 ~/kh2
  ConnectTimeout 7
Host inner
  ProxyJump none
Host *
  User fallback
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """
    A configuration file with an alias.
    """
    path = tmp_path / "config"
    path.write_text(GPU)
    return path


@pytest.fixture(params=["ssh", None], ids=["by ssh -G", "by paramiko"])
def program(request: pytest.FixtureRequest) -> str | None:
    """
    With OpenSSH's client, and where there is none.
    """
    found: str | None = request.param
    return found


class TestEffective:
    """
    What OpenSSH would do, and we too.
    """

    def test_fills_in_an_alias(self, config: Path, program: str | None) -> None:
        """
        Everything that the configuration says is taken over, whoever reads it.
        """
        home = Path.home()
        found = effective(parse_address("gpu"), config=config, program=program)

        expected = SshSettings(
            address="203.0.113.20",
            port=19248,
            user="root",
            identity_files=(home / "keys/one", home / "keys/root-203.0.113.20"),
            explicit_key=False,
            configured_keys=True,
            identities_only=True,
            proxy_jump="me@gate:2200",
            known_hosts_files=found.known_hosts_files,
            host_key_name="my-gpu",
            strict=True,
            connect_timeout=7,
            family="any",
        )
        assert (expected, (home / "kh1", home / "kh2")) == (found, found.known_hosts_files[:2])

    def test_lets_the_entry_win(self, config: Path, program: str | None) -> None:
        """
        What hosts.toml or the pasted line says goes before the configuration; `-o` does too.
        """
        host = parse_address("ssh -p 22 -i ~/mine -J other -o HostKeyAlias=x me@gpu")
        found = effective(host, config=config, program=program)

        assert (22, "me", (Path.home() / "mine",), True, "other", "x") == (
            found.port,
            found.user,
            found.identity_files,
            found.explicit_key,
            found.proxy_jump,
            found.host_key_name,
        )

    def test_takes_an_address_as_it_is(self, config: Path, program: str | None) -> None:
        """
        An address has OpenSSH's defaults, and the keys that ssh tries unasked.
        """
        found = effective(Host(name="a", address="198.51.100.9", port=2222), config=config, program=program)

        assert ("198.51.100.9", "fallback", "[198.51.100.9]:2222", False, DEFAULT_KEYS) == (
            found.address,
            found.user,
            found.host_key_name,
            found.configured_keys,
            tuple(path.name for path in found.identity_files),
        )

    def test_knows_no_jump_called_none(self, config: Path, program: str | None) -> None:
        """
        `ProxyJump none` is no host of that name.
        """
        assert effective(parse_address("inner"), config=config, program=program).proxy_jump is None

    def test_reads_what_is_included(self, config: Path) -> None:
        """
        `Include` and `Match` are honoured, since OpenSSH itself reads them.
        """
        more = config.with_name("more")
        more.write_text("Host far\n  HostName 198.51.100.7\nMatch host 198.51.100.7\n  Port 77\n")
        config.write_text(f"Include {more}\n")
        found = effective(parse_address("far"), config=config)

        assert ("198.51.100.7", 77, getpass.getuser()) == (found.address, found.port, found.user)

    def test_names_the_file_and_line_of_a_mistake(self, config: Path, program: str | None) -> None:
        """
        A configuration that OpenSSH would refuse is refused by us, with the place.
        """
        config.write_text("Host a\n  Port 1\n  Bogus\n")
        with pytest.raises(ConfigError) as caught:
            effective(parse_address("a"), config=config, program=program)

        assert f"{config}" in caught.value.message
        assert "line 3" in caught.value.message

    @pytest.mark.parametrize(("word", "line"), [("Include", "Include x"), ("Match", "Match all")])
    def test_refuses_what_only_openssh_understands(self, config: Path, word: str, line: str) -> None:
        """
        Without an ssh client, no setting is silently lost.
        """
        config.write_text(f"Host a\n{line}\n")
        with pytest.raises(ConfigError) as caught:
            effective(parse_address("a"), config=config, program=None)

        assert f"{config}, line 2: `{word}`" in caught.value.message

    def test_refuses_a_proxy_command(self, config: Path, program: str | None) -> None:
        """
        `ProxyCommand` cannot be used, so it is not ignored.
        """
        config.write_text("Host a\n  ProxyCommand nc %h %p\n")

        with pytest.raises(ConfigError, match="ProxyCommand"):
            effective(parse_address("a"), config=config, program=program)

    def test_names_an_unknown_option_of_the_pasted_line(self, config: Path) -> None:
        """
        `-o` is judged by OpenSSH itself.
        """
        with pytest.raises(ConfigError, match=r"(?i)nonsense"):
            effective(parse_address("ssh -o Nonsense=1 root@a"), config=config)

    def test_survives_bytes_that_are_no_text(self, config: Path, program: str | None) -> None:
        """
        A comment in latin-1 harms nobody.
        """
        config.write_bytes(b"# caf\xe9\nHost a\n  Port 5\n")

        assert 5 == effective(parse_address("a"), config=config, program=program).port

    def test_brackets_a_v6_address_in_words(self, config: Path) -> None:
        """
        The label can be pasted again.
        """
        assert "me@[::1]:22" == effective(parse_address("me@::1"), config=config).label


def test_a_configuration_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """
    Where there is no `ssh` to complain, the file is named all the same.
    """
    with pytest.raises(ConfigError, match=f"cannot be used: Is a directory: {tmp_path}"):
        effective(Host(name="h", address="203.0.113.20"), config=tmp_path, program=None)
