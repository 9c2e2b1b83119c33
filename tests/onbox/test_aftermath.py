import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mtpdeploy.core.aftermath import Aftermath, facts
from mtpdeploy.onbox.baseline import remember
from mtpdeploy.onbox.identity import below, table
from mtpdeploy.remote import aftermath
from mtpdeploy.remote.aftermath import look_after
from mtpdeploy.remote.run import Run
from tests.onbox.kernel import Kernel
from tests.onbox.place import GPU_TABLE, Place
from tests.onbox.runs import ShBox, launch, python_server, record, until

OTHER_BOOT = "99999999-8888-7777-6666-555555555555"


class After:
    """
    A run with a baseline in a made-up home, to be looked after for real.
    """

    def __init__(self, place: Place, kernel: Kernel) -> None:
        self.place, self.kernel = place, kernel
        self.run_dir = place.work_dir / "runs" / "one"
        self.run_dir.mkdir(parents=True)
        (self.run_dir / "proc").write_text("{}")

    def look(self, model: str = "owner/model", **env: str) -> Aftermath:
        """
        Ask the box, as a client does.
        """
        path = f"{self.place.bin}:/usr/bin:/bin"
        box = ShBox({"HOME": str(self.place.home), "PATH": path}, self.place.shell)
        run = Run(work_dir="~/.mtpdeploy", name="one", python="python3")
        return look_after(box, run, model=model, env=env)


