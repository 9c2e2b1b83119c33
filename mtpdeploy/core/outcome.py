"""
How attempts ended, and the whole climb.
"""

from msgspec import Struct

from mtpdeploy.core.diagnosis import Cause, End, Stage, Verdict
from mtpdeploy.core.memory import Fewer
from mtpdeploy.core.proof import Speculation
from mtpdeploy.core.server import ServerSpec, changes, purpose_of

SPECULATES = "speculates"
SENSE = "makes sense"
"""The checks of what the replies say; a server that fails them is up all the same, and stays up."""

ENVIRONMENT = "environment as asked"
"""The check of the variables that reached the server's process; one that lacks some is up all the same."""

HARMLESS = (SPECULATES, SENSE, ENVIRONMENT)
"""The checks that a server may fail and stay up."""


class Check(Struct, frozen=True):
    """
    One question to a ready server, and its answer. `passed` None: could not be asked.

    `refused` says that it was answered, with the server's refusal: the server is not deaf.
    """

    name: str
    passed: bool | None
    detail: str
    figures: dict[str, float] = {}
    refused: bool = False


class Report(Struct, frozen=True):
    """
    The answers of a ready server.

    `mtp_proven` is True when real requests show more than one token accepted a step; None where the
    server was not asked to speculate. `speculation` is the proof with all its figures.
    """

    checks: tuple[Check, ...]
    mtp_proven: bool | None
    accept_length: float | None = None
    figures: dict[str, float] = {}
    speculation: Speculation | None = None

    @property
    def answers(self) -> bool:
        """
        Whether every check passed but those that a server may fail and stay up.
        """
        return not self.failed

    @property
    def failed(self) -> tuple[Check, ...]:
        """
        The checks that failed, but for those that a server may fail and stay up.
        """
        return tuple(c for c in self.checks if c.passed is False and c.name not in HARMLESS)

    @property
    def unlike_asked(self) -> str:
        """
        What of the environment did not reach the server as it was asked for; empty where all did.
        """
        return next((c.detail for c in self.checks if c.passed is False and c.name == ENVIRONMENT), "")

    @property
    def talks_nonsense(self) -> bool:
        """
        Whether replies came that no sound forward gives.
        """
        return any(c.passed is False and c.name == SENSE for c in self.checks)

    @property
    def state(self) -> str:
        """
        How the server stands, in a few words that begin with `ready`.
        """
        if self.talks_nonsense:
            return "ready, answers nonsense"
        return "ready, MTP not proven" if self.mtp_proven is False else "ready"


class Outcome(Struct, frozen=True):
    """
    How one attempt ended. `rung` is the concession it added, None for the first or a repeat; `after` what
    the box told after its death, name to text; `fewer` what its forecast said of asking for fewer requests.
    """

    attempt: int
    run: str
    server: ServerSpec
    end: End
    stage: Stage
    started_at: float
    seconds: float
    rung: str | None = None
    reason: str = ""
    verdict: Verdict | None = None
    exit_status: int | None = None
    report: Report | None = None
    log: str = ""
    figures: dict[str, float] = {}
    after: dict[str, str] = {}
    fewer: Fewer | None = None


class Ascent(Struct, frozen=True):
    """
    All outcomes of one `up`, in order.

    `asked` is the server as the user wanted it; `stopped_because` says why no further attempt was
    made, empty where the last one is ready. `compares` names the run that a comparison restarted by it.
    """

    id: str
    host: str
    asked: ServerSpec
    outcomes: tuple[Outcome, ...] = ()
    stopped_because: str = ""
    already_running: bool = False
    compares: str = ""

    @property
    def purpose(self) -> str:
        """
        What it is for, where that is not to bring a server up as asked.
        """
        return purpose_of(self.asked, self.compares)

    @property
    def ready(self) -> Outcome | None:
        """
        The outcome that serves, or None.
        """
        last = self.outcomes[-1] if self.outcomes else None
        return last if last and last.end is End.READY else None

    @property
    def conceded(self) -> tuple[str, ...]:
        """
        What the last attempt gives up against what was asked, one text a change.
        """
        if not self.outcomes:
            return ()
        return tuple(str(c) for c in changes(self.asked, self.outcomes[-1].server))

    def tried(self, cause: Cause) -> tuple[Outcome, ...]:
        """
        The outcomes that ended with this cause.
        """
        return tuple(o for o in self.outcomes if o.verdict and o.verdict.cause is cause)
