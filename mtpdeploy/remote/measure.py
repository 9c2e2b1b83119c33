"""
Generations timed on the box itself, with what its GPUs draw meanwhile.

Where the box starts no second program, the same requests go through a channel, one after the other; the
server's own times are all there is then.
"""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct, convert, json

from mtpdeploy import onbox
from mtpdeploy.core.foreign import decoded
from mtpdeploy.errors import BoxUnreachable, ConnectionLost
from mtpdeploy.remote import http
from mtpdeploy.remote.box import Box
from mtpdeploy.remote.power import QUERIES, Sample, read_power

PAUSE = 0.25
"""Seconds between two samples: four for each second that power.draw is a mean over."""

SAMPLE_LIMIT = 8.0
"""Seconds for one: with persistence mode off the driver is loaded for every call (remote/facts.py)."""

PATH = "/generate"


class Answer(Struct, frozen=True):
    """
    What came of one request. `first` and `last`: moment (box's monotonic clock, s) and tokens so far.

    `status` 0 where no HTTP answer came; `problem` says why, or what was wrong with it.
    """

    status: int
    problem: str
    text: str
    meta: dict[str, Any]
    first: tuple[float, float] | None = None
    last: tuple[float, float] | None = None
    begun: float = 0.0


class Measured(Struct, frozen=True):
    """
    The answers wave by wave, and the samples.
    """

    waves: tuple[tuple[Answer, ...], ...]
    samples: tuple[Sample, ...] = ()
    power_problem: str = ""


def measure(
    box: Box,
    waves: Sequence[Sequence[dict[str, Any]]],
    *,
    port: int,
    python: str,
    timeout: float,
) -> Measured:
    """
    Send the requests of each wave at once, one wave after the other, at most `timeout` seconds a request.

    Raises:
        ConnectionLost: the line to the box broke.
    """
    try:
        out = _run(box, waves, port=port, python=python, timeout=timeout)
    except ConnectionLost:
        raise
    except BoxUnreachable:
        return _one_by_one(box, waves, port=port, python=python, timeout=timeout)
    try:
        answer = decoded(out, dict[str, Any])
        told = tuple(tuple(convert(one, type=Answer) for one in wave) for wave in answer["waves"])
        power = answer["power"]
        samples = tuple(
            Sample(s["begun"], s["ended"], read_power(power["fields"], s["text"])) for s in power["samples"]
        )
    except (ValueError, KeyError, TypeError):
        return _one_by_one(box, waves, port=port, python=python, timeout=timeout)
    return Measured(told, samples, power["problem"])


def _run(
    box: Box, waves: Sequence[Sequence[dict[str, Any]]], *, port: int, python: str, timeout: float
) -> bytes:
    request = {
        "port": port,
        "path": PATH,
        "waves": [[json.encode(body).decode() for body in wave] for wave in waves],
        "timeout": timeout,
        "queries": QUERIES,
        "pause": PAUSE,
        "limit": SAMPLE_LIMIT,
    }
    stream = box.stream(onbox.script("measure", request, python))
    out = b""
    try:
        while piece := stream.read(len(waves) * timeout + SAMPLE_LIMIT + http.START_TIMEOUT):
            out += piece
    finally:
        stream.close()
    return out


def _one_by_one(
    box: Box, waves: Sequence[Sequence[dict[str, Any]]], *, port: int, python: str, timeout: float
) -> Measured:
    told = tuple(
        tuple(
            _ask(box, {**body, "stream": False}, port=port, python=python, timeout=timeout) for body in wave
        )
        for wave in waves
    )
    return Measured(told, power_problem="the box starts no program beside the others")


def _ask(box: Box, body: dict[str, Any], *, port: int, python: str, timeout: float) -> Answer:
    reply = http.post(box, port, PATH, body, timeout=timeout, python=python)
    answer = reply.json()
    answer = answer if isinstance(answer, dict) else {}
    problem = reply.problem
    if reply.status not in (0, 200):
        problem = reply.body[:300].decode("utf-8", "replace")
    meta = answer.get("meta_info")
    return Answer(
        reply.status, problem, str(answer.get("text") or ""), meta if isinstance(meta, dict) else {}
    )
