"""
The hierarchical cache: what it pins in host memory, and where a release refuses it.
"""

from typing import Any

import pytest

from mtpdeploy.core.diagnosis import Cause
from mtpdeploy.core.memory import Card, Forecast
from mtpdeploy.core.server import FlagValue
from mtpdeploy.core.units import GIB
from tests.engines.sglang.sizing.models import (
    CONFIG_27B,
    CONFIG_DENSE,
    CONFIG_NEXT,
    EXTRA_BUFFER,
    MTP,
    PRO_6000,
    plan,
)

GB = 10**9
POOLS: dict[str, FlagValue] = {
    **MTP,
    **EXTRA_BUFFER,
    "mem_fraction_static": 0.9,
    "max_running_requests": 8,
    "max_mamba_cache_size": 99,
    "max_total_tokens": 100_000,
    "enable_hierarchical_cache": True,
}
"""On the 27B: 100,000 tokens of 64 KiB, 6.55 GB, and 99 slots of 146.8125 MiB, 15.24 GB."""

TOKEN, SLOT = 64 * 1024, 146.8125 * 1024**2


def cached(
    version: str,
    flags: dict[str, FlagValue],
    *,
    free_gb: float | None = None,
    limit_gb: float | None = None,
    config: dict[str, Any] = CONFIG_27B,
) -> Forecast:
    """
    The forecast with so much host memory.
    """
    host = [None if amount is None else int(amount * GB) for amount in (free_gb, limit_gb)]
    card = Card(PRO_6000.total_mib, PRO_6000.free, host_free=host[0], host_limit=host[1])
    dense = {"weights_gib": 61.0, "draft_gib": 0.0} if config is CONFIG_DENSE else {}
    return plan(version, {**POOLS, **flags}, config=config, card=card, **dense)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("version", "flags", "gigabytes"),
    [
        ("0.5.12", {}, 2 * (6.5536 + 15.2407)),
        ("0.5.23", {}, 2 * (6.5536 + 15.2407)),
        ("0.5.12", {"hicache_ratio": 1.5}, 1.5 * (6.5536 + 15.2407)),
        ("0.5.10", {"hicache_size": 40}, 80.0),
        ("0.5.16", {"hicache_size": 40}, 80.0),
        ("0.5.17", {"hicache_size": 40}, 40.0),
        ("0.5.17", {"hicache_size": 40, "tp_size": 2}, 80.0),
        ("0.5.12", {"enable_hierarchical_cache": False, "hicache_size": 40}, 0.0),
    ],
)
def test_what_is_pinned(version: str, flags: dict[str, FlagValue], gigabytes: float) -> None:
    """
    Twice both device pools, or a size: for each pool from 0.5.10 to 0.5.16, for both together later.
    """
    assert pytest.approx(gigabytes, abs=0.35) == cached(version, flags).host_needed / GB


def test_one_entry_more_for_padding() -> None:
    """
    A page and a slot more than the size divided by theirs.
    """
    wanted = (200_000 + 1) * TOKEN + (198 + 1) * SLOT

    assert pytest.approx(wanted, abs=2) == cached("0.5.12", {}).host_needed


@pytest.mark.parametrize("version", ["0.5.6", "0.5.9"])
def test_no_hybrid_model_before_0_5_10(version: str) -> None:
    """
    There is no pool for recurrent states in host memory yet.
    """
    found = cached(version, {}, config=CONFIG_NEXT)

    assert (Cause.HICACHE_UNSUPPORTED, "HiRadixCache only supports MHA and MLA yet") == (
        found.cause,
        found.error,
    )
    assert cached("0.5.9", {}, config=CONFIG_DENSE).cause is not Cause.HICACHE_UNSUPPORTED


@pytest.mark.parametrize(
    ("version", "size", "refused"),
    [("0.5.14", 6, True), ("0.5.14", 15, True), ("0.5.14", 16, False), ("0.5.15", 6, False)],
)
def test_a_host_pool_that_is_smaller(version: str, size: int, refused: bool) -> None:
    """
    To 0.5.14 each host pool has to be larger than its device pool: 6.55 and 15.24 GB here.
    """
    found = cached(version, {"hicache_size": size})

    assert refused is (found.cause is Cause.HOST_POOL_TOO_SMALL)
    assert refused is (found.error is not None)


@pytest.mark.parametrize(
    ("version", "flags", "free", "refused"),
    [
        ("0.5.12", {"hicache_size": 40}, 91.0, False),
        ("0.5.12", {"hicache_size": 40}, 90.0, True),
        ("0.5.17", {"hicache_size": 40}, 51.0, False),
        ("0.5.17", {"hicache_size": 40}, 50.0, True),
        ("0.5.20", {}, 50.0, True),
        ("0.5.21", {}, 50.0, False),
        ("0.5.21", {"hicache_ratio": 2.0}, 50.0, True),
    ],
)
def test_memory_of_the_host(version: str, flags: dict[str, FlagValue], free: float, refused: bool) -> None:
    """
    10 GiB are kept free; from 0.5.21 on the default shrinks until it fits.
    """
    found = cached(version, flags, free_gb=free)

    assert refused is (found.cause is Cause.HOST_MEMORY)
    assert refused is (found.error or "").startswith("Not enough host memory available. Requesting ")


def test_the_figure_that_rungs_ask_for() -> None:
    """
    What is free for the pools, as SGLang prints it.
    """
    found = cached("0.5.12", {"hicache_size": 200}, free_gb=100.0)

    assert pytest.approx(100 - 10 * GIB / GB) == found.verdict_figures["free_gb"]
    assert "only have 89.26 GB free" in (found.error or "")


@pytest.mark.parametrize(
    ("version", "cause"), [("0.5.20", Cause.HOST_OOM_KILLED), ("0.5.21", Cause.HOST_MEMORY)]
)
def test_a_container_s_limit(version: str, cause: Cause) -> None:
    """
    SGLang sees it from 0.5.21 on; before, the kernel kills what takes more.
    """
    assert cause is cached(version, {"hicache_size": 60}, limit_gb=50.0).cause
    assert cached(version, {"hicache_size": 30}, limit_gb=50.0).cause is None


def test_the_ratio_that_is_left() -> None:
    """
    0.8 of what is free less 10 GiB, less 5 %, over the bytes of the device's pools.
    """
    found = cached("0.5.23", {}, free_gb=40.0)
    budget = 0.8 * 0.95 * (40 * GB - 10 * GIB)

    assert pytest.approx(budget, rel=0.01) == found.host_needed


@pytest.mark.parametrize(
    ("free", "flags", "told"),
    [
        (None, {"hicache_size": 40}, True),
        (500.0, {"hicache_size": 40}, False),
        (None, {"hicache_size": 40, "enable_hierarchical_cache": False}, False),
    ],
    ids=["not known", "known", "no cache"],
)
def test_host_memory_that_is_not_known(free: float | None, flags: dict[str, FlagValue], told: bool) -> None:
    """
    Without a box nobody knows how much is free: a plan says that it was not checked.
    """
    notes = cached("0.5.12", flags, free_gb=free).notes

    assert told is any(note.startswith("not checked: whether host memory has the 80.") for note in notes)
