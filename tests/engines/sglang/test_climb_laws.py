"""
Laws of every climb, whatever the verdicts.
"""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from mtpdeploy.core.diagnosis import Cause, Next, Verdict
from mtpdeploy.core.ladder import NARROWEST, REPEATS
from mtpdeploy.core.server import FlagValue, ServerSpec, changes
from mtpdeploy.engines.sglang.causes import KNOWLEDGE
from mtpdeploy.engines.sglang.memory_concessions import FRACTIONS
from mtpdeploy.engines.sglang.rungs import RUNGS
from tests.engines.sglang.ascents import MTP, Climb, failed

VERSIONS = (
    "0.5.6",
    "0.5.8",
    "0.5.9",
    "0.5.10.post1",
    "0.5.12",
    "0.5.13.post1",
    "0.5.14",
    "0.5.17",
    "0.5.23",
    "dev",
)
MEMORY = (Cause.OOM_KV_POOL, Cause.OOM_STATE_POOL, Cause.OOM_POOLS, Cause.OOM_GRAPHS, Cause.OOM_SERVING)
LONGEST = 400
"""Steps after which a climb is taken for endless: from 0.97 to 0.2 the fraction has 77 hundredths."""

FLAGS: dict[str, st.SearchStrategy[FlagValue | None]] = {
    "mem_fraction_static": st.one_of(st.none(), st.floats(0.5, 0.97).map(lambda f: round(f, 3))),
    "max_running_requests": st.sampled_from([None, 1, 16, 48, 512]),
    "max_mamba_cache_size": st.sampled_from([None, 64]),
    "enable_hierarchical_cache": st.sampled_from([None, True]),
    "hicache_size": st.sampled_from([None, 0, 200]),
    "hicache_ratio": st.sampled_from([None, 0.5, 2.0, 4.0]),
    "disable_radix_cache": st.sampled_from([None, True]),
    "mamba_radix_cache_strategy": st.sampled_from(
        [None, "auto", "no_buffer", "extra_buffer", "extra_buffer_lazy"]
    ),
    "mamba_ssm_dtype": st.sampled_from([None, "bfloat16"]),
    "mamba_track_interval": st.sampled_from([None, 2]),
    "attention_backend": st.sampled_from([None, "triton", "fa3"]),
    "chunked_prefill_size": st.sampled_from([None, 16384, 2048]),
    "cuda_graph_max_bs_decode": st.sampled_from([None, 256]),
    "speculative_num_steps": st.sampled_from([None, 1, 3, 5]),
    "speculative_eagle_topk": st.sampled_from([None, 1, 4]),
    "speculative_num_draft_tokens": st.sampled_from([None, 4, 16]),
    "context_length": st.sampled_from([None, 1_000_000]),
}


@st.composite
def servers(draw: st.DrawFn) -> ServerSpec:
    """
    Servers of all kinds.
    """
    flags: dict[str, FlagValue] = {"model_path": "/m"}
    if draw(st.booleans()):
        flags["speculative_algorithm"] = MTP["speculative_algorithm"]
    given_flags = {name: draw(values) for name, values in FLAGS.items()}
    flags |= {name: value for name, value in given_flags.items() if value is not None}
    return ServerSpec("m", flags, allow_without_mtp=draw(st.booleans()))


@st.composite
def verdicts(draw: st.DrawFn, causes: tuple[Cause, ...] = tuple(Cause)) -> Verdict:
    """
    Verdicts with figures of all kinds.
    """
    figures: dict[str, float] = {}
    for name, values in {
        "mem_fraction_static": st.floats(0.5, 0.97),
        "floor": st.floats(0.3, 0.99),
        "asked_mib": st.floats(1, 9000),
        "free_mib": st.floats(0, 3000),
        "total_mib": st.just(97887.0),
        "free_gb": st.floats(-20, 400),
        "capturing_prefill": st.sampled_from([0.0, 1.0]),
        "effective_running_requests": st.sampled_from([1.0, 9.0, 48.0]),
        "derived_context_length": st.just(262144.0),
    }.items():
        if draw(st.booleans()):
            figures[name] = draw(values)
    return failed(draw(st.sampled_from(causes)), **figures)


