"""
What starts on a box really took, kept for the next forecast there: by card, model and SGLang version.
"""

import contextlib
import hashlib
from pathlib import Path

from msgspec import DecodeError, Struct, ValidationError, json, structs

from mtpdeploy.core.diagnosis import End
from mtpdeploy.core.machine import Facts
from mtpdeploy.core.memory import Forecast, Seen
from mtpdeploy.core.outcome import Outcome
from mtpdeploy.core.server import FlagValue, ServerSpec
from mtpdeploy.core.units import GIB

FIGURES = {
    "free_before_weights_gib": "free",
    "weights_gib": "weights",
    "draft_weights_gib": "draft",
    "graphs_gib": "graphs",
}
"""What SGLang prints of each, by the names that the reading of a log gives them."""

_SPLIT = ("tp_size", "pp_size", "dp_size", "ep_size", "enable_dp_attention", "enable_dp_lm_head", "dtype")
_TARGET = (
    *_SPLIT,
    "quantization",
    "torchao_config",
    "quantize_and_serve",
    "load_format",
    "cpu_offload_gb",
    "offload_group_size",
    "offload_num_in_group",
    "ple_offload_embedding",
    "language_only",
    "language_model_only",
    "moe_runner_backend",
    "enable_lora",
    "lora_paths",
)
_DRAFT = (
    "speculative_algorithm",
    "speculative_draft_model_path",
    "speculative_draft_model_revision",
    "speculative_draft_model_quantization",
    "speculative_draft_load_format",
    "speculative_moe_runner_backend",
)
DECIDING = {
    "weights": _TARGET,
    "draft": (*_TARGET, *_DRAFT),
    "graphs": (
        *_TARGET,
        *_DRAFT,
        "speculative_num_steps",
        "speculative_eagle_topk",
        "attention_backend",
        "chunked_prefill_size",
        "cuda_graph_config",
        "cuda_graph_backend_decode",
        "cuda_graph_backend_prefill",
        "cuda_graph_bs_decode",
        "cuda_graph_bs_prefill",
        "cuda_graph_max_bs_prefill",
        "disable_cuda_graph",
        "disable_decode_cuda_graph",
        "disable_prefill_cuda_graph",
        "disable_piecewise_cuda_graph",
        "enable_piecewise_cuda_graph",
        "enforce_piecewise_cuda_graph",
        "enable_breakable_cuda_graph",
        "enable_torch_compile",
        "enable_hierarchical_cache",
    ),
}
"""Flags on which a seen figure depends: with another value of one of them it is no measure."""


class Calibration(Struct, frozen=True):
    """
    What was seen last, and the server that last was ready there, with the one that was asked for.
    """

    seen: Seen = Seen()
    asked: ServerSpec | None = None
    ready: ServerSpec | None = None
    rungs: tuple[str, ...] = ()
    at: float = 0.0


class Memory:
    """
    The calibration of one box, model and version, in a file below the state directory.
    """

    def __init__(self, state: Path, facts: Facts) -> None:
        model = facts.model
        parts = [gpu.uuid for gpu in facts.gpus] + [str(facts.sglang_version)]
        # A quantized checkpoint may have the same config.json as the one that it was made of.
        parts.append(f"{model.config or model.path}\n{model.weight_bytes}" if model else "")
        name = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:24]
        self._file = state / "calibrations" / f"{name}.json"
        self._total = min((gpu.total_bytes for gpu in facts.gpus), default=0)

    def read(self) -> Calibration:
        """
        What is known; nothing where there is no file that can be read.
        """
        with contextlib.suppress(OSError, DecodeError, ValidationError):
            return json.decode(self._file.read_bytes(), type=Calibration)
        return Calibration()

    def keep(self, asked: ServerSpec, outcome: Outcome, rungs: tuple[str, ...], at: float) -> None:
        """
        Take over what an attempt showed; what it did not reach stays as it was.
        """
        known = self.read()
        found = seen_in(outcome.figures, outcome.server, self._total)
        merged = {name: value for name in FIGURES.values() if (value := getattr(found, name)) is not None}
        if found.graphs is not None and outcome.end is End.READY:
            merged["graph_tokens"] = found.graph_tokens
        else:
            # Captures that were cut short say too little.
            merged.pop("graphs", None)
        under = {name: flags for name, flags in found.under.items() if name in merged}
        seen = structs.replace(known.seen, **merged, under={**known.seen.under, **under})
        kept = structs.replace(known, seen=seen)
        if outcome.end is End.READY and not (outcome.report and outcome.report.talks_nonsense):
            kept = structs.replace(kept, asked=asked, ready=outcome.server, rungs=rungs, at=at)
        with contextlib.suppress(OSError):
            self._file.parent.mkdir(parents=True, mode=0o700, exist_ok=True)
            self._file.write_bytes(json.format(json.encode(kept)))


def seen_in(figures: dict[str, float], server: ServerSpec, total: int) -> Seen:
    """
    What a log's figures say, as far as they can be believed.

    One below nothing or above the card is a fault of the log: unified memory prints such (GB10).
    """
    found = {
        ours: int(figures[name] * GIB)
        for name, ours in FIGURES.items()
        if name in figures and 0 < figures[name] * GIB <= total
    }
    drafts = server.mtp.num_draft_tokens or 4 if server.mtp else 1
    batch = min(figures.get("max_running_requests", 1), server.number("cuda_graph_max_bs_decode") or 256)
    under = {name: _deciding(name, server) for name in DECIDING if name in found}
    return Seen(**found, graph_tokens=int(batch * drafts) if "graphs" in found else 0, under=under)


def still_true(seen: Seen, server: ServerSpec) -> Seen:
    """
    What was seen, without the figures that another server's flags decided otherwise.
    """
    gone = [name for name in DECIDING if seen.under.get(name, {}) != _deciding(name, server)]
    return structs.replace(seen, **dict.fromkeys(gone))


def _deciding(name: str, server: ServerSpec) -> dict[str, FlagValue]:
    return {flag: server.flags[flag] for flag in DECIDING[name] if flag in server.flags}


COMPARED = {
    "weights_gib": "weights_gib",
    "draft_weights_gib": "draft_gib",
    "conv_state_gib": "conv_state_gib",
    "ssm_state_gib": "ssm_state_gib",
    "intermediate_ssm_gib": "intermediate_ssm_gib",
    "intermediate_conv_gib": "intermediate_conv_gib",
    "k_gib": "kv_k_gib",
    "v_gib": "kv_v_gib",
    "graphs_gib": "graphs_gib",
}
"""Figures of a log, and those of a forecast that foretell them; all in GiB."""


def compare(forecast: Forecast, outcome: Outcome) -> tuple[tuple[str, float, float], ...]:
    """
    What was forecast beside what the log printed: name, forecast, seen.

    Until SGLang has sized its pools `max_running_requests` is what was asked for, and no measure.
    """
    told = {**forecast.figures, "kv_tokens": float(forecast.kv_tokens)}
    told["max_mamba_cache_size"] = float(forecast.max_mamba_cache_size)
    told["max_running_requests"] = float(forecast.max_running_requests)
    names = {**COMPARED, **{n: n for n in ("kv_tokens", "max_mamba_cache_size", "max_running_requests")}}
    if "max_total_num_tokens" not in outcome.figures:
        del names["max_running_requests"]
    return tuple(
        (name, told[ours], outcome.figures[name])
        for name, ours in names.items()
        if name in outcome.figures and told.get(ours)
    )
