"""
The effective OpenSSH configuration of a host: what `ssh` itself would do there.
"""

import getpass
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from mtpdeploy.core.machine import Host
from mtpdeploy.errors import ConfigError
from mtpdeploy.remote.own_files import using

SSH_PORT = 22

RESOLVE_LIMIT = 10.0
"""Seconds for `ssh -G`; it answers in about 10 ms, but a `Match exec` of the user may take longer."""

DEFAULT_KEYS = ("id_rsa", "id_ecdsa", "id_ecdsa_sk", "id_ed25519", "id_ed25519_sk", "id_xmss", "id_dsa")
"""The files of ~/.ssh that ssh tries unasked, as `ssh -G` of OpenSSH 9.2 lists them."""


class SshSettings(Struct, frozen=True):
    """
    How to enter a host, everything filled in.

    `explicit_key` says that the host's own entry names the key: then nothing else is offered.
    `configured_keys` says that the identity files are not merely OpenSSH's defaults. `host_key_name` is
    what the host key is filed under: `HostKeyAlias`, `address`, or `[address]:port`. `strict` is what
    `StrictHostKeyChecking yes` asks for. `connect_timeout` in seconds. `family` is "any", "inet", "inet6".
    """

    address: str
    port: int
    user: str
    identity_files: tuple[Path, ...]
    explicit_key: bool
    configured_keys: bool
    identities_only: bool
    proxy_jump: str | None
    known_hosts_files: tuple[Path, ...]
    host_key_name: str
    strict: bool
    connect_timeout: float | None
    family: str

    @property
    def label(self) -> str:
        """
        The place as people write it: `root@203.0.113.20:19248`.
        """
        address = f"[{self.address}]" if ":" in self.address else self.address
        return f"{self.user}@{address}:{self.port}"


def effective(host: Host, *, config: Path | None = None, program: str | None = "ssh") -> SshSettings:
    """
    Settle how to enter `host`: what its entry says, else what the OpenSSH configuration says.

    `config` stands in for ~/.ssh/config. `program` is OpenSSH's client; without one the configuration
    is read by paramiko's parser, which knows neither `Include` nor `Match`.

    Raises:
        ConfigError: the configuration is wrong, or asks for what mtpdeploy cannot do (`ProxyCommand`).
    """
    found = program and shutil.which(program)
    values = _ask_ssh(host, found, config) if found else _read_without_ssh(host, config)
    if _meant(values, "proxycommand"):
        raise ConfigError(
            f"`ProxyCommand` is set for `{host.name}` and mtpdeploy cannot use it",
            hint="use `ProxyJump` instead, in ~/.ssh/config or as `proxy_jump` in hosts.toml",
        )
    return _settle(host, values)


def _ask_ssh(host: Host, program: str, config: Path | None) -> dict[str, list[str]]:
    """
    Let OpenSSH itself work it out: `ssh -G` prints the result and connects nowhere.
    """
    command = [program, "-G", "-T"]
    command += ["-F", str(config)] if config else []
    command += ["-p", str(host.port)] if host.port else []
    command += ["-l", host.user] if host.user else []
    for option in host.ssh_options:
        command += ["-o", option]
    command += ["--", host.alias or host.address]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=RESOLVE_LIMIT, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ConfigError(
            f"`ssh -G` did not answer within {RESOLVE_LIMIT:.0f} s for `{host.name}`",
            hint="a `Match exec` in ~/.ssh/config may be hanging",
        ) from error
    if done.returncode != 0:
        complaint = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["no word from ssh"]
        raise ConfigError(
            f"OpenSSH refuses its configuration for `{host.name}`: {complaint[0]}",
            hint=f"mend it until this works: ssh -G {host.alias or host.address}",
        )
    return _lines(done.stdout.decode("utf-8", "surrogateescape"))


def _lines(text: str) -> dict[str, list[str]]:
    values: dict[str, list[str]] = {}
    for line in text.splitlines():
        key, _, value = line.strip().partition(" ")
        values.setdefault(key.lower(), []).append(value.strip())
    return values


