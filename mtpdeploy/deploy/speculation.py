"""
The proof of speculation: fixed prompts of several kinds, generated, counted, timed, and judged.

Decode speed is tokens from the first piece of the streamed answer to the last over the time between them, as
the box sees it: no prefill and no way to the box is in it, in any release and without `--enable-metrics`.
"""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct, structs

from mtpdeploy.core.families import DEVICES
from mtpdeploy.core.proof import (
    Generation,
    Proof,
    Speculation,
    Speed,
    judge,
    mean_accept_length,
)
from mtpdeploy.core.sense import Sense, read_reply
from mtpdeploy.core.server import ServerSpec
from mtpdeploy.engines.sglang.counts import read_counts
from mtpdeploy.remote.measure import Answer, Measured
from mtpdeploy.remote.power import power_between

PROMPTS = {
    "prose": "The lighthouse keeper climbed the stairs, lit the lamp, and",
    "code": 'def is_prime(n):\n    """Whether n is prime."""\n',
    "counting": "1, 2, 3, 4, 5, 6, 7, 8, 9, 10,",
    "translation": "English: Good morning.\nGerman: Guten Morgen.\nEnglish: Thank you.\nGerman:",
}
"""
Kinds of text, hard to guess and easy: an accept length of one kind says little of the others. Asked as plain
text, so that models without a chat template can be asked as well.
"""

PROMPT_ROOM = 96
"""Tokens that a prompt takes at most: one for each of the longest one's 71 characters, and some."""

SHORT_TOKENS = 96
"""
Tokens of each reply in the short proof, the one of `up`: 24 verify steps each even if every one of three
drafts is accepted, 96 or more in all. A step yields 1 to 4 tokens, so their mean is known to about 0.12 (a
standard deviation of 1.2 over the root of 96), and what is as good as 1.00 cannot pass for 1.45.
"""

FULL_TOKENS = 256
"""Tokens of each reply in the full one: 64 steps each at least, twice over; the mean is known to 0.06."""

LEAST_TOKENS = 8
"""Tokens of a reply below which there is nothing to count."""

AT_ONCE = len(PROMPTS)
"""Requests at once at most: one of each kind."""


class Room(Struct, frozen=True):
    """
    What a server takes: the longest request and all that run at once (tokens), and how many run at a time.
    """

    longest: float
    pool: float
    requests: float


