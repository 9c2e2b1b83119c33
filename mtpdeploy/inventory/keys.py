"""
The keys of hosts.toml that are mtpdeploy's own, what each wants, and the variables that are read.

Every other key of a server is a flag of SGLang: see `flags.py`.
"""

import ipaddress
import math
import re
from collections.abc import Callable
from typing import Any

from msgspec import Struct

ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""A name that a POSIX shell can export (POSIX.1-2024, XBD 8.1; small letters too)."""

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""Names of hosts, servers, ladders and rungs. They become parts of file names on the box, where 255 bytes
are the limit (Linux, NAME_MAX), with a time and a number beside them."""

LARGEST_PORT = 65535
"""TCP has 16 bits for a port (RFC 9293, section 3.1)."""

QUIRKS = {
    "no-sftp": "the box offers no SFTP",
    "no-systemd": "no systemd runs on the box",
    "host-pids": "nvidia-smi names processes by the pids of another namespace",
    "ephemeral-root": "what lies outside the mounted volume is lost when the box stops",
}
"""How boxes of providers differ (house, section 3)."""

DEMO = "demo"
"""The name of the built-in box; no host of hosts.toml may be called so."""


class Key(Struct, frozen=True):
    """
    One key: what it wants in words, whether a value is that, and how a right one is written.
    """

    wants: str
    holds: Callable[[Any], bool]
    example: str


def is_text(value: object) -> bool:
    """
    A text with something in it that fits on one line.
    """
    return isinstance(value, str) and bool(value.strip()) and value.isprintable()


def is_word(value: object) -> bool:
    """
    A text without space that ssh cannot take for an option.
    """
    return is_text(value) and not re.search(r"\s", str(value)) and not str(value).startswith("-")


def is_address(value: object) -> bool:
    """
    A host name or an IP address, without user, port or brackets.
    """
    if not (is_word(value) and re.fullmatch(r"[\w:][\w.:%-]*", str(value))):
        return False
    try:
        return ":" not in str(value) or bool(ipaddress.IPv6Address(value))
    except ValueError:
        return False


def is_port(value: object) -> bool:
    """
    A TCP port.
    """
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= LARGEST_PORT


def is_folder(value: object) -> bool:
    """
    A path on the box that means the same from wherever it is read.
    """
    return is_text(value) and str(value).startswith(("/", "~/")) and "/../" not in f"{value}/"


def is_price(value: object) -> bool:
    """
    A number that is not negative.
    """
    return (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and math.isfinite(value)
        and value >= 0
    )


def is_gpus(value: object) -> bool:
    """
    Indices of GPUs, each once.
    """
    return (
        isinstance(value, list)
        and all(isinstance(i, int) and not isinstance(i, bool) and i >= 0 for i in value)
        and len(set(value)) == len(value)
    )


def is_texts(value: object) -> bool:
    """
    A list of texts, each once.
    """
    return isinstance(value, list) and all(is_text(v) for v in value) and len(set(value)) == len(value)


def is_env_names(value: object) -> bool:
    """
    Names of variables, each once.
    """
    return is_texts(value) and isinstance(value, list) and all(ENV_NAME.fullmatch(v) for v in value)


def is_name(value: object) -> bool:
    """
    A name of a server, a host, a ladder or a rung.
    """
    return isinstance(value, str) and bool(NAME.fullmatch(value))


def is_table(value: object) -> bool:
    """
    A table.
    """
    return isinstance(value, dict)


