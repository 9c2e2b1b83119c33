"""
What a start's own words say of its configuration, as figures that rungs and remedies look at.
"""

from collections.abc import Mapping

from mtpdeploy.core.server import FlagValue, ServerSpec
from mtpdeploy.engines.sglang.flag_table import field_name, find, parse_text, releases

Figures = dict[str, float]

SPECULATES = "speculates"
HIERARCHICAL_CACHE = "hierarchical_cache"
RADIX_CACHE = "radix_cache"
STATE = "recurrent_state"
POOLS = "pools_gib"
POOLS_DONE = "free_after_pools_gib"
"""Printed once the pools are allocated: whatever fails with it in hand, fails beside them."""

RENAMED = ("cuda_graph_max_bs_decode", "cuda_graph_bs_decode", "mamba_radix_cache_strategy")
"""Flags whose field in `ServerArgs` has got another name, which dates a log (0.5.14, server_args.py)."""

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


def configured(arguments: Mapping[str, str]) -> ServerSpec | None:
    """
    The server that the resolved arguments tell of, by the newest names of its flags; None without any.

    What SGLang settled by itself stands in it as if it had been asked for.
    """
    if not arguments:
        return None
    flags: dict[str, FlagValue] = {"model_path": ""}
    for name, text in arguments.items():
        flag = find(name)
        if flag is None or text in ("None", "False", ""):
            continue
        try:
            flags[flag.name] = parse_text(flag, text)
        except ValueError:
            flags[flag.name] = text
    return ServerSpec(name="log", flags=flags, allow_without_mtp=True)


def releases_of(arguments: Mapping[str, str]) -> tuple[str, ...]:
    """
    The releases whose arguments bear these names; all of them where the names tell nothing.
    """
    renamed = [(flag, name) for name in arguments if (flag := find(name)) and flag.name in RENAMED]
    fitting = [one for one in releases() if all(field_name(flag, one) == name for flag, name in renamed)]
    return tuple(map(str, fitting or releases()))


def pools(figures: Mapping[str, float]) -> Figures:
    """
    What all pools take of one GPU in GiB, once they are allocated, and whether recurrent state is among them.
    """
    parts = [figures[name] for name in _PARTS if name in figures]
    if not parts or POOLS_DONE not in figures:
        return {}
    return {POOLS: sum(parts), STATE: float("ssm_state_gib" in figures)}
