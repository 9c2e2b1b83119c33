import re
from pathlib import Path

import pytest

from mtpdeploy.errors import ConfigError
from mtpdeploy.inventory import Overrides, Row, in_toml, load
from mtpdeploy.inventory.keys import INNER_VARIABLES, VARIABLES
from tests.inventory.conftest import HOST, SERVER, Load, Resolve

PROJECT = """
[defaults.server]
port = 30003
context_length = 1000
[servers.s]
port = 30002
"""
USER = """
[defaults.server]
context_length = 2000
log_level = "warning"
[servers.s]
model_path = "/m"
port = 30001
[hosts.h]
address = "203.0.113.20"
"""


def told(row: Row) -> tuple[str, str, list[tuple[str, str]]]:
    """
    A row as `config explain` shows it.
    """
    return in_toml(row.value), str(row.origin), [(in_toml(c.value), str(c.origin)) for c in row.overridden]


def test_the_command_line_goes_before_the_environment_before_the_project_before_the_user(
    resolve_text: Resolve, tmp_path: Path
) -> None:
    """
    One key from four places: the order of the issue, and each origin is told.
    """
    resolved = resolve_text(
        PROJECT, user_text=USER, environ={"MTPDEPLOY_PORT": "30004"}, overrides=Overrides(port=30005)
    )
    row = next(row for row in resolved.explained.rows if row.key == "servers.s.port")
    user = tmp_path / "user" / "hosts.toml"
    expected = (
        "30005",
        "--port",
        [
            ("30004", "MTPDEPLOY_PORT"),
            ("30002", "hosts.toml:6"),
            ("30001", f"{user}:7"),
            ("30003", "hosts.toml:3"),
        ],
    )

    assert expected == told(row)
    assert 30005 == resolved.server.port


def test_each_place_wins_where_those_before_it_are_silent(resolve_text: Resolve) -> None:
    """
    Without an option the variable holds; the project's default goes before the user's.
    """
    resolved = resolve_text(PROJECT, user_text=USER, environ={"MTPDEPLOY_SET_PORT": "30004"})

    assert {"port": 30004, "context_length": 1000, "log_level": "warning", "model_path": "/m"} == (
        resolved.server.flags
    )


def test_a_server_goes_before_the_defaults_of_any_file(resolve_text: Resolve) -> None:
    """
    What the user's table says of this server beats what the project says of all of them.
    """
    resolved = resolve_text("[defaults.server]\nport = 30003\n", user_text=USER)

    assert 30001 == resolved.server.port


def test_variables_are_merged_name_by_name(resolve_text: Resolve) -> None:
    """
    A table `env` adds to the defaults and does not replace them.
    """
    text = '[defaults.server.env]\nA = "1"\nB = "1"\n' + SERVER + 'env = { B = "2" }\n' + HOST
    resolved = resolve_text(text, overrides=Overrides(sets=("env.C=a=b",)))

    assert {"A": "1", "B": "2", "C": "a=b"} == resolved.server.env


def test_spellings_of_one_flag_meet_under_the_newest_name(resolve_text: Resolve) -> None:
    """
    An old name on the command line overrides the new one in the file.
    """
    resolved = resolve_text(
        SERVER + 'mamba_radix_cache_strategy = "extra_buffer"\n' + HOST,
        overrides=Overrides(sets=("--mamba-scheduler-strategy=no_buffer",)),
    )

    assert {"model_path": "/m", "mamba_radix_cache_strategy": "no_buffer"} == resolved.server.flags


def test_every_value_is_explained(resolve_text: Resolve) -> None:
    """
    The whole table, with what is built in and what an ssh line says.
    """
    text = """
[defaults.host]
user = "nobody"
identity_file = "~/.ssh/key"
[hosts.h]
ssh = "ssh -p 19248 root@203.0.113.20"
[servers."a.b"]
model_path = "/m"
gpus = [0, 1]
secrets = ["HF_TOKEN"]
"""
    resolved = resolve_text(text, overrides=Overrides(max_attempts=3))
    ladder = resolved.explained.rows[-1]
    expected = {
        'servers."a.b".model_path': ('"/m"', "hosts.toml:8", []),
        'servers."a.b".gpus': ("[0, 1]", "hosts.toml:9", []),
        'servers."a.b".secrets': ('["HF_TOKEN"]', "hosts.toml:10", []),
        'servers."a.b".ladder': ('"default"', "built in", []),
        'servers."a.b".allow_without_mtp': ("false", "built in", []),
        "hosts.h.ssh": ('"ssh -p 19248 root@203.0.113.20"', "hosts.toml:6", []),
        "hosts.h.address": ('"203.0.113.20"', "hosts.toml:6", []),
        "hosts.h.port": ("19248", "hosts.toml:6", []),
        "hosts.h.user": ('"root"', "hosts.toml:6", [('"nobody"', "hosts.toml:3")]),
        "hosts.h.identity_file": ('"~/.ssh/key"', "hosts.toml:4", []),
        "hosts.h.work_dir": ('"~/.mtpdeploy"', "built in", []),
    }

    assert expected == {row.key: told(row) for row in resolved.explained.rows[:-1]}
    assert ("ladders.default.rungs", "built in") == (ladder.key, str(ladder.origin))
    assert 3 == resolved.explained.max_attempts


