"""
The end of a session of the demo box's SSH server.
"""

import asyncio
import logging
import time
from asyncio import unix_events
from typing import Any

import pytest

from mtpdeploy.demo.wire import _end

LATE = 0.2
"""Seconds by which asyncio learns late that a child has died."""


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Makes asyncio's watcher slower than anybody else who may ask after a child.
    """
    names = ("_ThreadedChildWatcher", "ThreadedChildWatcher")  # from Python 3.14 on, and before
    watcher: Any = next(getattr(unix_events, name) for name in names if hasattr(unix_events, name))
    wait = watcher._do_waitpid

    def wait_late(*words: Any) -> None:
        time.sleep(LATE)
        wait(*words)

    monkeypatch.setattr(watcher, "_do_waitpid", wait_late)


@pytest.mark.usefixtures("late")
@pytest.mark.parametrize("cancelled", [False, True])
def test_nobody_but_asyncio_reaps_the_shell(caplog: pytest.LogCaptureFixture, cancelled: bool) -> None:
    """
    Its status is the shell's own, and no unknown child is complained of, also when the session is cancelled.
    """

    async def session() -> int | None:
        shell = await asyncio.create_subprocess_exec(
            "/bin/sh", "-c", "exit 7", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        time.sleep(LATE / 2)  # noqa: ASYNC251 - the shell is dead, and the loop did not see it yet
        ending = asyncio.ensure_future(_end(shell))
        await asyncio.sleep(0)
        if cancelled:
            ending.cancel()
        await ending
        return shell.returncode

    with caplog.at_level(logging.WARNING, "asyncio"):
        status = asyncio.run(session())

    assert (7, []) == (status, caplog.messages)
