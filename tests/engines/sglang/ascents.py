"""
Ascents made up from verdicts: what a ladder does, without a box.
"""

from mtpdeploy.core.diagnosis import Cause, End, Stage, Verdict
from mtpdeploy.core.ladder import Step, next_step
from mtpdeploy.core.outcome import Ascent, Outcome
from mtpdeploy.core.server import FlagValue, ServerSpec
from mtpdeploy.engines.sglang.causes import KNOWLEDGE
from mtpdeploy.engines.sglang.rungs import LADDERS

MTP: dict[str, FlagValue] = {
    "model_path": "/models/qwen3.6-27b",
    "speculative_algorithm": "EAGLE",
    "speculative_num_steps": 3,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 4,
}


def server(**flags: FlagValue) -> ServerSpec:
    """
    A server with MTP 3/1/4 and these flags.
    """
    return ServerSpec(name="27b", flags={**MTP, **flags})


def failed(cause: Cause, **figures: float) -> Verdict:
    """
    A verdict as SGLang's knowledge makes it.
    """
    known = KNOWLEDGE[cause]
    return Verdict(cause=cause, next=known.next, remedy=known.remedy, figures=figures)


class Climb:
    """
    An ascent that grows by one failure at a time.
    """

    def __init__(self, asked: ServerSpec, version: str) -> None:
        self.ascent = Ascent(id="a", host="box", asked=asked)
        self.server: ServerSpec | None = asked
        self.version = version
        self.rungs: list[str | None] = []
        self.reason = ""

    def fail(self, verdict: Verdict, stage: Stage = Stage.LAUNCHED) -> Step:
        """
        The server that runs now fails with a verdict: what next?
        """
        if self.server is None:
            raise ValueError("the climb is over")
        outcome = Outcome(
            attempt=len(self.ascent.outcomes) + 1,
            run="r",
            server=self.server,
            end=End.EXITED,
            stage=stage,
            started_at=0.0,
            seconds=1.0,
            verdict=verdict,
        )
        self.ascent = Ascent(
            id="a", host="box", asked=self.ascent.asked, outcomes=(*self.ascent.outcomes, outcome)
        )
        step = next_step(LADDERS["default"], self.ascent, self.version)
        self.server, self.reason = step.server, step.reason
        self.rungs.append(step.rung)
        return step

    def flag(self, name: str) -> FlagValue | None:
        """
        What the next attempt runs with.
        """
        return None if self.server is None else self.server.flags.get(name)


def one(
    verdict_cause: Cause, version: str, asked: ServerSpec, **figures: float
) -> tuple[str | None, ServerSpec | None]:
    """
    The first step after one failure: rung and server.
    """
    climb = Climb(asked, version)
    step = climb.fail(failed(verdict_cause, **figures))
    return step.rung, step.server
