"""
`meta_info`, `/server_info` and `/metrics` of SGLang's releases, as their sources write them.
"""

from typing import Any

import pytest

from mtpdeploy.engines.sglang.counts import average, gauge, read_counts

RELEASES: dict[str, dict[str, Any]] = {
    "0.5.6": {"spec_accept_token_num": 60, "spec_draft_token_num": 105, "spec_accept_rate": 60 / 105},
    "0.5.9": {"spec_accept_token_num": 60, "spec_draft_token_num": 105, "spec_accept_histogram": [5, 10]},
    "0.5.11": {"spec_accepted_drafts": 60, "spec_proposed_drafts": 105},
    "0.5.12": {"spec_num_correct_drafts": 60, "spec_num_proposed_drafts": 105, "spec_accepted_drafts": 60},
    "0.5.23": {"spec_num_correct_drafts": 60, "spec_num_proposed_drafts": 105},
}
"""Beside these: spec_verify_ct 35, spec_accept_length 96 / 35 and completion_tokens 96."""


@pytest.mark.parametrize("release", RELEASES)
def test_accepted_drafts_and_the_bonus_token(release: str) -> None:
    """
    Accepted drafts by verify steps and one more: the same in all releases, whatever they call it.
    """
    meta = {"completion_tokens": 96, "spec_verify_ct": 35, "spec_accept_length": 96 / 35}
    counts = read_counts({**meta, "e2e_latency": 1.5, **RELEASES[release]})

    assert (96, 35, 1 + 60 / 35, True, 1.5) == (
        counts.tokens,
        counts.verify_steps,
        counts.accept_length,
        counts.adds_up,
        counts.seconds,
    )


@pytest.mark.parametrize(
    ("meta", "steps", "accept"),
    [
        ({"spec_verify_ct": 0, "spec_accept_length": 0, "completion_tokens": 96}, None, None),
        ({"completion_tokens": 96}, None, None),
        ({"spec_verify_ct": 95, "completion_tokens": 96, "spec_accept_length": 96 / 95}, 95, 1.0),
        ({"spec_verify_ct": 32, "completion_tokens": 97}, 32, 3.0),
        ({"spec_verify_ct": 96, "completion_tokens": 96}, 96, 1.0),
        ({"spec_accept_length": 1.7}, None, 1.7),
        ({"spec_verify_ct": True, "spec_accept_length": "2.9"}, None, None),
        ({}, None, None),
    ],
    ids=["0.5.6 idle", "plain", "nothing accepted", "counted", "never below one", "told", "no numbers", "{}"],
)
def test_what_is_not_told(meta: dict[str, Any], steps: int | None, accept: float | None) -> None:
    """
    The first token comes from the prefill: 96 tokens in 95 steps are an accept length of 1.00, not of 1.01.
    """
    counts = read_counts(meta)

    assert (steps, accept) == (counts.verify_steps, counts.accept_length)


@pytest.mark.parametrize(
    ("drafts", "accept", "adds_up"),
    [(60, 1 + 60 / 35, True), (63, 1 + 63 / 35, True), (105, 95 / 35, False), (0, 95 / 35, False)],
    ids=["to the token", "more than was asked for", "all that were proposed", "none"],
)
def test_tokens_are_the_cross_check(drafts: int, accept: float, *, adds_up: bool) -> None:
    """
    96 tokens in 35 steps came, whatever the reply tells of drafts.
    """
    meta = {"completion_tokens": 96, "spec_verify_ct": 35, "spec_num_correct_drafts": drafts}
    counts = read_counts(meta)

    assert (accept, adds_up) == (counts.accept_length, counts.adds_up)


def test_decode_throughput_comes_with_metrics() -> None:
    """
    It is read where it is there.
    """
    assert 71.5 == read_counts({"completion_tokens": 96, "decode_throughput": 71.5}).decode_rate
    assert read_counts({"completion_tokens": 96}).decode_rate is None


@pytest.mark.parametrize(
    ("info", "mean"),
    [
        ({"internal_states": [{"avg_spec_accept_length": 2.0}, {"avg_spec_accept_length": 3.0}]}, 2.5),
        ({"internal_states": [{"avg_spec_accept_length": 2.0}, {}]}, 2.0),
        ({"internal_states": [{}]}, None),
        ({"internal_states": None}, None),
        ({}, None),
    ],
)
def test_the_servers_average(info: dict[str, Any], mean: float | None) -> None:
    """
    The mean of the ranks that have speculated.
    """
    assert mean == average(info)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('# TYPE sglang:spec_accept_length gauge\nsglang:spec_accept_length{model_name="m"} 2.75\n', 2.75),
        ("sglang:spec_accept_length 2.75", 2.75),
        ('sglang:spec_accept_length{model_name="m"} 0.0', None),
        ('sglang:spec_accept_length_bucket{le="2"} 9\nsglang:gen_throughput 70.0', None),
        ("sglang:spec_accept_length NaNs", None),
        ("", None),
    ],
)
def test_the_gauge(text: str, value: float | None) -> None:
    """
    0 means that there was no decode log line yet.
    """
    assert value == gauge(text)
