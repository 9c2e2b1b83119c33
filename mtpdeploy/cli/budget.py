"""
A forecast as people see it: a stacked bar, a table, and the same bar as SVG.
"""

from collections.abc import Iterator, Sequence
from html import escape

from msgspec import Struct, to_builtins

from mtpdeploy.cli import tables
from mtpdeploy.cli.words import fewer_line
from mtpdeploy.core.memory import Fit, Forecast, Line
from mtpdeploy.core.units import GIB, gib

BAR = 72
"""Characters of the bar on a terminal."""

BLOCKS = "█▓▒░▚▞▙▟▛▜▄▀"
"""What the parts of a bar are drawn with where there are no colours."""

COLOURS = {
    "driver, context and others": ("bright_black", "#8a8f98"),
    "weights": ("blue", "#3b6fd4"),
    "draft weights": ("cyan", "#2aa7b8"),
    "outside the pools": ("bright_black", "#b9bec7"),
    "recurrent state": ("magenta", "#9b59b6"),
    "draft states": ("red", "#d1495b"),
    "keys and values": ("green", "#3a9d5d"),
    "keys and values of the draft": ("bright_green", "#7cc692"),
    "request table": ("white", "#d7c9aa"),
    "graphs and activations": ("yellow", "#e0a030"),
    "other": ("white", "#c0c0c0"),
    "free": (None, "#f2f3f5"),
    "lacking": ("bright_red", "#ff2d2d"),
}
"""Colour of a line on a terminal and in a drawing."""


def budget_table(forecast: Forecast) -> str:
    """
    The lines of a forecast, with their marks in the bar.
    """
    rows = [
        (
            _block(number, line),
            line.name,
            gib(line.amount),
            f"± {gib(line.uncertainty)}" if line.uncertainty else "",
            f"{100 * line.amount / forecast.total:.1f} %",
        )
        for number, line in enumerate(forecast.lines)
    ]
    return tables.table(("", "of one GPU", "GiB", "estimated", "share"), rows)


def bar(forecast: Forecast, *, width: int = BAR) -> list[tuple[str, str | None]]:
    """
    The parts of the bar: characters, and the colour of each part on a terminal.

    What is lacking reaches beyond the card, behind a mark.
    """
    parts = [
        (_block(number, line) * _cells(line, forecast, width), COLOURS.get(line.name, (None, ""))[0])
        for number, line in enumerate(forecast.lines)
        if line.name != "lacking"
    ]
    if any(line.name == "lacking" for line in forecast.lines):
        parts = _cut(parts, width)
        parts.append(("┃ lacking " + gib(-forecast.amount("lacking")), "bright_red"))
    return [part for part in parts if part[0]]


def verdict_lines(forecast: Forecast) -> list[str]:
    """
    The verdict and what it rests on, in a few lines.
    """
    lines = [f"{forecast.fit}: {forecast.reason}"]
    if forecast.error is not None:
        lines.append(f"SGLang would say: {forecast.error}")
    fraction = f"mem_fraction_static {forecast.mem_fraction_static:.4g}"
    lines.append(f"{fraction}, {gib(forecast.free)} free before the weights")
    if forecast.error is None and (forecast.fit is not Fit.DOES_NOT_FIT or forecast.kv_tokens):
        lines += _printed(forecast)
    if forecast.fewer is not None:
        lines.append(fewer_line(forecast.fewer))
    if forecast.host_needed:
        lines.append(f"the hierarchical cache pins {forecast.host_needed / 1e9:.1f} GB of host memory")
    return lines + [f"note: {note}" for note in forecast.notes]


def _printed(forecast: Forecast) -> list[str]:
    """
    What SGLang will print, as far as it is about memory.
    """
    state = ""
    if forecast.max_mamba_cache_size:
        state = f"max_mamba_cache_size {forecast.max_mamba_cache_size}, "
    prints = f"{state}max_total_num_tokens {forecast.kv_tokens}, "
    prints += f"max_running_requests {forecast.max_running_requests}"
    cliffs = f"{gib(forecast.pool_margin)} until the pools are refused, {gib(forecast.graph_margin)} "
    cliffs += f"(± {gib(forecast.graph_uncertainty)}) until graphs and activations do not fit"
    return [f"SGLang will print: {prints}", f"to the cliffs: {cliffs}"]


class Stretch(Struct, frozen=True):
    """
    One line of a budget as part of a drawn bar: where it begins and how wide it is, of a whole of 1.
    """

    line: Line
    colour: str
    begin: float
    share: float


def stretches(lines: Sequence[Line], total: int) -> Iterator[Stretch]:
    """
    The parts of a drawn bar. What is lacking has no width; what is asked beyond the card narrows the rest.
    """
    whole, begin = breadth(lines, total), 0.0
    for line in lines:
        share = max(0, line.amount) / whole
        yield Stretch(line, COLOURS.get(line.name, (None, "#999999"))[1] or "#999999", begin, share)
        begin += share


