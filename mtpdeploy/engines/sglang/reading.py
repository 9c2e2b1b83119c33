"""
Reading SGLang's log: one start after another, in constant memory.
"""

from collections import deque
from collections.abc import Mapping, Sequence

from mtpdeploy.core.diagnosis import EARLY, End, Evidence, Finding, Milestone, Stage
from mtpdeploy.core.lines import Line
from mtpdeploy.engines.base import EarlierStart
from mtpdeploy.engines.sglang import milestones, shell
from mtpdeploy.engines.sglang.server_args import releases_of
from mtpdeploy.engines.sglang.serving import Serving
from mtpdeploy.engines.sglang.starts import Start
from mtpdeploy.engines.sglang.tracebacks import TEXT_LIMIT

TAIL = 40
"""Last lines kept as evidence where nothing else explains a death: a screenful."""

EARLIER = 16
"""Earlier starts kept, the last ones: a container that restarts for ever fills a log with them."""

LAUNCHERS = ("subprocess.CalledProcessError", "torch.distributed.elastic.")
"""Exceptions with which a launcher says that what it started has ended: no start of its own."""


class LogReading:
    """
    A fold over the lines of one log, which may hold several starts, one appended to the other.

    Everything told is of the last start, what was found in those before it is in `earlier`. Only where the
    last has printed no more than its arguments are findings and evidence of the one that it follows
    (`stands_for`): a restart that has just begun explains nothing.
    """

    def __init__(self, version: str = "") -> None:
        self.tail: deque[tuple[int, str]] = deque(maxlen=TAIL)
        self.earlier: deque[EarlierStart] = deque(maxlen=EARLIER)
        self.begun = 1
        self._version = version
        self._start = Start(version)
        self._next: tuple[int, Start] | None = None
        self._serving = Serving()

    @property
    def stage(self) -> Stage:
        """
        The last stage that the leading rank reached.
        """
        return self._start.stage

    @property
    def progress(self) -> str:
        """
        Where a bar stands (`shards 3/12`).
        """
        return self._start.progress

    @property
    def figures(self) -> dict[str, float]:
        """
        What SGLang printed on the way (weights_gib, kv_tokens, max_running_requests…, names with units).
        """
        return self._start.figures

    @property
    def arguments(self) -> dict[str, str]:
        """
        The resolved arguments worth knowing.
        """
        return self._start.arguments

    @property
    def milestones(self) -> deque[Milestone]:
        """
        The stages with the lines that prove them.
        """
        return self._start.milestones

    def feed(self, number: int, text: str) -> list[Milestone]:
        """
        Take one complete line (numbered from 1, without its newline) and tell the stages it proves.
        """
        self.tail.append((number, _clipped(text)))
        if not self._start.alert and self._next is None and not milestones.interesting(text):
            return []
        if self._start.ending:
            self._look_for_another(number, text)
        if self._start.followed_by(text):
            self._restart(number)
        told = self._start.examine(number, text)
        if told and told[0].stage is Stage.ARGUMENTS:
            self.tail[-1] = (number, told[0].text)
        return told

    @property
    def findings(self) -> tuple[Finding, ...]:
        """
        What was found so far, in the order of the log; a bounded number.
        """
        start = self._start
        if self.stands_for is not None:
            return self.stands_for.findings
        # What goes on decoding has not died of it: somebody's request was logged with these words.
        last = 0 if start.ending else self._serving.last
        return tuple(found for found in start.findings if not found.fatal or found.line > last)

    def look_over(self, lines: Sequence[Line]) -> None:
        """
        Take lines that were fed already, many at once, for what they tell of a server that serves.
        """
        self._serving.take(lines, self.begun)
        self._tell_serving()

    @property
    def attentive(self) -> bool:
        """
        Whether the next line has to be fed, whatever it says: it may belong to a traceback.
        """
        return self._start.alert or self._next is not None

    def pass_over(self, after: int, text: str) -> None:
        """
        Take many whole lines that `ordinary_run` found, in place of feeding them, while not `attentive`;
        `after` is the number of the line that follows them.
        """
        last = text[:-1].rsplit("\n", TAIL)[-TAIL:]
        self.tail.extend(enumerate(map(_clipped, last), after - len(last)))
        self._serving.pass_over(after, text)
        self._tell_serving()

    @property
    def serves(self) -> bool:
        """
        Whether it was ready, or answered requests, since the last start began: a log without its head shows
        that alone. Before it is ready a server asks itself, so that answers prove nothing then.
        """
        return self._start.ready or (self._serving.serves and self._start.stage is Stage.LAUNCHED)

    @property
    def recognized(self) -> bool:
        """
        Whether anything in it is SGLang's.
        """
        return bool(self.earlier or self._start.recognized or self._start.findings)

    @property
    def release(self) -> str:
        """
        Which releases print the arguments as they were read, in words; empty without them.
        """
        return self._start.release

    @property
    def stands_for(self) -> EarlierStart | None:
        """
        The earlier start of which findings and evidence are; None where they are of the last.
        """
        if self._start.stage not in EARLY or self._start.findings or not self.earlier:
            return None
        before = self.earlier[-1]
        return before if any(finding.fatal for finding in before.findings) else None

    @property
    def fatal(self) -> Finding | None:
        """
        The first finding that no waiting can mend, or None.
        """
        return next((f for f in self.findings if f.fatal), None)

    def evidence(self, end: End, exit_status: int | None, after: Mapping[str, str]) -> Evidence:
        """
        Everything read so far, closed with how the attempt ended.
        """
        start, tail = self.stands_for or self._start, tuple(self.tail)
        untold = end is End.UNTOLD
        told = shell.told(tail) if untold and exit_status is None else None
        findings = self.findings
        below = shell.found(tail, start.stage, orphans=untold)
        if below is not None:
            findings = (*findings, below)
        if told is not None:
            tail = tuple(line for line in tail if line[0] <= told.line)
        return Evidence(
            end=end,
            stage=start.stage,
            findings=findings,
            tail=tail,
            exit_status=told.exit_status if told else exit_status,
            after=dict(after),
            told_to_stop=self._start.told_to_stop,
            figures=self._start.carried,
            releases=(self._version,) if self._version else releases_of(self._start.arguments),
        )

    def _tell_serving(self) -> None:
        figures, accepted = self._start.figures, self._serving.accept_length
        if self._serving.decode_lines:
            figures["decode_lines"] = float(self._serving.decode_lines)
        if accepted is not None:
            figures["accept_length"] = accepted

    def _look_for_another(self, number: int, text: str) -> None:
        """
        Follow what may be another start below the end of this one: one that fails before it has printed
        its arguments shows only its exception.
        """
        if self._next is None:
            if not text.startswith("Traceback (most recent call last)") or shell.told(self.tail) is None:
                return
            self._next = (number, Start(self._version))
        begun, start = self._next
        start.examine(number, text)
        if start.fatal is not None and not start.fatal.text.startswith(LAUNCHERS):
            self._restart(begun, start)

    def _restart(self, number: int, start: Start | None = None) -> None:
        ended = self._start
        self.earlier.append(EarlierStart(self.begun, number - 1, ended.stage, ended.ready, ended.findings))
        self.begun = number
        self._start = start or Start(self._version)
        self._serving = Serving()
        self._next = None


def _clipped(text: str) -> str:
    return text if len(text) <= TEXT_LIMIT else text[:TEXT_LIMIT] + "…"
