"""
What `meta_info` of a finished `/generate` tells of speculation and of time, release by release.

`completion_tokens`, `e2e_latency` (s, prefill included), `spec_verify_ct` and `spec_accept_length` (tokens by
verify steps) stand in all of them. The accepted drafts, without the bonus token, are `spec_accept_token_num`
to 0.5.10, `spec_accepted_drafts` from 0.5.11 to 0.5.20, and `spec_num_correct_drafts` from 0.5.12 on.
`decode_throughput` (tokens/s after the first) comes only with `--enable-metrics`
(managers/tokenizer_manager.py and observability/req_time_stats.py, 0.5.6 to 0.5.23).
"""

from typing import Any

from msgspec import Struct

ACCEPTED_DRAFTS = ("spec_num_correct_drafts", "spec_accepted_drafts", "spec_accept_token_num")
"""Names of the count of accepted drafts, newest first."""

ALGORITHM = "speculative_algorithm"

AVERAGE = "avg_spec_accept_length"
"""In `internal_states` of `/server_info`, once there was a verify step (0.5.6-0.5.23)."""

GAUGE = "sglang:spec_accept_length"
"""In `/metrics`, with `--enable-metrics`; 0 before the first decode log line (0.5.6-0.5.23)."""


LEEWAY = 0.1
"""
Share of the tokens by which accepted drafts may miss them: the last step may yield more than was asked for.
"""


class Counts(Struct, frozen=True):
    """
    What one reply tells; None where it does not.

    `accept_length` includes the bonus token, and leaves out the first token, which comes from the prefill;
    the reply's own `spec_accept_length` counts it, and says 1.01 of 96 tokens of which no draft was accepted.
    `adds_up` is False where the accepted drafts are not those that the tokens tell of; the tokens count then.
    """

    tokens: int
    verify_steps: int | None
    accept_length: float | None
    adds_up: bool
    decode_rate: float | None
    seconds: float | None


def read_counts(meta: dict[str, Any]) -> Counts:
    """
    Read the `meta_info` of a finished reply of any release.
    """
    tokens, steps = _number(meta, "completion_tokens"), _number(meta, "spec_verify_ct")
    accept, adds_up = _number(meta, "spec_accept_length") or None, True
    if steps:
        drafts = next((n for name in ACCEPTED_DRAFTS if (n := _number(meta, name)) is not None), None)
        adds_up = drafts is None or not tokens or abs(drafts + steps - (tokens - 1)) <= LEEWAY * tokens
        if drafts is not None and adds_up:
            accept = 1 + drafts / steps
        elif tokens:
            accept = max(1.0, (tokens - 1) / steps)
    return Counts(
        tokens=int(tokens or 0),
        verify_steps=int(steps) if steps else None,
        accept_length=accept,
        adds_up=adds_up,
        decode_rate=_number(meta, "decode_throughput"),
        seconds=_number(meta, "e2e_latency"),
    )


def average(info: dict[str, Any]) -> float | None:
    """
    The accept length over everything that a server has answered, from `/server_info`; the mean of its ranks.
    """
    states = info.get("internal_states")
    found = [
        value
        for state in (states if isinstance(states, list) else [])
        if isinstance(state, dict) and (value := _number(state, AVERAGE))
    ]
    return sum(found) / len(found) if found else None


def gauge(metrics: str) -> float | None:
    """
    The accept length in a text of `/metrics`; None where it is not there or still 0.
    """
    for line in metrics.splitlines():
        name, _, value = line.rpartition(" ")
        if name.partition("{")[0] == GAUGE:
            try:
                return float(value) or None
            except ValueError:
                continue
    return None


def _number(document: dict[str, Any], name: str) -> float | None:
    value = document.get(name)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
