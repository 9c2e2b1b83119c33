"""
A run: the directory of one attempt on one box, its files, and what they say.
"""

import re
import shlex
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from msgspec import Struct

from mtpdeploy.core.machine import RunRecord
from mtpdeploy.core.server import ServerSpec, purpose_of

ATTEMPT_FILE = "attempt.json"
"""Written before the launch: which ascent, which attempt, which server; enough to go on from."""

SCRIPT_FILE = "launch.sh"
"""The rendered script; runs by hand too."""

SUPERVISOR_FILE = "supervise.py"
"""The small program that runs the server, reaps its family and records the exit."""

PROCESS_FILE = "proc"
"""First act of the script: who it is."""

EXIT_FILE = "exit"
"""Last act of the supervisor: how the server ended."""

OUTCOME_FILE = "outcome.json"
"""What mtpdeploy concluded; written by the client when it knew."""

STACKS_FILE = "stacks.txt"
"""Where the processes stood when mtpdeploy ended them for doing nothing."""

SECRETS_FILE = "env"
"""Beside `runs/`: `NAME=value` lines of secrets, mode 0600, written by the user; scripts only read it."""

RUN_MARKER = "MTPDEPLOY_RUN"
"""Environment variable that every process of a run inherits: the run's name."""

READ_ONLY = frozenset({"BASHOPTS", "BASH_VERSINFO", "EUID", "PPID", "SHELLOPTS", "UID"})
"""Variables that bash refuses to assign (bash 5.2, `declare -pr`)."""

LONGEST_WORD = 131071
"""Bytes of one word or `NAME=value`, NUL apart, that Linux hands to a program (binfmts.h: MAX_ARG_STRLEN)."""

NAME = re.compile(r"(\d{8}-\d{6}Z)-(.+)-[^-]+-(\d+)")
"""What `run_name` makes: the stamp, the server, the ascent's token and the attempt."""

UNSAFE = str.maketrans(dict.fromkeys("/\\ \t\n:*?\"'$`&;|<>(){}[]!#~", "-"))


class RunState(StrEnum):
    """
    What the files of a run say about it. UNTOLD: processes of it live, and `proc` does not tell which is it.
    """

    STARTING = "starting"
    RUNNING = "running"
    EXITED = "exited"
    VANISHED = "vanished"
    UNTOLD = "process unknown"


def run_name(started: datetime, server: str, ascent: str, attempt: int) -> str:
    """
    The directory name of an attempt: UTC stamp, server, the ascent's token and the attempt's number.

    It sorts by time, and no other run has it, on whatever box and in whatever work directory: it is
    what marks the processes of a run as ours.
    """
    return f"{stamp(started)}-{server.translate(UNSAFE)}-{ascent.rpartition('-')[2]}-{attempt}"


def told_by_name(name: str) -> tuple[float, str, int] | None:
    """
    When a run was started, its server and its attempt, from its name; None for what is not called so.
    """
    found = NAME.fullmatch(name)
    if found is None:
        return None
    try:
        moment = datetime.strptime(found[1], "%Y%m%d-%H%M%SZ").replace(tzinfo=UTC)
    except ValueError:
        return None
    return moment.timestamp(), found[2], int(found[3])


def log_name(started: datetime, attempt: int) -> str:
    """
    The log's own name: a UTC stamp and the attempt number, so that no two attempts share one.
    """
    return f"{stamp(started)}-attempt-{attempt}.log"


def stamp(moment: datetime) -> str:
    """
    A moment as `20261201-093012Z`.
    """
    return moment.astimezone(UTC).strftime("%Y%m%d-%H%M%SZ")


def shell_path(path: str) -> str:
    """
    A path on the box as one word of sh; a leading `~/` means the home directory of whoever runs it.
    """
    if path.startswith("~/"):
        return '"$HOME"/' + shlex.quote(path[2:])
    return '"$HOME"' if path == "~" else shlex.quote(path)


def run_state(run: RunRecord) -> RunState:
    """
    Decide a run's state from its files, as house rule: derived, never remembered.

    An exit record wins over a process that still looks alive (the supervisor writes it last). A
    recorded process that is gone without one was killed from outside, or the box was restarted. Without
    a recorded process a run is starting only while a launch is under way.
    """
    if run.exit_status is not None:
        return RunState.EXITED
    if run.process is None and run.launching:
        return RunState.STARTING
    if run.process is None and run.family:
        return RunState.UNTOLD
    return RunState.RUNNING if run.alive else RunState.VANISHED


class Original(Struct, frozen=True):
    """
    What a server that was restarted without speculation, for a comparison, is to become again: the run whose
    place it took, what was asked there, and what ran.
    """

    run: str
    asked: ServerSpec
    server: ServerSpec


class AttemptRecord(Struct, frozen=True):
    """
    The content of attempt.json: everything another client needs to go on with the ascent.

    `asked` is the server as the user asked for it and `server` the one of this attempt; `before`
    holds the earlier attempts' outcomes as JSON documents (decoded by `core.outcome`). `options` are
    those of the command that started the ascent (`max_attempts`, `keep_others`, …). `compares` names the run
    that a comparison measures anew; `original` is there only while that one runs without speculation.
    """

    ascent: str
    attempt: int
    run: str
    log: str
    started_at: float
    asked: ServerSpec
    server: ServerSpec
    rung: str | None
    sglang_version: str
    before: tuple[dict[str, Any], ...] = ()
    options: dict[str, Any] = {}
    client: str = ""
    compares: str = ""
    original: Original | None = None

    @property
    def purpose(self) -> str:
        """
        What the attempt is for, where that is not to serve as asked.
        """
        return purpose_of(self.asked, self.compares)
