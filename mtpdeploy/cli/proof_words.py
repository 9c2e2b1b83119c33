"""
The proof of speculation in words and in a compact table.
"""

from mtpdeploy.core.proof import Generation, Power, Proof, Speculation, Speed
from mtpdeploy.core.units import counted, gib

VERDICTS = {
    Proof.SPECULATING: "speculating",
    Proof.NOT_WORTH_IT: "SPECULATING, BUT NOT WORTH IT",
    Proof.NOT_SPECULATING: "NOT SPECULATING",
    Proof.NOT_ANSWERING: "NOT ANSWERING",
    Proof.NONSENSE: "ANSWERING NONSENSE",
    Proof.NOT_ASKED: "not asked to speculate",
}
"""What is said first; in capitals where somebody has to do something."""

DO = {
    Proof.NOT_WORTH_IT: "`verify --compare-without-mtp` measures it; fewer draft tokens cost less a step",
    Proof.NONSENSE: "try another attention_backend, kv_cache_dtype or quantisation; see the log's warnings",
}
"""What to do where the proof itself does not say."""


def proof_lines(found: Speculation) -> list[str]:
    """
    The verdict with its reason and remedy, then the figures.
    """
    figures = [*_generations(found), *speed_lines(found)]
    return [*verdict_of(found), *(f"         {line}" for line in figures)]


def verdict_of(found: Speculation) -> list[str]:
    """
    The verdict with its reason, and in a second line what to do.
    """
    because = f": {found.because}" if found.because else ""
    lines = [f"  proof  {VERDICTS[found.proof]}{because}"]
    remedy = remedy_of(found)
    if remedy:
        lines.append(f"         {remedy}")
    return lines


def remedy_of(found: Speculation) -> str:
    """
    What to do about the verdict; "" where there is nothing to do.
    """
    return found.remedy or DO.get(found.proof, "")


HEADINGS = ("kind", "at once", "tokens", "steps", "accepted", "tokens/s")
"""What the columns of `generation_rows` are."""


def generation_rows(found: Speculation) -> list[tuple[str, ...]]:
    """
    The replies as cells of a table; none where there was no reply at all.
    """
    return [_row(one) for one in found.generations] if any(g.tokens for g in found.generations) else []


def _generations(found: Speculation) -> list[str]:
    rows = generation_rows(found)
    if not rows:
        return []
    rows = [HEADINGS, *rows]
    widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
    return [_aligned(row, widths) for row in rows]


def _row(one: Generation) -> tuple[str, ...]:
    return (
        one.kind,
        str(one.at_once),
        str(one.tokens or "-"),
        str(one.verify_steps or "-"),
        f"{one.accept_length:.2f}" if one.accept_length else "-",
        rate(one.tokens_per_second) if one.tokens_per_second else "-",
    )


def _aligned(row: tuple[str, ...], widths: list[int]) -> str:
    first, *others = row
    cells = (cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))
    return "  ".join([first.ljust(widths[0]), *cells])


def speed_lines(found: Speculation) -> list[str]:
    """
    Decode speed by requests at once, with power and clocks, and how it was timed.
    """
    lines = [_speed(speed) for speed in found.speeds]
    if lines and found.others:
        whose = counted(found.others, "request of somebody else was", "requests of somebody else were")
        lines.append(f"{whose} running: these speeds are what was left")
    if lines and found.power_problem:
        lines.append(f"power not known: {found.power_problem}")
    if lines and found.timed_by:
        lines.append(f"timed by {found.timed_by}")
    return lines


def _speed(speed: Speed) -> str:
    each = f" ({rate(speed.per_request)} each)" if speed.at_once > 1 else ""
    told = f"{speed.at_once} at once: {rate(speed.tokens_per_second)} tokens/s{each}"
    if speed.power is None:
        return told
    joule = f"; {speed.tokens_per_joule:.2f} tokens/J" if speed.tokens_per_joule else ""
    return f"{told}, {power_words(speed.power)}{joule}"


def power_words(power: Power) -> str:
    """
    Power and clocks against their limits: `405 W of 600 W; SM clock 2,430 of 3,090 MHz; not throttled`.
    """
    parts = []
    if power.watts is not None:
        limit = f" of {power.limit_watts:,.0f} W" if power.limit_watts is not None else ""
        parts.append(f"{power.watts:,.0f} W{limit}")
    if power.sm_mhz is not None:
        most = f" of {power.max_sm_mhz:,.0f}" if power.max_sm_mhz is not None else ""
        parts.append(f"SM clock {power.sm_mhz:,.0f}{most} MHz")
    if power.memory_used_bytes is not None:
        parts.append(f"{gib(power.memory_used_bytes)} used")
    if power.held_back is not None:
        parts.append(f"held back by {', '.join(power.held_back)}" if power.held_back else "not throttled")
    return "; ".join(parts)


def rate(value: float) -> str:
    """
    Tokens a second: one decimal where it is a small number.
    """
    return f"{value:,.1f}" if value < 100 else f"{value:,.0f}"
