from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from mtpdeploy.inventory import Inventory, Overrides, Resolved, load, resolve
from mtpdeploy.remote.address import parse_address

SERVER = '[servers.s]\nmodel_path = "/m"\n'
HOST = '[hosts.h]\naddress = "203.0.113.20"\n'

Load = Callable[..., Inventory]
Resolve = Callable[..., Resolved]


@pytest.fixture
def load_text(tmp_path: Path) -> Load:
    """
    Load a text as the project's hosts.toml, and another one as the user's.
    """
    project, user = tmp_path / "project", tmp_path / "user"
    project.mkdir()
    user.mkdir()

    def inventory(
        text: str | bytes | None, *, user_text: str | None = None, environ: Mapping[str, str] | None = None
    ) -> Inventory:
        if text is not None:
            (project / "hosts.toml").write_bytes(text if isinstance(text, bytes) else text.encode())
        if user_text is not None:
            (user / "hosts.toml").write_text(user_text)
        return load(environ=environ or {}, directory=project, user_directory=user)

    return inventory


@pytest.fixture
def resolve_text(load_text: Load) -> Resolve:
    """
    Load texts and settle what runs where.
    """

    def resolved(
        text: str | None,
        *,
        server: str | None = None,
        on: str | None = None,
        overrides: Overrides | None = None,
        is_alias: Callable[[str], bool] = lambda _: False,
        user_text: str | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> Resolved:
        inventory = load_text(text, user_text=user_text, environ=environ)
        chosen = overrides or Overrides()
        return resolve(inventory, server, on, chosen, read_address=parse_address, is_alias=is_alias)

    return resolved
