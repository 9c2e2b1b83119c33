"""
What went wrong at the door: every exception of the SSH libraries turned into one of ours.
"""

import os
import socket
from pathlib import Path

from paramiko import AuthenticationException
from paramiko.ssh_exception import IncompatiblePeer

from mtpdeploy.errors import BoxUnreachable, MtpDeployError
from mtpdeploy.remote.own_files import unusable

_MOVED = "is the machine running, and is this still its address? rented ones change on every restart"


class Passing(BoxUnreachable):
    """
    A fault that often passes by itself: connecting may be tried again, nothing was authenticated yet.
    """


class NoSuchName(Passing):
    """
    The name could not be resolved; worth fewer tries than the rest.
    """


def explain(error: Exception, label: str, heard: bytes, *, hung_up: bool) -> MtpDeployError:
    """
    Our error for one that ended an attempt to connect to `label`.

    `heard` are the first bytes that came from there, `hung_up` says that it closed.
    Source of the classes: ssh-faults, E6.
    """
    if isinstance(error, MtpDeployError):
        return error
    if isinstance(error, AuthenticationException):
        return BoxUnreachable(f"{label} refused the login: {error}", hint=f"try: ssh -v {label}")
    if isinstance(error, OSError):
        return _explain_socket(error, label)
    if isinstance(error, IncompatiblePeer):
        return BoxUnreachable(
            f"{label} speaks only old SSH algorithms: {error}",
            hint="the box needs a newer OpenSSH server; SHA-1 and DSA are not spoken any more",
        )
    return _explain_handshake(error, label, heard, hung_up=hung_up)


def _explain_socket(error: OSError, label: str) -> MtpDeployError:
    """
    No TCP connection came about, or it was reset; an error about a file is one of this machine.
    """
    if error.filename is not None:
        return unusable(error, Path(os.fsdecode(error.filename)))
    if isinstance(error, socket.gaierror):
        return NoSuchName(
            f"the name in {label} cannot be resolved: {error.strerror}",
            hint="check the spelling, and that this machine is online",
        )
    if isinstance(error, ConnectionRefusedError):
        return Passing(
            f"nothing listens at {label}: connection refused",
            hint="is the port right, and has the box finished booting? the provider's page shows both",
        )
    if isinstance(error, TimeoutError):
        return Passing(f"no answer from {label}", hint=f"{_MOVED}; a firewall in between looks the same")
    if isinstance(error, (ConnectionResetError, BrokenPipeError)):
        return _closed(label)
    return Passing(f"{label} cannot be reached: {error.strerror or error}", hint=_MOVED)


def _explain_handshake(error: Exception, label: str, heard: bytes, *, hung_up: bool) -> MtpDeployError:
    """
    TCP stood, but no SSH session came about.
    """
    if heard and not _is_ssh(heard):
        said = heard.splitlines()[0][:80].decode("utf-8", "replace")
        return BoxUnreachable(
            f"what answers at {label} is no SSH server: {said!r}",
            hint="this is another service's port; the provider's page shows the one for SSH",
        )
    if hung_up or isinstance(error, EOFError):
        return _closed(label)
    if not heard or "No existing session" in str(error):
        return _silent(label)
    return Passing(
        f"the SSH handshake with {label} failed: {error}", hint=f"compare with what this says: ssh -v {label}"
    )


def _closed(label: str) -> Passing:
    return Passing(
        f"{label} closed the connection before logging in",
        hint="its sshd may be starting, be busy (MaxStartups), or shut this address out for a while"
        " (PerSourcePenalties): wait a minute",
    )


def _silent(label: str) -> Passing:
    return Passing(
        f"{label} accepts the connection, then falls silent",
        hint="its sshd hangs, or this is not an SSH port: restart the box from the provider's page",
    )


def _is_ssh(heard: bytes) -> bool:
    """
    Whether a line of what was heard is the identification of RFC 4253, section 4.2, or may become one.
    """
    lines = heard.split(b"\n")
    return any(line.startswith(b"SSH-") for line in lines) or (
        bool(lines[-1]) and b"SSH-".startswith(lines[-1])
    )
