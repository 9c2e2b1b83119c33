"""
What the rest of the program asks of an engine: the knowledge of one server program.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from mtpdeploy.core.diagnosis import Cause, End, Evidence, Finding, Knowledge, Milestone, Stage
from mtpdeploy.core.ladder import Ladder, Rung
from mtpdeploy.core.lines import Line
from mtpdeploy.core.memory import Card, Forecast, Seen, Weights
from mtpdeploy.core.model import ModelShape
from mtpdeploy.core.server import ServerSpec


class Command(Struct, frozen=True):
    """
    How a server is started: lines of words, and the variables it needs.

    The first line is the program (`python -m sglang.launch_server`), then one flag with its values a
    line, so that a diff of two attempts shows exactly the concession. `notes` are things the user
    should know about the translation (a flag spelled as this version spells it, a variable left out).
    """

    argv: tuple[tuple[str, ...], ...]
    env: dict[str, str]
    notes: tuple[str, ...] = ()


class EarlierStart(Struct, frozen=True):
    """
    A start that another one follows in the same log: its lines, how far it came, whether it ever was ready,
    and what was found in it.
    """

    first: int
    last: int
    stage: Stage
    ready: bool
    findings: tuple[Finding, ...]


class Shortfall(Struct, frozen=True):
    """
    What a server that is up gives less of than was asked for: a name for programs, and a sentence.

    `speculation` says that MTP is what is missing.
    """

    name: str
    text: str
    speculation: bool = False


class LogReading(Protocol):
    """
    A fold over the lines of one log, in constant memory.

    Where it holds several starts, `stage`, `figures`, `arguments` and `progress` are those of the last, which
    begins with the line `begun`; `earlier` are those before it.
    """

    @property
    def begun(self) -> int:
        """
        The line with which the last start begins.
        """

    @property
    def earlier(self) -> Collection[EarlierStart]:
        """
        The starts before it.
        """

    @property
    def stands_for(self) -> EarlierStart | None:
        """
        The earlier start of which the evidence is, where the last has only begun; else None.
        """

    @property
    def stage(self) -> Stage:
        """
        The last stage reached.
        """

    @property
    def figures(self) -> dict[str, float]:
        """
        The numbers that the server printed on the way, by names with units.
        """

    @property
    def arguments(self) -> dict[str, str]:
        """
        The resolved arguments worth knowing.
        """

    @property
    def progress(self) -> str:
        """
        Where a bar stands; empty where there is none.
        """

    def feed(self, number: int, text: str) -> list[Milestone]:
        """
        Take one complete line (without its newline) and tell the stages it proves.
        """

    def look_over(self, lines: Sequence[Line]) -> None:
        """
        Take lines that were fed already, many at once, for what they tell of a server that serves.
        """

    @property
    def attentive(self) -> bool:
        """
        Whether the next line has to be fed, whatever it says.
        """

    def pass_over(self, after: int, text: str) -> None:
        """
        Take many whole lines, which the engine's `ordinary_run` found, in place of feeding them, while not
        `attentive`; `after` is the number of the line that follows them.
        """

    @property
    def serves(self) -> bool:
        """
        Whether requests were answered since the last start began.
        """

    @property
    def recognized(self) -> bool:
        """
        Whether anything in it is this engine's.
        """

    @property
    def release(self) -> str:
        """
        Which releases of the server print what was read, in words; empty where that is not told.
        """

    @property
    def fatal(self) -> Finding | None:
        """
        The first finding that no waiting can mend, or None.
        """

    def evidence(self, end: End, exit_status: int | None, after: Mapping[str, str]) -> Evidence:
        """
        Everything read so far, closed with how the attempt ended.
        """


class Engine(Struct, frozen=True):
    """
    One server program: its flags, milestones, failures and rungs.

    `command(server, python, version)` builds the command for the version on the box and raises ConfigError
    for a flag that this version does not know. `forecast(server, model, version, card, weights, seen)` says
    what the version will make of it before it is launched; `with_fewer(server, forecast, predict)` adds to
    a forecast whether asking for fewer requests would run more. `reading(version)` reads its log; "" is an
    unknown version. `patience` is how many seconds a stage may pass without any sign of work;
    `is_echo(line)` says of a log line that it only answers a question of health; `ordinary_run(piece, at)`
    where in whole lines the next run of those lies that a serving server prints for ever. `unapplied(server,
    info, version)` says what runs otherwise than asked for, from what the running server tells of itself.
    `configured(arguments)` is the server that a log's resolved arguments tell of, None where it told none;
    `releases_of(arguments)` the releases that print them so; `shortfalls(arguments, figures)` what of them
    a log shows to run otherwise.
    """

    name: str
    command: Callable[[ServerSpec, str, str], Command]
    forecast: Callable[[ServerSpec, ModelShape, str, Card, Weights, Seen | None], Forecast]
    with_fewer: Callable[[ServerSpec, Forecast, Callable[[ServerSpec], Forecast | None]], Forecast]
    reading: Callable[[str], LogReading]
    knowledge: dict[Cause, Knowledge]
    rungs: dict[str, Rung]
    ladders: dict[str, Ladder]
    patience: dict[Stage, float]
    is_echo: Callable[[str], bool]
    ordinary_run: Callable[[bytes, int], tuple[int, int]]
    unapplied: Callable[[ServerSpec, dict[str, Any], str], tuple[str, ...]]
    configured: Callable[[Mapping[str, str]], ServerSpec | None]
    releases_of: Callable[[Mapping[str, str]], tuple[str, ...]]
    shortfalls: Callable[[Mapping[str, str], Mapping[str, float]], tuple[Shortfall, ...]]
