"""
Matching lines against the catalogue, and the figures that failures print.
"""

import re
from collections.abc import Sequence
from functools import lru_cache

from mtpdeploy.core.diagnosis import Signature, Stage

_NUMBER = r"(-?\d+(?:\.\d+)?)"

_FIGURES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("asked_mib", re.compile(rf"Tried to allocate {_NUMBER} (MiB|GiB|KiB)")),
    ("total_mib", re.compile(rf"total capacity of {_NUMBER} (MiB|GiB)")),
    ("free_mib", re.compile(rf"{_NUMBER} (MiB|GiB|KiB|bytes) is free")),
    ("mem_fraction_static", re.compile(r"mem[-_]fraction[-_]static=(\d+(?:\.\d+)?)")),
    ("floor", re.compile(r"Raise --mem-fraction-static above (\d+\.\d+)")),
    ("max_mamba_cache_size", re.compile(r"max_mamba_cache_size=(-?\d+)")),
    ("slots_per_request", re.compile(r"mamba_ratio=(\d+)")),
    ("rest_gib", re.compile(rf"total_rest_memory={_NUMBER} GB")),
    ("state_mib", re.compile(rf"mamba_cache_per_req={_NUMBER} MB")),
    ("requested_gb", re.compile(rf"(?:Requesting|Need) {_NUMBER} GB")),
    ("free_gb", re.compile(rf"(?:only |, )have {_NUMBER} GB\b")),
    ("host_bytes", re.compile(r"you tried to allocate (\d+) bytes")),
    ("asked_tokens", re.compile(r"Try to allocate (\d+) tokens")),
    ("free_tokens", re.compile(r"Available (?:full )?tokens: (\d+)")),
    ("least_gib", re.compile(r"(?:min_per_gpu_memory|pre_model_load_memory)=(\d+(?:\.\d+)?)")),
    ("most_gib", re.compile(r"local_gpu_memory=(\d+(?:\.\d+)?)")),
    ("onchip_asked_bytes", re.compile(r"shared memory, Required: (\d+)")),
    ("onchip_bytes", re.compile(r"Hardware limit: (\d+)")),
    ("watchdog_timeout", re.compile(r"self\.watchdog_timeout=(\d+(?:\.\d+)?)")),
    ("port", re.compile(r"(?:\w+ at |\('[^']{0,64}', |[Pp]ort:? )(\d+)(?:\)| is|,)")),
    ("derived_context_length", re.compile(r"the derived context_length \((\d+)\)")),
    ("exit_code", re.compile(r"exit code:? (-?\d+)")),
)
"""Names carry units: MiB and GiB are binary (torch, SGLang), gb is 10^9 (SGLang's host memory lines)."""

_MIB = {"bytes": 1 / (1 << 20), "KiB": 1 / 1024, "MiB": 1.0, "GiB": 1024.0}


def match(catalogue: Sequence[Signature], text: str, stage: Stage) -> Signature | None:
    """
    The heaviest signature that a text matches at a stage, and among equals the first.
    """
    best: Signature | None = None
    for signature in catalogue:
        if best is not None and signature.weight <= best.weight:
            continue
        if signature.stages and stage not in signature.stages:
            continue
        if _compiled(signature.pattern).search(text):
            best = signature
    return best


def figures_of(text: str) -> dict[str, float]:
    """
    The numbers that a failure's text prints, by name.
    """
    found: dict[str, float] = {}
    for name, pattern in _FIGURES:
        if hit := pattern.search(text):
            found[name] = float(hit[1]) * (
                _MIB[hit[2]] if name.endswith("_mib") and len(hit.groups()) > 1 else 1.0
            )
    return found


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)
