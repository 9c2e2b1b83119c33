"""
A dossier in the words of a report: what the template shows, and in which order.
"""

import shlex
from collections.abc import Iterable
from typing import Any

from msgspec import Struct, json

from mtpdeploy.cli import pictures, proof_words, tables, words
from mtpdeploy.cli.heading import begun_at, environment, heading, is_simulated, sentence_of, state_of
from mtpdeploy.core import events
from mtpdeploy.core.diagnosis import End
from mtpdeploy.core.outcome import Outcome, Report
from mtpdeploy.core.proof import Proof, Speculation
from mtpdeploy.core.server import ServerSpec, changes
from mtpdeploy.core.units import duration, figure
from mtpdeploy.deploy.dossier import Dossier
from mtpdeploy.deploy.journal import own_version
from mtpdeploy.deploy.tried import LogLine, Tried

LONGEST = 2000
"""Characters of a line of a log that a report shows; the bundle has all of them."""


class Shown(Struct, frozen=True):
    """
    A line of a log; `proof` where it is the one that proves the verdict.
    """

    number: int
    text: str
    proof: bool = False


class Budget(Struct, frozen=True):
    """
    A bar of memory with what is said of it; the card ends at `edge` of it.
    """

    title: str
    parts: list[pictures.Part]
    said: str = ""
    edge: float = 1.0


class Setting(Struct, frozen=True):
    """
    A flag or variable of a server; `sign` is `-` or `+` where it differs from the attempt before.
    """

    sign: str
    name: str
    value: str


class Checked(Struct, frozen=True):
    """
    One question to the ready server, with its answer and every figure of it.
    """

    name: str
    passed: bool | None
    detail: str
    figures: str


class Proved(Struct, frozen=True):
    """
    The proof of speculation: its verdict (`state` as of a page), why, what to do, replies and speeds.
    """

    verdict: str
    state: str
    because: str
    remedy: str
    headings: tuple[str, ...]
    rows: list[tuple[str, ...]]
    speeds: list[str]


class Trial(Struct, frozen=True):
    """
    One attempt as the page shows it.
    """

    place: int
    number: int
    state: str
    ended: str
    stage: str
    took: str
    rung: str
    reason: str
    diff: list[Setting]
    settings: list[Setting]
    launch: str
    notes: tuple[str, ...]
    steps: list[pictures.Step]
    phases: list[pictures.Phase]
    clocked_by_log: bool
    budgets: list[Budget]
    rows: list[pictures.Row]
    verdict: Any
    cause: str
    context: list[Shown]
    last: list[Shown]
    lines: int | None
    then: str
    after: list[tuple[str, str]]
    further: list[tuple[str, str]]
    happened: list[tuple[str, str]]


class Page(Struct, frozen=True):
    """
    A whole report. `state` is ready, failed or open, `facts` are what the heading lists.
    """

    title: str
    state: str
    sentence: str
    simulated: str
    redacted: bool
    problems: tuple[str, ...]
    facts: list[tuple[str, str]]
    headings: tuple[str, ...]
    table: list[tuple[str, ...]]
    trials: list[Trial]
    conceded: tuple[str, ...]
    checks: list[Checked]
    measured: list[tuple[str, str]]
    proved: Proved | None
    environment: list[tuple[str, str]]
    asked: str
    again: str
    afterwards: list[tuple[str, str]]
    version: str


def page_of(dossier: Dossier, *, redacted: bool = False) -> Page:
    """
    What a report shows of an ascent.
    """
    ascent, tried = dossier.ascent, dossier.tried
    report = _report(dossier)
    begun = begun_at(dossier)
    return Page(
        title=f"{ascent.asked.name} on {ascent.host}",
        state=state_of(dossier),
        sentence=sentence_of(dossier),
        simulated=words.SIMULATED if is_simulated(dossier) else "",
        redacted=redacted,
        problems=dossier.problems,
        facts=[(name, text) for name, text in heading(dossier) if text],
        headings=tables.ATTEMPT_HEADINGS,
        table=tables.attempt_rows(ascent) + _open_rows(tried),
        trials=[_trial(dossier, place) for place in range(len(tried))],
        conceded=_conceded(dossier),
        checks=_checks(report),
        measured=_measured(report),
        proved=_proved(report.speculation if report else None),
        environment=[(name, text) for name, text in environment(dossier) if text],
        asked=_as_toml(ascent.asked),
        again=_again(dossier),
        afterwards=_told(dossier.afterwards, begun),
        version=own_version(),
    )


