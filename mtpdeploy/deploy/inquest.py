"""
Any SGLang log from anywhere, judged offline: what it reached, when, with which figures, and why it ended.
"""

import gzip
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from msgspec import Struct

from mtpdeploy.core.diagnosis import Cause, End, Milestone, Next, Stage, Verdict, diagnose
from mtpdeploy.core.lines import Lines
from mtpdeploy.core.wrappings import find_wrappings, unwrap
from mtpdeploy.engines.base import Engine
from mtpdeploy.errors import ConfigError

PIECE = 1 << 20
"""Bytes read at a time."""

GZIP = b"\x1f\x8b"
"""How a gzip file begins (RFC 1952)."""

MOMENT = re.compile(r"\[(20\d\d-\d\d-\d\d \d\d:\d\d:\d\d)")
"""SGLang's own time stamp; in whatever zone the box has."""


class Reached(Struct, frozen=True):
    """
    A stage with the moment that SGLang wrote beside it (seconds of an unknown zone; None without a stamp).
    """

    milestone: Milestone
    moment: float | None


class Inquest(Struct, frozen=True):
    """
    What a log tells. `verdict` is None where it shows no failure; `answers` are the rungs that answer its
    cause, with what each gives up.
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


def hold(name: str, engine: Engine, *, exit_status: int | None = None, version: str = "") -> Inquest:
    """
    Judge a log file, gzipped or not; `-` is standard input. `version` is SGLang's, where it is known.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        with _opened(name) as file:
            return _judge(name, file, engine, exit_status, version)
    except (OSError, EOFError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"{name} cannot be read: {reason}", hint="give a log file, or `-`") from None


@contextmanager
def _opened(name: str) -> Iterator[IO[bytes]]:
    if name == "-":
        import sys  # noqa: PLC0415 - only to read what is piped in

        yield sys.stdin.buffer
        return
    with Path(name).open("rb") as file:
        packed = file.read(2) == GZIP
        file.seek(0)
        if packed:
            with gzip.open(file) as unpacked:
                yield unpacked  # type: ignore[misc]
        else:
            yield file


def _judge(name: str, file: IO[bytes], engine: Engine, exit_status: int | None, version: str) -> Inquest:
    reading, lines, reached = engine.reading(version), Lines(), []
    ready, moment, last, count = False, None, "", 0
    for piece in _pieces(file):
        for line in lines.feed(piece):
            count, last = line.number, line.text or last
            for milestone in reading.feed(line.number, line.text):
                stamp = MOMENT.search(line.text, 0, 200)
                moment = _seconds(stamp[1]) if stamp else moment
                reached.append(Reached(milestone, moment))
                ready = ready or milestone.stage is Stage.READY
    evidence = reading.evidence(End.EXITED, exit_status, {})
    verdict = None
    if reading.fatal is not None or (exit_status not in (None, 0)) or evidence.findings:
        verdict = diagnose(evidence, engine.knowledge)
    return Inquest(
        name=name,
        lines=count,
        stage=reading.stage,
        reached=tuple(reached),
        figures=dict(reading.figures),
        arguments=dict(getattr(reading, "arguments", {})),
        ready=ready,
        verdict=verdict,
        answers=_answers(engine, verdict),
        last=last[:300],
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


def _answers(engine: Engine, verdict: Verdict | None) -> tuple[tuple[str, str], ...]:
    """
    The rungs of the default ladder that answer a verdict, cheapest first; none where it stops.
    """
    if verdict is None or verdict.next is Next.STOP or verdict.cause is Cause.UNKNOWN:
        return ()
    rungs = engine.ladders["default"].rungs
    return tuple((rung.name, rung.gives_up) for rung in rungs if verdict.cause in rung.causes)
