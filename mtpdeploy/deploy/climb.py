"""
The climb: attempt after attempt, decided by cause, from wherever an ascent stands to its end.

`up` enters it with nothing running, `attach` with an attempt that another client launched.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime

from msgspec import structs, to_builtins

from mtpdeploy.core import events
from mtpdeploy.core.diagnosis import Cause, End
from mtpdeploy.core.foresight import Foreseen
from mtpdeploy.core.ladder import Step, next_step
from mtpdeploy.core.launch import AttemptRecord, log_name, run_name
from mtpdeploy.core.machine import Facts
from mtpdeploy.core.memory import Forecast
from mtpdeploy.core.outcome import Ascent, Outcome
from mtpdeploy.core.server import ServerSpec, changes
from mtpdeploy.core.units import counted
from mtpdeploy.deploy.attempt import Attempt, check_flags
from mtpdeploy.deploy.calibration import Memory
from mtpdeploy.deploy.ground import clear_way, look
from mtpdeploy.deploy.journal import Journal
from mtpdeploy.deploy.order import Order, Tools
from mtpdeploy.deploy.planner import Foreteller, Unplanned, look_ahead, nothing_fits
from mtpdeploy.errors import ConfigError, MtpDeployError
from mtpdeploy.remote import lock
from mtpdeploy.remote.retry import again, repeat_wait


class Climb:
    """
    One ascent on one box while the lease is ours.
    """

    def __init__(
        self, order: Order, tools: Tools, journal: Journal, facts: Facts, lease: lock.Lease, ascent: Ascent
    ) -> None:
        self._order = order
        self._tools = tools
        self._journal = journal
        self._facts = facts
        self._lease = lease
        self.ascent = ascent

    def from_start(self) -> Ascent:
        """
        Launch the server as asked, and climb from there; with `detach` only launch it.
        """
        with self._error_kept():
            first = self._forward(Step(self._order.server, None, "as asked"))
            return self.ascent if self._order.options.detach else self._go(first)

    def from_running(self, record: AttemptRecord, known: Outcome | None = None) -> Ascent:
        """
        Go on with an attempt that was launched already, whoever launched it; `known` as it was proved.
        """
        with self._error_kept():
            return self._go(self._attempt(record), known)

    def from_outcome(self) -> Ascent:
        """
        Go on after an attempt whose outcome is known, as if it had just ended.
        """
        with self._error_kept():
            following = self._decide()
            return self.ascent if following is None else self._go(following)

    @contextmanager
    def _error_kept(self) -> Iterator[None]:
        """
        Write an error that ends the climb into the journal; the screen is told by whoever catches it.
        """
        try:
            yield
        except MtpDeployError as error:
            failed = events.Failed(
                at=self._tools.clock.now(),
                error=error.message,
                hint=error.hint,
                exit_status=error.exit_status,
            )
            with suppress(ConfigError):
                self._journal.event(failed)
            raise

    def _go(self, attempt: Attempt, known: Outcome | None = None) -> Ascent:
        while True:
            outcome = attempt.see_through(known)
            self._add(outcome, again=known is not None)
            following = None if outcome.end is End.READY else self._decide()
            if following is None:
                return self.ascent
            attempt, known = following, None

    def _decide(self) -> Attempt | None:
        """
        Launch what the last verdict calls for, or say why nothing is.
        """
        step = self._step()
        goes_on, now = step.server is not None, self._tools.clock.now()
        repeats = len(self.ascent.tried(self._cause())) if goes_on and step.rung is None else 0
        wait = repeat_wait(repeats) if repeats else 0.0
        self._tools.emit(
            events.NextStep(at=now, goes_on=goes_on, rung=step.rung, reason=step.reason, wait=wait)
        )
        if step.server is None:
            self.ascent = structs.replace(self.ascent, stopped_because=step.reason)
            self._journal.ascent(self.ascent)
            return None
        if wait:
            self._tools.clock.sleep(wait)
        again(lambda: lock.keep(self._tools.box, self._lease))
        self._facts = look(self._tools, self._order.server)
        return self._forward(step)

    def _forward(self, step: Step) -> Attempt:
        """
        Launch what a step suggests, or the next configuration on the ladder that is predicted to fit.

        Raises:
            BoxUnfit: it is the first step, and nothing on the ladder is predicted to fit.
        """
        if step.server is not None:
            check_flags(step.server, self._tools, self._facts)
        foreseen = self._foresee(step)
        if foreseen is None or foreseen.server is None:
            foreseen = Foreseen(step.server, (step.rung,) if step.rung else (), (), None)
        server, taken = foreseen.server or self._order.server, foreseen.rungs
        reason = step.reason if server == step.server else "the cheapest concession predicted to fit"
        return self._launch(server, "+".join(taken) or None, reason, foreseen.forecast)

    def _foresee(self, step: Step) -> Foreseen | None:
        """
        What forecasts make of a step; None where nothing can be forecast, or nothing is to be.
        """
        if not self._order.options.plan:
            return None
        tools, first = self._tools, not self.ascent.outcomes
        found = look_ahead(
            step, self._order, self._facts, self.ascent, engine=tools.engine, state=tools.state
        )
        if isinstance(found, Unplanned):
            tools.note(f"not planned: {found.why}")
            return None
        if found.proven:
            tools.note("this configuration was ready here before")
        if found.server is None and first:
            raise nothing_fits(self._order, self._facts, found)
        if found.server is None:
            tools.note("nothing left on the ladder is predicted to fit; it is tried all the same")
        else:
            tools.emit(
                events.Planned(
                    at=tools.clock.now(), forecast=found.forecast, rungs=found.rungs, passed=found.passed
                )
            )
        return found

    def _cause(self) -> Cause:
        verdict = self.ascent.outcomes[-1].verdict
        return verdict.cause if verdict else Cause.UNKNOWN

    def _step(self) -> Step:
        allowed = self._order.options.max_attempts
        last = self.ascent.outcomes[-1]
        if last.end is End.LOST:
            return Step(None, None, "the box is out of reach; `mtpdeploy attach` goes on once it is back")
        if len(self.ascent.outcomes) >= allowed:
            limit = counted(allowed, "attempt was", "attempts were")
            return Step(None, None, f"{limit} allowed (--max-attempts)")
        return next_step(self._order.ladder, self.ascent, self._facts.sglang_version or "")

    def _launch(
        self, server: ServerSpec, rung: str | None, reason: str, forecast: Forecast | None = None
    ) -> Attempt:
        check_flags(server, self._tools, self._facts)
        self._facts = clear_way(self._order, self._tools, self._facts)
        attempt = self._attempt(self._record(server, rung), forecast)
        attempt.launch(
            reason=reason,
            changed=self._against_last(server),
            conceded=tuple(str(c) for c in changes(self.ascent.asked, server)),
        )
        return attempt

    def _attempt(self, record: AttemptRecord, forecast: Forecast | None = None) -> Attempt:
        attempt = Attempt(record, self._tools, self._journal, self._facts, self._lease)
        options = self._order.options
        if options.plan and options.early_end:
            attempt.foretell = Foreteller(record, self._tools, self._facts)
        attempt.forecast = forecast
        return attempt

    def _record(self, server: ServerSpec, rung: str | None) -> AttemptRecord:
        number = len(self.ascent.outcomes) + 1
        moment = datetime.fromtimestamp(self._tools.clock.now(), UTC)
        return AttemptRecord(
            ascent=self.ascent.id,
            attempt=number,
            run=run_name(moment, server.name, self.ascent.id, number),
            log=log_name(moment, number),
            started_at=moment.timestamp(),
            asked=self.ascent.asked,
            server=server,
            rung=rung,
            sglang_version=self._facts.sglang_version or "",
            before=tuple(to_builtins(outcome) for outcome in self.ascent.outcomes),
            options={"order": to_builtins(self._order.options), "ladder": self._order.ladder.name},
            client=lock.whoami(),
            compares=self.ascent.compares,
            original=self._order.original,
        )

    def _against_last(self, server: ServerSpec) -> tuple[str, ...]:
        last = self.ascent.outcomes[-1].server if self.ascent.outcomes else self.ascent.asked
        return tuple(str(c) for c in changes(last, server))

    def _add(self, outcome: Outcome, *, again: bool) -> None:
        self.ascent = structs.replace(self.ascent, outcomes=(*self.ascent.outcomes, outcome))
        self._journal.outcome(outcome)
        if outcome.end is not End.LOST:
            rungs = tuple(rung for o in self.ascent.outcomes for rung in (o.rung or "").split("+") if rung)
            memory = Memory(self._tools.state, self._facts)
            memory.keep(self.ascent.asked, outcome, rungs, self._tools.clock.now())
        self._journal.ascent(self.ascent)
        self._tools.emit(events.AttemptEnded(at=self._tools.clock.now(), outcome=outcome, again=again))
