"""
Everything that can be told about a deployment. Work emits these; screens and the journal read them.
"""

from collections.abc import Callable

from msgspec import Struct

from mtpdeploy.core.diagnosis import Milestone
from mtpdeploy.core.foresight import Passed
from mtpdeploy.core.launch import AttemptRecord
from mtpdeploy.core.memory import Forecast
from mtpdeploy.core.outcome import Ascent, Outcome, Report
from mtpdeploy.core.patience import Sign


def _tag(name: str) -> str:
    """
    `AttemptEnded` as `attempt_ended`.
    """
    return "".join(f"_{c.lower()}" if c.isupper() and at else c.lower() for at, c in enumerate(name))


class Event(Struct, frozen=True, tag_field="event", tag=_tag):
    """
    One thing that happened. `at` is our own clock, seconds since 1970.
    """

    at: float


class Connected(Event, frozen=True):
    """
    The line to the box stands. `simulated` says that it is the built-in demo box.
    """

    host: str
    address: str
    seconds: float
    simulated: bool = False


class Surveyed(Event, frozen=True):
    """
    What the box told about itself, in short.
    """

    gpus: tuple[str, ...]
    sglang_version: str
    python: str
    clock_offset: float
    seconds: float
    simulated: bool = False


class InTheWay(Event, frozen=True):
    """
    A process that blocks the wanted GPU or port, and what is done about it.
    """

    pid: int
    command: str
    why: str
    fate: str


class Cleared(Event, frozen=True):
    """
    What was in the way is gone, the port free and the GPU memory back.
    """

    ended: tuple[int, ...]
    killed: tuple[int, ...]
    seconds: float


class Planned(Event, frozen=True):
    """
    What is launched next, as it was forecast; `passed` are configurations predicted not to fit.
    """

    forecast: Forecast | None
    rungs: tuple[str, ...]
    passed: tuple[Passed, ...]


class Foretold(Event, frozen=True):
    """
    The figures that an attempt has printed so far mean that it must fail later; it is ended now.
    """

    attempt: int
    line: int
    text: str
    reason: str


class Compared(Event, frozen=True):
    """
    What an attempt printed beside what was forecast: name, forecast and seen, in GiB or counted.
    """

    attempt: int
    rows: tuple[tuple[str, float, float], ...]


class AttemptBegun(Event, frozen=True):
    """
    An attempt is about to be launched. `conceded` against what was asked, `changed` against the last.
    """

    record: AttemptRecord
    changed: tuple[str, ...]
    conceded: tuple[str, ...]
    reason: str
    command: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


class Launched(Event, frozen=True):
    """
    The script runs on the box.
    """

    attempt: int
    pid: int
    run_dir: str
    seconds: float


class Following(Event, frozen=True):
    """
    An attempt that runs already is followed from a byte of its log on; `proved` says that it was ready.
    """

    record: AttemptRecord
    offset: int
    stage: str
    proved: bool = False


class LogLines(Event, frozen=True):
    """
    Lines of the server's log, `first` being the number of the first one. Not kept in the journal.
    """

    attempt: int
    first: int
    lines: tuple[str, ...]


class Reached(Event, frozen=True):
    """
    The log proves a stage. `seconds` since the launch.
    """

    attempt: int
    milestone: Milestone
    seconds: float


class Progress(Event, frozen=True):
    """
    Something moves within a stage: shards, captures. Not kept in the journal.
    """

    attempt: int
    text: str


class Quiet(Event, frozen=True):
    """
    The log has not grown for `seconds`; `signs` are what else shows work since then (core/patience.py).

    Without a further sign it counts as stalled in `left` seconds; `blind` says that none can be seen there.
    """

    attempt: int
    stage: str
    seconds: float
    left: float
    signs: tuple[Sign, ...] = ()
    blind: bool = False


class LineLost(Event, frozen=True):
    """
    The line to the box broke; the attempt goes on without us.
    """

    since: float


class LineBack(Event, frozen=True):
    """
    The line is back; following goes on at the byte where it stopped.
    """

    seconds: float


class Doomed(Event, frozen=True):
    """
    The log shows a failure that no waiting can mend; the process gets a moment to die by itself.
    """

    attempt: int
    line: int
    text: str


class Proving(Event, frozen=True):
    """
    The server looks ready; real requests are sent now.
    """

    attempt: int
    by: str


class Verified(Event, frozen=True):
    """
    The answers of the ready server.
    """

    attempt: int
    report: Report


class AttemptEnded(Event, frozen=True):
    """
    An attempt has an outcome; `again` says that it was ready before and was proved once more.
    """

    outcome: Outcome
    again: bool = False


class NextStep(Event, frozen=True):
    """
    What is tried next, after `wait` seconds, or why nothing is. `rung` None and `goes_on`: the same again.
    """

    goes_on: bool
    rung: str | None
    reason: str
    wait: float = 0.0


class Note(Event, frozen=True):
    """
    Something worth a line that has no kind of its own.
    """

    text: str


class Finished(Event, frozen=True):
    """
    The ascent is over.
    """

    ascent: Ascent


class Failed(Event, frozen=True, tag="error"):
    """
    The command failed, not the server: the last line of `--json-events` for whatever is no outcome.
    """

    error: str
    hint: str
    exit_status: int


AnyEvent = (
    Connected
    | Surveyed
    | InTheWay
    | Cleared
    | Planned
    | Foretold
    | Compared
    | AttemptBegun
    | Launched
    | Following
    | LogLines
    | Reached
    | Progress
    | Quiet
    | LineLost
    | LineBack
    | Doomed
    | Proving
    | Verified
    | AttemptEnded
    | NextStep
    | Note
    | Finished
    | Failed
)
"""Every event there is, for decoding."""

TRANSIENT = (LogLines, Progress)
"""Events for screens only: the log itself is kept byte for byte."""

Emit = Callable[[AnyEvent], None]
