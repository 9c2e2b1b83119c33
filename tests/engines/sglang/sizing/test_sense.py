"""
Values that cannot be: they are named, and none of them hangs or breaks a forecast.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtpdeploy.core.memory import Fit, Seen
from mtpdeploy.core.server import FlagValue, ServerSpec
from mtpdeploy.core.units import GIB
from mtpdeploy.engines.sglang.sizing.fraction import prefill_sizes
from mtpdeploy.engines.sglang.sizing.sense import MOST, is_known, nonsense, without_nonsense
from tests.engines.sglang.sizing.models import (
    CONFIG_27B,
    CONFIG_DENSE,
    CONFIG_KIMI,
    CONFIG_LATENT,
    CONFIG_NEXT,
    plan,
    shape,
)
from tests.engines.sglang.sizing.random_starts import VERSIONS

CONFIGS = (CONFIG_27B, CONFIG_NEXT, CONFIG_DENSE, CONFIG_LATENT, CONFIG_KIMI)
FRACTIONS = ("mem_fraction_static", "mamba_full_memory_ratio", "hicache_ratio")
EXTREMES = (-(10**12), -5, -1, 0, 1, 2, 7, 10**6, 10**12)
REALS = (-1e300, -1.0, -0.5, 0.0, 1e-9, 0.5, 1.0, 2.0, 1e300, float("nan"), float("inf"))

flags = st.dictionaries(st.sampled_from(sorted(MOST)), st.integers(0, 10), max_size=4).map(
    lambda found: {
        name: REALS[at] if name in FRACTIONS else EXTREMES[at % len(EXTREMES)] for name, at in found.items()
    }
)


@settings(derandomize=True, max_examples=400, deadline=None)
@given(
    flags,
    st.sampled_from(VERSIONS),
    st.sampled_from(CONFIGS),
    st.sampled_from(["EAGLE", "NGRAM", "DFLASH", "STANDALONE", None]),
)
def test_no_number_breaks_a_forecast(
    extreme: dict[str, FlagValue], version: str, config: dict[str, FlagValue], algorithm: str | None
) -> None:
    """
    Whatever numbers are given there is a forecast whose lines add up.
    """
    drafted: dict[str, FlagValue] = {} if algorithm is None else {"speculative_algorithm": algorithm}
    found = plan(version, {**drafted, **extreme}, config=config)

    assert found.total == sum(line.amount for line in found.lines)


def test_what_cannot_be_is_planned_as_if_it_were_not_given() -> None:
    """
    The note says so.
    """
    plain = plan("0.5.23", {"speculative_algorithm": "EAGLE"})
    found = plan("0.5.23", {"speculative_algorithm": "EAGLE", "page_size": 0})

    assert plain.kv_tokens == found.kv_tokens
    assert "`page_size` cannot be 0, planned as if it were not given" in found.notes


@pytest.mark.parametrize(
    ("given_flags", "allowed"),
    [
        ({"mem_fraction_static": 1.5}, "above 0, up to 1"),
        ({"tp_size": 0}, "from 1, up to 4,096"),
        ({"chunked_prefill_size": 1 << 25}, "up to 16,777,216"),
        ({"hicache_size": -1}, "from 0, up to 1,000,000"),
    ],
)
def test_what_can_be(given_flags: dict[str, FlagValue], allowed: str) -> None:
    """
    The allowed numbers are told.
    """
    (found,) = nonsense(ServerSpec("m", given_flags))

    assert allowed == found.allowed


def test_a_server_that_makes_sense_is_left_alone() -> None:
    """
    Values that SGLang itself takes for "off" make sense.
    """
    server = ServerSpec("m", {"chunked_prefill_size": -1, "hicache_size": 0, "mem_fraction_static": 0.99})

    assert server is without_nonsense(server)


def test_families() -> None:
    """
    Models of these tests are known, a new name is not.
    """
    assert all(is_known(shape(config)) for config in CONFIGS)
    assert not is_known(shape({**CONFIG_27B, "architectures": ["NewForCausalLM"]}))


@pytest.mark.parametrize("largest", [1, 4, 512, 2048, 4095, 4096, 4600, 4608, 8192, 16384])
def test_sizes_of_prefill(largest: int) -> None:
    """
    As many as a chunk has of SGLang's steps, 512 tokens apart above 4096.
    """
    listed = [*range(4, 33, 4), *range(48, 257, 16), *range(288, 513, 32), *range(576, 1025, 64)]
    listed += [*range(1280, 4097, 256), *range(4608, largest + 1, 512)]

    assert sum(size <= largest for size in listed) == prefill_sizes(largest)
    assert prefill_sizes(1 << 60) > 1 << 50


def test_a_guessed_shape_rules_nothing_out() -> None:
    """
    Pools of a model whose layers are not understood may be smaller than they look; its weights may not.
    """
    flags: dict[str, FlagValue] = {"mem_fraction_static": 0.5}
    new = {**CONFIG_DENSE, "architectures": ["NewForCausalLM"]}

    assert Fit.DOES_NOT_FIT is plan("0.5.12", flags, config=CONFIG_DENSE).fit
    assert Fit.CLOSE is plan("0.5.12", flags, config=new).fit
    assert Fit.DOES_NOT_FIT is plan("0.5.12", flags, config=new, weights_gib=120.0).fit


@pytest.mark.parametrize(
    ("missing", "weights_gib", "guessed"),
    [
        ("intermediate_size", None, "config.json has no `intermediate_size`"),
        ("vocab_size", None, "config.json has no `vocab_size`"),
        ("vocab_size", 61.0, "config.json has no `vocab_size`"),
        ("max_position_embeddings", 61.0, "config.json has no `max_position_embeddings`"),
    ],
)
def test_no_verdict_on_a_guess_is_certain(missing: str, weights_gib: float | None, guessed: str) -> None:
    """
    What config.json leaves open is told, and neither a fit nor an error is sure of it.
    """
    config = {name: value for name, value in CONFIG_DENSE.items() if name != missing}
    fits, whole = ({"mem_fraction_static": share, "context_length": 4096} for share in (0.85, 0.01))
    found = plan("0.5.23", fits, config=config, weights_gib=weights_gib)
    refused = plan("0.5.23", whole, config=config, weights_gib=weights_gib)

    assert (Fit.CLOSE, Fit.CLOSE) == (found.fit, refused.fit)
    assert any(note.startswith(f"a guess: {guessed}") for note in found.notes)
    assert not any("within some 5 %" in note for note in found.notes)
    assert f"; but that is a guess: {guessed}" in found.reason


def test_what_was_seen_or_told_is_no_guess() -> None:
    """
    Weights that are known need no `intermediate_size`.
    """
    config = {name: value for name, value in CONFIG_DENSE.items() if name != "intermediate_size"}

    assert Fit.FITS is plan("0.5.23", {}, config=config, weights_gib=61.0).fit


def test_an_unknown_family_has_guessed_weights() -> None:
    """
    Only of known families the weights are said to be within 5 %.
    """
    new = {**CONFIG_DENSE, "architectures": ["NewForCausalLM"]}
    found = plan("0.5.23", {}, config=new, weights_gib=None)

    assert Fit.CLOSE is found.fit
    assert "the weights' size is worked out from config.json, a guess" in found.notes


@pytest.mark.parametrize(("weights_gib", "fit"), [(0.0001, Fit.CLOSE), (3.0, Fit.CLOSE), (15.0, Fit.FITS)])
def test_weights_that_are_too_few(weights_gib: float, fit: Fit) -> None:
    """
    A checkpoint of less than a bit a parameter is not all there: 27 billion take 12.7 GiB in four bits each.
    """
    found = plan("0.5.23", {"mem_fraction_static": 0.85}, weights_gib=weights_gib)

    assert fit is found.fit
    told = [note for note in found.notes if "too little for the 26.1 billion parameters" in note]
    assert (fit is Fit.CLOSE) == bool(told)


def test_weights_that_were_seen_are_not_doubted() -> None:
    """
    What SGLang printed of a start is so.
    """
    seen = Seen(weights=int(0.5 * GIB))

    assert Fit.FITS is plan("0.5.23", {"mem_fraction_static": 0.85}, weights_gib=0.5, seen=seen).fit
