"""
Getting in: a socket of our own, Fabric's connection on it, the host key judged, one login.

Imported only when a box is opened: Fabric and paramiko take 0.3 s (ssh-faults, E9).
"""

import contextlib
import logging
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import tenacity
from fabric import Config, Connection
from paramiko import Channel, ChannelException, MissingHostKeyPolicy, PKey, SSHClient, SSHException, Transport

from mtpdeploy.core.machine import Host
from mtpdeploy.errors import ConfigError, ConnectionLost
from mtpdeploy.remote.address import parse_address
from mtpdeploy.remote.auth import Ask, Keyring, ask_on_terminal
from mtpdeploy.remote.faults import NoSuchName, Passing, explain
from mtpdeploy.remote.hostkeys import Changed, HostKeys, default_pins
from mtpdeploy.remote.line import CHANNEL_LIMIT, Line
from mtpdeploy.remote.ssh_config import SshSettings, effective

if TYPE_CHECKING:
    from typing_extensions import Buffer

CONNECT_LIMIT = 10.0
BANNER_LIMIT = 20.0
AUTH_LIMIT = 30.0
ATTEMPT_LIMIT = 45.0
"""
Seconds for TCP, for the server's first word and key exchange, for the login, and for one attempt in all.
Source: ssh-faults, A3 26: without them a blackholed SYN blocked for more than 20 s, silence for ever.
"""

NEXT_ADDRESS = 3.0
"""
Seconds for an address when there is another one: a filtered IPv6 may cost no more (ssh-faults, C6).
"""

USER_TIMEOUT = 20.0
"""
Seconds for which sent bytes may stay unacknowledged (`TCP_USER_TIMEOUT`): 24 s to notice a silent cut,
against 948 s by keepalive alone (ssh-faults, E1).
"""

KEEPALIVE = 15
"""
Seconds between packets that keep NAT entries open; the shortest known forgets after 240 s (A4 30).
"""

CONNECT_WAITS = (0.2, 0.5, 1.0, 2.0)
"""
Seconds before each new try at most, with jitter: the first of ssh-faults D2 5; five tries are its A3 23.
"""

NAME_TRIES = 3
"""A name that cannot be resolved is looked up twice more (ssh-faults, E6)."""

FAST_CIPHERS = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com")
"""Asked for first: 322 MB/s against 199 to 233 with paramiko's own order (ssh-faults, E9)."""

JUMPS = 8
"""Jump hosts in a row at most: a configuration that names itself would never end. Ours."""


logging.getLogger("paramiko").addHandler(logging.NullHandler())  # else it writes to stderr by itself


