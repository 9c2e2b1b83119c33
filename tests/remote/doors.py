"""
Going in by a real door: an sshd, and what it answered.
"""

from pathlib import Path

import pytest

from mtpdeploy.core.machine import Host
from mtpdeploy.errors import BoxUnreachable
from mtpdeploy.remote.connect import Opener
from tests.fakes.sshd import Sshd


def enter(sshd: Sshd, state: Path, host: Host | None = None, **options: object) -> None:
    """
    Open a line and close it.
    """
    opener = Opener(
        host or sshd.host(),
        pins=state / "known_hosts",
        config=sshd.client_config,
        **options,  # type: ignore[arg-type]
    )
    opener.open().close()


def refusal(sshd: Sshd, state: Path, host: Host | None = None, **options: object) -> BoxUnreachable:
    """
    The error that opening a line ends with; it always says what to do.
    """
    with pytest.raises(BoxUnreachable) as caught:
        enter(sshd, state, host, **options)
    assert caught.value.hint
    return caught.value


def failed_logins(sshd: Sshd) -> int:
    """
    How many keys were offered in vain, as sshd counts.
    """
    return sshd.log.read_text().count("Failed publickey")