def test_a_ladder_of_the_project_replaces_that_of_the_user(resolve_text: Resolve) -> None:
    """
    Ladders are not mixed: one file's table is the whole ladder.
    """
    rung = "[[ladders.l.rung]]\nname = '{0}'\nanswers = ['oom-graphs']\ngives_up = 'x'\nset = {{ tp = 1 }}\n"
    resolved = resolve_text(
        rung.format("mine") + SERVER + HOST, user_text=rung.format("theirs"), overrides=Overrides(ladder="l")
    )

    assert ["mine"] == [rung.name for rung in resolved.ladder.rungs]


def test_config_takes_the_place_of_the_current_directory(tmp_path: Path) -> None:
    """
    `--config` goes before MTPDEPLOY_CONFIG, that one before ./hosts.toml.
    """
    for name in ("hosts.toml", "variable.toml", "option.toml"):
        (tmp_path / name).write_text(f'[hosts.{name.removesuffix(".toml")}]\naddress = "x"\n')
    environ = {"MTPDEPLOY_CONFIG": str(tmp_path / "variable.toml")}
    user = tmp_path / "user"

    assert ["option"] == list(
        load("option.toml", environ=environ, directory=tmp_path, user_directory=user).hosts
    )
    assert ["variable"] == list(load(environ=environ, directory=tmp_path, user_directory=user).hosts)
    assert ["hosts"] == list(load(environ={}, directory=tmp_path, user_directory=user).hosts)


def test_one_file_is_not_read_twice(tmp_path: Path) -> None:
    """
    In the user configuration directory itself the project's file and the user's are one.
    """
    (tmp_path / "hosts.toml").write_text(HOST)
    inventory = load(environ={}, directory=tmp_path, user_directory=tmp_path)

    assert 1 == len(inventory.documents)
    assert 1 == len(inventory.hosts["h"]["reach"])


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("MTPDEPLOY_SRVER", "MTPDEPLOY_SERVER"),
        ("MTPDEPLOY_PORTT", "MTPDEPLOY_PORT"),
        ("MTPDEPLOY_port", "MTPDEPLOY_PORT"),
        ("mtpdeploy_port", "MTPDEPLOY_PORT"),
        ("MTPDEPLOY_SET_mem_fraction_static", "MTPDEPLOY_SET_MEM_FRACTION_STATIC"),
        ("mtpdeploy_set_prt", "MTPDEPLOY_SET_PORT"),
    ],
)
def test_an_unknown_variable_is_an_error(name: str, nearest: str, load_text: Load) -> None:
    """
    A misspelled variable is refused with the nearest right name; its value is not repeated.
    """
    with pytest.raises(ConfigError) as caught:
        load_text(None, environ={name: "hunter2"})

    assert f"`{name}`: this variable means nothing to mtpdeploy" == caught.value.message
    assert f"the nearest right name is `{nearest}`" == caught.value.hint


def test_a_variable_that_is_near_none(load_text: Load) -> None:
    """
    All of them are named then.
    """
    with pytest.raises(ConfigError) as caught:
        load_text(None, environ={"MTPDEPLOY_XYZZY": "1"})

    assert all(f"`{name}`" in caught.value.hint for name in VARIABLES)
    assert "`MTPDEPLOY_SET_…`" in caught.value.hint


def test_every_variable_of_the_program_is_known(load_text: Load) -> None:
    """
    Whatever the sources name may be set, and so may others that are empty or not meant for mtpdeploy.
    """
    root = Path(__file__).parents[2]
    files = [*(root / "mtpdeploy").rglob("*.py"), *(root / "templates").iterdir()]
    named = {name for file in files for name in re.findall(r"MTPDEPLOY_[A-Z_]*[A-Z]\b", file.read_text())}
    named -= {name for name in named if name.startswith("MTPDEPLOY_SET_")}

    assert named == {*VARIABLES, *INNER_VARIABLES}
    assert load_text(None, environ={**dict.fromkeys(INNER_VARIABLES, "x"), "MTPDEPLOY_NIX": "", "HOME": "/x"})
