"""
One start of SGLang in its log: stages, progress and what went wrong, in constant memory.
"""

import re
from collections import deque

from msgspec import structs

from mtpdeploy.core.diagnosis import Cause, Finding, Milestone, Signature, Stage
from mtpdeploy.engines.sglang import milestones, server_args, signatures
from mtpdeploy.engines.sglang.matching import figures_of, match
from mtpdeploy.engines.sglang.tracebacks import TEXT_LIMIT, Owner, Traceback, begins_within

FINDINGS = 64
"""Findings kept, the first of each cause and weight: more than the catalogue can produce in one log."""

MILESTONES = 256
"""Milestones kept; a start has about 25 (real logs of 0.5.12 and 0.5.23)."""

RANKS = 1024
"""Ranks told apart: more than any server has, so that noise cannot fill the memory."""

OPEN_LIMIT = 5000
"""
Lines after which a traceback is taken for cut off: each of them is read word by word, which would be too
slow for a whole log; the longest real one has 110 lines (0.5.23), build output a few hundred.
"""

HEADLESS = 400
"""
Lines at the head of a log that may be the rest of a traceback, up to the first record: the longest real one
has 110 lines (0.5.23).
"""

LINE_LIMIT = 1 << 17
"""Characters of one line that are examined, at either end: a bar may go on for ever without a newline."""

_RECORD = re.compile(
    r"\[20\d\d-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)?((?: [A-Za-z_.]+\d*)*)\] ?"
    r"(?:(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) \S+:\d+: )?"
)
_EXCEPTION = re.compile(r"^(\w+) hit an exception: ")
_DRAFT_STAGE = {Stage.WEIGHTS_BEGUN: Stage.DRAFT_BEGUN, Stage.WEIGHTS_LOADED: Stage.DRAFT_LOADED}
_KEPT = {
    Stage.WEIGHTS_BEGUN: {"avail_gib": "free_before_weights_gib"},
    Stage.WEIGHTS_LOADED: {"usage_gib": "weights_gib"},
    Stage.DRAFT_LOADED: {"usage_gib": "draft_weights_gib"},
    Stage.POOLS_READY: {"avail_gib": "free_after_pools_gib"},
}
"""Under which name the reading keeps a milestone's figure, where the plain one would be ambiguous."""

_CARRIED = (
    "mem_fraction_static",
    "effective_running_requests",
    "watchdog_timeout",
    "free_before_weights_gib",
    "weights_gib",
    "draft_weights_gib",
    "free_after_pools_gib",
)
"""Figures of the log that go with every finding, because rungs and remedies need them."""

_ABOUT_GRAPHS = (Cause.OOM_GRAPHS, Cause.GRAPHS_FAILED)
"""Causes whose rungs depend on which graphs were being captured."""

_PINNING = (Stage.POOLS_READY, Stage.GRAPHS_CAPTURED, Stage.SIZED)
"""Stages after which the hierarchical cache takes its host memory (0.5.6-0.5.23, managers/scheduler.py)."""

_STOPS = ("SIGTERM received", "Signal SIGTERM received", "Gracefully exiting")
"""How SGLang acknowledges that it was told to stop (0.5.6-0.5.23, managers/tokenizer_manager.py)."""


