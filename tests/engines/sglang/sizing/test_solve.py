"""
What the solver mends before it looks for room.
"""

from typing import Any

import pytest

from mtpdeploy.core.memory import Card, Fit, Weights
from mtpdeploy.core.server import ServerSpec
from mtpdeploy.core.units import GIB
from mtpdeploy.core.wish import Solution, Wish
from mtpdeploy.engines.sglang.sizing.forecast import forecast
from mtpdeploy.engines.sglang.sizing.solve import solve
from tests.engines.sglang.sizing.models import CONFIG_27B, shape

CARD = Card(97887, int(94.32 * GIB), "12.0", host_free=256 * GIB)
SEED: dict[str, Any] = {
    "model_path": "/m",
    "attention_backend": "triton",
    "mem_fraction_static": 0.8,
    "speculative_algorithm": "EAGLE",
    "speculative_num_steps": 3,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 4,
    "mamba_radix_cache_strategy": "extra_buffer",
    "max_running_requests": 512,
}


def solved(version: str, **flags: Any) -> Solution:
    """
    The solution for sixteen requests of the seed server with some flags changed (None: not given).
    """
    server = ServerSpec(name="q", flags=dict(SEED)).with_flags(**flags)
    found = solve(
        server,
        version,
        lambda s: forecast(s, shape(CONFIG_27B), version, CARD, Weights(int(51.05 * GIB))),
        Wish(requests=16),
    )

    assert found is not None
    return found


@pytest.mark.parametrize(
    ("version", "flags", "changed"),
    [
        ("0.5.9", {"enable_hierarchical_cache": True, "hicache_size": 200}, "enable_hierarchical_cache"),
        ("0.5.23", {"enable_hierarchical_cache": True, "hicache_size": 400}, "hicache_size"),
        ("0.5.9", {"attention_backend": None}, "attention_backend"),
        ("0.5.23", {"attention_backend": "fa4"}, "attention_backend"),
        ("0.5.23", {"context_length": 1_000_000}, "context_length"),
        ("0.5.23", {"mamba_track_interval": 2}, "mamba_track_interval"),
        ("0.5.12", {"speculative_eagle_topk": None}, "speculative_eagle_topk"),
    ],
)
def test_what_is_refused_whatever_the_memory_is_mended_first(
    version: str, flags: dict[str, Any], changed: str
) -> None:
    """
    The wish is about memory, and a flag that the release refuses stands in its way no longer.
    """
    solution = solved(version, **flags)

    assert Fit.DOES_NOT_FIT is not solution.forecast.fit
    assert solution.forecast.max_running_requests >= 16
    assert changed in {concession.change.split(" ")[0] for concession in solution.concessions}


def test_what_is_not_refused_is_left_alone() -> None:
    """
    Without a refusal only what costs nothing is changed.
    """
    solution = solved("0.5.23")

    assert {""} == {concession.costs for concession in solution.concessions}
