"""
One traceback of a log, read line by line: whose it is, and what its last exception means.
"""

import re
from collections import deque
from enum import StrEnum

from msgspec import structs

from mtpdeploy.core.diagnosis import Finding, Signature, Stage
from mtpdeploy.engines.sglang import signatures
from mtpdeploy.engines.sglang.matching import figures_of, match
from mtpdeploy.engines.sglang.shell import is_shell
from mtpdeploy.engines.sglang.signatures import Catalogue

TEXT_LIMIT = 2000
"""Characters of a line that are kept: a proof is shown on a screen, and memory stays constant."""

DEPTH = 30
"""SGLang's own files on a stack that are looked at, from the innermost; the deepest real one has 25."""

MESSAGE_LIMIT = 400
"""Lines of one exception's message that are examined: build output (`Ninja build failed`) may be long."""

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_RANK = re.compile(r"^\[rank\d+\]:\s?")
_FRAME = re.compile(r'^\s+File "(?P<file>[^"]+)", line \d+, in (?P<function>.+)$')
_TYPED = re.compile(r"[A-Za-z_][\w.]*(?::|$| \(in )")
_MODULE = re.compile(r".*/sglang/(?:srt/)?((?:[\w-]+/)*\w+\.py)$")
_BARE = re.compile(r"^[\w.]+(?:Error|Exception)?:?$")
_RAISED = re.compile(r"^[a-z_A-Z][\w.]*(?:Error|Exception|OutOfResources)(?:: |:?$)")
_CHAIN = ("During handling of the above exception", "The above exception was the direct cause")
_CONSEQUENCES = (
    "BrokenPipeError",
    "EOFError",
    "ConnectionResetError",
    "KeyboardInterrupt",
    "SystemExit",
    "asyncio.exceptions.CancelledError",
)
"""
Exceptions of a process whose partner is gone already, or that was told to stop: never a cause
(a scheduler orphaned by kill -9 of the main process ends with a broken pipe; real starts, 0.5.23).
"""

_STARTS = (
    "<module>",
    "_run_module_as_main",
    "_bootstrap",
    "run_scheduler_process",
    "run_detokenizer_process",
    "run_data_parallel_controller_process",
)
"""Functions that a process begins with: Python's own, multiprocessing's, SGLang's (0.5.6-0.5.23)."""


class Owner(StrEnum):
    """
    Whose traceback it is, by the line that announces it.
    """

    SCHEDULER = "scheduler"
    DETOKENIZER = "detokenizer"
    WARMUP = "warm-up"
    UNANNOUNCED = "unannounced"
    CUT = "cut off at its head"


_ORDINARY = {
    Owner.SCHEDULER: signatures.ORDINARY_SCHEDULER,
    Owner.DETOKENIZER: signatures.ORDINARY_DETOKENIZER,
    Owner.WARMUP: signatures.WARMUP,
    Owner.UNANNOUNCED: signatures.ORDINARY_PARENT,
    Owner.CUT: signatures.ORDINARY_SCHEDULER,
}

UNTITLED = (Owner.UNANNOUNCED, Owner.CUT)
"""Tracebacks that no record announces."""


def begins_within(line: str) -> bool:
    """
    Whether the first lines of a log are the rest of a traceback: a frame, or the exception itself.
    """
    return bool(_FRAME.match(line) or _RAISED.match(line))


