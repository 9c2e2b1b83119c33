"""
How fast `mtpdeploy diagnose` judges a log of a gigabyte of a server that started and then served, and in how
much memory; beside a search for four words by grep, which is what people do.
"""

import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.bench.figures import Figure
from tests.engines.sglang.recorded import LOGS

NAME = "diagnose"
LOG_BYTES = 10**9
TARGET_MB_S = 150.0
TARGET_MB = 100.0
WORDS = "ready to roll|Not enough memory|out of memory|Killed"
HEAD = "r-ready-then-runtime-oom-lazy-triton.log"


def measure(folder: Path) -> Iterator[Figure]:
    """
    The whole command, from the shell's view, start-up included.
    """
    log = folder / "server.log"
    size = fill(log)
    words = ["grep", "-cE", WORDS, str(log)]
    baseline = size / 1e6 / _seconds(words)
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    rate = size / 1e6 / _seconds([sys.executable, "-m", "mtpdeploy", "diagnose", str(log)])
    used = max(before, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss) / 1e3
    yield Figure(
        NAME,
        "judging a log of 1 GB",
        rate,
        "MB/s",
        target=TARGET_MB_S,
        baseline=baseline,
        baseline_is="grep of four words",
        more_is_better=True,
    )
    yield Figure(NAME, "  memory at most", used, "MB", target=TARGET_MB)


def fill(log: Path) -> int:
    """
    A recorded start, then decode lines of two ranks with access lines between them.
    """
    block = b"".join(
        b"[2026-12-01 09:%02d:%02d TP%d] Decode batch, #running-req: 12, #full token: 48213, full token "
        b"usage: 0.31, mamba num: 24, mamba usage: 0.20, accept len: 2.71, accept rate: 0.57, cuda "
        b"graph: True, gen throughput (token/s): 512.33, #queue-req: 0\n"
        % (number // 60, number % 60, number % 2)
        + b'[2026-12-01 09:%02d:%02d] INFO:     127.0.0.1:%d - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
        % (number // 60, number % 60, 30000 + number)
        for number in range(3600)
    )
    start = (LOGS / HEAD).read_bytes().partition(b"ready to roll")[0]
    with log.open("wb") as file:
        file.write(start + b"ready to roll!\n")
        while file.tell() < LOG_BYTES:
            file.write(block)
        return file.tell()


def _seconds(words: list[str]) -> float:
    begun = time.perf_counter()
    subprocess.run(words, stdout=subprocess.PIPE, check=False)
    return time.perf_counter() - begun
