"""
What SGLang makes of its flags before it starts a process: defaults, refusals and warnings of each release.

From server_args.py (0.5.6-0.5.23) and, later, arg_groups/speculative_hook.py and mamba_hook.py.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, Dict, List, Tuple

from .checkpoint import find_model
from .geometry import Geometry, read_geometry
from .refusals import ARGUMENTS_NEW, ARGUMENTS_OLD, RefusedError
from .release import release
from .settings import Settings
from .static_fraction import card_class, default_fraction, prefill_buckets

EAGLE_LIKE = ("EAGLE", "EAGLE3", "STANDALONE")
KNOWN = (*EAGLE_LIKE, "NEXTN", "NGRAM", "DFLASH", "DSPARK", "UNO")
RESET = (
    "Max running requests is reset to 48 for speculative decoding. You can override this by explicitly "
    "setting --max-running-requests."
)


@dataclass
class Resolved:
    """Resolved arguments by field name, the model's shape, and what was said on the way."""

    args: Dict[str, Any]
    era: Tuple[int, ...]
    geometry: Geometry
    config: Dict[str, Any]
    said: List[str] = field(default_factory=list)

    def refuse(self, kind: str, text: str = "") -> RefusedError:
        """The error that ends the start here."""
        return RefusedError(kind, text, ARGUMENTS_OLD if self.era < (0, 5, 18) else ARGUMENTS_NEW)

    def get(self, name: str) -> Any:  # noqa: ANN401  # a flag is of any type
        """A field, None where this release has no such flag."""
        return self.args.get(name)


def _switch(name: str, *, default: bool) -> bool:
    value = os.environ.get(name)
    return default if value is None else value.strip().lower() in ("1", "true", "yes", "y", "on")


def resolve(args: Dict[str, Any], settings: Settings) -> Resolved:
    """Resolved arguments, or RefusedError with SGLang's text (exit status 1)."""
    era = release(settings.version)
    config = find_model(str(args.get("model_path")), era)
    state = Resolved(dict(args), era, read_geometry(config), config)
    _defaults(state, settings)
    _context(state)
    _attention(state, settings)
    # Strategies of recurrent state are resolved before the draft's defaults, as model-specific adjustments.
    if state.geometry.hybrid:
        _mamba(state)
    _speculation(state)
    _caches(state)
    _fraction(state, settings)
    return state


def _defaults(state: Resolved, settings: Settings) -> None:
    args = state.args
    args["tp_size"] = args.get("tp_size") or 1
    args["dp_size"] = args.get("dp_size") or 1
    args["page_size"] = args.get("page_size") or 1
    args["host"] = args.get("host") or "127.0.0.1"
    args["port"] = args.get("port") or 30000
    args["tokenizer_path"] = args.get("tokenizer_path") or args["model_path"]
    args["served_model_name"] = args.get("served_model_name") or args["model_path"]
    if args.get("mamba_full_memory_ratio") is None:
        args["mamba_full_memory_ratio"] = 0.9
    if args.get("mamba_track_interval") is None:
        args["mamba_track_interval"] = 256
    args["max_prefill_tokens"] = args.get("max_prefill_tokens") or 16384
    args["watchdog_timeout"] = args.get("watchdog_timeout") or 300
    args["decode_log_interval"] = args.get("decode_log_interval") or 40
    chunk, batch = card_class(settings.gpu.total_mib, args["tp_size"], state.era)
    args["chunked_prefill_size"] = args.get("chunked_prefill_size") or chunk
    given = args.get("cuda_graph_max_bs_decode")
    if not given and state.era >= (0, 5, 22) and args.get("max_running_requests"):
        batch = min(batch, args["max_running_requests"])
    args["cuda_graph_max_bs_decode"] = given or batch


def _context(state: Resolved) -> None:
    derived, asked = state.geometry.context_len, state.get("context_length")
    if asked and asked > derived:
        text = (
            f"Warning: User-specified context_length ({asked}) is greater than the derived context_length "
            f"({derived}). This may lead to incorrect model outputs or CUDA errors. Note that the derived "
            "context_length may differ from max_position_embeddings in the model's config."
        )
        if not _switch("SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN", default=False):
            text += " To allow overriding this maximum, set the env var "
            raise state.refuse("ValueError", text + "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1")
        state.said.append(text)
    state.args["context_len"] = asked or derived


