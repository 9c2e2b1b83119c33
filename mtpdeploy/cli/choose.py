"""
From the command line and hosts.toml to an order.
"""

import os
from importlib import resources

from msgspec import structs

from mtpdeploy.cli.options import Asked
from mtpdeploy.core.ladder import Ladder
from mtpdeploy.core.machine import Host
from mtpdeploy.core.server import ServerSpec
from mtpdeploy.deploy.journal import state_directory
from mtpdeploy.deploy.order import Options, Order
from mtpdeploy.engines.sglang.rungs import LADDERS
from mtpdeploy.errors import ConfigError
from mtpdeploy.inventory.explain import Explained
from mtpdeploy.inventory.load import Inventory, load
from mtpdeploy.inventory.origin import did_you_mean, shown
from mtpdeploy.inventory.overrides import Overrides
from mtpdeploy.inventory.reach import choose_host, host_of, means_demo
from mtpdeploy.inventory.resolve import explain, resolve
from mtpdeploy.remote.address import parse_address
from mtpdeploy.remote.ssh_config import effective


def order_from(asked: Asked, options: Options, *, needs_host: bool = True) -> Order:
    """
    The server, host and ladder that a command line means. Without `needs_host` none has to be named.

    Raises:
        ConfigError: hosts.toml, the environment or the command line says something that cannot be.
    """
    resolved = resolve(
        inventory_for(asked),
        asked.server,
        asked.on,
        overrides_of(asked),
        read_address=parse_address,
        is_alias=is_alias,
        needs_host=needs_host,
    )
    limit = resolved.explained.max_attempts or options.max_attempts
    server = _on_demo(resolved.server) if resolved.host.simulated else resolved.server
    return Order(server, resolved.host, resolved.ladder, structs.replace(options, max_attempts=limit))


def host_from(asked: Asked) -> Host:
    """
    The host that a command line means, for commands that need no server.

    Raises:
        ConfigError: none or several to choose from, or a line that cannot be read.
    """
    chosen = choose_host(load(asked.config_file), asked.on, read_address=parse_address, is_alias=is_alias)
    return host_of(chosen)


def find_ladder(config_file: str | None, name: str) -> Ladder:
    """
    A ladder by name: one of hosts.toml, or a built-in one.

    Raises:
        ConfigError: there is none of that name.
    """
    own = load(config_file).ladders
    if name in own:
        return own[name].value
    if name in LADDERS:
        return LADDERS[name]
    raise ConfigError(
        f"there is no ladder `{shown(name)}`", hint=did_you_mean(name, [*own, *LADDERS], "the ladders are")
    )


def explained(asked: Asked) -> Explained:
    """
    Every value with where it came from.

    Raises:
        ConfigError: as `order_from`.
    """
    return explain(
        inventory_for(asked),
        asked.server,
        asked.on,
        overrides_of(asked),
        read_address=parse_address,
        is_alias=is_alias,
    )


def inventory_for(asked: Asked) -> Inventory:
    """
    What is configured; on the demo box its own server, where no other is named, with everybody's ladders.
    """
    inventory = load(asked.config_file)
    on = asked.on or os.environ.get("MTPDEPLOY_ON") or ""
    named = asked.server is not None or os.environ.get("MTPDEPLOY_SERVER") or asked.config_file is not None
    if means_demo(on.strip()) and not named:
        demo = load(str(resources.files("mtpdeploy.demo") / "hosts.toml"))
        return structs.replace(demo, ladders={**inventory.ladders, **demo.ladders}, hosts=inventory.hosts)
    return inventory


def overrides_of(asked: Asked) -> Overrides:
    """
    The options of a command line that change a server.
    """
    return Overrides(
        sets=asked.settings,
        port=asked.port,
        gpus=asked.gpus,
        ladder=asked.ladder,
        max_attempts=asked.max_attempts,
    )


def _on_demo(server: ServerSpec) -> ServerSpec:
    from mtpdeploy.demo.place import stand_in  # noqa: PLC0415 - the demo box costs 15 ms

    return stand_in(server, state_directory())


def is_alias(name: str) -> bool:
    """
    Whether the user's OpenSSH configuration knows a name.
    """
    return effective(Host(name=name, address=name, alias=name)).address != name
