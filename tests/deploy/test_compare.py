"""
One server with and without speculation, on a box with a simulated SGLang.
"""

import contextlib
import json
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from mtpdeploy.core.events import AnyEvent, AttemptBegun, AttemptEnded
from mtpdeploy.core.launch import AttemptRecord
from mtpdeploy.core.server import ServerSpec
from mtpdeploy.demo.home import Hostile
from mtpdeploy.deploy import compare as comparing
from mtpdeploy.deploy.background import in_background
from mtpdeploy.deploy.compare import Comparer, Comparison, Phase, without_speculation
from mtpdeploy.deploy.down import take_down
from mtpdeploy.deploy.journal import history
from mtpdeploy.deploy.proof import running, verify_running
from mtpdeploy.deploy.status import statuses
from mtpdeploy.errors import BoxLocked, BoxUnfit, ConfigError
from mtpdeploy.remote import http
from mtpdeploy.remote.stale import requests_running
from tests.deploy.place import FITTING, SEED, Place
from tests.e2e.client import until

PLAIN = {name: value for name, value in FITTING.items() if not name.startswith("speculative_")}


def compare(place: Place, **tools: Any) -> Comparison:
    """
    Compare what runs there.
    """
    return Comparer(place.host, place.tools(**tools)).run()


def test_flags_of_speculation() -> None:
    """
    All of them go, and what has no meaning without them; the rest stays as it is.
    """
    flags: dict[str, Any] = {"model_path": "m", "tp_size": 2, "enable_multi_layer_eagle": True}
    flags |= {"speculative_algorithm": "EAGLE", "speculative_num_steps": 3}
    server = ServerSpec(name="s", flags=flags, env={"A": "1"})
    plain = without_speculation(server)

    assert {"model_path": "m", "tp_size": 2} == plain.flags
    assert (None, {"A": "1"}) == (plain.mtp, plain.env)


class TestCompared:
    def test_both_are_measured_and_the_server_comes_back(
        self, make_place: Callable[..., Place], port: int
    ) -> None:
        """
        What was conceded for it stays conceded, so that `up` finds it serving as it was asked for.
        """
        place = make_place(speed=300.0)
        asked = place.server(port, SEED)
        before = place.up(asked).outcomes[-1].server
        found = compare(place)
        _, record = running(place.tools(), server=None)

        assert "" == found.problem
        assert (asked, before, found.run) == (record.asked, record.server, record.run)
        assert [1, 4] == [pair.at_once for pair in found.pairs]
        assert all(pair.speed_up > 1.1 for pair in found.pairs)
        assert found.without is not None
        assert found.speculating is not None
        assert (None, True) == (found.without.mtp_proven, found.speculating.mtp_proven)
        assert place.up(asked).already_running

    def test_each_restart_is_an_ascent(self, place: Place, port: int) -> None:
        """
        The journal has both, the one without speculation as it was tried.
        """
        place.up(place.server(port))
        compare(place)
        second, first, _ = history(place.state)

        assert (None, True) == (first.ascent.asked.mtp, first.ascent.ready is not None)
        assert second.ascent.asked.mtp is not None
        assert second.ascent.asked == place.server(port)


class TestNothingToCompare:
    def test_a_server_without_speculation(self, place: Place, port: int) -> None:
        """
        One error, and it goes on as it was.
        """
        place.up(place.server(port, PLAIN))
        _, before = running(place.tools(), server=None)
        with pytest.raises(ConfigError, match="runs without speculation"):
            compare(place)

        assert before.run == running(place.tools(), server=None)[1].run

    def test_nothing_runs(self, place: Place) -> None:
        """
        There is one clear error.
        """
        with pytest.raises(BoxUnfit, match="there is no run"):
            compare(place)

    def test_it_works_on_requests(self, make_place: Callable[..., Place], port: int) -> None:
        """
        It is left alone, unless it is to be taken.
        """
        place = make_place(speed=60.0)
        place.up(place.server(port))
        _, record = running(place.tools(), server=None)
        sampling = {"max_new_tokens": 30000, "ignore_eos": True}
        asking = {"text": "go on", "sampling_params": sampling}
        busy = in_background(
            lambda: http.post(place.box(), port, "/generate", asking, timeout=60, python="python3"), "busy"
        )
        until(lambda: requests_running(place.box(), (port,)) == 1, "a request that runs")
        with pytest.raises(BoxUnfit, match="is working on 1 request"):
            compare(place)

        assert record.run == running(place.tools(), server=None)[1].run
        assert not busy.done()
        _, report = verify_running(place.tools(), server=None)
        assert report.speculation is not None
        assert 1 == report.speculation.others

    def test_somebody_else_deploys(self, place: Place, port: int) -> None:
        """
        Nothing is restarted under another client's hands.
        """
        place.up(place.server(port))
        _, record = running(place.tools(), server=None)
        work_dir = place.home.path / ".mtpdeploy"
        (work_dir / "lock").write_text(json.dumps({"token": "t", "who": "ada", "purpose": "up", "since": 0}))
        comparer = Comparer(place.host, place.tools())
        with pytest.raises(BoxLocked, match="ada"):
            comparer.run()

        assert Phase.BEFORE is comparer.phase
        assert record.run == running(place.tools(), server=None)[1].run


