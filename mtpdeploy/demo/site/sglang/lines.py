"""SGLang's log lines, release by release, and how they reach the log."""

from __future__ import annotations

import os
import time
from typing import Any, Dict, List, Optional, Tuple

from .refusals import PACKAGES
from .sizing import Pools

NOTICE = (
    "mtpdeploy demo: this server and its GPU are simulated; no model runs and no real memory is measured "
    "(simulated SGLang {version})"
)
Era = Tuple[int, ...]


def write(text: str) -> None:
    """Text to stderr as it is, in one piece."""
    raw(text.encode("utf-8"))


def raw(data: bytes) -> None:
    """Bytes to stderr; a reader that went away is nobody's loss."""
    try:
        while data:
            data = data[os.write(2, data) :]
    except OSError:
        return


def log(text: str) -> None:
    """One line as SGLang's logger formats it: `[2026-12-01 03:07:44] text`."""
    write(f"[{time.strftime('%Y-%m-%d %H:%M:%S')}] {text}\n")


def bar(label: str, done: int, of: int, seconds: float, unit: str = "it") -> None:
    """One state of a tqdm bar, with the carriage return it begins with."""
    percent = 100 * done // of if of else 100
    rate = f"{done / seconds:5.2f}{unit}/s" if seconds and done else f"?{unit}/s"
    left = f"{_clock(seconds)}<{_clock(seconds / done * (of - done))}" if done else "00:00<?"
    write(f"\r{label}: {percent:3d}% Completed | {done}/{of} [{left}, {rate}]")


def capture_bar(label: str, done: int, of: int, seconds: float) -> None:
    """A bar of graph capture; tqdm draws blocks there."""
    percent = 100 * done // of if of else 100
    blocks = "█" * (done * 10 // max(of, 1))
    write(f"\r{label}: {percent:3d}%|{blocks:<10}| {done}/{of} [{_clock(seconds)}<{_clock(0)}, 3.1it/s]")


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60:02d}:{int(seconds) % 60:02d}"


def import_noise(era: Era) -> str:
    """The warnings of a healthy start: its own entry point from 0.5.10 on, then imports."""
    text = ""
    if era >= (0, 5, 10):
        text += (
            f"{PACKAGES}/sglang/launch_server.py:54: UserWarning: 'python -m sglang.launch_server' is still "
            "supported, but 'sglang serve' is the recommended entrypoint.\n"
            "  Example: sglang serve --model-path <model> [options]\n  warnings.warn(\n"
        )
    return text + (
        f"{PACKAGES}/torch/cuda/__init__.py:63: FutureWarning: The pynvml package is deprecated. Please "
        "install nvidia-ml-py instead.\n  import pynvml  # type: ignore[import]\n"
    )


# What fields were called before 0.5.14.
OLD_NAMES = {"mamba_radix_cache_strategy": "mamba_scheduler_strategy"}
OLD_NAMES.update({"cuda_graph_max_bs_decode": "cuda_graph_max_bs", "cuda_graph_bs_decode": "cuda_graph_bs"})


def server_args(era: Era, args: Dict[str, Any]) -> str:
    """The dump of every argument: a call to 0.5.18, a dict from 0.5.19 on."""
    if era < (0, 5, 14):
        args = {OLD_NAMES.get(key, key): value for key, value in args.items()}
    if era >= (0, 5, 19):
        return f"server_args={args!r}"
    return "server_args=ServerArgs(" + ", ".join(f"{key}={value!r}" for key, value in args.items()) + ")"


def distributed(era: Era, context_gib: float) -> List[str]:
    """Process groups: two lines to 0.5.20, a baseline from 0.5.21 on."""
    if era >= (0, 5, 21):
        return [f"Memory baseline taken. mem usage={context_gib:.2f} GB"]
    elapsed = "elapsed=0.41 s, " if era >= (0, 5, 7) else ""
    return [
        "Init torch distributed begin.",
        f"Init torch distributed ends. {elapsed}mem usage={context_gib:.2f} GB",
    ]


def weights_end(era: Era, kind: str, seconds: float, free: float, used: float) -> str:
    """`Load weight end.`: elapsed from 0.5.9, dtype to 0.5.9."""
    elapsed = f"elapsed={seconds:.2f} s, " if era >= (0, 5, 9) else ""
    middle = "dtype=torch.bfloat16, " if era < (0, 5, 10) else ""
    return f"Load weight end. {elapsed}type={kind}, {middle}avail mem={free:.2f} GB, mem usage={used:.2f} GB."


def shard_label(era: Era) -> str:
    """What the bar of loaded shards is called."""
    return "Multi-thread loading shards" if era >= (0, 5, 10) else "Loading safetensors checkpoint shards"


def mamba(pools: Pools, *, speculative: bool) -> str:
    """The state pool's line: the same in every release, with a blank at its end."""
    text = (
        f"Mamba Cache is allocated. max_mamba_cache_size: {pools.slots}, "
        f"conv_state size: {pools.conv_gib:.2f}GB, ssm_state size: {pools.ssm_gib:.2f}GB "
    )
    if speculative:
        text += (
            f"intermediate_ssm_state_cache size: {pools.intermediate_ssm_gib:.2f}GB "
            f"intermediate_conv_window_cache size: {pools.intermediate_conv_gib:.2f}GB "
        )
    return text


def kv(era: Era, tokens: int, k_gib: float, v_gib: float, dtype: str) -> str:
    """The KV pool's line: with its dtype from 0.5.13 on."""
    kind = f"dtype: {dtype}, " if era >= (0, 5, 13) else ""
    return f"KV Cache is allocated. {kind}#tokens: {tokens}, K size: {k_gib:.2f} GB, V size: {v_gib:.2f} GB"


