"""
What a start's own words say of its configuration, as figures that rungs and remedies look at.
"""

from collections.abc import Mapping

Figures = dict[str, float]

SPECULATES = "speculates"
HIERARCHICAL_CACHE = "hierarchical_cache"
RADIX_CACHE = "radix_cache"
POOLS = "pools_gib"
POOLS_DONE = "free_after_pools_gib"
"""Printed once the pools are allocated: whatever fails with it in hand, fails beside them."""

_PARTS = (
    "k_gib",
    "v_gib",
    "kv_gib",
    "conv_state_gib",
    "ssm_state_gib",
    "intermediate_ssm_gib",
    "intermediate_conv_gib",
)
"""What the pools consist of, by the names of the reading's figures."""


def settings(arguments: Mapping[str, str]) -> Figures:
    """
    Whether MTP, the hierarchical and the radix cache are on (1) or off (0); nothing of what is not told.
    """
    told: Figures = {}
    if "speculative_algorithm" in arguments:
        told[SPECULATES] = float(arguments["speculative_algorithm"] not in ("None", ""))
    if "enable_hierarchical_cache" in arguments:
        told[HIERARCHICAL_CACHE] = float(arguments["enable_hierarchical_cache"] == "True")
    if "disable_radix_cache" in arguments:
        told[RADIX_CACHE] = float(arguments["disable_radix_cache"] != "True")
    return told


def pools(figures: Mapping[str, float]) -> Figures:
    """
    What all pools take of one GPU in GiB, once they are allocated.
    """
    parts = [figures[name] for name in _PARTS if name in figures]
    return {POOLS: sum(parts)} if parts and POOLS_DONE in figures else {}