def _read_without_ssh(host: Host, config: Path | None) -> dict[str, list[str]]:
    """
    Read ~/.ssh/config by paramiko's parser, after refusing what that one would get wrong.
    """
    path = config or Path.home() / ".ssh" / "config"
    values: dict[str, list[str]] = {}
    for option in host.ssh_options:
        key, value = re.split(r"\s*=\s*|\s+", option, maxsplit=1)
        values.setdefault(key.lower(), []).append(value)
    with using(path):
        if not path.exists():
            return values
        lines = path.read_text("utf-8", "surrogateescape").splitlines()
    for number, line in enumerate(lines, 1):
        word = line.split(maxsplit=1)[0].lower() if line.strip() else ""
        if word in ("include", "match"):
            raise ConfigError(
                f"{path}, line {number}: `{word.capitalize()}` can only be honoured where OpenSSH's `ssh` is",
                hint="install the OpenSSH client",
            )
    for key, found in _parse(path, lines, host).items():
        values.setdefault(key, found)
    return values


def _parse(path: Path, lines: Sequence[str], host: Host) -> dict[str, list[str]]:
    """
    Let paramiko parse the lines, and name the first line that it cannot take.
    """
    from paramiko import ConfigParseError, SSHConfig  # noqa: PLC0415 - heavy, and rarely wanted

    number = 0
    try:
        for number in range(1, len(lines) + 1):
            SSHConfig.from_text("\n".join(lines[:number]))
        number = 0
        entry = SSHConfig.from_text("\n".join(lines)).lookup(host.alias or host.address)
    except (ConfigParseError, ValueError, KeyError) as error:
        where = f"{path}, line {number}" if number else str(path)
        raise ConfigError(
            f"{where}: the OpenSSH configuration cannot be read: {error}", hint="mend that line"
        ) from error
    return {key: value if isinstance(value, list) else [value] for key, value in entry.items()}


def _settle(host: Host, values: Mapping[str, list[str]]) -> SshSettings:
    """
    Put the host's own entry before the configuration, and fill the rest.
    """
    address = (_meant(values, "hostname") if host.alias else None) or host.address
    port = host.port or _number(_meant(values, "port")) or SSH_PORT
    user = host.user or _meant(values, "user") or getpass.getuser()
    tokens = {
        "%": "%",
        "d": str(Path.home()),
        "h": address,
        "p": str(port),
        "r": user,
        "u": getpass.getuser(),
    }
    files = tuple(_path(name, tokens) for name in values.get("identityfile", ()) if name != "none")
    if host.identity_file:
        files = (_path(host.identity_file, tokens),)
    defaults = tuple(Path.home() / ".ssh" / name for name in DEFAULT_KEYS)
    known = (_meant(values, "userknownhostsfile") or "~/.ssh/known_hosts").split()
    known += (_meant(values, "globalknownhostsfile") or "").split()
    jump = host.proxy_jump or _meant(values, "proxyjump")
    name = address if port == SSH_PORT else f"[{address}]:{port}"
    return SshSettings(
        address=address,
        port=port,
        user=user,
        identity_files=files or defaults,
        explicit_key=host.identity_file is not None,
        configured_keys=bool(files) and not set(files) <= set(defaults),
        identities_only=_meant(values, "identitiesonly") == "yes",
        proxy_jump=None if jump is None or jump.lower() == "none" else jump,
        known_hosts_files=tuple(_path(name, tokens) for name in known if name != "none"),
        host_key_name=_meant(values, "hostkeyalias") or name,
        strict=_meant(values, "stricthostkeychecking") in ("yes", "true"),
        connect_timeout=_number(_meant(values, "connecttimeout")),
        family=_meant(values, "addressfamily") or "any",
    )


def _meant(values: Mapping[str, list[str]], key: str) -> str | None:
    """
    The first value, unless it says "none".
    """
    value = values.get(key, [""])[0]
    return value if value and value.lower() != "none" else None


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() else None


def _path(text: str, tokens: Mapping[str, str]) -> Path:
    """
    A path with `~` and the tokens of ssh_config(5), which `ssh -G` leaves as they are.
    """
    filled = re.sub(r"%(.)", lambda found: tokens.get(found[1], found[0]), text)
    return Path(filled).expanduser()
