"""
What holds for every forecast, and for every configuration that is solved for.
"""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtpdeploy.core.diagnosis import Cause
from mtpdeploy.core.memory import Fit, Forecast
from mtpdeploy.core.units import MIB
from mtpdeploy.core.wish import Unsolved, Wish
from mtpdeploy.demo.site.sglang.refusals import RefusedError
from mtpdeploy.demo.site.sglang.sizing import PoolError, size_pools
from mtpdeploy.engines.sglang.sizing.solve import solve
from tests.engines.sglang.sizing.random_starts import MODELS, WISHES, RandomStart, starts
from tests.fakes.start import SimulatedCard, lay_out_model

POOL_ERRORS = (
    "Not enough",
    "Loaded weights leave",
    "Hybrid (mamba/linear-attention)",
    "capture_bs=[0]",
    "max_running_request is zero",
)
"""How errors begin that are about memory; all others are about arguments."""

laws = settings(derandomize=True, deadline=None, database=None)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """
    The models' folders, as the demo box has them.
    """
    folder = tmp_path_factory.mktemp("models")
    for name, model in MODELS.items():
        lay_out_model(folder / name, model)
    return folder


def about_memory(found: Forecast) -> bool:
    """
    Whether the pools are what is refused.
    """
    return found.error is not None and found.error.startswith(POOL_ERRORS)


class TestForecast:
    @settings(laws, max_examples=200)
    @given(start=starts(), more=st.integers(1, 60 * 1024))
    def test_more_memory_never_fits_less(self, start: RandomStart, more: int) -> None:
        """
        Never fewer requests; and never fewer tokens but for what one more slot takes of them.
        """
        less, found = start.forecast(), start.forecast(free=start.free + more * MIB)
        one_more = (1 + 8) * less.figures["state_slot_gib"]
        keys = found.figures.get("kv_k_gib", 0.0) + found.figures.get("kv_v_gib", 0.0)
        token = keys / max(1, found.kv_tokens)

        assert found.max_running_requests >= min(less.max_running_requests, found.kv_tokens // 2)
        assert found.kv_tokens * token + one_more >= less.kv_tokens * token
        assert (found.error is None) >= (less.error is None)

    @settings(laws, max_examples=200)
    @given(start=starts())
    def test_the_lines_add_up_to_the_card(self, start: RandomStart) -> None:
        """
        Every byte of it is in one line; what is lacking is the only negative one.
        """
        found = start.forecast()
        names = {line.name for line in found.lines}

        assert found.total == sum(line.amount for line in found.lines)
        assert {"lacking"} >= {line.name for line in found.lines if line.amount < 0}
        assert ("lacking" in names) <= (found.fit is not Fit.FITS)

    @settings(laws, max_examples=200)
    @given(start=starts())
    def test_a_refusal_is_said_and_counted(self, start: RandomStart) -> None:
        """
        Pools are refused exactly where the margin is negative; what does not fit has a cause.
        """
        found = start.forecast()

        assert about_memory(found) <= (found.pool_margin < 0)
        assert (found.pool_margin < 0) <= (found.error is not None)
        assert (found.error is not None) <= (found.fit is not Fit.FITS)
        assert (found.fit is Fit.DOES_NOT_FIT) <= (found.cause is not None)

    @settings(laws, max_examples=200)
    @given(start=starts())
    def test_margins_mean_what_they_say(self, start: RandomStart) -> None:
        """
        With so much less free memory the pools are refused, with a little more they are not.
        """
        found = start.forecast()
        cliff = start.free - found.pool_margin
        if found.pool_margin == -found.total:
            # No memory would do: fewer state slots are given than one request has.
            assert start.forecast(free=1 << 43).error is not None
            return

        assert start.forecast(free=cliff - MIB).pool_margin < 0
        assert start.forecast(free=cliff + MIB).pool_margin >= 0
        assert not about_memory(start.forecast(free=cliff + MIB))

    @settings(laws, max_examples=100)
    @given(start=starts())
    def test_what_is_left_is_what_the_lines_leave(self, start: RandomStart) -> None:
        """
        Graphs, activations and what is free after them are what the pools left.
        """
        found = start.forecast()
        after = sum(found.amount(name) for name in ("graphs and activations", "free", "lacking"))

        assert found.pool_margin < 0 or found.left == after


class TestBothArithmetics:
    @settings(laws, max_examples=1000)
    @given(start=starts())
    def test_the_same_slots_tokens_and_requests(self, models: Path, start: RandomStart) -> None:
        """
        The demo box works out for itself what SGLang will do; the two agree on every random server.
        """
        box = SimulatedCard(models / start.model, start.gpu, start.version)
        found = start.forecast()
        # The backend is checked later in a start than the pools are made.
        refused = found.pool_margin < 0 or (
            found.error is not None and found.cause is not Cause.ATTENTION_BACKEND
        )
        try:
            made = size_pools(box.demand(start.server))
        except (RefusedError, PoolError):
            assert refused
            return

        assert not refused
        assert (made.slots, made.requests) == (found.max_mamba_cache_size, found.max_running_requests)
        assert abs(made.tokens - found.kv_tokens) <= 1


class TestSolve:
    @settings(laws, max_examples=1000)
    @given(start=starts(), wish=st.sampled_from(WISHES))
    def test_a_solution_fits_and_gives_what_was_wanted(
        self, models: Path, start: RandomStart, wish: Wish
    ) -> None:
        """
        By its own forecast, and by the arithmetic of the demo box, which shares nothing with it.
        """
        solution = solve(start.server, start.version, start.forecast, start.forecast(start.server), wish)
        if isinstance(solution, Unsolved):
            return
        box = SimulatedCard(models / start.model, start.gpu, start.version)
        made = size_pools(box.demand(solution.server))

        assert solution.forecast.fit is not Fit.DOES_NOT_FIT
        assert made.requests >= (wish.requests or 1)
        assert made.tokens >= wish.needed_tokens(wish.requests or made.requests)
