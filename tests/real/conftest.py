"""
What the tests on the real SGLang share: the installation, and one box.
"""

from collections.abc import Iterator

import pytest

from tests.real.installation import Installation, installed
from tests.real.place import Box


@pytest.fixture(scope="session")
def installation() -> Installation:
    """
    The real SGLang and the tiny models; where they cannot be had, every test fails with the reason.
    """
    return installed()


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory, installation: Installation) -> Iterator[Box]:
    """
    One box for the tests of a file; a server that one of them brings up may serve the next.
    """
    with Box(tmp_path_factory.mktemp("real"), installation) as box:
        yield box


@pytest.fixture
def fresh(box: Box) -> Iterator[Box]:
    """
    The same box with nothing on it, before and after.
    """
    box.clear()
    box.write_hosts()
    yield box
    box.clear()
