"""
Any SGLang log from anywhere, judged offline: what it reached, when, with which figures, and why it ended.
"""

import codecs
import gzip
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from io import BufferedReader, RawIOBase
from pathlib import Path
from typing import IO, cast

from msgspec import Struct, structs

from mtpdeploy.core.diagnosis import Cause, End, Evidence, Milestone, Stage, Verdict, diagnose
from mtpdeploy.core.judgement import judge
from mtpdeploy.core.ladder import answering
from mtpdeploy.core.lines import Lines
from mtpdeploy.core.outcome import Outcome
from mtpdeploy.core.server import ServerSpec
from mtpdeploy.core.wrappings import find_wrappings, unwrap
from mtpdeploy.engines.base import EarlierStart, Engine, LogReading
from mtpdeploy.errors import ConfigError

PIECE = 1 << 20
"""Bytes read at a time."""

GZIP = b"\x1f\x8b"
"""How a gzip file begins (RFC 1952)."""

UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
"""How UTF-16 begins."""

MOMENT = re.compile(r"\[(20\d\d-\d\d-\d\d \d\d:\d\d:\d\d)")
"""SGLang's own time stamp; in whatever zone the box has."""


CONSEQUENCES = (
    (Cause.SCHEDULER_EXCEPTION, Cause.PYTHON_EXCEPTION, Cause.GRAPHS_FAILED),
    (Cause.NCCL_FAILED, Cause.PEER_UNREACHABLE, Cause.WATCHDOG),
    (Cause.SCHEDULER_DIED, Cause.DETOKENIZER_DIED, Cause.VANISHED, Cause.STOPPED, Cause.UNKNOWN),
)
"""What a rank that lost another one says: the further down the more likely it is an echo (lesson 11)."""


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
    that answer its cause, with what each gives up; `before` are the starts that came before it.
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


def hold(
    name: str,
    engine: Engine,
    *,
    exit_status: int | None = None,
    version: str = "",
    after: Mapping[str, str] | None = None,
) -> Inquest:
    """
    Judge a log file, gzipped or not; `-` is standard input. `version` is SGLang's, where it is known.

    `after` is what the box told of the server's end; None where it was not asked, or the server has not
    failed as far as is known.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        with _opened(name) as file:
            return _judge(name, file, engine.reading(version), engine, version, exit_status, after)
    except (OSError, EOFError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"{name} cannot be read: {reason}", hint="give a log file, or `-`") from None


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
    with _opened(one.name) as file:
        for piece in _pieces(file):
            for each in lines.feed(piece):
                if each.number > line:
                    return moment
                if stamp := MOMENT.search(each.text, 0, 200):
                    moment = _seconds(stamp[1])
    return moment


@contextmanager
def _opened(name: str) -> Iterator[IO[bytes]]:
    if name == "-":
        import sys  # noqa: PLC0415 - only to read what is piped in

        yield _plain(sys.stdin.buffer)
        return
    with Path(name).open("rb") as file:
        yield _plain(file)


def _plain(file: IO[bytes]) -> IO[bytes]:
    """
    A log as UTF-8, unpacked where it is gzipped and recoded where it is UTF-16 (as PowerShell's `>` writes).
    """
    peeked = BufferedReader(cast("RawIOBase", file))
    if peeked.peek(2).startswith(GZIP):
        peeked = BufferedReader(cast("RawIOBase", gzip.GzipFile(fileobj=peeked)))
    if peeked.peek(2).startswith(UTF_16):
        return codecs.EncodedFile(peeked, "utf-8", "utf-16", "replace")
    if peeked.peek(3).startswith(codecs.BOM_UTF8):
        peeked.read(3)
    return peeked


def _judge(
    name: str,
    file: IO[bytes],
    reading: LogReading,
    engine: Engine,
    version: str,
    exit_status: int | None,
    after: Mapping[str, str] | None,
) -> Inquest:
    lines = Lines()
    reached: list[Reached] = []
    moment, last, count = None, "", 0
    for piece in _pieces(file):
        read = lines.feed(piece)
        for line in read:
            for milestone in reading.feed(line.number, line.text):
                stamp = MOMENT.search(line.text, 0, 200)
                moment = _seconds(stamp[1]) if stamp else moment
                if milestone.line == reading.begun:
                    reached.clear()
                reached.append(Reached(milestone, moment))
        count = read[-1].number if read else count
        last = next((line.text for line in reversed(read) if line.text), last)
    end = End.VANISHED if after is not None and exit_status is None else End.EXITED
    evidence = reading.evidence(end, exit_status, after or {})
    verdict = None
    if reading.fatal is not None or exit_status not in (None, 0) or evidence.findings or after is not None:
        verdict = judge(evidence, engine.knowledge)
    versions = (version,) if version else engine.releases_of(reading.arguments)
    return Inquest(
        name=name,
        lines=count,
        stage=reading.stage,
        reached=tuple(reached),
        figures=dict(reading.figures),
        arguments=dict(reading.arguments),
        ready=any(each.milestone.stage is Stage.READY for each in reached),
        verdict=verdict,
        answers=_answers(engine, verdict, engine.configured(reading.arguments), versions),
        last=last[:300],
        before=tuple(_before(start, engine) for start in reading.earlier),
    )


def _before(start: EarlierStart, engine: Engine) -> Before:
    ended = Evidence(end=End.EXITED, stage=start.stage, findings=start.findings)
    verdict = diagnose(ended, engine.knowledge) if any(f.fatal for f in start.findings) else None
    return Before(start.first, start.last, start.stage, start.ready, verdict)


def with_conclusion(inquest: Inquest, outcome: Outcome | None, engine: Engine) -> Inquest:
    """
    The inquest with the verdict that was reached when the attempt ended, where the box was asked then: what
    it told of the death is in no log.
    """
    if outcome is None or outcome.verdict is None or outcome.end is End.LOST or not outcome.after:
        return inquest
    return structs.replace(
        inquest,
        verdict=outcome.verdict,
        answers=_answers(engine, outcome.verdict, outcome.server, engine.releases_of(inquest.arguments)),
    )


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    """
    The log in pieces of whole lines, without what others have put before them; a last line end is added.
    """
    kept, wrappings = b"", None
    while data := file.read(PIECE):
        whole, feed, rest = (kept + data).rpartition(b"\n")
        if not feed and len(rest) <= PIECE:
            kept = rest
            continue
        piece, kept = (whole + feed, rest) if feed else (rest, b"")
        wrappings = find_wrappings(piece[: 1 << 16]) if wrappings is None else wrappings
        yield unwrap(piece, wrappings)
    if kept:
        yield unwrap(kept, wrappings or find_wrappings(kept)) + b"\n"


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
