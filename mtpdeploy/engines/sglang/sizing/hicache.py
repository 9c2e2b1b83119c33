"""
The hierarchical cache's pools in host memory: what they pin, and when a release refuses them.

From mem_cache/memory_pool_host.py (0.5.6-0.5.17) and mem_cache/pool_host/ (0.5.15-0.5.23).
"""

from mtpdeploy.core.diagnosis import Cause
from mtpdeploy.core.server import ServerSpec
from mtpdeploy.engines.sglang.sizing.asked import Asked
from mtpdeploy.engines.sglang.sizing.pools import Pools, Refusal
from mtpdeploy.engines.sglang.sizing.state import conv_bytes, ssm_bytes

HOST_RESERVE = 10 * 1024**3
"""Kept free of the host's memory (HICACHE_HOST_MEMORY_RESERVE_BYTES, 0.5.6-0.5.23)."""

RATIO = 2.0
"""hicache_ratio where neither it nor a size is given (0.5.6-0.5.23)."""


def host_bytes(asked: Asked, server: ServerSpec, pools: Pools) -> int:
    """
    What the host pools take of all ranks on one host, 0 without a hierarchical cache.

    A size is in GB of 10^9 bytes a rank. From 0.5.10 to 0.5.16 both pools of a hybrid get all of it.
    """
    if not server.flags.get("enable_hierarchical_cache"):
        return 0
    size, ratio = server.number("hicache_size") or 0, server.number("hicache_ratio") or RATIO
    device = _device(asked, pools)
    if size > 0:
        twice = asked.model.state is not None and (0, 5, 10) <= asked.release < (0, 5, 17)
        return int(size * 1e9 * (2 if twice else 1) * asked.tp)
    return int(device * ratio * asked.tp)


def refused_host_pools(
    asked: Asked, server: ServerSpec, pools: Pools, *, free: int | None, limit: int | None
) -> Refusal | None:
    """
    The error with which a release refuses the host pools, or None.

    `free` is what the host has free, `limit` its control group's limit; None where unknown. Before 0.5.19
    SGLang does not see the limit and is killed for it instead.
    """
    if not server.flags.get("enable_hierarchical_cache"):
        return None
    if asked.model.state is not None and asked.release < (0, 5, 10):
        return Refusal(Cause.HICACHE_UNSUPPORTED, "HiRadixCache only supports MHA and MLA yet")
    size = (server.number("hicache_size") or 0) * 1e9
    kept = pools.keys + pools.values
    if asked.release < (0, 5, 15) and 0 < size <= kept:
        text = "The host memory should be larger than the device memory with the current protocol"
        return Refusal(Cause.HOST_POOL_TOO_SMALL, text)
    wanted = host_bytes(asked, server, pools)
    if free is not None and wanted > free - HOST_RESERVE:
        text = (
            f"Not enough host memory available. Requesting {wanted / 1e9:.2f} GB but only have "
            f"{(free - HOST_RESERVE) / 1e9:.2f} GB free. Please reduce the size of the hierarchical cache."
        )
        return Refusal(Cause.HOST_MEMORY, text)
    if limit is not None and wanted > limit:
        return Refusal(Cause.HOST_OOM_KILLED, "killed by the container's memory limit, without a line")
    return None


def _device(asked: Asked, pools: Pools) -> int:
    return pools.keys + pools.values + pools.slots * (conv_bytes(asked) + ssm_bytes(asked))
