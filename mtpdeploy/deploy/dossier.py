"""
Everything that the journal has of one ascent, put together for people who were not there.

Nothing here fails over a file that is damaged or missing: what cannot be read is named in `problems`, and
what nothing tells is left open.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar

from msgspec import DecodeError, Struct, json

from mtpdeploy.core import events
from mtpdeploy.core.events import AnyEvent
from mtpdeploy.core.launch import ATTEMPT_FILE, OUTCOME_FILE, AttemptRecord, told_by_name
from mtpdeploy.core.outcome import Ascent, Outcome
from mtpdeploy.core.server import ServerSpec
from mtpdeploy.core.units import counted
from mtpdeploy.deploy.journal import ASCENT_FILE, CLIENTS_FILE, EVENTS_FILE, Client
from mtpdeploy.deploy.tried import Tried, completed
from mtpdeploy.engines.base import Engine

T = TypeVar("T")


class Dossier(Struct, frozen=True):
    """
    One ascent. `finished` is false where an attempt has no outcome, or no word was said on what comes next.
    `error` is what ended the climb where that was no outcome of a server.
    """

    ascent: Ascent
    clients: tuple[Client, ...]
    tried: tuple[Tried, ...]
    afterwards: tuple[AnyEvent, ...]
    problems: tuple[str, ...]
    finished: bool
    error: events.Failed | None = None


def read_dossier(folder: Path, engine: Engine) -> Dossier:
    """
    Read the folder of an ascent in the journal.
    """
    problems: list[str] = []
    told = tuple(_lines_of(folder / EVENTS_FILE, AnyEvent, problems))
    clients = tuple(_lines_of(folder / CLIENTS_FILE, Client, problems, needed=False))
    runs = sorted(path for path in _listed(folder, problems) if path.is_dir())
    parts, afterwards = _by_attempt(told)
    found = [_read_run(run, parts, problems) for run in runs]
    begun = any(tried.outcome is not None for tried in found)
    there = begun or (folder / ASCENT_FILE).exists()  # it is written when a first attempt has ended
    ascent = _decoded(folder / ASCENT_FILE, Ascent, problems) if there else None
    known = {tried.run for tried in found}
    found += [
        Tried(number=o.attempt, run=o.run, outcome=o)
        for o in (ascent.outcomes if ascent else ())
        if o.run not in known
    ]
    whole = [
        completed(folder / tried.run, tried, engine, clients, problems)
        for tried in sorted(found, key=lambda tried: (tried.number, tried.run))
    ]
    if ascent is None:
        ascent = _ascent_of(folder.name, whole, clients)
    last = whole[-1].outcome if whole else None
    ended = last is not None and (ascent.ready is not None or bool(ascent.stopped_because))
    return Dossier(
        ascent=ascent,
        clients=clients,
        tried=tuple(whole),
        afterwards=afterwards,
        problems=tuple(dict.fromkeys(problems)),
        finished=ended,
        error=None if ended else _error(told),
    )


def _listed(folder: Path, problems: list[str]) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError as error:
        problems.append(f"the folder of the ascent cannot be read: {error.strerror}")
        return []


def _decoded(path: Path, kind: type[T], problems: list[str]) -> T | None:
    where = f"{path.parent.name}/{path.name}"
    try:
        return json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        problems.append(f"{where} is missing")
    except OSError as error:
        problems.append(f"{where} cannot be read: {error.strerror}")
    except (DecodeError, RecursionError) as error:
        problems.append(f"{where} is damaged: {error}")
    return None


def _lines_of(
    path: Path, kind: type[Struct] | UnionType, problems: list[str], *, needed: bool = True
) -> Iterator[Any]:
    """
    The lines of a file of JSON that can be read; the others are counted.
    """
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        if needed or not isinstance(error, FileNotFoundError):
            problems.append(f"{path.name} cannot be read: {error.strerror}")
        return
    damaged = 0
    for line in lines:
        try:
            yield json.decode(line, type=kind)
        except (DecodeError, RecursionError):
            damaged += 1
    if damaged:
        problems.append(f"{path.name}: {counted(damaged, 'line is', 'lines are')} damaged, and left out")


def _by_attempt(told: Iterable[AnyEvent]) -> tuple[dict[int, list[AnyEvent]], tuple[AnyEvent, ...]]:
    """
    The events of each attempt, with what came just before it; and those that none came after.
    """
    parts: dict[int, list[AnyEvent]] = {}
    waiting: list[AnyEvent] = []
    current: int | None = None
    for event in told:
        if isinstance(event, (events.AttemptBegun, events.Following)):
            current = event.record.attempt
            parts.setdefault(current, []).extend(waiting)
            waiting = []
        (waiting if current is None else parts[current]).append(event)
        if isinstance(event, events.NextStep):
            current = None
    return parts, tuple(waiting)


def _error(told: tuple[AnyEvent, ...]) -> events.Failed | None:
    """
    The error that ended the climb, unless somebody went on with it since.
    """
    telling = (events.AttemptBegun, events.Following, events.AttemptEnded, events.NextStep, events.Failed)
    last = next((event for event in reversed(told) if isinstance(event, telling)), None)
    return last if isinstance(last, events.Failed) else None


def _read_run(path: Path, parts: dict[int, list[AnyEvent]], problems: list[str]) -> Tried:
    record = _decoded(path / ATTEMPT_FILE, AttemptRecord, problems)
    outcome = _decoded(path / OUTCOME_FILE, Outcome, problems) if (path / OUTCOME_FILE).exists() else None
    named = told_by_name(path.name)
    number = record.attempt if record else outcome.attempt if outcome else named[2] if named else 0
    happened = parts.get(number, [])
    begun = [event for event in happened if isinstance(event, events.AttemptBegun)]
    return Tried(
        number=number,
        run=path.name,
        record=record or (begun[-1].record if begun else None),
        outcome=outcome,
        begun=begun[-1] if begun else None,
        planned=next((event for event in happened if isinstance(event, events.Planned)), None),
        step=next((event for event in happened if isinstance(event, events.NextStep)), None),
        compared=next((e.rows for e in happened if isinstance(e, events.Compared)), ()),
        happened=tuple(happened),
    )


def _ascent_of(name: str, whole: list[Tried], clients: tuple[Client, ...]) -> Ascent:
    """
    An ascent put together from its runs and its clients.
    """
    asked = [tried.record.asked for tried in whole if tried.record is not None]
    asked += [client.asked for client in clients]
    asked += [tried.server for tried in whole if tried.server is not None]
    return Ascent(
        id=name,
        host=clients[-1].host.name if clients else "a host that is not recorded",
        asked=asked[0] if asked else ServerSpec(name="a server that is not recorded", flags={}),
        outcomes=tuple(tried.outcome for tried in whole if tried.outcome is not None),
        compares=next((tried.record.compares for tried in whole if tried.record is not None), ""),
    )