@pytest.fixture
def after(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> After:
    """
    A box whose container had one kill, and whose kernel said one thing, before the launch.
    """
    kernel = Kernel(tmp_path / "kernel", monkeypatch)
    kernel.group(memory_max=str(64 << 30), memory_current=str(1 << 30), memory_events="max 1\noom_kill 1\n")
    kernel.say({10.0: "Out of memory: Killed process 3 (python3) last week"})
    made = After(place, kernel)
    remember(str(made.run_dir))
    return made


def test_nothing_happened(after: After) -> None:
    """
    What stood before the launch is no news.
    """
    told = after.look()

    assert ((), "absent") == (told.kernel, told.nvidia_smi)
    assert "oom_kill" not in facts(told)
    assert "no_oom_kill" in facts(told)


def test_what_happened_since(after: After) -> None:
    """
    Kills, lines of interest, and cards, told against the baseline.
    """
    after.kernel.group(memory_events="max 5\noom_kill 2\n")
    after.kernel.say(
        {11.0: "NVRM: Xid (PCI:0000:01:00): 31, pid=7", 12.0: "usb 1-1: new device", 13.0: "traps: x"}
    )
    rows = zip(GPU_TABLE.splitlines(), ("00000000:01:00.0", "00000000:C1:00.0"), strict=True)
    table = "".join(f"{row}, {address}\n" for row, address in rows)
    after.place.nvidia_smi(table, "GPU-bbbb, 4711, 96000, python3\n")
    told = after.look()

    assert ("NVRM: Xid (PCI:0000:01:00): 31, pid=7", "traps: x") == told.kernel
    assert "`oom_kill 2` (+1 since the launch), limit 64.00 GiB" in facts(told)["oom_kill"]
    assert {0: "00000000:01:00.0", 1: "00000000:C1:00.0"} == told.addresses
    assert [(0, 0), (1, 4711)] == [
        (gpu.index, sum(h.pid for h in told.holders if h.gpu_uuid == gpu.uuid)) for gpu in told.gpus
    ]


def test_a_flood_of_lines_is_cut(after: After) -> None:
    """
    The first lines are told, each of bearable length.
    """
    after.kernel.say({20.0 + n: f"NVRM: Xid (PCI:0000:01:00): {n}, {'x' * 2000}" for n in range(500)})
    kernel = after.look().kernel

    assert kernel is not None
    assert (60, 400, True) == (len(kernel), max(map(len, kernel)), ": 0," in kernel[0])


def test_the_box_was_restarted(after: After) -> None:
    """
    Another boot: the kernel's log and its counters are of another life.
    """
    after.kernel.boot(OTHER_BOOT, first=3)
    after.kernel.group(memory_events="oom_kill 9\n")
    told = after.look()

    assert None is told.kernel
    assert {"box_restarted"} == {"box_restarted", "oom_kill", "no_oom_kill"} & facts(told).keys()


def test_a_run_without_a_baseline(after: After) -> None:
    """
    Nothing is compared; what stands is still told.
    """
    (after.run_dir / "baseline").unlink()
    after.kernel.say({11.0: "NVRM: Xid (PCI:0000:01:00): 79, gone"})
    told = after.look()

    assert (None, None) == (told.before, told.kernel)
    assert "1.00 GiB in use now, limit 64.00 GiB" in facts(told)["memory"]
    assert "work_dir" in told.rooms


def test_disks_by_where_the_server_writes(after: After, tmp_path: Path) -> None:
    """
    Each disk once; a folder that is not there yet is asked of its nearest parent.
    """
    rooms = after.look(model=str(tmp_path / "not" / "there"), TMPDIR=str(tmp_path)).rooms

    assert str(after.place.work_dir) == rooms["work_dir"].path
    assert all(room.total >= room.free >= 0 for room in rooms.values())
    assert len({room.path for room in rooms.values()}) == len(rooms)


def test_a_disk_that_does_not_answer_is_left_out(after: After, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A dead network behind one of the paths costs its limit, and hides nothing else.
    """
    hanging = f"""
import time
from mtpdeploy.onbox import aftermath, rooms
aftermath.ROOM_LIMIT = 1.0
exists = rooms.os.path.exists
rooms.os.path.exists = lambda path: (time.sleep(60) if "dead" in path else None) or exists(path)
aftermath.main({{"run_dir": {str(after.run_dir)!r}, "work_dir": "/", "model": "/dead/model", "env": {{}},
    "nvidia_smi_limit": 1.0}})
"""
    monkeypatch.setenv("PATH", f"{after.place.bin}:/usr/bin:/bin")
    done = subprocess.run(
        [sys.executable, "-c", hanging], capture_output=True, text=True, check=True, timeout=50
    )
    told: dict[str, Any] = json.loads(done.stdout)

    assert "work_dir" in told["rooms"]
    assert "model" not in told["rooms"]


@pytest.mark.parametrize(
    ("text", "state"),
    [
        (
            "echo 'Unable to determine the device handle for GPU0000:01:00.0: GPU is lost.'; exit 15",
            "GPU is lost",
        ),
        ("sleep 60", "no answer within 1 s"),
    ],
    ids=["lost", "hangs"],
)
def test_a_card_that_does_not_answer(
    text: str, state: str, after: After, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    nvidia-smi's own words for a card that is lost; one that hangs is left behind.
    """
    monkeypatch.setattr(aftermath, "NVIDIA_SMI_LIMIT", 1.0)
    after.place.program("nvidia-smi", text)
    told = after.look()

    assert state in told.nvidia_smi
    assert ("GPU is lost" in state) is ("gpu_lost" in facts(told))


def test_without_proc(after: After, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A box without /proc tells its disks.
    """
    monkeypatch.setenv("MTPDEPLOY_PROC", "/nowhere")

    assert "work_dir" in after.look().rooms


def test_a_server_that_is_killed_from_outside(run: str, tmp_path: Path) -> None:
    """
    A real SIGKILL on this machine: its own kernel and control group tell of no kill for memory.
    """
    answer = launch(run, tmp_path, python_server("import time; time.sleep(600)"))
    pid = answer["process"]["pid"]
    (server,) = until(lambda: below({pid}, table()) - {pid})
    os.kill(server, signal.SIGKILL)
    assert 137 == record(tmp_path / "runs" / run / "exit")["status"]
    told = look_after(
        ShBox(), Run(work_dir=str(tmp_path), name=run, python=sys.executable), model="/nowhere", env={}
    )

    assert told.before is not None
    assert told.before.boot == told.boot
    assert set() == {"oom_kill", "box_restarted", "gpu_fault", "gpu_lost", "segfault"} & facts(told).keys()
