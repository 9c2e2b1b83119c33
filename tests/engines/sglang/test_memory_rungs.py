import pytest
from msgspec import structs

from mtpdeploy.core.diagnosis import Cause, Stage
from mtpdeploy.core.server import FlagValue, ServerSpec
from mtpdeploy.engines.sglang.rungs import RUNGS
from tests.engines.sglang.ascents import Climb, failed, server

STRATEGY = "mamba_radix_cache_strategy"


def one(
    verdict_cause: Cause, version: str, asked: ServerSpec, **figures: float
) -> tuple[str | None, ServerSpec | None]:
    """
    The first step after one failure: rung and server.
    """
    climb = Climb(asked, version)
    step = climb.fail(failed(verdict_cause, **figures))
    return step.rung, step.server


class TestSeedCase:
    """
    The case this program was made for.
    """

    def test_512_requests_of_a_27b_with_a_hierarchical_cache_on_0_5_9(self) -> None:
        """
        The case this program was made for: fewer requests until the pools fit, then no hierarchical cache,
        MTP kept and no attempt wasted.
        """
        asked = server(
            mem_fraction_static=0.80,
            max_running_requests=512,
            enable_hierarchical_cache=True,
            hicache_size=200,
            mamba_radix_cache_strategy="extra_buffer",
        )
        climb = Climb(asked, "0.5.9")
        too_small = failed(Cause.OOM_KV_POOL, mem_fraction_static=0.8)

        climb.fail(too_small)
        first = climb.flag("max_running_requests")
        climb.fail(too_small)
        second = climb.flag("max_running_requests")
        climb.fail(failed(Cause.HICACHE_UNSUPPORTED, mem_fraction_static=0.8))

        assert (48, 16) == (first, second)
        assert ["fewer-requests", "fewer-requests", "no-hierarchical-cache"] == climb.rungs
        expected = server(
            mem_fraction_static=0.80, max_running_requests=16, mamba_radix_cache_strategy="extra_buffer"
        )
        assert expected == climb.server

    def test_where_16_are_still_too_many(self) -> None:
        """
        Then the fraction rises, then the state gets smaller, then single requests are left.
        """
        climb = Climb(server(mem_fraction_static=0.80, max_running_requests=512), "0.5.9")
        while climb.server is not None:
            climb.fail(failed(Cause.OOM_KV_POOL))

        assert [
            "fewer-requests",
            "fewer-requests",
            *["more-static-memory"] * 4,
            "bf16-state",
            *["fewest-requests"] * 4,
            *["fewer-draft-tokens"] * 2,
            None,
        ] == climb.rungs


class TestFewerRequests:
    """
    Where fewer requests help.
    """

    @pytest.mark.parametrize(
        ("version", "flags", "helps"),
        [
            ("0.5.6", {}, False),
            ("0.5.6", {"disable_radix_cache": True}, True),
            ("0.5.7", {}, True),
            ("0.5.12.post1", {}, True),
            ("0.5.13", {}, False),
            ("0.5.13", {"disable_radix_cache": True}, True),
            ("0.5.14", {STRATEGY: "extra_buffer"}, False),
            ("0.5.14", {"max_mamba_cache_size": 400}, True),
            ("0.5.23", {}, False),
            ("0.5.23", {"disable_radix_cache": True}, True),
            ("0.0.0.dev1+g5f55db35e", {}, False),
        ],
    )
    def test_only_where_their_state_is_reserved(
        self, version: str, flags: dict[str, FlagValue], helps: bool
    ) -> None:
        """
        From 0.5.13 on the pools are solved together: fewer requests cannot cure a pool that is too small.
        """
        rung = RUNGS["fewer-requests"]

        conceded = rung.change(server(max_running_requests=512, **flags), failed(Cause.OOM_KV_POOL), version)

        assert helps is (conceded is not None)

    def test_not_where_the_weights_alone_are_too_large(self) -> None:
        """
        SGLang quotes a floor above the fraction: only a higher fraction helps.
        """
        asked = server(max_running_requests=64, disable_radix_cache=True, mem_fraction_static=0.7)

        rung, conceded = one(Cause.OOM_KV_POOL, "0.5.23", asked, mem_fraction_static=0.7, floor=0.773)

        assert "more-static-memory" == rung
        assert conceded is not None
        assert 0.85 == conceded.flags["mem_fraction_static"]

    def test_a_floor_below_the_fraction_means_that_the_state_is_the_eater(self) -> None:
        """
        The floor counts weights only: with 0.236 quoted against 0.75 the state slots have to go.
        """
        asked = server(max_running_requests=64, max_mamba_cache_size=256, mem_fraction_static=0.75)

        rung, conceded = one(Cause.OOM_KV_POOL, "0.5.20", asked, mem_fraction_static=0.75, floor=0.236)

        assert "computed-state-slots" == rung
        assert conceded == server(max_running_requests=64, mem_fraction_static=0.75)

    def test_sglangs_own_default_is_known(self) -> None:
        """
        Without the flag MTP runs 48 requests, so the first step is below that.
        """
        rung, conceded = one(Cause.OOM_KV_POOL, "0.5.12", server())

        assert ("fewer-requests", 16) == (rung, conceded and conceded.flags["max_running_requests"])


