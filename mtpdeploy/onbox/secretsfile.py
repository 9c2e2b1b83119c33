"""
The file of secrets as a script will source it: looked at for names alone; no value leaves the box.
"""

from __future__ import annotations

import os
import re
import stat
import time
from typing import Any

from mtpdeploy.onbox.asked import Asked
from mtpdeploy.onbox.identity import user_name

CHECK_LIMIT = 5.0
"""Seconds for `sh -n`, which reads the file and runs nothing."""

LONGEST_SECRETS = 256 * 1024

ASSIGNED = r"(?m)^(?:[^#\n]*[\s;&])?{name}="
"""An assignment: first on its line, or behind `export` or something else; not in a comment."""

ELSEWHERE = re.compile(r"(?m)^\s*(\.|source|eval)\s")
"""A file that has others say the names; which those are cannot be read from it."""

COMPLAINT_LINE = re.compile(r":\s*(?:line\s+)?(\d+):")
"""Where sh found the fault: `env: 3: Syntax error: …` (dash, busybox) or `env: line 3: …` (bash)."""


def secrets_facts(path: str, names: list[str], env: dict[str, str]) -> dict[str, Any]:
    """
    What stands at `path`, and which of `names` it or the login's own environment gives a value.

    `line` is where `sh -n` finds a fault, 0 where it does not say; None where there is none.
    """
    given = [name for name in names if name in env]
    answer: dict[str, Any] = {"path": path, "exists": os.path.lexists(path), "given": given}
    if not answer["exists"]:
        return answer
    try:
        about = os.stat(path)
        if not stat.S_ISREG(about.st_mode):
            return dict(answer, problem="not a regular file")
        answer.update(owner=user_name(about.st_uid), mine=about.st_uid == os.geteuid())
        answer["mode"] = stat.S_IMODE(about.st_mode)
        with open(path, "rb") as file:
            text = file.read(LONGEST_SECRETS).decode("utf-8", "replace")
    except OSError as error:
        return dict(answer, problem=error.strerror or str(error))
    elsewhere = ELSEWHERE.search(text) is not None
    found = [n for n in names if elsewhere or re.search(ASSIGNED.format(name=re.escape(n)), text)]
    return dict(answer, given=sorted({*given, *found}), line=fault_line(path, env))


def fault_line(path: str, env: dict[str, str]) -> int | None:
    """
    The line at which sh cannot go on reading a file. What sh says besides may quote a value: it stays here.
    """
    check = Asked(["sh", "-n", path], env)
    if check.answer(time.monotonic() + CHECK_LIMIT) is None or check.status == 0:
        return None
    found = COMPLAINT_LINE.search(check.err.decode("utf-8", "replace").replace(path, "", 1))
    return int(found[1]) if found else 0
