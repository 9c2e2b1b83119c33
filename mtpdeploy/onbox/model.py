"""
What a box has of a model: its folder, or its place in the hub's cache, without reading any weights.
"""

from __future__ import annotations

import json
import os
from typing import Any

LONGEST_CONFIG = 256 * 1024
MTP_PREFIX = "mtp."
INDEX_FILE = "model.safetensors.index.json"
DRAFT_FILE = "mtp.safetensors"
SECOND_COPY = "consolidated.safetensors"
TWICE = {SECOND_COPY, "model.safetensors"}
LONGEST_HEADER = 100 * 1000 * 1000  # the format's own limit (safetensors README)


def model_facts(path: str, env: dict[str, str]) -> dict[str, Any]:
    """
    Where a model is and what its small files say. `path` is a folder or a hub name (`Qwen/Qwen3.6-27B`).
    """
    looks_local = path.startswith(("/", "~", "."))
    folder = expanded(path, env)
    is_local = looks_local or os.path.isdir(folder)
    if not is_local:
        folder = cached(path, env) or ""
    exists = bool(folder) and os.path.isdir(folder)
    answer = {"path": folder if exists else path, "is_local": is_local, "exists": exists}
    return dict(answer, **contents(folder)) if exists else answer


def cached(name: str, env: dict[str, str]) -> str | None:
    """
    The folder of a hub name in the hub's cache, the newest snapshot first; None where there is none.
    """
    place = os.path.join(hub_cache(env), "models--" + name.replace("/", "--"))
    revision = small_text(os.path.join(place, "refs", "main"))
    if revision and os.path.isdir(os.path.join(place, "snapshots", revision.strip())):
        return os.path.join(place, "snapshots", revision.strip())
    try:
        with os.scandir(os.path.join(place, "snapshots")) as entries:
            found = [(entry.stat().st_mtime, entry.path) for entry in entries if entry.is_dir()]
    except OSError:
        return None
    return max(found)[1] if found else None


