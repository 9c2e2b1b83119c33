"""
What nvidia-smi prints, odd answers too.
"""

import pytest

from mtpdeploy.core.units import MIB
from mtpdeploy.remote.power import QUERIES, Reading, Sample, power_between, read_power

NEWER, OLDER, BARE = QUERIES
CARD = "0, 405.12, 600.00, 2430, 3090, 97, 78450, 0x0000000000000000"


def test_a_card() -> None:
    """
    Watts, MHz, per cent and MiB, in the order of the query.
    """
    assert (Reading(0, 405.12, 600.0, 2430.0, 3090.0, 97.0, 78450 * MIB, ()),) == read_power(NEWER, CARD)


@pytest.mark.parametrize(
    ("fields", "line", "watts", "held_back"),
    [
        (NEWER, "0, 599.80, 600.00, 1980, 3090, 99, 78450, 0x0000000000000004", 599.8, ("its power limit",)),
        (OLDER, "0, 300.00, 600.00, 900, 3090, 99, 1, 0x0000000000000048", 300.0, (
            "hardware slowdown", "its temperature (hardware)")),
        (NEWER, "0, 71.00, 600.00, 180, 3090, 0, 1, 0x0000000000000001", 71.0, ()),
        (NEWER, "0, 71.00, 600.00, 180, 3090, 0, 1, 0x0000000000000002", 71.0, ()),
        (NEWER, "0, [N/A], [N/A], [N/A], [N/A], [N/A], [N/A], [N/A]", None, None),
        (NEWER, "0, [Not Supported], 600, [Unknown Error], 3090, N/A, 1, Active", None, None),
        (NEWER, "0, [Insufficient Permissions], 600, 1, 3090, 5, 1, 0x0", None, ()),
        (BARE, "0, 71.00, 600.00, 180, 3090, 0, 1", 71.0, None),
        (NEWER, "0, 405.12 W, 600.00 W, 2430 MHz, 3090 MHz, 97 %, 1 MiB, 0x0", 405.12, ()),
    ],
    ids=["power cap", "hot", "idle", "set clocks", "MIG", "not supported", "rights", "no reasons", "units"],
)  # fmt: skip
def test_odd_answers(fields: str, line: str, watts: float | None, held_back: tuple[str, ...] | None) -> None:
    """
    What the driver does not tell is None, and only what takes clocks from a busy card holds it back.
    """
    (found,) = read_power(fields, line)

    assert (watts, held_back) == (found.watts, found.held_back)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "No devices were found",
        "0, 405.12",
        "Failed to initialize NVML: Driver/library mismatch, x, y",
    ],
)
def test_no_answer(text: str) -> None:
    """
    A line of another form is no card.
    """
    assert () == read_power(NEWER, text)


def sample(at: float, *watts: float | None) -> Sample:
    """
    A sample taken within 0.1 s, of cards 0, 1 and so on.
    """
    readings = tuple(Reading(n, w, 600.0, 2000.0 + 100 * n, 3090.0) for n, w in enumerate(watts))
    return Sample(at, at + 0.1, readings)


class TestBetween:
    def test_only_what_was_sampled_while_it_decoded(self) -> None:
        """
        A sample that began before the first token, or ended after the last, tells of something else.
        """
        samples = [sample(0.0, 70.0), sample(1.0, 400.0), sample(1.5, 410.0), sample(1.95, 90.0)]
        found = power_between(samples, [(0.6, 2.0)], {0})

        assert found is not None
        assert (2, 405.0, 600.0) == (found.samples, found.watts, found.limit_watts)

    def test_settled_samples_go_first(self) -> None:
        """
        power.draw is a mean over a second, so one taken later than that is of decoding alone.
        """
        samples = [sample(0.2, 150.0), sample(0.7, 300.0), sample(1.2, 400.0), sample(1.6, 410.0)]
        found = power_between(samples, [(0.0, 2.0)], {0})

        assert found is not None
        assert 405.0 == found.watts

    def test_several_cards_are_added(self) -> None:
        """
        Those of the server alone: watts as a sum, clocks as a mean.
        """
        found = power_between([sample(1.0, 400.0, 300.0, 70.0)], [(0.0, 3.0)], {0, 1})

        assert found is not None
        assert (2, 700.0, 1200.0, 2050.0) == (found.gpus, found.watts, found.limit_watts, found.sm_mhz)

    def test_a_card_that_does_not_tell(self) -> None:
        """
        A sum of which a part is missing is none.
        """
        found = power_between([sample(1.0, 400.0, None)], [(0.0, 3.0)], {0, 1})

        assert found is not None
        assert found.watts is None
        assert 2050.0 == found.sm_mhz

    def test_nothing_in_time(self) -> None:
        """
        Decoding that was over before a sample came has no power.
        """
        assert power_between([sample(5.0, 400.0)], [(0.0, 2.0)], {0}) is None
        assert power_between([sample(1.0, 400.0)], [(0.0, 2.0)], {3}) is None
        assert power_between([], [(0.0, 2.0)], {0}) is None
