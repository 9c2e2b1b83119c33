"""
What a plan without a box takes in all, from the shell's view: `mtpdeploy plan`, and with `--solve`.
"""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.bench.figures import Figure, of_samples
from tests.bench.help_time import run_time
from tests.engines.sglang.sizing.models import CONFIG_27B

NAME = "plan"
RUNS = 10
PLAN_MS = 300.0
SOLVE_MS = 2000.0

DRAFTED = (
    "speculative_algorithm=EAGLE",
    "speculative_num_steps=3",
    "speculative_eagle_topk=1",
    "speculative_num_draft_tokens=4",
    "attention_backend=triton",
    "mamba_scheduler_strategy=extra_buffer",
)
ASKED = (*DRAFTED, "mem_fraction_static=0.80", "max_running_requests=512")
FITTING = (*DRAFTED, "mem_fraction_static=0.88", "max_running_requests=9")
COMPARED = "mem_fraction_static=0.8,0.82,0.84,0.86,0.88,0.9"

WISHES = ("requests=16", "context=32768", "tokens=300000", "requests=16,context=16384")


def measure(folder: Path) -> Iterator[Figure]:
    """
    In turn, so that all see the same load.
    """
    file = folder / "config.json"
    file.write_text(json.dumps(CONFIG_27B), "utf-8")

    def plan(flags: tuple[str, ...], *more: str) -> list[str]:
        words = [sys.executable, "-m", "mtpdeploy", "plan", "--model", str(file), "--weights-gib", "51.29"]
        return [*words, "--gpu", "rtx-pro-6000", *(word for flag in flags for word in ("--set", flag)), *more]

    commands = {
        "plan": plan(FITTING),
        "plan --compare": plan(FITTING, "--compare", COMPARED),
        "plan --solve": plan(ASKED, "--solve"),
        **{f"plan --solve --want {wish}": plan(ASKED, "--solve", "--want", wish) for wish in WISHES},
    }
    environment = {**os.environ, "MTPDEPLOY_STATE_DIR": str(folder)}
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(RUNS):
        for name, words in commands.items():
            times[name].append(run_time(words, environment))
    for name, samples in times.items():
        goal = SOLVE_MS if "--solve" in name else PLAN_MS
        yield of_samples(NAME, f"`mtpdeploy {name}`, in all", samples, target=goal)
