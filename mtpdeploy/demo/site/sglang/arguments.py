"""
SGLang's command line for one release: the real flags, parsed as argparse parses them there.

The flags come from `flags.json` beside the package, where the box's home puts the table of every release.
Fields go by their newest name, whatever a release calls the option.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence

from .release import release

SUFFIXES = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
SUFFIXES.update({"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40})


def size(text: str) -> int:
    """A whole number with an optional suffix (8k, 2Mi), as `human_readable_int` reads it."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(Ki|Mi|Gi|Ti|k|M|G|T)?", text)
    if not found:
        raise ValueError(text)
    return int(float(found.group(1)) * SUFFIXES.get(found.group(2) or "", 1))


KINDS: Dict[str, Callable[[str], Any]] = {"int": int, "size": size, "float": float, "str": str, "json": str}


def _table() -> Dict[str, Any]:
    path = Path(__file__).parent.parent / "flags.json"
    return dict(json.loads(path.read_text(encoding="utf-8")))


def _column(table: Dict[str, Any], version: str) -> int:
    """The column of this release, or of the newest one before it."""
    column = 0
    for number, name in enumerate(table["versions"]):
        if release(name) <= release(version):
            column = number
    return column


def _inside(column: int, spans: Sequence[Sequence[int]]) -> bool:
    return any(first <= column <= last for first, last in spans)


def _options(row: Dict[str, Any], column: int) -> List[str]:
    return [spelling["option"] for spelling in row["spellings"] if _inside(column, spelling["spans"])]


def _shape(row: Dict[str, Any], column: int) -> Optional[Dict[str, Any]]:
    return next((shape for shape in row["shapes"] if _inside(column, [shape["span"]])), None)


def parser(version: str) -> argparse.ArgumentParser:
    """An argparse parser with the flags of this release; prefixes are accepted, as in SGLang."""
    program = "launch_server.py" if release(version) < (0, 5, 18) else "sglang serve"
    built = argparse.ArgumentParser(prog=program)
    table = _table()
    column = _column(table, version)
    for row in table["flags"]:
        options, shape = _options(row, column), _shape(row, column)
        if not options or shape is None:
            continue
        if shape["kind"] == "switch":
            built.add_argument(*options, dest=row["name"], action="store_true")
            continue
        more = {key: shape[key] for key in ("nargs", "choices") if shape.get(key)}
        required = row["name"] == "model_path"
        kind = KINDS[shape["kind"]]
        built.add_argument(*options, dest=row["name"], type=kind, required=required, **more)
    return built


def parse(version: str, argv: Sequence[str]) -> Dict[str, Any]:
    """Parsed flags by field name; leaves with status 2 and the usage text as argparse does."""
    return vars(parser(version).parse_args(list(argv)))
