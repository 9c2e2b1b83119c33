import pytest

from mtpdeploy.core.diagnosis import Cause, Next, Stage, Verdict
from mtpdeploy.core.server import FlagValue
from mtpdeploy.engines.sglang.causes import KNOWLEDGE
from mtpdeploy.engines.sglang.rungs import RUNGS
from tests.engines.sglang.ascents import Climb, failed, one, server

STRATEGY = "mamba_radix_cache_strategy"


class TestSingleCauses:
    """
    Rungs for single causes.
    """

    @pytest.mark.parametrize(
        ("cause", "asked", "version", "rung", "changed"),
        [
            (Cause.PAGE_SIZE, {"page_size": 64}, "0.5.17", "page-size-one", {"page_size": 1}),
            (
                Cause.EXTRA_BUFFER_UNSUPPORTED,
                {STRATEGY: "extra_buffer", "linear_attn_backend": "flashinfer"},
                "0.5.17",
                "plain-linear-attention",
                {"linear_attn_backend": "triton"},
            ),
            (
                Cause.EXTRA_BUFFER_UNSUPPORTED,
                {STRATEGY: "extra_buffer"},
                "0.5.10",
                "no-buffer",
                {STRATEGY: "no_buffer", "disable_radix_cache": True},
            ),
            (
                Cause.LINEAR_ATTENTION,
                {"linear_attn_decode_backend": "flashinfer"},
                "0.5.20",
                "plain-linear-attention",
                {"linear_attn_decode_backend": None, "linear_attn_backend": "triton"},
            ),
            (
                Cause.SPEC_NUMBERS,
                {"speculative_num_draft_tokens": 16},
                "0.5.12",
                "fitting-draft-tokens",
                {"speculative_num_draft_tokens": 4},
            ),
            (
                Cause.DRAFT_FORMAT,
                {},
                "0.5.17",
                "unquantized-draft",
                {"speculative_draft_model_quantization": "unquant"},
            ),
            (
                Cause.OFFLOAD_UNSUPPORTED,
                {"cpu_offload_gb": 4},
                "0.5.12",
                "no-weight-offload",
                {"cpu_offload_gb": None},
            ),
            (
                Cause.NAN_LOGITS,
                {"mamba_ssm_dtype": "bfloat16"},
                "0.5.17",
                "full-precision-state",
                {"mamba_ssm_dtype": "float32"},
            ),
            (
                Cause.PEER_ACCESS,
                {},
                "0.5.12",
                "no-custom-all-reduce",
                {"disable_custom_all_reduce": True},
            ),
            (
                Cause.GRAPHS_FAILED,
                {},
                "0.5.17",
                "no-decode-graphs",
                {"cuda_graph_backend_decode": "disabled"},
            ),
            (Cause.GRAPHS_FAILED, {}, "0.5.12", "no-decode-graphs", {"disable_cuda_graph": True}),
            (
                Cause.STATE_SLOTS,
                {"max_running_requests": 9},
                "0.5.17",
                "half-the-requests",
                {"max_running_requests": 4},
            ),
            (Cause.KV_EXHAUSTED, {}, "0.5.17", "half-the-requests", {"max_running_requests": 24}),
        ],
    )
    def test_changes(
        self,
        cause: Cause,
        asked: dict[str, FlagValue],
        version: str,
        rung: str,
        changed: dict[str, FlagValue | None],
    ) -> None:
        """
        The first rung of each, and what it does.
        """
        before = server(**asked)

        assert (rung, before.with_flags(**changed)) == one(cause, version, before)

    def test_graphs_of_prefill_are_what_failed(self) -> None:
        """
        Where prefill was being captured, decoding keeps its graphs.
        """
        rung, conceded = one(Cause.GRAPHS_FAILED, "0.5.17", server(), capturing_prefill=1.0)

        assert ("no-prefill-graphs", server(cuda_graph_backend_prefill="disabled")) == (rung, conceded)

    def test_the_cache_in_host_memory_goes_before_requests(self) -> None:
        """
        State slots run out mostly where the hierarchical cache holds them while it copies.
        """
        rung, _ = one(Cause.STATE_SLOTS, "0.5.17", server(enable_hierarchical_cache=True))

        assert "no-hierarchical-cache" == rung

    @pytest.mark.parametrize(
        ("cause", "version", "name", "value"),
        [
            (Cause.PTXAS_TOO_OLD, "0.5.9", "TRITON_PTXAS_PATH", "/usr/local/cuda/bin/ptxas"),
            (Cause.BUILD_KILLED, "0.5.17", "MAX_JOBS", "2"),
            (Cause.GPUS_UNBALANCED, "0.5.17", "SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK", "0"),
            (Cause.GPUS_UNBALANCED, "0.5.6", "SGL_DISABLE_TP_MEMORY_INBALANCE_CHECK", "1"),
        ],
    )
    def test_variables(self, cause: Cause, version: str, name: str, value: str) -> None:
        """
        What only a variable changes, once.
        """
        _, conceded = one(cause, version, server())
        _, again = one(cause, version, server().with_env(**{name: value}))

        assert (server().with_env(**{name: value}), None) == (conceded, again)

    def test_a_leak_that_the_idle_check_found(self) -> None:
        """
        The check may only warn; another fault of the bookkeeping is left to the radix cache's rung.
        """
        leak = Verdict(Cause.POOL_CHECK, Next.CLIMB, "ValueError: x memory leak detected!")
        leaf = Verdict(Cause.POOL_CHECK, Next.CLIMB, "AssertionError: evict leaf node invalid")

        checked = RUNGS["without-idle-check"].change(server(), leak, "0.5.9")

        assert checked == server().with_env(SGLANG_ENABLE_STRICT_MEM_CHECK_DURING_IDLE="0")
        assert RUNGS["without-idle-check"].change(server(), leaf, "0.5.9") is None

    def test_replayssm_goes_where_it_is_refused(self) -> None:
        """
        What the line names is left out, and the rest stays.
        """
        asked = server(enable_linear_replayssm=True, linear_attn_backend="flashinfer")
        refused = Verdict(
            Cause.LINEAR_ATTENTION, Next.CLIMB, "ValueError: --enable-linear-replayssm requires"
        )

        assert server(linear_attn_backend="flashinfer") == RUNGS["plain-linear-attention"].change(
            asked, refused, "0.5.17"
        )


