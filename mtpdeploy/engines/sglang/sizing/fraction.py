"""
The default of `mem_fraction_static`: what SGLang keeps back for everything that is no pool.

From server_args.py `_handle_gpu_memory_settings` (0.5.6-0.5.18) and arg_groups/memory_hook.py (0.5.19 on).
"""

from mtpdeploy.core.model import Vision

CARD_CLASSES = ((20480, 2048, 8, 8), (35840, 2048, 24, 80), (61440, 4096, 32, 160), (163840, 8192, 256, 512))
"""Below how many MiB: prefill chunk, largest graph batch, and that of four or more cards (0.5.6-0.5.23)."""

LARGEST_CLASS = (16384, 512)
"""Chunk and graph batch of larger cards."""

MIDDLE_CLASS = (4096, 48, 160)
"""Chunk and graph batches of cards below 35840 MiB from 0.5.20 on."""

LEAST_RESERVE_MIB = 10240
"""What is kept back at least of cards above 60 GiB (0.5.6-0.5.23)."""

BUCKET_MIB = 8
"""What is kept back for each captured size of prefill (0.5.10-0.5.23)."""

LATENT_BUCKETS_MIB = 1536
"""What is kept back for captured prefill with latent attention, whatever its sizes (0.5.10-0.5.23)."""


def card_class(total_mib: int, tp: int, era: tuple[int, ...]) -> tuple[int, int]:
    """
    The prefill chunk and the largest decode graph batch for a card of this size.
    """
    if 20480 <= total_mib < 35840 and era >= (0, 5, 20):
        chunk, narrow, wide = MIDDLE_CLASS
        return chunk, wide if tp >= 4 else narrow
    for below, chunk, narrow, wide in CARD_CLASSES:
        if total_mib < below:
            return chunk, wide if tp >= 4 else narrow
    return LARGEST_CLASS


def prefill_sizes(largest: int) -> int:
    """
    For how many numbers of tokens prefill is captured: 58 up to a chunk of 8192.
    """
    steps = ((4, 32, 4), (48, 256, 16), (288, 512, 32), (576, 1024, 64), (1280, 4096, 256))
    sizes = [size for first, last, step in steps for size in range(first, last + 1, step)]
    return sum(size <= largest for size in sizes) + max(0, (largest - 4096) // 512)


def default_fraction(
    era: tuple[int, ...],
    total_mib: int,
    chunk: int,
    batch: int,
    *,
    algorithm: str,
    buckets: int,
    ranks: int,
    attn_dp: int,
    latent: bool,
    vision: Vision | None,
) -> float:
    """
    The fraction where none is given; of a multimodal model with its factor, which is not rounded.

    `batch` is the largest decode batch for whose graphs something is kept back, `buckets` the number of
    captured sizes of prefill, `latent` whether attention is latent.

    Qwen3.6-27B with EAGLE on 97,887 MiB: 0.7787 to 0.5.9, 0.7592 to 0.5.13, 0.7981 to 0.5.15, 0.7934 after.
    """
    if total_mib <= 0:
        return 0.95 if era >= (0, 5, 20) else 0.88
    reserve = 512 + 1.5 * max(chunk, 2048) + 2 * batch + 128 * ranks
    if attn_dp > 1:
        reserve += batch * attn_dp * (3 + (1.5 if batch > 300 else 0))
    reserve += LATENT_BUCKETS_MIB if latent and buckets and era >= (0, 5, 10) else BUCKET_MIB * buckets
    if total_mib > 60 * 1024:
        reserve = max(reserve, LEAST_RESERVE_MIB)
    fraction = round((total_mib - reserve - _speculation_mib(era, algorithm)) / total_mib, 3)
    return fraction if vision is None else fraction * _vision_factor(vision)


def _speculation_mib(era: tuple[int, ...], algorithm: str) -> int:
    if algorithm in ("", "NGRAM") or era >= (0, 5, 14):
        return 0
    if algorithm == "STANDALONE":
        return 6144
    return 2048 if era < (0, 5, 10) else 4096


def _vision_factor(vision: Vision) -> float:
    size = vision.layers * vision.hidden_size**2 / (24 * 1024**2)
    return 0.95 * min(1.05, max(0.8, 1 - 0.1 * (size - 1)))