class TestStaticMemory:
    """
    The fraction, up and down.
    """

    @pytest.mark.parametrize(
        ("now", "floor", "expected"),
        [(0.8, None, 0.85), (0.898, None, 0.93),
         (0.85, None, 0.9), (0.93, None, 0.95), (0.95, None, None), (0.7, 0.773, 0.85),
         (0.8, 0.912, 0.94), (0.9, 0.95, 0.97), (0.9, 0.965, None), (0.9, 0.5, 0.93)],
    )  # fmt: skip
    def test_up(self, now: float, floor: float | None, expected: float | None) -> None:
        """
        By steps, above a quoted floor, and never beyond what leaves nothing for graphs.
        """
        figures = {} if floor is None else {"floor": floor}

        conceded = RUNGS["more-static-memory"].change(
            server(mem_fraction_static=now), failed(Cause.OOM_KV_POOL, **figures), "0.5.23"
        )

        assert expected == (conceded and conceded.flags["mem_fraction_static"])

    def test_down_by_what_was_lacking(self) -> None:
        """
        An allocation of 1536 MiB with 338 MiB free of 97249: 1.2 %, and one more.
        """
        figures = {
            "asked_mib": 1536.0,
            "free_mib": 338.75,
            "total_mib": 97249.28,
            "mem_fraction_static": 0.7934,
        }

        rung, conceded = one(Cause.OOM_GRAPHS, "0.5.23", server(), **figures)

        assert ("less-static-memory", 0.771) == (rung, conceded and conceded.flags["mem_fraction_static"])

    def test_down_by_a_step(self) -> None:
        """
        Without figures it is three hundredths.
        """
        rung, conceded = one(Cause.OOM_GRAPHS, "0.5.9", server(mem_fraction_static=0.9))

        assert ("less-static-memory", 0.87) == (rung, conceded and conceded.flags["mem_fraction_static"])

    def test_the_drafts_weights_are_helped_only_where_they_load_beside_the_pools(self) -> None:
        """
        From 0.5.14 on all weights come first, so a lower fraction frees nothing for them.
        """
        asked = server(mem_fraction_static=0.9)

        assert "less-static-memory" == one(Cause.OOM_DRAFT_WEIGHTS, "0.5.13.post1", asked)[0]
        assert (None, None) == one(Cause.OOM_DRAFT_WEIGHTS, "0.5.14", asked)

    def test_never_there_and_back(self) -> None:
        """
        Between a fraction proven too low and one proven too high it halves the way, then gives up.
        """
        climb = Climb(server(mem_fraction_static=0.88), "0.5.23")
        tried: list[object] = []
        for _ in range(20):
            fraction = climb.flag("mem_fraction_static")
            if (
                climb.server is None
                or not isinstance(fraction, float)
                or climb.server.flags.keys() != server(mem_fraction_static=0.88).flags.keys()
            ):
                break
            tried.append(fraction)
            climb.fail(failed(Cause.OOM_GRAPHS if fraction >= 0.87 else Cause.OOM_KV_POOL))

        assert [0.88, 0.85, 0.865, 0.873] == tried
        assert "smaller-graph-batch" == climb.rungs[-1]

    def test_another_configuration_has_its_own_bounds(self) -> None:
        """
        With smaller graphs a higher fraction may fit: what was proven before does not count.
        """
        climb = Climb(server(mem_fraction_static=0.88, max_running_requests=64), "0.5.12")
        climb.fail(failed(Cause.OOM_GRAPHS))
        climb.fail(failed(Cause.OOM_KV_POOL))

        assert ["less-static-memory", "fewer-requests"] == climb.rungs
        assert (0.85, 48) == (climb.flag("mem_fraction_static"), climb.flag("max_running_requests"))

        climb.fail(failed(Cause.OOM_GRAPHS))

        assert 0.82 == climb.flag("mem_fraction_static")