def _attention(state: Resolved, settings: Settings) -> None:
    if state.get("attention_backend"):
        return
    cap, hybrid = settings.gpu.compute_cap, state.geometry.hybrid
    default = "triton" if cap.startswith("10.") and hybrid else "flashinfer"
    state.args["attention_backend"] = "fa3" if cap.startswith("9.") else default
    word = "explicitly " if state.era < (0, 5, 7) else ""
    state.said.append(
        f"Attention backend not {word}specified. Use {state.args['attention_backend']} backend by default."
    )


def _speculation(state: Resolved) -> None:
    algorithm = state.get("speculative_algorithm")
    if algorithm is None:
        return
    name = str(algorithm).upper()
    if name not in KNOWN:
        raise state.refuse("ValueError", f"Unknown speculative algorithm name: {name}")
    state.args["speculative_algorithm"] = "EAGLE" if name == "NEXTN" else name
    if (0, 5, 14) <= state.era < (0, 5, 21) and "SGLANG_ENABLE_SPEC_V2" in os.environ:
        state.said.append(
            "SGLANG_ENABLE_SPEC_V2 has been removed: speculative decoding always runs the V2 worker. Use "
            "--disable-overlap-schedule to select the non-overlap (synchronous) path."
        )
    if state.get("max_running_requests") is None:
        state.args["max_running_requests"] = 48
        state.said.append(RESET)
    if state.args["speculative_algorithm"] in EAGLE_LIKE:
        _overlap(state)
        _draft_shape(state)


def _overlap(state: Resolved) -> None:
    era, branched = state.era, (state.get("speculative_eagle_topk") or 1) > 1
    second = era >= (0, 5, 14) or _switch("SGLANG_ENABLE_SPEC_V2", default=era >= (0, 5, 11))
    if era >= (0, 5, 14):
        if state.get("disable_overlap_schedule"):
            state.said.append(
                "Non-overlap (synchronous) spec v2 is used for eagle/eagle3/standalone speculative decoding."
            )
    elif era >= (0, 5, 11):
        # 0.5.11 and 0.5.12 take the first worker for a draft with branches.
        if not second or (branched and era < (0, 5, 13)):
            state.args["disable_overlap_schedule"] = True
    elif second:
        state.args["disable_overlap_schedule"] = False
        state.said.append(
            "Spec v2 is enabled for eagle/eagle3 speculative decoding and overlap schedule is turned on."
        )
        if branched and era >= (0, 5, 7):
            text = "Spec v2 currently only supports topk = 1 for speculative decoding."
            raise state.refuse("ValueError", text)
    else:
        state.args["disable_overlap_schedule"] = True
        state.said.append(
            "Overlap scheduler is disabled when spec v2 is off or using unsupported speculative algorithm. "
            "You can set env SGLANG_ENABLE_SPEC_V2=True to enable the experimental overlap scheduler. "
        )


def _draft_shape(state: Resolved) -> None:
    """Steps, topk and draft tokens: all three or none; topk 1 forces steps + 1 draft tokens."""
    names = ("speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens")
    steps, topk, drafts = (state.get(name) for name in names)
    if steps is None:
        if topk is not None or drafts is not None:
            raise state.refuse("AssertionError")
        # auto_choose_speculative_params: a chain from 0.5.8 on, branches before.
        steps, topk, drafts = (3, 1, 4) if state.era >= (0, 5, 8) else (5, 4, 8)
    elif topk is None:
        # The comparison `None > 1` in the same handler.
        raise state.refuse("TypeError", "'>' not supported between instances of 'NoneType' and 'int'")
    if topk == 1 and drafts != steps + 1:
        drafts = steps + 1
        state.said.append(
            "speculative_num_draft_tokens is adjusted to speculative_num_steps + 1 when "
            "speculative_eagle_topk == 1"
        )
    if topk > 1 and drafts is None:
        raise state.refuse("AssertionError")
    if topk > 1 and state.get("attention_backend") == "trtllm_mha":
        text = "trtllm_mha backend only supports topk = 1 for speculative decoding."
        raise state.refuse("ValueError", text)
    state.args.update({names[0]: steps, names[1]: topk, names[2]: drafts})


