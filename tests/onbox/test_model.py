"""
What a checkpoint's files tell without a weight being read.
"""

import json
import os
import struct
from pathlib import Path

import pytest

from mtpdeploy.onbox.model import INDEX_FILE, contents


def shard(path: Path, tensors: dict[str, int], *, cut: int = 0) -> None:
    """
    A safetensors file of tensors with so many bytes each, `cut` bytes short.
    """
    header, at = {}, 0
    for name, size in tensors.items():
        header[name] = {"dtype": "U8", "shape": [size], "data_offsets": [at, at + size]}
        at += size
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(at - cut))


def test_tensors_are_counted_by_what_they_belong_to(tmp_path: Path) -> None:
    """
    All bytes, and those of multi-token prediction, of all shards together.
    """
    shard(tmp_path / "a.safetensors", {"model.embed_tokens.weight": 600, "mtp.fc.weight": 30})
    shard(tmp_path / "b.safetensors", {"lm_head.weight": 600, "model.mtp.norm.weight": 4})

    told = contents(str(tmp_path))

    assert (1234, 34, True, []) == (
        told["weight_bytes"], told["mtp_bytes"], told["has_mtp"], told["damaged_files"],
    )  # fmt: skip


def test_a_model_without_an_index_tells_by_its_headers(tmp_path: Path) -> None:
    """
    A single file needs no index: that there is no draft in it is known all the same.
    """
    shard(tmp_path / "model.safetensors", {"model.embed_tokens.weight": 64})

    assert contents(str(tmp_path))["has_mtp"] is False


def test_a_shard_that_is_cut_short_is_named(tmp_path: Path) -> None:
    """
    A download that broke off leaves a file shorter than its own header says.
    """
    shard(tmp_path / "a.safetensors", {"x": 100})
    shard(tmp_path / "b.safetensors", {"y": 100}, cut=1)

    assert ["b.safetensors"] == contents(str(tmp_path))["damaged_files"]


@pytest.mark.parametrize(
    "content",
    [b"", b"\0" * 64, b"\xff" * 64, struct.pack("<Q", 20) + b"{", struct.pack("<Q", 4) + b"[12]"],
    ids=["empty", "zeros", "endless", "cut in its header", "no object"],
)
def test_what_is_no_safetensors_file_is_damaged(tmp_path: Path, content: bytes) -> None:
    """
    Where a header cannot be read the index says how much there should be, and the file is named.
    """
    (tmp_path / "a.safetensors").write_bytes(content)
    index = {"metadata": {"total_size": 5000}, "weight_map": {"mtp.fc.weight": "a.safetensors"}}
    (tmp_path / INDEX_FILE).write_text(json.dumps(index))

    told = contents(str(tmp_path))

    assert (5000, None, True) == (told["weight_bytes"], told["mtp_bytes"], told["has_mtp"])
    assert (["a.safetensors"], False) == (told["damaged_files"], told["index_damaged"])


def test_what_an_index_does_not_name_is_not_looked_at(tmp_path: Path) -> None:
    """
    A second copy of the weights in another layout beside those of the index is not loaded.
    """
    shard(tmp_path / "a.safetensors", {"x": 100})
    (tmp_path / "consolidated.safetensors").write_bytes(b"")
    (tmp_path / INDEX_FILE).write_text(json.dumps({"weight_map": {"x": "a.safetensors"}}))

    told = contents(str(tmp_path))

    assert (100, [], []) == (told["weight_bytes"], told["damaged_files"], told["missing_files"])


@pytest.mark.parametrize(("architecture", "loaded"), [("Glm4MoeForCausalLM", 130), ("Qwen3ForCausalLM", 100)])
def test_a_draft_that_an_index_forgot(tmp_path: Path, architecture: str, loaded: int) -> None:
    """
    GLM's is loaded all the same.
    """
    shard(tmp_path / "a.safetensors", {"x": 100})
    shard(tmp_path / "mtp.safetensors", {"y": 30})
    (tmp_path / INDEX_FILE).write_text(json.dumps({"weight_map": {"x": "a.safetensors"}}))
    (tmp_path / "config.json").write_text(json.dumps({"architectures": [architecture]}))

    assert loaded == contents(str(tmp_path))["weight_bytes"]


@pytest.mark.parametrize(("name", "loaded"), [("model.safetensors", 100), ("other.safetensors", 200)])
def test_a_second_copy_without_an_index(tmp_path: Path, name: str, loaded: int) -> None:
    """
    Of Mistral's two only the usual one is loaded.
    """
    shard(tmp_path / name, {"x": 100})
    shard(tmp_path / "consolidated.safetensors", {"x": 100})

    assert loaded == contents(str(tmp_path))["weight_bytes"]


@pytest.mark.parametrize(
    "index",
    ['{"weight_map": {"x": "a.safe', "", "[]", "{}", '{"weight_map": []}', '{"weight_map": {"x": 1}}'],
)
def test_an_index_that_cannot_be_read(tmp_path: Path, index: str) -> None:
    """
    It is told as damaged, and the files speak for themselves; a folder without one is whole.
    """
    shard(tmp_path / "a.safetensors", {"x": 100})
    whole = contents(str(tmp_path))
    (tmp_path / INDEX_FILE).write_text(index)

    assert not whole["index_damaged"]
    assert {**whole, "index_damaged": True} == contents(str(tmp_path))


@pytest.mark.parametrize("offsets", ["ab", [], [1], [0, "x"], None])
def test_a_header_of_another_make(tmp_path: Path, offsets: object) -> None:
    """
    An entry without the two offsets counts for nothing.
    """
    text = json.dumps({"x": {"data_offsets": offsets}}).encode()
    (tmp_path / "a.safetensors").write_bytes(struct.pack("<Q", len(text)) + text)

    assert [] == contents(str(tmp_path))["damaged_files"]


def test_pipes_are_not_waited_for(tmp_path: Path) -> None:
    """
    What is no file counts as damaged or as not there.
    """
    for name in ("a.safetensors", INDEX_FILE, "config.json"):
        os.mkfifo(tmp_path / name)

    told = contents(str(tmp_path))

    assert (None, ["a.safetensors"], False) == (told["config"], told["damaged_files"], told["index_damaged"])
