"""
The demo box held to the real server: the lines of a start, processes, answers about health, exit statuses.
"""

import re
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mtpdeploy.core.diagnosis import Stage
from mtpdeploy.demo.home import DemoHome, make_home
from mtpdeploy.engines.sglang.reading import LogReading
from tests.fakes.sshd import free_port
from tests.real.place import GATED_DELTA_NET, NEXTN, PATIENCE, SMALL, Box, until

pytestmark = [pytest.mark.real, pytest.mark.timeout(3 * PATIENCE)]

READY = "ready to roll"
UNLIKE = (Stage.ARGUMENTS, Stage.GRAPHS_BEGUN, Stage.GRAPHS_CAPTURED)
"""A CPU captures no graphs, and the arguments are another server's."""

SPEED = 15.0
"""Simulated seconds in a real one: slow enough that its warm-up can be seen."""

LINES = [
    (Stage.WEIGHTS_BEGUN, "Load weight begin. avail mem=# GB"),
    (Stage.WEIGHTS_LOADED, "Load weight end. elapsed=# s, type=CLASS, avail mem=# GB, mem usage=# GB."),
    (Stage.DRAFT_BEGUN, "Load weight begin. avail mem=# GB"),
    (Stage.DRAFT_LOADED, "Load weight end. elapsed=# s, type=CLASSMTP, avail mem=# GB, mem usage=# GB."),
    (
        Stage.STATE_ALLOCATED,
        (
            "Mamba Cache is allocated. max_mamba_cache_size: #, conv_state size: #GB, ssm_state size: #GB "
            "intermediate_ssm_state_cache size: #GB intermediate_conv_window_cache size: #GB"
        ),
    ),
    *[
        (
            Stage.KV_ALLOCATED,
            "KV Cache is allocated. dtype: torch.bfloat#, #tokens: #, K size: # GB, V size: # GB",
        ),
        (Stage.POOLS_READY, "Memory pool end. avail mem=# GB"),
    ]
    * 2,
    (
        Stage.SIZED,
        (
            "max_total_num_tokens=#, chunked_prefill_size=#, max_prefill_tokens=#, max_running_requests=#, "
            "context_len=#, available_gpu_mem=# GB"
        ),
    ),
    (Stage.LISTENING, "INFO:     Uvicorn running on http://#.#:# (Press CTRL+C to quit)"),
    (Stage.READY, "The server is fired up and ready to roll!"),
]
"""The lines of SGLang 0.5.23 that prove a stage, in their order."""

Launch = Callable[..., "Running"]


class Running:
    """
    A server that was started by hand, real or simulated.
    """

    def __init__(self, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
        self.process = process
        self.port = port
        self._log = log

    @property
    def log(self) -> str:
        """
        What it has said so far.
        """
        return self._log.read_text(errors="replace")

    def health(self) -> int | None:
        """
        The status of `/health`; None where nobody listens.
        """
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=60) as reply:
                return int(reply.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return None

    def titles(self) -> set[str]:
        """
        The titles that its children have given themselves.
        """
        told = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        titles = {Path(f"/proc/{pid}/cmdline").read_text().strip("\0 ") for pid in told}
        return {title for title in titles if title.startswith("sglang::")}

    def ends_with(self) -> int:
        """
        Its exit status, as a shell shows it.
        """
        status = self.process.wait(PATIENCE)
        return 128 - status if status < 0 else status


@pytest.fixture
def launch(fresh: Box, tmp_path: Path) -> Iterator[dict[str, Launch]]:
    """
    Starts one of each kind with the same flags, on a port of its own.
    """
    home: DemoHome = make_home(tmp_path / "demo", sglang_version="0.5.23", speed=SPEED)
    started: list[Running] = []

    def run(kind: str, *flags: str) -> Running:
        port, log = free_port(), tmp_path / f"{kind}-{len(started)}.log"
        words = ["--port", str(port), *flags]
        if kind == "real":
            words += ["--model-path", str(fresh.installed.models / "chain"), *SIZES]
            process = fresh.by_hand(*words, log=log)
        else:
            words += ["--model-path", str(home.model()), "--max-running-requests", "16"]
            process = home.start_server(*words, log=log)
        started.append(Running(process, port, log))
        return started[-1]

    yield {kind: lambda *flags, kind=kind: run(kind, *flags) for kind in ("real", "demo")}
    for running in started:
        running.process.kill()
        running.process.wait()
    home.clean()


def words_of(flags: dict[str, object]) -> list[str]:
    """
    Flags as SGLang takes them.
    """
    return [
        word
        for name, value in flags.items()
        for word in (f"--{name.replace('_', '-')}", *([] if value is True else [str(value)]))
    ]


SIZES = words_of({name: value for name, value in SMALL.items() if name != "device"} | GATED_DELTA_NET)


def skeletons(log: str) -> list[tuple[Stage, str]]:
    """
    The lines that prove a stage, without figures, times and names of classes.
    """
    reading = LogReading("0.5.23")
    found = [m for n, line in enumerate(log.splitlines(), 1) for m in reading.feed(n, line)]
    told = []
    for milestone in found:
        text = re.sub(r"^\[[^\]]*\] ?", "", milestone.text)
        text = re.sub(r"type=\w+?(MTP)?,", r"type=CLASS\1,", text).replace(
            "available_cpu_mem", "available_gpu_mem"
        )
        told.append((milestone.stage, re.sub(r"\d+(\.\d+)?", "#", text)))
    return [(stage, text) for stage, text in told if stage not in UNLIKE]


@pytest.mark.parametrize("kind", ["real", "demo"])
def test_a_start_and_its_end(launch: dict[str, Launch], kind: str) -> None:
    """
    Nobody listens, then 503 in the warm-up, then 200; one scheduler, one detokenizer; TERM ends it with 0.
    """
    server = launch[kind](*words_of(NEXTN))
    answers: list[int | None] = []
    while READY not in server.log:
        assert server.process.poll() is None, server.log[-2000:]
        answer = server.health()
        answers += [answer] if answers[-1:] != [answer] else []
        time.sleep(0.02)
    until(lambda: server.health() == 200, "health")
    titles = server.titles()
    server.process.send_signal(signal.SIGTERM)
    status = server.ends_with()

    assert [None, 503] == answers[:2]
    assert {200} >= set(answers[2:])
    assert {"sglang::scheduler", "sglang::detokenizer"} == titles
    assert (0, None) == (status, server.health())
    assert LINES == skeletons(server.log)


@pytest.mark.parametrize("kind", ["real", "demo"])
def test_exit_statuses(launch: dict[str, Launch], kind: str) -> None:
    """
    2 for an unknown flag and for a choice that is none; 143 for TERM while the arguments are being resolved.
    """
    unknown = launch[kind]("--no-such-flag", "3").ends_with()
    choice = launch[kind]("--attention-backend", "bogus").ends_with()
    told = launch[kind]()
    time.sleep(0.5)
    told.process.send_signal(signal.SIGTERM)

    assert (2, 2, 143) == (unknown, choice, told.ends_with())
