import pytest

from mtpdeploy.core.diagnosis import Cause, Signature
from mtpdeploy.engines.sglang import signatures
from mtpdeploy.engines.sglang.causes import KNOWLEDGE
from mtpdeploy.engines.sglang.matching import figures_of
from tests.engines.sglang import recorded
from tests.engines.sglang.ascents import Climb, failed, server


class TestAdvice:
    """
    Remedies with the figures of a log.
    """

    def test_an_allocation_that_failed_tells_by_how_much_to_go_down(self) -> None:
        """
        What was asked for, what was free, and the fraction to try: the same that the rung tries.
        """
        text = (
            "CUDA out of memory. Tried to allocate 970.00 MiB. GPU 0 has a total capacity of 94.97 GiB of "
            "which 412.00 MiB is free."
        )
        figures = {**figures_of(text), "mem_fraction_static": 0.9}

        advice = KNOWLEDGE[Cause.OOM_GRAPHS].advice(figures)

        assert (
            "Asked for 970 MiB, 412 MiB were free. Lower mem_fraction_static by 0.016 or more (to 0.884 or "
            "less), or capture smaller graphs (cuda_graph_max_bs_decode)." == advice
        )

    @pytest.mark.parametrize("cause", [Cause.OOM_POOLS, Cause.OOM_GRAPHS, Cause.OOM_SERVING])
    def test_advice_and_rung_agree(self, cause: Cause) -> None:
        """
        What a person is told is what `up` does next.
        """
        lines, _ = recorded.recorded("n08-decode-graphs")
        verdict = recorded.verdict(recorded.read(lines))
        climb = Climb(server(mem_fraction_static=0.9), "0.5.17")

        climb.fail(verdict)

        told = KNOWLEDGE[cause].advice(verdict.figures)
        assert f"to {climb.flag('mem_fraction_static')}" in told

    @pytest.mark.parametrize(
        ("asked_gib", "free_gib", "pools_gib", "to"),
        [(20.0, 1.0, 60.0, 0.689), (31.0, 1.0, 60.0, None), (20.0, 1.0, 11.0, None)],
    )
    def test_a_step_covers_what_lacked_or_says_that_none_does(
        self, asked_gib: float, free_gib: float, pools_gib: float, to: float | None
    ) -> None:
        """
        Of 94.32 GiB that were free, 58 went to the weights: the pools can only give what they hold.
        """
        figures = {
            "asked_mib": asked_gib * 1024,
            "free_mib": free_gib * 1024,
            "total_mib": 97250.0,
            "mem_fraction_static": 0.9,
            "free_before_weights_gib": 94.32,
            "weights_gib": 58.0,
            "pools_gib": pools_gib,
        }
        climb = Climb(server(mem_fraction_static=0.9, chunked_prefill_size=8192), "0.5.17")

        advice = KNOWLEDGE[Cause.OOM_SERVING].advice(figures)
        step = climb.fail(failed(Cause.OOM_SERVING, **figures))

        if to is None:
            assert ("alone cannot free that much; lower chunked" in advice, step.rung) == (
                True,
                "smaller-prefill-chunk",
            )
        else:
            assert f"(to {to} or less)" in advice
            assert to == climb.flag("mem_fraction_static")

    def test_an_allocation_larger_than_what_the_fraction_granted_is_no_pool_of_it(self) -> None:
        """
        72 GiB of state for many requests are asked for by their number, not by the fraction.
        """
        sizes = {"asked_mib": 72 * 1024.0, "free_mib": 41 * 1024.0, "total_mib": 97250.0}
        held = {"mem_fraction_static": 0.9, "free_before_weights_gib": 94.32, "weights_gib": 51.05}
        climb = Climb(server(mem_fraction_static=0.9, max_running_requests=512), "0.5.12")

        advice = KNOWLEDGE[Cause.OOM_POOLS].advice(sizes | held)
        climb.fail(failed(Cause.OOM_POOLS, **sizes, **held))

        assert "alone cannot free that much; ask for fewer running requests" in advice
        assert ["fewer-requests"] == climb.rungs

    @pytest.mark.parametrize(
        ("order", "version", "rung", "told"),
        [
            ("pools first", "", "less-static-memory", "Lower mem_fraction_static by"),
            ("draft first", "", None, "mem_fraction_static does not matter"),
            ("draft first", "0.5.20", None, "mem_fraction_static does not matter"),
        ],
    )
    def test_a_draft_that_does_not_fit_by_the_order_of_its_log(
        self, order: str, version: str, rung: str | None, told: str
    ) -> None:
        """
        Beside the pools a lower fraction makes room, before them it changes nothing.
        """
        lines = recorded.start_until("weights loaded" if order == "draft first" else "graphs captured")
        lines += [f"{recorded.STAMP}Load weight begin. avail mem=3.30 GB"]
        text = "a total capacity of 94.97 GiB of which 400.00 MiB is free."
        lines += recorded.scheduler_exception(
            f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.37 GiB. GPU 0 has {text}"
        )
        verdict = recorded.verdict(recorded.read(lines, version))
        climb = Climb(server(mem_fraction_static=0.8), version or "dev")

        assert Cause.OOM_DRAFT_WEIGHTS is verdict.cause
        assert told in verdict.remedy
        assert rung == climb.fail(verdict).rung

    def test_a_dense_model_without_mtp_needs_a_higher_fraction_at_once(self) -> None:
        """
        No state is reserved there, so that fewer requests would cure nothing.
        """
        figures = {"mem_fraction_static": 0.85, "speculates": 0.0, "radix_cache": 1.0}

        advice = KNOWLEDGE[Cause.OOM_KV_POOL].advice

        assert advice(figures).startswith("mem_fraction_static = 0.85 was in force: raise it.")
        assert "fewer running requests first" in advice({**figures, "speculates": 1.0})

    def test_gpus_unbalanced_by_the_pools_of_the_server_itself(self) -> None:
        """
        Up to 0.5.13 the draft comes after the pools, and finds what they left: nobody else is to be ended.
        """
        figures = {"least_gib": 1.2, "most_gib": 2.1, "mem_fraction_static": 0.96}
        own = {**figures, "free_after_pools_gib": 2.1}
        climb = Climb(server(mem_fraction_static=0.96, tp_size=2), "0.5.9")

        assert "end what else" in KNOWLEDGE[Cause.GPUS_UNBALANCED].advice(figures)
        assert "lower mem_fraction_static (now 0.96)" in KNOWLEDGE[Cause.GPUS_UNBALANCED].advice(own)
        climb.fail(failed(Cause.GPUS_UNBALANCED, **own))
        climb.fail(failed(Cause.GPUS_UNBALANCED, **own))
        assert ["without-balance-check", "room-for-the-draft"] == climb.rungs

    def test_a_floor_above_the_fraction_and_one_below_it(self) -> None:
        """
        The floor counts weights only: below the fraction in force it is no way to go.
        """
        above = KNOWLEDGE[Cause.OOM_KV_POOL].advice({"floor": 0.773, "mem_fraction_static": 0.7})
        below = KNOWLEDGE[Cause.OOM_KV_POOL].advice({"floor": 0.236, "mem_fraction_static": 0.75})

        assert above.startswith(
            "The weights alone need mem_fraction_static above 0.773, and 0.7 was in force"
        )
        assert "Ask for fewer running requests" in below

    def test_the_older_words_without_a_floor(self) -> None:
        """
        What the weights took says which way to go: up, or to fewer requests first.
        """
        figures = {"mem_fraction_static": 0.8, "free_before_weights_gib": 94.0}
        advice = KNOWLEDGE[Cause.OOM_KV_POOL].advice

        assert "The weights took 80 of the 94 GiB" in advice({**figures, "weights_gib": 80.0})
        assert "fewer running requests first" in advice({**figures, "weights_gib": 51.0})

    def test_too_few_slots_for_one_request(self) -> None:
        """
        Slots that were to be had, and what one request takes.
        """
        text = "too small to serve any requests. max_mamba_cache_size=4, mamba_ratio=5, max_num_reqs=0."

        advice = KNOWLEDGE[Cause.OOM_STATE_POOL].advice(figures_of(text))

        assert advice.startswith("4 slots of recurrent state were to be had, and a request takes 5: raise")

    @pytest.mark.parametrize(
        "signature", signatures.SIGNATURES, ids=lambda s: f"{s.cause.name}-{s.example[:30]}"
    )
    def test_figures_of_an_example_are_told(self, signature: Signature) -> None:
        """
        Where an example prints figures that a remedy of its cause can tell, it tells them.
        """
        known, figures = KNOWLEDGE[signature.cause], figures_of(signature.example)
        told = known.advice({"mem_fraction_static": 0.9, **figures})

        silent = known.figured is None or not figures.keys() - {"exit_code"}
        assert silent or told != known.remedy

    def test_what_else_the_same_refusal_may_mean(self) -> None:
        """
        What was free before the weights tells a card that is shared; a fraction that no card with its own
        memory starts with tells one that shares the host's.
        """
        held = {"floor": 0.773, "mem_fraction_static": 0.7, "free_before_weights_gib": 94.1}
        unified = {"floor": 0.962, "mem_fraction_static": 0.99}

        assert "of the 94.1 GiB that were free" in KNOWLEDGE[Cause.OOM_KV_POOL].advice(held)
        assert "drop the page cache" in KNOWLEDGE[Cause.OOM_KV_POOL].advice(unified)
        assert "page cache" not in KNOWLEDGE[Cause.OOM_KV_POOL].advice(
            {**unified, "mem_fraction_static": 0.97}
        )

    def test_state_that_does_not_fit(self) -> None:
        """
        With nothing left the fraction must go up; with something left the state may shrink.
        """
        nothing = KNOWLEDGE[Cause.OOM_STATE_POOL].advice({"rest_gib": -7.96, "state_mib": 146.81})
        something = KNOWLEDGE[Cause.OOM_STATE_POOL].advice({"rest_gib": 0.4, "state_mib": 146.81})

        assert "raise mem_fraction_static, or use a quantised" in nothing
        assert "halve it with mamba_ssm_dtype" in something

    def test_host_memory_that_is_free_but_kept(self) -> None:
        """
        Asked for less than was free: SGLang leaves 10 GB alone, which its older message does not say.
        """
        kept = KNOWLEDGE[Cause.HOST_MEMORY].advice({"requested_gb": 40, "free_gb": 44.87})
        short = KNOWLEDGE[Cause.HOST_MEMORY].advice({"requested_gb": 200, "free_gb": 131.5})

        assert ("10 GB of that" in kept, "10 GB of that" in short) == (True, False)

    @pytest.mark.parametrize("cause", [cause for cause, known in KNOWLEDGE.items() if known.figured])
    def test_without_figures_the_plain_sentence(self, cause: Cause) -> None:
        """
        A log that prints no numbers costs nobody the remedy.
        """
        assert KNOWLEDGE[cause].remedy == KNOWLEDGE[cause].advice({})

    @pytest.mark.parametrize("name", recorded.names())
    def test_every_verdict_has_a_sentence_or_two_to_act_on(self, name: str) -> None:
        """
        Figures make no remedy a page.
        """
        lines, known = recorded.recorded(name)

        remedy = recorded.judged(recorded.read(lines), known).remedy

        assert 40 <= len(remedy) <= 320
        assert remedy.endswith((".", ")."))

    @pytest.mark.parametrize(
        ("name", "told"),
        [
            ("r-flashinfer-workspace-oom-after-pool", "Asked for 384 MiB, 339 MiB were free. Lower"),
            ("r-spec-draft-not-budgeted", "Asked for 56 MiB, 18 MiB were free."),
            ("n05-weights", "The GPU has 47.37 GiB"),
            ("r-fraction-075-refused-floor-0236", "The floor of 0.236"),
            ("r-unbalanced-memory-at-draft", "8.88 GiB are free on one GPU and 11.90 on another"),
            ("r-triton-shared-memory-not-vram", "needs 163840 bytes of the memory on the chip"),
            ("r-eagle-verify-prefill-oom", "asked for 176 tokens, and 91 were left"),
            ("r-can-not-alloc-mamba-cache", "10 requests were to run"),
            ("r-override-args-inert", "Lower context_length to 262144"),
            ("n71-derived-port", "port 30233"),
            ("s20-port-in-use-by-other-sglang", "port 3"),
            ("n19-host-allocation", "Asked the host for 60.0 GB"),
        ],
    )
    def test_figures_of_recorded_logs(self, name: str, told: str) -> None:
        """
        Figures on the exception's line, or on a further one of its message, reach the remedy.
        """
        lines, known = recorded.recorded(name)

        assert told in recorded.judged(recorded.read(lines), known).remedy
