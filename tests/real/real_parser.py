"""
SGLang's own parser, run by its own Python: JSON in, JSON out.

`options` prints every option with what it takes; `parse` reads commands (lists of words) from standard input
and prints what the parser says to each, "" where it takes it.
"""

import argparse
import contextlib
import io
import json
import sys
from typing import Any

from sglang.srt.server_args import ServerArgs


def make_parser() -> argparse.ArgumentParser:
    """
    The parser as `launch_server` makes it.
    """
    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    return parser


def options() -> list[dict[str, Any]]:
    """
    Every option: its spellings, whether it is a switch, argparse's nargs, and its choices.
    """
    return [
        {
            "spellings": action.option_strings,
            "switch": action.nargs == 0,
            "nargs": action.nargs or "",
            "choices": sorted(map(str, action.choices)) if action.choices else None,
        }
        for action in make_parser()._actions
        if action.dest != "help"
    ]


def parse(commands: list[list[str]]) -> list[str]:
    """
    What the parser says to each command.
    """
    parser = make_parser()
    said = []
    for words in commands:
        complaint = io.StringIO()
        with contextlib.redirect_stderr(complaint):
            try:
                parser.parse_args(words)
                said.append("")
            except SystemExit:
                said.append(complaint.getvalue()[-300:])
    return said


if __name__ == "__main__":
    print(json.dumps(options() if sys.argv[1] == "options" else parse(json.load(sys.stdin))))
