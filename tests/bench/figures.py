"""
What a bench found, beside its target and beside what it replaces.
"""

import statistics
from collections.abc import Iterable, Sequence
from typing import TypedDict, Unpack

from msgspec import Struct


class Figure(Struct, frozen=True):
    """
    One measured figure: the median of `samples` (or the one value), and the worst end of them.

    `target` is what the issue asks for (None: it asks for nothing), `baseline` the same thing done in the
    way that `baseline_is` says, in the same run. Both are in `unit`.
    """

    bench: str
    name: str
    value: float
    unit: str
    target: float | None = None
    baseline: float | None = None
    baseline_is: str = ""
    more_is_better: bool = False
    p95: float | None = None
    worst: float | None = None
    samples: int = 1

    @property
    def met(self) -> bool | None:
        """
        Whether the target was met; None where there is none.
        """
        if self.target is None:
            return None
        return self.value >= self.target if self.more_is_better else self.value <= self.target

    @property
    def ratio(self) -> float | None:
        """
        How many times better than the baseline; below 1 it is worse.
        """
        if not self.baseline or not self.value:
            return None
        return self.value / self.baseline if self.more_is_better else self.baseline / self.value

    def row(self) -> list[str]:
        """
        The cells of its line.
        """
        verdict = {None: "", True: "yes", False: "NO"}[self.met]
        return [
            self.name,
            _number(self.value),
            _number(self.p95),
            _number(self.target),
            verdict,
            _number(self.baseline),
            _number(self.ratio),
            self.unit,
            self.baseline_is,
        ]


HEADER = ["", "here", "p95", "target", "met", "baseline", "ratio", "unit", "the baseline is"]


class Beside(TypedDict, total=False):
    """
    What stands beside a figure.
    """

    target: float | None
    baseline: float
    baseline_is: str
    more_is_better: bool


def of_samples(
    bench: str, name: str, samples: Sequence[float], unit: str = "ms", **beside: Unpack[Beside]
) -> Figure:
    """
    The figure of several measurements.
    """
    ordered = sorted(samples)
    return Figure(
        bench=bench,
        name=name,
        value=statistics.median(ordered),
        unit=unit,
        p95=ordered[min(len(ordered) - 1, len(ordered) * 95 // 100)],
        worst=ordered[-1],
        samples=len(ordered),
        **beside,
    )


def table(figures: Iterable[Figure]) -> str:
    """
    All figures as text, a heading for each bench.
    """
    rows: list[list[str]] = [HEADER]
    bench = ""
    for figure in figures:
        if figure.bench != bench:
            bench = figure.bench
            rows.append([bench, *[""] * (len(HEADER) - 1)])
        cells = figure.row()
        rows.append([f"  {cells[0]}", *cells[1:]])
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADER))]
    return "\n".join(_line(row, widths) for row in rows)


def _line(row: list[str], widths: list[int]) -> str:
    numbers = range(1, len(row) - 2)
    cells = [
        cell.rjust(widths[at]) if at in numbers else cell.ljust(widths[at]) for at, cell in enumerate(row)
    ]
    return "  ".join(cells).rstrip()


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}" if abs(value) < 1 else f"{value:.1f}"
