"""
The hosts.toml at the top level: example and reference.
"""

import re
from pathlib import Path

import pytest

from mtpdeploy.core.machine import Host
from mtpdeploy.core.server import Mtp
from mtpdeploy.inventory import Resolved, load, resolve
from mtpdeploy.inventory.keys import (
    DEFAULTS,
    HOST_KEYS,
    LADDER_KEYS,
    QUIRKS,
    RUNG_KEYS,
    SERVER_KEYS,
    TABLES,
    VARIABLES,
)
from mtpdeploy.remote.address import parse_address

FILE = Path(__file__).parents[2] / "hosts.toml"
TEXT = FILE.read_text()
UNCOMMENTED = re.sub(r"^# (?=\[|[a-z_]+ = )", "", TEXT, flags=re.MULTILINE)
"""The file with every commented-out table and key put to use."""


def resolved_from(text: str, folder: Path, on: str | None = None) -> Resolved:
    """
    What `mtpdeploy up` would make of a text.
    """
    (folder / "hosts.toml").write_text(text)
    inventory = load(environ={}, directory=folder, user_directory=folder / "user")
    return resolve(inventory, on=on, read_address=parse_address)


def test_is_the_seed_case_on_a_rented_box(tmp_path: Path) -> None:
    """
    As it is, the file brings up Qwen3.6-27B with MTP on the host of the documentation range.
    """
    server, host, ladder, _ = resolved_from(TEXT, tmp_path)

    assert "qwen3.6-27b" == server.name
    assert Mtp(algorithm="EAGLE", num_steps=3, eagle_topk=1, num_draft_tokens=4) == server.mtp
    assert {
        "mem_fraction_static": 0.80,
        "attention_backend": "triton",
        "mamba_radix_cache_strategy": "extra_buffer",
        "max_running_requests": 512,
        "enable_hierarchical_cache": True,
        "hicache_size": 200,
    }.items() <= server.flags.items()
    assert {"LD_LIBRARY_PATH", "SGLANG_ENABLE_SPEC_V2"} == set(server.env)
    assert Host(
        name="rented",
        address="203.0.113.20",
        port=19248,
        user="root",
        forwards=("8080:localhost:8080",),
        price_per_hour=1.89,
    ) == (host)
    assert "default" == ladder.name


@pytest.mark.parametrize("on", ["rented", "by-address", "by-alias"])
def test_what_is_commented_out_works_when_it_is_put_to_use(on: str, tmp_path: Path) -> None:
    """
    Every table and key behind a `#` is right as it stands: each way to reach a host can be chosen.
    """
    resolved = resolved_from(UNCOMMENTED, tmp_path, on=on)

    assert UNCOMMENTED != TEXT
    assert on == resolved.host.name
    assert ("HF_TOKEN",) == resolved.server.secrets


def test_has_a_ladder_of_its_own(tmp_path: Path) -> None:
    """
    The example ladder loads: own rungs among built-in ones.
    """
    (tmp_path / "hosts.toml").write_text(TEXT)
    ladder = load(environ={}, directory=tmp_path, user_directory=tmp_path / "user").ladders["short"].value

    assert [
        "three-quarters",
        "fewer-requests",
        "no-hierarchical-cache",
        "eight-requests",
        "plain-triton",
    ] == [rung.name for rung in ladder.rungs]


@pytest.mark.parametrize("key", sorted({*HOST_KEYS, *SERVER_KEYS, *LADDER_KEYS, *RUNG_KEYS}))
def test_shows_every_key(key: str) -> None:
    """
    The example is the reference: a key that is not shown there would be found by nobody.
    """
    assert re.search(rf"^(# )?(\[+.*\.)?{key}(\]+| =)", UNCOMMENTED, flags=re.MULTILINE)


@pytest.mark.parametrize("word", [*QUIRKS, *TABLES, *(f"[defaults.{name}]" for name in DEFAULTS)])
def test_names_every_quirk_and_table(word: str) -> None:
    """
    Words that a user cannot guess stand in the file.
    """
    assert word in TEXT


@pytest.mark.parametrize("variable", sorted(set(VARIABLES) - {"MTPDEPLOY_STATE_DIR"}))
def test_names_every_variable(variable: str) -> None:
    """
    The variables that change what runs where are told where the precedence is.
    """
    assert variable in TEXT