class TestGuess:
    """
    Failures that nobody knows.
    """

    def test_climbs_carefully(self) -> None:
        """
        After the weights a little room is given, twice at most, and it is called a guess.
        """
        climb = Climb(server(mem_fraction_static=0.9), "0.5.17")
        for proof in ("KeyError: 1", "KeyError: 2", "KeyError: 3"):
            climb.fail(unknown(proof), Stage.GRAPHS_BEGUN)

        assert ["guess-less-static-memory", "guess-less-static-memory", None] == climb.rungs
        assert "still unknown after 2 guesses" in climb.reason

    def test_says_that_it_is_one(self) -> None:
        """
        Nobody takes it for knowledge.
        """
        climb = Climb(server(mem_fraction_static=0.9), "0.5.17")

        step = climb.fail(unknown("KeyError: 1"), Stage.POOLS_READY)

        assert step.reason.startswith("a guess: ")
        assert 0.87 == climb.flag("mem_fraction_static")

    def test_not_before_the_weights_nor_for_what_it_did_not_change(self) -> None:
        """
        What fails early or the same again has nothing to do with memory.
        """
        early = Climb(server(mem_fraction_static=0.9), "0.5.17")
        early.fail(unknown("KeyError: 1"), Stage.WEIGHTS_BEGUN)
        same = Climb(server(mem_fraction_static=0.9), "0.5.17")
        same.fail(unknown("KeyError: 1"), Stage.READY)
        same.fail(unknown("KeyError: 1"), Stage.READY)

        assert ([None], ["guess-less-static-memory", None]) == (early.rungs, same.rungs)

    def test_proves_nothing_about_the_fraction(self) -> None:
        """
        Pools that are too small after a guess may go up past where the unknown failure was.
        """
        climb = Climb(server(mem_fraction_static=0.8), "0.5.17")
        climb.fail(unknown("KeyError: 1"), Stage.SIZED)
        climb.fail(failed(Cause.OOM_KV_POOL))

        assert ["guess-less-static-memory", "more-static-memory"] == climb.rungs
        assert 0.85 == climb.flag("mem_fraction_static")


def unknown(proof: str) -> Verdict:
    """
    An exception of the scheduler without a name.
    """
    return Verdict(Cause.SCHEDULER_EXCEPTION, KNOWLEDGE[Cause.SCHEDULER_EXCEPTION].next, proof)
