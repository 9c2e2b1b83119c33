"""
The hierarchical cache's pools in host memory, and when SGLang refuses them.

From mem_cache/memory_pool_host.py (0.5.6-0.5.17) and mem_cache/pool_host/ (0.5.14-0.5.23).
"""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

from .refusals import TREE, Frame, RefusedError
from .settings import Settings
from .sizing import GIB, Pools

# Kept free for everything else on the host (HICACHE_HOST_MEMORY_RESERVE_BYTES).
RESERVE = 10 * GIB
HOST_POOL: Tuple[Frame, ...] = (
    *TREE,
    (
        "sglang/srt/mem_cache/hiradix_cache.py",
        86,
        "__init__",
        "self.token_to_kv_pool_host = MHATokenToKVPoolHost(",
    ),
    ("sglang/srt/mem_cache/memory_pool_host.py", 180, "__init__", "raise ValueError("),
)


def _device_pools(pools: Pools) -> List[Tuple[str, float, float]]:
    """(name, entries, bytes an entry) of the pools that have a copy in host memory."""
    kv = (pools.k_gib + pools.v_gib) * GIB / max(pools.tokens, 1)
    state = (pools.conv_gib + pools.ssm_gib) * GIB / (pools.slots + 1)
    found = [("kv", float(pools.tokens), kv)]
    return found + ([("mamba", float(pools.slots), state)] if pools.slots else [])


def _available(era: Tuple[int, ...], settings: Settings) -> float:
    """Bytes that the pools may take: of the host, from 0.5.21 on also of the container."""
    limit = settings.host_memory_gb * 1e9
    if settings.cgroup_gb and era >= (0, 5, 21):
        limit = min(limit, settings.cgroup_gb * 1e9)
    return limit - RESERVE


def _wanted(
    args: Dict[str, Any], era: Tuple[int, ...], pools: Pools, settings: Settings
) -> List[Tuple[str, float, float, float]]:
    """(name, device entries, host entries, bytes an entry): to 0.5.16 a size counts for each pool."""
    device = _device_pools(pools)
    whole = sum(entries * each for _, entries, each in device)
    size, ratio = float(args.get("hicache_size") or 0), float(args.get("hicache_ratio") or 2.0)
    if era >= (0, 5, 21) and not size and not args.get("hicache_ratio"):
        # hicache_auto_size.py: the default ratio shrinks to 0.8 of what is free, less 5 per cent.
        ratio = max(0.0, min(ratio, 0.8 * 0.95 * _available(era, settings) / whole))
    found = []
    for name, entries, each in device:
        if size > 0:
            part = size * 1e9 * (entries * each / whole if era >= (0, 5, 17) else 1.0)
            host = part // each
        else:
            host = entries * ratio
        found.append((name, entries, host + 1, each))
    return found


def host_pools(args: Dict[str, Any], era: Tuple[int, ...], pools: Pools, settings: Settings) -> List[str]:
    """The lines of a hierarchical cache that fits, or RefusedError."""
    if pools.slots and era < (0, 5, 10):
        raise RefusedError("ValueError", "HiRadixCache only supports MHA and MLA yet", TREE)
    left = _available(era, settings)
    said = []
    for name, entries, host, each in _wanted(args, era, pools, settings):
        if host <= entries:
            said += _smaller(era, name, host, entries)
        wanted = host * each
        if wanted > left:
            text = (
                f"Not enough host memory available. Requesting {wanted / 1e9:.2f} GB but only have "
                f"{left / 1e9:.2f} GB free. Please reduce the size of the hierarchical cache."
            )
            raise RefusedError("ValueError", text, HOST_POOL)
        left -= wanted
        said.append(_allocating(era, name, host, wanted))
    return said


def _smaller(era: Tuple[int, ...], name: str, host: float, device: float) -> List[str]:
    if era < (0, 5, 15):
        text = "The host memory should be larger than the device memory with the current protocol"
        raise RefusedError("AssertionError", text, HOST_POOL)
    label = "KV" if name == "kv" or era < (0, 5, 17) else "Mamba"
    text = (
        f"HiCache host {label} pool ({host:.0f} tokens) is smaller than the device pool ({device:.0f} "
        "tokens);L2 cache effectiveness is reduced.Consider increasing --hicache-ratio (or --hicache-size) "
        "for higher L2 cache hit rate."
    )
    return [text]


def _allocating(era: Tuple[int, ...], name: str, host: float, wanted: float) -> str:
    if name == "mamba":
        slots = f"{host:.0f} state slots, " if era >= (0, 5, 19) else ""
        return (
            f"Allocating {wanted / 1e9:.2f} GB host memory for hierarchical Mamba cache "
            f"({slots}layout=layer_first)."
        )
    if era >= (0, 5, 15):
        return (
            f"Allocating kv hierarchical KV host pool: {host:.0f} tokens, {wanted / 1e9:.2f} GB host memory."
        )
    return f"Allocating {wanted / 1e9:.2f} GB host memory for hierarchical KV cache."


def host_bytes(args: Dict[str, Any], era: Tuple[int, ...], pools: Pools, settings: Settings) -> float:
    """Everything the host pools take together, in bytes."""
    return sum(host * each for _, _, host, each in _wanted(args, era, pools, settings))
