"""
The planner against figures that real servers printed.
"""

from typing import Any

import pytest

from tests.engines.sglang.sizing.cases import CASES, forecast_of, predicted, within


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_every_figure_is_within_its_tolerance(case: dict[str, Any]) -> None:
    """
    Formula figures to the last printed digit, measured ones within what the log allows.
    """
    forecast = forecast_of(case)
    said = {figure: predicted(forecast, figure) for figure in case["expect"]}
    wrong = {
        figure: (seen, said[figure])
        for figure, seen in case["expect"].items()
        if not within(seen, said[figure], case["tolerance"][figure])
    }

    assert {} == wrong


def test_every_case_names_its_source() -> None:
    """
    A figure without a source proves nothing.
    """
    assert [] == [case["id"] for case in CASES if not case["source"]]
