"""
What the planner says of real starts, beside what they printed: `python -m tests.bench.forecast`.

The starts are those of public logs, each with its source. Figures of formulas have to agree to the last
printed digit; those that follow from what a load took, within what its log allows.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from tests.bench.figures import Figure, of_samples, table
from tests.engines.sglang.sizing.cases import CASES, forecast_of, predicted, within

NAME = "forecast"
ALL = 100.0


class Told(Struct, frozen=True):
    """
    One figure of a case: what was predicted, what was seen, and what may lie between.
    """

    case: str
    mode: str
    figure: str
    said: Any
    seen: Any
    tolerance: float | str

    @property
    def right(self) -> bool:
        """
        Whether the two agree.
        """
        return within(self.seen, self.said, self.tolerance)

    @property
    def error(self) -> float | None:
        """
        By how many per cent it was missed; None for words.
        """
        if isinstance(self.seen, str) or self.said is None or not self.seen:
            return None
        return 100 * (float(self.said) / float(self.seen) - 1)

    def __str__(self) -> str:
        error = "" if self.error is None else f"{self.error:+.3f} %"
        allowed = f"± {100 * self.tolerance:g} %" if isinstance(self.tolerance, float) else self.tolerance
        mark = "" if self.right else "  WRONG"
        shown = f"{self.figure:46} {_shown(self.said):>14} {_shown(self.seen):>14} {error:>10}"
        return f"{shown}  {allowed}{mark}"


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4f}"
    return "-" if value is None else str(value)


def told() -> list[Told]:
    """
    Every figure of every case.
    """
    found = []
    for case in CASES:
        forecast = forecast_of(case)
        for figure, seen in case["expect"].items():
            said = predicted(forecast, figure)
            found.append(Told(case["id"], case["mode"], figure, said, seen, case["tolerance"][figure]))
    return found


def measure(_folder: Path) -> Iterator[Figure]:
    """
    The share of figures that agree, and by how much numbers are missed.
    """
    return figures(told())


def figures(found: list[Told]) -> Iterator[Figure]:
    """
    The rows of the table.
    """
    of_formula = [one for one in found if one.mode == "pinned"]
    of_loads = [one for one in found if one.mode != "pinned"]
    yield share(f"figures of formulas: agree, of {len(of_formula)}", of_formula)
    off = [abs(one.said - one.seen) for one in of_formula if isinstance(one.seen, float)]
    yield Figure(NAME, "figures of formulas: farthest off, printed to 0.01", max(off), "GiB", 0.005)
    yield share(f"figures that rest on loads, and verdicts: agree, of {len(of_loads)}", of_loads)
    errors = [abs(one.error) for one in of_loads if one.error is not None]
    yield of_samples(NAME, f"figures that rest on loads: off, median of {len(errors)}", errors, "%")


def share(name: str, chosen: list[Told]) -> Figure:
    """
    How many of some figures are right.
    """
    right = 100 * sum(one.right for one in chosen) / len(chosen)
    return Figure(NAME, name, right, "%", ALL, more_is_better=True)


def main() -> None:
    """
    Print each case and the shares.
    """
    found = told()
    for case in CASES:
        print(f"\n{case['id']}, SGLang {case['sglang_version']}, {case['mode']}: {case['source']}")
        print(f"  {'':46} {'predicted':>14} {'seen':>14} {'error':>10}")
        for one in (one for one in found if one.case == case["id"]):
            print(f"  {one}")
    print("\n" + table(figures(found)))


if __name__ == "__main__":
    main()
