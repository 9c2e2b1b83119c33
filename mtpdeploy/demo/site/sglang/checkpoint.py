"""The model directory: config.json, the index of tensors, and what the demo says it weighs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, Tuple

from .geometry import Geometry, read_geometry
from .refusals import ARGUMENTS_NEW, ARGUMENTS_OLD, LOAD, WORKER, RefusedError

GIB = 1 << 30
# Where the home writes what a full-sized checkpoint would weigh; the shards beside it have headers only.
WEIGHTS_FILE = "simulated.json"
ARCHITECTURES = {
    "Qwen3NextForCausalLM": (0, 5, 6),
    "Qwen3_5ForConditionalGeneration": (0, 5, 9),
    "Qwen3_5MoeForConditionalGeneration": (0, 5, 9),
    "Qwen3_5ForCausalLM": (0, 5, 17),
    "Qwen3ForCausalLM": (0, 5, 6),
    "LlamaForCausalLM": (0, 5, 6),
}


@dataclass(frozen=True)
class Checkpoint:
    """A model as loaded: `given_back_gib` is what the draft frees once it shares embedding and head."""

    path: str
    geometry: Geometry
    weights_gib: float
    draft_gib: float
    given_back_gib: float
    shards: int
    has_mtp: bool

    @property
    def architecture(self) -> str:
        """The class SGLang names in `Load weight end`."""
        return self.geometry.architectures[0]

    @property
    def draft_class(self) -> str:
        """The draft's class: `Qwen3NextForCausalLM` -> `…MTP`, the multimodal ones -> their text class."""
        return self.architecture.replace("ForConditionalGeneration", "ForCausalLM") + "MTP"


def _json(path: Path) -> Dict[str, Any]:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return {}


def find_model(path: str, era: Tuple[int, ...]) -> Dict[str, Any]:
    """The model's config.json; refuses as Transformers does when there is no such model."""
    frames = ARGUMENTS_OLD if era < (0, 5, 18) else ARGUMENTS_NEW
    directory = Path(path)
    if not directory.is_dir():
        if path.startswith("/") and era >= (0, 5, 10):
            text = (
                "Repo id must be in the form 'repo_name' or 'namespace/repo_name': "
                f"'{path}'. Use `repo_type` argument if needed."
            )
        else:
            text = (
                f"{path} is not a local folder and is not a valid model identifier listed on "
                "'https://huggingface.co/models'\nIf this is a private repository, make sure to pass a "
                "token having permission to this repo either by logging in with `hf auth login` or by "
                "passing `token=<your_token>`"
            )
        raise RefusedError("OSError", text, frames)
    config = _json(directory / "config.json")
    if "model_type" not in config:
        text = f"Unrecognized model in {path}. Should have a `model_type` key in its config.json."
        raise RefusedError("ValueError", text, frames)
    return config


def open_checkpoint(path: str, config: Dict[str, Any], era: Tuple[int, ...]) -> Checkpoint:
    """The checkpoint; refuses as SGLang's loader does: unknown architecture, no weights."""
    geometry = read_geometry(config)
    since = ARCHITECTURES.get(geometry.architectures[0])
    if since is None or era < since:
        known = {name for name, first in ARCHITECTURES.items() if era >= first}
        text = (
            f"Model architectures {geometry.architectures} are not supported for now. "
            f"Supported architectures: dict_keys({sorted(known)})"
        )
        raise RefusedError("ValueError", text, WORKER + LOAD)
    directory = Path(path)
    shards = sorted(directory.glob("*.safetensors"))
    if not shards:
        raise RefusedError("RuntimeError", f"Cannot find any model weights with `{path}`\n", WORKER + LOAD)
    index = _json(directory / "model.safetensors.index.json")
    names: List[str] = list(index.get("weight_map") or {})
    weights = _json(directory / WEIGHTS_FILE)
    total = float((index.get("metadata") or {}).get("total_size") or 0) / GIB
    return Checkpoint(
        path=path,
        geometry=geometry,
        weights_gib=float(weights.get("weights_gib") or total),
        draft_gib=float(weights.get("draft_gib") or 0.0),
        given_back_gib=float(weights.get("given_back_gib") or 0.0),
        shards=len(shards),
        has_mtp=any(name.startswith("mtp.") for name in names),
    )
