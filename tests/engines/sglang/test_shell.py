"""
What stands below SGLang's last line.
"""

import pytest

from mtpdeploy.core.diagnosis import Cause, Stage
from mtpdeploy.engines.sglang import shell
from tests.engines.sglang.recorded import STAMP


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("Killed", 137),
        ("/usr/bin/entry.sh: line 3:  4711 Killed                  python3 -m sglang.launch_server", 137),
        ("zsh: killed     python -m sglang.launch_server", 137),
        ("[1]+  Killed                  sglang serve", 137),
        ("Segmentation fault (core dumped)", 139),
        ("run.sh: line 2:    12 Segmentation fault      (core dumped) python3 x.py", 139),
        ("Bus error", 135),
        ("Aborted (core dumped)", 134),
        ("Terminated", 143),
        ("command terminated with exit code 137", 137),
        ("sglang-1 exited with code 1", 1),
        ("sglang.service: Main process exited, code=killed, status=9/KILL", 137),
        ("sglang.service: Main process exited, code=exited, status=3/NOTIMPLEMENTED", 3),
        ("Killed by hand", None),
        ("killed the request", None),
        ("AssertionError", None),
        ("", None),
    ],
)
def test_the_exit_status(line: str, status: int | None) -> None:
    """
    As bash, dash, zsh, kubectl, docker compose and systemd tell it; other words tell none.
    """
    found = shell.told([(1, "x"), (2, line)])

    assert status == (found.exit_status if found else None)
    assert shell.is_shell(line) == (status is not None)


def test_what_is_above_the_last_record_is_about_others() -> None:
    """
    Compilers that SGLang starts are killed, too; it goes on and says so.
    """
    tail = [(1, "Killed"), (2, f"{STAMP}Load weight begin. avail mem=94.32 GB")]

    assert (None, None) == (shell.told(tail), shell.found(tail, Stage.LAUNCHED, orphans=True))


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("bash: line 1: sglang: command not found", Cause.SGLANG_MISSING),
        ("sh: 1: python3: not found", Cause.SGLANG_MISSING),
        ("/usr/bin/python3: No module named sglang", Cause.SGLANG_MISSING),
        ("zsh: command not found: sglang", Cause.SGLANG_MISSING),
        ('could not select device driver "" with capabilities: [[gpu]].', Cause.NO_GPU),
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=17.0.", Cause.HOST_OOM_KILLED),
        ("BrokenPipeError: [Errno 32] Broken pipe", Cause.VANISHED),
        ("bash: line 1: nvcc: command not found", None),
        ("python3: No module named sglang_router_x.y", None),
    ],
)
def test_why_it_was_not_there(line: str, cause: Cause | None) -> None:
    """
    What the shell or the container could not find, or who ended it.
    """
    found = shell.found([(7, line)], Stage.LAUNCHED, orphans=True)

    assert (cause, 7) == ((found.cause, found.line) if found else (None, 7))
