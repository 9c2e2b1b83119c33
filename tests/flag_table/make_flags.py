"""
Write mtpdeploy/engines/sglang/flags.json from the released wheels of SGLang.

    pip download --no-deps --only-binary=:all: --python-version 3.11 \
        --platform manylinux_2_34_x86_64 --platform any -d WHEELS sglang==0.5.23    # one for each release
    python -m tests.flag_table.make_flags WHEELS                                    # in the repository's root

WHEELS is a folder with one wheel for each release that the table is to know; nothing of SGLang is imported or
run. The output depends on the wheels alone, one record a line. In it a version is the index of a column,
`[first, last]` a span of columns, both ends included. Options that one release's parser stores into the same
field, and fields that one option fills in different releases, are one record under the newest field name.
"""

import argparse
import itertools
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.flag_table.environment import Variable, variables_of
from tests.flag_table.parser_options import Option, options_of
from tests.flag_table.wheel_source import Release

OUTPUT = Path(__file__).parents[2] / "mtpdeploy" / "engines" / "sglang" / "flags.json"

RENAMED_WITHOUT_ALIAS = {
    # srt/server_args.py, 0.5.16: MegaMOE besides DeepEP, under a new name; the old one is gone at once
    "enable_deepep_waterfill": "enable_waterfill",
}

INSTEAD = {
    # what took the place of a flag without meaning the same; srt/server_args.py of the release without it
    "collect_tokens_histogram": "--enable-metrics",
    "elastic_ep_rejoin": "--elastic-ep-join-mode recover",
    "enable_expert_distribution_metrics": "--expert-balancedness-report-mode",
    "enable_flashinfer_allreduce_fusion": "--flashinfer-allreduce-fusion-backend",
    "enable_piecewise_cuda_graph": "--cuda-graph-backend-prefill",
    "keep_mm_feature_on_device": "--mm-feature-transport cuda_ipc",
    "multi_item_scoring_delimiter": "--enable-mis",
    "optimistic_prefill_retries": "--optimistic-prefill-attempts",
    "speculative_ngram_max_match_window_size": "--speculative-ngram-max-trie-depth",
}

Columns = dict[int, list[Option]]


def main() -> None:
    """
    Read the wheels of the folder named on the command line and write the table.
    """
    parser = argparse.ArgumentParser(description="Write flags.json from SGLang's wheels")
    parser.add_argument("wheels", type=Path, help="a folder with one wheel for each release")
    releases = sorted(map(Release, parser.parse_args().wheels.glob("sglang-*.whl")), key=_order)
    OUTPUT.write_text(table(releases), encoding="utf-8")


def table(releases: list[Release]) -> str:
    """
    The whole table as JSON text, one record a line.
    """
    flags = flag_records([options_of(release) for release in releases])
    variables = variable_records([variables_of(release) for release in releases])
    versions = json.dumps([release.version for release in releases])
    return f'{{"versions": {versions},\n"flags": {_lines(flags)},\n"variables": {_lines(variables)}}}\n'


def flag_records(parsers: list[list[Option]]) -> list[dict[str, Any]]:
    """
    One record for each flag, by name. Raises ValueError where two flags of one release got mixed up.
    """
    root = _same_flag(parsers)
    groups: dict[str, Columns] = {}
    for column, options in enumerate(parsers):
        for option in options:
            if not option.refused:
                groups.setdefault(root(option.field), {}).setdefault(column, []).append(option)
    return sorted((_flag(group) for group in groups.values()), key=lambda record: str(record["name"]))


def _same_flag(parsers: list[list[Option]]) -> Any:
    parent: dict[str, str] = {}

    def root(name: str) -> str:
        while parent.setdefault(name, name) != name:
            name = parent[name]
        return name

    for option in itertools.chain.from_iterable(parsers):
        for spelling in option.options:
            parent[root(spelling)] = root(option.field)
    for old, new in RENAMED_WITHOUT_ALIAS.items():
        parent[root(old)] = root(new)
    return root