def _open_rows(tried: tuple[Tried, ...]) -> list[tuple[str, ...]]:
    return [
        (str(one.number), "; ".join(one.begun.changed) if one.begun else "", "", "no outcome yet", "")
        for one in tried
        if one.outcome is None
    ]


def _trial(dossier: Dossier, place: int) -> Trial:
    tried = dossier.tried[place]
    outcome, begun, server = tried.outcome, tried.begun, tried.server
    before = dossier.tried[place - 1].server if place else None
    verdict = outcome.verdict if outcome else None
    record, steps = tried.record, pictures.timeline(tried)
    return Trial(
        place=place + 1,
        number=tried.number,
        state=_state(outcome),
        ended=words.how_it_ended(outcome) if outcome else "no outcome in the journal",
        stage=str(outcome.stage) if outcome else "",
        took=duration(outcome.seconds) if outcome else "",
        rung=(outcome.rung if outcome else record.rung if record else None) or "",
        reason=begun.reason if begun and begun.reason != "as asked" else "",
        diff=_diff(before or dossier.ascent.asked, server),
        settings=_settings(server),
        launch=_command(begun.command) if begun else "",
        notes=begun.notes if begun else (),
        steps=steps,
        phases=pictures.phases(steps),
        clocked_by_log=tried.clocked_by == "log",
        budgets=_budgets(tried),
        rows=pictures.compared(tried),
        verdict=verdict,
        cause=words.cause_name(verdict.cause) if verdict else "",
        context=_shown(tried.context, verdict.line if verdict else None),
        last=_shown(tried.last, verdict.line if verdict else None),
        lines=tried.lines,
        then=words.sentence(tried.step) if tried.step else "",
        after=_listed(dict(tried.outcome.after) if tried.outcome else {}),
        further=recorded(tried.further),
        happened=_told(tried.happened, record.started_at if record else begun_at(dossier)),
    )


def _diff(before: ServerSpec, server: ServerSpec | None) -> list[Setting]:
    found = []
    for change in changes(before, server) if server else ():
        if change.before is not None:
            found.append(Setting("-", change.field, _value(change.before)))
        if change.after is not None:
            found.append(Setting("+", change.field, _value(change.after)))
    return found


def _settings(server: ServerSpec | None) -> list[Setting]:
    if server is None:
        return []
    flags = [Setting("", name, _value(value)) for name, value in server.flags.items()]
    return flags + [Setting("", f"env.{name}", value) for name, value in server.env.items()]


def _value(value: object) -> str:
    return value if isinstance(value, str) else json.encode(value).decode()


def recorded(found: dict[str, Any]) -> list[tuple[str, str]]:
    """
    Whatever else was recorded, as pairs of a name and a value: what lies within is named by its way there.
    """
    told: list[tuple[str, str]] = []
    for name, value in found.items():
        words = name.replace("_", " ")
        if isinstance(value, dict):
            told += [(f"{words}: {inner}", text) for inner, text in recorded(value)]
        elif isinstance(value, list) and any(isinstance(one, (dict, list)) for one in value):
            told += recorded({f"{name} {place}": one for place, one in enumerate(value, 1)})
        elif isinstance(value, list):
            told.append((words, _cut(", ".join(map(_figure, value)))))
        else:
            told.append((words, _cut(_figure(value))))
    return told


def _command(lines: tuple[tuple[str, ...], ...]) -> str:
    return " \\\n  ".join(shlex.join(line) for line in lines)


def _budgets(tried: Tried) -> list[Budget]:
    found = []
    forecast = tried.forecast
    if forecast is not None:
        when = "before the launch" if tried.forecast_by == "up" else "afterwards, from the survey of the box"
        bar, said = pictures.parts(forecast.lines, forecast.total), f"{forecast.fit}: {forecast.reason}"
        found.append(Budget(f"Forecast ({when})", bar, said, pictures.edge(forecast)))
    lines = pictures.seen(tried)
    if lines:
        stage = f"as far as it got: “{tried.outcome.stage}”" if tried.outcome else ""
        found.append(Budget("Seen in the log", pictures.parts(lines, tried.total), stage))
    return found


