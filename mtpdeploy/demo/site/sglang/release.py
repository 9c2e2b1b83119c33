"""SGLang release numbers, compared as SGLang compares them."""

from __future__ import annotations

from typing import Tuple


def release(version: str) -> Tuple[int, ...]:
    """
    `0.5.12.post1` as (0, 5, 12, 1): post-releases sort after what they mend.

    Anything behind the numbers (`.dev0+g123`) is dropped.
    """
    numbers = []
    for part in version.replace(".post", ".").split("."):
        digits = "".join(letter for letter in part if letter.isdigit())
        if not digits or not part.isdigit():
            break
        numbers.append(int(digits))
    return tuple(numbers)
