"""
Any SGLang log from anywhere, judged offline: what it reached, when, with which figures, and why it ended.
"""

import math
import re
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime

from msgspec import Struct, structs

from mtpdeploy.core.diagnosis import Cause, End, Evidence, Milestone, Stage, Verdict
from mtpdeploy.core.judgement import UNEXPLAINED, judge
from mtpdeploy.core.ladder import answering
from mtpdeploy.core.lines import Lines
from mtpdeploy.core.outcome import Outcome
from mtpdeploy.core.server import ServerSpec
from mtpdeploy.core.verdict import ALIVE, diagnose
from mtpdeploy.deploy.logfile import LogFile, opened
from mtpdeploy.engines.base import EarlierStart, Engine, LogReading, Shortfall

MOMENT = re.compile(r"\[(20\d\d-\d\d-\d\d \d\d:\d\d:\d\d)")
"""SGLang's own time stamp; in whatever zone the box has."""


CONSEQUENCES = (
    (Cause.SCHEDULER_EXCEPTION, Cause.PYTHON_EXCEPTION, Cause.GRAPHS_FAILED),
    (Cause.NCCL_FAILED, Cause.PEER_UNREACHABLE, Cause.WATCHDOG),
    (Cause.SCHEDULER_DIED, Cause.DETOKENIZER_DIED, Cause.VANISHED, Cause.STOPPED, Cause.UNKNOWN),
)
"""What a rank that lost another one says: the further down the more likely it is an echo (lesson 11)."""


OPEN_END = (
    "Where it has ended, `--exit-status` tells how, and the kernel's log (`dmesg -T`) tells of a kill; where "
    "it still runs, judge its log again later."
)
"""What to do about a log that just ends."""


class Reached(Struct, frozen=True):
    """
    A stage with the moment that SGLang wrote beside it (seconds of an unknown zone; None without a stamp).
    """

    milestone: Milestone
    moment: float | None


class Before(Struct, frozen=True):
    """
    An earlier start in the same log: its lines, how far it came, whether it was ever ready, and why it failed
    where it shows that.
    """

    first: int
    last: int
    stage: Stage
    ready: bool
    verdict: Verdict | None


class Inquest(Struct, frozen=True):
    """
    What a log tells of its last start. `verdict` is None where it shows no failure; `answers` are the rungs
    that answer its cause, with what each gives up; `before` are the starts that came before it, and
    `stands_for` says that the verdict is of the last of those, because this one has only begun.

    `version` is SGLang's in words, as far as it is known; `warnings` are what a server that is up gives less
    of than was asked for, and what hinders the judgement; `foreign` says why it is no log of SGLang.
    `stopped` is the line by which a server that was ready acknowledges that it was told to stop: no failure.
    """

    name: str
    lines: int
    stage: Stage
    reached: tuple[Reached, ...]
    figures: dict[str, float]
    arguments: dict[str, str]
    ready: bool
    verdict: Verdict | None
    answers: tuple[tuple[str, str], ...]
    last: str
    before: tuple[Before, ...] = ()
    stands_for: bool = False
    version: str = ""
    warnings: tuple[Shortfall, ...] = ()
    foreign: str = ""
    stopped: tuple[int, str] | None = None

    @property
    def failed(self) -> bool:
        """
        Whether it shows a failure.
        """
        return self.verdict is not None and not self.foreign


def hold(
    name: str,
    engine: Engine,
    *,
    exit_status: int | None = None,
    version: str = "",
    after: Mapping[str, str] | None = None,
    running: bool = False,
) -> Inquest:
    """
    Judge a log file, gzipped or not; `-` is standard input. `version` is SGLang's, where it is known.

    `after` is what the box told of the server's end; None where it was not asked, or the server has not
    failed as far as is known. `running` says that it is known to run, so that a log that just ends is no end.

    Raises:
        ConfigError: it cannot be read.
    """
    with opened(name) as file:
        return _judge(
            name, file, engine.reading(version), engine, version, exit_status, after, running=running
        )


