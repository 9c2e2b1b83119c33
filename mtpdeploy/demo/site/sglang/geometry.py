"""The shape of a hybrid (Gated DeltaNet) model, as far as its memory is concerned, from its config.json."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Optional

# Used when config.json says nothing: SGLang's own fallbacks (configs/model_config.py, 0.5.9).
VISION_LAYERS_FALLBACK = 24


@dataclass(frozen=True)
class Geometry:
    """Layer and head counts; sizes in elements, not bytes."""

    architectures: List[str]
    linear_layers: int
    full_layers: int
    kv_heads: int
    head_dim: int
    linear_key_heads: int
    linear_value_heads: int
    linear_key_dim: int
    linear_value_dim: int
    conv_kernel: int
    context_len: int
    hidden_layers: int
    hidden_size: int
    state_dtype: Optional[str]
    vision_layers: int
    vision_hidden: int

    @property
    def hybrid(self) -> bool:
        """Whether there are recurrent layers, and so a mamba state pool."""
        return self.linear_layers > 0

    @property
    def multimodal(self) -> bool:
        """Whether there is a vision tower (Qwen3.5/3.6: yes; Qwen3-Next: no)."""
        return self.vision_hidden > 0

    def conv_bytes(self, tp: int, itemsize: int = 2) -> float:
        """Convolution windows of one slot on one GPU, all layers (configs/mamba_utils.py)."""
        width = (
            self.linear_value_heads * self.linear_value_dim + 2 * self.linear_key_heads * self.linear_key_dim
        )
        return self.linear_layers * width / tp * (self.conv_kernel - 1) * itemsize

    def state_bytes(self, tp: int, itemsize: int) -> float:
        """Recurrent state of one slot on one GPU, all layers (configs/mamba_utils.py)."""
        return (
            self.linear_layers
            * (self.linear_value_heads / tp)
            * self.linear_value_dim
            * self.linear_key_dim
            * itemsize
        )

    def kv_bytes(self, tp: int, itemsize: float, layers: Optional[int] = None) -> float:
        """Keys and values of one token on one GPU; only full-attention layers have any."""
        heads = max(1, self.kv_heads // tp)
        return heads * 2 * self.head_dim * (self.full_layers if layers is None else layers) * itemsize


def _full_layers(text: Dict[str, Any], layers: int) -> int:
    kinds = text.get("layer_types")
    if kinds:
        return sum(kind == "full_attention" for kind in kinds)
    interval = text.get("full_attention_interval")
    if not interval:
        return layers if "linear_num_value_heads" not in text else layers // 4
    return layers // int(interval)


def read_geometry(config: Dict[str, Any]) -> Geometry:
    """The shape that a config.json describes; the text part of a multimodal one."""
    text = config.get("text_config") or config
    vision = config.get("vision_config") or {}
    layers = int(text["num_hidden_layers"])
    full = _full_layers(text, layers)
    heads = int(text.get("num_attention_heads") or 1)
    hidden = int(text.get("hidden_size") or 0)
    return Geometry(
        architectures=list(config.get("architectures") or ["?"]),
        linear_layers=layers - full,
        full_layers=full,
        kv_heads=int(text.get("num_key_value_heads") or heads),
        head_dim=int(text.get("head_dim") or hidden // heads),
        linear_key_heads=int(text.get("linear_num_key_heads") or 0),
        linear_value_heads=int(text.get("linear_num_value_heads") or 0),
        linear_key_dim=int(text.get("linear_key_head_dim") or 0),
        linear_value_dim=int(text.get("linear_value_head_dim") or 0),
        conv_kernel=int(text.get("linear_conv_kernel_dim") or 1),
        context_len=int(text.get("max_position_embeddings") or 4096),
        hidden_layers=layers,
        hidden_size=hidden or 5120,
        state_dtype=text.get("mamba_ssm_dtype") or config.get("mamba_ssm_dtype"),
        vision_layers=int(vision.get("num_hidden_layers") or VISION_LAYERS_FALLBACK),
        vision_hidden=int(vision.get("hidden_size") or 0),
    )
