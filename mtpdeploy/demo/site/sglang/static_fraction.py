"""The default of --mem-fraction-static: what each release keeps back for everything that is not a pool."""

from __future__ import annotations

from typing import List, Optional, Tuple

from .geometry import Geometry

# Total MiB below which a card belongs to a class, with its chunked_prefill_size and largest graph batch
# (server_args._handle_gpu_memory_settings, 0.5.9 to 0.5.23).
CLASSES = ((20480, 2048, 8), (35840, 2048, 24), (61440, 4096, 32), (163840, 8192, 256))
LARGEST = (16384, 512)
MIB_PER_BUCKET = 8


def card_class(total_mib: int, tp: int, era: Tuple[int, ...]) -> Tuple[int, int]:
    """(chunked_prefill_size, largest decode graph batch) that SGLang takes for a card of this size."""
    for below, chunk, batch in CLASSES:
        if total_mib < below:
            newer = below == 35840 and era >= (0, 5, 20)
            wide = {8: 8, 24: 80, 32: 160, 256: 512}[batch] if not newer else 160
            narrow = 48 if newer else batch
            return (4096 if newer else chunk), (wide if tp >= 4 else narrow)
    return LARGEST


def prefill_buckets(largest: int) -> List[int]:
    """Token counts captured for prefill graphs (`_generate_piecewise_cuda_graph_tokens`): 58 up to 8192."""
    sizes = [
        *range(4, 33, 4),
        *range(48, 257, 16),
        *range(288, 513, 32),
        *range(576, 1025, 64),
        *range(1280, 4097, 256),
        *range(4608, largest + 1, 512),
    ]
    return [size for size in sizes if size <= largest]


def _speculation_mib(era: Tuple[int, ...], algorithm: Optional[str]) -> int:
    if algorithm is None or algorithm == "NGRAM" or era >= (0, 5, 14):
        return 0
    if algorithm == "STANDALONE":
        return 6144
    return 2048 if era < (0, 5, 10) else 4096


def default_fraction(
    era: Tuple[int, ...],
    total_mib: int,
    chunk: int,
    batch: int,
    *,
    algorithm: Optional[str],
    buckets: int,
    geometry: Geometry,
    tp: int = 1,
) -> float:
    """
    `mem_fraction_static` when none is given, the multimodal factor included.

    From server_args._handle_gpu_memory_settings; 0.7787, 0.7592, 0.7981 and 0.7934 for Qwen3.6-27B with EAGLE
    on 97887 MiB in 0.5.9, 0.5.12, 0.5.14 and 0.5.16.
    """
    reserved = 512 + 1.5 * max(chunk, 2048) + 2 * batch + 128 * tp + MIB_PER_BUCKET * buckets
    if total_mib > 60 * 1024:
        reserved = max(reserved, 10240)
    reserved += _speculation_mib(era, algorithm)
    fraction = round((total_mib - reserved) / total_mib, 3)
    if geometry.multimodal:
        size = geometry.vision_layers * geometry.vision_hidden**2 / (24 * 1024**2)
        fraction *= 0.95 * min(max(1 - 0.1 * (size - 1), 0.8), 1.05)
    return fraction
