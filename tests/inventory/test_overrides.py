import pytest

from mtpdeploy.errors import ConfigError
from mtpdeploy.inventory import Overrides
from tests.inventory.conftest import HOST, SERVER, Resolve

WHOLE_NUMBER = "give a whole number from 1"
ONE = "keep one of the two"


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("mem_fraction_static=.9", "mem_fraction_static", 0.9),
        ("--mem-fraction-static=0.9", "mem_fraction_static", 0.9),
        ("max_running_requests=16", "max_running_requests", 16),
        ("enable_hierarchical_cache=false", "enable_hierarchical_cache", False),
        ("cuda_graph_bs=1,2", "cuda_graph_bs_decode", [1, 2]),
        ("attention_backend=nsa", "attention_backend", "nsa"),
        ("model_path=/a=b c", "model_path", "/a=b c"),
    ],
)
def test_a_text_becomes_a_value_of_the_flag(
    text: str, key: str, value: object, resolve_text: Resolve
) -> None:
    """
    `--set` takes SGLang's spelling with `_` or `-`; what stands behind the first `=` is the value.
    """
    resolved = resolve_text(SERVER + HOST, overrides=Overrides(sets=(text,)))

    assert value == resolved.server.flags[key]


def test_own_keys_can_be_set_too(resolve_text: Resolve) -> None:
    """
    The keys that are mtpdeploy's own take the same path: lists are written with commas.
    """
    sets = ("gpus=0, 1", "secrets=HF_TOKEN", "allow_without_mtp=true", "ladder=default")
    server = resolve_text(SERVER + HOST, overrides=Overrides(sets=sets)).server

    assert ((0, 1), ("HF_TOKEN",), True, "default") == (
        server.gpus,
        server.secrets,
        server.allow_without_mtp,
        server.ladder,
    )


def test_variables_reach_the_same_keys(resolve_text: Resolve) -> None:
    """
    The variables of the environment that stand for a key of the server, for the host and the limit.
    """
    resolved = resolve_text(
        SERVER + HOST + '[servers.t]\nmodel_path = "/t"\n',
        environ={
            "MTPDEPLOY_SERVER": "t",
            "MTPDEPLOY_ON": "root@198.51.100.7:22",
            "MTPDEPLOY_GPU": "2,3",
            "MTPDEPLOY_LADDER": "default",
            "MTPDEPLOY_MAX_ATTEMPTS": "4",
            "MTPDEPLOY_SET_MEM_FRACTION_STATIC": "0.7",
        },
    )

    assert {"model_path": "/t", "mem_fraction_static": 0.7} == resolved.server.flags
    assert ((2, 3), "198.51.100.7", 4) == (
        resolved.server.gpus,
        resolved.host.address,
        resolved.explained.max_attempts,
    )


@pytest.mark.parametrize(
    ("overrides", "message", "hint"),
    [
        (
            Overrides(sets=("port",)),
            "`--set`: `port` gives no value",
            "write `--set key=value`, for example `--set mem_fraction_static=0.85`",
        ),
        (
            Overrides(sets=("=1",)),
            "`--set`: `` gives no value",
            "write `--set key=value`, for example `--set mem_fraction_static=0.85`",
        ),
        (
            Overrides(sets=("port=x",)),
            '`--set port`: `port` wants a whole number from 1 to 65535, not "x"',
            "write `port = 30000`",
        ),
        (
            Overrides(sets=("prt=1",)),
            "`--set prt`: a server has no key `prt`",
            "the nearest right name is `port`",
        ),
        (
            Overrides(sets=("mem_fraction_static=nan",)),
            "`--set mem_fraction_static`: `mem_fraction_static` cannot be nan",
            "write a value as in `mem_fraction_static = 0.8`",
        ),
        (
            Overrides(sets=("mem_fraction_static=1.0",)),
            "`--set mem_fraction_static`: `mem_fraction_static` wants a number above 0 and below 1, not 1.0",
            "write a value as in `mem_fraction_static = 0.8`",
        ),
        (
            Overrides(sets=("env.EUID=0",)),
            "`--set env.EUID`: `EUID` is the shell's own variable, and cannot be set",
            "take it out",
        ),
        (
            Overrides(sets=("env.A=" + "x" * 131070,)),
            "`--set env.A`: `A` is too long for a variable: Linux takes 131071 bytes, name and all",
            "put it into a file on the box and name the file",
        ),
        (
            Overrides(sets=("port=1", "port=2")),
            "`--set port`: `port` is given twice: also by `--set port`",
            ONE,
        ),
        (
            Overrides(sets=("port=1",), port=3),
            "`--port`: `port` is given twice: also by `--set port`",
            ONE,
        ),
        (
            Overrides(sets=("env=x",)),
            "`--set env`: `env` wants the name of a variable",
            "write `--set env.NAME=value`",
        ),
        (
            Overrides(sets=("env.HF_TOKEN=hunter2",)),
            "`--set env.HF_TOKEN`: `HF_TOKEN` is a secret, and a secret's value is not written down here",
            'take it out and write `secrets = ["HF_TOKEN"]` in the server\'s table: names only',
        ),
        (
            Overrides(sets=("env.A-B=1",)),
            "`--set env.A-B`: `A-B` is no name of a variable",
            "use letters, digits and `_`, the first no digit",
        ),
        (
            Overrides(sets=("env.A=1", "env.A=2")),
            "`--set env.A`: `env.A` is given twice: also by `--set env.A`",
            ONE,
        ),
        (
            Overrides(sets=("api_key=hunter2",)),
            "`--set api_key`: `api_key` is a secret, and a secret's value is not written down here",
            "leave it out: the server's port is reached through the SSH tunnel only",
        ),
        (
            Overrides(sets=("gpus=0,x",)),
            '`--set gpus`: `gpus` is [0, "x"], and wants a list of GPU indices from 0, each once',
            "write `gpus = [0, 1]`",
        ),
        (
            Overrides(gpus=(0, 0)),
            "`--gpu`: `gpus` is [0, 0], and wants a list of GPU indices from 0, each once",
            "write `gpus = [0, 1]`",
        ),
        (
            Overrides(sets=("allow_without_mtp=maybe",)),
            '`--set allow_without_mtp`: `allow_without_mtp` is "maybe", and wants true or false',
            "write `allow_without_mtp = true`",
        ),
        (
            Overrides(sets=("model_path=\udcff",)),
            "`--set model_path`: the value is no UTF-8 text",
            "give it in UTF-8, without NUL",
        ),
        (Overrides(max_attempts=0), "`--max-attempts`: `0` is no number of attempts", WHOLE_NUMBER),
    ],
    ids=lambda value: str(value)[:60] if isinstance(value, Overrides) else "",
)
def test_a_wrong_option_is_one_error(
    overrides: Overrides, message: str, hint: str, resolve_text: Resolve
) -> None:
    """
    Each wrong option is named as it was given, and the hint says how to write it.
    """
    with pytest.raises(ConfigError) as caught:
        resolve_text(SERVER + HOST, overrides=overrides)

    assert (message, hint) == (caught.value.message, caught.value.hint)


