"""
What measurements mean.
"""

import pytest

from mtpdeploy.core.proof import BREAK_EVEN, Generation, Proof, judge, mean_accept_length
from mtpdeploy.core.sense import Sense

GOOD = Generation("prose", 1, tokens=96, verify_steps=40, accept_length=2.4, tokens_per_second=70.0)
ODD = Generation("code", 1, tokens=96, verify_steps=40, accept_length=2.4, sense=Sense.ODD, nonsense="n")
BROKEN = Generation("code", 1, tokens=96, sense=Sense.BROKEN, nonsense="nothing but `!`")
SILENT = Generation("code", 1, problem="no answer in time")


@pytest.mark.parametrize(
    ("generations", "accept", "asked", "proof"),
    [
        ((GOOD, GOOD), 2.4, True, Proof.SPECULATING),
        ((GOOD, SILENT), 2.4, True, Proof.SPECULATING),
        ((GOOD, ODD), 2.4, True, Proof.SPECULATING),
        ((GOOD,), BREAK_EVEN, True, Proof.SPECULATING),
        ((GOOD,), BREAK_EVEN - 0.01, True, Proof.NOT_WORTH_IT),
        ((GOOD,), 1.11, True, Proof.NOT_WORTH_IT),
        ((GOOD,), 1.1, True, Proof.NOT_SPECULATING),
        ((GOOD,), 1.0, True, Proof.NOT_SPECULATING),
        ((GOOD,), None, True, Proof.NOT_SPECULATING),
        ((GOOD,), None, False, Proof.NOT_ASKED),
        ((SILENT, SILENT), None, True, Proof.NOT_ANSWERING),
        ((), None, True, Proof.NOT_ANSWERING),
        ((GOOD, BROKEN), 2.4, True, Proof.NONSENSE),
        ((BROKEN,), None, False, Proof.NONSENSE),
        ((ODD, ODD), 1.0, True, Proof.NONSENSE),
    ],
)
def test_verdicts(
    generations: tuple[Generation, ...], accept: float | None, proof: Proof, *, asked: bool
) -> None:
    """
    Silence before nonsense, nonsense before speed; one odd reply is no verdict.
    """
    assert proof is judge(generations, accept, asked=asked)


@pytest.mark.parametrize(
    ("counts", "mean"),
    [
        ([(2.0, 10), (4.0, 30)], 3.5),
        ([(2.0, None), (4.0, None)], 3.0),
        ([(2.0, 10), (4.0, None)], 3.0),
        ([(None, None), (4.0, 30)], 4.0),
        ([(None, None)], None),
        ([], None),
    ],
)
def test_the_mean_is_over_steps(counts: list[tuple[float | None, int | None]], mean: float | None) -> None:
    """
    A reply of many steps weighs more; where steps are not told replies weigh alike.
    """
    generations = [Generation("prose", 1, accept_length=a, verify_steps=n) for a, n in counts]

    assert mean == mean_accept_length(generations)
