"""
The one loop of the program, on a clock that jumps and with events put in by hand.
"""

import threading
from concurrent.futures import Future
from pathlib import Path

import pytest

from mtpdeploy.core import events
from mtpdeploy.core.diagnosis import Cause, End, Stage
from mtpdeploy.core.outcome import Report
from mtpdeploy.core.patience import ALONE_MULTIPLE, BLIND_MULTIPLE, Worker
from mtpdeploy.core.roster import LOST_GRACE
from mtpdeploy.core.verdict import diagnose
from mtpdeploy.deploy.attempt import DEATH_GRACE
from mtpdeploy.deploy.watch import (
    DEFAULT_PATIENCE,
    DOOM_GRACE,
    HEALTH_AFTER,
    SHORTEST_PATIENCE,
    TICK,
    Ending,
)
from mtpdeploy.engines.sglang import PATIENCE, SGLANG
from mtpdeploy.remote.frames import Ended, Gone, LineBack, LineLost, LogChanged
from tests.deploy.scripted import (
    FATAL,
    FOREIGN,
    NOBODY,
    OWN,
    READY_LINE,
    SERVER_ARGUMENTS,
    WEIGHTS_BEGIN,
    WEIGHTS_END,
    Watched,
    beat,
    log,
    workers,
)

UVICORN = "[2026-12-01 03:15:15] INFO:     Uvicorn running on http://127.0.0.1:33007 (Press CTRL+C to quit)"
EXIT_3 = Ended(3, vanished=False, record={"status": 3, "stopped": ""})


class TestReady:
    """
    READY takes both: a sign of the server, and a listener that is the attempt's own.
    """

    def test_ready_line_and_own_listener(self) -> None:
        """
        The ready line of a run that listens itself ends the watching.
        """
        watched = Watched()

        ending = watched.watch.until_end(watched.script(OWN, log(READY_LINE)))

        assert Ending(End.READY, by="ready line") == ending

    def test_listener_may_come_after_the_line(self) -> None:
        """
        The line may be seen before the listener is: READY comes with the listener.
        """
        watched = Watched()
        begun = watched.clock.monotonic()

        ending = watched.watch.until_end(watched.script(NOBODY, log(READY_LINE), 5.0, OWN))

        assert Ending(End.READY, by="ready line") == ending
        assert 5.0 == watched.clock.monotonic() - begun

    def test_ready_line_with_a_foreign_listener_is_never_ready(self) -> None:
        """
        With an old server on the port the real SGLang prints the ready line and then exits 3.
        """
        watched = Watched(healthy=lambda: True)

        ending = watched.watch.until_end(watched.script(FOREIGN, log(READY_LINE), 60.0, EXIT_3))

        assert Ending(End.EXITED, exit_status=3) == ending
        assert 0 == watched.asked_health

    def test_health_without_a_ready_line(self) -> None:
        """
        Where the wording of the ready line is not known, health of an own listener starts the proof.
        """
        watched = Watched(healthy=lambda: True)
        begun = watched.clock.monotonic()

        ending = watched.watch.until_end(watched.script(OWN, log("all set, off we go")))

        assert Ending(End.READY, by="health") == ending
        assert HEALTH_AFTER <= watched.clock.monotonic() - begun

    def test_health_is_asked_one_at_a_time(self) -> None:
        """
        A server that keeps the question waiting is not asked again meanwhile.
        """
        answered = threading.Event()
        watched = Watched(healthy=answered.wait)

        ending = watched.watch.until_end(watched.script(OWN, 200.0, EXIT_3))
        answered.set()

        assert End.EXITED is ending.end
        assert 1 == watched.asked_health

    def test_health_is_asked_ever_more_seldom(self) -> None:
        """
        Each question generates a token: 10, 30, 70 s after the port was open, and then every minute.
        """
        watched = Watched(healthy=lambda: False)

        watched.watch.until_end(watched.script(OWN, 300.0, EXIT_3))

        assert 6 == watched.asked_health

    def test_health_is_forgotten_with_the_listener(self) -> None:
        """
        The time until health is asked begins anew when the listener was gone in between.
        """
        watched = Watched(healthy=lambda: True)

        watched.watch.until_end(
            watched.script(OWN, HEALTH_AFTER / 2, NOBODY, HEALTH_AFTER, OWN, HEALTH_AFTER / 2, EXIT_3)
        )

        assert 0 == watched.asked_health


