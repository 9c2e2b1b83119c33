"""
The keys offered to a box: which, in what order, and each at most once.
"""

import base64
import getpass
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from paramiko import (
    Agent,
    AuthenticationException,
    BadAuthenticationType,
    PasswordRequiredException,
    PKey,
    SSHException,
    Transport,
)
from paramiko.pkey import UnknownKeyType

from mtpdeploy.errors import BoxUnreachable
from mtpdeploy.remote.ssh_config import SshSettings

AGENT_KEYS = 3
FILE_KEYS = 3
"""
Keys offered at most, from the agent and from files: together the six that OpenSSH's default
`MaxAuthTries 6` allows (sshd_config(5)); more end in "Too many authentication failures".
"""

Ask = Callable[[Path], str | None]
"""Asks for the passphrase of a key file; None when nobody can be asked."""


def ask_on_terminal(path: Path) -> str | None:
    """
    Ask for a passphrase, on a terminal only.
    """
    if not sys.stdin.isatty():
        return None
    return getpass.getpass(f"passphrase of {path}: ", stream=sys.stderr)


class Keyring:
    """
    Logs in with public keys: an "auth strategy" for `SSHClient.connect`.

    Key files are read, and passphrases asked for, once in its life.
    """

    def __init__(self, settings: SshSettings, *, ask: Ask, told: Callable[[str], None]) -> None:
        self._settings = settings
        self._ask = ask
        self._told = told
        self._loaded: dict[Path, PKey | None] = {}
        self._passed_over: list[str] = []

    def authenticate(self, transport: Transport) -> list[str]:
        """
        Offer one key after the other; what was refused is never offered again.

        Raises:
            BoxUnreachable: none was accepted; names them.
        """
        agent = Agent()
        try:
            return self._offer(transport, agent)
        finally:
            agent.close()

    def _offer(self, transport: Transport, agent: Agent) -> list[str]:
        refused: list[str] = []
        for name, key in self._keys(agent):
            try:
                more = transport.auth_publickey(self._settings.user, key)
            except BadAuthenticationType as error:
                raise self._wants(error.allowed_types) from error
            except AuthenticationException as error:
                refused.append(name)
                if not transport.is_active():
                    raise self._thrown_out(refused) from error
            except (SSHException, EOFError, OSError) as error:
                raise self._thrown_out([*refused, name]) from error
            else:
                if transport.is_authenticated():
                    return more
                raise self._wants(more)
        raise self._refused(refused)

    def _keys(self, agent: Agent) -> Iterator[tuple[str, PKey]]:
        """
        A key that the host's entry names stands alone; else configured files, the agent, default files.
        """
        settings = self._settings
        if settings.explicit_key or settings.identities_only:
            yield from self._from_files(agent)
        elif settings.configured_keys:
            yield from self._from_files(agent)
            yield from self._from_agent(agent)
        else:
            yield from self._from_agent(agent)
            yield from self._from_files(agent)

    def _from_agent(self, agent: Agent) -> Iterator[tuple[str, PKey]]:
        for key in agent.get_keys()[:AGENT_KEYS]:
            yield f"{key.comment or key.get_name()} (agent)", key

    def _from_files(self, agent: Agent) -> Iterator[tuple[str, PKey]]:
        offered = 0
        for path in self._settings.identity_files:
            if path not in self._loaded:
                self._loaded[path] = self._load(path, agent)
            key = self._loaded[path]
            if key is not None and offered < FILE_KEYS:
                offered += 1
                yield str(path), key

    def _load(self, path: Path, agent: Agent) -> PKey | None:
        """
        Read a key file; None, with the reason noted, when it cannot be used.

        Raises:
            BoxUnreachable: the key that the host's entry names is unusable.
        """
        try:
            if path.stat().st_mode & 0o077:
                self._told(f"the key {path} can be read by others: chmod 600 {path}")
            return PKey.from_path(path)
        except FileNotFoundError:
            self._pass_over(path, "is not there", "give the path of a private key")
        except (PasswordRequiredException, TypeError):
            return self._unlock(path, agent)
        except (UnknownKeyType, UnsupportedAlgorithm):
            self._pass_over(path, "is of a kind not supported (FIDO?)", "use an ed25519 key")
        except OSError as error:
            self._pass_over(path, f"cannot be read: {error.strerror}", "mend its permissions")
        except (SSHException, ValueError):
            what = "is the public half" if path.suffix == ".pub" else "is no private key"
            self._pass_over(path, what, "give the private key's path, the one without .pub")
        return None

    def _unlock(self, path: Path, agent: Agent) -> PKey | None:
        """
        Use the agent's copy of an encrypted key, or ask for the passphrase, once.
        """
        public = _public_half(path)
        for key in agent.get_keys():
            if public is not None and key.asbytes() == public:
                return key
        phrase = self._ask(path)
        if phrase is None:
            self._pass_over(path, "is encrypted and there is no terminal to ask on", f"ssh-add {path}")
            return None
        try:
            # paramiko 5.1 says str and needs bytes
            return PKey.from_path(path, password=phrase.encode())  # type: ignore[arg-type]
        except (SSHException, ValueError, TypeError):
            self._pass_over(path, "has another passphrase", "start again, or unlock it by ssh-add")
        return None

    def _pass_over(self, path: Path, why: str, cure: str) -> None:
        if self._settings.explicit_key:
            raise BoxUnreachable(f"the key {path} {why}", hint=cure)
        if why != "is not there":
            self._passed_over.append(f"{path} {why}")

    def _refused(self, refused: list[str]) -> BoxUnreachable:
        passed = "".join(f"\n  passed over: {text}" for text in self._passed_over)
        if not refused:
            return BoxUnreachable(
                f"there is no key to offer to {self._settings.label}{passed}",
                hint="give one with `identity_file`, `-i FILE` in the ssh line, or ssh-add",
            )
        return BoxUnreachable(
            f"{self._settings.label} accepts none of our keys: {', '.join(refused)}{passed}",
            hint="put the public key into the provider's account, then into this box's ~/.ssh/authorized_keys"
            " (keys added later reach only new boxes); check the user name, usually root",
        )

    def _thrown_out(self, offered: list[str]) -> BoxUnreachable:
        return BoxUnreachable(
            f"{self._settings.label} closed the connection during the login,"
            f" after {len(offered)} key(s): {', '.join(offered)}",
            hint="too many keys (MaxAuthTries)? name the right one with `identity_file` or `-i FILE`",
        )

    def _wants(self, kinds: list[str]) -> BoxUnreachable:
        return BoxUnreachable(
            f"{self._settings.label} wants another kind of login: {', '.join(kinds)}",
            hint="mtpdeploy logs in with keys only: put your public key into ~/.ssh/authorized_keys there",
        )


def _public_half(path: Path) -> bytes | None:
    """
    The public key that lies beside a private one, as it goes over the wire.
    """
    try:
        return base64.b64decode(path.with_name(path.name + ".pub").read_text("utf-8").split()[1])
    except (OSError, ValueError, IndexError):
        return None