class Opener:
    """
    Opens lines to one host, all alike. Keys are read and the configuration is settled once.

    `pins` is our known_hosts file, `config` stands in for ~/.ssh/config, `told` is given what the user
    should know (a first contact), `ask` asks for passphrases.

    Raises:
        ConfigError: the OpenSSH configuration is wrong.
    """

    def __init__(
        self,
        host: Host,
        *,
        strict: bool = False,
        pins: Path | None = None,
        config: Path | None = None,
        told: Callable[[str], None] = lambda _text: None,
        ask: Ask = ask_on_terminal,
    ) -> None:
        self.host = host
        self._strict = strict
        self._pins = pins or default_pins()
        self._config = config
        self._told = told
        self._ask = ask
        self._hops = [*self._jumps(effective(host, config=config)), effective(host, config=config)]
        self._keyrings = [Keyring(hop, ask=ask, told=told) for hop in self._hops]

    @property
    def label(self) -> str:
        """
        The place as people write it: `root@203.0.113.20:19248`.
        """
        return self._hops[-1].label

    def open(self, *, tries: int = len(CONNECT_WAITS) + 1) -> Line:
        """
        Open a line; what often passes by itself is tried again, a login never.

        Raises:
            BoxUnreachable: it cannot be reached or entered.
            HostKeyChanged: something else answers there.
        """
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(Passing),
            stop=lambda state: _enough(state, tries),
            wait=_wait,
            reraise=True,
        )
        return retrying(self._open_once)

    def reopen(self) -> Line:
        """
        Open a line again after one was lost, trying once.

        Raises:
            ConnectionLost: it did not come about, and may later.
            BoxUnreachable: it cannot be entered any more.
        """
        try:
            return self._open_once()
        except Passing as error:
            raise ConnectionLost(error.message, hint=error.hint) from error

    def _jumps(self, target: SshSettings, depth: int = 0) -> list[SshSettings]:
        """
        The hosts to pass through, in order; the first of them may itself be behind another.
        """
        if target.proxy_jump is None:
            return []
        if depth >= JUMPS:
            raise ConfigError(
                f"`ProxyJump` goes round in a circle at {target.label}",
                hint="let the jump host itself have `ProxyJump none` in ~/.ssh/config",
            )
        chain = [parse_address(word) for word in target.proxy_jump.split(",")]
        hops = [effective(host, config=self._config) for host in chain]
        return [*self._jumps(hops[0], depth + 1), *hops]

    def _open_once(self) -> Line:
        entered: list[Connection] = []
        with contextlib.ExitStack() as stack:
            for hop, keyring in zip(self._hops, self._keyrings, strict=True):
                entered.append(self._enter(hop, keyring, entered[-1] if entered else None))
                stack.callback(entered[-1].client.close)
            return Line(self.label, entered[-1].transport, stack.pop_all().close)

    def _enter(self, hop: SshSettings, keyring: Keyring, through: Connection | None) -> Connection:
        """
        One connection, on a socket of our own or through the connection before it.
        """
        ear: _Ear | None = None
        try:
            if through is None:
                ear = _dial(hop)
                return self._shake_hands(hop, keyring, ear)
            return self._shake_hands(hop, keyring, _tunnel(through, hop))
        except (SSHException, EOFError, OSError) as error:
            heard = ear.heard if ear else b""
            raise explain(error, hop.label, heard, hung_up=ear is None or ear.hung_up) from error

    def _shake_hands(self, hop: SshSettings, keyring: Keyring, sock: socket.socket | Channel) -> Connection:
        keys = HostKeys(self._pins, hop.known_hosts_files, strict=self._strict or hop.strict, told=self._told)
        kinds = keys.kinds(hop.host_key_name)
        connection = Connection(
            hop.address,
            user=hop.user,
            port=hop.port,
            config=Config(lazy=True, overrides={"load_ssh_configs": False}),
            connect_kwargs={
                "timeout": BANNER_LIMIT,
                "sock": sock,
                "auth_strategy": keyring,
                "banner_timeout": BANNER_LIMIT,
                "auth_timeout": AUTH_LIMIT,
                "channel_timeout": CHANNEL_LIMIT,
                "transport_factory": lambda sock, **rest: _transport(kinds, sock, **rest),
            },
        )
        connection.client.set_missing_host_key_policy(
            _Judge(keys, hop.host_key_name, Changed(self.host.name, hop.label))
        )
        watch = threading.Timer(ATTEMPT_LIMIT, sock.close)
        watch.daemon = True
        watch.start()
        try:
            connection.open()
        except BaseException:
            _abandon(connection.client, sock)
            raise
        finally:
            watch.cancel()
        connection.transport.set_keepalive(KEEPALIVE)
        return connection


def _abandon(client: SSHClient, sock: socket.socket | Channel) -> None:
    """
    Close what did not become a connection.

    Paramiko's timer of the handshake is no daemon and is stopped by nothing else: it would hold up the end
    of the program by 15 s.
    """
    transport = client.get_transport()
    client.close()
    sock.close()
    if transport is not None:
        transport.packetizer.complete_handshake()


class _Judge(MissingHostKeyPolicy):
    """
    Paramiko is given no host keys, so that every key comes here.
    """

    def __init__(self, keys: HostKeys, name: str, changed: Changed) -> None:
        self._keys = keys
        self._name = name
        self._changed = changed

    def missing_host_key(self, client: SSHClient, hostname: str, key: PKey) -> None:  # noqa: ARG002
        self._keys.judge(self._name, key.get_name(), key.asbytes(), self._changed)


