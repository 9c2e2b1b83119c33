"""
What people paste to say where a box is, read into a `Host`.
"""

import ipaddress
import re
import shlex
from collections.abc import Iterator
from urllib.parse import urlsplit

from msgspec.structs import replace

from mtpdeploy.core.machine import Host
from mtpdeploy.errors import ConfigError
from mtpdeploy.inventory.secrecy import masked

HINT = (
    'paste the provider\'s line whole and in quotes, for example "ssh -p 19248 root@203.0.113.20", '
    "or root@203.0.113.20:19248, ssh://root@203.0.113.20:19248, or a name from ~/.ssh/config"
)

_HARMLESS = frozenset("AaCfgKkMNnqTtvXxYy")
"""Flags of ssh(1), OpenSSH 9.2, that concern its own terminal, display or talk: nothing to do here."""

_HARMLESS_WITH_VALUE = frozenset("eE")
"""Escape character and log file of ssh's own, ssh(1)."""

_FAMILY = {"4": "AddressFamily=inet", "6": "AddressFamily=inet6"}

_WITH_VALUE = frozenset("BbcDEeFIiJLlmOoPpQRSWw")
"""Every flag of ssh(1), OpenSSH 9.2, that takes a value."""

_WITHOUT_VALUE = _HARMLESS | frozenset("46GsVy")

_NAME = re.compile(r"[\w:][\w.:%-]*\Z")
_USER = re.compile(r"[^\s\x00-\x1f@:-][^\s\x00-\x1f@:]*\Z")


def parse_address(text: str, *, name: str | None = None) -> Host:
    """
    Read an ssh line, `user@host:port`, `ssh://…`, `[v6]:port`, a bare name or an alias.

    The host's name is `name`, or else made from the address. A word that is no IP address is kept as
    `alias` too, since OpenSSH would look it up in its configuration.

    Raises:
        ConfigError: it is none of these, or carries a flag that mtpdeploy cannot honour.
    """
    line = text.strip().removeprefix("$ ").strip()
    if not line:
        raise ConfigError("no host is given", hint=HINT)
    if re.match(r"(\S*/)?sshpass(\s|\Z)", line):
        raise _password()
    host = _read_command(line) if re.match(r"(\S*/)?ssh(\s|\Z)", line) else _read_destination(line)
    return replace(host, name=name) if name else host


def _refuse_password(text: str) -> None:
    """
    Insist on an address without a password; it is repeated in no error.

    Raises:
        ConfigError: `user:password@host`, or `ssh://user:password@host`.
    """
    user, at, _ = re.sub(r"\A[a-z]+://", "", text).rpartition("@")
    if at and ":" in user:
        raise _password()


def _password() -> ConfigError:
    return ConfigError(
        "a password stands in this address, and mtpdeploy keeps and uses none",
        hint="leave it out and log in by a key: put yours on the box with `ssh-copy-id`, and name it with "
        "`-i FILE` or `identity_file` where it is not one of ~/.ssh",
    )


def _read_command(line: str) -> Host:
    """
    Read a whole `ssh …` command line, flags before and after the destination.
    """
    try:
        words = shlex.split(line)[1:]
    except ValueError as error:
        raise ConfigError(f"the ssh line has an open quote: {masked(line)}", hint=HINT) from error
    destination: str | None = None
    found: dict[str, list[str]] = {}
    for flag, value in _flags(words):
        if flag:
            found.setdefault(flag, []).append(value)
        elif destination is None:
            destination = value
        else:
            raise ConfigError(
                f"the ssh line runs a command, which mtpdeploy cannot do: {value}",
                hint="leave away what stands after the host",
            )
    if destination is None:
        raise ConfigError(f"the ssh line names no host: {line}", hint=HINT)
    return _apply(_read_destination(destination), found)


def _flags(words: list[str]) -> Iterator[tuple[str, str]]:
    """
    Yield (flag letter, value) for each flag and ("", word) for each other word, as getopt would.
    """
    rest = iter(words)
    for word in rest:
        if not word.startswith("-") or word == "-":
            yield "", word
            continue
        if word == "--":
            yield from (("", other) for other in rest)
            return
        letters = word[1:]
        while letters:
            letter, letters = letters[0], letters[1:]
            if letter in _WITH_VALUE:
                value = letters or next(rest, None)
                if value is None:
                    raise ConfigError(f"`-{letter}` has no value", hint=HINT)
                yield letter, value
                break
            if letter not in _WITHOUT_VALUE:
                raise ConfigError(f"ssh has no option `-{letter}`", hint=HINT)
            yield letter, ""