class TestDoom:
    """
    A failure that no waiting can mend.
    """

    def test_last_words_within_the_grace_are_the_exit(self) -> None:
        """
        A doomed server that dies by itself has its exit status, and the cause is the line's.
        """
        watched = Watched()
        last_words = log("[2026-12-01 05:12:27] SIGQUIT received. signum=None, frame=None.")
        died = Ended(137, vanished=False, record={"status": 137})

        ending = watched.watch.until_end(watched.script(log(*FATAL), DOOM_GRACE / 2, last_words, TICK, died))
        verdict = diagnose(
            watched.watch.reading.evidence(ending.end, ending.exit_status, ending.after), SGLANG.knowledge
        )

        assert Ending(End.EXITED, exit_status=137) == ending
        assert (Cause.OOM_KV_POOL, 4) == (verdict.cause, verdict.line)
        assert [4] == [event.line for event in watched.of(events.Doomed)]

    def test_one_that_does_not_die_is_doomed_after_the_grace(self) -> None:
        """
        A doomed server that lives on is given up after the grace, not after the stage's patience.
        """
        watched = Watched()
        begun = watched.clock.monotonic()

        ending = watched.watch.until_end(watched.script(OWN, log(*FATAL)))

        assert Ending(End.DOOMED) == ending
        assert DOOM_GRACE < watched.clock.monotonic() - begun <= DOOM_GRACE + 2 * TICK


