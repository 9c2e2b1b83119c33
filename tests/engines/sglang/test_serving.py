"""
What runs against what was asked for, from a log alone.
"""

import pytest

from mtpdeploy.engines.sglang.serving import shortfalls

EAGLE = {"speculative_algorithm": "EAGLE"}
FULL = {"decode_lines": 20.0, "accept_length": 2.7}


@pytest.mark.parametrize(
    ("arguments", "figures", "names"),
    [
        (EAGLE, FULL, []),
        (EAGLE, {**FULL, "accept_length": 1.02}, ["speculation-accepts-nothing"]),
        ({}, {**FULL, "accept_length": 1.0}, ["speculation-accepts-nothing"]),
        (EAGLE, {"decode_lines": 20.0}, ["not-speculating"]),
        ({"speculative_algorithm": "None"}, {"decode_lines": 20.0}, []),
        (EAGLE, {"decode_lines": 4.0, "accept_length": 1.0}, []),
        ({"max_running_requests": "512"}, {"effective_running_requests": 6.0}, ["fewer-requests"]),
        ({"max_running_requests": "512"}, {"effective_running_requests": 512.0}, []),
        ({"max_running_requests": "512"}, {"effective_running_requests": 256.0, "dp_size": 2.0}, []),
        ({"max_running_requests": "None"}, {"effective_running_requests": 6.0}, []),
        ({}, {"max_total_num_tokens": 40000.0, "context_len": 262144.0}, ["pool-below-context"]),
        ({}, {"max_total_num_tokens": 300000.0, "context_len": 262144.0}, []),
    ],
)
def test_what_falls_short(arguments: dict[str, str], figures: dict[str, float], names: list[str]) -> None:
    """
    Each by its figures, and only where enough was printed to say so.
    """
    found = shortfalls(arguments, figures)

    assert names == [one.name for one in found]
    assert ["specul" in name for name in names] == [one.speculation for one in found]
