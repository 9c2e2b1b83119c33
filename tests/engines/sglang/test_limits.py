import pytest

from mtpdeploy.engines.sglang import flag_table
from mtpdeploy.engines.sglang.limits import FIXED, RANGES, Range


@pytest.mark.parametrize("name", sorted(FIXED | set(RANGES)))
def test_every_flag_is_one_by_its_newest_name(name: str) -> None:
    """
    A name that the table does not have would limit nothing.
    """
    flag = flag_table.find(name)

    assert flag is not None
    assert name == flag.name


@pytest.mark.parametrize("name", RANGES)
def test_a_flag_with_a_range_takes_numbers(name: str) -> None:
    """
    A range is for numbers: a flag of JSON text alone has none.
    """
    flag = flag_table.find(name)

    assert flag is not None
    assert {shape.kind for shape in flag.shapes} & {"int", "size", "float"}


@pytest.mark.parametrize(
    ("allowed", "within", "beyond"),
    [
        (Range(0, 1, open_ends=True), (0.01, 0.99), (0, 1, -1, 2)),
        (Range(1), (1, 10**9), (0, -1)),
        (Range(0, 1), (0, 1), (-0.1, 1.1)),
        (Range(0, open_ends=True), (0.1,), (0,)),
    ],
)
def test_the_ends(allowed: Range, within: tuple[float, ...], beyond: tuple[float, ...]) -> None:
    """
    The ends belong to a range unless it is open.
    """
    assert all(map(allowed.holds, within))
    assert not any(map(allowed.holds, beyond))