HOST_KEYS = {
    "ssh": Key("the line to paste as one text", is_text, 'ssh = "ssh -p 19248 root@203.0.113.20"'),
    "address": Key("a name or IP address alone", is_address, 'address = "203.0.113.20"'),
    "alias": Key("one name of the OpenSSH configuration", is_word, 'alias = "gpu-box"'),
    "port": Key(f"a whole number from 1 to {LARGEST_PORT}", is_port, "port = 19248"),
    "user": Key("one name without space", is_word, 'user = "root"'),
    "identity_file": Key("the path of a private key here", is_text, 'identity_file = "~/.ssh/id_ed25519"'),
    "proxy_jump": Key("hosts as for `ssh -J`", is_word, 'proxy_jump = "me@bastion.example.org"'),
    "work_dir": Key("a path from `/` or `~/` on the box", is_folder, 'work_dir = "/workspace/.mtpdeploy"'),
    "python": Key("the path of a Python on the box", is_text, 'python = "/venv/bin/python"'),
    "env": Key("a table of variables", is_table, 'env = { LD_LIBRARY_PATH = "/usr/local/cuda/lib64" }'),
    "price_per_hour": Key("a number, not negative", is_price, "price_per_hour = 1.89"),
    "quirks": Key("a list of names", is_texts, 'quirks = ["no-sftp"]'),
}
"""`[hosts.NAME]` and `[defaults.host]`."""

REACHES = ("ssh", "address", "alias")
"""The three ways to say where a host is; a table uses one."""

SERVER_KEYS = {
    "env": Key("a table of variables", is_table, 'env = { SGLANG_ENABLE_SPEC_V2 = "1" }'),
    "secrets": Key("a list of names of variables", is_env_names, 'secrets = ["HF_TOKEN"]'),
    "ladder": Key("the name of a ladder", is_name, 'ladder = "default"'),
    "allow_without_mtp": Key("true or false", lambda v: isinstance(v, bool), "allow_without_mtp = true"),
    "gpus": Key("a list of GPU indices from 0, each once", is_gpus, "gpus = [0, 1]"),
}
"""The keys of `[servers.NAME]` and `[defaults.server]` that are not flags of SGLang."""

RUNG_KEYS = {
    "name": Key("a name of letters, digits, `.`, `_` and `-`", is_name, 'name = "half-the-requests"'),
    "answers": Key("a list of causes", is_texts, 'answers = ["oom-kv-pool"]'),
    "set": Key("a table of flags", is_table, "set = { max_running_requests = 64 }"),
    "unset": Key("a list of flags", is_texts, 'unset = ["hicache_size"]'),
    "env": Key("a table of variables", is_table, 'env = { SGLANG_ENABLE_SPEC_V2 = "1" }'),
    "gives_up": Key("a few words", is_text, 'gives_up = "half of the concurrency"'),
}
"""`[[ladders.NAME.rung]]`."""

LADDER_KEYS = {
    "rungs": Key("a list of names of rungs, each once", is_texts, 'rungs = ["fewer-requests"]'),
    "rung": Key("tables", lambda v: isinstance(v, list), "[[ladders.NAME.rung]]"),
}
"""`[ladders.NAME]`."""

TABLES = ("defaults", "hosts", "servers", "ladders")
"""The top of hosts.toml."""

DEFAULTS = ("host", "server")
"""`[defaults]`."""

VARIABLES = {
    "MTPDEPLOY_CONFIG": "the hosts.toml to read, as --config",
    "MTPDEPLOY_ON": "the host, as --on",
    "MTPDEPLOY_SERVER": "the server",
    "MTPDEPLOY_PORT": "the server's port on the box, as --port",
    "MTPDEPLOY_GPU": "the GPUs, as --gpu: 0,1",
    "MTPDEPLOY_LADDER": "the ladder, as --ladder",
    "MTPDEPLOY_MAX_ATTEMPTS": "how many attempts at most, as --max-attempts",
    "MTPDEPLOY_STATE_DIR": "where runs and events are kept here",
}
"""The variables that mtpdeploy reads, and what each says."""

SET_PREFIX = "MTPDEPLOY_SET_"
"""What stands before a flag's name in capital letters: MTPDEPLOY_SET_MEM_FRACTION_STATIC=0.85."""

INNER_VARIABLES = (
    "MTPDEPLOY_RUN",
    "MTPDEPLOY_PROC",
    "MTPDEPLOY_CGROUP",
    "MTPDEPLOY_KMSG",
    "MTPDEPLOY_MEMINFO",
    "MTPDEPLOY_DEMO",
    "MTPDEPLOY_DEMO_HOME",
    "MTPDEPLOY_DEMO_PARENT",
    "MTPDEPLOY_DEMO_START",
)
"""Set by mtpdeploy itself for servers, box programs and the demo box; none is a setting."""
