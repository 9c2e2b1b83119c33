import pytest

from mtpdeploy.core.diagnosis import Cause, Next, Verdict
from mtpdeploy.core.server import ServerSpec
from mtpdeploy.engines.sglang.concessions import release
from mtpdeploy.engines.sglang.flag_table import find
from mtpdeploy.engines.sglang.rungs import LADDERS, RUNGS
from tests.engines.sglang.ascents import Climb, failed, one, server

STRATEGY = "mamba_radix_cache_strategy"


class TestStrategies:
    """
    State strategies, by version.
    """

    def test_extra_buffer_and_what_0_5_10_demands(self) -> None:
        """
        0.5.10 needs speculation V2 for it, later versions have it on.
        """
        _, old = one(Cause.STRATEGY_NEEDS_EXTRA_BUFFER, "0.5.10.post1", server())
        _, new = one(Cause.STRATEGY_NEEDS_EXTRA_BUFFER, "0.5.12", server())

        assert old == server(**{STRATEGY: "extra_buffer"}).with_env(SGLANG_ENABLE_SPEC_V2="1")
        assert new == server(**{STRATEGY: "extra_buffer"})

    def test_a_strategy_that_radix_off_excludes(self) -> None:
        """
        With the radix cache off on purpose, the strategy is what goes.
        """
        asked = server(disable_radix_cache=True, **{STRATEGY: "extra_buffer"})

        rung, conceded = one(Cause.STRATEGY_NEEDS_RADIX, "0.5.12", asked)

        assert ("no-buffer", server(disable_radix_cache=True, **{STRATEGY: "no_buffer"})) == (rung, conceded)

    def test_no_buffer_with_overlap(self) -> None:
        """
        0.5.14 on: rather the default strategy than no overlap; that comes second.
        """
        climb = Climb(server(**{STRATEGY: "no_buffer"}), "0.5.20")
        climb.fail(failed(Cause.STRATEGY_NEEDS_NO_OVERLAP))
        climb.fail(failed(Cause.STRATEGY_NEEDS_NO_OVERLAP))

        assert ["extra-buffer", "no-overlap"] == climb.rungs

    def test_state_too_small_for_one_request(self) -> None:
        """
        0.5.14 on: fraction, bf16, fewer draft tokens, then fewer slots a request, then no prefix cache.
        """
        climb = Climb(server(mem_fraction_static=0.95), "0.5.20")
        while climb.server is not None:
            climb.fail(failed(Cause.OOM_STATE_POOL))

        assert [
            "bf16-state",
            "fewer-draft-tokens",
            "fewer-draft-tokens",
            "no-buffer",
            "no-radix-cache",
            None,
        ] == (climb.rungs)

    def test_no_buffer_before_0_5_14(self) -> None:
        """
        0.5.13 with MTP: no_buffer only without the radix cache, which a hierarchical cache forbids.
        """
        change = RUNGS["no-buffer"].change
        verdict = failed(Cause.OOM_STATE_POOL)

        assert change(server(), verdict, "0.5.13") == server(
            disable_radix_cache=True, **{STRATEGY: "no_buffer"}
        )
        assert change(server(enable_hierarchical_cache=True), verdict, "0.5.13") is None
        assert change(server(), verdict, "0.5.6") is None


