"""
From launched to an ending: the one loop of the program.

It ends by the first of: the server looks ready and the listener is this attempt's own (the proof may
start); the exit record; the process gone without one; a failure in the log that no waiting can mend
(the process then gets a moment to die and is ended); a process without which nothing is answered lost while
the main one lives on; a stage's patience used up; the box gone.
"""

import contextlib
import queue
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from threading import Thread

from msgspec import Struct

from mtpdeploy.clock import Clock
from mtpdeploy.core import events
from mtpdeploy.core.diagnosis import End, Milestone, Stage, Verdict
from mtpdeploy.core.events import Emit
from mtpdeploy.core.launch import AttemptRecord
from mtpdeploy.core.lines import Line, Lines
from mtpdeploy.core.outcome import Report
from mtpdeploy.core.patience import Patience
from mtpdeploy.core.roster import Roster
from mtpdeploy.engines.base import Engine, LogReading
from mtpdeploy.remote.frames import (
    Ended,
    FollowEvent,
    Gone,
    Heartbeat,
    LineBack,
    LineLost,
    Listening,
    LogChanged,
    NewBytes,
)

Arriving = queue.Queue[FollowEvent | None]
"""What the follower delivers; None only wakes the loop."""

DOOM_GRACE = 10.0
"""
Seconds a doomed server may take to die by itself, so that its last words are in the log: the real one
is gone 1 to 3 s after a scheduler exception (SGLang 0.5.23 on a CPU, logs f02 to f13).
"""

TICK = 0.5
"""Seconds between looks at the clock while nothing arrives; no event waits for it."""

QUIET = 30.0
"""Seconds without a line after which that is told; again when twice as many have passed, and so on."""

QUIET_LONGEST = 300.0
"""Seconds between two times at most."""

HEALTH_AFTER = 10.0
"""
Seconds that a listening server may go without the ready line before its health is asked: the line
comes within a second of the warm-up (same logs), and each question generates a token.
"""

HEALTH_LONGEST = 60.0
"""
Seconds between two questions at most; the first are 10, 20 and 40 apart. Each takes up to 20 s of a stuck
server (SGLANG_HEALTH_CHECK_TIMEOUT) and leaves its token in the queue. A 200 only starts the proof: it is
given as soon as any token flows, and without a look at the scheduler where the generation is switched off.
"""


class Ending(Struct, frozen=True):
    """
    How the watching ended. For READY the process still runs and the proof is due.

    `foretold` is the verdict where the attempt was ended for what its own figures mean.
    """

    end: End
    exit_status: int | None = None
    after: dict[str, str] = {}
    by: str = ""
    foretold: Verdict | None = None


Foretell = Callable[[dict[str, float], Milestone], Verdict | None]
"""Says of a running attempt's figures, at a milestone, what they must end in; None where they need not."""


