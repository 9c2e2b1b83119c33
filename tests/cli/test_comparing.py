"""
A comparison as people and programs read it.
"""

import pytest
from msgspec import json, structs

from mtpdeploy.cli.comparing import document, exit_status, lines
from mtpdeploy.core.outcome import Check, Report
from mtpdeploy.core.proof import Power, Proof, Speculation, Speed, compare, measured
from mtpdeploy.deploy.compare import Comparison
from tests.deploy.examples import REPORT


def report(accept: float | None, *speeds: Speed) -> Report:
    """
    A report of which only the speeds matter.
    """
    proof = Proof.NOT_ASKED if accept is None else Proof.SPECULATING
    speculation = Speculation(proof, accept_length=accept, speeds=speeds)
    return Report((), None if accept is None else accept > 1.1, accept, speculation=speculation)


def speed(at_once: int, rate: float, watts: float | None) -> Speed:
    """
    A speed with its power, where that is known.
    """
    power = Power(3, 1, watts=watts, limit_watts=600.0)
    return Speed(at_once, rate, rate / at_once, power, rate / watts if watts else None)


@pytest.fixture
def found() -> Comparison:
    """
    Twice as fast alone, 1.6 times with four.
    """
    without = report(None, speed(1, 32.0, 400.0), speed(4, 120.0, 500.0))
    speculating = report(2.9, speed(1, 64.0, 440.0), speed(4, 192.0, None))
    assert without.speculation is not None
    assert speculating.speculation is not None
    pairs = compare(without.speculation, speculating.speculation)
    told = structs.replace(speculating, speculation=measured(speculating.speculation, pairs))
    return Comparison("qwen", "run-2", without, told, pairs)


def test_side_by_side(found: Comparison) -> None:
    """
    Speed, watts and tokens per joule, without and with; what is not known is a dash.
    """
    rows = [line.split() for line in "\n".join(lines(found)).splitlines()]

    assert ["1", "32.0", "64.0", "2.00", "400", "440", "0.08", "0.15"] in rows
    assert ["4", "120", "192", "1.60", "500", "-", "0.24", "-"] in rows
    assert lines(found)[-1].startswith("  proof  speculating: accept length 2.90 makes it 2.00 times as fast")


def test_the_document(found: Comparison) -> None:
    """
    Both reports whole, and the pairs with their speed-up.
    """
    told = json.decode(json.encode(document(found, 0)))

    assert ["server", "run", "compared", "problem", "without", "with", "exit_status"] == list(told)
    assert [(1, 2.0), (4, 1.6)] == [(pair["at_once"], pair["speed_up"]) for pair in told["compared"]]
    assert 400.0 == told["compared"][0]["without"]["power"]["watts"]
    assert (None, 2.9) == (told["without"]["accept_length"], told["with"]["accept_length"])


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({}, 0),
        ({"problem": "without speculation it did not come up"}, 1),
        ({"speculating": None}, 1),
        ({"speculating": structs.replace(REPORT, mtp_proven=False)}, 8),
        ({"speculating": Report((Check("makes sense", passed=False, detail=""),), mtp_proven=True)}, 1),
    ],
    ids=["compared", "a problem", "no report", "not proven", "nonsense"],
)
def test_exit_status(found: Comparison, changes: dict[str, object], status: int) -> None:
    """
    What runs now decides, and a comparison that could not be made is a failure.
    """
    assert status == exit_status(structs.replace(found, **changes))


def test_nothing_to_compare() -> None:
    """
    No table of nothing.
    """
    assert [] == lines(Comparison("qwen", "", None, None, problem="it died"))
