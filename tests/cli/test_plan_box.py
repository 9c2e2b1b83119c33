"""
`mtpdeploy plan --on`: its verdict and its exit status agree with those of `up`.
"""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run

FITTING = [
    word
    for flag in (
        "max_running_requests=8",
        "mem_fraction_static=0.9",
        "enable_hierarchical_cache=false",
        "hicache_size=0",
    )
    for word in ("--set", flag)
]
SHARD = "model-00003-of-00014.safetensors"


@pytest.fixture
def model(folder: Path, run: Run) -> Path:
    """
    The demo box's model, of which the server fits.
    """
    said = run("plan", "--on", "demo", *FITTING, "--json")
    assert (0, "fits") == (said.status, json.loads(said.out)["verdict"])
    return folder / "state" / "demo" / "home" / "models" / "Qwen3.6-27B"


def without(model: Path) -> str:
    """
    Takes a shard away.
    """
    (model / SHARD).unlink()
    return f"the model on `demo` lacks 1 of its weight files: {SHARD}"


def cut(model: Path) -> str:
    """
    Leaves a hundred bytes of a shard.
    """
    (model / SHARD).write_bytes(b"x" * 100)
    return f"weight files of the model on `demo` are cut short: {SHARD}"


def drafting_for_nothing(model: Path) -> str:
    """
    Puts the checkpoint without tensors for the draft in the place of the other.
    """
    model.rename(model.with_name("moved"))
    model.with_name("Qwen3.6-27B-without-mtp").rename(model)
    return "the model on `demo` has no tensors for multi-token prediction: "


@pytest.mark.parametrize("damage", [without, cut, drafting_for_nothing])
def test_what_up_refuses_does_not_fit(damage: object, model: Path, run: Run) -> None:
    """
    The reason is that of `up`, and what memory alone would say is a note; a search and `up` refuse with 4.
    """
    assert callable(damage)
    reason = damage(model)
    said = run("plan", "--on", "demo", *FITTING, "--json")
    told = json.loads(said.out)
    searched = run("plan", "--on", "demo", *FITTING, "--solve")
    rehearsed = run("up", "--on", "demo", *FITTING, "--dry-run")

    assert (1, "does not fit") == (said.status, told["verdict"])
    assert told["reason"].startswith(reason)
    assert any(note.startswith("as for memory alone: ") for note in told["notes"])
    assert (4, 4) == (searched.status, rehearsed.status)
    assert f"error: {reason}" in searched.err
    assert f"error: {reason}" in rehearsed.err


def test_what_the_version_there_does_not_take(run: Run) -> None:
    """
    One error of the command line, as `up` has it.
    """
    words = ("--on", "demo:sglang=0.5.12", "--set", "mamba_radix_cache_strategy=extra_buffer_lazy")
    planned, rehearsed = run("plan", *words), run("up", *words, "--dry-run")
    error = next(line for line in planned.err.splitlines() if line.startswith("error: "))

    assert (2, 2) == (planned.status, rehearsed.status)
    assert error in rehearsed.err