class TestPatience:
    """
    How long a stage may pass without any sign of progress.
    """

    @pytest.mark.parametrize(
        ("lines", "patience"),
        [
            ((), PATIENCE[Stage.LAUNCHED]),
            ((SERVER_ARGUMENTS,), PATIENCE[Stage.ARGUMENTS]),
            ((SERVER_ARGUMENTS, WEIGHTS_BEGIN), PATIENCE[Stage.WEIGHTS_BEGUN]),
            ((SERVER_ARGUMENTS, WEIGHTS_BEGIN, WEIGHTS_END), DEFAULT_PATIENCE),
        ],
    )
    def test_each_stage_has_its_own(self, lines: tuple[str, ...], patience: float) -> None:
        """
        Silence ends an attempt when the patience of the stage is used up, and not before.
        """
        watched = Watched()
        begun = watched.clock.monotonic()

        ending = watched.watch.until_end(watched.script(beat(0.0), *([log(*lines)] if lines else [])))

        assert End.STALLED is ending.end
        assert patience < watched.clock.monotonic() - begun <= patience + 2 * TICK
        assert "and no other sign of work" in ending.after["patience"]

    def test_where_only_the_log_can_be_seen_it_is_longer(self) -> None:
        """
        A box without a reader shows no bytes of a download: silence means less there.
        """
        watched = Watched()
        begun = watched.clock.monotonic()
        patience = BLIND_MULTIPLE * PATIENCE[Stage.WEIGHTS_BEGUN]

        ending = watched.watch.until_end(watched.script(log(WEIGHTS_BEGIN), beat(), 30.0))

        assert End.STALLED is ending.end
        assert patience < watched.clock.monotonic() - begun <= patience + 2 * TICK
        assert watched.of(events.Quiet)[0].blind

    def test_any_byte_of_the_log_is_progress(self) -> None:
        """
        A bar that moves without a newline keeps an attempt alive.
        """
        watched = Watched()
        almost = PATIENCE[Stage.LAUNCHED] - 1
        begun = watched.clock.monotonic()

        watched.watch.until_end(watched.script(beat(0.0), almost, log("x"), almost, log("y")))

        assert watched.clock.monotonic() - begun > 3 * almost

    def test_an_answer_about_health_is_no_line_of_work(self) -> None:
        """
        A server that hangs while it listens prints a line for each question of ours, for ever.
        """
        watched = Watched()
        begun = watched.clock.monotonic()
        answer = log('[2026-12-01 02:41:17] INFO:     127.0.0.1:5550 - "GET /health HTTP/1.1" 503 Wait')
        patience = PATIENCE[Stage.LISTENING]

        ending = watched.watch.until_end(
            watched.script(log(UVICORN), beat(0.0), *(said for _ in range(90) for said in (answer, 30.0)))
        )

        assert End.STALLED is ending.end
        assert patience < watched.clock.monotonic() - begun <= patience + 2 * TICK

    def test_work_outlasts_the_patience_of_its_stage(self) -> None:
        """
        Half an hour of kernel builds without a line of the log is no stall; it is shown as what it is.
        """
        watched = Watched()
        builds = [(beat(5.0 * n, cpu=9.0 * n, compilers=("cicc", "ninja")), 5.0) for n in range(360)]

        ending = watched.watch.until_end(
            watched.script(log(SERVER_ARGUMENTS), *(said for pair in builds for said in pair), EXIT_3)
        )

        assert End.EXITED is ending.end
        assert ("cicc", "ninja") == watched.of(events.Quiet)[-1].signs[0].names
        assert 1500.0 < watched.of(events.Quiet)[-1].seconds

    def test_computing_alone_is_believed_for_a_while(self) -> None:
        """
        A rank that spins in NCCL burns a core for ever: it ends, and the verdict says what was seen.
        """
        watched = Watched()
        begun = watched.clock.monotonic()
        spins = [(beat(5.0 * n, cpu=5.0 * n), 5.0) for n in range(400)]
        patience = ALONE_MULTIPLE * PATIENCE[Stage.ARGUMENTS]

        ending = watched.watch.until_end(
            watched.script(log(SERVER_ARGUMENTS), *(said for pair in spins for said in pair))
        )
        verdict = diagnose(watched.watch.reading.evidence(ending.end, None, ending.after), SGLANG.knowledge)

        assert End.STALLED is ending.end
        assert patience < watched.clock.monotonic() - begun <= patience + 2 * TICK
        assert "nothing but CPU time or a busy GPU, which a deadlock shows as well" in verdict.because
        assert Cause.STALLED is verdict.cause

    def test_silence_is_told_before_it_is_held_against_the_server(self) -> None:
        """
        Silence is told after half a minute and again when twice as much has passed, with what is left.
        """
        watched = Watched()

        watched.watch.until_end(watched.script(beat(0.0), 95.0, log(WEIGHTS_BEGIN), 40.0, EXIT_3))
        told = [(round(quiet.seconds), round(quiet.left)) for quiet in watched.of(events.Quiet)]

        launched, loading = PATIENCE[Stage.LAUNCHED], PATIENCE[Stage.WEIGHTS_BEGUN]
        assert [(30, launched - 30), (60, launched - 60), (30, loading - 30)] == told

    def test_a_server_that_lives_faster_stalls_sooner(self) -> None:
        """
        The demo box's patience is short, but not so short that a busy machine uses it up.
        """
        watched = Watched(haste=30.0)
        begun = watched.clock.monotonic()

        assert End.STALLED is watched.watch.until_end(watched.script(beat(0.0), 1000.0)).end
        assert SHORTEST_PATIENCE < watched.clock.monotonic() - begun <= SHORTEST_PATIENCE + 2 * TICK

    def test_a_broken_line_is_no_stall(self) -> None:
        """
        While the line is down nothing can be seen, and nothing is held against the server.
        """
        watched = Watched()
        away = 8 * PATIENCE[Stage.LAUNCHED]

        ending = watched.watch.until_end(
            watched.script(10.0, LineLost(0.0, "cut"), away, LineBack(away), OWN, log(READY_LINE))
        )

        assert Ending(End.READY, by="ready line") == ending

    def test_a_line_that_is_back_begins_the_patience_anew(self) -> None:
        """
        After the line is back, a silent server has its whole patience, and no more.
        """
        watched = Watched()
        begun = watched.clock.monotonic()
        patience = PATIENCE[Stage.LAUNCHED]

        ending = watched.watch.until_end(
            watched.script(beat(0.0), LineLost(0.0, "cut"), 400.0, LineBack(400.0))
        )

        assert End.STALLED is ending.end
        assert patience < watched.clock.monotonic() - begun - 400.0 <= patience + 2 * TICK


