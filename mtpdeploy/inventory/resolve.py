"""
From names and options to what one `up` needs: server, host and ladder, each value with its origin.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from mtpdeploy.core.ladder import Ladder
from mtpdeploy.core.machine import Host
from mtpdeploy.core.server import ServerSpec
from mtpdeploy.engines.sglang.rungs import LADDERS
from mtpdeploy.errors import ConfigError
from mtpdeploy.inventory.explain import Explained, Row, rows_of
from mtpdeploy.inventory.keys import SERVER_KEYS
from mtpdeploy.inventory.load import Inventory
from mtpdeploy.inventory.origin import BUILT_IN, Claim, Claims, did_you_mean, listed, over, shown, wrong
from mtpdeploy.inventory.overrides import Overrides, max_attempts, option_claims
from mtpdeploy.inventory.reach import (
    Chosen,
    ReadAddress,
    choose_any_host,
    choose_host,
    configured_host,
    files,
    host_of,
    table_origin,
)

NOTHING = Overrides()

BUILT_IN_SERVER: Claims = {
    "ladder": (Claim("default", BUILT_IN),),
    "allow_without_mtp": (Claim(value=False, origin=BUILT_IN),),
}
"""What holds for a server where nobody says anything (house, decision 2 for MTP)."""


class Resolved(NamedTuple):
    """
    One server on one host with the ladder to climb, and where each value came from.
    """

    server: ServerSpec
    host: Host
    ladder: Ladder
    explained: Explained


def resolve(
    inventory: Inventory,
    server: str | None = None,
    on: str | None = None,
    overrides: Overrides = NOTHING,
    *,
    read_address: ReadAddress,
    is_alias: Callable[[str], bool] = lambda _: False,
    needs_host: bool = True,
) -> Resolved:
    """
    Settle what runs where. With one server and one host configured both may be left out; where no host is
    needed, several or none of them will do, too.

    Raises:
        ConfigError: a name that is not there, several and none named, a server without a model, or an
            option that cannot be.
    """
    chosen = choose_server(inventory, server, overrides)
    choose = choose_host if needs_host else choose_any_host
    host = choose(inventory, on, read_address=read_address, is_alias=is_alias)
    ladder, ladder_row = _ladder(inventory, chosen)
    limit = max_attempts(overrides, inventory.environment)
    return Resolved(
        server_of(inventory, chosen),
        host_of(host),
        ladder,
        Explained(
            rows=(*rows_of(chosen.key, chosen.claims), *rows_of(host.key, host.claims), ladder_row),
            max_attempts=limit.value if limit else None,
        ),
    )


def explain(
    inventory: Inventory,
    server: str | None = None,
    on: str | None = None,
    overrides: Overrides = NOTHING,
    *,
    read_address: ReadAddress,
    is_alias: Callable[[str], bool] = lambda _: False,
) -> Explained:
    """
    Every value with where it came from; of all servers and hosts where none is named.

    Raises:
        ConfigError: as `resolve`, but neither a server nor a host has to be configured.
    """
    settings = inventory.environment.settings
    servers = list(inventory.servers) if server is None and "MTPDEPLOY_SERVER" not in settings else [server]
    rows: list[Row] = []
    for name in servers:
        chosen = choose_server(inventory, name, overrides)
        rows += [*rows_of(chosen.key, chosen.claims), _ladder(inventory, chosen)[1]]
    if on is not None or "MTPDEPLOY_ON" in settings:
        hosts = [choose_host(inventory, on, read_address=read_address, is_alias=is_alias)]
    else:
        hosts = [configured_host(inventory, name, read_address=read_address) for name in inventory.hosts]
    for host in hosts:
        rows += rows_of(host.key, host.claims)
    rows += [Row(name, claim.value, claim.origin) for name, claim in settings.items()]
    limit = max_attempts(overrides, inventory.environment)
    once = {row.key: row for row in rows}
    return Explained(tuple(once.values()), limit.value if limit else None)


def choose_server(inventory: Inventory, server: str | None, overrides: Overrides = NOTHING) -> Chosen:
    """
    The server that is named, else MTPDEPLOY_SERVER, else the only one that is configured.

    Raises:
        ConfigError: none or several to choose from, an unknown name, or an option that cannot be.
    """
    name = _server_name(inventory, server)
    upper = over(option_claims(overrides), inventory.environment.server)
    lower = over(over(inventory.servers[name], inventory.server_defaults), BUILT_IN_SERVER)
    claims = over(upper, lower)
    return Chosen(name, ("servers", name), {key: claims[key] for key in {**lower, **upper}})


def server_of(inventory: Inventory, chosen: Chosen) -> ServerSpec:
    """
    The server that the winning claims describe.

    Raises:
        ConfigError: it has no model.
    """
    values = {key: claims[0].value for key, claims in chosen.claims.items()}
    if not values.get("model_path"):
        raise wrong(
            table_origin(inventory, *chosen.key),
            f"`[servers.{shown(chosen.name)}]` has no `model_path`",
            'write `model_path = "…"`: a folder on the box, or a name of the Hugging Face hub',
        )
    own: dict[str, Any] = {key: values[key] for key in SERVER_KEYS if key in values}
    return ServerSpec(
        name=chosen.name,
        flags={k: v for k, v in values.items() if k not in SERVER_KEYS and not k.startswith("env.")},
        env={k.removeprefix("env."): v for k, v in values.items() if k.startswith("env.")},
        secrets=tuple(own.get("secrets", ())),
        ladder=own["ladder"],
        allow_without_mtp=own["allow_without_mtp"],
        gpus=tuple(own.get("gpus", ())),
    )


def _server_name(inventory: Inventory, server: str | None) -> str:
    variable = inventory.environment.settings.get("MTPDEPLOY_SERVER")
    names = list(inventory.servers)
    if server is not None or variable is not None:
        name = server if server is not None else variable.value if variable else ""
        if name not in names:
            what = f"there is no server `{shown(name)}` in {files(inventory)}"
            hint = did_you_mean(name, names, "the servers are") if names else "write a `[servers.NAME]` table"
            raise (
                ConfigError(what, hint=hint)
                if server is not None or not variable
                else wrong(variable.origin, what, hint)
            )
        return name
    if len(names) == 1:
        return names[0]
    if not names:
        raise ConfigError(
            f"there is no server in {files(inventory)}",
            hint="write a table `[servers.NAME]` with its `model_path`; the hosts.toml that comes with"
            " mtpdeploy shows every key",
        )
    raise ConfigError(
        f"no server is named, and {files(inventory)} has several: {listed(names)}",
        hint=f"name one: `mtpdeploy up {names[0]}`",
    )


def _ladder(inventory: Inventory, chosen: Chosen) -> tuple[Ladder, Row]:
    claim = chosen.claims["ladder"][0]
    own = inventory.ladders.get(claim.value)
    if own is None and claim.value not in LADDERS:
        raise wrong(
            claim.origin,
            f"there is no ladder `{shown(claim.value)}`",
            did_you_mean(claim.value, [*inventory.ladders, *LADDERS], "the ladders are"),
        )
    ladder, origin = (own.value, own.origin) if own else (LADDERS[claim.value], BUILT_IN)
    return ladder, Row(f"ladders.{ladder.name}.rungs", tuple(r.name for r in ladder.rungs), origin)