class TestFailures:
    def test_it_does_not_come_back(self, place: Place, port: int) -> None:
        """
        What runs now is said: nothing.
        """
        place.up(place.server(port))
        place.home.change(hostile=Hostile(kernel_mismatch=True))
        found = compare(place)

        assert "the restart with speculation failed" in found.problem
        assert "nothing runs now" in found.problem
        assert ((), None, None) == (found.pairs, found.without, found.speculating)
        assert "scheduler" not in place.roles()

    def test_it_does_not_come_up_without(
        self, place: Place, port: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """
        It is brought back with speculation all the same.
        """
        place.up(place.server(port))
        plain = without_speculation
        monkeypatch.setattr(
            comparing, "without_speculation", lambda server: plain(server).with_flags(attention_backend="fa3")
        )
        found = compare(place)

        assert found.problem.startswith("without speculation it")
        assert found.speculating is not None
        assert found.speculating.mtp_proven
        assert 1 == place.roles().count("scheduler")

    def test_interrupted_while_it_runs_without(self, place: Place, port: int) -> None:
        """
        The phase tells what runs, and nothing stays locked.
        """
        place.up(place.server(port))
        begun: list[AnyEvent] = []

        def interrupt(event: AnyEvent) -> None:
            if isinstance(event, AttemptBegun):
                begun.append(event)
            if isinstance(event, AttemptEnded):
                raise KeyboardInterrupt

        comparer = Comparer(place.host, place.tools(emit=interrupt))
        with pytest.raises(KeyboardInterrupt):
            comparer.run()

        assert Phase.WITHOUT is comparer.phase
        assert 1 == len(begun)
        assert not (place.home.path / ".mtpdeploy" / "lock").exists()
        assert place.up(place.server(port)).ready


class TestBrokenOff:
    """
    A server that a comparison left without speculation, because its client is gone.
    """

    @pytest.fixture
    def left(self, place: Place, port: int) -> AttemptRecord:
        """
        The run that was compared; another one runs in its place, ready and without speculation.
        """
        place.up(place.server(port, SEED))
        _, before = running(place.tools(), server=None)

        def interrupt(event: AnyEvent) -> None:
            if isinstance(event, AttemptEnded):
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            Comparer(place.host, place.tools(emit=interrupt)).run()
        return before

    def test_it_says_so(self, place: Place, left: AttemptRecord) -> None:
        """
        On the box and in the journal; what came before is not said to be anything of the kind.
        """
        _, record = running(place.tools(), server=None)
        told = f"without speculation, for a comparison with run {left.run}"
        newest, older = statuses(place.facts())
        restarted, first = history(place.state)

        assert (f"ready, {told}", left.run) == (newest.state, newest.compares)
        assert "comparison" not in older.state
        assert (told, "") == (restarted.ascent.purpose, first.ascent.purpose)
        assert (left.asked, left.server) == (record.original.asked, record.original.server)  # type: ignore[union-attr]

    def test_attach_brings_back_what_ran(self, place: Place, left: AttemptRecord) -> None:
        """
        The same configuration, conceded as it was, from the box alone.
        """
        ascent = place.attach()
        _, record = running(place.tools(), server=None)

        assert ascent.ready is not None
        assert (left.asked, left.server) == (record.asked, record.server)
        assert (None, left.run) == (record.original, record.compares)
        assert ascent.ready.report is not None
        assert ascent.ready.report.mtp_proven
        assert 1 == place.roles().count("scheduler")

    def test_attach_brings_it_back_after_its_death_as_well(self, place: Place, left: AttemptRecord) -> None:
        """
        What was killed meanwhile was not what anybody wanted to have.
        """
        for pid, _start, _role in place.home.living():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        until(lambda: not place.roles(), "the end of the server")

        assert left.server == place.attach().outcomes[-1].server

    def test_one_that_was_taken_down_stays_down(self, place: Place, left: AttemptRecord) -> None:
        """
        Somebody wanted it to end.
        """
        assert left.original is None
        take_down(place.tools(), server=None)

        with pytest.raises(BoxUnfit, match="was stopped by"):
            place.attach()

    def test_it_is_not_compared_again(self, place: Place, left: AttemptRecord) -> None:
        """
        It would be measured as the server itself.
        """
        with pytest.raises(BoxUnfit, match=f"for a comparison with run {left.run}, which was broken off"):
            compare(place)

    def test_up_never_takes_it_for_what_was_asked(self, place: Place, left: AttemptRecord) -> None:
        """
        Not even where the same flags are asked for.
        """
        _, record = running(place.tools(), server=None)
        ascent = place.up(record.asked)

        assert left.run != record.run
        assert not ascent.already_running
        assert ("", None) == (ascent.compares, running(place.tools(), server=None)[1].original)
