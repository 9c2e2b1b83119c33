"""
Whole numbers of a config.json.
"""

from typing import Any

LARGEST = 1 << 40
"""What no number of a model comes near; what is above is a fault, and must cost neither time nor memory."""


def number(config: dict[str, Any], *keys: str) -> int:
    """
    The whole number that stands under the first of these keys that has one, 0 where none has.

    A list of the same number for every layer counts as that number.
    """
    for key in keys:
        value = config.get(key)
        if isinstance(value, list) and value and all(one == value[0] for one in value):
            value = value[0]
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= LARGEST:
            continue
        return int(value)
    return 0
