"""
What `mtpdeploy --help` takes longer than Python itself.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from tests.bench.figures import Beside, Figure, of_samples

NAME = "help"
RUNS = 20
TARGET_MS = 150.0
SHOWN = 10
IMPORTED = re.compile(r"import time:\s*(\d+) \|\s*(\d+) \|\s*(\S+)")
"""A line of `-X importtime`: own microseconds, those with what it imports, name."""


def measure(folder: Path) -> Iterator[Figure]:
    """
    In turn, so that all see the same load; then the imports that take longest.
    """
    commands = {
        "python": [sys.executable, "-c", "pass"],
        "--help": [sys.executable, "-m", "mtpdeploy", "--help"],
        "--version": [sys.executable, "-m", "mtpdeploy", "--version"],
        "up --help": [sys.executable, "-m", "mtpdeploy", "up", "--help"],
    }
    environment = {**os.environ, "MTPDEPLOY_STATE_DIR": str(folder)}
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(RUNS):
        for name, words in commands.items():
            times[name].append(run_time(words, environment))
    bare = median(times.pop("python"))
    for name, samples in times.items():
        goal = TARGET_MS if name == "--help" else None
        more = [sample - bare for sample in samples]
        yield of_samples(NAME, f"`mtpdeploy {name}`, more than Python alone", more, target=goal)
        rest: Beside = {"baseline": bare, "baseline_is": "python -c pass"}
        yield of_samples(NAME, f"`mtpdeploy {name}`, in all", samples, **rest)
    for module, microseconds in slowest_imports(commands["--help"], environment):
        yield Figure(NAME, f"  import {module}", microseconds / 1000, "ms")


def run_time(words: Sequence[str], environment: dict[str, str]) -> float:
    """
    Milliseconds of one process.
    """
    begun = time.perf_counter()
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, env=environment)
    return 1000 * (time.perf_counter() - begun)


def slowest_imports(words: Sequence[str], environment: dict[str, str]) -> list[tuple[str, int]]:
    """
    Modules by their own time, without what they import.
    """
    timed = [words[0], "-X", "importtime", *words[1:]]
    done = subprocess.run(timed, check=True, capture_output=True, env=environment)
    found = [(m[3], int(m[1])) for m in map(IMPORTED.match, done.stderr.decode().splitlines()) if m]
    return sorted(found, key=lambda entry: -entry[1])[:SHOWN]
