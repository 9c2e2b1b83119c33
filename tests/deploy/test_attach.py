"""
Going on where another client stopped.
"""

from collections.abc import Callable
from pathlib import Path
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
from mtpdeploy.deploy.status import is_living, statuses
from mtpdeploy.errors import BoxUnfit
from mtpdeploy.onbox.identity import identify
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
            place.up(server, place.tools(emit=DiesAt(place, hit)), plan=False)

        ascent = place.attach()

        assert ascent.ready is not None
        assert [1, 2, 3] == [outcome.attempt for outcome in ascent.outcomes]
        assert [512, 48, 16] == [o.server.flags["max_running_requests"] for o in ascent.outcomes]
        assert server == ascent.asked
        assert [ascent] == [past.ascent for past in history(place.state)]
        assert 1 == place.roles().count("scheduler")

    def test_what_was_foreseen_goes_on(self, place: Place, port: int) -> None:
        """
        A configuration that a forecast chose is followed by the next client to READY, as what it is.
        """
        with pytest.raises(Died):
            place.up(
                place.server(port, SEED),
                place.tools(emit=DiesAt(place, lambda e: isinstance(e, events.Launched))),
            )

        ascent = place.attach()

        assert ascent.ready is not None
        assert ["fewer-requests+fewer-requests+no-hierarchical-cache"] == [o.rung for o in ascent.outcomes]
        assert 512 == ascent.asked.flags["max_running_requests"]

    def test_the_log_is_complete(self, place: Place, port: int) -> None:
        """
        The copy that the first client left is completed, byte for byte.
        """
        with pytest.raises(Died):
            place.up(
                place.server(port, SEED),
                place.tools(emit=DiesAt(place, lambda e: isinstance(e, events.Reached) and e.attempt == 1)),
                plan=False,
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
            place.up(place.server(port, SEED), place.tools(emit=DiesAt(place, attempt_two)), plan=False)
        elsewhere = place.tools(state=place.state.with_name("elsewhere"))

        ascent = place.attach(elsewhere)

        assert ascent.ready is not None
        assert [1, 2, 3, 4] == [outcome.attempt for outcome in ascent.outcomes]

    def test_keeps_the_options_of_the_ascent(self, place: Place, port: int) -> None:
        """
        `--max-attempts` of the command that began goes on to count.
        """
        with pytest.raises(Died):
            place.up(
                place.server(port, SEED),
                place.tools(emit=DiesAt(place, attempt_two)),
                max_attempts=2,
                plan=False,
            )

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
        with pytest.raises(BoxUnfit, match="there is no run on the box") as caught:
            place.attach()

        assert "`mtpdeploy up` starts one" == caught.value.hint

    def test_another_server(self, place: Place, port: int) -> None:
        """
        A server by name that has no run here.
        """
        place.up(place.server(port))

        with pytest.raises(BoxUnfit, match="there is no run of `other` on the box"):
            place.attach(server="other")

    def test_a_server_that_was_stopped(self, place: Place, port: int) -> None:
        """
        What somebody took down is not started again behind his back.
        """
        place.up(place.server(port))
        take_down(place.tools(), server=None)

        with pytest.raises(BoxUnfit, match=r"was stopped by .*mtpdeploy down") as caught:
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


def damage(path: Path, what: str) -> None:
    """
    Make a file of a run what nobody can read.
    """
    path.unlink()
    if what == "folder":
        path.mkdir()
    elif what != "missing":
        path.write_text(what)


class TestDamage:
    """
    A server serves, and what its run left does not say what it is.
    """

    @pytest.mark.parametrize("what", ["garbage", '{"ascent": "a', "", "missing", "folder"])
    def test_a_record_that_cannot_be_read_is_not_climbed_past(
        self, place: Place, port: int, what: str
    ) -> None:
        """
        No older attempt is taken for the newest: nothing is launched over a server that serves.
        """
        place.up(place.server(port, {**FITTING, "max_running_requests": 48}), plan=False)
        before = place.home.living()
        newest_run = place.run_folder()
        damage(newest_run / "attempt.json", what)
        place.told.clear()

        with pytest.raises(BoxUnfit, match=f"the record of run `{newest_run.name}` cannot be read") as caught:
            place.attach()
        with pytest.raises(BoxUnfit, match="cannot be read"):
            place.attach(server="qwen")

        assert "`mtpdeploy status`" in caught.value.hint
        assert "`mtpdeploy down`" in caught.value.hint
        assert before == place.home.living()
        assert [] == place.of(events.Launched)

    @pytest.mark.parametrize("what", ["garbage", "missing", "folder"])
    def test_it_is_still_ours(self, place: Place, port: int, what: str) -> None:
        """
        `status` shows it, `up` ends it before it launches anew, and `down` ends it, by its server's name too.
        """
        place.up(place.server(port))
        first = place.run_folder()
        damage(first / "attempt.json", what)
        (status,) = statuses(place.facts())

        place.up(place.server(port))
        second = place.run_folder()
        damage(second / "attempt.json", what)
        kept = take_down(place.tools(), server="other")
        down = take_down(place.tools(), server="qwen")

        assert ("qwen", port, 1, "running, its record cannot be read") == (
            status.server, status.port, status.attempt, status.state,
        )  # fmt: skip
        assert is_living(status)
        assert ["ours, ended"] == [event.fate for event in place.of(events.InTheWay)]
        assert ((), (second.name,), ()) == (kept.runs, down.runs, down.left)
        assert not place.roles()

    @pytest.mark.parametrize("what", ["missing", '{"pid": 1', "folder", "the first process"])
    def test_a_process_that_is_not_told_does_not_serve(self, place: Place, port: int, what: str) -> None:
        """
        It is said at once, not followed; `status` tells that it lives, and `down` ends it.
        """
        place.up(place.server(port))
        before = place.home.living()
        run = place.run_folder()
        damage(run / "proc", json.encode(identify(1)).decode() if what == "the first process" else what)
        (status,) = statuses(place.facts())

        with pytest.raises(BoxUnfit, match=f"run `{run.name}` does not tell its process"):
            place.attach()
        living = place.home.living()
        down = take_down(place.tools(), server=None)

        assert (before, "process unknown", True) == (living, status.state, is_living(status))
        assert ((run.name,), ()) == (down.runs, down.left)
        assert not place.roles()

    def test_a_dead_run_without_a_process_is_no_start(self, place: Place, port: int) -> None:
        """
        What somebody's launch left behind, with nothing that lives, is not followed for ever.
        """
        place.up(place.server(port))
        take_down(place.tools(), server=None)
        for name in ("proc", "exit", "stop"):
            (place.run_folder() / name).unlink()

        with pytest.raises(BoxUnfit, match=r"was ready and has ended since \(exit status not known\)"):
            place.attach()

        assert ["vanished"] == [status.state for status in statuses(place.facts())]

    def test_runs_that_cannot_be_looked_at(self, place: Place, port: int) -> None:
        """
        A box whose runs are not readable is not called one without runs, by no command.
        """
        facts = structs.replace(place.facts(), runs=(), runs_problem="Permission denied: /w/runs")
        place.up(place.server(port))
        runs = place.run_folder().parent
        runs.rename(runs.with_name("elsewhere"))
        runs.touch()

        for ask in (
            lambda: statuses(facts),
            lambda: newest(facts),
            lambda: statuses(place.facts()),
            lambda: take_down(place.tools(), server=None),
            place.attach,
        ):
            with pytest.raises(BoxUnfit, match="the runs on the box cannot be looked at: ") as caught:
                ask()
        runs.unlink()
        runs.with_name("elsewhere").rename(runs)

        assert "processes of these live: " in caught.value.message
        assert "chmod" in caught.value.hint


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
        ascent = place.up(place.server(port, SEED), max_attempts=1, plan=False)
        run = place.facts().runs[0]
        assert run.outcome is not None

        assert ascent.outcomes[0] == json.decode(run.outcome, type=Outcome)
        assert End.EXITED is ascent.outcomes[0].end
