"""
What one `up` was told to do, and the things it works with.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from msgspec import Struct

from mtpdeploy.clock import Clock
from mtpdeploy.core.events import Emit, Note
from mtpdeploy.core.ladder import Ladder
from mtpdeploy.core.launch import Original
from mtpdeploy.core.machine import Host
from mtpdeploy.core.server import ServerSpec
from mtpdeploy.engines.base import Engine
from mtpdeploy.remote.box import Box

MAX_ATTEMPTS = 12
"""Attempts of one ascent unless told otherwise: the whole default ladder fits, an endless climb does not."""


class Options(Struct, frozen=True):
    """
    How to go about it. Kept in attempt.json, so that `attach` goes on in the same way.

    `max_attempts` bounds the ascent; `keep_others` leaves other servers of the same user alone even in
    the way; `take` ends one that is working on requests; `force` restarts what already serves. With `plan`
    the ladder is climbed in forecasts first; `early_end` then ends an attempt whose own figures mean that it
    must fail. `allow_no_mtp` goes on with a checkpoint that has no tensors for the draft.
    """

    max_attempts: int = MAX_ATTEMPTS
    keep_others: bool = False
    take: bool = False
    force: bool = False
    break_lock: bool = False
    detach: bool = False
    plan: bool = True
    early_end: bool = True
    allow_no_mtp: bool = False


class Order(Struct, frozen=True):
    """
    One server on one host, with the ladder to climb. `original` is what it has to become again afterwards.
    """

    server: ServerSpec
    host: Host
    ladder: Ladder
    options: Options = Options()
    original: Original | None = None


@dataclass(frozen=True)
class Tools:
    """
    What an ascent works with: the open box, the engine, the clock, where to tell and where to keep.

    `ladder` finds one by name.
    """

    box: Box
    engine: Engine
    clock: Clock
    emit: Emit
    state: Path
    ladder: Callable[[str], Ladder]
    templates: Path | None = None

    def note(self, text: str) -> None:
        """
        Tell something that has no event of its own.
        """
        self.emit(Note(at=self.clock.now(), text=text))
