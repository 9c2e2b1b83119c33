"""
A forecast in one sentence.
"""

import pytest

from mtpdeploy.core.memory import Card
from mtpdeploy.core.server import FlagValue
from mtpdeploy.core.units import GIB
from tests.engines.sglang.sizing.models import EXTRA_BUFFER, MTP, RADIX_OFF, plan

SENTENCES: list[tuple[str, dict[str, FlagValue], str]] = [
    (
        "0.5.23",
        {**EXTRA_BUFFER, "mem_fraction_static": 0.9},
        (
            "9 requests at a time, 252,154 tokens (48 requests were asked for); 13.35 GiB are left for "
            "graphs and activations"
        ),
    ),
    (
        "0.5.23",
        {**EXTRA_BUFFER, "mem_fraction_static": 0.9, "max_running_requests": 4},
        "4 requests at a time, 299,134 tokens; 13.15 GiB are left for graphs and activations",
    ),
    (
        "0.5.12",
        {**EXTRA_BUFFER, "mem_fraction_static": 0.9, "max_running_requests": 512},
        "512 requests need 293.62 GiB of draft states; 33.78 GiB are left after the weights",
    ),
    (
        "0.5.23",
        {**RADIX_OFF, "mem_fraction_static": 0.9, "max_running_requests": 512},
        "512 requests need 294.20 GiB of draft states; 28.15 GiB are left after the weights",
    ),
    (
        "0.5.13",
        {**EXTRA_BUFFER, "mem_fraction_static": 0.9, "max_mamba_cache_size": 300},
        "300 state slots and the draft states need 70.54 GiB; 33.78 GiB are left after the weights",
    ),
    (
        "0.5.23",
        {**EXTRA_BUFFER, "mem_fraction_static": 0.5},
        "the weights take 56.58 GiB, and mem_fraction_static 0.5 of 94.32 GiB free is 47.16 GiB",
    ),
    (
        "0.5.23",
        {**EXTRA_BUFFER, "mem_fraction_static": 0.61},
        (
            "one request needs 1.29 GiB of state, and the state gets only its share; 0.80 GiB are left after "
            "the weights"
        ),
    ),
    (
        "0.5.12",
        {**EXTRA_BUFFER, "mem_fraction_static": 0.95, "max_running_requests": 16},
        "the draft takes 5.53 GiB as it loads, beside pools that leave 3.01 GiB of the card",
    ),
    (
        "0.5.12",
        {},
        "SGLang 0.5.12 refuses it: MTP with the radix cache needs the extra_buffer strategy",
    ),
]


@pytest.mark.parametrize(("version", "flags", "sentence"), SENTENCES)
def test_the_sentence(version: str, flags: dict[str, FlagValue], sentence: str) -> None:
    """
    What will run, or the one thing that is in the way of it, with its figures.
    """
    assert sentence == plan(version, {**MTP, **flags}).reason


def test_a_draft_that_loads_beside_full_pools() -> None:
    """
    To 0.5.13 the draft comes after the pools and the target's graphs, and needs more at first than it keeps.
    """
    flags = {**MTP, **EXTRA_BUFFER, "mem_fraction_static": 0.95, "max_running_requests": 14}
    found = plan("0.5.13", {**flags, "cuda_graph_max_bs_decode": 1, "chunked_prefill_size": 2048})

    assert (
        "the draft takes 5.53 GiB as it loads, beside pools that leave 2.71 GiB of the card" == found.reason
    )


def test_graphs_that_do_not_fit() -> None:
    """
    What is left after the pools beside an estimate of what graphs and activations take.
    """
    flags = {**EXTRA_BUFFER, "mem_fraction_static": 0.98, "max_running_requests": 16}

    assert "5.58 GiB are left after the pools; graphs and activations take about 5.32 GiB (± 2.19 GiB)" == (
        plan("0.5.23", {**MTP, **flags}).reason
    )


@pytest.mark.parametrize(
    ("version", "free", "sentence"),
    [
        ("0.5.23", 47, "the weights take 51.05 GiB; 47.00 GiB are free"),
        ("0.5.23", 54, "the weights take 56.58 GiB; 54.00 GiB are free"),
        (
            "0.5.12",
            54,
            "the weights take 51.05 GiB, and mem_fraction_static 0.9 of 54.00 GiB free is 48.60 GiB",
        ),
    ],
)
def test_a_card_that_is_smaller_than_the_weights(version: str, free: int, sentence: str) -> None:
    """
    The target's come first; the draft's beside them before the pools from 0.5.14 on, after them before.
    """
    flags = {**MTP, **EXTRA_BUFFER, "mem_fraction_static": 0.9, "max_running_requests": 4}

    assert sentence == plan(version, flags, card=Card(60_000, int(free * GIB))).reason
