"""
What is free before the weights: told, seen earlier, or estimated, and how sure that is.
"""

import pytest

from mtpdeploy.core.memory import Card, Seen
from mtpdeploy.core.units import GIB
from mtpdeploy.engines.sglang.sizing.reserve import CONTEXT_BYTES, CONTEXT_UNCERTAINTY
from tests.engines.sglang.sizing.models import plan

MIB_96_GB = 97_887
UNUSED = 95 * GIB
ESTIMATE = UNUSED - CONTEXT_BYTES
FLAGS = {"speculative_algorithm": "EAGLE", "max_running_requests": 8}


@pytest.mark.parametrize(
    ("card", "seen", "free"),
    [
        (Card(MIB_96_GB, free=94 * GIB), None, 94 * GIB),
        (Card(MIB_96_GB, free=94 * GIB, unused=UNUSED), Seen(free=93 * GIB), 94 * GIB),
        (Card(MIB_96_GB, unused=UNUSED), None, ESTIMATE),
        (
            Card(MIB_96_GB, unused=UNUSED),
            Seen(free=ESTIMATE + CONTEXT_UNCERTAINTY),
            ESTIMATE + CONTEXT_UNCERTAINTY,
        ),
        (Card(MIB_96_GB, unused=UNUSED), Seen(free=ESTIMATE - CONTEXT_UNCERTAINTY - 1), ESTIMATE),
        (Card(MIB_96_GB), Seen(free=60 * GIB), 60 * GIB),
        (Card(MIB_96_GB, unused=0), None, 0),
    ],
    ids=[
        "told",
        "told goes first",
        "estimated",
        "seen",
        "seen on a fuller card",
        "seen, unlooked",
        "nothing",
    ],
)
def test_which_figure_counts(card: Card, seen: Seen | None, free: int) -> None:
    """
    What an earlier start saw counts while as much is unused now as then.
    """
    assert free == plan("0.5.23", FLAGS, card=card, seen=seen).free


def test_an_estimate_is_said_and_uncertain() -> None:
    """
    A context's size is measured, not derived: the forecast is less sure of it, and says what it rests on.
    """
    told = plan("0.5.23", FLAGS, card=Card(MIB_96_GB, free=ESTIMATE))
    estimated = plan("0.5.23", FLAGS, card=Card(MIB_96_GB, unused=UNUSED))

    assert told.free == estimated.free
    assert CONTEXT_UNCERTAINTY == estimated.needed_uncertainty - told.needed_uncertainty
    assert (
        "memory free before the weights is estimated: what is free now less a CUDA context" in estimated.notes
    )
    assert not [note for note in told.notes if "estimated" in note]
