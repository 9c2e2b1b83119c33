"""
ServerSpec → the command and environment of one SGLang version.
"""

from msgspec import json

from mtpdeploy.core.server import FlagValue, ServerSpec
from mtpdeploy.engines.base import Command
from mtpdeploy.engines.sglang.flag_table import (
    Flag,
    check_value,
    column_for,
    env_default,
    env_known,
    field_name,
    find,
    nearest,
    negation,
    spell,
    why_unknown,
)
from mtpdeploy.engines.sglang.versions import NEWEST, Version, parse_version
from mtpdeploy.errors import ConfigError

FIRST = ("model_path", "host", "port")
"""Flags that lead the command, so that a reader sees at once what is served where."""


def command(server: ServerSpec, python: str, version: str) -> Command:
    """
    The command for the version on the box, every flag as that version spells it.

    Raises:
        ConfigError: the version does not know a flag, or does not take its value; says what to use. Or it
            is older than all that are known.
    """
    release = parse_version(version)
    column, exact = column_for(release)
    if release is not None and release < column:
        raise ConfigError(
            f"SGLang {version} is older than all that are known here, {column} to {NEWEST}",
            hint=f"install or name SGLang {column} or newer",
        )
    lines: list[tuple[str, ...]] = [(python, "-m", "sglang.launch_server")]
    notes = [] if exact else [_inexact(version, column)]
    for name in sorted(server.flags, key=_order):
        words, note = _flag(server, name, release)
        lines += [words] if words else []
        notes += [note] if note else []
    env, env_notes = _environment(server, release)
    return Command(tuple(lines), env, (*notes, *env_notes))


def _order(name: str) -> tuple[int, str]:
    return (FIRST.index(name), "") if name in FIRST else (len(FIRST), name)


def _inexact(version: str, column: Version) -> str:
    return f"SGLang {version or 'of unknown version'} is not in the flag table; going by {column}"


def _flag(server: ServerSpec, name: str, release: Version | None) -> tuple[tuple[str, ...], str]:
    """
    The words of one flag, empty where it says nothing, and a note where it is spelled unlike its name.
    """
    flag, value = find(name), server.flags[name]
    where = f"`{name}` of server `{server.name}`"
    if flag is None:
        near = nearest(name)
        raise ConfigError(
            f"{where} is no SGLang flag",
            hint=f"did you mean {', '.join(f'`{n}`' for n in near)}?" if near else "see `mtpdeploy rungs`",
        )
    if flag.kind == "switch" and value is False:
        off = negation(flag, release)
        return ((off,), "") if off else ((), "")
    option = spell(flag, release)
    if option is None:
        raise ConfigError(f"{where}: {why_unknown(flag, release)}", hint=f"take `{name}` out of the server")
    wrong = check_value(flag, value, release)
    if wrong is not None:
        raise ConfigError(f"{where}: {wrong}", hint=f"set `{name}` in hosts.toml, or with `--set {name}=…`")
    words = _words(flag, value)
    if any(word.startswith("-") for word in words):
        # argparse would take such a value for another flag, unless it is joined on.
        return (f"{option}={words[0]}", *words[1:]), _renamed(flag, option, release)
    return (option, *words), _renamed(flag, option, release)


def _words(flag: Flag, value: FlagValue) -> tuple[str, ...]:
    if flag.kind == "switch" or value is True:
        return ()
    if flag.kind == "json" and not isinstance(value, str):
        return (json.encode(value).decode(),)
    if isinstance(value, list):
        return tuple(str(v) if not isinstance(v, dict) else json.encode(v).decode() for v in value)
    return (str(value),)


def _renamed(flag: Flag, option: str, release: Version | None) -> str:
    field = field_name(flag, release)
    spelled = option.lstrip("-").replace("-", "_")
    if flag.name in (spelled, field):
        return ""
    return f"{flag.name} is spelled {option} in SGLang {release}"


def _environment(server: ServerSpec, release: Version | None) -> tuple[dict[str, str], list[str]]:
    """
    The server's variables; one that this version does not read is left out, with a note.
    """
    env: dict[str, str] = {}
    notes: list[str] = []
    for name, value in server.env.items():
        if env_known(name, release) is False:
            notes.append(f"{name} is left out: SGLang {release} does not read it")
            continue
        if env_default(name, release) is not None and str(env_default(name, release)) == value:
            notes.append(f"{name}={value} is SGLang {release}'s default already")
        env[name] = value
    if server.gpus:
        env.setdefault("CUDA_VISIBLE_DEVICES", ",".join(str(gpu) for gpu in server.gpus))
    return env, notes
