"""
Going on where another client stopped.
"""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec import json, structs

from mtpdeploy.core import events
from mtpdeploy.core.diagnosis import End
from mtpdeploy.core.events import AnyEvent
from mtpdeploy.core.machine import ProcessId, RunRecord
from mtpdeploy.core.outcome import Outcome
from mtpdeploy.demo.home import Hostile
from mtpdeploy.deploy.attach import newest
from mtpdeploy.deploy.down import take_down
from mtpdeploy.deploy.journal import history
from mtpdeploy.errors import BoxUnfit, ConfigError
from tests.deploy.examples import RECORD
from tests.deploy.place import FITTING, SEED, Place

MakePlace = Callable[..., Place]


class Died(BaseException):
    """
    The client is gone.
    """


class DiesAt:
    """
    Takes events, and ends the client at the first that `hit` is true for.
    """

    def __init__(self, place: Place, hit: Callable[[Any], bool]) -> None:
        self._place = place
        self._hit = hit

    def __call__(self, event: AnyEvent) -> None:
        """
        Take one.

        Raises:
            Died: this is the one.
        """
        self._place.told.append(event)
        if self._hit(event):
            raise Died


def attempt_two(event: AnyEvent) -> bool:
    """
    Attempt 2 has been launched.
    """
    return isinstance(event, events.Launched) and event.attempt == 2


class TestGoesOn:
    @pytest.mark.parametrize(
        "hit",
        [
            lambda e: isinstance(e, events.AttemptBegun) and e.record.attempt == 2,
            attempt_two,
            lambda e: isinstance(e, events.Doomed) and e.attempt == 2,
            lambda e: isinstance(e, events.AttemptEnded) and e.outcome.attempt == 2,
            lambda e: isinstance(e, events.NextStep) and "48 → 16" in e.reason,
            lambda e: isinstance(e, events.Proving),
            lambda e: isinstance(e, events.Verified),
        ],
        ids=["begun", "launched", "doomed", "ended", "decided", "proving", "verified"],
    )
    def test_climbs_on_to_ready(self, place: Place, port: int, hit: Callable[[Any], bool]) -> None:
        """
        Whenever the first client dies, the next one ends in READY, with every attempt once and in order.
        """
        server = place.server(port, {**FITTING, "max_running_requests": 512})
        with pytest.raises(Died):
            place.up(server, place.tools(emit=DiesAt(place, hit)))

        ascent = place.attach()

        assert ascent.ready is not None
        assert [1, 2, 3] == [outcome.attempt for outcome in ascent.outcomes]
        assert [512, 48, 16] == [o.server.flags["max_running_requests"] for o in ascent.outcomes]
        assert server == ascent.asked
        assert [ascent] == [past.ascent for past in history(place.state)]
        assert 1 == place.roles().count("scheduler")

    def test_the_log_is_complete(self, place: Place, port: int) -> None:
        """
        The copy that the first client left is completed, byte for byte.
        """
        with pytest.raises(Died):
            place.up(
                place.server(port, SEED),
                place.tools(emit=DiesAt(place, lambda e: isinstance(e, events.Reached) and e.attempt == 1)),
            )

        ascent = place.attach()
        past = next(history(place.state))

        for outcome in ascent.outcomes[:-1]:
            name = outcome.log.rpartition("/")[2]
            there = (place.home.path / ".mtpdeploy" / "runs" / outcome.run / name).read_bytes()
            assert there == (past.folder / outcome.run / name).read_bytes()

    def test_from_another_machine(self, place: Place, port: int) -> None:
        """
        What is needed to go on stands on the box: a client without any journal goes on, too.
        """
        with pytest.raises(Died):
            place.up(place.server(port, SEED), place.tools(emit=DiesAt(place, attempt_two)))
        elsewhere = place.tools(state=place.state.with_name("elsewhere"))

        ascent = place.attach(elsewhere)

        assert ascent.ready is not None
        assert [1, 2, 3, 4] == [outcome.attempt for outcome in ascent.outcomes]

    def test_keeps_the_options_of_the_ascent(self, place: Place, port: int) -> None:
        """
        `--max-attempts` of the command that began goes on to count.
        """
        with pytest.raises(Died):
            place.up(place.server(port, SEED), place.tools(emit=DiesAt(place, attempt_two)), max_attempts=2)

        ascent = place.attach()

        assert "2 attempts were allowed (--max-attempts)" == ascent.stopped_because
        assert [1, 2] == [outcome.attempt for outcome in ascent.outcomes]

    def test_a_ready_server_is_proved_again(self, place: Place, port: int) -> None:
        """
        Attaching to a server that serves proves it, and starts nothing.
        """
        place.up(place.server(port))
        before = place.home.living()

        ascent = place.attach()

        assert ascent.already_running
        assert ascent.ready is not None
        assert before == place.home.living()


class TestRefuses:
    def test_nothing_to_attach_to(self, place: Place) -> None:
        """
        A box without a run is said to have none.
        """
        with pytest.raises(ConfigError, match="there is no run on the box") as caught:
            place.attach()

        assert "`mtpdeploy up` starts one" == caught.value.hint

    def test_another_server(self, place: Place, port: int) -> None:
        """
        A server by name that has no run here.
        """
        place.up(place.server(port))

        with pytest.raises(ConfigError, match="there is no run of `other` on the box"):
            place.attach(server="other")

    def test_a_server_that_was_stopped(self, place: Place, port: int) -> None:
        """
        What somebody took down is not started again behind his back.
        """
        place.up(place.server(port))
        take_down(place.tools(), server=None)

        with pytest.raises(BoxUnfit, match="was ready and has ended since") as caught:
            place.attach()

        assert "`mtpdeploy up` starts it again" in caught.value.hint

    def test_a_server_that_was_ready_and_died(self, make_place: MakePlace, port: int) -> None:
        """
        A death after READY is told with its exit status; nothing is launched.
        """
        place = make_place(hostile=Hostile(dies_ready_s=2.0), sglang_version="0.5.12")
        ascent = place.up(place.server(port))
        assert ascent.ready is not None
        while place.roles():
            place.clock.sleep(0.05, place.never)

        with pytest.raises(BoxUnfit, match=r"was ready and has ended since \(exit status \d+\)"):
            place.attach()


class TestNewest:
    """
    Which of several runs is meant.
    """

    @pytest.mark.parametrize(
        ("runs", "meant"),
        [
            ((("1", False), ("2", False)), "2"),
            ((("1", True), ("2", False)), "1"),
            ((("1", True), ("2", True), ("3", False)), "2"),
        ],
        ids=["the newest", "one that lives", "the newest that lives"],
    )
    def test_the_newest_that_lives(
        self, place: Place, runs: tuple[tuple[str, bool], ...], meant: str
    ) -> None:
        """
        A run that lives goes before a newer one that has ended.
        """
        attempt = json.encode(RECORD).decode()
        found = tuple(
            RunRecord(name, attempt, process=ProcessId(9, "9"), alive=alive, exit_status=None if alive else 1)
            for name, alive in runs
        )

        run, record = newest(structs.replace(place.facts(), runs=found))

        assert meant == run.name
        assert RECORD == record

    def test_the_outcome_stands_beside_the_log(self, place: Place, port: int) -> None:
        """
        What was concluded is written on the box, for whoever comes later.
        """
        ascent = place.up(place.server(port, SEED), max_attempts=1)
        run = place.facts().runs[0]
        assert run.outcome is not None

        assert ascent.outcomes[0] == json.decode(run.outcome, type=Outcome)
        assert End.EXITED is ascent.outcomes[0].end