class Start:
    """
    A fold over the lines of one start.

    `stage` is the last stage reached by the leading rank; `figures` what SGLang printed on the way
    (weights_gib, kv_tokens, max_running_requests…, names with units); `arguments` the resolved
    arguments worth knowing; `progress` where a bar stands (`shards 3/12`).

    What counts: the first `Scheduler hit an exception` or main traceback, by its last line, judged with
    the stage of the rank that printed it. What does not: whatever follows SGLang's own notice that it
    ends its processes, tracebacks that somebody logged and survived, and the 19 kB of server_args. A
    traceback whose beginning was cut off with the head of the log counts unless a stage is reached after it
    or a whole one follows. Words that the given SGLang `version` does not print mean nothing; without one
    all count.

    While `alert` the next line may belong to a traceback, so that each has to be examined.
    """

    def __init__(self, version: str = "") -> None:
        self.stage = Stage.LAUNCHED
        self.ready = False
        self.recognized = False
        self.release = ""
        self.progress = ""
        self.figures: dict[str, float] = {}
        self.arguments: dict[str, str] = {}
        self.milestones: deque[Milestone] = deque(maxlen=MILESTONES)
        self._catalogue = signatures.catalogue_of(version)
        self._findings: list[Finding] = []
        self._open: Traceback | None = None
        self._opened = 0
        self._ending = False
        self._headless = True
        self.alert = True
        self._cut: Finding | None = None
        self._told_to_stop: tuple[int, str] | None = None
        self._leader = ""
        self._stages: dict[str, tuple[int, Stage]] = {}
        self._begun: dict[str, int] = {}
        self._prefill = False

    def followed_by(self, text: str) -> bool:
        """
        Whether a line can only belong to another start: arguments where this one is past its own, or a
        refusal of arguments where this one has ended.
        """
        if milestones.tells_arguments(text):
            open_one = self._open is not None and not self._open.is_cut and self._open.finding
            past = self._ending or self._findings or self._stages or open_one
            return bool(past) and self.stage is not Stage.ARGUMENTS
        if not (self._ending or self._told_to_stop) or "error: " not in text[: milestones.HEAD]:
            return False
        found = match(self._catalogue.records, text, Stage.LAUNCHED)
        return found is not None and found.cause is Cause.BAD_ARGUMENT

    @property
    def ending(self) -> bool:
        """
        Whether SGLang has said that it ends its own processes.
        """
        return self._ending

    @property
    def told_to_stop(self) -> tuple[int, str] | None:
        """
        The line in which the server acknowledges that it was told to stop.
        """
        return self._told_to_stop

    @property
    def carried(self) -> dict[str, float]:
        """
        What the log said of the configuration and of memory, which goes with every finding.
        """
        figures = {name: self.figures[name] for name in _CARRIED if name in self.figures}
        return figures | server_args.settings(self.arguments) | server_args.pools(self.figures)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """
        What was found so far, in the order of the log; at most `FINDINGS`.
        """
        last = self._open.finding if self._open else None
        found = self._findings if last is None else [*self._findings, self._dressed(last)]
        if self._cut is not None and not any(f.weight >= signatures.ORDINARY_SCHEDULER.weight for f in found):
            found = [*found, self._cut]
        return tuple(sorted(found, key=lambda finding: finding.line))

    @property
    def fatal(self) -> Finding | None:
        """
        The first finding that no waiting can mend, or None.
        """
        return next((f for f in self.findings if f.fatal), None)

    def examine(self, number: int, text: str) -> list[Milestone]:
        """
        Take one line that may prove something and tell the stages it proves.
        """
        if self._open is not None and number - self._opened > OPEN_LIMIT:
            self._close()
        if self._headless and number > HEADLESS:
            self._headless = False
        self.recognized = self.recognized or "/sglang/" in text
        if len(text) > 2 * LINE_LIMIT:
            text = text[:LINE_LIMIT] + text[-LINE_LIMIT:]
        told: list[Milestone] = []
        segments = text.split("\r") if "\r" in text else [text]
        for segment in segments:
            if self._open is None and segment is not segments[-1] and not milestones.interesting(segment):
                continue
            cuts = list(_RECORD.finditer(segment)) if "[20" in segment else []
            if not cuts or cuts[0].start() > 0:
                self._bare(number, segment[: cuts[0].start()] if cuts else segment)
            ends = [cut.start() for cut in cuts[1:]] + [len(segment)]
            for cut, end in zip(cuts, ends, strict=False):
                told += self._record(number, cut[1].strip(), segment[cut.end() : end])
        self.alert = self._open is not None or self._headless
        return told

    def _record(self, number: int, rank: str, body: str) -> list[Milestone]:
        self._headless = False
        self.recognized = True
        if milestones.tells_arguments(body):
            return self._arguments(number, body)
        if self._ending or self._announced(number, rank, body):
            return []
        if self._open is not None and self._open.has_exception:
            self._close()
        if self._ends(number, rank, body):
            return []
        if self._told_to_stop is None and body.startswith(_STOPS):
            self._told_to_stop = (number, body[:TEXT_LIMIT].strip())
        self._search(number, rank, body)
        if (effective := milestones.effective_requests(body)) is not None:
            self.figures["effective_running_requests"] = effective
        return self._reached(number, rank, body)

    def _announced(self, number: int, rank: str, body: str) -> bool:
        """
        Begin a traceback that a record announces; one still without its exception goes on (ranks mix).
        """
        exception = _EXCEPTION.match(body)
        if exception is not None:
            detokenizes = exception[1].startswith(("Detokenizer", "MultiDetokenizer"))
            owner = Owner.DETOKENIZER if detokenizes else Owner.SCHEDULER
        elif body.startswith("Initialization failed. warmup error:"):
            owner = Owner.WARMUP
        else:
            return False
        if self._open is None or self._open.may_end:
            self._begin(number, Traceback(owner, number, body, rank, self._stage_of(rank), self._catalogue))
        elif rank != self._open.rank:
            self._open.mix()
        return True

    def _ends(self, number: int, rank: str, body: str) -> bool:
        """
        SGLang's notice that it ends its own processes: what follows are consequences.
        """
        quits = body.startswith(("Received sigquit from a child", "SIGQUIT received"))
        kills = body.startswith("kill_process_tree called") and "include_parent=True" in body
        if not quits and not kills:
            return False
        if quits and not self.findings:
            self._found(number, rank, body, signatures.SILENT)
        self._ending = True
        return True

    def _bare(self, number: int, line: str) -> None:
        if self._open is not None:
            self._open.feed(number, line)
            if not self._open.has_exception:
                return
        elif line.startswith(("Traceback (most recent call last)", "[rank")) and "Traceback" in line:
            self._headless = False
            if not self._ending:
                self._begin(number, self._untitled(Owner.UNANNOUNCED, number, line))
            return
        elif self._headless and begins_within(line):
            self._headless = False
            self._begin(number, self._untitled(Owner.CUT, number, line))
            self._bare(number, line)
            return
        if self._ending or not line:
            return
        if bar := milestones.progress_of(line):
            self.progress = bar
        elif "rror" in line or "Watchdog caught" in line or "access fault" in line:
            self._search(number, "", line)

    def _untitled(self, owner: Owner, number: int, line: str) -> Traceback:
        return Traceback(owner, number, line, "", self.stage, self._catalogue)

    def _begin(self, number: int, traceback: Traceback) -> None:
        self._close()
        self._open = traceback
        self._opened = number

    def _close(self) -> None:
        if self._open is not None and self._open.finding is not None:
            finding = self._dressed(self._open.finding)
            if self._open.is_cut:
                self._cut = finding
            else:
                self._keep(finding)
        self._open = None

    def _search(self, number: int, rank: str, text: str) -> None:
        signature = match(self._catalogue.records, text, self._stage_of(rank))
        if signature is not None:
            self._found(number, rank, text, signature)

    def _found(self, number: int, rank: str, text: str, signature: Signature) -> None:
        finding = Finding(
            cause=signature.cause,
            line=number,
            text=text.strip()[:TEXT_LIMIT],
            stage=self._stage_of(rank),
            weight=signature.weight,
            fatal=signature.fatal,
            rank=rank,
            figures=figures_of(text),
        )
        self._keep(self._dressed(finding))

    def _keep(self, finding: Finding) -> None:
        known = any(f.cause is finding.cause and f.weight == finding.weight for f in self._findings)
        if not known and len(self._findings) < FINDINGS:
            self._findings.append(finding)

    def _dressed(self, finding: Finding) -> Finding:
        """
        A finding with what the log said of the configuration: a rung may need to know it.
        """
        figures = self.carried
        if finding.cause in _ABOUT_GRAPHS:
            figures["capturing_prefill"] = float(self._prefill or "prefill" in finding.text)
        cause = finding.cause
        if (
            cause is Cause.KILLED
            and finding.stage in _PINNING
            and figures.get(server_args.HIERARCHICAL_CACHE)
        ):
            cause = Cause.HOST_OOM_KILLED
        return structs.replace(finding, cause=cause, figures={**figures, **finding.figures})

    def _arguments(self, number: int, body: str) -> list[Milestone]:
        self.arguments = milestones.arguments_of(body)
        self.release = milestones.release_of(body)
        figures = milestones.numbers(self.arguments)
        self.figures.update(figures)
        shown = [(name, self.arguments[name]) for name in self.arguments if name in milestones.ARGUMENTS]
        text = "server_args: " + ", ".join(f"{name}={value}" for name, value in shown)
        return self._tell(Milestone(Stage.ARGUMENTS, number, text, figures), "")

    def _reached(self, number: int, rank: str, body: str) -> list[Milestone]:
        line = milestones.stage_of(body)
        if line is None or (line.stage is Stage.READY and self._has(Cause.PORT_TAKEN)):
            return []
        stage = line.stage
        if stage is Stage.WEIGHTS_BEGUN and (rank in self._begun or len(self._begun) < RANKS):
            self._begun[rank] = self._begun.get(rank, 0) + 1
        if line.draft or self._begun.get(rank, 0) > 1:
            stage = _DRAFT_STAGE.get(stage, stage)
        if stage is Stage.GRAPHS_BEGUN:
            self._prefill = milestones.captures_prefill(body)
        return self._tell(Milestone(stage, number, body[:TEXT_LIMIT].strip(), line.figures), rank)

    def _tell(self, milestone: Milestone, rank: str) -> list[Milestone]:
        if rank in self._stages or len(self._stages) < RANKS:
            count = self._stages.get(rank, (0, Stage.LAUNCHED))[0] + 1
            self._stages[rank] = (count, milestone.stage)
        if rank and not self._leader:
            self._leader = rank
        if rank not in ("", self._leader):
            return []
        self.stage = milestone.stage
        self._cut = None
        self.ready = self.ready or milestone.stage is Stage.READY
        self.progress = ""
        self._remember(milestone)
        self.milestones.append(milestone)
        return [milestone]

    def _remember(self, milestone: Milestone) -> None:
        names = _KEPT.get(milestone.stage, {})
        for name, value in milestone.figures.items():
            kept = names.get(name, name)
            if milestone.stage is Stage.KV_ALLOCATED and kept in self.figures:
                kept = f"draft_{kept}"
            self.figures[kept] = value
        if milestone.stage is Stage.SIZED and "max_running_requests" in milestone.figures:
            self.figures["effective_running_requests"] = milestone.figures["max_running_requests"]
        if milestone.stage is Stage.GRAPHS_CAPTURED:
            self.figures["graphs_gib"] = self.figures.get("graphs_gib", 0.0) + milestone.figures.get(
                "usage_gib", 0
            )

    def _stage_of(self, rank: str) -> Stage:
        """
        The stage of one rank where it is ahead of the leader, and else the leader's, which the main process
        brings further when it listens.
        """
        own = self._stages.get(rank, (0, self.stage))
        leading = self._stages.get(self._leader, (0, self.stage))
        return own[1] if rank and own[0] > leading[0] else self.stage

    def _has(self, cause: Cause) -> bool:
        return any(f.cause is cause for f in self._findings)
