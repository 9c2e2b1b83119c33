"""
How quantities are written.
"""

import pytest

from mtpdeploy.core.units import figure


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (132779.0, "132,779"),
        (132779.4, "132,779"),
        (8070660.0, "8,070,660"),
        (16.0, "16"),
        (51.05, "51.05"),
        (0.0045, "0.0045"),
        (-7.5, "-7.5"),
        (0.0, "0"),
    ],
)
def test_a_figure_has_no_exponent(value: float, told: str) -> None:
    """
    Counts are whole, with their thousands apart; the rest is as exact as a log.
    """
    assert told == figure(value)
