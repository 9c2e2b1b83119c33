"""
Common GPUs by name: what nvidia-smi says they have, and what CUDA keeps of it.
"""

import difflib
import re

from msgspec import Struct


class KnownCard(Struct, frozen=True):
    """
    A GPU model. `total_mib` is what `nvidia-smi --query-gpu=memory.total` prints, `reserved_mib` what torch
    does not see of it, `capability` its compute capability.
    """

    name: str
    total_mib: int
    capability: str
    reserved_mib: int = 500


CARDS = (
    KnownCard("rtx-pro-6000", 97887, "12.0", 638),
    KnownCard("rtx-5090", 32607, "12.0"),
    KnownCard("rtx-4090", 24564, "8.9"),
    KnownCard("rtx-3090", 24576, "8.6", 430),
    KnownCard("rtx-6000-ada", 49140, "8.9"),
    KnownCard("a6000", 49140, "8.6"),
    KnownCard("b300", 275040, "10.3"),
    KnownCard("b200", 183359, "10.0"),
    KnownCard("h200", 143771, "9.0"),
    KnownCard("h100", 81559, "9.0"),
    KnownCard("h100-nvl", 95830, "9.0"),
    KnownCard("gh200", 97871, "9.0"),
    KnownCard("h20", 97871, "9.0"),
    KnownCard("a100-80gb", 81920, "8.0", 840),
    KnownCard("a100-40gb", 40960, "8.0"),
    KnownCard("l40s", 46068, "8.9"),
    KnownCard("l4", 23034, "8.9"),
    KnownCard("gb10", 124612, "12.1"),
)
"""
As nvidia-smi prints them in public logs and in NVIDIA's own guides; 97,887 MiB of which torch sees 94.97 GiB
is the card of public report eagle-29857, 124,612 MiB the unified memory of a DGX Spark.
"""


def find_card(name: str) -> KnownCard | None:
    """
    A card by its name, however that is written: `RTX PRO 6000`, `rtxpro6000`, `NVIDIA A100-SXM4-80GB`.

    Every word of its name has to be there; of several, the card whose name has most. None where none has, or
    two have as many.
    """
    exact = [card for card in CARDS if "".join(_words(card.name)) == "".join(_words(name))]
    wanted = set(_words(name))
    inside = [card for card in CARDS if wanted.issuperset(_words(card.name))]
    most = max((len(_words(card.name)) for card in inside), default=0)
    found = exact or [card for card in inside if len(_words(card.name)) == most]
    return found[0] if len(found) == 1 else None


def near_cards(name: str) -> list[str]:
    """
    The names nearest to one that is not known, or all of them.
    """
    names = [card.name for card in CARDS]
    return difflib.get_close_matches(name.lower(), names, n=4, cutoff=0.4) or names


def _words(name: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", name.lower())
