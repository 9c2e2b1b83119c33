"""
The inventory: both files and the environment, read and checked once.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from mtpdeploy.core.ladder import Ladder
from mtpdeploy.inventory.document import Document, read
from mtpdeploy.inventory.given import check_name
from mtpdeploy.inventory.ladders import ladder
from mtpdeploy.inventory.origin import Claim, Claims, Kind, Origin, over, wrong
from mtpdeploy.inventory.overrides import Environment, read_environment
from mtpdeploy.inventory.tables import host_claims, server_claims, top

FILE_NAME = "hosts.toml"


class Inventory(Struct, frozen=True):
    """
    Everything that is configured. Of several claims on a key the first wins.

    `documents` are the files read, the one that wins first; `looked_for` the names of those that could
    have been there.
    """

    documents: tuple[Document, ...]
    looked_for: tuple[str, ...]
    environment: Environment
    hosts: dict[str, Claims]
    servers: dict[str, Claims]
    host_defaults: Claims
    server_defaults: Claims
    ladders: dict[str, Claim[Ladder]]


def load(
    config: str | os.PathLike[str] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    directory: Path | None = None,
    user_directory: Path | None = None,
) -> Inventory:
    """
    Read the project's hosts.toml (`config`, else MTPDEPLOY_CONFIG, else the one in `directory`) over
    the one of the user's configuration directory. Neither has to be there unless it is named.

    Raises:
        ConfigError: a file or a variable says something that cannot be, or a named file is not there.
    """
    environment = read_environment(os.environ if environ is None else environ)
    directory = directory or Path.cwd()
    chosen = environment.settings.get("MTPDEPLOY_CONFIG")
    named = os.fspath(config) if config is not None else chosen.value if chosen else ""
    if config is not None and not named.strip():
        raise wrong(Origin(Kind.OPTION, "--config"), "no file is named", "leave it out to read ./hosts.toml")
    project = directory / Path(named).expanduser() if named else directory / FILE_NAME
    user = (user_directory or user_config_directory()) / FILE_NAME
    paths = [project] if _same(project, user) else [project, user]
    documents = tuple(
        read(path, shown_path(path, directory))
        for path in paths
        if (named and path == project) or os.path.lexists(path)
    )
    return _merged(documents, tuple(shown_path(path, directory) for path in paths), environment)


def user_config_directory() -> Path:
    """
    Where the user's own hosts.toml stands on this system.
    """
    from platformdirs import user_config_path  # noqa: PLC0415 (only where a file is looked for)

    return user_config_path("mtpdeploy")


def shown_path(path: Path, directory: Path) -> str:
    """
    A path as errors name it: short where it lies in the working directory, unless that is the root.
    """
    inside = path.is_relative_to(directory) and directory != directory.parent
    return str(path.relative_to(directory)) if inside else str(path)


class Checked(Struct, frozen=True):
    """
    What one file says, checked key by key.
    """

    hosts: dict[str, Claims]
    servers: dict[str, Claims]
    host_defaults: Claims
    server_defaults: Claims
    ladders: dict[str, Claim[Ladder]]


def check(document: Document) -> Checked:
    """
    Check every key of one file.

    Raises:
        ConfigError: one of them cannot be; the first in the order hosts, servers, ladders.
    """
    tables = top(document)
    for kind in ("hosts", "servers", "ladders"):
        for name in tables[kind]:
            check_name(document.origin(kind, name), kind.removesuffix("s"), name)
    defaults = tables["defaults"]
    return Checked(
        hosts={name: host_claims(document, ("hosts", name), t) for name, t in tables["hosts"].items()},
        servers={
            name: server_claims(document, ("servers", name), t) for name, t in tables["servers"].items()
        },
        host_defaults=host_claims(document, ("defaults", "host"), defaults.get("host", {})),
        server_defaults=server_claims(document, ("defaults", "server"), defaults.get("server", {})),
        ladders={
            name: Claim(ladder(document, name, table), document.origin("ladders", name))
            for name, table in tables["ladders"].items()
        },
    )


def _merged(
    documents: tuple[Document, ...], looked_for: tuple[str, ...], environment: Environment
) -> Inventory:
    hosts: dict[str, Claims] = {}
    servers: dict[str, Claims] = {}
    ladders: dict[str, Claim[Ladder]] = {}
    host_defaults: Claims = {}
    server_defaults: Claims = {}
    for checked in map(check, documents):
        for name, claims in checked.hosts.items():
            hosts[name] = over(hosts.get(name, {}), claims)
        for name, claims in checked.servers.items():
            servers[name] = over(servers.get(name, {}), claims)
        host_defaults = over(host_defaults, checked.host_defaults)
        server_defaults = over(server_defaults, checked.server_defaults)
        ladders = checked.ladders | ladders
    return Inventory(
        documents, looked_for, environment, hosts, servers, host_defaults, server_defaults, ladders
    )


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except (OSError, ValueError):
        return False