class TestLostWorkers:
    """
    A server whose scheduler or detokenizer is gone answers nothing, whatever its port says.
    """

    FAMILY = ("sglang::scheduler", "sglang::detokenizer")

    @pytest.mark.parametrize(
        ("left", "cause"),
        [
            (("sglang::detokenizer",), Cause.SCHEDULER_DIED),
            (("sglang::scheduler",), Cause.DETOKENIZER_DIED),
        ],
    )
    @pytest.mark.parametrize("proving", [False, True])
    def test_is_deaf_after_a_grace(self, left: tuple[str, ...], cause: Cause, proving: bool) -> None:
        """
        Before ready and under the proof, without waiting for the stage's patience or for a request's end.
        """
        watched = Watched()
        begun = watched.clock.monotonic()
        proof: Future[Report] | None = Future() if proving else None

        ending = watched.watch.until_end(
            watched.script(
                beat(0.0, workers=workers(*self.FAMILY)), 5.0, beat(5.0, workers=workers_named(left))
            ),
            proof=proof,
        )
        verdict = diagnose(watched.watch.reading.evidence(ending.end, None, ending.after), SGLANG.knowledge)

        assert (End.DEAF, cause) == (ending.end, verdict.cause)
        assert "is gone, and the main process lives on" in verdict.because
        assert LOST_GRACE <= watched.clock.monotonic() - begun - 5.0 <= LOST_GRACE + 2 * TICK

    def test_the_end_of_the_server_goes_before(self) -> None:
        """
        Newer servers notice and end: their exit is the ending.
        """
        watched = Watched()

        ending = watched.watch.until_end(
            watched.script(beat(0.0, workers=workers(*self.FAMILY)), 5.0, beat(5.0), 7.0, EXIT_3)
        )

        assert Ending(End.EXITED, exit_status=3) == ending

    def test_one_that_is_stopping_is_let_go(self) -> None:
        """
        A server that was told to end lets its scheduler go first and finishes its requests.
        """
        watched = Watched()
        told = log(
            "[2026-12-01 05:12:27] SIGTERM received. signum=None frame=None. Draining requests and "
            "shutting down..."
        )

        ending = watched.watch.until_end(
            watched.script(told, beat(0.0, workers=workers(*self.FAMILY)), 5.0, beat(5.0), 60.0, EXIT_3)
        )

        assert End.EXITED is ending.end


def workers_named(titles: tuple[str, ...]) -> tuple[Worker, ...]:
    """
    Those of a whole family that have these titles.
    """
    return tuple(worker for worker in workers(*TestLostWorkers.FAMILY) if worker.title in titles)


class TestDying:
    """
    A server that leaves a request unanswered may be dying or deaf.
    """

    def test_its_end_goes_before_its_silence(self) -> None:
        """
        The exit that is known a moment later says more than the broken connection.
        """
        watched = Watched()

        assert Ending(End.EXITED, exit_status=3) == watched.watch.death_within(
            watched.script(2.0, EXIT_3), DEATH_GRACE
        )

    def test_one_that_lives_on_is_deaf(self) -> None:
        """
        After the grace nothing is known of an end.
        """
        watched = Watched()
        begun = watched.clock.monotonic()

        assert watched.watch.death_within(watched.script(OWN, 60.0), DEATH_GRACE) is None
        assert DEATH_GRACE <= watched.clock.monotonic() - begun <= DEATH_GRACE + 2 * TICK


