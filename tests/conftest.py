"""
What many tests share: how laws are tried, and a real SSH server on loopback.
"""

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import settings

from tests.fakes.sshd import Sshd

# What a shell starts in the background ignores Ctrl-C, and so would every client that a test interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)
settings.register_profile("mtpdeploy", deadline=None, derandomize=True)
settings.load_profile("mtpdeploy")  # the same examples in every run, and no bound by the clock


@pytest.fixture(scope="session")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """
    An OpenSSH server as a rented box has it, shared by all tests that leave it alone.
    """
    with Sshd(tmp_path_factory.mktemp("sshd")) as server:
        yield server


@pytest.fixture
def make_sshd(tmp_path: Path) -> Iterator[Callable[..., Sshd]]:
    """
    Starts an OpenSSH server of the test's own: see `Sshd` for what can be asked of it.
    """
    with ExitStack() as stack:
        count = 0

        def make(**options: object) -> Sshd:
            nonlocal count
            count += 1
            return stack.enter_context(Sshd(tmp_path / f"sshd{count}", **options))  # type: ignore[arg-type]

        yield make


@pytest.fixture
def no_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The ssh-agent of whoever runs the tests stays out of them.
    """
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
