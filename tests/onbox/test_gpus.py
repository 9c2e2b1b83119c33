"""
What nvidia-smi tells of a run's cards, and one that does not answer.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mtpdeploy.onbox import gpus
from mtpdeploy.onbox.identity import identify
from tests.fakes.run import LocalRun
from tests.onbox.test_follow import Reader

TWO = "0, GPU-aaaa, 1000, 97, 180.50\n1, GPU-bbbb, 500, 0, 71.25\n"


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """
    Puts a program in the place of nvidia-smi.
    """

    def put(text: str) -> None:
        program = tmp_path / "nvidia-smi"
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    return put


class TestTable:
    @pytest.mark.parametrize(
        ("wanted", "told"),
        [
            ([], {"gpu_bytes": 1500 << 20, "gpu_busy": 97.0, "gpu_watts": 251.75}),
            (["1"], {"gpu_bytes": 500 << 20, "gpu_busy": 0.0, "gpu_watts": 71.25}),
            (["GPU-aa"], {"gpu_bytes": 1000 << 20, "gpu_busy": 97.0, "gpu_watts": 180.5}),
            (["MIG-cccc"], {"gpu_bytes": 1500 << 20, "gpu_busy": 97.0, "gpu_watts": 251.75}),
        ],
    )
    def test_of_the_cards_that_the_run_may_use(self, wanted: list[str], told: dict[str, float]) -> None:
        """
        Another tenant's card says nothing of this run; where none is named all count.
        """
        assert told == gpus.card_usage(TWO, wanted)

    def test_figures_that_a_card_lacks_are_left_out(self) -> None:
        """
        GB10 shows no memory, a laptop's card no power; an error message is no table.
        """
        assert {"gpu_busy": 5.0} == gpus.card_usage("0, GPU-a, [N/A], 5, [Not Supported]", [])
        assert {} == gpus.card_usage("No devices were found\n", [])

    def test_the_cards_stand_in_the_environment_of_the_run(self) -> None:
        """
        As CUDA reads it: numbers or the beginnings of names.
        """
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "2, GPU-ab"}
        words = ["sh", "-c", "echo up; read -r _"]
        with subprocess.Popen(
            words, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            process.stdout.readline()
            identity = identify(process.pid)
            named = gpus.visible(identity)
            process.kill()

        assert ["2", "GPU-ab"] == named
        assert [] == gpus.visible(None)


class TestReader:
    def test_heartbeats_carry_the_cards(self, tmp_path: Path, smi: Callable[[str], None]) -> None:
        """
        What nvidia-smi says stands beside what the family uses.
        """
        smi(f"printf '{TWO}'")
        with LocalRun(tmp_path / "r") as run:
            reader = Reader(run)
            reader.until(lambda r: any("gpu_bytes" in beat["activity"] for beat in r.notes("H")))
            reader.stream.close()

        assert 97.0 == reader.notes("H")[-1]["activity"]["gpu_busy"]

    def test_one_that_hangs_delays_no_heartbeat(self, tmp_path: Path, smi: Callable[[str], None]) -> None:
        """
        A driver that does not answer is waited for beside everything else.
        """
        smi(f"touch {tmp_path}/asked; trap '' TERM; while :; do sleep 1; done")
        with LocalRun(tmp_path / "r") as run:
            reader = Reader(run)
            reader.until(lambda r: len(r.notes("H")) > 5 and (tmp_path / "asked").exists())
            reader.stream.hang_up()
            reader.stream.process.wait(60)

        assert not gpus.hangs()
        assert all("gpu_bytes" not in beat["activity"] for beat in reader.notes("H"))

    def test_one_that_hangs_is_not_asked_again(self, tmp_path: Path, smi: Callable[[str], None]) -> None:
        """
        Processes that are stuck in the driver must not pile up: the next is asked when that one has gone.
        """
        smi(f"echo $$ >>{tmp_path}/asked; while :; do sleep 1; done")
        program = (
            "import threading, time\nfrom mtpdeploy.onbox import gpus\n"
            "gpus.ANSWER, gpus.EVERY = 0.1, 0.05\n"
            "gpus.Asked._end = lambda self: None  # as where the kernel lets it not go\n"
            "watch = gpus.Gpus()\nthreading.Thread(target=watch.work, daemon=True).start()\ntime.sleep(1.0)\n"
            "print(watch.usage)\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
        )
        asked = (tmp_path / "asked").read_text().split()
        for pid in asked:
            os.kill(int(pid), signal.SIGKILL)

        assert "{}" == done.stdout.strip()
        assert 1 == len(asked)