class TestEnds:
    """
    What the follower says of the end.
    """

    def test_gone_is_lost(self) -> None:
        """
        A box out of reach for good is LOST, whatever runs there.
        """
        watched = Watched()

        ending = watched.watch.until_end(watched.script(OWN, Gone("no answer for 600 s")))

        assert Ending(End.LOST, after={"lost": "no answer for 600 s"}) == ending

    def test_a_stop_note_is_stopped(self) -> None:
        """
        An end that somebody ordered is no failure of the server, and says who ordered it.
        """
        watched = Watched()
        stopped = Ended(143, vanished=False, record={"status": 143, "stopped": "ada@laptop"})

        ending = watched.watch.until_end(watched.script(OWN, stopped))
        verdict = diagnose(watched.watch.reading.evidence(ending.end, 143, ending.after), SGLANG.knowledge)

        assert End.STOPPED is ending.end
        assert Cause.STOPPED is verdict.cause
        assert "stopped by ada@laptop" == verdict.because

    def test_no_record_is_vanished(self) -> None:
        """
        A process that is gone without a record was killed from outside.
        """
        watched = Watched()

        ending = watched.watch.until_end(watched.script(Ended(None, vanished=True, record={})))

        assert Ending(End.VANISHED) == ending

    def test_a_line_without_an_end_counts(self) -> None:
        """
        Last words without a newline are read, too.
        """
        watched = Watched()
        said = log(*FATAL)
        cut = type(said)(0, said.data.rstrip(b"\n"))

        watched.watch.until_end(watched.script(cut, EXIT_3))

        assert [Cause.OOM_KV_POOL] == [
            f.cause for f in watched.watch.reading.evidence(End.EXITED, 3, {}).findings
        ]

    def test_lost_and_back_are_told(self) -> None:
        """
        The screen is told that the line broke, and for how long.
        """
        watched = Watched()

        watched.watch.until_end(watched.script(LineLost(5.0, "cut"), LineBack(7.5), EXIT_3))

        assert [5.0] == [event.since for event in watched.of(events.LineLost)]
        assert [7.5] == [event.seconds for event in watched.of(events.LineBack)]

    def test_a_log_that_began_anew_counts_its_lines_from_one(self) -> None:
        """
        After a truncation line numbers are those of the new content, and the user is told.
        """
        watched = Watched()

        watched.watch.until_end(watched.script(log("a", "b"), LogChanged("truncated", 4), log("c"), EXIT_3))

        assert [(1, ("a", "b")), (1, ("c",))] == [
            (event.first, event.lines) for event in watched.of(events.LogLines)
        ]
        assert ["the log on the box was truncated"] == [event.text for event in watched.of(events.Note)]


class TestProof:
    """
    While real requests are under way, READY is the proof's end, unless the server dies first.
    """

    def test_death_while_the_proof_runs(self) -> None:
        """
        A server that dies under the first real requests is not ready.
        """
        watched = Watched()
        watched.watch.until_end(watched.script(OWN, log(READY_LINE)))
        proof: Future[Report] = Future()

        ending = watched.watch.until_end(watched.script(1.0, log(*FATAL), EXIT_3), proof=proof)

        assert Ending(End.EXITED, exit_status=3) == ending

    def test_a_failure_in_the_log_ends_a_proof_that_hangs(self) -> None:
        """
        A scheduler that died without ending the process leaves requests unanswered: the log decides.
        """
        watched = Watched()
        watched.watch.until_end(watched.script(OWN, log(READY_LINE)))
        proof: Future[Report] = Future()

        ending = watched.watch.until_end(watched.script(log(*FATAL)), proof=proof)

        assert Ending(End.DOOMED) == ending

    def test_the_end_of_the_proof_is_the_end(self) -> None:
        """
        The proof wakes the loop, whatever it found out.
        """
        watched = Watched()
        watched.watch.until_end(watched.script(OWN, log(READY_LINE)))
        proof: Future[Report] = Future()
        script = watched.script(3.0)
        threading.Timer(0.05, proof.set_result, [Report((), None)]).start()

        ending = watched.watch.until_end(script, proof=proof)

        assert Ending(End.READY) == ending


class TestCopy:
    """
    Going on from a copy that was stored before.
    """

    def test_stages_and_numbers_go_on(self, tmp_path: Path) -> None:
        """
        The copy is read without being told again; numbers, stages and the ready line count on.
        """
        watched = Watched()
        copy = tmp_path / "log"
        stored = log(SERVER_ARGUMENTS, WEIGHTS_BEGIN, READY_LINE).data
        copy.write_bytes(stored + b"beyond what was stored when it was opened\n")
        watched.watch.read_copy(copy, len(stored))

        ending = watched.watch.until_end(watched.script(log("more"), OWN))

        assert Ending(End.READY, by="ready line") == ending
        assert [(4, ("more",))] == [(e.first, e.lines) for e in watched.of(events.LogLines)]
        assert [] == watched.of(events.Reached)

    def test_a_line_cut_by_the_end_of_the_copy(self, tmp_path: Path) -> None:
        """
        A line whose first half is in the copy and whose second half comes is one line.
        """
        watched = Watched()
        copy = tmp_path / "log"
        whole = log(READY_LINE).data
        copy.write_bytes(whole[:30])
        watched.watch.read_copy(copy, 30)

        ending = watched.watch.until_end(watched.script(type(log())(30, whole[30:]), OWN))

        assert End.READY is ending.end
        assert [(1, (READY_LINE,))] == [(e.first, e.lines) for e in watched.of(events.LogLines)]
