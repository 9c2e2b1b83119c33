"""
What happens after a failed attempt: decided by cause.
"""

import json
from collections.abc import Callable
from dataclasses import replace

from msgspec import structs

from mtpdeploy.core import events
from mtpdeploy.core.diagnosis import Cause, End, Stage
from mtpdeploy.core.server import changes
from mtpdeploy.demo.home import Hostile, SimulatedGpu
from mtpdeploy.engines.sglang import SGLANG
from mtpdeploy.remote.retry import REPEAT_WAITS
from tests.deploy.place import SEED, Place, causes

MakePlace = Callable[..., Place]


class TestDecisions:
    """
    What happens after a failed attempt.
    """

    def test_one_attempt_is_no_plural(self, place: Place, port: int) -> None:
        """
        The reason for the end reads naturally.
        """
        ascent = place.up(place.server(port, SEED), max_attempts=1, plan=False)

        assert "1 attempt was allowed (--max-attempts)" == ascent.stopped_because

    def test_max_attempts(self, place: Place, port: int) -> None:
        """
        No attempt more than allowed, and the ascent says why it ended.
        """
        ascent = place.up(place.server(port, SEED), max_attempts=2, plan=False)

        assert 2 == len(ascent.outcomes)
        assert "2 attempts were allowed (--max-attempts)" == ascent.stopped_because
        assert ascent.ready is None
        assert not place.roles()

    def test_a_cause_that_nothing_cures_ends_at_once(self, make_place: MakePlace, port: int) -> None:
        """
        A kernel package that is too old is no matter of configuration: one attempt, and what to do.
        """
        place = make_place(hostile=Hostile(kernel_mismatch=True))

        ascent = place.up(place.server(port))

        assert [Cause.KERNEL_MISMATCH] == causes(ascent)
        assert ascent.stopped_because.startswith("no configuration cures this: ")
        assert ascent.outcomes[0].verdict is not None
        assert ascent.outcomes[0].verdict.remedy

    def test_a_passing_cause_repeats_at_most_twice(self, make_place: MakePlace, port: int) -> None:
        """
        A server that vanishes each time without a line is tried three times in all, never changed.
        """
        place = make_place(hostile=Hostile(die_at="arguments"))

        ascent = place.up(place.server(port))

        assert [Cause.VANISHED] * 3 == causes(ascent)
        assert [None, None] == place.rungs()
        assert 1 == len({json.dumps(o.server.flags, sort_keys=True) for o in ascent.outcomes})
        assert "still the same after 2 repeats" in ascent.stopped_because
        waits = [wait for wait in place.clock.slept if wait >= REPEAT_WAITS[0]]
        assert 2 == len(waits)
        assert all(least <= wait <= 1.25 * least for least, wait in zip(REPEAT_WAITS, waits, strict=True))
        assert [*waits, 0.0] == [step.wait for step in place.of(events.NextStep)]

    def test_a_passing_cause_that_passes(self, make_place: MakePlace, port: int) -> None:
        """
        What vanished once and then serves has conceded nothing.
        """
        place = make_place(hostile=Hostile(die_at="weights", first_starts=1))

        ascent = place.up(place.server(port))

        assert [Cause.VANISHED, None] == causes(ascent)
        assert () == ascent.conceded

    def test_dies_under_the_first_real_requests(self, make_place: MakePlace, port: int) -> None:
        """
        A server that hangs as soon as it is used is not ready, though it said so.
        """
        place = make_place(hostile=Hostile(watchdog="serving", first_starts=1), speed=600.0)

        ascent = place.up(place.server(port), max_attempts=1)

        assert [Cause.WATCHDOG] == causes(ascent)
        assert ["ready line"] == [event.by for event in place.of(events.Proving)]
        assert End.READY is not ascent.outcomes[0].end

    def test_a_server_that_hangs_is_ended(self, make_place: MakePlace, port: int) -> None:
        """
        A server that makes no progress for the stage's patience is ended before the next attempt.
        """
        place = make_place(hostile=Hostile(first_starts=1, hang_at="weights"))
        engine = structs.replace(SGLANG, patience=dict.fromkeys(Stage, 1.0))

        ascent = place.up(place.server(port), place.tools(engine=engine))

        assert [End.STALLED, End.READY] == [outcome.end for outcome in ascent.outcomes]
        assert [Cause.STALLED, None] == causes(ascent)
        assert 1 == place.roles().count("scheduler")


class TestLaws:
    """
    What holds for every climb.
    """

    def test_each_attempt_says_what_it_changes(self, place: Place, port: int) -> None:
        """
        What is told before an attempt is exactly what its server differs in, from the last and from asked.
        """
        ascent = place.up(place.server(port, SEED), plan=False)
        begun = place.of(events.AttemptBegun)
        servers = [outcome.server for outcome in ascent.outcomes]

        assert [tuple(map(str, changes(ascent.asked, server))) for server in servers] == [
            event.conceded for event in begun
        ]
        assert [
            tuple(map(str, changes(before, server)))
            for before, server in zip([ascent.asked, *servers], servers, strict=False)
        ] == [event.changed for event in begun]

    def test_nothing_is_tried_twice_for_one_cause(self, place: Place, port: int) -> None:
        """
        A model that no concession fits ends when the rungs that answer are used up, each tried once.
        """
        place.home.change(gpu=card_of(place, total_mib=54_000))
        ascent = place.up(place.server(port), max_attempts=20, plan=False)
        tried = [(o.verdict and o.verdict.cause, json.dumps(o.server.flags)) for o in ascent.outcomes]

        assert ascent.ready is None
        assert "no rung is left that answers this" in ascent.stopped_because
        assert len(set(tried)) == len(tried)
        assert not any(o.server.mtp is None for o in ascent.outcomes)


def card_of(place: Place, *, total_mib: int) -> SimulatedGpu:
    """
    The place's card, of another size.
    """
    return replace(place.home.settings().gpu, total_mib=total_mib)
