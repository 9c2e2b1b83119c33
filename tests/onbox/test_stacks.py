"""
Where the processes of a run stand, as py-spy or the kernel tells it.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mtpdeploy.core.launch import STACKS_FILE
from mtpdeploy.onbox import stacks
from mtpdeploy.remote.run import Run, Stacks, take_stacks
from tests.fakes.run import LocalRun
from tests.onbox.runs import ShBox, ended_afterwards

SECRET = "sk-" + "0123456789abcdef"

DUMP = f"""Process 42: sglang::scheduler --api-key {SECRET}
Python v3.12.3 (/opt/venv/bin/python3.12)

Thread 42 (idle): "MainThread"
    _wait_for_tstate_lock (threading.py:1167)
    join (threading.py:1147)
Thread 77 (active+gil): "forward"
    forward_extend (sglang/srt/model_executor/model_runner.py:2410)
    run_batch (sglang/srt/managers/scheduler.py:1150)
    event_loop_overlap (sglang/srt/managers/scheduler.py:802)
    run_scheduler_process (sglang/srt/managers/scheduler.py:2900)
    _run (multiprocessing/process.py:108)
"""
"""What py-spy 0.4.3 prints, in its own form."""


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """
    A run of a main process that sleeps, and of two children with SGLang's titles.
    """
    program = (
        "import subprocess, sys, time\n"
        "children = [subprocess.Popen([t, '600'], executable='/bin/sleep') for t in sys.argv[1:3]]\n"
        "print('up', flush=True)\ntime.sleep(600)\n"
    )
    folder = tmp_path / "runs" / "20261201-093012Z-qwen-1"
    folder.parent.mkdir()
    module = tmp_path / "site" / "sglang"
    module.mkdir(parents=True)
    (module / "__init__.py").touch()
    (module / "launch_server.py").write_text(program)
    titles = "sglang::scheduler sglang::detokenizer"
    command = f"{sys.executable} -m sglang.launch_server {titles} --api-key {SECRET} >{tmp_path}/up"
    words = ("sh", "-c", f"PYTHONPATH={module.parent} {command} & wait")
    with ended_afterwards(folder.name), LocalRun(folder, words):
        while not (tmp_path / "up").exists() or not (tmp_path / "up").read_text():
            os.sched_yield()
        yield Run(work_dir=str(tmp_path), name=folder.name, python=sys.executable)


@pytest.fixture
def spy(tmp_path: Path) -> Callable[[str], ShBox]:
    """
    A box with a program in the place of py-spy; "" is none at all.
    """

    def put(text: str) -> ShBox:
        if text:
            program = tmp_path / "py-spy"
            program.write_text(f"#!/bin/sh\n{text}\n")
            program.chmod(0o755)
        return ShBox({"PATH": f"{tmp_path}:/usr/bin:/bin"})

    return put


class TestTake:
    def test_py_spys_frames_are_kept_and_nothing_else(self, run: Run, spy: Callable[[str], ShBox]) -> None:
        """
        Of the scheduler and the main process, in a file of the run; no command line, which may hold a key.
        """
        box = spy(f"echo $3 >>{run.work_dir}/dumped; cat <<'E'\n{DUMP}E")

        taken = take_stacks(box, run)

        assert isinstance(taken, Stacks)
        assert "py-spy" == taken.how
        innermost = "forward_extend (model_runner.py:2410) < run_batch (scheduler.py:1150)"
        assert f"sglang::scheduler stood in {innermost}" in taken.short
        assert "main process stood in" in taken.short
        assert taken.text == Path(run.directory, STACKS_FILE).read_text()
        assert 'Thread 77 (active+gil): "forward"' in taken.text
        assert SECRET not in taken.text
        assert 2 == len(Path(run.work_dir, "dumped").read_text().split())

    def test_a_process_that_cannot_be_stopped_is_read_as_it_runs(
        self, run: Run, spy: Callable[[str], ShBox]
    ) -> None:
        """
        py-spy's own way to read one that it cannot stop is its second attempt.
        """
        box = spy(f"[ $2 = --nonblocking ] || {{ echo no >&2; exit 1; }}\ncat <<'E'\n{DUMP}E")

        taken = take_stacks(box, run)

        assert isinstance(taken, Stacks)
        assert "py-spy" == taken.how

    @pytest.mark.parametrize(
        ("program", "how"),
        [
            ("", "the kernel (no py-spy there)"),
            (
                "echo 'Error: Permission Denied' >&2; exit 1",
                "the kernel (py-spy could not: Error: Permission Denied)",
            ),
        ],
    )
    def test_without_py_spy_the_kernel_tells(
        self, run: Run, spy: Callable[[str], ShBox], program: str, how: str
    ) -> None:
        """
        State and waiting place of each thread stand in for frames, and it is said that they do.
        """
        taken = take_stacks(spy(program), run)

        assert isinstance(taken, Stacks)
        assert how == taken.how
        assert "sglang::scheduler stood: main thread state " in taken.short
        assert SECRET not in taken.text

    def test_a_run_of_which_nothing_lives_tells_nothing(self, tmp_path: Path) -> None:
        """
        No file is written for it.
        """
        folder = tmp_path / "runs" / "gone"
        folder.mkdir(parents=True)

        assert take_stacks(ShBox(), Run(str(tmp_path), "gone", sys.executable)) is None
        assert [] == list(folder.iterdir())


class TestInnermost:
    def test_where_all_are_idle_the_first_thread_speaks(self) -> None:
        """
        A deadlock has no active thread: the main thread's frames say where it waits.
        """
        frames = stacks.frames_of(DUMP.replace("active+gil", "idle"))

        assert "stood in _wait_for_tstate_lock (threading.py:1167) < join (threading.py:1147)" == (
            stacks.innermost(frames)
        )

    def test_py_spy_may_lie_beside_the_servers_python(self, tmp_path: Path) -> None:
        """
        In a virtual environment it is on no login's PATH.
        """
        program = tmp_path / "py-spy"
        program.touch(0o755)

        assert str(program) == stacks.spy(str(tmp_path / "python"))

    def test_a_real_process_of_this_machine(self) -> None:
        """
        The kernel tells each thread's state: it waits to read, once it has said that it will.
        """
        with subprocess.Popen(
            ["sh", "-c", "echo begun; read line"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            process.stdout.readline()
            states = (stacks.waits(process.pid) for _ in range(500))
            told = next((text for text in states if "1 x state S" in text), "it never waited")
            process.kill()

        assert told.startswith("main thread state ")
