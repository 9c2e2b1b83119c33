"""
Common GPUs by name.
"""

import pytest

from mtpdeploy.core.cards import CARDS, find_card, near_cards


@pytest.mark.parametrize(
    ("name", "card"),
    [
        ("rtx-pro-6000", "rtx-pro-6000"),
        ("RTX PRO 6000", "rtx-pro-6000"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H100 NVL", "h100-nvl"),
        ("rtx_6000_ada", "rtx-6000-ada"),
        ("NVIDIA GB10", "gb10"),
        ("L40S", "l40s"),
        ("rtxpro6000", "rtx-pro-6000"),
        ("NVIDIA A100-SXM4-80GB", "a100-80gb"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada"),
    ],
)
def test_a_name_however_it_is_written(name: str, card: str) -> None:
    """
    As nvidia-smi prints it, or as people type it; the name with most words wins.
    """
    found = find_card(name)

    assert found is not None
    assert card == found.name


@pytest.mark.parametrize(
    "name", ["", "-", "rtx", "a100", "h1000x2000", "voodoo-2", "h100,h200", "h100 or h200"]
)
def test_no_name(name: str) -> None:
    """
    A part of a name is none, and neither is nothing, nor two at once.
    """
    assert find_card(name) is None


def test_near_names() -> None:
    """
    The nearest first; all where none is near.
    """
    assert "rtx-pro-6000" == near_cards("rtx-pro-600")[0]
    assert [card.name for card in CARDS] == near_cards("zzz")
