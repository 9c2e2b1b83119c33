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
    What to launch: the first configuration on the ladder that is likely to fit, else the first that may.

    `server` is None where none on the ladder is. `rungs` are those that lead to it, `passed` what was passed
    over on the way; `forecast` is None where nothing could be predicted. `proven` says that this very
    configuration was ready on the same box before.
    """

    server: ServerSpec | None
    rungs: tuple[str, ...]
    passed: tuple[Passed, ...]
    forecast: Forecast | None
    proven: bool = False


class _Dead(Struct, frozen=True):
    """
    A configuration that was passed over, as the outcome that it amounts to, and the rungs that led there.
    """

    outcome: Outcome
    rungs: tuple[str, ...]


def foresee(
    step: Step,
    ladder: Ladder,
    ascent: Ascent,
    version: str,
    predict: Callable[[ServerSpec], Forecast | None],
    knowledge: Mapping[Cause, Knowledge],
) -> Foreseen:
    """
    Climb on from a step that the ladder suggests, in forecasts, until one is likely to fit; pure.

    A predicted failure counts like a real one: it has a cause, and the rungs that answer it are taken. Where
    none answers, what was passed over before is gone on from: it may have failed of something else.
    """
    rungs: tuple[str, ...] = (step.rung,) if step.rung else ()
    passed: tuple[Passed, ...] = ()
    dead: tuple[_Dead, ...] = ()
    perhaps: Foreseen | None = None
    for _ in range(FARTHEST):
        server = step.server
        if server is None:
            break
        forecast = predict(server)
        found = Foreseen(server, rungs, passed, forecast)
        if forecast is None or forecast.likely:
            return found
        if forecast.fit is Fit.CLOSE:
            perhaps = perhaps or found
        passed = (*passed, _passed(step, ascent, forecast))
        dead = (*dead, _Dead(_pretended(server, forecast, knowledge), rungs))
        step, rungs = _onward(ladder, ascent, dead, version)
    return perhaps or Foreseen(None, rungs, passed, None)


def _onward(
    ladder: Ladder, ascent: Ascent, dead: tuple[_Dead, ...], version: str
) -> tuple[Step, tuple[str, ...]]:
    """
    The next step and the rungs that lead to it, from the last that was passed over, else from one before.
    """
    for last in reversed(dead):
        outcomes = [one.outcome for one in dead if one is not last]
        tried = structs.replace(ascent, outcomes=(*ascent.outcomes, *outcomes, last.outcome))
        step = next_step(ladder, tried, version)
        if step.server is not None and step.rung is not None:
            return step, (*last.rungs, step.rung)
    return Step(None, None, "no rung is left"), dead[-1].rungs


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
        remedy=known.advice(forecast.verdict_figures),
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
