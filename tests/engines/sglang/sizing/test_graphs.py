"""
Which CUDA graphs a release captures, and what it keeps back for them.
"""

from typing import Any

import pytest

from mtpdeploy.core.server import FlagValue
from tests.engines.sglang.sizing.models import (
    CONFIG_27B,
    CONFIG_DENSE,
    CONFIG_KIMI,
    CONFIG_LATENT,
    CONFIG_NEXT,
    MTP,
    asked,
)


@pytest.mark.parametrize(
    ("version", "config", "flags", "buckets"),
    [
        ("0.5.9", CONFIG_DENSE, {}, 0),
        ("0.5.9", CONFIG_DENSE, {"enable_piecewise_cuda_graph": True}, 58),
        ("0.5.10", CONFIG_DENSE, {}, 58),
        ("0.5.10", CONFIG_DENSE, MTP, 0),
        ("0.5.11", CONFIG_DENSE, MTP, 58),
        ("0.5.12", CONFIG_DENSE, {"enable_hierarchical_cache": True}, 0),
        ("0.5.15", CONFIG_DENSE, {"enable_hierarchical_cache": True}, 58),
        ("0.5.14", CONFIG_NEXT, MTP, 0),
        ("0.5.15", CONFIG_NEXT, MTP, 58),
        ("0.5.15", CONFIG_27B, MTP, 0),
        ("0.5.16", CONFIG_27B, MTP, 58),
        ("0.5.23", {**CONFIG_27B, "architectures": ["SomeForConditionalGeneration"]}, MTP, 0),
        ("0.5.23", CONFIG_27B, {"cuda_graph_backend_prefill": "disabled"}, 0),
        ("0.5.23", CONFIG_27B, {"disable_cuda_graph": True}, 0),
        ("0.5.23", CONFIG_27B, {"chunked_prefill_size": 4096}, 50),
        ("0.5.23", CONFIG_27B, {"max_total_tokens": 1000}, 37),
        ("0.5.15", CONFIG_NEXT, {"context_length": 1024}, 38),
        ("0.5.17", CONFIG_NEXT, {"context_length": 1024}, 58),
        ("0.5.19", CONFIG_KIMI, {}, 42),
        ("0.5.20", CONFIG_KIMI, {}, 0),
        ("0.5.17", CONFIG_LATENT, {}, 0),
        ("0.5.18", CONFIG_LATENT, {}, 42),
    ],
)
def test_sizes_of_prefill_that_are_captured(
    version: str, config: dict[str, Any], flags: dict[str, FlagValue], buckets: int
) -> None:
    """
    By default with text alone from 0.5.10, with recurrent layers from 0.5.15, with images from 0.5.16 on.
    """
    assert buckets == asked(version, flags, config=config).prefill_buckets


@pytest.mark.parametrize(
    ("version", "flags", "batch"),
    [
        ("0.5.21", {"max_running_requests": 16}, 256),
        ("0.5.22", {"max_running_requests": 16}, 16),
        ("0.5.22", MTP, 256),
        ("0.5.22", {"max_running_requests": 16, "cuda_graph_max_bs_decode": 64}, 64),
        ("0.5.9", {"cuda_graph_bs_decode": [1, 2, 24]}, 24),
        ("0.5.9", {"disable_cuda_graph": True}, 0),
        ("0.5.23", {"cuda_graph_backend_decode": "disabled"}, 0),
        ("0.5.9", {"tp_size": 4}, 512),
    ],
)
def test_the_largest_captured_decode_batch(version: str, flags: dict[str, FlagValue], batch: int) -> None:
    """
    What is given, else that of the card's class; from 0.5.22 on no more than the requests asked for.
    """
    assert batch == asked(version, flags).graph_batch


@pytest.mark.parametrize(
    ("version", "flags", "fraction"),
    [
        # 512 + 1.5 * 16384 + 2 * 512 + 128 = 26240 MiB of 183359, with and without the decode graphs.
        ("0.5.15", {"disable_cuda_graph": True}, 0.857),
        ("0.5.16", {"disable_cuda_graph": True}, 0.862),
        ("0.5.15", {"disable_cuda_graph": True, "cuda_graph_max_bs_decode": 64}, 0.862),
        ("0.5.13", {"speculative_algorithm": "STANDALONE", "disable_cuda_graph": True}, 0.823),
        ("0.5.14", {"speculative_algorithm": "STANDALONE", "disable_cuda_graph": True}, 0.857),
        ("0.5.14", {"chunked_prefill_size": -1, "disable_cuda_graph": True}, 0.857),
        ("0.5.14", {"chunked_prefill_size": 2048, "disable_cuda_graph": True}, 0.944),
    ],
)
def test_what_is_kept_back_by_default(version: str, flags: dict[str, FlagValue], fraction: float) -> None:
    """
    Graphs that are not captured still count to 0.5.15; a draft's weights are measured from 0.5.14 on.
    """
    assert fraction == asked(version, flags, config=CONFIG_DENSE, total_mib=183359).mem_fraction_static


def test_latent_attention_keeps_back_a_fixed_amount_for_prefill() -> None:
    """
    1.5 GiB, whatever the sizes: (143771 - 512 - 12288 - 512 - 128 - 1536) / 143771.
    """
    found = asked("0.5.18", {}, config=CONFIG_LATENT, total_mib=143771)

    assert round((143771 - 512 - 12288 - 512 - 128 - 1536) / 143771, 3) == found.mem_fraction_static