class TestHierarchicalCache:
    """
    The prefix cache in host memory.
    """

    def test_smaller_by_what_is_free_and_then_none(self) -> None:
        """
        0.5.10 to 0.5.16 take the size twice for a hybrid model.
        """
        asked = server(enable_hierarchical_cache=True, hicache_size=200)
        twice = Climb(asked, "0.5.12")
        once = Climb(asked, "0.5.17")
        for climb in (twice, once):
            climb.fail(failed(Cause.HOST_MEMORY, requested_gb=200, free_gb=120))

        assert (54, 108) == (twice.flag("hicache_size"), once.flag("hicache_size"))

    def test_too_small_a_host_pool_is_measured_by_the_device_pool(self) -> None:
        """
        A given size makes way for the ratio, and then for no cache at all.
        """
        climb = Climb(server(enable_hierarchical_cache=True, hicache_size=10), "0.5.12")
        climb.fail(failed(Cause.HOST_POOL_TOO_SMALL))
        climb.fail(failed(Cause.HOST_POOL_TOO_SMALL))

        assert ["hierarchical-cache-by-ratio", "no-hierarchical-cache"] == climb.rungs
        assert climb.server == server()

    @pytest.mark.parametrize("cause", [Cause.VANISHED, Cause.KILLED])
    def test_a_kill_that_nothing_explains_takes_nothing_away(self, cause: Cause) -> None:
        """
        The same again, twice: -9 proves a signal, and no want of memory.
        """
        climb = Climb(server(enable_hierarchical_cache=True), "0.5.20")
        for _ in range(3):
            climb.fail(failed(cause))

        assert [None, None, None] == climb.rungs
        assert climb.server is None

    @pytest.mark.parametrize(
        ("stage", "rung"),
        [
            (Stage.WEIGHTS_BEGUN, None),
            (Stage.DRAFT_BEGUN, None),
            (Stage.SIZED, "no-hierarchical-cache"),
            (None, "no-hierarchical-cache"),
        ],
    )
    def test_a_kill_for_memory_takes_it_away_once_it_is_allocated(
        self, stage: Stage | None, rung: str | None
    ) -> None:
        """
        While the weights are loaded it has taken nothing yet.
        """
        climb = Climb(server(enable_hierarchical_cache=True, hicache_size=200), "0.5.20")
        verdict = structs.replace(failed(Cause.HOST_OOM_KILLED), stage=stage)

        assert rung == climb.fail(verdict).rung


class TestGraphs:
    """
    CUDA graphs.
    """

    def test_the_batch_starts_from_what_runs_at_all(self) -> None:
        """
        Graphs are cut at the running requests: a larger limit would change nothing.
        """
        change = RUNGS["smaller-graph-batch"].change
        asked = server(max_running_requests=64)

        full = change(asked, failed(Cause.OOM_GRAPHS), "0.5.12")
        capped = change(asked, failed(Cause.OOM_GRAPHS, effective_running_requests=20), "0.5.20")
        tiny = change(asked, failed(Cause.OOM_GRAPHS, effective_running_requests=8), "0.5.20")

        assert 32 == (full and full.flags["cuda_graph_max_bs_decode"])
        assert 10 == (capped and capped.flags["cuda_graph_max_bs_decode"])
        assert tiny is None

    def test_prefill_graphs(self) -> None:
        """
        They are what fails, or what takes the room, from 0.5.16 on; the decode batch does not matter then.
        """
        prefill = failed(Cause.OOM_GRAPHS, capturing_prefill=1.0)
        decode = failed(Cause.OOM_GRAPHS, capturing_prefill=0.0)
        off = RUNGS["no-prefill-graphs"].change

        assert RUNGS["smaller-graph-batch"].change(server(), prefill, "0.5.20") is None
        assert off(server(), decode, "0.5.20") == server(cuda_graph_backend_prefill="disabled")
        assert off(server(), decode, "0.5.14") is None
        assert off(server(), prefill, "0.5.14") is not None
        assert off(server(), prefill, "0.5.13") is None
        assert off(server(cuda_graph_backend_prefill="disabled"), prefill, "0.5.20") is None
