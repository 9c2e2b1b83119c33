"""
A run directory on a box, as the client handles it: made and started, read, concluded, stopped.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from mtpdeploy.core.foreign import decoded
from mtpdeploy.core.launch import OUTCOME_FILE, SCRIPT_FILE, STACKS_FILE
from mtpdeploy.core.machine import ProcessId
from mtpdeploy.errors import BoxLocked, BoxUnfit, CommandFailed, MtpDeployError
from mtpdeploy.onbox import script
from mtpdeploy.remote.box import Box, Result

T = TypeVar("T")

LAUNCH_LIMIT = 60.0
"""Seconds for an answer: another launch's lock (30, onbox/launch.py), the first act (20), the way."""

NOT_FOUND = 127
"""What a shell answers when there is no such program (POSIX)."""

KILLED = (137, 143)
"""What a shell answers for a program that was ended by SIGKILL or SIGTERM (128 + signal)."""

PIECE = 1_000_000
"""Bytes read at once unless asked otherwise."""

HINTS = {
    "no-space": "free some space there, or set `work_dir` of this host to another disk",
    "not-writable": "set `work_dir` of this host to a folder that the user may write to",
    "in-the-way": "move away what stands at that path, or set `work_dir` of this host to another folder",
    "broken-disk": "this disk does not do what a disk has to (a lost network mount?): set `work_dir` of this"
    " host to another one",
    "exhausted": "the box has run out of memory, processes or open files: end something there, or restart it",
}
"""What to do about a state of the box."""

FAULTS = {
    "absent": "it was there before: is somebody tidying up? `mtpdeploy status` shows what is left",
    "script": "run it by hand to see why, on the box: sh {work_dir}/runs/{run}/launch.sh",
}
"""What to do where it is not the box that is to be blamed."""

REPORT = "this should not happen: please report it, with what `mtpdeploy status` shows"


class Launched(Struct, frozen=True):
    """
    A run that has a process. `existed` says that it had one before we asked.
    """

    process: ProcessId
    log: str
    existed: bool


class Card(Struct, frozen=True):
    """
    A GPU after a stop: free bytes (None: nvidia-smi does not tell), bytes wanted, whether they are back.
    """

    uuid: str
    free: int | None
    wanted: int
    back: bool


class Stopped(Struct, frozen=True):
    """
    What a stop did. `port_holder` is who listens on the port after it; 0 when it cannot be seen.

    `ended` went by themselves or when asked, `killed` had to be, `survivors` live still. `shared` are
    the names that were removed from /dev/shm.
    """

    ended: tuple[ProcessId, ...]
    killed: tuple[ProcessId, ...]
    survivors: tuple[ProcessId, ...]
    port_holder: int | None
    gpus: tuple[Card, ...]
    shared: tuple[str, ...]
    seconds: float


class Stacks(Struct, frozen=True):
    """
    Where the processes of a run stood. `text` is what `stacks.txt` in the run's directory holds, `short`
    the innermost frames of each process, `how` who told them.
    """

    text: str
    short: str
    how: str


class Piece(Struct, frozen=True):
    """
    A part of a file, and the size of the whole in bytes at that moment.
    """

    data: bytes
    size: int


class Run(Struct, frozen=True):
    """
    One run directory on one box. `python` is the box's interpreter; paths may begin with `~/`.
    """

    work_dir: str
    name: str
    python: str

    @property
    def directory(self) -> str:
        """
        Where it is on the box.
        """
        return f"{self.work_dir.rstrip('/')}/runs/{self.name}"

    def create_and_launch(self, box: Box, files: Mapping[str, str], *, note: str) -> Launched:
        """
        Make the directory, write `files` (`attempt.json` first) and start the script, in one round trip.

        May be called again for the same run after a ConnectionLost: what stands is only told. `note`
        says who launches, when and why, to anyone who finds the lock taken.

        Raises:
            BoxUnfit: no space, not writable, no Python.
            BoxLocked: another launch held the lock all the time.
            CommandFailed: the script died before its first act.
            ConnectionLost: whether it was launched is unknown.
        """
        request = {
            "work_dir": self.work_dir,
            "run": self.name,
            "files": dict(files),
            "modes": {SCRIPT_FILE: 0o700},
            "lock_note": note,
        }
        answer = ask(box, "launch", request, self.python, limit=LAUNCH_LIMIT)
        return understood(box, "launch", answer, Launched)


def stop(
    box: Box,
    *,
    python: str,
    runs: Sequence[Run] = (),
    processes: Sequence[ProcessId] = (),
    port: int | None = None,
    gpus: Mapping[str, int] | None = None,
    grace: float = 20.0,
    kill_wait: float = 10.0,
    wait: float = 60.0,
    note: str = "",
) -> Stopped:
    """
    End runs and processes with their families, by identity, and wait for the port and the GPUs' memory.

    Asked to end first, killed after `grace` seconds, given up after `kill_wait` more; then at most
    `wait` seconds for the port and for the free bytes that `gpus` wants by UUID. SGLang's own stop
    takes a few seconds; the memory of a killed process comes back within 60 s (ssh-faults A6, 72).
    `note` is who stops and why, for whoever follows the runs: with it their end counts as ordered.

    Raises:
        BoxUnfit: no Python.
        ConnectionLost: how far it came is unknown; it may be called again.
    """
    request = {
        "runs": [run.directory for run in runs],
        "processes": [msgspec.to_builtins(process) for process in processes],
        "grace": grace,
        "kill_wait": kill_wait,
        "port": port,
        "gpus": [{"uuid": uuid, "free_at_least": wanted} for uuid, wanted in (gpus or {}).items()],
        "wait": wait,
        "note": note,
    }
    limit = grace + kill_wait + wait + LAUNCH_LIMIT
    return understood(box, "stop", ask(box, "stop", request, python, limit=limit), Stopped)