class _Ear(socket.socket):
    """
    A socket that remembers the first bytes it heard: what answers there, if not an SSH server.

    An SSH identification has at most 255 (RFC 4253, section 4.2).
    """

    heard = b""
    hung_up = False

    def recv(self, bufsize: int, flags: int = 0, /) -> bytes:
        with self._noticing():
            data = super().recv(bufsize, flags)
        if len(self.heard) < 256:
            self.heard += data[:256]
        self.hung_up = self.hung_up or not data
        return data

    def send(self, data: "Buffer", flags: int = 0, /) -> int:
        with self._noticing():
            return super().send(data, flags)

    @contextlib.contextmanager
    def _noticing(self) -> Iterator[None]:
        """
        A reset is met by whichever of reading and writing comes first; paramiko tells only of one.
        """
        try:
            yield
        except ConnectionError:
            self.hung_up = True
            raise


def _transport(kinds: Sequence[str], sock: socket.socket, disabled_algorithms: None = None) -> Transport:
    """
    A transport that asks for the types of host key that are known, so that a known key can be shown.

    Fast ciphers come first.
    """
    transport = Transport(sock, disabled_algorithms=disabled_algorithms)
    options = transport.get_security_options()
    wanted = [kind for name in kinds for kind in _algorithms(name) if kind in options.key_types]
    options.key_types = tuple(dict.fromkeys([*wanted, *options.key_types]))
    options.ciphers = tuple(dict.fromkeys([*FAST_CIPHERS, *options.ciphers]))
    return transport


def _algorithms(kind: str) -> tuple[str, ...]:
    """
    The signatures that a type of key makes: RSA keys have two since RFC 8332.
    """
    return ("rsa-sha2-512", "rsa-sha2-256") if kind == "ssh-rsa" else (kind,)


def _dial(hop: SshSettings) -> _Ear:
    """
    Connect to the first address that answers; the last failure is raised when none does.
    """
    family = {"inet": socket.AF_INET, "inet6": socket.AF_INET6}.get(hop.family, socket.AF_UNSPEC)
    limit = min(hop.connect_timeout or CONNECT_LIMIT, CONNECT_LIMIT)
    try:
        found = socket.getaddrinfo(hop.address, hop.port, family, socket.SOCK_STREAM)
    except UnicodeError as error:  # a label of more than 63 characters
        raise socket.gaierror(socket.EAI_NONAME, str(error)) from error
    failure: OSError = OSError("no address")
    for number, (kind, _, proto, _, address) in enumerate(found, 1):
        sock = _Ear(kind, socket.SOCK_STREAM, proto)
        try:
            sock.settimeout(limit if number == len(found) else min(limit, NEXT_ADDRESS))
            sock.connect(address)
        except OSError as error:
            sock.close()
            failure = error
            continue
        _tune(sock)
        return sock
    raise failure


def _tune(sock: socket.socket) -> None:
    """
    No waiting for full packets (47 → 3.7 ms a command, E10), and an end to unacknowledged sending.
    """
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(USER_TIMEOUT * 1000))


def _tunnel(through: Connection, hop: SshSettings) -> Channel:
    """
    A connection to the next host, made by the jump host.
    """
    try:
        transport: Transport = through.transport
        return transport.open_channel(
            "direct-tcpip", (hop.address, hop.port), ("127.0.0.1", 0), timeout=CHANNEL_LIMIT
        )
    except ChannelException as error:
        raise Passing(
            f"the jump host {through.user}@{through.host} cannot reach {hop.label}: {error.text}",
            hint="does it allow forwarding (AllowTcpForwarding), and can it resolve and reach that address?",
        ) from error


def _enough(state: tenacity.RetryCallState, tries: int) -> bool:
    error = state.outcome.exception() if state.outcome else None
    if isinstance(error, NoSuchName) and state.attempt_number >= NAME_TRIES:
        return True
    return state.attempt_number >= tries or (state.seconds_since_start or 0) >= ATTEMPT_LIMIT


def _wait(state: tenacity.RetryCallState) -> float:
    longest = CONNECT_WAITS[min(state.attempt_number, len(CONNECT_WAITS)) - 1]
    return tenacity.wait_random(longest / 2, longest)(state)