def _shown(lines: tuple[LogLine, ...], proof: int | None) -> list[Shown]:
    return [Shown(line.number, _cut(line.text), proof=line.number == proof) for line in lines]


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}… ({len(text):,} characters)"


def _told(happened: Iterable[events.AnyEvent], begun: float) -> list[tuple[str, str]]:
    """
    Events as a log of their own: seconds before or after the launch, and the sentence.
    """
    said = ((event, _sentence(event)) for event in happened)
    return [(f"{event.at - begun:+.1f} s", _cut(sentence)) for event, sentence in said if sentence]


def _sentence(event: events.AnyEvent) -> str:
    if isinstance(event, events.Failed):
        return f"error: {event.error}\n{event.hint}"
    return words.sentence(event)


def _state(outcome: Outcome | None) -> str:
    """
    The state of an attempt, as of a page.
    """
    if outcome is None or (outcome.report is not None and outcome.report.mtp_proven is False):
        return "open"
    return "ready" if outcome.end is End.READY else "failed"


def _conceded(dossier: Dossier) -> tuple[str, ...]:
    server = next((t.server for t in reversed(dossier.tried) if t.server is not None), None)
    return tuple(str(c) for c in changes(dossier.ascent.asked, server)) if server else ()


def _report(dossier: Dossier) -> Report | None:
    """
    The newest answers of the server: a proof that failed tells something, too.
    """
    told = [e.report for t in dossier.tried for e in t.happened if isinstance(e, events.Verified)]
    last = dossier.ascent.outcomes[-1].report if dossier.ascent.outcomes else None
    return last or (told[-1] if told else None)


def _checks(report: Report | None) -> list[Checked]:
    return [
        Checked(
            check.name,
            check.passed,
            check.detail,
            ", ".join(f"{name} {text}" for name, text in _listed(check.figures)),
        )
        for check in (report.checks if report else ())
    ]


def _proved(found: Speculation | None) -> Proved | None:
    if found is None or found.proof is Proof.NOT_ASKED:
        return None
    return Proved(
        str(found.proof),
        "ready" if found.proof is Proof.SPECULATING else "open",
        found.because,
        proof_words.remedy_of(found),
        proof_words.HEADINGS,
        proof_words.generation_rows(found),
        proof_words.speed_lines(found),
    )


def _measured(report: Report | None) -> list[tuple[str, str]]:
    if report is None:
        return []
    length = {"accept_length": report.accept_length} if report.accept_length is not None else {}
    return _listed({**length, **report.figures})


def _listed(found: dict[str, Any]) -> list[tuple[str, str]]:
    return [(name.replace("_", " "), _cut(_figure(value))) for name, value in found.items()]


def _figure(value: object) -> str:
    return figure(value) if isinstance(value, float) else _value(value)


def _as_toml(server: ServerSpec) -> str:
    """
    The server as hosts.toml would have it; strings of JSON are such of TOML.
    """
    name = json.encode(server.name).decode()
    lines = [f"[servers.{name}]"]
    lines += [f"{key} = {json.encode(value).decode()}" for key, value in server.flags.items()]
    if server.secrets:
        lines.append(f"secrets = {json.encode(server.secrets).decode()}")
    if server.env:
        lines += ["", f"[servers.{name}.env]"]
        lines += [f"{key} = {json.encode(value).decode()}" for key, value in server.env.items()]
    return "\n".join(lines)


def _again(dossier: Dossier) -> str:
    name, on = shlex.quote(dossier.ascent.asked.name), shlex.quote(dossier.ascent.host)
    options: Any = next((t.record.options.get("order") for t in dossier.tried if t.record), None)
    plan = " --no-plan" if isinstance(options, dict) and options.get("plan") is False else ""
    version = next((t.record.sglang_version for t in dossier.tried if t.record), "")
    script = f"mtpdeploy render {name} --sglang {shlex.quote(version)}" if version else ""
    return "\n".join(filter(None, [f"mtpdeploy up {name} --on {on}{plan}", script]))
