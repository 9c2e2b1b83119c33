import json
import zipfile
from pathlib import Path

import pytest

from tests.flag_table.make_flags import flag_records, table
from tests.flag_table.parser_options import Option
from tests.flag_table.wheel_source import Release, UnresolvedError

OLD = """
import argparse
from sglang.srt.names import STRATEGIES

class ServerArgs:
    mamba_scheduler_strategy: str = "auto"

    @staticmethod
    def add_cli_args(parser: argparse.ArgumentParser):
        parsers = list(Parser.Detectors.keys())
        parser.add_argument("--tensor-parallel-size", "--tp-size", type=int, default=1, help="Ranks.")
        parser.add_argument("--mamba-scheduler-strategy", type=str, choices=STRATEGIES, help="How.")
        parser.add_argument("--reasoning-parser", type=str, choices=["auto"] + parsers)
        parser.add_argument("--disable-graph", action="store_true", help="Deprecated: it is fast now.")

class Parser:
    Detectors = {"qwen3": int, "glm45": float}
"""

NEW = """
import argparse
from typing import List, Literal, Optional
from sglang.srt.actions import DeprecatedAliasStoreAction, DeprecatedAction
from sglang.srt.arg_utils import A, Arg, NS, add_cli_args_from_dataclass
from sglang.srt.names import STRATEGIES

class ServerArgs:
    tp_size: A[int, Arg(help="Ranks.", aliases=["--tensor-parallel-size"]), NS("parallel")] = 1
    mamba_radix_cache_strategy: A[str, Arg(help="How.", choices=STRATEGIES + ["lazy"])] = "auto"
    graph_sizes: A[Optional[List[int]], "Sizes."] = None
    level: A[Literal[1, 2], "Level."] = 1
    refresh: A[Optional[bool], Arg(help="Refresh.", action=argparse.BooleanOptionalAction)] = None
    context_length: A[Optional[int], Arg(help="Tokens.", type_parser=human_readable_int)] = None
    inside: A[str, Arg(no_cli=True)] = ""

    @staticmethod
    def add_cli_args(parser):
        add_cli_args_from_dataclass(parser, ServerArgs)
        parser.add_argument(
            "--mamba-scheduler-strategy",
            dest="mamba_radix_cache_strategy",
            action=DeprecatedAliasStoreAction,
            new_flag="--mamba-radix-cache-strategy",
        )
        parser.add_argument("--disable-graph", action=DeprecatedAction, error_message="It is gone.")
"""


def wheel(folder: Path, version: str, server_args: str) -> Release:
    """
    A wheel of that version with the given parser.
    """
    path = folder / f"sglang-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("sglang/srt/server_args.py", server_args)
        archive.writestr("sglang/srt/names.py", 'STRATEGIES = ["auto", "no_buffer"]')
        archive.writestr("sglang/srt/environ.py", ENVIRON[version])
    return Release(path)


ENVIRON = {
    "0.5.9": "class Envs:\n    SGLANG_SPEC = EnvBool(False)\n    SGLANG_SIZE = EnvInt(_size())\n",
    "0.5.14": (
        "class Envs:\n    SGLANG_SIZE = EnvInt(8)\n"
        '_print_deprecated_env("SGLANG_SPEC")\n_print_deprecated_env("SGLANG_SIZ", "SGLANG_SIZE")\n'
    ),
}


