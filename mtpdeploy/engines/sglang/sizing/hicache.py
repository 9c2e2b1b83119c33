"""
The hierarchical cache's pools in host memory: what they pin, and when a release refuses them.

From mem_cache/memory_pool_host.py (0.5.6-0.5.16), mem_cache/pool_host/ (0.5.17-0.5.23) and
mem_cache/hicache_auto_size.py (0.5.21-0.5.23).
"""

from msgspec import Struct

from mtpdeploy.core.diagnosis import Cause
from mtpdeploy.core.server import ServerSpec
from mtpdeploy.engines.sglang.sizing.asked import Asked
from mtpdeploy.engines.sglang.sizing.pools import Pools, Refusal
from mtpdeploy.engines.sglang.sizing.state import conv_bytes, ssm_bytes

HOST_RESERVE = 10 * 1024**3
"""Kept free of the host's memory (HICACHE_HOST_MEMORY_RESERVE_BYTES, 0.5.6-0.5.23)."""

RATIO = 2.0
"""hicache_ratio where neither it nor a size is given (0.5.6-0.5.23)."""

FRACTION = 0.8
"""hicache_host_memory_fraction where neither a ratio nor a size is given (0.5.21-0.5.23)."""

SLACK = 0.05
"""What is kept of that fraction for rounding and staging (0.5.21-0.5.23)."""


class Host(Struct, frozen=True):
    """
    Host memory in bytes, None where it is not known: free for a server, and its control group's limit.
    """

    free: int | None = None
    limit: int | None = None


class _HostPool(Struct, frozen=True):
    """
    One pool of one rank: entries on the device and in host memory, bytes of each.
    """

    device: int
    host: int
    each: float

    @property
    def wanted(self) -> float:
        return self.host * self.each


def host_bytes(asked: Asked, server: ServerSpec, pools: Pools, host: Host) -> int:
    """
    What the host pools take of all ranks on one host, 0 without a hierarchical cache.
    """
    if not server.flags.get("enable_hierarchical_cache") or pools.refusal is not None:
        return 0
    return int(sum(pool.wanted for pool in _pools(asked, server, pools, host)) * _ranks(asked))


def refused_host_pools(asked: Asked, server: ServerSpec, pools: Pools, host: Host) -> Refusal | None:
    """
    The error with which a release refuses the host pools, or None.

    Before 0.5.21 SGLang does not see the control group's limit and is killed for it instead.
    """
    if not server.flags.get("enable_hierarchical_cache") or pools.refusal is not None:
        return None
    if asked.model.state is not None and asked.release < (0, 5, 10):
        return Refusal(Cause.HICACHE_UNSUPPORTED, "HiRadixCache only supports MHA and MLA yet")
    ranks, left = _ranks(asked), _available(asked, host)
    if asked.release < (0, 5, 21) and host.limit is not None:
        wanted = sum(pool.wanted for pool in _pools(asked, server, pools, host)) * ranks
        if wanted > host.limit:
            return Refusal(Cause.HOST_OOM_KILLED, "killed by the container's memory limit, without a line")
    for pool in _pools(asked, server, pools, host):
        if asked.release < (0, 5, 15) and pool.host <= pool.device:
            text = "The host memory should be larger than the device memory with the current protocol"
            return Refusal(Cause.HOST_POOL_TOO_SMALL, text)
        if left is not None and pool.wanted * ranks > left:
            text = (
                f"Not enough host memory available. Requesting {pool.wanted / 1e9:.2f} GB but only have "
                f"{left / ranks / 1e9:.2f} GB free. Please reduce the size of the hierarchical cache."
            )
            return Refusal(Cause.HOST_MEMORY, text)
        left = None if left is None else left - pool.wanted * ranks
    return None


def _ranks(asked: Asked) -> int:
    return asked.tp * asked.pp


def _available(asked: Asked, host: Host) -> float | None:
    """
    What the pools of all ranks may take of a host.
    """
    known = [host.free, host.limit if asked.release >= (0, 5, 21) else None]
    found = [value for value in known if value is not None]
    return min(found) - HOST_RESERVE if found else None


def _pools(asked: Asked, server: ServerSpec, pools: Pools, host: Host) -> list[_HostPool]:
    """
    The pools of one rank. A size is in GB of 10^9 bytes; from 0.5.10 to 0.5.16 each of a hybrid's two pools
    gets all of it, later they share it by their bytes on the device.
    """
    device = [(pools.tokens, (pools.keys + pools.values) / (pools.tokens + asked.page_size), asked.page_size)]
    if asked.model.state is not None:
        device.append((pools.slots, float(conv_bytes(asked) + ssm_bytes(asked)), 1))
    device = [pool for pool in device if pool[0] * pool[1] > 0]
    whole = sum(entries * each for entries, each, _ in device)
    size = (server.number("hicache_size") or 0) * 1e9
    ratio = _ratio(asked, server, host, whole)
    found = []
    for entries, each, page in device:
        share = entries * each / whole if asked.release >= (0, 5, 17) else 1.0
        wanted = int(size * share // each) if size > 0 else int(entries * ratio)
        found.append(_HostPool(entries, (wanted // page + 1) * page, each))
    return found


def _ratio(asked: Asked, server: ServerSpec, host: Host, whole: float) -> float:
    """
    How many times the device's pools the host's are; from 0.5.21 on the default shrinks until they fit.
    """
    given = server.number("hicache_ratio")
    available = _available(asked, host)
    if given or asked.release < (0, 5, 21) or available is None:
        return given or RATIO
    fraction = server.number("hicache_host_memory_fraction") or FRACTION
    budget = available / _ranks(asked) * fraction * (1 - SLACK)
    return max(0.0, min(RATIO, budget / max(whole, 1)))
