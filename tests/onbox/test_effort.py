"""
What the system tells of a family's work.
"""

import os
import subprocess
import sys
from multiprocessing.spawn import get_command_line
from pathlib import Path

import pytest
from msgspec import convert

from mtpdeploy.core.patience import Activity, Worker
from mtpdeploy.onbox import effort
from mtpdeploy.onbox.identity import table

WRITES = """
import sys, time
with open(sys.argv[1], "wb") as file:
    file.write(b"x" * 50_000_000)
print("done", flush=True)
time.sleep(600)
"""

LOCKS = """
import ctypes, mmap, time
memory = mmap.mmap(-1, 1 << 20)
print(ctypes.CDLL(None).mlock((ctypes.c_char * (1 << 20)).from_buffer(memory), 1 << 20), flush=True)
time.sleep(600)
"""


def activity_of(pid: int) -> Activity:
    """
    What is counted of one process.
    """
    return convert(effort.effort({pid}, table()), Activity)


class TestEffort:
    def test_counts_what_a_process_writes_and_holds(self, tmp_path: Path) -> None:
        """
        A download shows in the bytes that are written, whatever library does it.
        """
        words = [sys.executable, "-c", WRITES, str(tmp_path / "x.incomplete")]
        with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            activity = activity_of(process.pid)
            process.kill()

        assert activity.written_bytes is not None
        assert activity.written_bytes >= 50_000_000
        assert activity.received_bytes is None
        assert activity.cpu_seconds >= 0.0
        assert activity.resident_bytes > 1_000_000

    def test_counts_locked_memory(self) -> None:
        """
        What is pinned stands apart from what is resident.
        """
        with subprocess.Popen([sys.executable, "-c", LOCKS], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert b"0\n" == process.stdout.readline()
            activity = activity_of(process.pid)
            process.kill()

        assert 1 << 20 == activity.pinned_bytes

    def test_workers_have_their_title(self) -> None:
        """
        A child process of SGLang is known by the title that it gave itself; a dead one is none.
        """
        words = ["sglang::scheduler_TP0", "600"]
        with subprocess.Popen(words, executable="/bin/sleep") as process:
            while not (alive := activity_of(process.pid).workers):
                os.sched_yield()  # in the middle of its exec it has no title yet
            process.kill()
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
            dead = activity_of(process.pid).workers

        assert [Worker(process.pid, alive[0].start, "sglang::scheduler_TP0")] == list(alive)
        assert () == dead

    def test_children_without_a_title_are_counted(self) -> None:
        """
        A child of multiprocessing before its title counts, its resource tracker and a titled one do not.
        """
        child = get_command_line(pipe_handle=3)
        words = [
            [child[0], "-c", "input()", child[-1]],
            [child[0], "-c", "input()"],
        ]
        started = [subprocess.Popen(line, stdin=subprocess.PIPE) for line in words]
        with started[0], started[1]:
            while 2 > sum("input()" in e["cmdline"] for e in table() if e["pid"] in {p.pid for p in started}):
                os.sched_yield()  # in the middle of its exec it is still this process
            counted = [activity_of(process.pid).untitled for process in started]
            for process in started:
                process.kill()

        assert [1, 0] == counted

    def test_a_proc_that_hides_bytes_shows_the_networks(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """
        /proc/PID/io belongs to the process's user; without it what the container receives is told.
        """
        (tmp_path / "self" / "net").mkdir(parents=True)
        (tmp_path / "self" / "stat").touch()
        (tmp_path / "self" / "net" / "dev").write_text(
            "Inter-|   Receive   |  Transmit\n face |bytes packets|bytes packets\n"
            "    lo: 999 9 0 0 0 0 0 0 999 9\n  eth0: 5000 7 0 0 0 0 0 0 300 3\n"
        )
        monkeypatch.setenv("MTPDEPLOY_PROC", str(tmp_path))
        counted = effort.effort({4711}, [])

        assert (None, None, 5000) == tuple(
            counted[key] for key in ("read_bytes", "written_bytes", "received_bytes")
        )

    @pytest.mark.parametrize(
        ("command", "name"),
        [
            ("/usr/local/cuda/bin/nvcc -c a.cu", "nvcc"),
            ("/venv/triton/backends/nvidia/bin/ptxas-blackwell -lineinfo", "ptxas-blackwell"),
            ("x86_64-linux-gnu-gcc-12 -c a.c", "gcc"),
            ("/usr/lib/gcc/x86_64-linux-gnu/12/cc1plus -quiet", "cc1plus"),
            ("clang++-19 a.cc", "clang++"),
            ("ninja -v -j 18", "ninja"),
            ("python -m sglang.launch_server --model /models/nvcc", None),
            ("less gcc", None),
            ("assistant", None),
            ("", None),
        ],
    )
    def test_knows_compilers_by_their_program(self, command: str, name: str | None) -> None:
        """
        By the name of the program alone, with a target before it or a version behind it.
        """
        assert name == effort.compiler({"cmdline": command})
