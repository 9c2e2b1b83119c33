"""
Remedies for host memory and for kills, as those of `remedies`; host memory is told in GB of 10^9 bytes.
"""

from mtpdeploy.engines.sglang.remedies import Figures, no_hicache
from mtpdeploy.engines.sglang.server_args import HIERARCHICAL_CACHE, POOLS_DONE

RESERVE_GB = 10
"""What the hierarchical cache leaves of the host's free memory (0.5.6-0.5.23, mem_cache)."""


def host_cache(figures: Figures) -> str | None:
    """
    The hierarchical cache asked for more host memory than there is.
    """
    asked, free = figures.get("requested_gb"), figures.get("free_gb")
    if asked is None or free is None:
        return None
    kept = f" ({RESERVE_GB} GB of that SGLang leaves alone)" if free >= asked else ""
    return (
        f"Asked for {asked:g} GB of host memory, {free:g} GB were free{kept}: lower hicache_size "
        "(for a hybrid "
        "model it is taken twice from 0.5.10 to 0.5.16), or leave the hierarchical cache out."
    )


def host_allocation(figures: Figures) -> str | None:
    """
    The host refused one allocation.
    """
    asked = figures.get("host_bytes")
    off = no_hicache(figures)
    if asked is None and not off:
        return None
    told = "The box or its container has too little host memory" if asked is None else ""
    told = told or f"Asked the host for {asked / 1e9 if asked else 0:.1f} GB at once"
    if off:
        return f"{told}: rent more RAM, raise the container's limit, or end what else holds it (`free -g`)."
    return f"{told}: leave the hierarchical cache out or make it smaller, or rent more RAM."


def pinning(figures: Figures) -> str | None:
    """
    Host memory could not be pinned, without a hierarchical cache.
    """
    if not no_hicache(figures):
        return None
    return (
        "The driver refused to pin host memory, and the hierarchical cache is off: look at the container's "
        "limits (`ulimit -l`) and the box's free memory, or use a newer SGLang."
    )


def killed_for_memory(figures: Figures) -> str | None:
    """
    The host ran out of memory: the hierarchical cache is the lever only where it is on, and allocated.
    """
    on = figures.get(HIERARCHICAL_CACHE)
    if on is None:
        return None
    if on and POOLS_DONE in figures:
        return (
            "The box or its container ran out of host memory while the hierarchical cache was on: make it "
            "smaller (hicache_size), leave it out, or rent more RAM (`dmesg -T | grep -i oom` tells more)."
        )
    return (
        "The box or its container ran out of host memory (`dmesg -T | grep -i oom`): rent more RAM, raise "
        "the container's limit, or end what else holds it (`free -g`)."
    )


def killed(figures: Figures) -> str | None:
    """
    Killed, and nothing says by whom; where the kernel counted no kill for memory, it was for something else.
    """
    if figures.get("oom_kills") == 0:
        return (
            "The kernel counted no kill for memory: look for who else ended it, such as a time limit, a "
            "supervisor, or a person on the box (`dmesg -T`, the provider's console)."
        )
    if figures.get(HIERARCHICAL_CACHE) and POOLS_DONE in figures:
        return (
            "Often that is host memory, and the hierarchical cache, which is on, takes most of it; but "
            "nothing here proves it: `dmesg -T | grep -i oom` on the box tells, or the provider's console."
        )
    return None
