"""
What SGLang takes outside its pools: CUDA context, graphs, activations. Measured, not derived.

The figures are laid through public logs of the kinds named; they are wrong by as much as `UNCERTAINTY` says,
and a start that was seen on the box itself replaces them (see `Seen`).
"""

from mtpdeploy.core.memory import Seen
from mtpdeploy.core.units import GIB
from mtpdeploy.engines.sglang.sizing.asked import Asked

CONTEXT_BYTES = int(0.65 * GIB)
"""
What the CUDA context and the process groups take before any weight: 0.36 GiB on 16 GB, 0.62 on an H100,
0.65 and 0.73 on 96 GB cards (public logs of 0.5.8 to 0.5.19).
"""

CONTEXT_UNCERTAINTY = int(0.3 * GIB)

PREFILL_SIZE_BYTES = 0.052 * GIB / 5120
"""
Graphs of prefill for each captured size and unit of hidden size: 3 GiB for 58 sizes of a 27B on an H100
(0.5.18), 1.92 on a 48 GB card, 3.85 on a 94 GB card.
"""

VERIFY_BYTES, VERIFY_TOKEN_BYTES = 0.25 * GIB, 0.0058 * GIB
"""
Graphs of decoding or verifying, and for each token of their largest batch: 0.10 to 0.79 GiB were seen with
small batches, 6.13 with 1,024 tokens (64 requests of 16 on a 94.5 GiB card, 2026-10).
"""

DRAFT_BYTES, DRAFT_TOKEN_BYTES = 0.35 * GIB, 0.0018 * GIB
"""
Graphs of the draft's decoding and extension together: 0.36 to 0.69 GiB were seen with small batches (0.5.1x,
tp 1 and 3), 2.17 with the 1,024 tokens above.
"""

ACTIVATION_BYTES, CAPTURED_ACTIVATION_BYTES = 40, 24
"""
Activations of a prefill for each token and unit of hidden size: 1.6 GiB for a chunk of 8192 of a 27B. Where
prefill is captured most of them lie within its graphs, but for 970 MiB that a public start still lacked.
"""

WORKSPACE_BYTES = int(0.4 * GIB)
"""The attention backend's workspace: 384 MiB of flashinfer (0.5.12 report)."""

UNCERTAINTY = 0.4
"""Share of the estimate that it may be off by, upwards and downwards."""

SEEN_UNCERTAINTY = 0.1
"""The same where this box, model and version were seen before: two starts differ by some percent."""


def needed_bytes(asked: Asked, requests: int, seen: Seen | None = None) -> tuple[int, int]:
    """
    What graphs and activations take after the pools, and how far that may be off.
    """
    beside = _activations(asked) + WORKSPACE_BYTES
    if seen is None or seen.graphs is None:
        estimate = graph_bytes(asked, requests) + beside
        return int(estimate), int(UNCERTAINTY * estimate)
    grown = VERIFY_TOKEN_BYTES * max(0, largest_batch(asked, requests) - seen.graph_tokens)
    return int(seen.graphs + grown + beside), int(
        SEEN_UNCERTAINTY * seen.graphs + UNCERTAINTY * (grown + beside)
    )


def target_graph_bytes(asked: Asked, requests: int) -> int:
    """
    The target's graphs alone: to 0.5.13 they are captured before the draft is loaded.
    """
    if not asked.graph_batch:
        return 0
    return int(VERIFY_BYTES + VERIFY_TOKEN_BYTES * largest_batch(asked, requests))


def largest_batch(asked: Asked, requests: int) -> int:
    """
    The tokens of the largest decode batch that is captured.
    """
    return max(1, min(asked.graph_batch, max(1, requests))) * max(1, asked.draft_tokens)


def graph_bytes(asked: Asked, requests: int) -> float:
    """
    All captures together: prefill, decode or verify, and the draft's two.
    """
    prefill = asked.prefill_buckets * PREFILL_SIZE_BYTES * asked.model.hidden_size / asked.tp
    drafted = asked.draft_tokens and asked.graph_batch and asked.algorithm != "NGRAM"
    draft = DRAFT_BYTES + DRAFT_TOKEN_BYTES * largest_batch(asked, requests) if drafted else 0.0
    return prefill + target_graph_bytes(asked, requests) + draft


def _activations(asked: Asked) -> float:
    each = CAPTURED_ACTIVATION_BYTES if asked.prefill_buckets else ACTIVATION_BYTES
    return each * asked.chunk * asked.model.hidden_size
