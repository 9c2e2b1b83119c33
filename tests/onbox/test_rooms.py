import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mtpdeploy.onbox.rooms import Rooms

HANGS = """
import json, os, signal, sys, time
sys.path.insert(0, sys.argv[1])
from mtpdeploy.onbox import rooms
exists = os.path.exists
def slow(path):
    if "dead" in path:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        time.sleep(20)
    return exists(path)
os.path.exists = slow
os.kill = lambda pid, number: print("left", pid, file=sys.stderr)
print(json.dumps(rooms.Rooms({"dead": "/dead/net", "here": "/"}).answer(time.monotonic() + 0.5)))
"""
"""One place hangs, and its child cannot be killed, as in the kernel's uninterruptible sleep."""


def test_what_the_system_says(tmp_path: Path) -> None:
    """
    Bytes and files as statvfs tells them, of the nearest folder that is there.
    """
    disk = os.statvfs(tmp_path)
    (told,) = Rooms({"one": str(tmp_path / "not" / "there")}).answer(time.monotonic() + 20).values()

    assert (str(tmp_path / "not" / "there"), disk.f_blocks * disk.f_frsize) == (told["path"], told["total"])
    assert 0 < told["free"] <= told["total"]


def test_a_disk_is_told_once(tmp_path: Path) -> None:
    """
    Two places on one disk are one room, under the first name.
    """
    places = {"first": str(tmp_path), "second": str(tmp_path / "below"), "none": "relative/nowhere"}

    assert "second" not in Rooms(places).answer(time.monotonic() + 20)


def test_a_box_that_can_start_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    After a death for want of memory there may be none for a child: then nothing is told of disks.
    """

    def fork() -> int:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(os, "fork", fork)

    assert {} == Rooms({"one": "/"}).answer(time.monotonic() + 20)


def test_one_that_hangs_holds_nothing_up() -> None:
    """
    Its child cannot even be killed: the others are told, and our output ends with us.
    """
    root = str(Path(__file__).parents[2])
    done = subprocess.run([sys.executable, "-c", HANGS, root], capture_output=True, text=True, check=True)
    os.kill(int(done.stderr.split()[1]), signal.SIGKILL)  # it lives on, or this raises

    assert ["here"] == list(json.loads(done.stdout))
