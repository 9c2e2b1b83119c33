"""
Every figure that the project promises, with the same thing done the old way: `python -m tests.bench [NAME]`.
"""

import argparse
import importlib
import os
import platform
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from msgspec import json, structs

from tests.bench.figures import Figure, table

BENCHES = {
    "ready-event": "tests.bench.ready_event",
    "death-verdict": "tests.bench.death_verdict",
    "up-own-time": "tests.bench.own_time",
    "throughput": "tests.bench.throughput",
    "help": "tests.bench.help_time",
    "forecast": "tests.bench.forecast",
    "first-attempt": "tests.bench.grid",
    "plan": "tests.bench.plan_time",
    "diagnose": "tests.bench.diagnose_rate",
}


def main(arguments: Sequence[str]) -> None:
    """
    Measure, print the table, and write it as JSON where that is asked for. No figure is judged by failing.
    """
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("name", nargs="*", help=f"which of {', '.join(BENCHES)}; all without a name")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the figures there too")
    given = parser.parse_args(arguments)
    if unknown := [name for name in given.name if name not in BENCHES]:
        parser.error(f"no bench is called {unknown[0]}; there are {', '.join(BENCHES)}")
    loads = {"before": os.getloadavg()}
    figures: list[Figure] = []
    for name in given.name or BENCHES:
        with tempfile.TemporaryDirectory(prefix="mtpdeploy-bench-") as folder:
            print(f"measuring {name}", file=sys.stderr, flush=True)
            figures += importlib.import_module(BENCHES[name]).measure(Path(folder))
        loads[f"after {name}"] = os.getloadavg()
    print(table(figures))
    print(f"\nload average ({os.cpu_count()} cores, Python {platform.python_version()}):")
    for when, load in loads.items():
        print(f"  {when}: {load[0]:.1f}")
    if given.json:
        given.json.write_bytes(json.format(json.encode(document(figures, loads)), indent=1))


def document(figures: Sequence[Figure], loads: dict[str, tuple[float, float, float]]) -> dict[str, object]:
    """
    The table as data.
    """
    rows = [{**structs.asdict(figure), "met": figure.met, "ratio": figure.ratio} for figure in figures]
    return {"figures": rows, "load": loads, "cores": os.cpu_count(), "python": platform.python_version()}


if __name__ == "__main__":
    main(sys.argv[1:])