class Traceback:
    """
    A fold over the lines of one traceback, chained ones included.

    The exception is the last line at the left margin after the frames of the last part of the chain.
    An unannounced one counts as a death only if its outermost frame is a program's start; others are
    logged by somebody who went on (a plugin, an optional import, a request handler). `finding` is what
    it means so far: it may still be revised by the lines that follow.
    """

    def __init__(
        self, owner: Owner, number: int, announced: str, rank: str, stage: Stage, catalogue: Catalogue
    ) -> None:
        self.finding: Finding | None = None
        self._owner = owner
        self._rank = rank
        self._stage = stage
        self._catalogue = catalogue
        self._from_start = False
        self._outermost = True
        self._in_frames = True
        self._function = ""
        self._code = ""
        self._modules: deque[str] = deque(maxlen=DEPTH)
        self._message_lines = 0
        self._seen = False
        if owner not in UNTITLED:
            self._conclude(number, announced, _ORDINARY[owner])

    @property
    def may_end(self) -> bool:
        """
        Whether an announced traceback may take its place: an unannounced one seldom matters.
        """
        return self.has_exception or self._owner in UNTITLED

    @property
    def is_cut(self) -> bool:
        """
        Whether its beginning is missing, so that nobody knows whose it is and whether it was survived.
        """
        return self._owner is Owner.CUT

    @property
    def has_exception(self) -> bool:
        """
        Whether the exception itself was seen, so that another record may end the traceback.
        """
        return self._seen and not self._in_frames

    @property
    def rank(self) -> str:
        """
        Whose it is; empty where that is not certain.
        """
        return self._rank

    def mix(self) -> None:
        """
        Another rank has begun a traceback within it: from here on the lines may be either's.
        """
        self._rank = ""
        if self.finding is not None:
            self.finding = structs.replace(self.finding, rank="")

    def feed(self, number: int, line: str) -> None:
        """
        Take the next line that carries no time stamp.
        """
        text = _RANK.sub("", _ANSI.sub("", line)) if "\x1b" in line or line.startswith("[rank") else line
        if text.startswith("Traceback (most recent call last)"):
            self._in_frames = True
            self._outermost = True
            self._modules.clear()
        elif text.startswith(_CHAIN) or not text.strip():
            return
        elif text[0] in " \t" and self._in_frames:
            self._frame(text)
        elif self._in_frames and is_shell(text):
            return
        elif self._in_frames:
            self._in_frames = False
            self._seen = True
            self._message_lines = 0
            self._exception(number, text)
        elif self._message_lines < MESSAGE_LIMIT:
            self._message_lines += 1
            self._message(number, text.strip())

    def _frame(self, text: str) -> None:
        frame = _FRAME.match(text)
        if frame is None:
            if text.strip().strip("^~"):
                self._code = text.strip()
            return
        self._function = frame["function"]
        self._code = ""
        if module := _MODULE.match(frame["file"]):
            self._modules.appendleft(module[1])
        if self._outermost:
            self._outermost = False
            self._from_start = self._function in _STARTS

    def _exception(self, number: int, text: str) -> None:
        survived = self._owner is Owner.UNANNOUNCED and not self._from_start
        if survived or text.startswith(_CONSEQUENCES):
            self.finding = None
            return
        placed = f"{text.rstrip(':')} (in {self._function}: {self._code})" if self._function else text
        if _BARE.match(text):
            text = placed
        known = match(self._catalogue.exceptions, text, self._stage)
        by_place = match(self._catalogue.placed, placed, self._stage)
        if by_place is not None and (known is None or by_place.weight > known.weight):
            known, text = by_place, placed
        if known is None and self._modules and _TYPED.match(text):
            origin = f"{placed[:TEXT_LIMIT]} (at {' < '.join(dict.fromkeys(self._modules))})"
            known = match(self._catalogue.origins, origin, self._stage)
        self._conclude(number, text, known or _ORDINARY[self._owner])

    def _message(self, number: int, text: str) -> None:
        """
        A further line of the exception's message: it may name what its first line did not, or bring figures.
        """
        so_far = self.finding
        if so_far is None:
            return
        known = match(self._catalogue.exceptions, text, self._stage)
        general = signatures.ORDINARY_SCHEDULER.weight <= so_far.weight < signatures.NAMED
        if known is not None and general and known.weight > so_far.weight:
            self._conclude(number, text, known)
        elif figures := figures_of(text):
            self.finding = structs.replace(so_far, figures={**figures, **so_far.figures})

    def _conclude(self, number: int, text: str, signature: Signature) -> None:
        self.finding = Finding(
            cause=signature.cause,
            line=number,
            text=text[:TEXT_LIMIT].strip(),
            stage=self._stage,
            weight=signature.weight,
            fatal=signature.fatal,
            rank=self._rank,
            figures=figures_of(text),
        )
