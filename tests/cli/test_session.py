"""
What a Ctrl-C means, at every moment of an ascent.
"""

import pytest

from mtpdeploy.cli.session import Screens, Teller
from mtpdeploy.core import events
from mtpdeploy.core.events import AnyEvent
from mtpdeploy.core.machine import Host
from tests.deploy.examples import AT, EVENTS, OUTCOME, READY

HOST = Host(name="box", address="203.0.113.20")
GO_ON = "go on with it: mtpdeploy attach --on box\nstop it:       mtpdeploy down --on box"

BEGUN = next(event for event in EVENTS if isinstance(event, events.AttemptBegun))
LAUNCHED = next(event for event in EVENTS if isinstance(event, events.Launched))
FAILED = events.AttemptEnded(AT, outcome=OUTCOME)


@pytest.mark.parametrize(
    ("told", "message", "hint"),
    [
        ((), "interrupted: nothing was launched", ""),
        ((EVENTS[0], EVENTS[1]), "interrupted: nothing was launched", ""),
        ((BEGUN,), "interrupted in the middle of a launch: a server may run on `box`", GO_ON),
        ((BEGUN, LAUNCHED), "detached: the server goes on on `box`", GO_ON),
        ((EVENTS[6],), "detached: the server goes on on `box`", GO_ON),
        ((BEGUN, LAUNCHED, FAILED), "detached between two attempts: no server runs on `box`", GO_ON),
        (
            (BEGUN, LAUNCHED, FAILED, BEGUN),
            "interrupted in the middle of a launch: a server may run on `box`",
            GO_ON,
        ),
        (
            (BEGUN, LAUNCHED, events.AttemptEnded(AT, outcome=READY)),
            "detached: the server goes on on `box`",
            GO_ON,
        ),
    ],
    ids=["nothing", "surveyed", "begun", "launched", "following", "failed", "begun again", "ready"],
)
def test_what_an_interrupt_says(told: tuple[AnyEvent, ...], message: str, hint: str) -> None:
    """
    Never that nothing runs where something may, nor that something runs where nothing does.
    """
    teller = Teller(Screens())
    for event in told:
        teller.show(event)

    interrupted = teller.interrupted(HOST, "--on box")

    assert (message, hint, 130) == (interrupted.message, interrupted.hint, interrupted.exit_status)
