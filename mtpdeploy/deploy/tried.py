"""
One attempt as the journal has it: its records, its events, and what its log and script tell besides.
"""

from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import DecodeError, Struct, json, structs, to_builtins

from mtpdeploy.core import events
from mtpdeploy.core.diagnosis import Stage, Verdict
from mtpdeploy.core.events import AnyEvent
from mtpdeploy.core.launch import OUTCOME_FILE, SCRIPT_FILE, AttemptRecord
from mtpdeploy.core.lines import Lines
from mtpdeploy.core.memory import Forecast
from mtpdeploy.core.outcome import Check, Outcome, Report
from mtpdeploy.core.server import ServerSpec
from mtpdeploy.core.stale import wanted_gpus
from mtpdeploy.core.units import GIB
from mtpdeploy.deploy.inquest import hold
from mtpdeploy.deploy.journal import Client
from mtpdeploy.deploy.planner import Unplanned, predictor
from mtpdeploy.engines.base import Engine
from mtpdeploy.errors import ConfigError

BEFORE, AFTER, LAST = 6, 4, 16
"""Lines of a log that are kept: before and after the proving one, and at the end."""

HELD = 2 * GIB
"""
Memory that was used when the box was surveyed, above which no forecast is worked out afterwards: it may have
been freed before the launch. A driver alone uses less (onbox survey of an idle RTX PRO 6000: 0.6 GiB).
"""

OUTCOME_FIELDS = frozenset(Outcome.__struct_fields__)
PART_FIELDS = {
    "verdict": frozenset(Verdict.__struct_fields__),
    "report": frozenset(Report.__struct_fields__),
}
CHECK_FIELDS = frozenset(Check.__struct_fields__)
"""Fields of an outcome and its parts that a report has a place for; whatever else there is, is listed."""


class LogLine(Struct, frozen=True):
    """
    A line of a log with its number.
    """

    number: int
    text: str


class Passage(Struct, frozen=True):
    """
    A stage that an attempt reached. `seconds` since its launch, None where nothing tells.
    """

    stage: Stage
    line: int
    seconds: float | None
    figures: dict[str, float] = {}


class Tried(Struct, frozen=True):
    """
    One attempt as the journal has it.

    `further` are fields of the outcome that have no place of their own here. `forecast_by` is "up" where the
    forecast was made before the launch, "report" where it was worked out from the survey afterwards;
    `clocked_by` is "log" where the times of stages are those that SGLang wrote. `total` are the bytes of
    the card. `lines` is how many the log has, None without a copy of it.
    """

    number: int
    run: str
    record: AttemptRecord | None = None
    outcome: Outcome | None = None
    further: dict[str, Any] = {}
    begun: events.AttemptBegun | None = None
    planned: events.Planned | None = None
    forecast: Forecast | None = None
    forecast_by: str = ""
    compared: tuple[tuple[str, float, float], ...] = ()
    passages: tuple[Passage, ...] = ()
    clocked_by: str = ""
    total: int = 0
    context: tuple[LogLine, ...] = ()
    last: tuple[LogLine, ...] = ()
    lines: int | None = None
    script: str = ""
    step: events.NextStep | None = None
    happened: tuple[AnyEvent, ...] = ()

    @property
    def log(self) -> str:
        """
        The name of its log.
        """
        if self.record is not None:
            return Path(self.record.log).name
        return Path(self.outcome.log).name if self.outcome is not None and self.outcome.log else "log"

    @property
    def server(self) -> ServerSpec | None:
        """
        The server that was tried, None where nothing tells.
        """
        if self.outcome is not None:
            return self.outcome.server
        return self.record.server if self.record is not None else None


def completed(
    path: Path, tried: Tried, engine: Engine, clients: tuple[Client, ...], problems: list[str]
) -> Tried:
    """
    An attempt with what its files and the survey of the box tell beside the events.
    """
    raw = _raw(path / OUTCOME_FILE) or to_builtins(tried.outcome) or {}
    outcome = tried.outcome
    tried = structs.replace(tried, further=_further(raw), script=_text(path / SCRIPT_FILE, problems))
    log = path / tried.log
    line = outcome.verdict.line if outcome and outcome.verdict else None
    try:
        context, last, count = _excerpts(log, line)
        tried = structs.replace(tried, context=context, last=last, lines=count)
    except OSError as error:
        problems.append(f"no copy of the log of attempt {tried.number} can be read here: {error.strerror}")
    return _with_forecast(_with_passages(tried, log, engine), engine, clients)