def test_both_ways_of_declaring_a_flag_make_one_table(tmp_path: Path) -> None:
    """
    add_argument calls and annotated fields give the same records; a renamed field joins its old spelling.
    """
    made = json.loads(table([wheel(tmp_path, "0.5.9", OLD), wheel(tmp_path, "0.5.14", NEW)]))

    assert ["0.5.9", "0.5.14"] == made["versions"]
    assert [
        {
            "name": "context_length",
            "shapes": [{"span": [1, 1], "kind": "size"}],
            "spellings": [{"option": "--context-length", "spans": [[1, 1]]}],
        },
        {
            "name": "disable_graph",
            "shapes": [{"span": [0, 0], "kind": "switch"}],
            "spellings": [{"option": "--disable-graph", "spans": [[0, 0]], "deprecated": [[0, 0]]}],
        },
        {
            "name": "graph_sizes",
            "shapes": [{"span": [1, 1], "kind": "int", "nargs": "+"}],
            "spellings": [{"option": "--graph-sizes", "spans": [[1, 1]]}],
        },
        {
            "name": "level",
            "shapes": [{"span": [1, 1], "kind": "int", "choices": [1, 2]}],
            "spellings": [{"option": "--level", "spans": [[1, 1]]}],
        },
        {
            "name": "mamba_radix_cache_strategy",
            "shapes": [
                {"span": [0, 0], "kind": "str", "choices": ["auto", "no_buffer"]},
                {"span": [1, 1], "kind": "str", "choices": ["auto", "no_buffer", "lazy"]},
            ],
            "spellings": [
                {"option": "--mamba-radix-cache-strategy", "spans": [[1, 1]]},
                {"option": "--mamba-scheduler-strategy", "spans": [[0, 1]], "deprecated": [[1, 1]]},
            ],
            "fields": [{"name": "mamba_scheduler_strategy", "spans": [[0, 0]]}],
        },
        {
            "name": "reasoning_parser",
            "shapes": [{"span": [0, 0], "kind": "str", "choices": ["auto", "qwen3", "glm45"]}],
            "spellings": [{"option": "--reasoning-parser", "spans": [[0, 0]]}],
        },
        {
            "name": "refresh",
            "shapes": [{"span": [1, 1], "kind": "switch"}],
            "spellings": [{"option": "--refresh", "spans": [[1, 1]]}],
            "negations": [{"option": "--no-refresh", "spans": [[1, 1]]}],
        },
        {
            "name": "tp_size",
            "shapes": [{"span": [0, 1], "kind": "int"}],
            "spellings": [
                {"option": "--tp-size", "spans": [[0, 1]]},
                {"option": "--tensor-parallel-size", "spans": [[0, 1]]},
            ],
            "fields": [{"name": "tensor_parallel_size", "spans": [[0, 0]]}],
        },
    ] == made["flags"]


def test_a_variable_that_is_only_mentioned_as_gone_is_not_read(tmp_path: Path) -> None:
    """
    A name forwarded to a new one is read; a name that only gets a warning is not.
    """
    made = json.loads(table([wheel(tmp_path, "0.5.9", OLD), wheel(tmp_path, "0.5.14", NEW)]))

    assert [
        {"name": "SGLANG_SIZ", "spans": [[1, 1]]},
        {
            "name": "SGLANG_SIZE",
            "spans": [[0, 1]],
            "kind": "int",
            "defaults": [{"span": [1, 1], "value": 8}],
        },
        {
            "name": "SGLANG_SPEC",
            "spans": [[0, 0]],
            "kind": "bool",
            "defaults": [{"span": [0, 0], "value": False}],
        },
    ] == made["variables"]


def test_a_parser_that_cannot_be_read_stops_the_generator(tmp_path: Path) -> None:
    """
    Nothing unknown passes in silence: a statement the reader does not know is an error.
    """
    strange = OLD.replace(
        "parsers = list", "for name in NAMES: parser.add_argument(name)\n        parsers = list"
    )

    with pytest.raises(UnresolvedError, match="for name in NAMES"):
        table([wheel(tmp_path, "0.5.9", strange)])


def test_two_fields_of_one_release_are_never_one_flag() -> None:
    """
    An option that moves to a field beside its old one would mix two flags up; that is an error.
    """
    before = [Option("a", ("--a",), "int"), Option("b", ("--b",), "int")]
    after = [Option("a", ("--a", "--b"), "int")]

    with pytest.raises(ValueError, match="one release stores it in two fields"):
        flag_records([before, after])
