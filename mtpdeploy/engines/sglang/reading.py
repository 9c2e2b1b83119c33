"""
Reading SGLang's log: one start after another, in constant memory.
"""

from collections import deque
from collections.abc import Mapping

from mtpdeploy.core.diagnosis import End, Evidence, Finding, Milestone, Stage
from mtpdeploy.engines.base import EarlierStart
from mtpdeploy.engines.sglang import milestones
from mtpdeploy.engines.sglang.starts import Start
from mtpdeploy.engines.sglang.tracebacks import TEXT_LIMIT

TAIL = 40
"""Last lines kept as evidence where nothing else explains a death: a screenful."""

EARLIER = 16
"""Earlier starts kept, the last ones: a container that restarts for ever fills a log with them."""


class LogReading:
    """
    A fold over the lines of one log, which may hold several starts, one appended to the other.

    `stage`, `figures`, `arguments`, `progress` and `milestones` are those of the last start. Findings too,
    but where it shows none and has not become ready either, those of the last earlier start that shows some:
    a restart that has only just begun explains nothing.
    """

    def __init__(self, version: str = "") -> None:
        self.tail: deque[tuple[int, str]] = deque(maxlen=TAIL)
        self.earlier: deque[EarlierStart] = deque(maxlen=EARLIER)
        self.begun = 1
        self._version = version
        self._start = Start(version)

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
        self.tail.append((number, text if len(text) <= TEXT_LIMIT else text[:TEXT_LIMIT] + "…"))
        if not self._start.alert and not milestones.interesting(text):
            return []
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
        return self._judged()[1]

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
        stage, findings = self._judged()
        return Evidence(
            end=end,
            stage=stage,
            findings=findings,
            tail=tuple(self.tail),
            exit_status=exit_status,
            after=dict(after),
            told_to_stop=self._start.told_to_stop,
            figures=self._start.carried,
        )

    def _judged(self) -> tuple[Stage, tuple[Finding, ...]]:
        found = self._start.findings
        if not found and self._start.stage is not Stage.READY:
            for earlier in reversed(self.earlier):
                if earlier.findings:
                    return earlier.stage, earlier.findings
        return self._start.stage, found

    def _restart(self, number: int) -> None:
        start = self._start
        self.earlier.append(EarlierStart(self.begun, number - 1, start.stage, start.ready, start.findings))
        self.begun = number
        self._start = Start(self._version)
