"""
Demo homes on this machine for the story's tests: real processes, no SSH.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.deploy.place import Place
from tests.fakes.sshd import free_port


@pytest.fixture
def port() -> int:
    """
    A port on which nothing listens.
    """
    return free_port()


@pytest.fixture
def make_place(tmp_path: Path) -> Iterator[Callable[..., Place]]:
    """
    Lays out demo homes with a box on each; nothing of them lives on after the test.
    """
    made: list[Place] = []

    def make(**options: object) -> Place:
        made.append(Place(tmp_path / f"place-{len(made)}", **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for place in made:
        place.clean()


@pytest.fixture
def place(make_place: Callable[..., Place]) -> Place:
    """
    One demo home that behaves.
    """
    return make_place()
