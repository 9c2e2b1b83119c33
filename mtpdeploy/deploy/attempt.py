"""
One rung, once: render, launch, follow, prove, and name how it ended.
"""

import queue
from pathlib import Path
from typing import Any

from msgspec import Struct, json, structs

from mtpdeploy import render
from mtpdeploy.core import events
from mtpdeploy.core.diagnosis import End
from mtpdeploy.core.judgement import judge
from mtpdeploy.core.launch import ATTEMPT_FILE, SECRETS_FILE, AttemptRecord
from mtpdeploy.core.machine import Facts, Host
from mtpdeploy.core.memory import Forecast
from mtpdeploy.core.outcome import Outcome, Report
from mtpdeploy.core.server import ServerSpec
from mtpdeploy.deploy.aftermath import with_aftermath
from mtpdeploy.deploy.background import in_background
from mtpdeploy.deploy.calibration import compare
from mtpdeploy.deploy.environment import with_environment
from mtpdeploy.deploy.journal import Journal, LocalCopy
from mtpdeploy.deploy.order import Tools
from mtpdeploy.deploy.stacks import with_stacks
from mtpdeploy.deploy.verify import verifier
from mtpdeploy.deploy.watch import Arriving, Ending, Foretell, Watch
from mtpdeploy.engines.base import Engine
from mtpdeploy.errors import BoxUnreachable, ConnectionLost
from mtpdeploy.onbox import script
from mtpdeploy.remote import http, lock
from mtpdeploy.remote.box import Stream
from mtpdeploy.remote.follow import QUEUE_EVENTS, Follower, LogSource
from mtpdeploy.remote.poll import polled_on
from mtpdeploy.remote.retry import again
from mtpdeploy.remote.run import Run, stop, write_outcome

DEATH_GRACE = 5.0
"""
Seconds in which a server that left a request unanswered may turn out to be dying: the real one is gone 1 to
3 s after a scheduler exception (SGLang 0.5.23 on a CPU, logs f02 to f13).
"""

SETTLE_GRACE = 5.0
"""
Seconds for what a failed attempt left behind to end by itself: SGLang drains requests first, without end
where its scheduler is gone (facts, section 6), and here nobody's requests are worth it.
"""

DEMO_HASTE = 30.0
"""How many times as fast the demo box lives (`speed`, where nobody says otherwise)."""


class Place(Struct, frozen=True):
    """
    Where on the box an attempt runs: the work directory and the interpreter that has SGLang.
    """

    work_dir: str
    python: str


def place_of(facts: Facts) -> Place:
    """
    The place that a survey found.
    """
    return Place(work_dir=facts.work_dir, python=facts.python or "python3")


def check_flags(server: ServerSpec, tools: Tools, facts: Facts) -> None:
    """
    Refuse what the version on the box does not know before anything there is ended for its sake.

    Raises:
        ConfigError: a flag or a value that this version does not take; says what to use.
    """
    tools.engine.command(server, place_of(facts).python, facts.sglang_version or "")


def render_files(
    record: AttemptRecord, engine: Engine, place: Place, *, host: Host, templates: Path | None
) -> dict[str, str]:
    """
    The files of an attempt's run directory, by name.

    Raises:
        ConfigError: a value that no program can be given, or a fault in a user's template.
    """
    command = engine.command(record.server, place.python, record.sglang_version)
    run = Run(work_dir=place.work_dir, name=record.run, python=place.python)
    files = render.render_launch(
        run=record.run,
        run_dir=run.directory,
        log=record.log,
        attempt=record,
        command=command,
        env=host.env,
        secrets=record.server.secrets,
        secrets_file=f"{place.work_dir}/{SECRETS_FILE}",
        python=run.python,
        template_dir=templates,
    )
    return {**files, ATTEMPT_FILE: json.encode(record).decode()}


