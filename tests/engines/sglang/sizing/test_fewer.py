"""
Asking for fewer requests where that runs more of them.
"""

import pytest

from mtpdeploy.core.memory import Card, Fewer, Fit, Forecast
from mtpdeploy.core.server import FlagValue, ServerSpec
from mtpdeploy.engines.sglang.sizing.fewer import with_fewer
from tests.engines.sglang.sizing.models import MTP, plan

H100 = Card(total_mib=81559, capability="9.0")


def found(version: str, flags: dict[str, FlagValue]) -> tuple[Forecast, list[Forecast]]:
    """
    The forecast of the 27B on a card of 80 GiB with what asking for fewer gives, and all that were made.
    """
    made: list[Forecast] = []

    def predict(server: ServerSpec) -> Forecast:
        made.append(plan(version, dict(server.flags), card=H100))
        return made[-1]

    server = ServerSpec(name="q", flags={**MTP, "mamba_radix_cache_strategy": "extra_buffer", **flags})
    return with_fewer(server, predict(server), predict), made


@pytest.mark.parametrize("asked", [15, 16])
def test_draft_states_of_requests_that_never_run(asked: int) -> None:
    """
    0.5.12 sets draft states aside for all that are asked for: what is told is what such a plan gives.
    """
    forecast, made = found("0.5.12", {"max_running_requests": asked, "mem_fraction_static": 0.8})
    fewer = forecast.fewer

    assert fewer is not None
    assert fewer.runs > forecast.max_running_requests
    assert fewer.runs <= fewer.asked < asked
    assert fewer.runs == max(one.max_running_requests for one in made)
    assert len(made) <= 1 + asked.bit_length()


@pytest.mark.parametrize(
    ("version", "flags"),
    [
        ("0.5.12", {"max_running_requests": 4, "mem_fraction_static": 0.85}),
        ("0.5.23", {"max_running_requests": 512, "mem_fraction_static": 0.85}),
        ("0.5.12", {"mem_fraction_static": 0.85}),
        ("0.5.12", {"max_running_requests": 4, "mem_fraction_static": 0.1}),
    ],
    ids=["as many as asked for", "states by request", "nobody asked", "nothing fits"],
)
def test_fewer_gives_no_more(version: str, flags: dict[str, FlagValue]) -> None:
    """
    Nothing is told where all run, where as many run as there is room for, or where none would.
    """
    assert found(version, flags)[0].fewer is None


def test_what_would_not_start_is_not_told() -> None:
    """
    A halving that is not likely to start is passed over.
    """
    whole, _ = found("0.5.12", {"max_running_requests": 16, "mem_fraction_static": 0.8})
    server = ServerSpec(name="q", flags={"max_running_requests": 16})

    def dead(_: ServerSpec) -> Forecast:
        return Forecast("0.5.12", Fit.DOES_NOT_FIT, "", 1, 1, (), 0.8, max_running_requests=8)

    assert isinstance(whole.fewer, Fewer)
    assert with_fewer(server, whole, dead).fewer is None
    assert with_fewer(server, whole, lambda _: None).fewer is None
