"""
The pictures of a report as numbers for a template: stages along the time, and memory along the card.
"""

from collections.abc import Sequence

from msgspec import Struct

from mtpdeploy.cli.budget import breadth, stretches
from mtpdeploy.cli.words import figures_told
from mtpdeploy.core.diagnosis import End, Stage
from mtpdeploy.core.memory import Forecast, Line
from mtpdeploy.core.outcome import Outcome
from mtpdeploy.core.units import GIB, duration
from mtpdeploy.deploy.calibration import compare
from mtpdeploy.deploy.tried import Passage, Tried

PHASES = {
    Stage.LAUNCHED: "start",
    Stage.ARGUMENTS: "start",
    Stage.WEIGHTS_BEGUN: "start",
    Stage.WEIGHTS_LOADED: "weights",
    Stage.DRAFT_BEGUN: "start",
    Stage.DRAFT_LOADED: "weights",
    Stage.STATE_ALLOCATED: "pools",
    Stage.KV_ALLOCATED: "pools",
    Stage.POOLS_READY: "pools",
    Stage.GRAPHS_BEGUN: "start",
    Stage.GRAPHS_CAPTURED: "graphs",
    Stage.SIZED: "graphs",
    Stage.LISTENING: "serving",
    Stage.READY: "serving",
}
"""What the time before a stage was spent on, as a colour of the picture."""


PHASE_NAMES = {
    "start": "starting, and between stages",
    "weights": "loading weights",
    "pools": "memory pools",
    "graphs": "graphs",
    "serving": "coming to serve",
    "proof": "proof by requests",
    "failed": "until the end",
}
"""What the colours of the picture mean."""


class Phase(Struct, frozen=True):
    """
    All the time of one kind.
    """

    kind: str
    name: str
    took: str


class Step(Struct, frozen=True):
    """
    One stretch of the time of an attempt: `begin` and `share` of a whole of 1.
    """

    stage: str
    phase: str
    line: int | None
    at: str
    took: str
    begin: float
    share: float
    seconds: float = 0.0
    figures: str = ""


class Part(Struct, frozen=True):
    """
    One line of a budget: `begin` and `share` of a drawn bar. What is free has no colour of its own.
    """

    name: str
    colour: str
    begin: float
    share: float
    gib: str


class Row(Struct, frozen=True):
    """
    A figure as forecast and as seen, and how far the two are apart.
    """

    name: str
    forecast: str
    seen: str
    error: str
    off: bool


def timeline(tried: Tried) -> list[Step]:
    """
    What each stage of an attempt took, and how long it went on after the last one.
    """
    outcome = tried.outcome
    end = outcome.seconds if outcome is not None else 0.0
    moments = [passage.seconds for passage in tried.passages if passage.seconds is not None]
    whole = max([end, *moments, 0.001])
    steps, before = [], 0.0
    for passage in tried.passages:
        steps.append(_step(passage, before, whole))
        before = before if passage.seconds is None else max(before, passage.seconds)
    if outcome is not None and end > before:
        steps.append(_end(outcome, before, whole))
    return steps


def _step(passage: Passage, before: float, whole: float) -> Step:
    figures = figures_told(passage.figures)
    phase = PHASES[passage.stage]
    if passage.seconds is None:
        return Step(str(passage.stage), phase, passage.line, "", "", 0.0, 0.0, 0.0, figures)
    took = max(0.0, passage.seconds - before)
    return Step(
        stage=str(passage.stage),
        phase=phase,
        line=passage.line,
        at=duration(passage.seconds),
        took=duration(took),
        begin=before / whole,
        share=took / whole,
        seconds=took,
        figures=figures,
    )


def _end(outcome: Outcome, before: float, whole: float) -> Step:
    ready = outcome.end is End.READY
    return Step(
        stage="proved by requests" if ready else "the end",
        phase="proof" if ready else "failed",
        line=None,
        at=duration(outcome.seconds),
        took=duration(outcome.seconds - before),
        begin=before / whole,
        share=(outcome.seconds - before) / whole,
        seconds=outcome.seconds - before,
    )