def _apply(host: Host, found: dict[str, list[str]]) -> Host:
    """
    Give `host` what the flags say; as in OpenSSH, the first of two equal flags wins.
    """
    changes: dict[str, object] = {}
    options: list[str] = []
    for flag, values in found.items():
        if flag in _HARMLESS or flag in _HARMLESS_WITH_VALUE:
            continue
        if flag in _FAMILY:
            options.append(_FAMILY[flag])
        elif flag == "o":
            options += [_option(value) for value in values]
        elif flag == "p":
            changes["port"] = read_port(values[0])
        elif flag == "l":
            changes["user"] = _user(values[0])
        elif flag == "i":
            changes["identity_file"] = values[0]
        elif flag == "J":
            changes["proxy_jump"] = read_jump(values[0])
        elif flag == "L":
            changes["forwards"] = tuple(_forward(value) for value in values)
        else:
            raise ConfigError(
                f"mtpdeploy cannot honour the ssh option `-{flag}`",
                hint="leave it away, or put what it means into ~/.ssh/config under a name and give that name",
            )
    named = replace(host, **changes, ssh_options=tuple(options))
    return replace(named, name=_made_name(named))


def read_jump(text: str) -> str:
    """
    A `-J` value: hosts with a comma between them.

    Raises:
        ConfigError: one of them has a password in it.
    """
    for jump in text.split(","):
        _refuse_password(jump.strip())
    return text


def _read_destination(text: str) -> Host:
    """
    Read `[user@]host[:port]`, `[user@][v6][:port]` or `ssh://…`.
    """
    _refuse_password(text)
    user: str | None
    if "://" in text and not text.startswith("ssh://"):
        raise ConfigError(f"this is no ssh address: {text}", hint=HINT)
    if text.startswith("ssh://"):
        user, address, port = _read_url(text)
    else:
        user, at, rest = text.rpartition("@")
        address, port = _read_host_port(rest)
        user = user if at else None
    if not _NAME.match(address):
        raise ConfigError(f"this is no host name or address: {address or text}", hint=HINT)
    alias = None if _is_ip(address) else address
    host = Host(name="", address=address, port=port, user=_user(user), alias=alias)
    return replace(host, name=_made_name(host))


def _read_url(text: str) -> tuple[str | None, str, int | None]:
    try:
        url = urlsplit(text)
        port, address = url.port, url.hostname or ""
    except ValueError as error:
        raise ConfigError(f"this ssh:// address cannot be read: {text}", hint=HINT) from error
    if url.path.strip("/") or url.query:
        raise ConfigError(f"an ssh:// address has no path: {text}", hint=HINT)
    if port == 0:
        raise ConfigError("a port lies between 1 and 65535: 0", hint=HINT)
    return url.username, address, port


def _read_host_port(text: str) -> tuple[str, int | None]:
    """
    Split `host`, `host:port`, `[v6]`, `[v6]:port`; a bare v6 address has no port.
    """
    bracketed = re.match(r"\[([^\]]*)\](?::(.*))?\Z", text)
    if bracketed:
        address, port = bracketed.groups()
        if ":" in address and not _is_ip(address):
            raise ConfigError(f"this is no IPv6 address: {address}", hint=HINT)
        return address, None if port is None else read_port(port)
    if text.count(":") == 1:
        address, _, port = text.partition(":")
        return address, read_port(port)
    if ":" in text and not _is_ip(text):
        raise ConfigError(f"this is neither host:port nor an IPv6 address: {text}", hint=HINT)
    return text, None


def read_port(text: str) -> int:
    """
    A TCP port number.

    Raises:
        ConfigError: not a whole number from 1 to 65535.
    """
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= 65535):
        raise ConfigError(f"a port lies between 1 and 65535: {text}", hint=HINT)
    return int(text)


def _option(text: str) -> str:
    """
    An `-o` value: `Name=value` or `Name value`.
    """
    if not re.match(r"[A-Za-z]\w*(\s*=|\s+)\s*\S", text.strip()) or "\n" in text:
        raise ConfigError(f"`-o` wants Name=value: {text}", hint=HINT)
    name, value = re.split(r"\s*=\s*|\s+", text.strip(), maxsplit=1)
    if name.lower() == "setenv":
        raise ConfigError(
            "`-o SetEnv` in an ssh line gives the server no variable",
            hint="write it into `env` of the host or the server in hosts.toml; of a secret only the name, "
            "into `secrets` of the server, and the value into ~/.mtpdeploy/env on the box",
        )
    if name.lower() == "proxyjump":
        read_jump(value)
    return text.strip()


def _forward(text: str) -> str:
    """
    An `-L` value: `[bind:]port:host:port`.
    """
    if not re.match(r"((\[[^\]]*\]|[^:\[\]]*):)?\d+:(\[[^\]]+\]|[^:\[\]]+):\d+\Z", text):
        raise ConfigError(f"`-L` wants port:host:port: {text}", hint="for example -L 8080:localhost:8080")
    return text


def _user(text: str | None) -> str | None:
    if text is not None and not _USER.match(text):
        raise ConfigError(f"this is no user name: {text}", hint=HINT)
    return text


def _is_ip(address: str) -> bool:
    try:
        ipaddress.ip_address(address)
    except ValueError:
        return False
    return True


def _made_name(host: Host) -> str:
    """
    A name for a host that was pasted: its alias, or `address:port`.
    """
    address = f"[{host.address}]" if ":" in host.address else host.address
    return host.address if host.port is None else f"{address}:{host.port}"