def root(held: Sequence[Inquest]) -> Inquest | None:
    """
    Of the logs of one server's ranks or nodes, the one that shows why it failed; None where none fails.

    Where one rank fails the others lose it: what says only that goes last, then an exception without a
    name, and among equals the earliest counts, by the time stamps as the boxes wrote them.
    """
    failed = [one for one in held if one.verdict is not None]
    if not failed:
        return None
    return min(failed, key=lambda one: (_standing(one.verdict), _moment(one)))


def _standing(verdict: Verdict | None) -> int:
    cause = verdict.cause if verdict is not None else Cause.UNKNOWN
    return next((rank for rank, causes in enumerate(CONSEQUENCES, 1) if cause in causes), 0)


def _moment(one: Inquest) -> float:
    """
    When the proving line was written: the last time stamp up to it, or never.
    """
    line, moment = one.verdict.line if one.verdict else None, math.inf
    if line is None or one.name == "-":
        return moment
    lines = Lines()
    with opened(one.name) as file:
        for piece in file.pieces():
            for each in lines.feed(piece):
                if each.number > line:
                    return moment
                if stamp := MOMENT.search(each.text, 0, 200):
                    moment = _seconds(stamp[1])
    return moment


def _judge(
    name: str,
    file: LogFile,
    reading: LogReading,
    engine: Engine,
    version: str,
    exit_status: int | None,
    after: Mapping[str, str] | None,
    *,
    running: bool,
) -> Inquest:
    stages = _Stages(engine, reading)
    for piece in file.pieces():
        stages.take(piece)
    verdict = _verdict(reading, engine, exit_status, after, running=running)
    alone = exit_status is None and after is None and not running
    versions = (version,) if version else engine.releases_of(reading.arguments)
    stopped = reading.evidence(End.UNTOLD, None, {}).told_to_stop if verdict is None else None
    warnings = engine.shortfalls(reading.arguments, reading.figures) if reading.serves else ()
    if file.cut:
        warnings = (Shortfall("cut-short", f"{file.cut}; judged as far as it goes"), *warnings)
    return Inquest(
        name=name,
        lines=stages.count,
        stage=reading.stage,
        reached=stages.reached,
        figures=dict(reading.figures),
        arguments=dict(reading.arguments),
        ready=reading.serves,
        verdict=verdict,
        answers=_answers(engine, verdict, engine.configured(reading.arguments), versions),
        last=stages.last[:300],
        before=tuple(_before(start, engine) for start in reading.earlier),
        stands_for=reading.stands_for is not None,
        version=reading.release,
        warnings=warnings,
        foreign=_foreign(reading, stages.count, verdict) if alone else "",
        stopped=stopped,
    )


class _Stages:
    """
    The stages of the last start in a log, its last line that says anything, and its length, while it is read.
    """

    def __init__(self, engine: Engine, reading: LogReading) -> None:
        self._engine = engine
        self._reading = reading
        self._lines = Lines()
        self._moment: float | None = None
        self._reached: list[Reached] = []
        self.last = ""
        self.count = 0

    @property
    def reached(self) -> tuple[Reached, ...]:
        """
        The stages with their moments.
        """
        return tuple(each for each in self._reached if each.milestone.line >= self._reading.begun)

    def take(self, piece: bytes) -> None:
        """
        Read whole lines: one by one only what may prove something.
        """
        at = 0
        while at < len(piece):
            begin, end = self._engine.ordinary_run(piece, at)
            self._feed(piece[at:begin])
            if self._reading.attentive:
                self._feed(piece[begin:end])
            else:
                self._pass_over(piece[begin:end])
            at = end

    def _feed(self, piece: bytes) -> None:
        read = self._lines.feed(piece)
        for line in read:
            for milestone in self._reading.feed(line.number, line.text):
                stamp = MOMENT.search(line.text, 0, 200)
                self._moment = _seconds(stamp[1]) if stamp else self._moment
                if milestone.line == self._reading.begun:
                    self._reached.clear()
                self._reached.append(Reached(milestone, self._moment))
        self._reading.look_over(read)
        self.count = read[-1].number if read else self.count
        self.last = next((line.text for line in reversed(read) if line.text.strip()), self.last)

    def _pass_over(self, run: bytes) -> None:
        if not run:
            return
        text = run.decode("utf-8", "replace")
        self._lines.pass_over(run.count(b"\n"))
        self._reading.pass_over(self._lines.next, text)
        self.count = self._lines.next - 1
        self.last = text[text.rfind("\n", 0, -1) + 1 : -1]


