"""
What is particular to the division of memory in single releases.
"""

import pytest

from mtpdeploy.core.diagnosis import Cause
from mtpdeploy.core.memory import Fit
from mtpdeploy.core.server import FlagValue
from mtpdeploy.core.units import GIB, MIB
from mtpdeploy.engines.sglang.sizing.division import Loads
from mtpdeploy.engines.sglang.sizing.pools import size_pools
from mtpdeploy.engines.sglang.sizing.state import fullest_stage, ring_bytes, stage_layers
from tests.engines.sglang.sizing.models import (
    CONFIG_27B,
    CONFIG_DENSE,
    CONFIG_KIMI,
    CONFIG_LATENT,
    CONFIG_NEMOTRON,
    CONFIG_NEXT,
    EXTRA_BUFFER,
    MTP,
    RADIX_OFF,
    asked,
    plan,
)

LOADS = Loads(free=int(94.32 * GIB), weights=int(40 * GIB), draft=int(3 * GIB), draft_kept=int(1 * GIB))
FULL: dict[str, FlagValue] = {"mem_fraction_static": 0.9, "max_running_requests": 8}


def tokens(version: str, flags: dict[str, FlagValue]) -> int:
    """
    The tokens of a pool of a Qwen3-Next whose weights take 40 GiB.
    """
    return size_pools(asked(version, {**FULL, **flags}, config=CONFIG_NEXT), LOADS).tokens


class TestRequests:
    def test_half_the_tokens_at_most(self) -> None:
        """
        Where no number is asked for, no release runs more requests than half the tokens it has.
        """
        flags = {"mem_fraction_static": 0.9, "max_total_tokens": 1000}

        assert [500] * 3 == [
            plan(version, flags, config=CONFIG_DENSE, weights_gib=61.0).max_running_requests
            for version in ("0.5.6", "0.5.9", "0.5.23")
        ]

    @pytest.mark.parametrize(("version", "requests"), [("0.5.13", 2048), ("0.5.14", 3000)])
    def test_more_than_sglang_itself_would_take(self, version: str, requests: int) -> None:
        """
        From 0.5.10 to 0.5.13 SGLang's own estimate bounds what is asked for, later only the tokens do.
        """
        flags = {"mem_fraction_static": 0.9, "max_running_requests": 3000}
        forecast = plan(version, flags, config=CONFIG_DENSE, weights_gib=61.0)

        assert requests == forecast.max_running_requests

    def test_workers_share_them_out(self) -> None:
        """
        With attention divided by requests each worker gets its part of them, and of the slots.
        """
        flags = {**MTP, **EXTRA_BUFFER, **FULL, "tp_size": 2, "dp_size": 2, "enable_dp_attention": True}
        forecast = plan("0.5.23", flags, weights_gib=80.0)

        assert 4 == forecast.max_running_requests


class TestFirstReleases:
    def test_room_for_drafts_is_added_to_the_tokens(self) -> None:
        """
        0.5.6: for each request steps * top-k and the draft tokens, and 100 more.
        """
        flags = {**MTP, "mem_fraction_static": 0.9, "max_running_requests": 2}
        bare = size_pools(asked("0.5.6", flags, config=CONFIG_NEXT), LOADS)

        assert 2 * (3 * 1 + 4) + 100 == bare.tokens - plain_tokens("0.5.6", flags)

    def test_a_given_number_of_tokens_bounds_the_sum(self) -> None:
        """
        0.5.6 limits what it has after that room is added, later releases before they know of requests.
        """
        assert 1000 == tokens("0.5.6", {**MTP, "max_total_tokens": 1000})
        assert 1000 == tokens("0.5.9", {**MTP, **EXTRA_BUFFER, "max_total_tokens": 1000})

    def test_a_given_number_of_slots(self) -> None:
        """
        0.5.6 overwrites it where the radix cache is on; from 0.5.7 on it wins over everything.
        """
        flags = {**MTP, **FULL, "max_mamba_cache_size": 40}
        early = size_pools(asked("0.5.6", flags, config=CONFIG_NEXT), LOADS)
        late = size_pools(asked("0.5.7", flags, config=CONFIG_NEXT), LOADS)

        assert 40 != early.slots
        assert 40 == late.slots

    @pytest.mark.parametrize(("version", "sets"), [("0.5.6", "slots"), ("0.5.8", "requests")])
    def test_draft_states_are_kept_for(self, version: str, sets: str) -> None:
        """
        Each slot in 0.5.6, each running request later; and one set for padding.
        """
        found = asked(version, {**MTP, **FULL}, config=CONFIG_NEXT)
        pools = size_pools(found, LOADS)

        assert pytest.approx((getattr(pools, sets) + 1) * 4 * 72, abs=1) == pools.intermediate_ssm / MIB


