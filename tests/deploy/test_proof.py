"""
The proof of what serves already, on a box with a simulated SGLang.
"""

import pytest

from mtpdeploy.core.outcome import ENVIRONMENT
from mtpdeploy.deploy.down import take_down
from mtpdeploy.deploy.proof import verify_running
from mtpdeploy.errors import BoxUnfit
from tests.deploy.place import Place


def test_a_server_that_serves(place: Place, port: int) -> None:
    """
    The newest living run is asked, and nothing is started or ended.
    """
    ascent = place.up(place.server(port))
    record, report = verify_running(place.tools(), server=None)

    assert ascent.outcomes[-1].run == record.run
    assert report.answers
    assert report.mtp_proven
    assert ascent.outcomes[-1].report is not None
    assert [c.name for c in ascent.outcomes[-1].report.checks] == [check.name for check in report.checks]
    assert (ENVIRONMENT, True) == (report.checks[-1].name, report.checks[-1].passed)
    assert 1 == place.roles().count("scheduler")


def test_nothing_to_ask(place: Place, port: int) -> None:
    """
    Without a run, and with one that was stopped, there is one clear error.
    """
    with pytest.raises(BoxUnfit, match="there is no run on the box"):
        verify_running(place.tools(), server=None)
    place.up(place.server(port))
    take_down(place.tools(), server=None)

    with pytest.raises(BoxUnfit, match="does not run"):
        verify_running(place.tools(), server=None)
