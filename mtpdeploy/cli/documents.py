"""
What `--json` prints: one document, with the same names everywhere.
"""

from typing import Any

from msgspec import to_builtins

from mtpdeploy.cli.words import cause_name
from mtpdeploy.core.diagnosis import End
from mtpdeploy.core.foresight import Foreseen
from mtpdeploy.core.ladder import Ladder
from mtpdeploy.core.outcome import Ascent, Outcome, Report
from mtpdeploy.core.server import changes
from mtpdeploy.deploy.rehearsal import Rehearsal
from mtpdeploy.errors import MTP_NOT_PROVEN, SERVER_NOT_UP, ConnectionLost


def exit_status(ascent: Ascent) -> int:
    """
    The status that `up` and `attach` leave with.
    """
    ready = ascent.ready
    if ready is None:
        if not ascent.outcomes and not ascent.stopped_because:
            return 0  # launched, and left to itself
        lost = bool(ascent.outcomes) and ascent.outcomes[-1].end is End.LOST
        return ConnectionLost.exit_status if lost else SERVER_NOT_UP
    return report_status(ready.report) if ready.report is not None else 0


def report_status(report: Report) -> int:
    """
    The status that the answers of a server call for: what it says comes before how fast it says it.
    """
    if not report.answers or report.talks_nonsense:
        return SERVER_NOT_UP
    return MTP_NOT_PROVEN if report.mtp_proven is False else 0


def ascent_document(ascent: Ascent, status: int | None) -> dict[str, Any]:
    """
    An ascent for programs: the attempts with cause, rung and proving line, and how to reach the server.

    `status` is what the command leaves with; None for an ascent of the past whose end was not seen.
    """
    ready = ascent.ready
    return {
        "ascent": ascent.id,
        "host": ascent.host,
        "server": ascent.asked.name,
        "compares": ascent.compares or None,
        "ready": ready is not None,
        "already_running": ascent.already_running,
        "mtp_proven": ready.report.mtp_proven if ready and ready.report else None,
        "accept_length": ready.report.accept_length if ready and ready.report else None,
        "exit_status": status,
        "endpoint": _endpoint(ready) if ready else None,
        "conceded": list(ascent.conceded),
        "stopped_because": ascent.stopped_because or None,
        "attempts": [_attempt(ascent, n) for n in range(len(ascent.outcomes))],
        "report": to_builtins(ready.report) if ready and ready.report else None,
    }


def rehearsal_document(plan: Rehearsal, ladder: Ladder) -> dict[str, Any]:
    """
    What `up` would do, for programs.
    """
    problem = plan.problem
    return {
        "script": plan.script,
        "files": plan.files,
        "ladder": {"name": ladder.name, "rungs": ladder_document(ladder)},
        "in_the_way": list(plan.in_the_way),
        "already_running": plan.already_running,
        "problem": problem.message if problem else None,
        "hint": problem.hint if problem else None,
        "planned": _planned(plan.foreseen) if plan.foreseen else None,
        "exit_status": plan.exit_status,
    }


def _planned(foreseen: Foreseen) -> dict[str, Any]:
    return {
        "fits": foreseen.server is not None,
        "rungs": list(foreseen.rungs),
        "passed": to_builtins(foreseen.passed),
        "forecast": to_builtins(foreseen.forecast),
    }


def ladder_document(ladder: Ladder) -> list[dict[str, Any]]:
    """
    The rungs of a ladder for programs, cheapest concession first.
    """
    return [
        {"name": r.name, "answers": sorted(map(cause_name, r.causes)), "gives_up": r.gives_up}
        for r in ladder.rungs
    ]


def _endpoint(ready: Outcome) -> dict[str, Any]:
    return {
        "port": ready.server.port,
        "base_url": f"http://127.0.0.1:{ready.server.port}/v1",
        "model": ready.server.served_name,
    }


def _attempt(ascent: Ascent, number: int) -> dict[str, Any]:
    outcome = ascent.outcomes[number]
    before = ascent.outcomes[number - 1].server if number else ascent.asked
    verdict = outcome.verdict
    return {
        "attempt": outcome.attempt,
        "run": outcome.run,
        "rung": outcome.rung,
        "changed": [to_builtins(c) for c in changes(before, outcome.server)],
        "end": "ready" if outcome.end is End.READY else outcome.end.name.lower(),
        "stage": outcome.stage,
        "seconds": round(outcome.seconds, 3),
        "exit_status": outcome.exit_status,
        "cause": cause_name(verdict.cause) if verdict else None,
        "cause_text": str(verdict.cause) if verdict else None,
        "proof": verdict.proof if verdict else None,
        "line": verdict.line if verdict else None,
        "because": verdict.because if verdict else None,
        "further": list(verdict.further) if verdict else [],
        "after": outcome.after,
        "remedy": verdict.remedy if verdict else None,
        "log": outcome.log,
        "figures": outcome.figures,
    }