def phases(steps: Sequence[Step]) -> list[Phase]:
    """
    The colours of a timeline with their times, in the order in which they came first.
    """
    spent: dict[str, float] = {}
    for step in steps:
        spent[step.phase] = spent.get(step.phase, 0.0) + step.seconds
    return [Phase(kind, PHASE_NAMES[kind], duration(seconds)) for kind, seconds in spent.items()]


def parts(lines: Sequence[Line], total: int) -> list[Part]:
    """
    A budget as a bar with its legend.
    """
    return [
        Part(
            name=part.line.name,
            colour="" if part.line.name == "free" else part.colour,
            begin=part.begin,
            share=part.share,
            gib=_gib(abs(part.line.amount), part.line.uncertainty),
        )
        for part in stretches(lines, total)
    ]


def seen(tried: Tried) -> list[Line]:
    """
    The budget that a log printed, as far as it got: what was taken by what, and what was free at last.

    Weights of the draft are told by what is left over, since the tables that it shares with the target are
    given back after they were loaded. Nothing where the log does not tell what was free at all.
    """
    figures, total = tried.outcome.figures if tried.outcome else {}, tried.total
    before, free = figures.get("free_before_weights_gib"), figures.get("avail_gib")
    for passage in tried.passages:
        free = next((passage.figures[name] for name in FREE if name in passage.figures), free)
    if before is None or free is None or not total:
        return []
    draft = "draft weights" if "draft_weights_gib" in figures else "other"
    told = {
        "driver, context and others": total / GIB - before,
        "weights": figures.get("weights_gib", 0.0),
        "recurrent state": _sum(figures, "conv_state_gib", "ssm_state_gib"),
        "draft states": _sum(figures, "intermediate_ssm_gib", "intermediate_conv_gib"),
        "keys and values": _sum(figures, "k_gib", "v_gib"),
        "keys and values of the draft": _sum(figures, "draft_k_gib", "draft_v_gib"),
        "graphs and activations": figures.get("graphs_gib", 0.0),
    }
    rest = total / GIB - free - sum(told.values())
    told |= {draft: rest, "free": free}
    return [Line(name, int(amount * GIB)) for name, amount in told.items() if amount > SMALLEST]


FREE = ("avail_gib", "available_gpu_mem_gib")
"""Figures of a stage that say what is free then."""

SMALLEST = 0.005
"""GiB that SGLang prints as nothing."""


def compared(tried: Tried) -> list[Row]:
    """
    The figures that an attempt printed, beside those of its forecast.
    """
    rows = tried.compared
    if not rows and tried.forecast is not None and tried.outcome is not None:
        rows = compare(tried.forecast, tried.outcome)
    return [_row(*row) for row in rows]


def edge(forecast: Forecast) -> float:
    """
    Where on the bar of a forecast the card ends: 1 where nothing is asked beyond it.
    """
    return forecast.total / breadth(forecast.lines, forecast.total)


def _row(name: str, told: float, printed: float) -> Row:
    form = "{:,.2f} GiB" if name.endswith("_gib") else "{:,.0f}"
    error = told - printed
    share = f" ({100 * error / printed:+.1f} %)" if printed else ""
    smallest = SMALLEST if name.endswith("_gib") else 0.5
    off = abs(error) > max(smallest + 0.001, 0.005 * abs(printed))
    shown = form.replace(":,", ":+,").format(error) + share if abs(error) > smallest else "as printed"
    called = NAMES.get(name, name.removesuffix("_gib").replace("_", " "))
    return Row(called, form.format(told), form.format(printed), shown, off)


NAMES = {
    "k_gib": "keys",
    "v_gib": "values",
    "conv_state_gib": "convolution state",
    "ssm_state_gib": "SSM state",
    "intermediate_ssm_gib": "draft states, SSM",
    "intermediate_conv_gib": "draft states, convolution",
    "kv_tokens": "tokens",
}
"""What figures are called where their own name says little."""


def _sum(figures: dict[str, float], *names: str) -> float:
    return sum(figures.get(name, 0.0) for name in names)


def _gib(amount: int, uncertainty: int = 0) -> str:
    about = f" ± {uncertainty / GIB:.2f}" if uncertainty else ""
    return f"{amount / GIB:.2f}{about} GiB"
