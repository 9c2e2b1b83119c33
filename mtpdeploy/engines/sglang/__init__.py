"""
What is known about SGLang 0.5.6 to 0.5.23: the engine, assembled from the files beside this one.
"""

from mtpdeploy.core.diagnosis import Stage
from mtpdeploy.engines.base import Engine
from mtpdeploy.engines.sglang.applied import unapplied
from mtpdeploy.engines.sglang.causes import KNOWLEDGE
from mtpdeploy.engines.sglang.flags import command
from mtpdeploy.engines.sglang.reading import LogReading
from mtpdeploy.engines.sglang.rungs import LADDERS, RUNGS
from mtpdeploy.engines.sglang.sizing.forecast import forecast

PATIENCE = {
    Stage.LAUNCHED: 300.0,
    Stage.ARGUMENTS: 600.0,
    Stage.WEIGHTS_BEGUN: 3600.0,
    Stage.DRAFT_BEGUN: 3600.0,
    Stage.GRAPHS_BEGUN: 2400.0,
    Stage.GRAPHS_CAPTURED: 1800.0,
    Stage.LISTENING: 900.0,
}
"""
Seconds without any sign of progress (no log byte, no CPU, no compiler) that a stage may take.

Imports 20 s on two cores (real logs, 0.5.23), 10 times that on a busy box; downloads happen inside the
weights stage, 591 s for 52 GiB were seen and 40 min reported (public reports, lesson 13); a cold kernel
build 678 s, DeepGEMM 10 to 20 min by its own words; pinning 60 s per 100 GB; a warm-up 600 s by default
(SGLANG_WARMUP_TIMEOUT).
"""

SGLANG = Engine(
    name="sglang",
    command=command,
    forecast=forecast,
    reading=LogReading,
    knowledge=KNOWLEDGE,
    rungs=RUNGS,
    ladders=LADDERS,
    patience=PATIENCE,
    unapplied=lambda server, info, version: tuple(map(str, unapplied(server, info, version))),
)