class TestLaws:
    """
    What holds for every climb.
    """

    @settings(max_examples=100, deadline=None)
    @given(asked=servers(), version=st.sampled_from(VERSIONS), data=st.data())
    def test_every_climb_ends_and_no_failure_is_met_twice(
        self, asked: ServerSpec, version: str, data: st.DataObject
    ) -> None:
        """
        Whatever goes wrong, the ladder ends, and repeats a thing only where its cause may pass by itself.
        """
        climb = Climb(asked, version)
        some = data.draw(st.lists(verdicts(), min_size=1, max_size=8))
        for number in range(LONGEST):
            if climb.server is None:
                break
            climb.fail(some[number % len(some)])

        assert climb.server is None
        met = [(o.server, o.verdict.cause) for o in climb.ascent.outcomes if o.verdict is not None]
        for pair in met:
            repeats = KNOWLEDGE[pair[1]].next is Next.REPEAT
            assert met.count(pair) <= (1 + REPEATS if repeats else 1)

    @settings(max_examples=100, deadline=None)
    @given(asked=servers(), version=st.sampled_from(VERSIONS), verdict=verdicts())
    def test_every_step_changes_something_and_nothing_of_the_model(
        self, asked: ServerSpec, version: str, verdict: Verdict
    ) -> None:
        """
        A rung that is taken makes a difference, and never to what is served.
        """
        step = Climb(asked, version).fail(verdict)

        if step.rung is not None and step.server is not None:
            changed = {change.field for change in changes(asked, step.server)}
            assert changed
            assert not changed & {"model_path", "port", "tp_size", "kv_cache_dtype"}
            assert verdict.cause in RUNGS[step.rung].causes

    @settings(max_examples=100, deadline=None)
    @given(
        asked=servers(),
        version=st.sampled_from(VERSIONS),
        verdict=verdicts((Cause.OOM_KV_POOL, Cause.OOM_STATE_POOL)),
    )
    def test_pools_too_small_never_make_them_smaller(
        self, asked: ServerSpec, version: str, verdict: Verdict
    ) -> None:
        """
        The fraction is not lowered and the cache in host memory not dropped, which costs no GPU memory.
        """
        step = Climb(asked, version).fail(verdict)
        if step.server is None:
            return

        before = asked.number("mem_fraction_static")
        after = step.server.number("mem_fraction_static")
        assert before is None or (after is not None and after >= before)
        for flag in (
            "enable_hierarchical_cache",
            "hicache_size",
            "hicache_ratio",
            "cuda_graph_max_bs_decode",
        ):
            assert asked.flags.get(flag) == step.server.flags.get(flag)

    @settings(max_examples=100, deadline=None)
    @given(
        asked=servers(),
        version=st.sampled_from(VERSIONS),
        verdict=verdicts((Cause.OOM_GRAPHS, Cause.OOM_POOLS, Cause.OOM_SERVING, Cause.OOM_DRAFT_WEIGHTS)),
    )
    def test_no_room_beside_the_pools_never_makes_them_larger(
        self, asked: ServerSpec, version: str, verdict: Verdict
    ) -> None:
        """
        The fraction is not raised, nor are more requests or larger graphs asked for.
        """
        step = Climb(asked, version).fail(verdict)
        if step.server is None:
            return

        for flag, unset in (
            ("mem_fraction_static", 2.0),
            ("max_running_requests", 1e9),
            ("cuda_graph_max_bs_decode", 1e9),
        ):
            before = asked.number(flag)
            after = step.server.number(flag)
            assert (unset if after is None else after) <= (unset if before is None else before)

    @settings(max_examples=100, deadline=None)
    @given(
        fraction=st.floats(0.6, 0.95).map(lambda f: round(f, 3)),
        fits=st.floats(0.5, 0.99),
        width=st.floats(0.0, 0.1),
        version=st.sampled_from(VERSIONS),
    )
    @example(fraction=0.945, fits=0.9453125, width=0.0625, version="0.5.6")
    @example(fraction=0.898, fits=0.9375, width=0.0625, version="0.5.6")
    def test_a_fraction_that_fits_is_found_or_shown_not_to_exist(
        self, fraction: float, fits: float, width: float, version: str
    ) -> None:
        """
        Where fractions between two bounds work, one of them is found, and none that is disproven is tried.
        """
        climb = Climb(ServerSpec("m", {"model_path": "/m", "mem_fraction_static": fraction}), version)
        low, high = 0.0, 1.0
        for _ in range(60):
            now = climb.flag("mem_fraction_static")
            if not isinstance(now, float) or climb.server is None or len(climb.server.flags) > 2:
                break
            assert low < now < high
            if now < fits:
                low = max(low, now)
                climb.fail(failed(Cause.OOM_KV_POOL))
            elif now > fits + width:
                high = min(high, now)
                climb.fail(failed(Cause.OOM_GRAPHS))
            else:
                return

        assert (
            width < 0.01
            or high - low < 0.01 + 1e-9
            or fits > FRACTIONS[-1]
            or low >= FRACTIONS[-1] - NARROWEST
        )
