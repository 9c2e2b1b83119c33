"""
What stands below SGLang's last line: what a shell, a container or a launcher says of how it ended.
"""

import re
from collections.abc import Iterable

from msgspec import Struct

from mtpdeploy.core.diagnosis import Finding, Stage
from mtpdeploy.engines.sglang.matching import match
from mtpdeploy.engines.sglang.signatures.shell import ORPHANED, SHELL

SIGNALS = {
    "hangup": 129,
    "illegal instruction": 132,
    "aborted": 134,
    "abort": 134,
    "bus error": 135,
    "floating point exception": 136,
    "killed": 137,
    "segmentation fault": 139,
    "terminated": 143,
}
"""
How bash, dash and zsh name the signal that ended a program, and the exit status that they make of it (128 and
the signal's number; Linux, signal(7)).
"""

_SIGNAL = re.compile(
    r"^(?:\S+: (?:line )?\d+: +|zsh: |\[\d+\][-+]? +)?(?:\d+ +)?"
    rf"(?P<signal>{'|'.join(SIGNALS)})(?: +\(core dumped\))?(?:\s{{2,}}\S.*)?\s*$",
    re.IGNORECASE,
)
_STATUS = re.compile(
    r"^(?:command terminated with exit code |\S+ exited with code |exited with code )(\d+)\b"
    r"|: Main process exited, code=\w+, status=(\d+)/"
)
_RECORD = "[20"


class Told(Struct, frozen=True):
    """
    The line that tells how a program ended, and its exit status as a shell shows it (137 for SIGKILL).
    """

    line: int
    text: str
    exit_status: int


def is_shell(line: str) -> bool:
    """
    Whether a line is a shell's word about a program that ended, so that no program printed it.
    """
    return _status_in(line) is not None


def told(tail: Iterable[tuple[int, str]]) -> Told | None:
    """
    How the program ended, by the last lines of a log: what is above its last record is about others
    (compilers that it started).

    Source: bash 5.2, dash 0.5.12 and zsh 5.9; `kubectl exec`, `docker compose`, systemd.
    """
    for number, text in _below(tail):
        status = _status_in(text)
        if status is not None:
            return Told(number, text.strip(), status)
    return None


def found(tail: Iterable[tuple[int, str]], stage: Stage, *, orphans: bool) -> Finding | None:
    """
    What the last lines of a log say of why SGLang was not there, or was ended; with `orphans` also the last
    exception of a process that lost the main one.
    """
    catalogue = (*SHELL, *ORPHANED) if orphans else SHELL
    for number, text in _below(tail):
        signature = match(catalogue, text, stage)
        if signature is not None:
            return Finding(signature.cause, number, text.strip(), stage, signature.weight)
    return None


def _below(tail: Iterable[tuple[int, str]]) -> list[tuple[int, str]]:
    """
    The lines below the last record, from the end.
    """
    below: list[tuple[int, str]] = []
    for number, text in tail:
        if text.startswith(_RECORD):
            below.clear()
        else:
            below.append((number, text))
    return below[::-1]


def _status_in(text: str) -> int | None:
    if signal := _SIGNAL.match(text[:400]):
        return SIGNALS[signal["signal"].lower()]
    if status := _STATUS.search(text[:400]):
        number = int(status[1] or status[2])
        return 128 + number if "code=killed" in text or "code=dumped" in text else number
    return None
