"""
What the solver mends before it looks for room.
"""

from typing import Any

import pytest

from mtpdeploy.core.memory import Card, Fit, Forecast, Weights
from mtpdeploy.core.server import ServerSpec
from mtpdeploy.core.units import GIB
from mtpdeploy.core.wish import Solution, Unsolved, Wish
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
    found = search(server, version, Wish(requests=16))

    assert isinstance(found, Solution)
    return found


def search(server: ServerSpec, version: str, wish: Wish) -> Solution | Unsolved:
    """
    What is found for a server of the 27B on a 96 GB card.
    """

    def predict(changed: ServerSpec) -> Forecast:
        return forecast(changed, shape(CONFIG_27B), version, CARD, Weights(int(51.05 * GIB)))

    return solve(server, version, predict, predict(server), wish)


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


class TestWishes:
    """
    What is wanted is had as far as it can be, and what cannot be is said.
    """

    @pytest.mark.parametrize("version", ["0.5.12", "0.5.17", "0.5.23"])
    def test_the_most_is_the_most(self, version: str) -> None:
        """
        One request more than what was found does not fit.
        """
        found = search(ServerSpec(name="q", flags=dict(SEED)), version, Wish(context=32_768))
        assert isinstance(found, Solution)
        most = found.forecast.max_running_requests
        more = search(
            ServerSpec(name="q", flags=dict(SEED)), version, Wish(requests=most + 1, context=32_768)
        )

        assert isinstance(more, Unsolved) or more.forecast.fit is not Fit.FITS or more.concessions

    @pytest.mark.parametrize(
        ("version", "flags"),
        [
            (
                "0.5.9",
                {"attention_backend": "triton", "enable_hierarchical_cache": True, "hicache_size": 200},
            ),
            ("0.5.23", {"disable_radix_cache": True, "enable_hierarchical_cache": True}),
        ],
    )
    def test_a_hierarchical_cache_without_its_radix_cache(self, version: str, flags: dict[str, Any]) -> None:
        """
        It is given up where the release refuses it, like any other refusal that is not about memory.
        """
        given = {name: value for name, value in SEED.items() if not name.startswith(("mamba", "hicache"))}
        found = search(ServerSpec(name="q", flags={**given, **flags}), version, Wish(requests=4))

        assert isinstance(found, Solution)
        assert "enable_hierarchical_cache" not in found.server.flags

    def test_tokens_alone_keep_the_requests(self) -> None:
        """
        Who asks for tokens does not ask for more requests than before.
        """
        few = ServerSpec(name="q", flags={**SEED, "max_running_requests": 8})
        found = search(few, "0.5.23", Wish(tokens=100_000))

        assert isinstance(found, Solution)
        assert 8 >= (found.server.number("max_running_requests") or 0)

    def test_more_context_than_the_model_has(self) -> None:
        """
        No memory mends that.
        """
        found = search(ServerSpec(name="q", flags=dict(SEED)), "0.5.23", Wish(context=262_145))

        assert isinstance(found, Unsolved)
        assert "the model's own context is 262,144 tokens" == found.because

    def test_a_context_that_was_asked_shorter(self) -> None:
        """
        It is lengthened to what is wanted.
        """
        short = ServerSpec(name="q", flags={**SEED, "context_length": 4096})
        found = search(short, "0.5.23", Wish(requests=2, context=16_384))

        assert isinstance(found, Solution)
        assert 16_384 == found.server.flags["context_length"]

    @pytest.mark.parametrize(
        ("wish", "because"),
        [
            (Wish(requests=4000), "even with every concession: 4,000 requests need "),
            (Wish(tokens=10**9), "even with every concession "),
        ],
    )
    def test_why_nothing_does(self, wish: Wish, because: str) -> None:
        """
        What comes nearest says what is short.
        """
        found = search(ServerSpec(name="q", flags=dict(SEED)), "0.5.23", wish)

        assert isinstance(found, Unsolved)
        assert found.because.startswith(because)