def _strategy(state: Resolved) -> str:
    """The strategy after `auto`: no_buffer before 0.5.14, extra_buffer from then on where overlap is on."""
    if state.era < (0, 5, 7):
        return "no_buffer"
    asked = state.get("mamba_radix_cache_strategy") or "auto"
    if asked != "auto":
        return str(asked)
    if state.era < (0, 5, 14):
        return "no_buffer"
    wanted = not state.get("disable_overlap_schedule") or state.args["page_size"] > 1
    if wanted and _triton_linear(state):
        return "extra_buffer"
    state.args["disable_overlap_schedule"] = True
    return "no_buffer"


def _triton_linear(state: Resolved) -> bool:
    return (state.get("linear_attn_backend") or "triton") == "triton"


def _mamba(state: Resolved) -> None:
    strategy = _strategy(state)
    state.args["mamba_radix_cache_strategy"] = strategy
    arch, radix_off = state.geometry.architectures[0], bool(state.get("disable_radix_cache"))
    if state.era >= (0, 5, 14):
        if not radix_off:
            _validate_0_5_14(state, strategy, arch)
        return
    if strategy.startswith("extra_buffer"):
        if radix_off and state.era >= (0, 5, 10):
            text = (
                "mamba extra_buffer is not compatible with --disable-radix-cache "
                "Overlap scheduling is already supported with no_buffer + disable_radix_cache. "
                "Please use --mamba-scheduler-strategy no_buffer instead."
            )
            raise state.refuse("ValueError", text)
        _validate_tracking(state)
    elif not radix_off:
        _no_buffer_before_0_5_14(state, arch)


def _validate_tracking(state: Resolved) -> None:
    drafts, interval = state.get("speculative_num_draft_tokens"), state.args["mamba_track_interval"]
    if drafts is not None and state.get("speculative_algorithm"):
        if state.get("mamba_radix_cache_strategy") == "extra_buffer_lazy":
            text = (
                "extra_buffer_lazy is not yet supported with speculative decoding. Use extra_buffer instead."
            )
            raise state.refuse("AssertionError", text)
        if interval < drafts:
            text = (
                f"mamba_track_interval {interval} must be greater than or equal to "
                f"speculative_num_draft_tokens {drafts}"
            )
            raise state.refuse("AssertionError", text)
    if interval % state.args["page_size"]:
        text = f"mamba_track_interval {interval} must be divisible by page_size {state.args['page_size']}"
        raise state.refuse("AssertionError", text)


def _no_buffer_before_0_5_14(state: Resolved, arch: str) -> None:
    if state.era >= (0, 5, 11):
        state.args["page_size"] = 1
    if state.get("speculative_algorithm") is None:
        state.args["disable_overlap_schedule"] = True
        state.said.append(
            "Disabling overlap schedule since mamba no_buffer is not compatible with overlap schedule, try "
            "to use --disable-radix-cache if overlap schedule is necessary"
        )
    elif state.era >= (0, 5, 10):
        text = (
            f"Speculative decoding for {arch} is not compatible with radix cache when using "
            "--mamba-scheduler-strategy no_buffer.To use radix cache with speculative decoding, please use "
            "--mamba-scheduler-strategy extra_buffer and set SGLANG_ENABLE_SPEC_V2=1."
        )
        raise state.refuse("ValueError", text)
    elif state.era >= (0, 5, 9):
        state.args["disable_radix_cache"] = True
        state.said.append(
            f"Disabling radix cache since speculative decoding for {arch} is not supported with radix cache "
            "yet."
        )


