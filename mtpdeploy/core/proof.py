"""
The proof that a server speculates, and whether that is worth it: what was measured, and what it means.
"""

from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct, structs

from mtpdeploy.core.sense import Sense

USEFUL_ACCEPT_LENGTH = 1.1
"""
Accept length from which a server counts as speculating. It includes the bonus token, so 1.00 means that no
draft was ever accepted, and 1.02 was a broken draft in a public report (SGLang PR 37736).
"""

BREAK_EVEN = 1.45
"""
Accept length at which speculation is as fast as decoding without it: what one step of drafts and verify costs
in steps of plain decoding.

From the rates of a public report on an RTX PRO 6000 (qwen38-mtp PR 11: 63 tokens/s without; 96 with two
drafts of which 0.59 are accepted; 116 with four, 0.42): (1 + 2 x 0.59) x 63 / 96 = 1.43 and
(1 + 4 x 0.42) x 63 / 116 = 1.46. Another card, model or batch has another; a comparison measures it.
"""


class Proof(StrEnum):
    """
    What the measurements say of a server.
    """

    SPECULATING = "speculating"
    NOT_WORTH_IT = "speculating, but not worth it"
    NOT_SPECULATING = "not speculating"
    NOT_ANSWERING = "not answering"
    NONSENSE = "answering nonsense"
    NOT_ASKED = "not asked to speculate"


class Generation(Struct, frozen=True):
    """
    One request of the proof.

    `verify_steps` is None where the reply does not tell, `accept_length` then, too, unless the reply tells it
    by itself. `tokens_per_second` is of decoding alone, None where there was too little of it to be timed.
    `problem` says why there is no answer.
    """

    kind: str
    at_once: int
    tokens: int = 0
    verify_steps: int | None = None
    accept_length: float | None = None
    tokens_per_second: float | None = None
    sense: Sense = Sense.SOUND
    nonsense: str = ""
    problem: str = ""


class Power(Struct, frozen=True):
    """
    What the GPUs of a server drew while they decoded: means over the samples; several GPUs as their sum
    (watts, bytes) or their mean (clocks in MHz, per cent busy).

    A figure is None where nvidia-smi does not tell it. `held_back` names what keeps the clocks down, if
    anything does.
    """

    samples: int
    gpus: int
    watts: float | None = None
    limit_watts: float | None = None
    sm_mhz: float | None = None
    max_sm_mhz: float | None = None
    busy_percent: float | None = None
    memory_used_bytes: int | None = None
    held_back: tuple[str, ...] | None = None


class Speed(Struct, frozen=True):
    """
    Decode speed with so many requests at once: tokens a second of all of them, and of one.

    `tokens_per_joule` is what a joule pays for; None where the power is not known.
    """

    at_once: int
    tokens_per_second: float
    per_request: float
    power: Power | None = None
    tokens_per_joule: float | None = None


class Speculation(Struct, frozen=True):
    """
    The whole proof. `accept_length` is the mean over all verify steps, not over requests.

    `source` says where the accept length comes from, `timed_by` where the speeds do. `because` and `remedy`
    are sentences for people; `power_problem` says why there is no power. `others` are requests of somebody
    else that the server had when it was asked.
    """

    proof: Proof
    because: str = ""
    remedy: str = ""
    accept_length: float | None = None
    most: int | None = None
    break_even: float = BREAK_EVEN
    source: str = ""
    timed_by: str = ""
    generations: tuple[Generation, ...] = ()
    speeds: tuple[Speed, ...] = ()
    power_problem: str = ""
    others: int = 0

    @property
    def verify_steps(self) -> int:
        """
        All verify steps that were counted.
        """
        return sum(g.verify_steps or 0 for g in self.generations)

    @property
    def broken(self) -> tuple[Generation, ...]:
        """
        The replies that no sound forward gives: broken ones, and empty ones where there are no others.
        """
        answered = [g for g in self.generations if not g.problem]
        alike = all(g.sense is Sense.EMPTY for g in answered)
        return tuple(g for g in answered if alike or g.sense is Sense.BROKEN)


class Pair(Struct, frozen=True):
    """
    The speed of one server without speculation and with it, at one number of requests at once.
    """

    at_once: int
    without: Speed
    speculating: Speed
    speed_up: float


def compare(without: Speculation, speculating: Speculation) -> tuple[Pair, ...]:
    """
    The speeds of both, where both were measured; few requests first.
    """
    plain = {speed.at_once: speed for speed in without.speeds if speed.tokens_per_second > 0}
    return tuple(
        Pair(
            speed.at_once,
            plain[speed.at_once],
            speed,
            speed.tokens_per_second / plain[speed.at_once].tokens_per_second,
        )
        for speed in speculating.speeds
        if speed.at_once in plain
    )


def measured(speculating: Speculation, pairs: Sequence[Pair]) -> Speculation:
    """
    A proof with the break-even point that a comparison measured, at the fewest requests at once.

    What a step costs in plain ones is its accept length by the speed-up that it yields.
    """
    accept = speculating.accept_length
    if not pairs or accept is None or speculating.proof not in (Proof.SPECULATING, Proof.NOT_WORTH_IT):
        return speculating
    speed_up = pairs[0].speed_up
    worth = speed_up > 1
    cost = accept / speed_up
    told = f"accept length {accept:.2f} makes it {speed_up:.2f} times as fast: a step costs {cost:.2f}"
    return structs.replace(
        speculating,
        proof=Proof.SPECULATING if worth else Proof.NOT_WORTH_IT,
        because=f"{told} plain ones",
        remedy="" if worth else "deploy it without the speculative_ flags, or with fewer draft tokens",
        break_even=cost,
    )


def mean_accept_length(generations: Sequence[Generation]) -> float | None:
    """
    Tokens a verify step over all steps; a reply that tells no steps counts as one of the others' size.
    """
    counted = [g for g in generations if g.accept_length is not None]
    steps = [g.verify_steps or 0 for g in counted]
    told = [g.accept_length or 0.0 for g in counted]
    if not counted:
        return None
    if not all(steps):
        return sum(told) / len(told)
    return sum(a * n for a, n in zip(told, steps, strict=True)) / sum(steps)


def judge(generations: Sequence[Generation], accept_length: float | None, *, asked: bool) -> Proof:
    """
    What the replies and the accept length mean, for a server that was asked to speculate or was not.

    Broken replies go before everything but silence, odd ones only where all are: a model of no sense, or
    without its tensors, may still speculate.
    """
    answered = [g for g in generations if not g.problem]
    if not answered:
        return Proof.NOT_ANSWERING
    odd = [g for g in answered if g.sense is not Sense.SOUND]
    if any(g.sense is Sense.BROKEN for g in answered) or len(odd) == len(answered):
        return Proof.NONSENSE
    if not asked:
        return Proof.NOT_ASKED
    if accept_length is None or accept_length <= USEFUL_ACCEPT_LENGTH:
        return Proof.NOT_SPECULATING
    return Proof.NOT_WORTH_IT if accept_length < BREAK_EVEN else Proof.SPECULATING
