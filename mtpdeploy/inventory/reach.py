"""
From what is configured, or pasted, to the `Host`: how to reach it and what is odd about it.
"""

from collections.abc import Callable
from typing import Any, Protocol

from msgspec import Struct, structs

from mtpdeploy.core.machine import Host
from mtpdeploy.errors import ConfigError
from mtpdeploy.inventory.keys import DEMO
from mtpdeploy.inventory.load import Inventory
from mtpdeploy.inventory.origin import (
    BUILT_IN,
    Claim,
    Claims,
    Kind,
    Origin,
    listed,
    nearest,
    over,
    shown,
    wrong,
)
from mtpdeploy.inventory.tables import REACH

LINE_PARTS = ("address", "port", "user", "identity_file", "proxy_jump", "alias", "forwards", "ssh_options")
"""What a pasted line can say about a host."""

BUILT_IN_HOST: Claims = {"work_dir": (Claim(Host(name="", address="").work_dir, BUILT_IN),)}
"""What holds for a host where nobody says anything."""


class ReadAddress(Protocol):
    """
    Reads a pasted line (`remote.address.parse_address`), which the inventory's floor cannot import.
    """

    def __call__(self, text: str, /, *, name: str | None = None) -> Host:
        """
        The host of `ssh -p 19248 root@…`, `root@…:19248`, `ssh://…` or a name.

        Raises:
            ConfigError: it is none of these.
        """


class Chosen(Struct, frozen=True):
    """
    A host or a server with all claims on its keys. `key` is its path as `config explain` shows it.
    """

    name: str
    key: tuple[str, str]
    claims: Claims


def choose_host(
    inventory: Inventory,
    on: str | None,
    *,
    read_address: ReadAddress,
    is_alias: Callable[[str], bool] = lambda _: False,
) -> Chosen:
    """
    The host that `on` means, else MTPDEPLOY_ON, else the only one that is configured.

    A name of hosts.toml goes before an alias of the OpenSSH configuration (`is_alias`) and a pasted line.

    Raises:
        ConfigError: none or several to choose from, an unknown name, or a line that cannot be read.
    """
    text, origin = _asked(inventory, on)
    if not text:
        return configured_host(inventory, _only(inventory), read_address=read_address)
    if text in inventory.hosts:
        return configured_host(inventory, text, read_address=read_address)
    if means_demo(text):
        claims: Claims = {"address": (Claim(text, origin),), "simulated": (Claim(value=True, origin=origin),)}
        return Chosen(DEMO, ("hosts", DEMO), over(claims, BUILT_IN_HOST))
    near = nearest(text, list(inventory.hosts))
    if near is not None and text.replace("-", "").replace("_", "").isalnum() and not is_alias(text):
        raise wrong(
            origin,
            f"there is no host `{shown(text)}` in {files(inventory)}",
            f"the nearest right name is `{near}`; for a name of ~/.ssh/config write `--on 'ssh {text}'`",
        )
    host = _read(text, origin, read_address)
    claims = _parts(host, origin)
    return Chosen(host.name, ("hosts", host.name), over(over(claims, inventory.host_defaults), BUILT_IN_HOST))


def choose_any_host(
    inventory: Inventory,
    on: str | None,
    *,
    read_address: ReadAddress,
    is_alias: Callable[[str], bool] = lambda _: False,
) -> Chosen:
    """
    As `choose_host`; where none is named and there is not exactly one, what holds for every host.

    Raises:
        ConfigError: an unknown name, or a line that cannot be read.
    """
    if not _asked(inventory, on)[0] and len(inventory.hosts) != 1:
        nowhere: Claims = {"address": (Claim("", BUILT_IN),)}
        return Chosen(
            "host", ("defaults", "host"), over(over(nowhere, inventory.host_defaults), BUILT_IN_HOST)
        )
    return choose_host(inventory, on, read_address=read_address, is_alias=is_alias)


def means_demo(text: str) -> bool:
    """
    Whether all of `--on` or MTPDEPLOY_ON is the built-in demo box: `demo`, or `demo:` with what it is like.
    """
    return text == DEMO or text.startswith(f"{DEMO}:")