def backends(era: Era) -> List[str]:
    """The lines of the linear attention once it has a backend."""
    said = []
    if era >= (0, 5, 10):
        verify = ", verify=triton" if era >= (0, 5, 17) else ""
        said.append(f"Linear attention kernel backend: decode=triton, prefill=triton{verify}")
    said.append("Using hybrid linear attention backend for hybrid GDN models.")
    if era >= (0, 5, 10):
        kernel = "TritonGDNKernel"
        said.append(
            f"GDN kernel dispatcher: decode={kernel}, extend={kernel}, verify={kernel} packed_decode=True"
        )
    return said


def graph_begin(era: Era, name: str, batches: List[int], tokens: int, free: float) -> List[str]:
    """The beginning of one capture. `name` is the newer one: target verify, draft decode, target prefill."""
    if era < (0, 5, 14):
        old = {"target verify": "", "target decode": "", "draft decode": "draft "}.get(name, f"{name} ")
        said = [
            f"Capture {old}cuda graph begin. This can take up to several minutes. avail mem={free:.2f} GB"
        ]
        return [*said, f"Capture cuda graph bs {batches}"] if not old else said
    if name.endswith("prefill"):
        counts = f"backend=breakable, num_tokens={batches}"
        return [f"Capture {name} CUDA graph begin. {counts}, avail mem={free:.2f} GB"]
    per = "num_tokens_per_bs" if era < (0, 5, 17) else "num_tokens_per_req"
    sizes = "" if era >= (0, 5, 22) and name.startswith("target") else f"bs={batches}, "
    return [f"Capture {name} CUDA graph begin. backend=full, {per}={tokens}, {sizes}avail mem={free:.2f} GB"]


def graph_end(era: Era, name: str, batches: List[int], seconds: float, *, used: float, free: float) -> str:
    """The end of one capture."""
    if era < (0, 5, 14):
        old = {"target verify": "", "target decode": "", "draft decode": "draft "}.get(name, f"{name} ")
        return (
            f"Capture {old}cuda graph end. Time elapsed: {seconds:.2f} s. mem usage={used:.2f} GB. "
            f"avail mem={free:.2f} GB."
        )
    sizes = f"bs={batches}, " if era >= (0, 5, 22) and not name.endswith("prefill") else ""
    return (
        f"Capture {name} CUDA graph end. {sizes}elapsed={seconds:.2f} s, mem usage={used:.2f} GB, "
        f"avail mem={free:.2f} GB."
    )


def tree(era: Era, *, hierarchical: bool) -> List[str]:
    """The radix tree of a hybrid model."""
    said = []
    if (0, 5, 11) <= era < (0, 5, 18):
        said.append(
            "Init Unified RadixTree with components "
            "(<ComponentType.FULL: 'full'>, <ComponentType.MAMBA: 'mamba'>)"
        )
    elif era >= (0, 5, 18):
        said.append(
            "Init Unified Radix Cache. Components: (<ComponentType.FULL: 0>, <ComponentType.MAMBA: 2>). "
            "Tree Core: RustUnifiedTreeCore"
        )
    if era >= (0, 5, 13):
        name = "hierarchical" if era < (0, 5, 19) else "hicache_attached"
        said.append(
            "Tree cache initialized: source=default impl=UnifiedRadixCache hybrid_swa=False "
            f"hybrid_ssm=True {name}={hierarchical}"
        )
    return said


def usage(*, hybrid: bool, decode: bool, full: int, tokens: int, slots: int, total: int) -> str:
    """How full the pools are, as prefill and decode lines say it."""
    share = f"{full / max(tokens, 1):.2f}"
    if not hybrid:
        return f"#token: {full}, token usage: {share}, " if decode else f"token usage: {share}, "
    state = f"{slots / max(total, 1):.2f}"
    if decode:
        return f"#full token: {full}, full token usage: {share}, mamba num: {slots}, mamba usage: {state}, "
    return f"full token usage: {share}, mamba usage: {state}, "


def prefill(era: Era, new: int, cached: int, used: str, *, running: int, queue: int, rate: float) -> str:
    """A prefill line: pending tokens and the graph from 0.5.12 and 0.5.10 on."""
    pending = "#pending-token: 0, " if era >= (0, 5, 12) else ""
    graph = "cuda graph: False, " if era >= (0, 5, 10) else ""
    tail = f"input throughput (token/s): {rate:.2f}"
    return (
        f"Prefill batch, #new-seq: 1, #new-token: {new}, #cached-token: {cached}, {used}"
        f"#running-req: {running}, #queue-req: {queue}, {pending}{graph}{tail}"
        + ("" if era >= (0, 5, 10) else ", cuda graph: False")
    )


def decode(
    era: Era, running: int, used: str, accept: Optional[Tuple[float, int]], *, rate: float, queue: int
) -> str:
    """
    A decode line. `accept` is (accept length, draft tokens).

    The rate counts the bonus token too, over all draft tokens, to 0.5.11; correct drafts alone later.
    """
    middle = ""
    if accept is not None:
        length, drafts = accept
        share = length / drafts if era < (0, 5, 12) else (length - 1) / max(drafts - 1, 1)
        middle = f"accept len: {length:.2f}, accept rate: {share:.2f}, "
    return (
        f"Decode batch, #running-req: {running}, {used}{middle}cuda graph: True, "
        f"gen throughput (token/s): {rate:.2f}, #queue-req: {queue}"
    )
