"""
What is known about SGLang 0.5.6 to 0.5.23: the engine, assembled from the files beside this one.
"""

from mtpdeploy.core.diagnosis import Stage
from mtpdeploy.engines.base import Engine
from mtpdeploy.engines.sglang import server_args
from mtpdeploy.engines.sglang.applied import unapplied
from mtpdeploy.engines.sglang.causes import KNOWLEDGE
from mtpdeploy.engines.sglang.flags import command
from mtpdeploy.engines.sglang.milestones import is_echo
from mtpdeploy.engines.sglang.reading import LogReading
from mtpdeploy.engines.sglang.rungs import LADDERS, RUNGS
from mtpdeploy.engines.sglang.serving import ordinary_run, shortfalls
from mtpdeploy.engines.sglang.sizing.fewer import with_fewer
from mtpdeploy.engines.sglang.sizing.forecast import forecast

PATIENCE = {
    Stage.LAUNCHED: 300.0,
    Stage.ARGUMENTS: 600.0,
    Stage.WEIGHTS_BEGUN: 900.0,
    Stage.DRAFT_BEGUN: 900.0,
    Stage.POOLS_READY: 1200.0,
    Stage.GRAPHS_BEGUN: 1200.0,
    Stage.GRAPHS_CAPTURED: 1200.0,
    Stage.SIZED: 900.0,
    Stage.LISTENING: 1200.0,
}
"""
Seconds that a stage may take without any sign of work (core/patience.py); twice as many with CPU time or a
busy GPU alone, four times as many where nothing but the log can be seen.

Imports 20 s on two cores (real logs, 0.5.23), 10 times that on a busy box. Groups wait 600 s for each other
(PyTorch's default). Downloads happen inside the weights stage, 591 s for 52 GiB were seen and 40 min reported
(public reports, lesson 13), but their bytes count; 900 s is for a network disk that stands still. Kernels are
built from the ready pools on, in a capture, or under the warm-up: a cold build 678 s, a first verify graph
570 s, a prefill capture 220 s, DeepGEMM 10 to 20 min by its own words, and where that happens in a compiler
inside the process nothing but CPU time shows: twice 1200 s. Host memory is pinned between the figures of the
pools (SIZED, or before them) and the listener: 60 s per 100 GB (SGLang PR 31746), 200 GB twice over for a
hybrid model to 0.5.16: 240 s. A warm-up is given up after 600 s (SGLANG_WARMUP_TIMEOUT).
"""

SGLANG = Engine(
    name="sglang",
    command=command,
    forecast=forecast,
    with_fewer=with_fewer,
    reading=LogReading,
    knowledge=KNOWLEDGE,
    rungs=RUNGS,
    ladders=LADDERS,
    patience=PATIENCE,
    is_echo=is_echo,
    ordinary_run=ordinary_run,
    configured=server_args.configured,
    releases_of=server_args.releases_of,
    unapplied=lambda server, info, version: tuple(map(str, unapplied(server, info, version))),
    shortfalls=shortfalls,
)
