"""
Which CUDA graphs a release captures where nothing is said about them, and for which sizes.

From `_handle_piecewise_cuda_graph` (0.5.10-0.5.13), `_handle_cuda_graph_config` (0.5.14-0.5.18) and
arg_groups/cuda_graph_hook.py (0.5.19-0.5.23).
"""

from msgspec import Struct

from mtpdeploy.core.model import ModelShape
from mtpdeploy.core.server import ServerSpec
from mtpdeploy.engines.sglang.sizing.fraction import prefill_sizes

WITHOUT_PIECES = ("Qwen3NextForCausalLM", "DeepseekV4", "BailingMoeV2_5ForCausalLM", "LLaDAModelLM")
"""Beginnings of models whose prefill is not captured piece by piece (0.5.10-0.5.14, model_config.py)."""

CAPTURED_WITH_IMAGES = ("Qwen3_5",)
"""Beginnings of models with a vision tower whose prefill is captured all the same, from 0.5.16 on."""

AGAINST_PIECES = (
    "enable_dp_attention",
    "enable_torch_compile",
    "enable_lora",
    "lora_paths",
    "cpu_offload_gb",
    "enable_hierarchical_cache",
    "enable_deterministic_inference",
    "enable_symm_mem",
    "enable_eplb",
    "debug_cuda_graph",
)
"""Flags with which prefill is not captured piece by piece (0.5.10-0.5.14)."""

AGAINST_BREAKS = ("enable_dp_attention", "enable_lora", "lora_paths")
"""Flags with which prefill is not captured with breaks, to 0.5.16."""

LARGEST_LATENT = 2048
"""Largest prefill that is captured with latent attention (0.5.10-0.5.22); 8192 in 0.5.23."""


class Captures(Struct, frozen=True):
    """
    What will be captured: decode batches up to `decode_batch` (0: none), prefill in `prefill_buckets` sizes.

    `class_batch` is the largest decode batch that is reckoned with when memory is kept back for graphs.
    """

    decode_batch: int
    class_batch: int
    prefill_buckets: int


def captures(
    server: ServerSpec,
    model: ModelShape,
    era: tuple[int, ...],
    *,
    class_batch: int,
    chunk: int,
    draft_tokens: int,
) -> Captures:
    """
    The captures of a server; `class_batch` is the largest decode batch for a card of this size.
    """
    batch = _decode_batch(server, era, class_batch)
    captured = 0 if _decode_off(server) else batch
    # From 0.5.16 on nothing is kept back for graphs that are not captured (reserve_for_graph_mb).
    reckoned = batch if captured or era < (0, 5, 16) else 0
    buckets = prefill_sizes(_largest_prefill(server, model, era, chunk))
    return Captures(captured, reckoned, buckets if _captures_prefill(server, model, era, draft_tokens) else 0)


def _decode_batch(server: ServerSpec, era: tuple[int, ...], class_batch: int) -> int:
    listed = server.flags.get("cuda_graph_bs_decode")
    if isinstance(listed, list) and listed:
        return max(int(size) for size in listed)
    given, requests = server.number("cuda_graph_max_bs_decode"), server.number("max_running_requests")
    if given is None and era >= (0, 5, 22) and requests:
        return min(class_batch, int(requests))
    return int(given or class_batch)


def _decode_off(server: ServerSpec) -> bool:
    backend = server.flags.get("cuda_graph_backend_decode")
    if backend is not None:
        return backend == "disabled"
    return any(server.flags.get(name) for name in ("disable_cuda_graph", "disable_decode_cuda_graph"))


def _largest_prefill(server: ServerSpec, model: ModelShape, era: tuple[int, ...], chunk: int) -> int:
    """
    The largest prefill that is captured: a chunk, unless other limits are lower.
    """
    given = server.number("cuda_graph_max_bs_prefill")
    largest = int(given or chunk)
    if given is None:
        if model.latent_size:
            largest = min(8192, chunk) if era >= (0, 5, 23) else LARGEST_LATENT
        if era >= (0, 5, 10):
            largest = min(largest, int(server.number("max_total_tokens") or largest))
    if (0, 5, 13) <= era < (0, 5, 17):
        largest = min(largest, int(server.number("context_length") or largest))
    return largest


def _captures_prefill(server: ServerSpec, model: ModelShape, era: tuple[int, ...], draft_tokens: int) -> bool:
    """
    By default with text alone from 0.5.10 on, with recurrent layers from 0.5.15, with images from 0.5.16 on.
    """
    backend = server.flags.get("cuda_graph_backend_prefill")
    if backend is not None:
        return backend != "disabled"
    switches = ("disable_cuda_graph", "disable_prefill_cuda_graph", "disable_piecewise_cuda_graph")
    if any(server.flags.get(name) for name in switches):
        return False
    if era < (0, 5, 10):
        return bool(server.flags.get("enable_piecewise_cuda_graph"))
    if server.flags.get("enforce_piecewise_cuda_graph"):
        return True
    if era < (0, 5, 15):
        return _in_pieces(server, model, era, draft_tokens)
    return _with_breaks(server, model, era)


def _in_pieces(server: ServerSpec, model: ModelShape, era: tuple[int, ...], draft_tokens: int) -> bool:
    if model.is_multimodal or model.architecture.startswith(WITHOUT_PIECES):
        return False
    if any(server.flags.get(name) for name in AGAINST_PIECES) or (server.number("pp_size") or 1) > 1:
        return False
    return era >= (0, 5, 11) or not draft_tokens


def _with_breaks(server: ServerSpec, model: ModelShape, era: tuple[int, ...]) -> bool:
    if era < (0, 5, 17) and any(server.flags.get(name) for name in AGAINST_BREAKS):
        return False
    if (model.latent_size and era < (0, 5, 18)) or model.architecture.startswith("DeepseekV4"):
        return False
    if model.state is not None and model.state.kind == "kda" and era >= (0, 5, 20):
        return False
    if model.architecture.startswith("NemotronH") and (0, 5, 17) <= era < (0, 5, 18):
        return False
    if (server.number("pp_size") or 1) > 1 and era >= (0, 5, 16):
        return False
    return not model.is_multimodal or (
        era >= (0, 5, 16) and model.architecture.startswith(CAPTURED_WITH_IMAGES)
    )
