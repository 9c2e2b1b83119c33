"""
The tables of hosts.toml, checked key by key, as claims: which place gives which value to which key.
"""

from collections.abc import Iterable
from typing import Any

from mtpdeploy.inventory import flags
from mtpdeploy.inventory.document import Document, dotted
from mtpdeploy.inventory.given import Given, env_claims, given_in, own_key, refuse_read_only, twice, unknown
from mtpdeploy.inventory.keys import DEFAULTS, HOST_KEYS, QUIRKS, REACHES, SERVER_KEYS, TABLES
from mtpdeploy.inventory.origin import Claim, Claims, did_you_mean, in_toml, nearest, shown, wrong
from mtpdeploy.inventory.secrecy import LOGIN_PASSWORD, SECRET_FLAGS

REACH = "reach"
"""The key under which a host's `ssh`, `address` or `alias` is kept, as (key, text): one of them wins."""

LOGINS = (*REACHES, "proxy_jump")
"""The keys of a host in which people write how they log in."""

FORMS = {
    "hosts": "[hosts.NAME]",
    "servers": "[servers.NAME]",
    "ladders": "[ladders.NAME]",
    "defaults": "[defaults.server]",
}


def top(document: Document) -> dict[str, dict[str, Any]]:
    """
    The four tables of a document, empty where one is not given; each holds tables only.

    Raises:
        ConfigError: an unknown key at the top, or something that is no table.
    """
    for key, value in document.tables.items():
        if key not in TABLES:
            raise wrong(
                document.origin(key),
                f"there is no table `[{shown(key)}]`",
                did_you_mean(key, list(TABLES), "the tables are"),
            )
        _tables_only(document, (key,), value)
    for key in document.tables.get("defaults", {}):
        if key not in DEFAULTS:
            raise wrong(
                document.origin("defaults", key),
                f"there is no table `[defaults.{shown(key)}]`",
                did_you_mean(key, list(DEFAULTS), "the tables of defaults are"),
            )
    return {key: document.tables.get(key, {}) for key in TABLES}


def host_claims(document: Document, path: tuple[str, ...], table: dict[str, Any]) -> Claims:
    """
    What `[hosts.NAME]` or `[defaults.host]` says.

    Raises:
        ConfigError: an unknown key, a wrong type, or two ways to reach the host.
    """
    claims: Claims = {}
    for given in given_in(document, path, table):
        if given.key in LOGINS and isinstance(given.value, str) and LOGIN_PASSWORD.search(given.value):
            raise wrong(
                given.origin,
                f"a password stands in {given.named}, and mtpdeploy keeps and uses none",
                "leave it out and log in by a key: `ssh-copy-id` puts it there, `identity_file` names it",
            )
        if own_key(given, HOST_KEYS) is None:
            near = nearest(given.key, list(HOST_KEYS))
            raise unknown(given, near, "the keys are " + ", ".join(f"`{k}`" for k in HOST_KEYS))
        if given.key == "env":
            claims |= env_claims(document, (*path, "env"), given.value)
        elif given.key in REACHES:
            _one_way(given, path, claims)
            claims[REACH] = (Claim((given.key, given.value), given.origin),)
        else:
            if given.key == "quirks":
                _known_quirks(given)
            claims[given.key] = (Claim(given.value, given.origin),)
    return claims


def server_claims(document: Document, path: tuple[str, ...], table: dict[str, Any]) -> Claims:
    """
    What `[servers.NAME]` or `[defaults.server]` says, flags under their newest names.

    Raises:
        ConfigError: an unknown key, a wrong type, or one flag under two spellings.
    """
    keys = list(given_in(document, path, table))
    claims = server_key_claims(given for given in keys if given.key != "env")
    for given in keys:
        if given.key == "env":
            own_key(given, SERVER_KEYS)
            claims |= env_claims(document, (*path, "env"), given.value)
    return claims


def server_key_claims(keys: Iterable[Given]) -> Claims:
    """
    Claims on a server's keys, flags under their newest names; all from one table or one command line.

    Raises:
        ConfigError: an unknown key, a wrong type, or one flag under two spellings.
    """
    claims: Claims = {}
    spelled: dict[str, Given] = {}
    for given in keys:
        name = given.key if own_key(given, SERVER_KEYS) else flag_name(given)
        for secret in given.value if name == "secrets" else ():
            refuse_read_only(given, secret)
        if name in spelled:
            raise twice(spelled[name], given, name)
        spelled[name] = given
        claims[name] = (Claim(given.value, given.origin),)
    return claims


def flag_name(given: Given) -> str:
    """
    The newest name of the flag that a key spells, its value checked.

    Raises:
        ConfigError: there is no such flag, its value cannot be, or it is a secret.
    """
    name = known_flag(given)
    complaint = flags.complaint(given.key, given.value)
    if complaint:
        raise wrong(given.origin, f"{given.named} {complaint[0]}", complaint[1])
    return name


def known_flag(given: Given) -> str:
    """
    The newest name of the flag that a key spells.

    Raises:
        ConfigError: there is no such flag, or its value is a secret.
    """
    name = flags.newest_name(given.key)
    if name is None:
        near = nearest(given.key, list(SERVER_KEYS)) or flags.nearest_name(given.key)
        own = ", ".join(f"`{k}`" for k in SERVER_KEYS)
        raise unknown(given, near, f"a server has the flags of SGLang by their names with `_`, and {own}")
    if name in SECRET_FLAGS:
        raise wrong(
            given.origin,
            f"{given.named} is a secret, and a secret's value is not written down here",
            "leave it out: the server's port is reached through the SSH tunnel only",
        )
    return name


def _tables_only(document: Document, path: tuple[str, ...], value: object) -> None:
    form = f"write `{FORMS[path[0]]}` with the keys below it"
    if not isinstance(value, dict):
        raise wrong(
            document.origin(*path), f"`{dotted(path)}` is {in_toml(value)}, and wants tables in it", form
        )
    for name, entry in value.items():
        if not isinstance(entry, dict):
            raise wrong(
                document.origin(*path, name),
                f"`{dotted((*path, name))}` is {in_toml(entry)}, and wants to be a table",
                form,
            )


def _one_way(given: Given, path: tuple[str, ...], claims: Claims) -> None:
    if path == ("defaults", "host"):
        raise wrong(
            given.origin,
            f"{given.named}: where a host is cannot be a default",
            "move it to a table of its own: `[hosts.NAME]`",
        )
    if REACH in claims:
        claim = claims[REACH][0]
        raise wrong(
            given.origin,
            f"{given.named} and `{claim.value[0]}` (line {claim.origin.line}) both say where the host is",
            "keep one: `ssh` for a pasted line, `address` with `port` and `user`, or `alias` for a name of"
            " ~/.ssh/config",
        )


def _known_quirks(given: Given) -> None:
    for quirk in given.value:
        if quirk not in QUIRKS:
            raise wrong(
                given.origin,
                f"{given.named}: there is no quirk `{shown(quirk)}`",
                did_you_mean(quirk, list(QUIRKS), "the quirks are"),
            )
