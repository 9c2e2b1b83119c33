"""
The ladder climbed in forecasts: what is passed over, what is launched, and what counts as tried.
"""

from collections.abc import Callable

import pytest

from mtpdeploy.core.diagnosis import Cause, Knowledge
from mtpdeploy.core.foresight import FARTHEST, Foreseen, foresee
from mtpdeploy.core.ladder import Ladder, Rung, Step
from mtpdeploy.core.memory import Fit, Forecast
from mtpdeploy.core.outcome import Ascent
from mtpdeploy.core.server import FlagValue, ServerSpec
from mtpdeploy.engines.sglang import SGLANG
from tests.core.test_ladder import FRACTION, FRACTIONS, by, outcome, rung, server, setting, verdict

GIB = 1 << 30
KNOWLEDGE: dict[Cause, Knowledge] = dict(SGLANG.knowledge)
POOLS = Ladder(
    "pools",
    (
        rung("cheap", Cause.OOM_KV_POOL, setting(cheap=1)),
        rung("dear", Cause.OOM_KV_POOL, setting(dear=1)),
        rung("graphs", Cause.OOM_GRAPHS, setting(graphs=1)),
    ),
)
Predict = Callable[[ServerSpec], Forecast | None]


def told(
    fit: Fit, cause: Cause | None = None, *, margin: int = GIB, error: str | None = None, **figures: float
) -> Forecast:
    """
    A forecast of that verdict.
    """
    return Forecast(
        version="0.5.23",
        fit=fit,
        reason=f"{fit} of {cause}",
        total=96 * GIB,
        free=95 * GIB,
        lines=(),
        mem_fraction_static=0.8,
        error=error,
        cause=cause,
        graph_margin=margin,
        verdict_figures=figures,
    )


FITS = told(Fit.FITS)
CLOSE = told(Fit.CLOSE, Cause.OOM_GRAPHS)
UNLIKELY = told(Fit.CLOSE, Cause.OOM_KV_POOL, margin=-GIB)
NO_POOL = told(Fit.DOES_NOT_FIT, Cause.OOM_KV_POOL, error="Not enough memory.")
NO_GRAPHS = told(Fit.DOES_NOT_FIT, Cause.OOM_GRAPHS, margin=-GIB)


def climbed(
    predict: Predict, ladder: Ladder = POOLS, step: Step | None = None, ascent: Ascent | None = None
) -> Foreseen:
    """
    What is foreseen of a server without flags, or of a step.
    """
    first = step or Step(server(), None, "as asked")
    return foresee(first, ladder, ascent or Ascent("a", "box", server()), "0.5.23", predict, KNOWLEDGE)


def table(*known: tuple[dict[str, FlagValue], Forecast | None], rest: Forecast = NO_POOL) -> Predict:
    """
    Forecasts of servers with these flags, and one for all others.
    """

    def predict(asked: ServerSpec) -> Forecast | None:
        return next((forecast for flags, forecast in known if server(**flags) == asked), rest)

    return predict


class TestWhatIsLaunched:
    """
    The first that is likely, else the first that may fit.
    """

    @pytest.mark.parametrize("forecast", [FITS, CLOSE, None], ids=["fits", "close", "not predicted"])
    def test_what_is_asked_where_it_is_likely(self, forecast: Forecast | None) -> None:
        """
        Nothing is conceded where nothing is known against what is asked.
        """
        assert Foreseen(server(), (), (), forecast) == climbed(table(({}, forecast)))

    def test_the_cheapest_concession_that_fits(self) -> None:
        """
        What does not fit is passed over with its reason, and the rungs that were taken are told.
        """
        found = climbed(table(({"cheap": 1, "dear": 1}, FITS)))

        assert (server(cheap=1, dear=1), ("cheap", "dear"), FITS) == (
            found.server,
            found.rungs,
            found.forecast,
        )
        assert [
            (None, (), NO_POOL.reason),
            ("cheap", ("cheap = 1",), NO_POOL.reason),
        ] == [(one.rung, one.changed, one.reason) for one in found.passed]

    def test_what_is_likely_before_what_may(self) -> None:
        """
        A start that by its own estimate lacks memory is not tried while a concession makes it likely.
        """
        found = climbed(table(({}, UNLIKELY), ({"cheap": 1}, CLOSE)))

        assert (server(cheap=1), ("cheap",)) == (found.server, found.rungs)
        assert [None] == [one.rung for one in found.passed]

    def test_what_may_fit_where_nothing_is_likely(self) -> None:
        """
        It falls back to the first that is close, with what was passed over before that.
        """
        found = climbed(table(({"cheap": 1}, UNLIKELY), ({"cheap": 1, "dear": 1}, UNLIKELY)))

        assert Foreseen(server(cheap=1), ("cheap",), found.passed, UNLIKELY) == found
        assert [None] == [one.rung for one in found.passed]

    def test_none_where_nothing_fits(self) -> None:
        """
        Every configuration that was looked at is told: those on the way, and those that were left aside.
        """
        found = climbed(table())

        assert (None, None) == (found.server, found.forecast)
        assert [(), ("cheap = 1",), ("cheap = 1", "dear = 1"), ("dear = 1",)] == [
            one.changed for one in found.passed
        ]

    def test_a_step_that_gives_up(self) -> None:
        """
        Where the ladder has ended nothing is predicted.
        """
        found = climbed(table(rest=FITS), step=Step(None, None, "no rung is left"))

        assert Foreseen(None, (), (), None) == found