class TestOthers:
    """
    The small cures.
    """

    def test_triton_everywhere(self) -> None:
        """
        Part by part backends would override it, so they go.
        """
        asked = server(attention_backend="flashinfer", speculative_draft_attention_backend="fa3")

        assert ("triton-attention", server(attention_backend="triton")) == one(
            Cause.ATTENTION_BACKEND, "0.5.9", asked
        )

    def test_a_missing_toolkit_but_not_a_missing_compiler(self) -> None:
        """
        Triton builds without nvcc, but not without gcc.
        """
        change = RUNGS["triton-attention"].change
        nvcc = Verdict(
            Cause.TOOLCHAIN_MISSING, Next.CLIMB, "RuntimeError: Could not find nvcc and default cuda_home"
        )
        gcc = Verdict(Cause.TOOLCHAIN_MISSING, Next.CLIMB, "RuntimeError: Failed to find C compiler.")

        assert change(server(), nvcc, "0.5.20") == server(
            attention_backend="triton", sampling_backend="pytorch"
        )
        assert change(server(), gcc, "0.5.20") is None

    def test_the_speculative_flags(self) -> None:
        """
        Missing ones are filled in; a branching draft becomes a line.
        """
        partly = server().with_flags(speculative_eagle_topk=None, speculative_num_draft_tokens=None)
        branching = server(speculative_eagle_topk=4, speculative_num_draft_tokens=16)

        assert ("complete-speculative-flags", server()) == one(Cause.SPEC_INCOMPLETE, "0.5.9", partly)
        assert ("topk-one", server()) == one(Cause.SPEC_TOPK, "0.5.9", branching)

    def test_context_watchdog_cudnn_and_interval(self) -> None:
        """
        Each has its own small cure, where the version knows it.
        """
        long = server(context_length=1_000_000)

        assert one(Cause.CONTEXT_TOO_LONG, "0.5.9", long, derived_context_length=262144) == (
            "shorter-context",
            server(context_length=262144),
        )
        assert one(Cause.WATCHDOG, "0.5.9", server()) == ("longer-watchdog", server(watchdog_timeout=1800))
        assert one(Cause.CUDNN_TOO_OLD, "0.5.9", server())[0] == "without-cudnn-check"
        assert one(Cause.CUDNN_TOO_OLD, "0.5.6", server())[0] is None
        assert one(Cause.TRACK_INTERVAL, "0.5.9", server(mamba_track_interval=2)) == (
            "drop-track-interval",
            server(),
        )

    def test_mtp_goes_last_and_only_if_allowed(self) -> None:
        """
        Without the table's leave MTP is never given up.
        """
        change = RUNGS["without-mtp"].change
        verdict = failed(Cause.OOM_KV_POOL)
        allowed = ServerSpec(name="27b", flags=server().flags, allow_without_mtp=True)

        without = change(allowed, verdict, "0.5.9")

        assert change(server(), verdict, "0.5.9") is None
        assert {"model_path": "/models/qwen3.6-27b"} == (without and without.flags)
        assert "without-mtp" == LADDERS["default"].rungs[-1].name

    def test_no_draft_tokens_less_where_drafting_has_no_steps(self) -> None:
        """
        An n-gram draft has no steps to take away.
        """
        ngram = ServerSpec("m", {"model_path": "/m", "speculative_algorithm": "NGRAM"})

        assert RUNGS["fewer-draft-tokens"].change(ngram, failed(Cause.OOM_GRAPHS), "0.5.20") is None


class TestHouse:
    """
    What holds for all rungs.
    """

    def test_every_flag_that_a_rung_sets_exists(self) -> None:
        """
        Rungs speak SGLang's newest field names.
        """
        flags = {
            "max_running_requests", "mem_fraction_static", "hicache_size", "hicache_ratio",
            "enable_hierarchical_cache", "cuda_graph_max_bs_decode", "cuda_graph_backend_prefill",
            "chunked_prefill_size", "context_length", "attention_backend", "sampling_backend",
            "prefill_attention_backend", "decode_attention_backend", "speculative_draft_attention_backend",
            "speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens",
            "mamba_track_interval", "mamba_radix_cache_strategy", "mamba_ssm_dtype", "max_mamba_cache_size",
            "disable_radix_cache", "disable_overlap_schedule", "watchdog_timeout", "page_size",
        }  # fmt: skip

        assert [] == sorted(name for name in flags if find(name) is None)

    def test_names_are_unique_and_say_what_is_lost(self) -> None:
        """
        Every rung can be named in hosts.toml, and tells its price.
        """
        rungs = LADDERS["default"].rungs

        assert len(rungs) == len(RUNGS)
        assert [] == [rung.name for rung in rungs if not rung.gives_up or not rung.causes]

    @pytest.mark.parametrize(
        ("version", "expected"),
        [("0.5.9", (0, 5, 9)), ("0.5.12.post1", (0, 5, 12)), ("0.0.0.dev1+g5f", (9999,))],
    )
    def test_versions(self, version: str, expected: tuple[int, ...]) -> None:
        """
        A post release counts as its release, a development build as newer than all.
        """
        assert expected == release(version)