def _verdict(
    reading: LogReading,
    engine: Engine,
    exit_status: int | None,
    after: Mapping[str, str] | None,
    *,
    running: bool,
) -> Verdict | None:
    """
    Why it ended; None where it serves, or is known to run, and nothing speaks against it.
    """
    end = End.EXITED if exit_status is not None else End.VANISHED if after is not None else End.UNTOLD
    evidence = reading.evidence(end, exit_status, after or {})
    ended = evidence.exit_status not in (None, 0) or after is not None
    proven = any(finding.fatal for finding in evidence.findings)
    if not (ended or proven) and (reading.serves or running):
        return None
    verdict = judge(evidence, engine.knowledge)
    if end is End.UNTOLD and evidence.exit_status is None and verdict.cause is Cause.UNKNOWN:
        at = (f"its bar stands at {reading.progress}",) if reading.progress else ()
        verdict = structs.replace(verdict, remedy=OPEN_END, further=(*verdict.further, *at))
    if reading.stands_for is None and reading.earlier and verdict.cause is Cause.UNKNOWN:
        verdict = structs.replace(verdict, further=(*verdict.further, *_history(reading, engine)))
    return verdict


def _history(reading: LogReading, engine: Engine) -> tuple[str, ...]:
    """
    Why the start before the last one failed, which the last one may be about to repeat.
    """
    *_, before = (_before(start, engine) for start in reading.earlier)
    if before.verdict is None:
        return ()
    return (f"the start before this one: {before.verdict.cause} (log line {before.verdict.line})",)


def _foreign(reading: LogReading, count: int, verdict: Verdict | None) -> str:
    """
    Why a log is none of this engine's; empty where it is, or where what it says is known all the same.
    """
    if not count:
        return "it is empty"
    known = verdict is not None and verdict.cause is not Cause.UNKNOWN
    return "" if reading.recognized or reading.serves or known else "no line of it is SGLang's"


def _before(start: EarlierStart, engine: Engine) -> Before:
    ended = Evidence(end=End.EXITED, stage=start.stage, findings=start.findings)
    verdict = diagnose(ended, engine.knowledge) if any(f.fatal for f in start.findings) else None
    return Before(start.first, start.last, start.stage, start.ready, verdict)


def with_conclusion(inquest: Inquest, outcome: Outcome | None, engine: Engine) -> Inquest:
    """
    The inquest with the verdict that was reached when the attempt ended, where that is in no log: the box was
    asked then, or somebody saw how it stood still.
    """
    if outcome is None or outcome.verdict is None or outcome.end is End.LOST:
        return inquest
    named = inquest.verdict is not None and inquest.verdict.cause not in UNEXPLAINED
    if not outcome.after and (named or outcome.end not in ALIVE):
        return inquest
    return structs.replace(
        inquest,
        verdict=outcome.verdict,
        answers=_answers(engine, outcome.verdict, outcome.server, engine.releases_of(inquest.arguments)),
    )


def _seconds(stamp: str) -> float:
    return datetime.strptime(stamp, "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC).timestamp()


def _answers(
    engine: Engine, verdict: Verdict | None, server: ServerSpec | None, versions: Collection[str]
) -> tuple[tuple[str, str], ...]:
    """
    The rungs of the default ladder that answer a verdict on a server, cheapest first.
    """
    if verdict is None or verdict.cause is Cause.UNKNOWN:
        return ()
    rungs = answering(engine.ladders["default"], verdict, server, versions)
    return tuple((rung.name, rung.gives_up) for rung in rungs)