def hub_cache(env: dict[str, str]) -> str:
    """
    The hub's cache: `HF_HUB_CACHE`, else `HF_HOME/hub`, else `~/.cache/huggingface/hub` (huggingface_hub).
    """
    home = env.get("HF_HOME") or os.path.join(env.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    return expanded(env.get("HF_HUB_CACHE") or os.path.join(home, "hub"), env)


def expanded(path: str, env: dict[str, str]) -> str:
    """
    A path with the home directory that the server will have in place of a leading `~`.
    """
    own = env.get("HOME") if path == "~" or path.startswith("~/") else None
    return own.rstrip("/") + path[1:] if own else os.path.expanduser(path)


def contents(folder: str) -> dict[str, Any]:
    """
    What the files of a model's folder say. Weight files that are not loaded are not looked at.
    """
    config = small_text(os.path.join(folder, "config.json"))
    index = read_index(os.path.join(folder, INDEX_FILE))
    names = None if index is None else index.get("weight_map")
    if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
        names = None
    keys = None if names is None else list(names)
    shards = [] if names is None else sorted(set(names.values()))
    sizes = loaded(weight_files(folder), shards, config)
    groups, damaged = tensors(folder, sizes)
    if keys is None and groups is not None:
        keys = [MTP_PREFIX] if groups["mtp"] else []
    return {
        "config": config,
        "has_mtp": None if keys is None else any(is_mtp(key) for key in keys),
        "weight_bytes": groups["all"] if groups else total_size(index) or sum(sizes.values()) or None,
        "mtp_bytes": groups["mtp"] if groups else None,
        "missing_files": [name for name in shards if name not in sizes],
        "damaged_files": damaged,
        "index_damaged": names is None and os.path.isfile(os.path.join(folder, INDEX_FILE)),
    }


def loaded(sizes: dict[str, int], shards: list[str], config: str | None) -> dict[str, int]:
    """
    Those of the weight files that SGLang loads: `shards` where there is an index, else all but a second copy.

    GLM's draft may lie in a file that the index forgot (filter_duplicate_safetensors_files and
    maybe_add_mtp_safetensors, weight_utils.py).
    """
    if not shards:
        return {name: sizes[name] for name in sizes if set(sizes) != TWICE or name != SECOND_COPY}
    wanted = [*shards, DRAFT_FILE] if "Glm" in (config or "") else shards
    return {name: sizes[name] for name in wanted if name in sizes}


def tensors(folder: str, sizes: dict[str, int]) -> tuple[dict[str, int] | None, list[str]]:
    """
    Bytes of all tensors and of those of multi-token prediction, and the files that are no whole safetensors.

    Only the headers are read: a file without one is damaged, and one shorter than its header says. None
    where there are no files, or one has no header that can be read.
    """
    found = {"all": 0, "mtp": 0}
    damaged = []
    readable = bool(sizes)
    for name in sorted(sizes):
        header = read_header(os.path.join(folder, name))
        if header is None:
            readable = False
            damaged.append(name)
            continue
        start, entries = header
        ends = [0]
        for tensor, entry in entries.items():
            begin, end = offsets(entry)
            ends.append(end)
            found["all"] += end - begin
            found["mtp"] += end - begin if is_mtp(tensor) else 0
        if sizes[name] < start + max(ends):
            damaged.append(name)
    return (found if readable else None), damaged


def offsets(entry: object) -> tuple[int, int]:
    """
    Where the bytes of a header's tensor begin and end in the data; (0, 0) where it says nothing of the kind.
    """
    told = entry.get("data_offsets") if isinstance(entry, dict) else None
    if isinstance(told, list) and len(told) == 2 and all(isinstance(at, int) for at in told):
        return told[0], told[1]
    return 0, 0


def read_header(path: str) -> tuple[int, dict[str, Any]] | None:
    """
    Where the data of a safetensors file begin, and its header; None where it has none.
    """
    if not os.path.isfile(path):  # a pipe would be waited for
        return None
    try:
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if not 2 <= length <= LONGEST_HEADER:
                return None
            header = json.loads(file.read(length))
    except (OSError, ValueError):
        return None
    return (8 + length, header) if isinstance(header, dict) else None


def total_size(index: dict[str, Any] | None) -> int:
    """
    The bytes of all tensors as a safetensors index tells them, 0 where it does not.
    """
    metadata = (index or {}).get("metadata")
    size = metadata.get("total_size") if isinstance(metadata, dict) else None
    return int(size) if isinstance(size, (int, float)) and size > 0 else 0


def is_mtp(tensor: str) -> bool:
    """
    Whether a tensor belongs to the layers of multi-token prediction.
    """
    return tensor.startswith(MTP_PREFIX) or "." + MTP_PREFIX in tensor


def weight_files(folder: str) -> dict[str, int]:
    """
    The sizes of the weight files in a folder, links followed; one that leads nowhere is not there.
    """
    sizes = {}
    for name in os.listdir(folder):
        if name.endswith(".safetensors"):
            try:
                sizes[name] = os.stat(os.path.join(folder, name)).st_size
            except OSError:
                continue
    return sizes


def read_index(path: str) -> dict[str, Any] | None:
    """
    A safetensors index, or None where there is none that can be read.
    """
    if not os.path.isfile(path):
        return None
    try:
        with open(path, encoding="utf-8") as file:
            index = json.load(file)
    except (OSError, ValueError):
        return None
    return index if isinstance(index, dict) else None


def small_text(path: str, limit: int = LONGEST_CONFIG) -> str | None:
    """
    The text of a small file; None where it cannot be read, is longer than a file of its kind is, or no file.
    """
    if not os.path.isfile(path):
        return None
    try:
        with open(path, "rb") as file:
            content = file.read(limit + 1)
    except OSError:
        return None
    return content.decode("utf-8", "replace") if len(content) <= limit else None