def breadth(lines: Sequence[Line], total: int) -> int:
    """
    The bytes that a drawn bar is long: the card, or all that is asked of it.
    """
    return max(1, total, sum(line.amount for line in lines if line.amount > 0))


def svg(forecast: Forecast, title: str) -> str:
    """
    The bar with its legend as an SVG drawing of 960 points.
    """
    width, top, height, row = 900, 64, 48, 22
    parts, legend = [], []
    for number, part in enumerate(stretches(forecast.lines, forecast.total)):
        line, colour = part.line, part.colour
        if part.share:
            parts.append(
                f'<rect x="{30 + width * part.begin:.2f}" y="{top}" width="{width * part.share:.2f}" '
                f'height="{height}" fill="{colour}" '
                f'stroke="#ffffff"><title>{escape(line.name)}: {gib(line.amount)}</title></rect>'
            )
        y = top + height + 30 + number * row
        legend.append(
            f'<rect x="30" y="{y - 11}" width="14" height="14" fill="{colour}" stroke="#888888"/>'
            f'<text x="54" y="{y}">{escape(line.name)}</text>'
            f'<text x="330" y="{y}" text-anchor="end">{gib(line.amount)}</text>'
        )
    whole = breadth(forecast.lines, forecast.total)
    edge = 30 + width * forecast.total / whole
    bottom = top + height + 40 + len(forecast.lines) * row
    size = f'width="960" height="{bottom}" font-family="sans-serif" font-size="13"'
    ends = f'y1="{top - 6}" y2="{top + height + 6}" stroke="#000000" stroke-width="2"'
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size}>',
        f'<text x="30" y="26" font-size="16">{escape(title)}</text>',
        f'<text x="30" y="48">{escape(f"{forecast.fit}: {forecast.reason}")}</text>',
    ]
    mark = f'<line x1="{edge:.2f}" x2="{edge:.2f}" {ends}/>'
    return "\n".join([*head, *parts, mark, *legend, "</svg>", ""])


def compared(forecasts: dict[str, Forecast]) -> str:
    """
    Several values of one field side by side.
    """
    rows = [
        (
            name,
            str(f.fit),
            str(f.max_running_requests or ""),
            f"{f.kv_tokens:,}" if f.kv_tokens else "",
            gib(f.left) if f.left else "",
            f.reason,
        )
        for name, f in forecasts.items()
    ]
    return tables.table(("value", "verdict", "requests", "tokens", "left", "why"), rows)


def document(forecast: Forecast) -> dict[str, object]:
    """
    A forecast as data: amounts in GiB.
    """
    return {
        "verdict": str(forecast.fit),
        "reason": forecast.reason,
        "error": forecast.error,
        "cause": forecast.cause.name.lower().replace("_", "-") if forecast.cause else None,
        "sglang_version": forecast.version,
        "mem_fraction_static": forecast.mem_fraction_static,
        "max_mamba_cache_size": forecast.max_mamba_cache_size,
        "slots_per_request": forecast.slots_per_request,
        "max_running_requests": forecast.max_running_requests,
        "fewer": to_builtins(forecast.fewer),
        "kv_tokens": forecast.kv_tokens,
        **_gib(forecast),
        "lines": [
            {"name": line.name, "gib": line.amount / GIB, "uncertainty_gib": line.uncertainty / GIB}
            for line in forecast.lines
        ],
        "notes": list(forecast.notes),
    }


FIGURES = (
    "conv_state_gib",
    "ssm_state_gib",
    "intermediate_ssm_gib",
    "intermediate_conv_gib",
    "kv_k_gib",
    "kv_v_gib",
    "draft_kv_gib",
)
"""Figures that stand in every document, null where the pools are refused."""


def _gib(forecast: Forecast) -> dict[str, float | None]:
    amounts = {
        "total_gib": forecast.total,
        "free_gib": forecast.free,
        "left_gib": forecast.left,
        "needed_gib": forecast.needed,
        "needed_uncertainty_gib": forecast.needed_uncertainty,
        "pool_margin_gib": forecast.pool_margin,
        "graph_margin_gib": forecast.graph_margin,
        "graph_uncertainty_gib": forecast.graph_uncertainty,
        "host_needed_gib": forecast.host_needed,
    }
    return {
        **{name: forecast.figures.get(name) for name in FIGURES},
        **forecast.figures,
        **{name: amount / GIB for name, amount in amounts.items()},
    }


def _block(number: int, line: Line) -> str:
    if line.name == "free":
        return "·"
    return "!" if line.name == "lacking" else BLOCKS[number % len(BLOCKS)]


def _cells(line: Line, forecast: Forecast, width: int) -> int:
    cells = round(width * line.amount / forecast.total)
    return max(1, cells) if line.amount > forecast.total / (4 * width) else cells


def _cut(parts: list[tuple[str, str | None]], width: int) -> list[tuple[str, str | None]]:
    left, kept = width, []
    for text, colour in parts:
        kept.append((text[:left], colour))
        left -= len(kept[-1][0])
    return kept
