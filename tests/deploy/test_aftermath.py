import os
import signal
import threading
from collections.abc import Callable

import pytest
from msgspec import json, structs

from mtpdeploy.core import events
from mtpdeploy.core.diagnosis import Cause, End
from mtpdeploy.core.events import AnyEvent
from mtpdeploy.core.launch import AttemptRecord
from mtpdeploy.core.outcome import Outcome
from mtpdeploy.demo.home import Hostile
from mtpdeploy.demo.site.sglang import kernel, processes
from mtpdeploy.deploy import aftermath
from mtpdeploy.errors import CommandFailed, ConnectionLost
from mtpdeploy.remote import aftermath as remote
from mtpdeploy.remote import retry
from tests.deploy.place import Place

MakePlace = Callable[..., Place]


def one_attempt(place: Place, port: int, **changes: object) -> Outcome:
    """
    The outcome of a single attempt.
    """
    (outcome,) = place.up(place.server(port), place.tools(**changes), max_attempts=1).outcomes
    return outcome


class TestTheKernelKills:
    """
    A kill for memory, counted by the box's own control group.
    """

    @pytest.mark.parametrize("stage", ["arguments", "graphs", "warmup"])
    def test_the_main_process(self, make_place: MakePlace, port: int, stage: str) -> None:
        """
        Nothing in the log says so; the box does, and the outcome on the box keeps it.
        """
        place = make_place(hostile=Hostile(oom_kill_at=stage))
        outcome = one_attempt(place, port)
        kept = json.decode((place.run_folder() / "outcome.json").read_bytes(), type=Outcome)

        assert outcome.verdict is not None
        assert (End.EXITED, 137, Cause.HOST_OOM_KILLED) == (
            outcome.end,
            outcome.exit_status,
            outcome.verdict.cause,
        )
        assert "`oom_kill 1` (+1 since the launch)" in outcome.verdict.because
        assert outcome.after["oom_kill"] == kept.after["oom_kill"] == outcome.verdict.because

    def test_each_attempt_counts_from_its_own_launch(self, make_place: MakePlace, port: int) -> None:
        """
        The second attempt's difference is one, though the group counts two.
        """
        place = make_place(hostile=Hostile(oom_kill_at="weights"))
        one_attempt(place, port)
        again = one_attempt(place, port)

        assert "`oom_kill 2` (+1 since the launch)" in again.after["oom_kill"]

    def test_an_old_kill_is_not_this_ones(self, make_place: MakePlace, port: int) -> None:
        """
        A death after it that has nothing to do with memory is not blamed on memory.
        """
        place = make_place(hostile=Hostile(oom_kill_at="weights"))
        one_attempt(place, port)
        place.home.change(hostile=Hostile(die_at="weights"))
        outcome = one_attempt(place, port)

        assert outcome.verdict is not None
        assert Cause.VANISHED is outcome.verdict.cause
        assert any("no kill for memory since the launch" in text for text in outcome.verdict.further)


class TestTheGpuFails:
    """
    An Xid in the kernel's log.
    """

    def test_hardware_goes_before_what_the_log_shows(self, make_place: MakePlace, port: int) -> None:
        """
        The log's CUDA error is a consequence, and kept.
        """
        outcome = one_attempt(make_place(hostile=Hostile(xid_at="graphs")), port)

        assert outcome.verdict is not None
        assert Cause.GPU_FAULT is outcome.verdict.cause
        assert "Xid 79" in outcome.verdict.because
        assert "unspecified launch failure" in outcome.verdict.further[0]

    def test_a_fault_of_the_program_stands_beside_the_logs_line(
        self, make_place: MakePlace, port: int
    ) -> None:
        """
        Xid 31 says what the crashed kernel did.
        """
        outcome = one_attempt(make_place(hostile=Hostile(xid_at="graphs", xid=31)), port)

        assert outcome.verdict is not None
        assert Cause.CUDA_FAULT is outcome.verdict.cause
        assert "unspecified launch failure" in outcome.verdict.proof
        assert "Xid 31" in outcome.verdict.further[0]

    def test_without_a_line_in_the_log(self, make_place: MakePlace, port: int) -> None:
        """
        The main process goes without a word.
        """
        outcome = one_attempt(make_place(hostile=Hostile(xid_at="arguments", xid=48)), port)

        assert outcome.verdict is not None
        assert Cause.GPU_FAULT is outcome.verdict.cause