@pytest.mark.parametrize(
    ("environ", "message", "hint"),
    [
        (
            {"MTPDEPLOY_PORT": "x"},
            '`MTPDEPLOY_PORT`: `port` wants a whole number from 1 to 65535, not "x"',
            "write `port = 30000`",
        ),
        (
            {"MTPDEPLOY_SET_PRT": "1"},
            "`MTPDEPLOY_SET_PRT`: a server has no key `prt`",
            "the nearest right name is `port`",
        ),
        (
            {"MTPDEPLOY_SET_PORT": "1", "MTPDEPLOY_PORT": "2"},
            "`MTPDEPLOY_SET_PORT`: `port` is given twice: also by `MTPDEPLOY_PORT`",
            ONE,
        ),
        (
            {
                "MTPDEPLOY_SET_MAMBA_SCHEDULER_STRATEGY": "auto",
                "MTPDEPLOY_SET_MAMBA_RADIX_CACHE_STRATEGY": "auto",
            },
            (
                "`MTPDEPLOY_SET_MAMBA_SCHEDULER_STRATEGY`: `mamba_radix_cache_strategy` is given twice:"
                " also by `MTPDEPLOY_SET_MAMBA_RADIX_CACHE_STRATEGY`"
            ),
            ONE,
        ),
        (
            {"MTPDEPLOY_MAX_ATTEMPTS": "x"},
            "`MTPDEPLOY_MAX_ATTEMPTS`: `x` is no number of attempts",
            WHOLE_NUMBER,
        ),
        (
            {"MTPDEPLOY_MAX_ATTEMPTS": "9" * 5000},
            f"`MTPDEPLOY_MAX_ATTEMPTS`: `{'9' * 79}…` is no number of attempts",
            WHOLE_NUMBER,
        ),
        (
            {"MTPDEPLOY_ON": "x\udcff"},
            "`MTPDEPLOY_ON`: the value is no UTF-8 text",
            "give it in UTF-8, without NUL",
        ),
        (
            {"MTPDEPLOY_SERVER": "t"},
            "`MTPDEPLOY_SERVER`: there is no server `t` in `hosts.toml`",
            "the servers are: `s`",
        ),
        (
            {"MTPDEPLOY_LADDER": "defalt"},
            "`MTPDEPLOY_LADDER`: there is no ladder `defalt`",
            "the nearest right name is `default`",
        ),
        (
            {"MTPDEPLOY_CONFIG": "/nonexistent/hosts.toml"},
            "there is no file `/nonexistent/hosts.toml`",
            "check `--config` or MTPDEPLOY_CONFIG, or leave both out to read ./hosts.toml",
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_wrong_variable_is_one_error(
    environ: dict[str, str], message: str, hint: str, resolve_text: Resolve
) -> None:
    """
    A variable whose value cannot be is named as the place of the error.
    """
    with pytest.raises(ConfigError) as caught:
        resolve_text(SERVER + HOST, environ=environ)

    assert (message, hint) == (caught.value.message, caught.value.hint)
