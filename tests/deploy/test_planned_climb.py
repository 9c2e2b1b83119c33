"""
Climbs that are led by forecasts, and the same without: real processes, a simulated SGLang.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from mtpdeploy.core import events
from mtpdeploy.core.diagnosis import Cause, End, Stage
from mtpdeploy.core.memory import Fit
from mtpdeploy.demo.home import QWEN36_27B, Hostile
from mtpdeploy.deploy.calibration import Memory
from mtpdeploy.deploy.ground import look
from mtpdeploy.errors import BoxUnfit
from tests.deploy.place import FITTING, SEED, Place, causes

MakePlace = Callable[..., Place]


class TestPlan:
    """
    The ladder is climbed in forecasts first.
    """

    def test_the_seed_is_ready_at_the_first_attempt(self, place: Place, port: int) -> None:
        """
        What takes four attempts blindly takes one: 16 requests without the hierarchical cache.
        """
        ascent = place.up(place.server(port, SEED))
        (planned,) = place.of(events.Planned)

        assert [None] == causes(ascent)
        assert ("fewer-requests", "fewer-requests", "no-hierarchical-cache") == planned.rungs
        assert [(), ("max_running_requests 512 → 48",), ("max_running_requests 512 → 16",)] == [
            one.changed for one in planned.passed
        ]
        assert Fit.FITS is planned.forecast.fit
        assert "fewer-requests+fewer-requests+no-hierarchical-cache" == ascent.outcomes[0].rung
        assert (
            "enable_hierarchical_cache not given (was True)",
            "hicache_size not given (was 200)",
            "max_running_requests 512 → 16",
        ) == ascent.conceded

    def test_the_reason_is_told(self, place: Place, port: int) -> None:
        """
        An attempt that passes over something says why it is what it is.
        """
        place.up(place.server(port, SEED))
        (begun,) = place.of(events.AttemptBegun)

        assert "the cheapest concession predicted to fit" == begun.reason

    def test_a_server_that_fits_is_launched_as_asked(self, place: Place, port: int) -> None:
        """
        Nothing is conceded where the forecast has nothing against it.
        """
        ascent = place.up(place.server(port))
        (planned,) = place.of(events.Planned)

        assert ((), ()) == (planned.rungs, planned.passed)
        assert (None, ()) == (ascent.outcomes[0].rung, ascent.conceded)

    def test_what_was_forecast_is_held_against_the_log(self, place: Place, port: int) -> None:
        """
        Slots, states, tokens and requests are near what the log printed.
        """
        place.up(place.server(port))
        rows = compared(place)

        assert {"kv_tokens", "max_running_requests", "max_mamba_cache_size", "ssm_state_gib"} <= set(rows)
        assert [] == [name for name, (told, seen) in rows.items() if told != pytest.approx(seen, rel=0.03)]

    def test_what_was_seen_makes_the_next_forecast_exact(self, place: Place, port: int) -> None:
        """
        The next `up` on this box starts from what this one printed, and foretells its figures.
        """
        server = place.server(port)
        place.up(server)
        known = Memory(place.state, look(place.tools(), server)).read()

        assert known.ready is not None
        assert dict(server.flags) == dict(known.ready.flags)
        assert None not in (known.seen.free, known.seen.weights, known.seen.draft, known.seen.graphs)

        place.told.clear()
        place.up(server, force=True)
        rows = compared(place)

        assert {"kv_tokens", "max_running_requests", "weights_gib", "draft_weights_gib"} <= set(rows)
        assert [] == [
            name for name, (told, seen) in rows.items() if told != pytest.approx(seen, rel=0.0005, abs=0.0051)
        ]

    def test_nothing_fits(self, make_place: MakePlace, port: int) -> None:
        """
        Where no configuration is predicted to fit nothing is launched, and nothing cleared for it.
        """
        place = make_place(models=(QWEN36_27B, replace(QWEN36_27B, name="heavy", weights_gib=120.0)))
        place.up(place.server(port))
        served = place.home.living()
        place.told.clear()
        heavy = place.server(port, {**SEED, "model_path": str(place.home.model("heavy"))})

        with pytest.raises(BoxUnfit, match="nothing on the ladder `default` is predicted to fit on `local`"):
            place.up(heavy)

        assert served == place.home.living()
        assert [] == place.of(events.Cleared) + place.of(events.AttemptBegun) + place.of(events.InTheWay)

    def test_a_model_that_is_not_on_the_box_is_not_planned(self, place: Place, port: int) -> None:
        """
        Where nothing can be forecast it climbs as without a plan, and says so.
        """
        server = place.server(port, {**FITTING, "model_path": "some/model"})

        ascent = place.up(server, max_attempts=1)

        assert "not planned: the model's config.json is not on the box" in [
            note.text for note in place.of(events.Note)
        ]
        assert 1 == len(ascent.outcomes)


class TestBlind:
    """
    Without a plan nothing is forecast.
    """

    def test_the_seed_climbs(self, place: Place, port: int) -> None:
        """
        Every rung is tried; no event of a plan is told.
        """
        ascent = place.up(place.server(port, SEED), plan=False)

        assert [Cause.OOM_KV_POOL, Cause.OOM_KV_POOL, Cause.HICACHE_UNSUPPORTED, None] == causes(ascent)
        assert [] == place.of(events.Planned) + place.of(events.Compared) + place.of(events.Foretold)


class TestEarlyEnd:
    """
    An attempt whose own figures mean that it must fail is ended: here one that would never get to its pools.
    """

    def test_ended_at_the_loads(self, make_place: MakePlace, port: int) -> None:
        """
        Weights that take more than the files tell end it once the draft is loaded, not at the pools.
        """
        place = heavier(make_place(sglang_version="0.5.23", hostile=Hostile(hang_at="pools")))
        ascent = place.up(place.server(port), max_attempts=1)
        (outcome,) = ascent.outcomes
        (foretold,) = place.of(events.Foretold)

        assert (End.DOOMED, Stage.DRAFT_LOADED) == (outcome.end, outcome.stage)
        assert outcome.verdict is not None
        assert Cause.OOM_STATE_POOL is outcome.verdict.cause
        assert foretold.reason == outcome.verdict.because
        assert [] == place.roles()

    def test_switched_off(self, make_place: MakePlace, port: int) -> None:
        """
        Without early ends SGLang says it itself.
        """
        place = heavier(make_place(sglang_version="0.5.23"))
        ascent = place.up(place.server(port), early_end=False, max_attempts=1)

        assert End.EXITED is ascent.outcomes[0].end
        assert [] == place.of(events.Foretold)

    def test_not_without_a_plan(self, make_place: MakePlace, port: int) -> None:
        """
        A blind climb ends nothing for a forecast.
        """
        place = heavier(make_place(sglang_version="0.5.23"))
        ascent = place.up(place.server(port), plan=False, max_attempts=1)

        assert End.EXITED is ascent.outcomes[0].end
        assert [] == place.of(events.Foretold)

    def test_the_next_forecast_knows(self, make_place: MakePlace, port: int) -> None:
        """
        What the ended attempt printed is used for the next rung: the fraction that these weights need.
        """
        hanging = Hostile(hang_at="pools", first_starts=1)
        place = heavier(make_place(sglang_version="0.5.23", hostile=hanging))
        ascent = place.up(place.server(port))

        assert [End.DOOMED, End.READY] == [outcome.end for outcome in ascent.outcomes]
        assert 75.0 == pytest.approx(place.of(events.Planned)[1].forecast.figures["weights_gib"], abs=0.01)


def compared(place: Place) -> dict[str, tuple[float, float]]:
    """
    What was forecast and what was seen, by name, without the graphs, which are an estimate.
    """
    (event,) = place.of(events.Compared)
    return {name: (told, seen) for name, told, seen in event.rows if not name.startswith("graphs")}


def heavier(place: Place) -> Place:
    """
    The place with weights that take more as they load than their files tell.
    """
    file = Path(place.home.model()) / "simulated.json"
    told = json.loads(file.read_text())
    file.write_text(json.dumps({**told, "weights_gib": 75.0}))
    return place