def take_stacks(box: Box, run: Run) -> Stacks | None:
    """
    Have the stacks of a living run's main process and schedulers written into its directory; None where
    nothing tells them. The processes go on.

    Raises:
        BoxUnfit: no Python.
        ConnectionLost: the line to the box broke; it may be called again.
    """
    request = {"run_dir": run.directory, "python": run.python, "file": STACKS_FILE}
    answer = ask(box, "stacks", request, run.python, limit=LAUNCH_LIMIT)
    return understood(box, "stacks", answer, Stacks) if answer.get("text") else None


def write_outcome(box: Box, run: Run, text: str) -> None:
    """
    Write what was concluded into the run's directory, whole or not at all.

    Raises:
        BoxUnfit: no space, not writable, no Python.
        CommandFailed: the directory is gone.
        ConnectionLost: whether it was written is unknown; it may be called again.
    """
    request = {"path": f"{run.directory}/{OUTCOME_FILE}", "text": text, "mode": 0o600}
    ask(box, "files", request, run.python)


def read_file(box: Box, run: Run, name: str, offset: int = 0, limit: int = PIECE) -> Piece:
    """
    At most `limit` bytes of a file of the run from byte `offset` on.

    Raises:
        CommandFailed: there is no such file.
        BoxUnfit: no Python.
        ConnectionLost: the line to the box broke.
    """
    request = {"path": f"{run.directory}/{name}", "offset": offset, "limit": limit}
    piece = understood(box, "files", ask(box, "files", request, run.python), Piece)
    return Piece(piece.data[:limit], piece.size)


def ask(
    box: Box, name: str, request: Mapping[str, object], python: str, limit: float = 20.0
) -> dict[str, Any]:
    """
    Run one of the programs of `onbox` that answer with a JSON document, and return it.

    Raises:
        BoxUnfit: no Python, or the box refuses what was asked.
        BoxLocked: another launch is under way.
        CommandFailed: it ended without an answer.
        ConnectionLost: the line broke, or no answer came within `limit` seconds.
    """
    result = box.run(script(name, request, python), limit=limit)
    answer = _answer(result)
    if answer is None:
        raise _no_answer(box, name, python, result)
    if "error" in answer:
        raise _refused(box, name, request, answer)
    return answer


def understood(box: Box, name: str, answer: Mapping[str, Any], kind: type[T]) -> T:
    """
    The answer of a program of `onbox` as what it should be; bytes come as base64.

    Raises:
        CommandFailed: it is something else.
    """
    try:
        return msgspec.convert(answer, kind)
    except (msgspec.ValidationError, OverflowError) as error:
        raise CommandFailed(
            f"`{name}` on {box.host.name} answered something else: {error}", hint=REPORT
        ) from error


def _answer(result: Result) -> dict[str, Any] | None:
    lines = result.text.strip().splitlines()
    if result.status != 0 or not lines:
        return None
    try:
        answer = decoded(lines[-1])
    except ValueError:
        return None
    return answer if isinstance(answer, dict) else None


def _no_answer(box: Box, name: str, python: str, result: Result) -> MtpDeployError:
    told = result.err.decode("utf-8", "replace").strip()
    if "No space left on device" in told:
        return BoxUnfit(f"no space left on {box.host.name}: {_last(told)}", hint=HINTS["no-space"])
    if result.status == NOT_FOUND:
        return BoxUnfit(
            f"no Python on {box.host.name}: {python}", hint="set `python` of this host to its interpreter"
        )
    if result.status in KILLED:
        return BoxUnfit(
            f"`{name}` was killed on {box.host.name} (status {result.status})",
            hint="the box may be out of memory: see `dmesg` there, end something, or restart it",
        )
    return CommandFailed(
        f"`{name}` ended with status {result.status} on {box.host.name}: {_last(told)}", hint=REPORT
    )


def _refused(box: Box, name: str, request: Mapping[str, object], answer: Mapping[str, Any]) -> MtpDeployError:
    kind = answer.get("kind", "")
    where = f" at {answer['path']}" if answer.get("path") else ""
    message = f"{answer['error']} on {box.host.name}{where}"
    if kind == "locked":
        return BoxLocked(f"{message}: {answer.get('holder', '')}", hint="wait for it, then run this again")
    if kind in HINTS:
        return BoxUnfit(message, hint=HINTS[kind])
    return CommandFailed(f"`{name}`: {message}", hint=FAULTS.get(kind, REPORT).format(**request))


def _last(text: str) -> str:
    return text.splitlines()[-1] if text else "it said nothing"