@pytest.mark.parametrize(("whole", "end"), [(False, End.EXITED), (True, End.VANISHED)])
def test_a_server_killed_by_somebody(make_place: MakePlace, port: int, *, whole: bool, end: End) -> None:
    """
    A real SIGKILL, of the server alone or with its supervisor: nothing is invented, what is known is told.
    """
    place = make_place(hostile=Hostile(hang_at="graphs"))

    def emit(event: AnyEvent) -> None:
        place.told.append(event)
        if isinstance(event, events.Reached) and "pools" in event.milestone.stage:
            threading.Thread(target=kill, args=(place.of(events.Launched)[-1].pid,)).start()

    def kill(supervisor: int) -> None:
        (main,) = [pid for pid, _, role in place.home.living() if role == "server"]
        if whole:
            os.kill(supervisor, signal.SIGKILL)
        os.kill(main, signal.SIGKILL)

    outcome = one_attempt(place, port, emit=emit)

    assert outcome.verdict is not None
    assert (end, Cause.VANISHED) == (outcome.end, outcome.verdict.cause)
    assert any("no kill for memory since the launch" in text for text in outcome.verdict.further)


class TestNobodySawIt:
    """
    A server that served, and died when its client was long gone.
    """

    def test_the_box_is_asked_later(self, place: Place, port: int) -> None:
        """
        Its outcome says ready; the kill since its launch is still counted.
        """
        outcome = one_attempt(place, port)
        kernel.kill_for_memory(place.home.path, 1, "python")
        run = kill_run(place)
        facts = place.facts()
        (ended,) = facts.runs
        record = json.decode(ended.attempt.encode(), type=AttemptRecord)
        told = aftermath.told_later(ended, record, outcome, facts, place.tools())

        assert (End.READY, run) == (outcome.end, ended.name)
        assert told is not None
        assert "(+1 since the launch)" in told["oom_kill"]

    def test_one_that_lives_or_was_seen_is_not_asked_for(self, place: Place, port: int) -> None:
        """
        Nor one that was stopped, nor one after which others were started.
        """
        outcome = one_attempt(place, port)
        facts = place.facts()
        (living,) = facts.runs
        record = json.decode(living.attempt.encode(), type=AttemptRecord)
        dead = structs.replace(living, alive=False, exit_status=137)
        later = structs.replace(facts, runs=(dead, structs.replace(dead, name="99999999-000000Z-x-y-1")))
        never = place.tools(box=None)

        for run, seen, among in (
            (living, outcome, facts),
            (structs.replace(dead, exit_status=0), outcome, facts),
            (structs.replace(dead, stopped_by="me"), outcome, facts),
            (dead, structs.replace(outcome, end=End.EXITED), facts),
            (dead, outcome, later),
        ):
            assert aftermath.told_later(run, record, seen, among, never) is None


def kill_run(place: Place) -> str:
    """
    SIGKILL everything of the newest run, its supervisor first; its name.
    """
    (run,) = place.facts().runs
    assert run.process is not None
    os.kill(run.process.pid, signal.SIGKILL)
    for pid, start, _ in place.home.living():
        processes.end(pid, start)
    return run.name


class TestTheLookFails:
    """
    It never changes the ending.
    """

    @pytest.mark.parametrize("error", [CommandFailed("broken", hint="x"), ConnectionLost("away")])
    def test_and_is_noted(
        self, error: Exception, make_place: MakePlace, port: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """
        The verdict is made from what else is known.
        """
        monkeypatch.setattr(aftermath, "PATIENCE", 0.0)
        monkeypatch.setattr(aftermath, "look_after", lambda *_, **__: (_ for _ in ()).throw(error))
        place = make_place(hostile=Hostile(die_at="weights"))
        outcome = one_attempt(place, port)

        assert outcome.verdict is not None
        assert (Cause.VANISHED, {}) == (outcome.verdict.cause, outcome.after)
        assert any("could not be asked" in event.text for event in place.of(events.Note))

    def test_a_lost_line_is_tried_again(
        self, make_place: MakePlace, port: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """
        What could not be asked the first time is asked once more.
        """
        monkeypatch.setattr(retry, "RECONNECT_WAITS", (0.01,))
        asked: list[int] = []

        def look_after(*args: object, **named: object) -> object:
            asked.append(1)
            if len(asked) == 1:
                raise ConnectionLost("away")
            return remote.look_after(*args, **named)  # type: ignore[arg-type]

        monkeypatch.setattr(aftermath, "look_after", look_after)
        outcome = one_attempt(make_place(hostile=Hostile(oom_kill_at="weights")), port)

        assert 2 == len(asked)
        assert "oom_kill" in outcome.after

    def test_a_server_that_serves_is_not_looked_after(
        self, place: Place, port: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """
        There is nothing to explain.
        """
        monkeypatch.setattr(aftermath, "look_after", lambda *_, **__: pytest.fail("it was asked"))
        outcome = one_attempt(place, port)

        assert (End.READY, {}) == (outcome.end, outcome.after)