class TestWhatCountsAsTried:
    """
    A predicted failure is a failure.
    """

    def test_causes_choose_the_rungs(self) -> None:
        """
        The rung answers the cause that was predicted.
        """
        found = climbed(table(({}, NO_GRAPHS), ({"graphs": 1}, FITS)))

        assert ("graphs",) == found.rungs

    def test_bounds_of_a_fraction(self) -> None:
        """
        Two predicted failures of opposite causes leave what lies between them.
        """
        predicted = {0.80: NO_POOL, 0.85: NO_GRAPHS, 0.82: NO_GRAPHS, 0.81: FITS}

        def predict(asked: ServerSpec) -> Forecast | None:
            return predicted[asked.number(FRACTION) or 0]

        found = climbed(predict, FRACTIONS, Step(server(**{FRACTION: 0.80}), None, "as asked"))

        assert server(**{FRACTION: 0.81}) == found.server
        assert ("up", "down", "down") == found.rungs

    def test_real_failures_count_too(self) -> None:
        """
        What was tried already is not suggested again.
        """
        failed = outcome(server(cheap=1), verdict(Cause.OOM_KV_POOL))
        ascent = Ascent("a", "box", server(), (failed,))

        found = climbed(table(({"dear": 1}, FITS), ({"cheap": 1, "dear": 1}, FITS)), ascent=ascent)

        assert (server(dear=1), ("dear",)) == (found.server, found.rungs)

    def test_the_rung_of_the_step_leads(self) -> None:
        """
        What a real failure called for is the first of the rungs that were taken.
        """
        found = climbed(table(({"cheap": 1, "dear": 1}, FITS)), step=Step(server(cheap=1), "cheap", "why"))

        assert ("cheap", "dear") == found.rungs

    def test_figures_of_the_forecast_reach_the_rungs(self) -> None:
        """
        A rung sees what SGLang's own text would have told.
        """
        reached = []

        def change(ran: ServerSpec, why: object, version: str) -> ServerSpec | None:
            del version
            reached.append(getattr(why, "figures", None))
            return ran.with_flags(cheap=1)

        ladder = Ladder("l", (Rung("r", frozenset({Cause.OOM_KV_POOL}), "", change),))
        climbed(
            table(({}, told(Fit.DOES_NOT_FIT, Cause.OOM_KV_POOL, floor=0.9)), ({"cheap": 1}, FITS)), ladder
        )

        assert [{"floor": 0.9}] == reached

    def test_another_cause_where_one_has_no_rung_left(self) -> None:
        """
        A way that ends is left, and what was passed over before is gone on from, with the rungs to there.
        """
        predict = table(
            ({"cheap": 1}, NO_GRAPHS),
            ({"cheap": 1, "graphs": 1}, NO_GRAPHS),
            ({"dear": 1}, FITS),
        )

        found = climbed(predict)

        assert (server(dear=1), ("dear",)) == (found.server, found.rungs)
        assert [None, "cheap", "graphs"] == [one.rung for one in found.passed]

    def test_an_endless_ladder_ends(self) -> None:
        """
        A rung that always has more to give does not keep a forecast from ending.
        """
        asked = []

        def predict(ran: ServerSpec) -> Forecast | None:
            asked.append(ran)
            return NO_POOL

        endless = Ladder("endless", (rung("more", Cause.OOM_KV_POOL, by(0.001)),))

        assert climbed(predict, endless).server is None
        assert FARTHEST == len(asked)

    def test_a_failure_without_a_cause(self) -> None:
        """
        One that no rung answers ends the climb.
        """
        found = climbed(table(rest=told(Fit.DOES_NOT_FIT)))

        assert found.server is None
        assert 1 == len(found.passed)