def plan_waves(room: Room, *, full: bool) -> tuple[tuple[tuple[str, ...], ...], int]:
    """
    Which kinds are asked together, wave by wave, and the tokens of each reply; no waves where a server takes
    nothing worth asking.

    The full proof asks each kind alone and then all at once; the short one all at once and one alone.
    """
    tokens = int(min(FULL_TOKENS if full else SHORT_TOKENS, room.longest - PROMPT_ROOM))
    if tokens < LEAST_TOKENS:
        return (), 0
    fitting = min(room.requests, room.pool // (PROMPT_ROOM + tokens), AT_ONCE)
    kinds = tuple(PROMPTS)
    alone = tuple((kind,) for kind in kinds)
    if fitting < 2:
        return alone, tokens
    size = AT_ONCE if fitting >= AT_ONCE else 2
    together = tuple(kinds[n : n + size] for n in range(0, len(kinds), size))
    return (*alone, *together) if full else (*together, alone[0]), tokens


def body(kind: str, tokens: int) -> dict[str, Any]:
    """
    One request to `/generate`: greedy, and on past the end of what the model had to say.
    """
    sampling = {"max_new_tokens": tokens, "temperature": 0, "ignore_eos": True}
    return {"text": PROMPTS[kind], "sampling_params": sampling, "stream": True}


def read_proof(
    server: ServerSpec,
    waves: Sequence[Sequence[str]],
    measured: Measured,
    average: Callable[[], tuple[float | None, str]],
) -> Speculation:
    """
    Count, time and judge what came. `average` is asked for the server's own accept length, with its source,
    where no reply tells one.
    """
    asked = server.mtp is not None
    generations = tuple(
        _generation(kind, len(wave), answer)
        for wave, answers in zip(waves, measured.waves, strict=False)
        for kind, answer in zip(wave, answers, strict=False)
    )
    accept, source = mean_accept_length(generations), "of our own requests"
    if not all(read_counts(answer.meta).adds_up for wave in measured.waves for answer in wave):
        source = "of our own requests, by their tokens: the accepted drafts they tell do not add up"
    if accept is None and asked and any(not g.problem for g in generations):
        accept, source = average()
    steps = server.mtp.num_steps if server.mtp else None
    found = Speculation(
        proof=judge(generations, accept, asked=asked),
        accept_length=accept,
        most=steps + 1 if steps else None,
        source=source if accept is not None else "",
        timed_by=_timed_by(measured),
        generations=generations,
        speeds=_speeds(waves, measured, generations, devices(server)),
        power_problem=measured.power_problem,
    )
    return structs.replace(found, because=_because(found))


def devices(server: ServerSpec) -> set[int]:
    """
    The indices of the GPUs that a server runs on.
    """
    count = int((server.number("tp_size") or 1) * (server.number("pp_size") or 1))
    words = server.env.get(DEVICES, "").split(",")
    named = server.gpus or tuple(int(word) for word in words if word.strip().isdigit())
    return set(named[:count] if named else range(count))


def _generation(kind: str, at_once: int, answer: Answer) -> Generation:
    counts = read_counts(answer.meta)
    problem = answer.problem
    if not problem and (answer.status != 200 or not counts.tokens):
        problem = f"HTTP {answer.status} without a token" if answer.status else "no answer in time"
    if problem:
        return Generation(kind, at_once, problem=problem)
    reading = read_reply(answer.text, counts.tokens)
    rate = counts.decode_rate
    if answer.first and answer.last and answer.last[0] > answer.first[0]:
        rate = (answer.last[1] - answer.first[1]) / (answer.last[0] - answer.first[0])
    elif rate is None and counts.seconds:
        rate = counts.tokens / counts.seconds
    return Generation(
        kind,
        at_once,
        tokens=counts.tokens,
        verify_steps=counts.verify_steps,
        accept_length=counts.accept_length,
        tokens_per_second=rate,
        sense=reading.sense,
        nonsense=reading.why,
    )


def _timed_by(measured: Measured) -> str:
    answers = [answer for wave in measured.waves for answer in wave]
    if any(a.first and a.last and a.last[0] > a.first[0] for a in answers):
        return "the pieces of the answers, on the box"
    counts = [read_counts(answer.meta) for answer in answers]
    if any(c.decode_rate for c in counts):
        return "the server's decode_throughput"
    return "the server's e2e_latency, prefill included" if any(c.seconds for c in counts) else ""


def _speeds(
    waves: Sequence[Sequence[str]],
    measured: Measured,
    generations: Sequence[Generation],
    gpus: set[int],
) -> tuple[Speed, ...]:
    """
    The speed at each number of requests at once, few first.
    """
    found = []
    for at_once in sorted({len(wave) for wave in waves}):
        rates = [g.tokens_per_second for g in generations if g.at_once == at_once and g.tokens_per_second]
        if not rates:
            continue
        each = sum(rates) / len(rates)
        spans = []
        tokens = 0.0
        for wave in measured.waves:
            timed = [(a.first, a.last) for a in wave if a.first and a.last and a.last[0] > a.first[0]]
            if len(wave) == at_once and timed:
                spans.append((min(first[0] for first, _ in timed), max(last[0] for _, last in timed)))
                tokens += sum(last[1] - first[1] for first, last in timed)
        seconds = sum(end - begin for begin, end in spans)
        total = tokens / seconds if seconds else each
        power = power_between(measured.samples, spans, gpus)
        joule = total / power.watts if power and power.watts else None
        found.append(Speed(at_once, total, each, power, joule))
    return tuple(found)


def _because(found: Speculation) -> str:
    told = f"{found.accept_length:.2f}" if found.accept_length is not None else ""
    match found.proof:
        case Proof.NOT_ANSWERING:
            problems = [g.problem for g in found.generations]
            return problems[0] if problems else "the server takes no prompt that is worth asking"
        case Proof.NONSENSE:
            odd = [g for g in found.generations if not g.problem and g.sense is not Sense.SOUND]
            first = (found.broken or odd)[0]
            return f"{first.kind}: {first.nonsense}"
        case Proof.NOT_SPECULATING if not told:
            return "the server tells no accept length"
        case Proof.NOT_WORTH_IT:
            return f"accept length {told}, where a step costs about {found.break_even} plain ones"
        case _:
            return ""
