"""
What measurements mean.
"""

import pytest

from mtpdeploy.core.proof import (
    BREAK_EVEN,
    Generation,
    Pair,
    Proof,
    Speculation,
    Speed,
    compare,
    judge,
    mean_accept_length,
    measured,
)
from mtpdeploy.core.sense import Sense

GOOD = Generation("prose", 1, tokens=96, verify_steps=40, accept_length=2.4, tokens_per_second=70.0)
ODD = Generation("code", 1, tokens=96, verify_steps=40, accept_length=2.4, sense=Sense.ODD, nonsense="n")
BROKEN = Generation("code", 1, tokens=96, sense=Sense.BROKEN, nonsense="nothing but `!`")
EMPTY = Generation("prose", 1, tokens=96, sense=Sense.EMPTY, nonsense="96 tokens without a visible character")
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
        ((EMPTY, ODD), 2.4, True, Proof.NONSENSE),
        ((EMPTY, EMPTY), 2.4, True, Proof.NONSENSE),
        ((GOOD, EMPTY), 2.4, True, Proof.SPECULATING),
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
    ("generations", "broken"),
    [
        ((GOOD, BROKEN), 1),
        ((EMPTY, EMPTY, SILENT), 2),
        ((GOOD, EMPTY), 0),
        ((ODD, EMPTY), 0),
        ((ODD, ODD), 0),
        ((SILENT,), 0),
        ((), 0),
    ],
)
def test_what_no_sound_forward_gives(generations: tuple[Generation, ...], broken: int) -> None:
    """
    One reply of `!` is enough; of empty ones all have to be.
    """
    assert broken == len(Speculation(Proof.NONSENSE, generations=generations).broken)


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


def speculation(accept: float | None, *speeds: Speed, proof: Proof = Proof.SPECULATING) -> Speculation:
    """
    A proof as far as a comparison looks at it.
    """
    return Speculation(proof, accept_length=accept, speeds=speeds)


class TestComparison:
    def test_speeds_side_by_side(self) -> None:
        """
        Only what was measured on both sides; a speed of nothing compares to nothing.
        """
        without = speculation(None, Speed(1, 40.0, 40.0), Speed(4, 150.0, 37.5), Speed(2, 0.0, 0.0))
        with_it = speculation(2.9, Speed(1, 80.0, 80.0), Speed(2, 90.0, 45.0), Speed(8, 300.0, 37.5))
        (pair,) = compare(without, with_it)

        assert (1, 2.0) == (pair.at_once, pair.speed_up)

    @pytest.mark.parametrize(
        ("accept", "speed_up", "proof", "break_even"),
        [
            (2.9, 2.0, Proof.SPECULATING, 1.45),
            (1.3, 1.04, Proof.SPECULATING, 1.25),
            (2.0, 0.8, Proof.NOT_WORTH_IT, 2.5),
            (2.0, 1.0, Proof.NOT_WORTH_IT, 2.0),
        ],
    )
    def test_what_is_measured_goes_before_what_is_usual(
        self, accept: float, speed_up: float, proof: Proof, break_even: float
    ) -> None:
        """
        A step costs its accept length by the speed-up that it yields, in plain steps.
        """
        plain, fast = Speed(1, 50.0, 50.0), Speed(1, 50.0 * speed_up, 50.0 * speed_up)
        found = measured(speculation(accept, fast), (Pair(1, plain, fast, speed_up),))

        assert proof is found.proof
        assert pytest.approx(break_even) == found.break_even
        assert f"{speed_up:.2f} times as fast" in found.because
        assert bool(found.remedy) == (proof is Proof.NOT_WORTH_IT)

    @pytest.mark.parametrize("proof", [Proof.NOT_SPECULATING, Proof.NONSENSE, Proof.NOT_ANSWERING])
    def test_other_verdicts_stay(self, proof: Proof) -> None:
        """
        A comparison makes nothing good.
        """
        fast = Speed(1, 50.0, 50.0)
        before = speculation(1.0, fast, proof=proof)

        assert before == measured(before, (Pair(1, fast, fast, 1.0),))
        assert before == measured(before, ())