def configured_host(inventory: Inventory, name: str, *, read_address: ReadAddress) -> Chosen:
    """
    A host of hosts.toml, its `ssh` line read into its parts.

    Raises:
        ConfigError: it says nowhere where it is, its line cannot be read, or line and key both say it.
    """
    claims = inventory.hosts[name]
    if REACH not in claims:
        raise wrong(
            table_origin(inventory, "hosts", name),
            f"`[hosts.{shown(name)}]` does not say where the host is",
            'write `ssh = "…"` with the line your provider shows, or `address`, or `alias`',
        )
    reach = claims[REACH][0]
    way, text = reach.value
    match way:
        case "ssh":
            parts = _parts(
                _read(text, reach.origin, read_address, key=f"`ssh` in `[hosts.{name}]`"), reach.origin
            )
        case "alias":
            parts = dict.fromkeys(("address", "alias"), (Claim(text, reach.origin),))
        case _:
            parts = {"address": (Claim(text, reach.origin),)}
    claims = _placed(inventory, name, claims, parts, reach.origin)
    return Chosen(name, ("hosts", name), over(over(claims, inventory.host_defaults), BUILT_IN_HOST))


def host_of(chosen: Chosen) -> Host:
    """
    The host that the winning claims describe.
    """
    fields: dict[str, Any] = {}
    for key, claims in chosen.claims.items():
        if key in Host.__struct_fields__:
            value = claims[0].value
            fields[key] = tuple(value) if isinstance(value, list) else value
    env = {k.removeprefix("env."): c[0].value for k, c in chosen.claims.items() if k.startswith("env.")}
    return structs.replace(Host(name=chosen.name, address=""), **fields, env=env)


def table_origin(inventory: Inventory, *path: str) -> Origin:
    """
    Where a table stands that one of the files has.
    """
    for document in inventory.documents:
        if path[1] in document.tables.get(path[0], {}):
            return document.origin(*path)
    return BUILT_IN


def files(inventory: Inventory) -> str:
    """
    The files that were read, or could have been, as errors name them.
    """
    names = [document.name for document in inventory.documents] or list(inventory.looked_for)
    return " or ".join(f"`{shown(name)}`" for name in names)


def _asked(inventory: Inventory, on: str | None) -> tuple[str, Origin]:
    """
    What names a host, and where; "" where nothing does.

    Raises:
        ConfigError: an option or a variable that is there names nothing: another host is not what it means.
    """
    given = inventory.environment.settings.get("MTPDEPLOY_ON")
    if on is not None:
        given = Claim(on, Origin(Kind.OPTION, "--on"))
    if given is None:
        return "", BUILT_IN
    if not given.value.strip():
        raise wrong(
            given.origin, "no host is named", "leave it out for the only host of hosts.toml, or name one"
        )
    return given.value.strip(), given.origin


def _only(inventory: Inventory) -> str:
    if len(inventory.hosts) == 1:
        return next(iter(inventory.hosts))
    if not inventory.hosts:
        raise ConfigError(
            f"no host is named, and there is none in {files(inventory)}",
            hint="paste the line your provider shows: --on 'ssh -p 19248 root@203.0.113.20', or keep it:\n"
            "mtpdeploy hosts add rented 'ssh -p 19248 root@203.0.113.20'; without a machine: --on demo",
        )
    raise ConfigError(
        f"no host is named, and {files(inventory)} has several: {listed(inventory.hosts)}",
        hint=f"name one: `--on {next(iter(inventory.hosts))}`",
    )


def _read(text: str, origin: Origin, read_address: ReadAddress, *, key: str = "") -> Host:
    try:
        return read_address(text)
    except ConfigError as error:
        what = f"{key}: {error.message}" if key else error.message
        raise wrong(origin, shown_line(what), error.hint) from error


def shown_line(text: str) -> str:
    """
    A message of another part, on one line.
    """
    return "".join(c if c.isprintable() else "?" for c in text)


def _parts(host: Host, origin: Origin) -> Claims:
    parts = {name: getattr(host, name) for name in LINE_PARTS}
    return {name: (Claim(value, origin),) for name, value in parts.items() if value not in (None, ())}


def _placed(inventory: Inventory, name: str, claims: Claims, parts: Claims, reach: Origin) -> Claims:
    """
    The parts of a line between the claims of the files: before those of lesser files only.
    """
    ranks = {document.name: rank for rank, document in enumerate(inventory.documents)}
    placed = dict(claims)
    for key, (part,) in parts.items():
        before = tuple(c for c in claims.get(key, ()) if ranks[c.origin.name] < ranks[reach.name])
        behind = tuple(c for c in claims.get(key, ()) if ranks[c.origin.name] > ranks[reach.name])
        both = [c for c in claims.get(key, ()) if c.origin.name == reach.name]
        if both:
            raise wrong(
                both[0].origin,
                f"`{key}` in `[hosts.{name}]` is also in its `ssh` line (line {reach.line})",
                "keep one of the two",
            )
        placed[key] = (*before, part, *behind)
    return placed