def _flag(columns: Columns) -> dict[str, Any]:
    newest = columns[max(columns)]
    name = newest[0].field
    if any(len({option.field for option in options}) > 1 for options in columns.values()):
        raise ValueError(f"{name}: one release stores it in two fields: {columns}")
    record: dict[str, Any] = {"name": name, "shapes": _shapes(columns), "spellings": _spellings(columns)}
    if negations := _negations(columns):
        record["negations"] = negations
    fields = {column: options[0].field for column, options in columns.items()}
    if older := sorted(set(fields.values()) - {name}):
        record["fields"] = [
            {"name": field, "spans": _spans(c for c, f in fields.items() if f == field)} for field in older
        ]
    own = {spelling for options in columns.values() for option in options for spelling in option.options}
    told = [o.instead for c in sorted(columns) for o in columns[c] if o.instead and o.instead not in own]
    if instead := INSTEAD.get(name) or (told[-1] if told else ""):
        record["instead"] = instead
    return record


def _shapes(columns: Columns) -> list[dict[str, Any]]:
    shapes: list[dict[str, Any]] = []
    for column in sorted(columns):
        option = min(columns[column], key=lambda o: o.deprecated)
        shape: dict[str, Any] = {"kind": option.kind}
        if option.nargs:
            shape["nargs"] = option.nargs
        if option.choices is not None:
            shape["choices"] = list(option.choices)
        if (
            shapes
            and shapes[-1] == {"span": shapes[-1]["span"], **shape}
            and shapes[-1]["span"][1] == column - 1
        ):
            shapes[-1]["span"][1] = column
        else:
            shapes.append({"span": [column, column], **shape})
    return shapes


def _spellings(columns: Columns) -> list[dict[str, Any]]:
    accepted: dict[str, set[int]] = {}
    deprecated: dict[str, set[int]] = {}
    for column in sorted(columns, reverse=True):
        for option in sorted(columns[column], key=lambda o: o.deprecated):
            for spelling in option.options:
                accepted.setdefault(spelling, set()).add(column)
                if option.deprecated:
                    deprecated.setdefault(spelling, set()).add(column)
    return [
        {"option": spelling, "spans": _spans(at)}
        | ({"deprecated": _spans(deprecated[spelling])} if spelling in deprecated else {})
        for spelling, at in accepted.items()
    ]


def _negations(columns: Columns) -> list[dict[str, Any]]:
    found: dict[str, set[int]] = {}
    for column, options in columns.items():
        for negation in itertools.chain.from_iterable(option.negations for option in options):
            found.setdefault(negation, set()).add(column)
    return [{"option": negation, "spans": _spans(at)} for negation, at in found.items()]


def variable_records(releases: list[dict[str, Variable]]) -> list[dict[str, Any]]:
    """
    One record for each environment variable, by name.
    """
    records = []
    for name in sorted(set().union(*releases)):
        at = {column: variables[name] for column, variables in enumerate(releases) if name in variables}
        record: dict[str, Any] = {"name": name, "spans": _spans(at)}
        kind = at[max(at)].kind
        if kind:
            record["kind"] = kind
        if defaults := _defaults(at):
            record["defaults"] = defaults
        records.append(record)
    return records


def _defaults(at: dict[int, Variable]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for column in sorted(at):
        default = at[column].default
        if default is None:
            continue
        last = found[-1] if found else None
        if last and last["span"][1] == column - 1 and repr(last["value"]) == repr(default):
            last["span"][1] = column
        else:
            found.append({"span": [column, column], "value": default})
    return found


def _spans(columns: Iterable[int]) -> list[list[int]]:
    spans: list[list[int]] = []
    for column in sorted(columns):
        if spans and spans[-1][1] == column - 1:
            spans[-1][1] = column
        else:
            spans.append([column, column])
    return spans


def _lines(records: list[dict[str, Any]]) -> str:
    return "[\n" + ",\n".join(json.dumps(record, separators=(",", ":")) for record in records) + "\n]"


def _order(release: Release) -> tuple[list[int], int]:
    number, _, post = release.version.partition(".post")
    return [int(part) for part in re.findall(r"\d+", number)], int(post or 0)


if __name__ == "__main__":
    main()