def _validate_0_5_14(state: Resolved, strategy: str, arch: str) -> None:
    if strategy == "no_buffer":
        if state.args["page_size"] != 1:
            raise state.refuse("AssertionError", "no_buffer only supports page_size=1.")
        if not state.get("disable_overlap_schedule"):
            text = "no_buffer do not support overlap schedule. Try to set disable_overlap_schedule=True."
            raise state.refuse("AssertionError", text)
        if state.get("attention_backend") == "trtllm_mha":
            raise state.refuse("AssertionError", "no_buffer do not support trtllm_mha attention backend.")
        return
    if not _triton_linear(state):
        raise state.refuse("AssertionError", f"extra_buffer is not supported for {arch}; use no_buffer.")
    drafts = state.get("speculative_num_draft_tokens") if state.get("speculative_algorithm") else None
    if drafts is not None:
        if strategy == "extra_buffer_lazy" and state.era < (0, 5, 17):
            raise state.refuse("AssertionError", "extra_buffer_lazy unsupported with spec.")
        if state.args["mamba_track_interval"] < drafts:
            raise state.refuse("AssertionError")
    if state.args["mamba_track_interval"] % state.args["page_size"]:
        raise state.refuse("AssertionError")


def _caches(state: Resolved) -> None:
    if state.get("enable_hierarchical_cache") and state.get("disable_radix_cache"):
        text = (
            "The arguments enable-hierarchical-cache and disable-radix-cache are mutually exclusive and "
            "cannot be used at the same time. Please use only one of them."
        )
        raise state.refuse("ValueError", text)
    if state.get("enable_linear_replayssm_spec"):
        if state.get("enable_linear_replayssm"):
            text = "--enable-linear-replayssm and --enable-linear-replayssm-spec are mutually exclusive."
            raise state.refuse("ValueError", text)
        if (state.get("speculative_eagle_topk") or 1) > 1:
            text = (
                "--enable-linear-replayssm-spec requires a linear draft chain (--speculative-eagle-topk in "
                "{None, 1}); the chunked verify kernel uses a strictly-lower causal mask and is invalid for "
                f"EAGLE tree verify. Got --speculative-eagle-topk={state.get('speculative_eagle_topk')!r}."
            )
            raise state.refuse("ValueError", text)


def prefill_graphs(state: Resolved) -> List[int]:
    """Token counts of the prefill graphs; empty where this release or a flag captures none."""
    era, shape = state.era, state.geometry
    largest = min(int(state.args["chunked_prefill_size"]), int(state.get("max_total_tokens") or 1 << 30))
    if (0, 5, 13) <= era < (0, 5, 17):
        largest = min(largest, int(state.get("context_length") or largest))
    backend = state.get("cuda_graph_backend_prefill")
    if backend:
        return [] if backend == "disabled" else prefill_buckets(largest)
    off = ("disable_cuda_graph", "disable_prefill_cuda_graph", "disable_piecewise_cuda_graph")
    first = (0, 5, 16) if shape.multimodal else (0, 5, 15) if shape.hybrid else (0, 5, 10)
    if era < first or any(state.get(name) for name in off):
        return []
    if era < (0, 5, 15) and state.get("enable_hierarchical_cache"):
        return []
    if era < (0, 5, 11) and state.get("speculative_algorithm"):
        return []
    return prefill_buckets(largest)


def decode_graphs_off(state: Resolved) -> bool:
    """Whether no decode or verify graph is captured."""
    backend = state.get("cuda_graph_backend_decode")
    return backend == "disabled" if backend else bool(state.get("disable_cuda_graph"))


def _fraction(state: Resolved, settings: Settings) -> None:
    args = state.args
    if args.get("mem_fraction_static") is None:
        # From 0.5.16 on nothing is reserved for graphs that are not captured (reserve_for_graph_mb).
        uncaptured = state.era >= (0, 5, 16) and decode_graphs_off(state)
        args["mem_fraction_static"] = default_fraction(
            state.era,
            settings.gpu.total_mib,
            args["chunked_prefill_size"],
            0 if uncaptured else args["cuda_graph_max_bs_decode"],
            algorithm=args.get("speculative_algorithm"),
            buckets=len(prefill_graphs(state)),
            geometry=state.geometry,
            tp=args["tp_size"],
        )
    if args.get("mamba_ssm_dtype") is None and args.get("enable_linear_replayssm_spec"):
        args["mamba_ssm_dtype"] = "float32"
    if args.get("mamba_ssm_dtype") is None:
        chosen = os.environ.get("SGLANG_MAMBA_SSM_DTYPE") if state.era >= (0, 5, 9) else None
        chosen = chosen or (state.geometry.state_dtype if state.era >= (0, 5, 9) else None)
        args["mamba_ssm_dtype"] = chosen or "float32"
