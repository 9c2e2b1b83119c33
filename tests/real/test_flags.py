"""
The table of flags, and every command that a ladder can render, held to the real parser of 0.5.23.
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from mtpdeploy.core.diagnosis import Cause
from mtpdeploy.core.server import FlagValue, ServerSpec
from mtpdeploy.engines.sglang.flag_table import _table, negation, spell
from mtpdeploy.engines.sglang.flags import command
from mtpdeploy.engines.sglang.versions import NEWEST
from tests.deploy.place import FITTING, SEED
from tests.engines.sglang.ascents import Climb, failed
from tests.real.installation import Installation
from tests.real.place import ENVIRONMENT, GATED_DELTA_NET, NEXTN, NGRAM, SMALL

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

VERSION = str(NEWEST)

CROWDED: dict[str, FlagValue] = {
    **SEED,
    "chunked_prefill_size": 16384,
    "cuda_graph_max_bs": 256,
    "context_length": 65536,
    "page_size": 64,
    "max_mamba_cache_size": 600,
    "cpu_offload_gb": 4,
    "tp_size": 2,
}
"""A server with much to give up."""

FIGURES = {
    "mem_fraction_static": 0.85,
    "derived_context_length": 4096.0,
    "asked_mib": 2048.0,
    "free_mib": 512.0,
    "max_running_requests": 48.0,
}
"""What a log may have printed beside a cause."""


def ask(installation: Installation, word: str, given: object = None) -> Any:
    """
    What the real parser answers.
    """
    done = subprocess.run(
        [installation.python, Path(__file__).parent / "real_parser.py", word],
        env={**os.environ, **ENVIRONMENT},
        input=json.dumps(given),
        capture_output=True,
        text=True,
        check=False,
    )
    assert 0 == done.returncode, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_the_table(installation: Installation) -> None:
    """
    Every option of the real parser is in the table, and every one of the table in the parser, with what it
    takes: nothing or a value, how many, and which.
    """
    real = {option: found for found in ask(installation, "options") for option in found["spellings"]}
    differing: list[tuple[str, object, object]] = []
    spelled = set()
    for flag in _table().flags:
        option = spell(flag, NEWEST)
        if option is None:
            continue
        spelled.add(option)
        shape, found = flag.shapes[-1], real.get(option)
        choices = None if shape.choices is None else sorted(map(str, shape.choices))
        ours = (shape.kind == "switch", "" if shape.kind == "switch" else shape.nargs, choices)
        theirs = found and (found["switch"], found["nargs"], found["choices"])
        differing += [] if ours == theirs else [(option, ours, theirs)]
        off = negation(flag, NEWEST)
        differing += [] if off is None or off in real else [(off, "a negation", None)]
    unknown = [found["spellings"] for found in real.values() if not spelled & set(found["spellings"])]

    assert [] == differing
    assert [] == unknown


def test_every_command_of_a_ladder(installation: Installation) -> None:
    """
    What every cause makes of several servers, rung by rung to the ladder's end, is taken by the real parser.
    """
    servers: list[dict[str, FlagValue]] = [
        SEED,
        FITTING,
        CROWDED,
        {**SMALL, **GATED_DELTA_NET, **NEXTN},
        {**SMALL, **NGRAM},
    ]
    rungs: set[str | None] = set()
    commands: list[list[str]] = []
    for flags in servers:
        for cause in Cause:
            asked = ServerSpec(name="s", flags={"model_path": "/models/m", "port": 30000, **flags})
            climb = Climb(asked, VERSION)
            while climb.server is not None:
                commands.append(list(words_of(climb.server)))
                climb.fail(failed(cause, **FIGURES))
            rungs |= set(climb.rungs)
    distinct = [list(words) for words in sorted({tuple(words) for words in commands})]

    said = ask(installation, "parse", distinct)

    assert [] == [(words, answer) for words, answer in zip(distinct, said, strict=True) if answer]
    assert len(distinct) > 50
    assert len(rungs) > 20


def words_of(server: ServerSpec) -> tuple[str, ...]:
    """
    The words after `-m sglang.launch_server`.
    """
    return tuple(word for line in command(server, "python3", VERSION).argv[1:] for word in line)
