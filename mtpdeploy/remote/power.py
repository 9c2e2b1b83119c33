"""
Power and clocks as nvidia-smi tells them, sample by sample.
"""

from collections.abc import Collection, Sequence

from msgspec import Struct

from mtpdeploy.core.proof import Power
from mtpdeploy.core.units import MIB

FIELDS = (
    "index",
    "power.draw",
    "enforced.power.limit",
    "clocks.sm",
    "clocks.max.sm",
    "utilization.gpu",
    "memory.used",
)
"""What every driver in use tells; power.draw is a mean over the last second from Ampere on (nvidia-smi)."""

REASONS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")
"""Why the clocks are where they are: the name from driver 535 on, and the one before it."""

QUERIES = (*(",".join((*FIELDS, name)) for name in REASONS), ",".join(FIELDS))
"""Fields to ask for, best first."""

SETTLED = 1.0
"""Seconds after the first token from which power.draw tells of decoding alone: it is a mean over as long."""

HELD_BACK = {
    0x4: "its power limit",
    0x8: "hardware slowdown",
    0x20: "its temperature (software)",
    0x40: "its temperature (hardware)",
    0x80: "the power brake",
}
"""
Reasons that take clocks away from a busy card (nvml.h, nvmlClocksEventReasons). The others are no fault: 0x1
idle, 0x2 a clock that somebody set, 0x10 boost kept alike over cards, 0x100 the display.
"""


class Reading(Struct, frozen=True):
    """
    One GPU in one sample. A figure is None where the driver says "[N/A]" or the like.
    """

    index: int
    watts: float | None = None
    limit_watts: float | None = None
    sm_mhz: float | None = None
    max_sm_mhz: float | None = None
    busy_percent: float | None = None
    memory_used_bytes: int | None = None
    held_back: tuple[str, ...] | None = None


class Sample(Struct, frozen=True):
    """
    What nvidia-smi told at once, asked and answered at these moments of the box's monotonic clock.
    """

    begun: float
    ended: float
    readings: tuple[Reading, ...]


def read_power(fields: str, text: str) -> tuple[Reading, ...]:
    """
    Read one answer (`--format=csv,noheader,nounits`) to a query of these fields; lines of another form are
    left out.
    """
    names = fields.split(",")
    found = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        row = dict(zip(names, cells, strict=False))
        if len(cells) != len(names) or not row["index"].isdigit():
            continue
        used = _number(row.get("memory.used", ""))
        found.append(
            Reading(
                index=int(row["index"]),
                watts=_number(row.get("power.draw", "")),
                limit_watts=_number(row.get("enforced.power.limit", "")),
                sm_mhz=_number(row.get("clocks.sm", "")),
                max_sm_mhz=_number(row.get("clocks.max.sm", "")),
                busy_percent=_number(row.get("utilization.gpu", "")),
                memory_used_bytes=None if used is None else int(used * MIB),
                held_back=_reasons(next((row[name] for name in REASONS if name in row), "")),
            )
        )
    return tuple(found)


def power_between(
    samples: Sequence[Sample], spans: Sequence[tuple[float, float]], gpus: Collection[int]
) -> Power | None:
    """
    The power of some GPUs within spans of time; None where no sample lies in one of them.

    Samples in which power.draw tells of decoding alone are preferred to those asked sooner.
    """
    settled = [s for s in samples if any(a + SETTLED <= s.begun and s.ended <= b for a, b in spans)]
    within = settled or [s for s in samples if any(a <= s.begun and s.ended <= b for a, b in spans)]
    rows = [[r for r in s.readings if r.index in gpus] for s in within]
    rows = [row for row in rows if row]
    if not rows:
        return None
    every = [reading for row in rows for reading in row]
    used = _mean([_sum([r.memory_used_bytes for r in row]) for row in rows])
    return Power(
        samples=len(rows),
        gpus=len(rows[0]),
        watts=_mean([_sum([r.watts for r in row]) for row in rows]),
        limit_watts=_mean([_sum([r.limit_watts for r in row]) for row in rows]),
        sm_mhz=_mean([r.sm_mhz for r in every]),
        max_sm_mhz=_mean([r.max_sm_mhz for r in every]),
        busy_percent=_mean([r.busy_percent for r in every]),
        memory_used_bytes=None if used is None else int(used),
        held_back=_all_reasons(every),
    )


def _all_reasons(readings: Sequence[Reading]) -> tuple[str, ...] | None:
    told = [reading.held_back for reading in readings if reading.held_back is not None]
    return tuple(dict.fromkeys(reason for reasons in told for reason in reasons)) if told else None


def _number(cell: str) -> float | None:
    """
    A number; None for "[N/A]", "[Not Supported]", "[Unknown Error]" and whatever else is none.
    """
    try:
        return float(cell.split(maxsplit=1)[0]) if cell and not cell.startswith("[") else None
    except (ValueError, IndexError):
        return None


def _reasons(cell: str) -> tuple[str, ...] | None:
    try:
        mask = int(cell, 16)
    except ValueError:
        return None
    return tuple(words for bit, words in HELD_BACK.items() if mask & bit)


def _sum(values: Sequence[float | None]) -> float | None:
    """
    The sum; None where one of them is not known.
    """
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