def plain_tokens(version: str, flags: dict[str, FlagValue]) -> int:
    """
    The tokens that memory alone allows: what is left over the bytes of one.
    """
    found = asked(version, flags, config=CONFIG_NEXT)
    pools = size_pools(found, LOADS)
    slot = 73.6875 * MIB
    return int((pools.rest - pools.slots * slot * 5) // (24 * 1024))


class TestCells:
    @pytest.mark.parametrize(
        ("version", "config", "layers"),
        [
            ("0.5.13", CONFIG_27B, 0),
            ("0.5.14", CONFIG_27B, 64),
            ("0.5.17", CONFIG_27B, 64),
            ("0.5.18", CONFIG_27B, 1),
        ],
    )
    def test_a_draft_path_counts_the_draft_s_layers(
        self, version: str, config: dict[str, object], layers: int
    ) -> None:
        """
        From 0.5.14 on; to 0.5.17 all of the target is taken for it where the config has a part for text.
        """
        flags = {**MTP, **EXTRA_BUFFER, **FULL}
        without = size_pools(asked(version, flags, config=config), LOADS)
        given = size_pools(
            asked(version, {**flags, "speculative_draft_model_path": "m"}, config=config), LOADS
        )

        assert pytest.approx(16 / (16 + layers), rel=1e-3) == given.tokens / without.tokens

    def test_a_model_of_text_has_one_draft_layer(self) -> None:
        """
        Qwen3-Next's layers are counted right in 0.5.14, too.
        """
        path = {"speculative_draft_model_path": "m"}
        share = tokens("0.5.14", {**MTP, **path}) / tokens("0.5.14", MTP)

        assert pytest.approx(12 / 13, rel=1e-3) == share

    def test_latent_attention(self) -> None:
        """
        576 elements of a token and layer, undivided by tensor parallelism; its draft is counted by itself.
        """
        flags = {**FULL, "tp_size": 8}
        forecast = plan("0.5.13", flags, config=CONFIG_LATENT, weights_gib=320.0)

        assert pytest.approx(576 * 2 * 61, rel=1e-4) == (
            forecast.figures["kv_k_gib"] * GIB / (forecast.kv_tokens + 1)
        )

    def test_pages(self) -> None:
        """
        Tokens come in whole pages.
        """
        assert 0 == tokens("0.5.23", {**MTP, "page_size": 64}) % 64


class TestRings:
    @pytest.mark.parametrize(
        ("version", "length", "layer"),
        [
            # values and keys of one token in two bytes, and gates of four bytes a head
            ("0.5.17", 4, (48 * 128 + 16 * 128) * 2 + 2 * 4 * 48),
            ("0.5.23", 16, (48 * 128 + 16 * 128) * 4 + 4 * 48),
        ],
    )
    def test_gated_deltanet(self, version: str, length: int, layer: int) -> None:
        """
        As long as the draft to 0.5.19; then 16, with the low parts: 24 MiB a request of the 27B.
        """
        found = asked(version, {**MTP, "enable_linear_replayssm_spec": True})

        assert 48 * length * layer == ring_bytes(found)

    def test_kimi_s_gates_are_vectors(self) -> None:
        """
        Raw and normalized keys and values, one beta and a gate for each key element, whatever the release.
        """
        flags = {**MTP, "enable_linear_replayssm_spec": True}
        early, late = (asked(version, flags, config=CONFIG_KIMI) for version in ("0.5.17", "0.5.23"))
        layer = 2 * (32 * 128 + 32 * 128) * 2 + 4 * 32 * (1 + 128)

        assert [6 * 16 * layer] * 2 == [ring_bytes(early), ring_bytes(late)]

    def test_windows_stay(self) -> None:
        """
        Replaying keeps no states, but the windows of the convolutions all the same.
        """
        flags = {**MTP, **EXTRA_BUFFER, "mem_fraction_static": 0.9, "enable_linear_replayssm_spec": True}
        figures = plan("0.5.23", flags).figures

        assert 0 == figures["intermediate_ssm_gib"]
        assert 0 < figures["intermediate_conv_gib"] < figures["replay_ring_gib"]


class TestStages:
    def test_the_fullest_stage_counts(self) -> None:
        """
        Of 64 layers in three stages the last has 22: 16 recurrent ones and six that attend.
        """
        found = asked("0.5.23", {"pp_size": 3})
        model = found.model

        assert model.state is not None
        assert 16 == stage_layers(found, model.state)
        assert 6 == fullest_stage(model, model.attention_numbers, 3)

    @pytest.mark.parametrize(("version", "layers"), [("0.5.16", 48), ("0.5.17", 24)])
    def test_slots_are_charged_with_all_layers_at_first(self, version: str, layers: int) -> None:
        """
        To 0.5.16 a stage is charged with the states of all 48 layers, of which it allocates 24.
        """
        flags = {"max_mamba_cache_size": 100, "mem_fraction_static": 0.9, "pp_size": 2}
        charged, found = (
            plan(version, {**flags, **more}, weights_gib=60.0) for more in ({}, {"max_mamba_cache_size": 101})
        )
        slot = (charged.kv_tokens - found.kv_tokens) * 32 * 1024

        assert pytest.approx(layers * 146.8125 / 48 * MIB, rel=0.001) == slot
        assert pytest.approx(101 * 72 / 1024) == charged.figures["ssm_state_gib"]

    def test_tensor_parallel_heads_are_never_fewer_than_one(self) -> None:
        """
        Two KV heads on eight cards are one each.
        """
        forecast = plan("0.5.23", {**FULL, "tp_size": 8}, config=CONFIG_NEXT, weights_gib=80.0)

        assert pytest.approx(256 * 2 * 12, rel=1e-4) == (
            forecast.figures["kv_k_gib"] * GIB / (forecast.kv_tokens + 1)
        )


class TestDraftsPool:
    def test_a_layer_that_no_config_names(self) -> None:
        """
        SGLang gives Qwen3-Next's draft one layer, though its config.json says nothing of it.
        """
        flags = {**MTP, **EXTRA_BUFFER, "mem_fraction_static": 0.9}
        forecast = plan("0.5.23", flags, config=CONFIG_NEXT, weights_gib=40.0)
        one_layer = (forecast.figures["kv_k_gib"] + forecast.figures["kv_v_gib"]) / 12

        assert pytest.approx(one_layer) == forecast.figures["draft_kv_gib"]

    def test_none_without_a_draft_of_its_own(self) -> None:
        """
        NGRAM drafts from the text alone.
        """
        flags = {"speculative_algorithm": "NGRAM", **RADIX_OFF, **FULL}

        assert 0 == plan("0.5.23", flags).figures["draft_kv_gib"]

    def test_its_tables_stay_until_the_pool_is_made(self) -> None:
        """
        From 0.5.14 on the draft's own tables are still there when its pool is allocated: 4.7 GiB of the 27B.
        """
        flags = {**MTP, **EXTRA_BUFFER, "max_running_requests": 1, "max_mamba_cache_size": 6}
        forecast = plan(
            "0.5.23", {**flags, "mem_fraction_static": 0.998, "cuda_graph_backend_prefill": "disabled"}
        )

        assert (Fit.DOES_NOT_FIT, Cause.OOM_POOLS) == (forecast.fit, forecast.cause)
        assert forecast.error is None


class TestMeasured:
    def test_nemotron_on_four_cards(self) -> None:
        """
        A public log of Nemotron-3-Nano on four GB10 under 0.5.21: 2211 slots and 19,644,177 tokens in FP8.
        """
        flags = {
            "tp_size": 4,
            "mem_fraction_static": 0.95,
            "max_mamba_cache_size": 2211,
            "max_total_tokens": 19_644_177,
            "kv_cache_dtype": "fp8_e4m3",
            "max_running_requests": 32,
            **EXTRA_BUFFER,
        }
        figures = plan("0.5.21", flags, config=CONFIG_NEMOTRON, weights_gib=20.0, draft_gib=0.0).figures
        names = ("conv_state_gib", "ssm_state_gib", "kv_k_gib", "kv_v_gib")

        assert [0.44, 24.84, 14.05, 14.05] == [round(figures[name], 2) for name in names]
