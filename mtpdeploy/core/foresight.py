"""
Which configuration is launched: the ladder is climbed in forecasts first, so that no attempt is wasted.
"""

from collections.abc import Callable, Mapping

from msgspec import Struct, structs

from mtpdeploy.core.diagnosis import Cause, End, Knowledge, Stage, Verdict
from mtpdeploy.core.ladder import Ladder, Step, next_step
from mtpdeploy.core.memory import Fit, Forecast
from mtpdeploy.core.outcome import Ascent, Outcome
from mtpdeploy.core.server import ServerSpec, changes

FARTHEST = 40
"""Forecasts of one climb at most: more than any ladder here has different configurations."""


class Passed(Struct, frozen=True):
    """
    A configuration that is not launched, because it is predicted not to fit.

    `rung` is None for the server as asked.
    """

    rung: str | None
    changed: tuple[str, ...]
    reason: str


class Foreseen(Struct, frozen=True):
    """
    What to launch: the first configuration on the ladder that is predicted to fit, or may.

    `server` is None where none on the ladder is. `rungs` are those that lead to it, `passed` what was passed
    over on the way; `forecast` is None where nothing could be predicted.
    """

    server: ServerSpec | None
    rungs: tuple[str, ...]
    passed: tuple[Passed, ...]
    forecast: Forecast | None


def foresee(
    step: Step,
    ladder: Ladder,
    ascent: Ascent,
    version: str,
    predict: Callable[[ServerSpec], Forecast | None],
    knowledge: Mapping[Cause, Knowledge],
) -> Foreseen:
    """
    Climb on from a step that the ladder suggests, in forecasts, until one does not fail; pure.

    A predicted failure counts like a real one: it has a cause, and the rungs that answer it are taken.
    """
    rungs = (step.rung,) if step.rung else ()
    passed: tuple[Passed, ...] = ()
    tried = ascent
    for _ in range(FARTHEST):
        server = step.server
        if server is None:
            return Foreseen(None, rungs, passed, None)
        forecast = predict(server)
        if forecast is None or forecast.fit is not Fit.DOES_NOT_FIT:
            return Foreseen(server, rungs, passed, forecast)
        passed = (*passed, _passed(step, ascent, forecast))
        tried = structs.replace(tried, outcomes=(*tried.outcomes, _pretended(server, forecast, knowledge)))
        step = next_step(ladder, tried, version)
        rungs = (*rungs, step.rung) if step.rung else rungs
    return Foreseen(None, rungs, passed, None)


def _passed(step: Step, ascent: Ascent, forecast: Forecast) -> Passed:
    server = step.server or ascent.asked
    changed = tuple(str(change) for change in changes(ascent.asked, server))
    return Passed(rung=step.rung, changed=changed, reason=forecast.reason)


def _pretended(server: ServerSpec, forecast: Forecast, knowledge: Mapping[Cause, Knowledge]) -> Outcome:
    """
    The outcome that a forecast amounts to.
    """
    cause = forecast.cause or Cause.UNKNOWN
    known = knowledge[cause]
    verdict = Verdict(
        cause=cause,
        next=known.next,
        proof=forecast.error or "",
        because=forecast.reason,
        remedy=known.remedy,
        figures=forecast.verdict_figures,
    )
    return Outcome(
        attempt=0,
        run="",
        server=server,
        end=End.EXITED,
        stage=Stage.LAUNCHED,
        started_at=0.0,
        seconds=0.0,
        verdict=verdict,
    )
