"""
What the end-to-end tests share.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.client import Client, Here
from tests.e2e.rented import Rented


@pytest.fixture
def rent(tmp_path: Path) -> Iterator[Callable[..., Rented]]:
    """
    Rents boxes: real SSH servers on loopback with a simulated GPU behind them.
    """
    with ExitStack() as stack:
        count = 0

        def take(**options: object) -> Rented:
            nonlocal count
            count += 1
            return stack.enter_context(Rented(tmp_path / f"rented-{count}", **options))  # type: ignore[arg-type]

        yield take


@pytest.fixture
def rented(rent: Callable[..., Rented]) -> Rented:
    """
    One box that behaves.
    """
    return rent()


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[[Client], Here]:
    """
    Runs a client's commands in this process.
    """
    return lambda client: Here(client, monkeypatch, capsys)