class Attempt:
    """
    One attempt on one box, launched by us or by another client.
    """

    def __init__(
        self, record: AttemptRecord, tools: Tools, journal: Journal, facts: Facts, lease: lock.Lease | None
    ) -> None:
        self._record = record
        self._tools = tools
        self._journal = journal
        self._facts = facts
        self._place = place_of(facts)
        self._simulated = facts.simulated
        self._lease = lease
        self._launched = False
        self._polling = False
        self.foretell: Foretell | None = None
        self.forecast: Forecast | None = None
        self._run = Run(work_dir=self._place.work_dir, name=record.run, python=self._place.python)

    def launch(self, *, reason: str, changed: tuple[str, ...], conceded: tuple[str, ...]) -> None:
        """
        Render the script, write down what is tried, and launch it; all of the box's part in one exec.

        Raises:
            ConfigError: the version on the box does not know a flag.
            BoxUnfit: no space, or the work directory cannot be written.
            ConnectionLost: the box does not answer within the retry policy.
        """
        record, tools = self._record, self._tools
        command = tools.engine.command(record.server, self._place.python, record.sglang_version)
        files = render_files(
            record, tools.engine, self._place, host=tools.box.host, templates=tools.templates
        )
        self._journal.attempt(record, files)
        self._launched = True
        self._emit_begun(command.argv, command.notes, reason, changed, conceded)
        begun = tools.clock.monotonic()
        note = f"{record.client} launches attempt {record.attempt} of {record.server.name}"
        launched = again(lambda: self._run.create_and_launch(tools.box, files, note=note))
        tools.emit(
            events.Launched(
                at=tools.clock.now(),
                attempt=record.attempt,
                pid=launched.process.pid,
                run_dir=self._run.directory,
                seconds=tools.clock.monotonic() - begun,
            )
        )

    def see_through(self, known: Outcome | None = None) -> Outcome:
        """
        Follow the attempt to its end and say how it ended. A server that serves goes on serving.

        `known` is its outcome where it was ready before and is proved once more: its time stays.
        """
        tools = self._tools
        watch = Watch(
            self._record,
            tools.engine,
            tools.emit,
            tools.clock,
            self._healthy,
            self.foretell,
            haste=DEMO_HASTE if self._simulated else 1.0,
        )
        arriving: Arriving = queue.Queue(QUEUE_EVENTS)
        with LocalCopy(self._journal.log_path(self._record)) as copy:
            if copy.length:
                watch.read_copy(copy.path, copy.length)
            if not self._launched:
                tools.emit(
                    events.Following(
                        at=tools.clock.now(),
                        record=self._record,
                        offset=copy.length,
                        stage=watch.reading.stage,
                        proved=known is not None,
                    )
                )
            with self._follower(copy, arriving):
                ending = watch.until_end(arriving)
                report = None
                if ending.end is End.READY:
                    ending, report = self._prove(watch, arriving, ending)
        ending = with_stacks(ending, self._record, self._run, tools, self._journal)
        outcome = self._outcome(watch, ending, report)
        if known is not None and outcome.end is End.READY:
            outcome = structs.replace(outcome, seconds=known.seconds)
        self._compare(outcome)
        self._settle(outcome)
        return outcome

    def _compare(self, outcome: Outcome) -> None:
        """
        Hold the forecast against what the log printed.
        """
        rows = compare(self.forecast, outcome) if self.forecast is not None else ()
        if rows:
            now = self._tools.clock.now()
            self._tools.emit(events.Compared(at=now, attempt=self._record.attempt, rows=rows))

    def _follower(self, copy: LocalCopy, arriving: Arriving) -> Follower:
        lease = {"path": self._lease.path, "token": self._lease.token} if self._lease else None

        polled = polled_on(self._tools.box, self._tools.clock)

        def open_reader(request: dict[str, Any]) -> Stream:
            if not self._polling:
                try:
                    text = script("follow", {**request, "lease": lease}, self._place.python)
                    return self._tools.box.stream(text)
                except ConnectionLost:
                    raise
                except BoxUnreachable as error:
                    self._polling = True
                    self._tools.note(f"{error.message}: the log is asked for every second instead")
            return polled(request)

        return Follower(
            open_reader,
            LogSource(run_dir=self._run.directory, log=self._record.log, port=self._record.server.port),
            sink=copy.write,
            changed=copy.begin_anew,
            offset=copy.length,
            head=copy.head(),
            events=arriving,
            clock=self._tools.clock,
        )

    def _healthy(self) -> bool:
        port, python = self._record.server.port, self._place.python
        return http.get(self._tools.box, port, "/health", timeout=30, python=python).status == 200

    def _prove(self, watch: Watch, arriving: Arriving, ending: Ending) -> tuple[Ending, Report | None]:
        tools = self._tools
        tools.emit(events.Proving(at=tools.clock.now(), attempt=self._record.attempt, by=ending.by))
        asks = verifier(tools, self._record, self._facts)
        proof = in_background(lambda: again(asks.report), "proof")
        death = watch.until_end(arriving, proof=proof)
        if death is not None and death.end is not End.READY:
            return death, None
        report = with_environment(proof.result(), self._record, self._run, tools)
        tools.emit(events.Verified(at=tools.clock.now(), attempt=self._record.attempt, report=report))
        if report.answers:
            return ending, report
        failed = _failed_proof(report)
        if failed.end is End.DEAF:
            failed = watch.death_within(arriving, DEATH_GRACE) or failed
        return failed, report

    def _outcome(self, watch: Watch, ending: Ending, report: Report | None) -> Outcome:
        record, tools = self._record, self._tools
        verdict = None
        seconds = max(0.0, tools.clock.now() - record.started_at)
        if ending.foretold is not None:
            verdict = ending.foretold
        elif ending.end is not End.READY:
            ending = with_aftermath(ending, record, self._run, tools)
            evidence = watch.reading.evidence(ending.end, ending.exit_status, ending.after)
            verdict = judge(evidence, tools.engine.knowledge)
        return Outcome(
            attempt=record.attempt,
            run=record.run,
            server=record.server,
            end=ending.end,
            stage=watch.reading.stage,
            started_at=record.started_at,
            seconds=seconds,
            rung=record.rung,
            verdict=verdict,
            exit_status=ending.exit_status,
            report=report,
            log=f"{self._run.directory}/{record.log}",
            figures=dict(watch.reading.figures),
            after=ending.after,
            fewer=self.forecast.fewer if self.forecast is not None else None,
        )

    def _settle(self, outcome: Outcome) -> None:
        """
        End what a failed attempt left behind, and write the outcome beside its log.
        """
        if outcome.end in (End.STALLED, End.DOOMED, End.DEAF, End.REFUSING, End.VANISHED):
            port = self._record.server.port
            python, runs = self._place.python, [self._run]
            again(lambda: stop(self._tools.box, python=python, runs=runs, port=port, grace=SETTLE_GRACE))
        if outcome.end is not End.LOST:
            text = json.encode(outcome).decode()
            again(lambda: write_outcome(self._tools.box, self._run, text))

    def _emit_begun(
        self,
        argv: tuple[tuple[str, ...], ...],
        notes: tuple[str, ...],
        reason: str,
        changed: tuple[str, ...],
        conceded: tuple[str, ...],
    ) -> None:
        self._tools.emit(
            events.AttemptBegun(
                at=self._tools.clock.now(),
                record=self._record,
                changed=changed,
                conceded=conceded,
                reason=reason,
                command=argv,
                notes=notes,
            )
        )


def _failed_proof(report: Report) -> Ending:
    """
    The ending of a server that looked ready: deaf where one request got no answer, else refusing.
    """
    unanswered = [check for check in report.failed if not check.refused]
    first = (unanswered or report.failed)[0]
    end, key = (End.DEAF, "deaf") if unanswered else (End.REFUSING, "refused")
    return Ending(end, after={key: f"{first.name}: {first.detail}"})
