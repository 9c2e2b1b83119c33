"""
Journals of ascents that never were, with whatever text in them.
"""

from pathlib import Path

from msgspec import json, structs

from mtpdeploy.core import events
from mtpdeploy.core.diagnosis import Milestone, Stage
from mtpdeploy.core.machine import Facts, Host
from mtpdeploy.core.outcome import Ascent, Outcome
from mtpdeploy.core.server import ServerSpec
from mtpdeploy.deploy.journal import Journal
from tests.deploy.examples import ASKED, AT, BOX, FACTS, FORECAST, OUTCOME, READY, RECORD, VERDICT

ID = RECORD.ascent

LOG = tuple(f"[2026-12-01 05:12:{second:02d}] line {second + 1}" for second in range(40))


def keep(
    state: Path,
    text: str = "a plain note",
    *,
    host: Host = BOX,
    facts: Facts = FACTS,
    asked: ServerSpec = ASKED,
    finished: bool = True,
    ascent: str = ID,
) -> Path:
    """
    An ascent of two attempts: one that failed with `text` wherever text may stand, and one that is ready.
    """
    journal = Journal(state, ascent)
    journal.client(RECORD.client, host, asked, facts, AT)
    server = asked.with_flags(max_running_requests=48)
    verdict = structs.replace(VERDICT, proof=text, because=text, remedy=text, further=(text,))
    failed = structs.replace(
        OUTCOME, attempt=1, run=f"{ID}-1", server=asked, rung=None, verdict=verdict, log=f"/root/{ID}-1/a.log"
    )
    failed = structs.replace(failed, after={"oom_kill": text})
    ready = structs.replace(READY, attempt=2, run=f"{ID}-2", server=server, log=f"/root/{ID}-2/b.log")
    _attempt(journal, failed, "a.log", text, asked)
    journal.event(events.NextStep(AT + 250, goes_on=True, rung="fewer-requests", reason=text))
    journal.ascent(Ascent(ascent, host.name, asked, (failed,)))
    if finished:
        _attempt(journal, ready, "b.log", text, asked)
        journal.ascent(Ascent(ascent, host.name, asked, (failed, ready)))
    return journal.folder


def _attempt(journal: Journal, outcome: Outcome, log: str, text: str, asked: ServerSpec) -> None:
    record = structs.replace(
        RECORD,
        ascent=journal.folder.name,
        attempt=outcome.attempt,
        run=outcome.run,
        log=log,
        asked=asked,
        server=outcome.server,
        rung=outcome.rung,
        options={"order": {"plan": True}, "note": text},
    )
    forecast = structs.replace(FORECAST, reason=text)
    passed = Milestone(Stage.WEIGHTS_LOADED, 20, text, {"avail_gib": 43.27})
    journal.event(events.Planned(AT, forecast=forecast, rungs=(), passed=()))
    journal.event(
        events.AttemptBegun(
            AT,
            record=record,
            changed=(text,),
            conceded=(),
            reason=text,
            command=(("python", text),),
            notes=(text,),
        )
    )
    journal.event(events.Note(AT + 1, text=text))
    journal.event(events.Reached(AT + 30, attempt=outcome.attempt, milestone=passed, seconds=30.0))
    if outcome.report is not None:
        journal.event(events.Verified(AT + 299, attempt=outcome.attempt, report=outcome.report))
    journal.event(events.AttemptEnded(AT + 300, outcome=outcome))
    journal.attempt(record, {"launch.sh": f"#!/bin/sh\n# {text}\n", "attempt.json": _json(record)})
    lines = [*LOG[:36], text, *LOG[37:], text]
    journal.log_path(record).write_text("\n".join(lines) + "\n", "utf-8", "replace")
    journal.outcome(outcome)


def _json(record: object) -> str:

    return json.encode(record).decode()