def _raw(path: Path) -> dict[str, Any]:
    with suppress(OSError, DecodeError, RecursionError):
        return json.decode(path.read_bytes(), type=dict[str, Any])
    return {}


def _text(path: Path, problems: list[str]) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except FileNotFoundError:
        return ""
    except OSError as error:
        problems.append(f"{path.parent.name}/{path.name} cannot be read: {error.strerror}")
        return ""


def _excerpts(log: Path, line: int | None) -> tuple[tuple[LogLine, ...], tuple[LogLine, ...], int]:
    """
    The lines around the proving one, the last lines, and how many there are.
    """
    around: list[LogLine] = []
    last: deque[LogLine] = deque(maxlen=LAST)
    lines, count = Lines(), 0

    def take(found: Iterable[Any]) -> None:
        nonlocal count
        for one in found:
            count = one.number
            if one.bar:
                continue
            kept = LogLine(one.number, one.text)
            last.append(kept)
            if line is not None and line - BEFORE <= one.number <= line + AFTER:
                around.append(kept)

    with log.open("rb") as file:
        while data := file.read(1 << 20):
            take(lines.feed(data))
    take(lines.finish())
    return tuple(around), tuple(last), count


def _with_passages(tried: Tried, log: Path, engine: Engine) -> Tried:
    """
    The stages with their times: as they were seen, or by SGLang's own stamps where nobody watched all of it.
    """
    seen = [event for event in tried.happened if isinstance(event, events.Reached)]
    passages = tuple(
        Passage(e.milestone.stage, e.milestone.line, e.seconds, e.milestone.figures) for e in seen
    )
    joined = any(isinstance(event, events.Following) for event in tried.happened)
    if (passages and not joined) or tried.lines is None:
        return structs.replace(tried, passages=passages)
    try:
        reached = hold(str(log), engine).reached
    except ConfigError:
        return structs.replace(tried, passages=passages)
    clocked = {passage.line: passage.seconds for passage in passages}
    known = [(r.moment, clocked[r.milestone.line]) for r in reached if r.milestone.line in clocked]
    begun = next((r.moment for r in reached if r.moment is not None), None)
    for moment, seconds in known[:1]:
        begun = moment - seconds if moment is not None and seconds is not None else begun
    found = tuple(
        Passage(
            r.milestone.stage,
            r.milestone.line,
            clocked.get(r.milestone.line, _since(begun, r.moment)),
            r.milestone.figures,
        )
        for r in reached
    )
    return structs.replace(tried, passages=found or passages, clocked_by="log" if found else "")


def _since(begun: float | None, moment: float | None) -> float | None:
    return None if begun is None or moment is None else max(0.0, moment - begun)


def _with_forecast(tried: Tried, engine: Engine, clients: tuple[Client, ...]) -> Tried:
    """
    The forecast of an attempt, and the card's memory: as planned, else from the survey of its first client.
    """
    surveys = sorted((client.facts for client in clients), key=lambda facts: facts.model is None)
    facts = surveys[0] if surveys else None
    server = tried.server
    gpus = wanted_gpus(facts, server) if facts is not None and server is not None else ()
    total = min((gpu.total_bytes for gpu in gpus), default=0)
    if tried.planned is not None and tried.planned.forecast is not None:
        forecast = tried.planned.forecast
        return structs.replace(tried, forecast=forecast, forecast_by="up", total=total or forecast.total)
    held = any(gpu.total_bytes - gpu.free_bytes > HELD for gpu in gpus)
    if facts is None or server is None or held:
        return structs.replace(tried, total=total)
    predict = predictor(engine, facts)
    worked_out = None if isinstance(predict, Unplanned) else predict(server)
    by = "report" if worked_out is not None else ""
    return structs.replace(tried, total=total, forecast=worked_out, forecast_by=by)


def _further(raw: dict[str, Any]) -> dict[str, Any]:
    """
    What an outcome says beyond what has a place of its own: facts gathered after a death, measurements.
    """
    found = _others("", raw, OUTCOME_FIELDS)
    for part, fields in PART_FIELDS.items():
        inner = raw.get(part)
        if isinstance(inner, dict):
            found |= _others(f"{part}: ", inner, fields)
            checks = inner.get("checks")
            for check in checks if isinstance(checks, list) else ():
                if isinstance(check, dict):
                    found |= _others(f"{check.get('name')}: ", check, CHECK_FIELDS)
    return found


def _others(before: str, raw: dict[str, Any], fields: frozenset[str]) -> dict[str, Any]:
    return {f"{before}{key}": value for key, value in raw.items() if key not in fields and value}
