"""
CUDA graphs: which sizes are captured, and what the capture and a first prefill take.

The lists are SGLang's; the costs are the demo's estimate, laid between public figures: verify 6.1 GB, draft
2.2 GB and prefill 3.9 GB for DFLASH with 16 draft tokens on a 94.5 GiB card; prefill graphs 3 GB on an H100.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import List

from .resolve import Resolved, decode_graphs_off, prefill_graphs
from .sizing import Pools

# GiB: what a capture costs at all, and for each token of its largest batch.
VERIFY_BASE_GIB, VERIFY_TOKEN_GIB = 0.22, 0.0055
DRAFT_BASE_GIB, DRAFT_TOKEN_GIB = 0.08, 0.002
EXTEND_BASE_GIB, EXTEND_TOKEN_GIB = 0.10, 0.003
PREFILL_BUCKET_GIB = 3.0 / 58
# A prefill of one token keeps this much in activations (logits and the delta rule's chunks).
ACTIVATION_TOKEN_GIB = 1.6 / 8192
# Both are of a 27B model, whose hidden size this is; others in proportion to theirs.
HIDDEN_27B = 5120
# The workspace flashinfer allocates when it is set up (0.5.12 report: 384 MiB).
WORKSPACE_GIB = {"flashinfer": 0.375}


@dataclass(frozen=True)
class Capture:
    """One capture: SGLang's name for it, sizes, tokens for each request, GiB taken, simulated seconds."""

    name: str
    sizes: List[int]
    tokens: int
    gib: float
    seconds: float


def activation_gib(state: Resolved, tokens: int) -> float:
    """What a prefill of so many tokens needs beside everything else."""
    return tokens * ACTIVATION_TOKEN_GIB * state.geometry.hidden_size / HIDDEN_27B


def batch_sizes(largest: int, *, speculative: bool) -> List[int]:
    """`_generate_cuda_graph_batch_sizes`, cut at the largest batch."""
    if speculative:
        sizes = [*range(1, 9), *range(10, 33, 2), *range(40, 65, 4), *range(72, 257, 8)]
        sizes += list(range(272, largest + 1, 16))
    else:
        sizes = [1, 2, 4, 8, 12, *range(16, 257, 8), *range(272, 512, 16), *range(512, largest + 1, 32)]
    return [size for size in sizes if size <= largest] or [1]


def target_captures(state: Resolved, pools: Pools) -> List[Capture]:
    """The target's graphs, in capture order: prefill first (from 0.5.14), then verify or decode."""
    found = []
    buckets = prefill_graphs(state)
    if buckets:
        gib = PREFILL_BUCKET_GIB * len(buckets) * state.geometry.hidden_size / HIDDEN_27B
        found.append(Capture("target prefill", buckets, 1, gib, 12.0))
    if decode_graphs_off(state):
        return found
    drafts = int(state.get("speculative_num_draft_tokens") or 1) if state.get("speculative_algorithm") else 1
    speculative = drafts > 1
    sizes = batch_sizes(min(state.args["cuda_graph_max_bs_decode"], pools.requests), speculative=speculative)
    gib = VERIFY_BASE_GIB + VERIFY_TOKEN_GIB * sizes[-1] * drafts
    name = "target verify" if speculative else "target decode"
    return [*found, Capture(name, sizes, drafts, gib, 4.0 + 0.2 * len(sizes))]


def draft_captures(state: Resolved, pools: Pools) -> List[Capture]:
    """The draft's graphs: its decode (more than one step) and the extension after a verify."""
    if decode_graphs_off(state):
        return []
    steps, topk = int(state.args["speculative_num_steps"]), int(state.args["speculative_eagle_topk"])
    drafts = int(state.args["speculative_num_draft_tokens"])
    sizes = batch_sizes(min(state.args["cuda_graph_max_bs_decode"], pools.requests), speculative=True)
    found = []
    if steps > 1:
        gib = DRAFT_BASE_GIB + DRAFT_TOKEN_GIB * sizes[-1] * topk
        found.append(Capture("draft decode", sizes, topk, gib, 2.0))
    gib = EXTEND_BASE_GIB + EXTEND_TOKEN_GIB * sizes[-1] * drafts
    return [*found, Capture("draft extend", sizes, drafts, gib, 2.0)]


def failed_text(era: object, cause: str, name: str) -> str:
    """The exception of a capture that ran out of memory, with SGLang's advice."""
    new = isinstance(era, tuple) and era >= (0, 5, 14)
    if name.endswith("prefill"):
        return (
            f"Capture CUDA graph failed: {cause}\nFail when using backend: breakable for prefill runner.\n"
            "Possible suggestions:\n1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)\n"
            "2. disable prefill CUDA graph by --cuda-graph-backend-prefill=disabled\n"
        )
    batch = "--cuda-graph-max-bs-decode" if new else "--cuda-graph-max-bs"
    off = (
        "3. disable decode CUDA graph by --cuda-graph-backend-decode=disabled. "
        if new
        else "3. disable torch compile by not using --enable-torch-compile\n4. disable CUDA graph by "
        "--disable-cuda-graph. "
    )
    return (
        f"Capture cuda graph failed: {cause}\nPossible solutions:\n"
        "1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)\n"
        f"2. set {batch} to a smaller value (e.g., 16)\n{off}(Not recommended. Huge performance loss)\n"
        "Open an issue on GitHub https://github.com/sgl-project/sglang/issues/new/choose \n"
    )
