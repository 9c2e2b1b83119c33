"""
The numbers behind a report's pictures: nothing overlaps, nothing reaches beyond the whole.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from mtpdeploy.cli.budget import breadth, stretches
from mtpdeploy.cli.pictures import compared, edge, parts, phases, seen, timeline
from mtpdeploy.core.diagnosis import Stage
from mtpdeploy.core.memory import Line
from mtpdeploy.core.units import GIB
from mtpdeploy.deploy.tried import Passage, Tried
from tests.deploy.examples import FORECAST, OUTCOME, READY

LOADED = {"free_before_weights_gib": 94.32, "avail_gib": 43.27, "weights_gib": 51.05}
SIZED = {
    "conv_state_gib": 0.14,
    "ssm_state_gib": 7.17,
    "intermediate_ssm_gib": 7.31,
    "intermediate_conv_gib": 0.14,
    "k_gib": 4.0,
    "v_gib": 4.0,
    "draft_weights_gib": 5.53,
    "draft_k_gib": 0.25,
    "draft_v_gib": 0.25,
    "graphs_gib": 0.82,
}
"""What the demo box's Qwen3.6-27B prints on a card of 95.59 GiB."""

TOTAL = int(95.59 * GIB)


def tried(*moments: float | None, seconds: float = 10.0, **figures: float) -> Tried:
    """
    An attempt that reached stages at moments.
    """
    stages = list(Stage)
    passages = tuple(Passage(stages[n % len(stages)], n, moment) for n, moment in enumerate(moments))
    outcome = structs.replace(OUTCOME, seconds=seconds, figures=figures)
    return Tried(number=1, run="r", outcome=outcome, passages=passages, total=TOTAL)


class TestTimeline:
    def test_stages_with_their_times(self) -> None:
        """
        Each from the one before to itself, and then to the end.
        """
        steps = timeline(tried(2.0, 2.0, 8.0))

        assert [("launched", "2.0 s", "2.0 s"), ("arguments resolved", "2.0 s", "0.0 s")] == [
            (step.stage, step.at, step.took) for step in steps[:2]
        ]
        assert [(0.0, 0.2), (0.2, 0.0), (0.2, 0.6), (0.8, 0.2)] == [
            (round(step.begin, 6), round(step.share, 6)) for step in steps
        ]
        assert ["start", "start", "start", "failed"] == [step.phase for step in steps]

    def test_the_end_of_one_that_is_ready(self) -> None:
        """
        Is its proof.
        """
        ready = Tried(2, "r", outcome=READY, passages=(Passage(Stage.READY, 40, 300.0),))

        assert [("coming to serve", "5 min 00 s"), ("proof by requests", "1.5 s")] == [
            (phase.name, phase.took) for phase in phases(timeline(ready))
        ]

    @given(st.lists(st.none() | st.floats(0, 1e6), max_size=20), st.floats(0, 1e6))
    def test_nothing_overlaps(self, moments: list[float | None], seconds: float) -> None:
        """
        Also where clocks run backwards, or nobody knows the time.
        """
        steps = [step for step in timeline(tried(*moments, seconds=seconds)) if step.share]
        ends = [step.begin + step.share for step in steps]

        assert all(step.begin >= end - 1e-9 for end, step in zip(ends, steps[1:], strict=False))
        assert all(0 <= step.begin <= end <= 1 + 1e-9 for end, step in zip(ends, steps, strict=True))

    def test_one_that_goes_on(self) -> None:
        """
        Ends with the last stage that was seen.
        """
        assert 1 == len(timeline(structs.replace(tried(2.0), outcome=None)))
        assert [] == timeline(Tried(number=1, run="r"))


class TestBudget:
    def test_as_seen_when_all_is_loaded(self) -> None:
        """
        Adds up to the card; the draft is what is left over.
        """
        lines = seen(tried(**{**LOADED, **SIZED, "avail_gib": 18.27}))

        assert TOTAL == pytest.approx(sum(line.amount for line in lines), abs=10)
        assert {"weights": 51.05, "recurrent state": 7.31, "draft weights": 0.92, "free": 18.27}.items() <= {
            line.name: round(line.amount / GIB, 2) for line in lines
        }.items()

    def test_as_seen_half_way(self) -> None:
        """
        What the last stage said is free goes before what the first ones said.
        """
        passage = Passage(Stage.POOLS_READY, 17, 2.0, {"avail_gib": 19.86})
        half = structs.replace(tried(**LOADED, **dict(list(SIZED.items())[:6])), passages=(passage,))
        lines = seen(half)

        assert ("free", 19.86) == (lines[-1].name, round(lines[-1].amount / GIB, 2))
        assert 0 == pytest.approx(TOTAL - sum(line.amount for line in lines), abs=GIB)

    @pytest.mark.parametrize("figures", [{}, {"weights_gib": 3.0}, {"avail_gib": 3.0}])
    def test_a_log_that_does_not_tell(self, figures: dict[str, float]) -> None:
        """
        Has no picture.
        """
        assert [] == seen(tried(**figures))

    @given(st.lists(st.integers(-(10**12), 10**12), max_size=8), st.integers(0, 10**12))
    def test_no_part_reaches_beyond_the_bar(self, amounts: list[int], total: int) -> None:
        """
        Whatever is asked of whatever card.
        """
        lines = [Line(f"line {n}", amount) for n, amount in enumerate(amounts)]
        found = list(stretches(lines, total))

        assert all(0 <= part.begin <= 1 + 1e-9 for part in found)
        assert sum(part.share for part in found) <= 1 + 1e-9
        assert total <= breadth(lines, total)

    def test_what_is_asked_beyond_the_card(self) -> None:
        """
        The end of the card is marked, and what is lacking is said as an amount.
        """
        lines = (Line("weights", 150 * GIB), Line("lacking", -54 * GIB))
        forecast = structs.replace(FORECAST, lines=lines, total=96 * GIB)

        assert pytest.approx(0.64) == edge(forecast)
        assert [("weights", "150.00 GiB", 1.0), ("lacking", "54.00 GiB", 0.0)] == [
            (part.name, part.gib, part.share) for part in parts(forecast.lines, forecast.total)
        ]

    def test_figures_with_their_errors(self) -> None:
        """
        What is as printed is called so; what is off by more than the last digit is marked.
        """
        rows = (("weights_gib", 51.05, 51.05), ("graphs_gib", 1.37, 0.82), ("kv_tokens", 131098.0, 131090.0))
        found = compared(structs.replace(tried(), compared=rows))

        assert [
            ("weights", "51.05 GiB", "as printed", False),
            ("graphs", "1.37 GiB", "+0.55 GiB (+67.1 %)", True),
            ("tokens", "131,098", "+8 (+0.0 %)", False),
        ] == [(row.name, row.forecast, row.error, row.off) for row in found]
