"""
Recorded logs and short made-up ones, and how the tests read them.
"""

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mtpdeploy.core.diagnosis import End, Verdict
from mtpdeploy.core.verdict import diagnose
from mtpdeploy.engines.sglang.causes import KNOWLEDGE
from mtpdeploy.engines.sglang.reading import LogReading

LOGS = Path(__file__).parent / "logs"
DATA = Path(__file__).parent / "data"

SITE = "/opt/venv/lib/python3.11/site-packages/sglang/srt"

STAMP = "[2026-12-01 03:07:28] "


def names() -> list[str]:
    """
    The recorded logs.
    """
    return sorted(path.stem for path in LOGS.glob("*.log"))


def recorded(name: str) -> tuple[list[str], dict[str, Any]]:
    """
    One recorded log's lines, and what is known of it.
    """
    text = (LOGS / f"{name}.log").read_bytes().decode()
    return text.removesuffix("\n").split("\n"), tomllib.loads((LOGS / f"{name}.toml").read_text())


def read(lines: Iterable[str], version: str = "") -> LogReading:
    """
    A reading of all these lines.
    """
    reading = LogReading(version)
    for number, line in enumerate(lines, 1):
        reading.feed(number, line)
    return reading


def verdict(
    reading: LogReading, exit_status: int | None = 137, end: End = End.EXITED, **after: str
) -> Verdict:
    """
    The verdict on an attempt, by default on one that ended by itself.
    """
    return diagnose(reading.evidence(end, exit_status, after), KNOWLEDGE)


def judged(reading: LogReading, known: dict[str, Any]) -> Verdict:
    """
    The verdict on a recorded log that ended as is known of it.
    """
    return verdict(
        reading, known.get("exit_status"), End[known.get("end", "EXITED")], **known.get("after", {})
    )


def scheduler_exception(*message: str, rank: str = "") -> list[str]:
    """
    What SGLang logs when its scheduler fails, and the echoes after it.
    """
    return [
        f"[2026-12-01 03:07:28{rank}] Scheduler hit an exception: Traceback (most recent call last):",
        f'  File "{SITE}/managers/scheduler.py", line 3175, in run_scheduler_process',
        "    scheduler = Scheduler(",
        "                ^^^^^^^^^^",
        *message,
        "",
        f"{STAMP}Received sigquit from a child process. It usually means the child failed.",
    ]


def main_exception(*message: str, function: str = "__post_init__", code: str = "self.check()") -> list[str]:
    """
    What Python prints when SGLang's main process fails.
    """
    return [
        "Traceback (most recent call last):",
        '  File "<frozen runpy>", line 198, in _run_module_as_main',
        '  File "<frozen runpy>", line 88, in _run_code',
        f'  File "{SITE}/server_args.py", line 7, in {function}',
        f"    {code}",
        *message,
    ]


START = {
    "launched": "",
    "arguments": "server_args=ServerArgs(model_path='/models/27b', mem_fraction_static=0.8, tp_size=1)",
    "weights begun": "Load weight begin. avail mem=94.32 GB",
    "weights loaded": (
        "Load weight end. elapsed=35.10 s, type=Qwen3_5ForConditionalGeneration, dtype=torch.bfloat16, "
        "avail mem=43.20 GB, mem usage=51.05 GB."
    ),
    "state": (
        "Mamba Cache is allocated. max_mamba_cache_size: 80, conv_state size: 0.22GB, "
        "ssm_state size: 11.39GB "
        "intermediate_ssm_state_cache size: 9.56GB intermediate_conv_window_cache size: 0.19GB "
    ),
    "kv": "KV Cache is allocated. #tokens: 132000, K size: 4.03 GB, V size: 4.03 GB",
    "pools": "Memory pool end. avail mem=20.00 GB",
    "graphs begun": ("Capture cuda graph begin. This can take up to several minutes. avail mem=19.80 GB"),
    "graphs captured": (
        "Capture cuda graph end. Time elapsed: 20.10 s. mem usage=1.50 GB. avail mem=18.30 GB."
    ),
    "draft begun": "Load weight begin. avail mem=18.30 GB",
    "draft loaded": (
        "Load weight end. elapsed=3.10 s, type=Qwen3_5ForCausalLMMTP, dtype=torch.bfloat16, "
        "avail mem=12.77 GB, mem usage=5.53 GB."
    ),
    "draft kv": "KV Cache is allocated. #tokens: 132000, K size: 0.25 GB, V size: 0.25 GB",
    "draft pools": "Memory pool end. avail mem=12.20 GB",
    "draft graphs begun": (
        "Capture draft cuda graph begin. This can take up to several minutes. avail mem=12.20 GB"
    ),
    "draft graphs captured": (
        "Capture draft cuda graph end. Time elapsed: 5.00 s. mem usage=0.50 GB. avail mem=11.70 GB."
    ),
    "sized": (
        "max_total_num_tokens=132000, chunked_prefill_size=8192, max_prefill_tokens=16384, "
        "max_running_requests=10, context_len=262144, available_gpu_mem=11.70 GB"
    ),
    "listening": "INFO:     Uvicorn running on http://0.0.0.0:30000 (Press CTRL+C to quit)",
    "ready": "The server is fired up and ready to roll!",
}
"""A start of 0.5.9 with MTP, message by message, in the order of its log; figures of sglang-facts 1.12."""


def start_until(stage: str, rank: str = "") -> list[str]:
    """
    That start's log lines up to and including a stage.
    """
    lines: list[str] = []
    for name, message in START.items():
        lines += [f"[2026-12-01 03:07:28{rank}] {message}"] if message else []
        if name == stage:
            break
    return lines
