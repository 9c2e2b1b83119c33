"""
`[ladders.NAME]`: the built-in rungs in another order, and rungs of one's own.
"""

from functools import partial
from typing import Any

from mtpdeploy.core.diagnosis import Cause, Verdict
from mtpdeploy.core.ladder import Ladder, Rung
from mtpdeploy.core.server import FlagValue, ServerSpec
from mtpdeploy.engines.sglang.rungs import RUNGS
from mtpdeploy.errors import ConfigError
from mtpdeploy.inventory import flags
from mtpdeploy.inventory.document import Document, dotted
from mtpdeploy.inventory.given import Given, check_name, env_claims, given_in, own_key, unknown
from mtpdeploy.inventory.key_lines import KeyPath
from mtpdeploy.inventory.keys import LADDER_KEYS, RUNG_KEYS, SERVER_KEYS, Key
from mtpdeploy.inventory.origin import did_you_mean, in_toml, nearest, shown, wrong
from mtpdeploy.inventory.tables import server_key_claims

CAUSES = {cause.name.lower().replace("_", "-"): cause for cause in Cause}
"""The causes by the names that hosts.toml uses: `oom-kv-pool`."""


def ladder(document: Document, name: str, table: dict[str, Any]) -> Ladder:
    """
    The ladder that one table describes: what `rungs` names in that order, then own rungs not named there.

    Raises:
        ConfigError: an unknown key, rung, cause or flag; a rung without name, causes or effect; a name twice.
    """
    path = ("ladders", name)
    _known_keys(document, path, table, LADDER_KEYS)
    own = _own_rungs(document, path, table.get("rung", []))
    chosen: list[Rung] = []
    for rung in table.get("rungs", []):
        if rung not in own and rung not in RUNGS:
            raise wrong(
                document.origin(*path, "rungs"),
                f"`rungs` in `[{dotted(path)}]`: there is no rung `{shown(rung)}`",
                did_you_mean(rung, [*own, *RUNGS], "the rungs are"),
            )
        chosen.append(own.get(rung) or RUNGS[rung])
    chosen += [rung for rung in own.values() if rung not in chosen]
    if not chosen:
        raise wrong(
            document.origin(*path),
            f"`[{dotted(path)}]` has no rungs",
            'name some, as in `rungs = ["fewer-requests"]` (`mtpdeploy rungs` lists them), or add a'
            f" `[[{dotted(path)}.rung]]`",
        )
    return Ladder(name=name, rungs=tuple(chosen))


def _known_keys(document: Document, path: KeyPath, table: dict[str, Any], keys: dict[str, Key]) -> None:
    for given in given_in(document, path, table):
        if own_key(given, keys) is None:
            near = nearest(given.key, list(keys))
            raise unknown(given, near, "the keys are " + ", ".join(f"`{k}`" for k in keys))


def _own_rungs(document: Document, path: tuple[str, ...], tables: list[Any]) -> dict[str, Rung]:
    rungs: dict[str, Rung] = {}
    for index, table in enumerate(tables):
        where: KeyPath = (*path, "rung", index)
        origin = document.origin(*where)
        if not isinstance(table, dict):
            raise wrong(
                origin,
                f"`{dotted(where)}` is {in_toml(table)}, and wants to be a table",
                f"write `[[{dotted((*path, 'rung'))}]]` with the keys below it",
            )
        rung = _own_rung(document, where, table)
        if rung.name in rungs or rung.name in RUNGS:
            other = "of this ladder" if rung.name in rungs else "built in"
            raise wrong(
                document.origin(*where, "name"),
                f"`name` in `[{dotted(where)}]`: another rung `{rung.name}` is {other}",
                "give this one another name",
            )
        rungs[rung.name] = rung
    return rungs


def _own_rung(document: Document, where: KeyPath, table: dict[str, Any]) -> Rung:
    _known_keys(document, where, table, RUNG_KEYS)
    for key in ("name", "answers", "gives_up"):
        if not table.get(key):
            raise wrong(
                document.origin(*where, key),
                f"`[{dotted(where)}]` has no `{key}`",
                f"write `{RUNG_KEYS[key].example}`",
            )
    check_name(document.origin(*where, "name"), "rung", table["name"])
    changed = server_key_claims(_flags_only(document, (*where, "set"), table.get("set", {})))
    origin = document.origin(*where, "unset")
    unset = [_unset(Given(flag, "", origin, dotted(where))) for flag in table.get("unset", [])]
    env = env_claims(document, (*where, "env"), table.get("env", {}))
    for flag in unset:
        if flag in changed:
            raise wrong(
                origin, f"`[{dotted(where)}]` both sets and unsets `{flag}`", "keep it in one of the two"
            )
    if not (changed or unset or env):
        raise wrong(
            document.origin(*where),
            f"`[{dotted(where)}]` changes nothing",
            f"write `{RUNG_KEYS['set'].example}`, `unset` or `env`",
        )
    return Rung(
        name=table["name"],
        causes=frozenset(_cause(document, where, name) for name in table["answers"]),
        gives_up=table["gives_up"],
        change=partial(
            _concede,
            {name: claims[0].value for name, claims in changed.items()} | dict.fromkeys(unset),
            {name.removeprefix("env."): claims[0].value for name, claims in env.items()},
        ),
    )


def _flags_only(document: Document, path: KeyPath, table: dict[str, Any]) -> list[Given]:
    """
    What a rung sets, each insisted to be a flag: `gpus` or `ladder` are no concession.
    """
    given = list(given_in(document, path, table))
    for one in given:
        if one.key in SERVER_KEYS:
            raise wrong(
                one.origin,
                f"{one.named} is no flag of SGLang, and a rung changes nothing else",
                "take it out, or set it in the server's table",
            )
        if flags.is_fixed(one.key):
            raise _no_concession(one, one.named)
    return given


def _unset(given: Given) -> str:
    name = flags.newest_name(given.key)
    if name is None:
        near = flags.nearest_name(given.key)
        raise wrong(
            given.origin,
            f"`unset` in `[{given.table}]`: there is no flag `{shown(given.key)}`",
            f"the nearest right name is `{near}`" if near else "use SGLang's name of a flag, with `_`",
        )
    if flags.is_fixed(name):
        raise _no_concession(given, f"`unset` in `[{given.table}]`: `{shown(given.key)}`")
    return name


def _no_concession(given: Given, named: str) -> ConfigError:
    return wrong(
        given.origin,
        f"{named} says what is served and where, and no concession changes that",
        "take it out of the rung; what the server is stands in its own table",
    )


def _cause(document: Document, where: KeyPath, name: str) -> Cause:
    if name not in CAUSES:
        raise wrong(
            document.origin(*where, "answers"),
            f"`answers` in `[{dotted(where)}]`: there is no cause `{shown(name)}`",
            did_you_mean(name, list(CAUSES), "the causes are"),
        )
    return CAUSES[name]


def _concede(
    changed: dict[str, FlagValue | None],
    env: dict[str, str],
    server: ServerSpec,
    _verdict: Verdict,
    _version: str,
) -> ServerSpec | None:
    conceded = server.with_flags(**changed).with_env(**env)
    return None if conceded == server else conceded