class Watch:
    """
    What is known about one running attempt while it is watched.

    `haste` says how many times as fast as a real one the server lives: the demo box's patience is short.
    """

    def __init__(
        self,
        record: AttemptRecord,
        engine: Engine,
        emit: Emit,
        clock: Clock,
        healthy: Callable[[], bool],
        foretell: Foretell | None = None,
        haste: float = 1.0,
    ) -> None:
        self.record = record
        self.reading: LogReading = engine.reading(record.sglang_version)
        self._engine = engine
        self._emit = emit
        self._clock = clock
        self._ask_health = healthy
        self._foretell = foretell
        self._haste = haste
        self._quiet_next = QUIET
        self._foretold: Verdict | None = None
        self._lines = Lines()
        self._owner = "none"
        self._ready_line: float | None = None
        self._blind = False
        self._healthy = False
        self._ask_at: float | None = None
        self._ask_wait = HEALTH_AFTER
        self._asking: Thread | None = None
        self._doomed_since: float | None = None
        self._patience = Patience(clock.monotonic())
        self._roster = Roster()
        self._progress = ""
        self._away = False

    def until_end(self, arriving: Arriving, proof: "Future[Report] | None" = None) -> Ending:
        """
        Consume what the follower delivers until the attempt has an ending.

        While a `proof` is under way READY is no ending by itself: the proof's end is, or the server's.
        """
        if proof is not None:
            proof.add_done_callback(lambda _proof: _wake(arriving))
        while True:
            try:
                ending = self._take(arriving.get(timeout=TICK))
            except queue.Empty:
                ending = None
            ending = ending or self._judge(proof)
            if ending is not None:
                return ending

    def death_within(self, arriving: Arriving, seconds: float) -> Ending | None:
        """
        The end of a server that stopped answering, if it comes soon; None where it lives on.

        A dying server breaks its connections before its exit is known.
        """
        until = self._clock.monotonic() + seconds
        while self._clock.monotonic() < until:
            try:
                ending = self._take(arriving.get(timeout=TICK))
            except queue.Empty:
                continue
            if ending is not None:
                return ending
        return None

    def read_copy(self, log: Path, length: int) -> None:
        """
        Read what was stored before, so that line numbers and stages are complete; nothing is told.
        """
        with log.open("rb") as file:
            while length > 0 and (data := file.read(min(length, 1 << 20))):
                for line in self._lines.feed(data):
                    for milestone in self.reading.feed(line.number, line.text):
                        self._note_ready(milestone)
                length -= len(data)

    def _take(self, event: FollowEvent | None) -> Ending | None:
        match event:
            case NewBytes(data=data):
                self._read(data)
            case Heartbeat():
                self._note_activity(event)
            case Listening(owner=owner):
                self._owner = owner
                self._ask_wait = HEALTH_AFTER
                self._ask_at = self._clock.monotonic() + HEALTH_AFTER if owner == "run" else None
            case Ended():
                return self._ended(event)
            case Gone(reason=reason):
                return Ending(End.LOST, after={"lost": reason})
            case LineLost(since=since):
                self._away = True
                self._emit(events.LineLost(at=self._clock.now(), since=since))
            case LineBack(gap_seconds=seconds):
                self._away = False
                self._begin_anew()
                self._emit(events.LineBack(at=self._clock.now(), seconds=seconds))
            case LogChanged(what=what):
                self._lines = Lines()
                self._emit(events.Note(at=self._clock.now(), text=f"the log on the box was {what}"))
        return None

    def _read(self, data: bytes) -> None:
        lines = self._lines.feed(data)
        if not lines or not all(self._engine.is_echo(line.text) for line in lines):
            self._begin_anew()
        self._show(lines)

    def _begin_anew(self) -> None:
        self._patience.begin_anew(self._clock.monotonic())
        self._quiet_next = QUIET

    def _show(self, lines: list[Line]) -> None:
        whole = [line for line in lines if not line.bar]
        if whole:
            texts = tuple(line.text for line in whole)
            attempt = self.record.attempt
            self._emit(
                events.LogLines(at=self._clock.now(), attempt=attempt, first=whole[0].number, lines=texts)
            )
        self._understand(lines)

    def _understand(self, lines: list[Line]) -> None:
        for line in lines:
            for milestone in self.reading.feed(line.number, line.text):
                self._reached(milestone)
        if self.reading.progress != self._progress:
            self._progress = self.reading.progress
            self._emit(
                events.Progress(at=self._clock.now(), attempt=self.record.attempt, text=self._progress)
            )

    def _reached(self, milestone: Milestone) -> None:
        self._note_ready(milestone)
        now = self._clock.now()
        self._emit(
            events.Reached(
                at=now,
                attempt=self.record.attempt,
                milestone=milestone,
                seconds=max(0.0, now - self.record.started_at),
            )
        )
        if self._foretell is not None and self._foretold is None:
            self._foretold = self._foretell(self.reading.figures, milestone)
            if self._foretold is not None:
                self._tell_foretold(self._foretold, milestone)

    def _tell_foretold(self, verdict: Verdict, milestone: Milestone) -> None:
        self._emit(
            events.Foretold(
                at=self._clock.now(),
                attempt=self.record.attempt,
                line=milestone.line,
                text=milestone.text,
                reason=verdict.because,
            )
        )

    def _note_ready(self, milestone: Milestone) -> None:
        if milestone.stage is Stage.READY and self._ready_line is None:
            self._ready_line = self._clock.monotonic()

    def _is_ours(self, now: float) -> bool:
        """
        Whether the listener is the attempt's own process, or where nobody can tell: whether it still lives
        some seconds after the ready line, which one that found its port taken does not.
        """
        blind = self._blind and self._ready_line is not None and now - self._ready_line > BLIND_WAIT
        return self._owner == "run" or blind

    def _note_activity(self, beat: Heartbeat) -> None:
        self._blind = beat.activity is None
        if beat.activity is not None:
            now = self._clock.monotonic()
            self._patience.note(now, beat.activity)
            scheduling = self.reading.stage not in (Stage.LAUNCHED, Stage.ARGUMENTS)
            self._roster.note(now, beat.activity, scheduling=scheduling)

    def _ended(self, event: Ended) -> Ending:
        self._show(self._lines.finish())
        stopped = event.record.get("stopped")
        if stopped:
            return Ending(End.STOPPED, exit_status=event.status, after={"stopped": f"stopped by {stopped}"})
        if event.vanished:
            return Ending(End.VANISHED)
        return Ending(End.EXITED, exit_status=event.status)

    def _judge(self, proof: "Future[Report] | None") -> Ending | None:
        now = self._clock.monotonic()
        ending = self._looks_ready(now) if proof is None else self._proved(proof)
        if ending is not None or self._away:
            # While the line is away nothing can be seen, so nothing is held against the server.
            return ending
        if self.reading.fatal is not None:
            return self._doom(now)
        if self._foretold is not None:
            return Ending(End.DOOMED, foretold=self._foretold)
        return self._maimed(now) or (self._out_of_patience(now) if proof is None else None)

    def _maimed(self, now: float) -> Ending | None:
        """
        The end of a server that has lost a process without which it answers nothing, unless it is stopping.
        """
        lost = self._roster.lost(now)
        if not lost or self.reading.evidence(End.DEAF, None, {}).told_to_stop is not None:
            return None
        told = ", ".join(w.title + (f" (pid {w.pid})" if w.pid else "") for w in lost)
        return Ending(End.DEAF, after={"worker_lost": f"{told} is gone, and the main process lives on"})

    def _proved(self, proof: "Future[Report]") -> Ending | None:
        return Ending(End.READY) if proof.done() else None

    def _looks_ready(self, now: float) -> Ending | None:
        if self._is_ours(now) and (self._ready_line is not None or self._healthy):
            return Ending(End.READY, by="ready line" if self._ready_line is not None else "health")
        if self._owner == "run" and self._ask_at is not None:
            self._ask_if_due(now)
        return None

    def _out_of_patience(self, now: float) -> Ending | None:
        full = self._engine.patience.get(self.reading.stage, DEFAULT_PATIENCE)
        patience = min(full, max(SHORTEST_PATIENCE, full / self._haste))
        ends, silent = self._patience.ends(patience), now - self._patience.quiet_since
        if now > ends:
            return Ending(End.STALLED, after={"patience": self._patience.because(now)})
        if silent >= self._quiet_next:
            self._quiet_next = silent + min(silent, QUIET_LONGEST)
            self._emit(
                events.Quiet(
                    at=self._clock.now(),
                    attempt=self.record.attempt,
                    stage=self.reading.stage,
                    seconds=silent,
                    left=ends - now,
                    signs=self._patience.signs,
                    blind=self._patience.is_blind,
                )
            )
        return None

    def _doom(self, now: float) -> Ending | None:
        fatal = self.reading.fatal
        if self._doomed_since is None and fatal is not None:
            self._doomed_since = now
            self._emit(
                events.Doomed(
                    at=self._clock.now(), attempt=self.record.attempt, line=fatal.line, text=fatal.text
                )
            )
        if self._doomed_since is not None and now - self._doomed_since > DOOM_GRACE:
            return Ending(End.DOOMED)
        return None

    def _ask_if_due(self, now: float) -> None:
        if self._ask_at is None or now < self._ask_at or (self._asking and self._asking.is_alive()):
            return
        self._ask_wait = min(2 * self._ask_wait, HEALTH_LONGEST)
        self._ask_at = now + self._ask_wait
        self._asking = Thread(target=self._learn_health, name="health", daemon=True)
        self._asking.start()

    def _learn_health(self) -> None:
        self._healthy = self._ask_health()


def _wake(arriving: Arriving) -> None:
    with contextlib.suppress(queue.Full):
        arriving.put_nowait(None)


BLIND_WAIT = 12.0
"""
Seconds after the ready line from which a server is taken for the listener where that cannot be looked up:
one that found its port taken printed the line, too, and was gone 4 s later (SGLang 0.5.23, log s20).
"""

SHORTEST_PATIENCE = 20.0
"""Seconds for a stage of a server that lives faster: a busy machine may keep it from running for as long."""

DEFAULT_PATIENCE = 900.0
"""Seconds for a stage that the engine names no patience for."""
