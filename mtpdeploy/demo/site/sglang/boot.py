"""
The story of a start, in the scheduler: groups, weights, pools, backend, graphs, draft, tree.

To 0.5.13 the target is finished, graphs included, before the draft is loaded; from 0.5.14 both are loaded
before any pool is sized. Durations are simulated seconds of a 27B model on one card.
"""

from __future__ import annotations

import os
import time
from typing import List, Tuple

from . import lines
from .acts import Acts
from .capture import WORKSPACE_GIB, Capture, draft_captures, failed_text, target_captures
from .checkpoint import Checkpoint, open_checkpoint
from .hostpools import host_bytes, host_pools
from .ledger import GIB, MIB, Ledger, OutOfMemoryError
from .refusals import BACKEND, DRAFT, GRAPHS, LOAD, POOLS, WORKER, Frame, RefusedError
from .resolve import Resolved
from .settings import Settings
from .sizing import UNNAMED_GIB, Demand, PoolError, Pools, size_pools

GROUPS_S, WEIGHTS_S, POOLS_S, BACKEND_S, DRAFT_S, TREE_S = 1.0, 30.0, 1.0, 0.5, 4.0, 0.2
# Pinning host memory takes about a minute for 100 GB (SGLang PR 31746).
PIN_S_PER_GB = 0.6
KV_TYPES = {"fp8_e4m3": (1.0, "torch.float8_e4m3fn"), "fp8_e5m2": (1.0, "torch.float8_e5m2")}
BEFORE_0_5_10 = ("triton", "trtllm_mha")
TO_0_5_15 = ("triton", "trtllm_mha", "fa4", "flashinfer")
SM_120 = ("triton", "trtllm_mha", "flashinfer")
TORCH_OOM = "torch.OutOfMemoryError"


def demand_of(
    state: Resolved, version: str, free_gib: float, weights_gib: float, draft_gib: float = 0.0
) -> Demand:
    """What the resolved flags ask of the pools, with so much free before a load of these weights."""
    args, algorithm = state.args, state.get("speculative_algorithm")
    drafts = int(args.get("speculative_num_draft_tokens") or 0) if algorithm else 0
    kv_itemsize, _ = KV_TYPES.get(str(args.get("kv_cache_dtype")), (2.0, ""))
    length = int(args.get("linear_replayssm_cache_len") or 16)
    if drafts and state.era < (0, 5, 20):
        length = drafts
    return Demand(
        version=version,
        geometry=state.geometry,
        free_gib=free_gib,
        weights_gib=weights_gib,
        mem_fraction_static=float(args["mem_fraction_static"]),
        draft_gib=draft_gib,
        draft_tokens=drafts,
        draft_path=bool(args.get("speculative_draft_model_path")) and algorithm in ("EAGLE", "EAGLE3"),
        topk=int(args.get("speculative_eagle_topk") or 1),
        steps=int(args.get("speculative_num_steps") or 0),
        max_running_requests=args.get("max_running_requests"),
        max_mamba_cache_size=args.get("max_mamba_cache_size"),
        max_total_tokens=args.get("max_total_tokens"),
        mamba_full_memory_ratio=float(args["mamba_full_memory_ratio"]),
        strategy=str(args.get("mamba_radix_cache_strategy") or "no_buffer"),
        radix=not args.get("disable_radix_cache"),
        overlap=not args.get("disable_overlap_schedule"),
        context_len=int(args["context_len"]),
        page_size=int(args["page_size"]),
        tp=int(args["tp_size"]),
        dp=int(args["dp_size"]) if args.get("enable_dp_attention") else 1,
        state_itemsize=4 if args.get("mamba_ssm_dtype") == "float32" else 2,
        kv_itemsize=kv_itemsize,
        replay_len=length if args.get("enable_linear_replayssm_spec") and state.geometry.hybrid else 0,
        skip_decode_lock=os.environ.get("SGLANG_OPT_MAMBA_SKIP_DECODE_LOCK") == "1",
    )


class Boot:
    """One start. `run` returns when the scheduler could serve; RefusedError is how it ends otherwise."""

    def __init__(self, state: Resolved, settings: Settings, ledger: Ledger, acts: Acts) -> None:
        self.state = state
        self.settings = settings
        self.ledger = ledger
        self.acts = acts
        self.era = state.era
        self.free_before_gib = 0.0
        self.pools = Pools(0, 0, 0)
        self.graph_gib = 0.0
        self.weights_gib = 0.0
        self.began = time.monotonic()
        self.model: Checkpoint

    def pause(self, seconds: float) -> None:
        """Let simulated seconds pass."""
        time.sleep(seconds / self.settings.speed)

    @property
    def speculative(self) -> bool:
        """Whether a draft belongs to this server."""
        return self.state.get("speculative_algorithm") in ("EAGLE", "EAGLE3", "STANDALONE")

    def run(self) -> None:
        """Everything up to the line that names the pools, and the radix tree."""
        self._groups()
        self.acts.at("weights")
        self._load_target()
        if self.speculative and self.era >= (0, 5, 14):
            self._load_draft()
        self.acts.at("loaded")
        self._pools()
        if self.speculative and self.era >= (0, 5, 14):
            self._draft_pools()
        self.acts.at("backend")
        self._backend()
        self.acts.at("graphs")
        self._capture(target_captures(self.state, self.pools))
        self.acts.at("draft")
        if self.speculative:
            if self.era < (0, 5, 14):
                self._load_draft()
                self._draft_pools()
            self._capture(draft_captures(self.state, self.pools))
        self._summary()
        self._tree()

    def _take(self, label: str, gib: float, frames: Tuple[Frame, ...]) -> None:
        try:
            self.ledger.allocate(label, gib * GIB)
        except OutOfMemoryError as error:
            raise RefusedError(TORCH_OOM, str(error), frames) from error

    def _groups(self) -> None:
        gpu = self.settings.gpu
        if self.state.args["tp_size"] > 1:
            text = (
                "CUDA error: invalid device ordinal\nGPU device may be out of range, do you have enough GPUs?"
            )
            raise RefusedError("torch.AcceleratorError", text, WORKER)
        said = lines.distributed(self.era, gpu.context_mib * MIB / GIB)
        if len(said) > 1:
            lines.log(said[0])
        self._take("context", gpu.context_mib * MIB / GIB, WORKER)
        self.pause(GROUPS_S)
        lines.log(said[-1])
        self.free_before_gib = self.ledger.free_gib()

    def _load_target(self) -> None:
        lines.log(f"Load weight begin. avail mem={self.ledger.free_gib():.2f} GB")
        self.model = open_checkpoint(str(self.state.args["model_path"]), self.state.config, self.era)
        self.weights_gib = self.model.weights_gib
        if self.era >= (0, 5, 10) and self.state.geometry.multimodal:
            lines.log("Multimodal attention backend not set. Use triton_attn.")
        self._shards("weights", self.model.weights_gib, WEIGHTS_S, self.model.architecture, WORKER + LOAD)

    def _load_draft(self) -> None:
        lines.log(f"Load weight begin. avail mem={self.ledger.free_gib():.2f} GB")
        self._shards("draft", self.model.draft_gib, DRAFT_S, self.model.draft_class, DRAFT + LOAD)

    def _shards(self, label: str, gib: float, seconds: float, kind: str, frames: Tuple[Frame, ...]) -> None:
        """Shard after shard into memory, with the bar SGLang shows."""
        count, began = self.model.shards, self.ledger.free_gib()
        name = lines.shard_label(self.era)
        lines.write("\n")
        lines.bar(name, 0, count, 0.0)
        for shard in range(1, count + 1):
            self.pause(seconds / count)
            self._take(label, gib / count, frames)
            lines.bar(name, shard, count, seconds * shard / count)
        lines.write("\n\n")
        free = self.ledger.free_gib()
        lines.log(lines.weights_end(self.era, kind, seconds, free, began - free))

    def _pools(self) -> None:
        dtype = KV_TYPES.get(str(self.state.get("kv_cache_dtype")), (2.0, "torch.bfloat16"))[1]
        if self.era < (0, 5, 13):
            lines.log(f"Using KV cache dtype: {dtype}")
        if self.era >= (0, 5, 18) and self.state.geometry.multimodal:
            lines.log(
                "Reserving 0.10 GB of the KV budget for post-sizing multimodal allocations "
                "(feature-transport pools + embedding cache)."
            )
        self._take("unnamed", UNNAMED_GIB, WORKER + POOLS)
        self.acts.at("pools")
        draft = self.model.draft_gib if self.speculative else 0.0
        demand = demand_of(
            self.state, self.settings.version, self.free_before_gib, self.model.weights_gib, draft
        )
        try:
            self.pools = size_pools(demand)
        except PoolError as error:
            raise RefusedError(error.kind, str(error), WORKER + POOLS) from error
        for warning in self.pools.warnings:
            lines.log(warning)
        if (0, 5, 13) <= self.era < (0, 5, 14):
            lines.log(
                "Max concurrent requests (per dp worker) from the finalized token capacity: "
                f"max_num_reqs={self.pools.requests}."
            )
        self.pause(POOLS_S)
        self._take("table", self.pools.table_gib, WORKER + POOLS)
        if self.state.geometry.hybrid:
            self._take("mamba", self.pools.mamba_gib, WORKER + POOLS)
            lines.log(lines.mamba(self.pools, speculative=self.speculative))
        self._take("kv", self.pools.k_gib + self.pools.v_gib, WORKER + POOLS)
        lines.log(lines.kv(self.era, self.pools.tokens, self.pools.k_gib, self.pools.v_gib, dtype))
        lines.log(f"Memory pool end. avail mem={self.ledger.free_gib():.2f} GB")

    def _draft_pools(self) -> None:
        dtype = KV_TYPES.get(str(self.state.get("kv_cache_dtype")), (2.0, "torch.bfloat16"))[1]
        half = self.pools.draft_kv_gib / 2
        self._take("draft kv", self.pools.draft_kv_gib, DRAFT + POOLS)
        lines.log(lines.kv(self.era, self.pools.tokens, half, half, dtype))
        lines.log(f"Memory pool end. avail mem={self.ledger.free_gib():.2f} GB")
        # Embedding and head are shared once the worker is built, its pool included (eagle_worker.py).
        self.ledger.release("draft", self.model.given_back_gib * GIB)

    def _backend(self) -> None:
        backend = str(self.state.args["attention_backend"])
        blackwell = int(self.settings.gpu.compute_cap.split(".")[0]) >= 10
        if backend == "fa3" and blackwell:
            text = (
                "FlashAttention v3 Backend requires SM>=80 and SM<=90. Please use "
                "`--attention-backend flashinfer`."
            )
            raise RefusedError("AssertionError", text, WORKER + BACKEND)
        if blackwell and self.state.geometry.hybrid:
            self._check_blackwell(backend)
        self._take("workspace", WORKSPACE_GIB.get(backend, 0.0), WORKER + BACKEND)
        self.pause(BACKEND_S)
        if self.state.geometry.hybrid:
            for line in lines.backends(self.era):
                lines.log(line)

    def _check_blackwell(self, backend: str) -> None:
        """Which backends hybrid models may use on sm_120 (attention_registry.py)."""
        if self.era < (0, 5, 10):
            allowed: Tuple[str, ...] = BEFORE_0_5_10
            text = (
                "triton or trtllm_mha backend are the only supported backends on Blackwell GPUs for hybrid "
                "GDN models, use --attention-backend triton or --attention-backend trtllm_mha to specify "
                "the backend."
            )
        elif self.era < (0, 5, 16):
            allowed = TO_0_5_15
            text = (
                "triton, trtllm_mha, fa4, or flashinfer backend are the only supported backends on Blackwell "
                "GPUs for hybrid GDN models, use --attention-backend to specify the backend."
            )
        else:
            allowed = SM_120
            got = f"prefill={backend}, decode={backend}"
            text = (
                "Only {'triton', 'trtllm_mha', 'flashinfer'} backends are supported on Blackwell GPUs for "
                f"hybrid GDN models. Got {got if self.era >= (0, 5, 18) else 'attention_backend=' + backend}."
            )
        if backend not in allowed:
            raise RefusedError("AssertionError", text, WORKER + BACKEND)

    def _capture(self, captures: List[Capture]) -> None:
        for capture in captures:
            self._capture_one(capture)

    def _capture_one(self, capture: Capture) -> None:
        before = self.ledger.free_gib()
        for line in lines.graph_begin(self.era, capture.name, capture.sizes, capture.tokens, before):
            lines.log(line)
        # Every size is captured, largest first, but a bar of fifty states says no more than one of twelve.
        sizes = sorted(capture.sizes, reverse=True)
        steps = min(len(sizes), 12)
        try:
            for step in range(steps):
                self.ledger.allocate("graphs", capture.gib / steps * GIB)
                self.pause(capture.seconds / steps)
                size, free = sizes[step * len(sizes) // steps], self.ledger.free_gib()
                noun = "num tokens (num_tokens" if capture.name.endswith("prefill") else "batches (bs"
                label = f"Capturing {noun}={size} avail_mem={free:.2f} GB)"
                lines.capture_bar(label, step + 1, steps, capture.seconds * (step + 1) / steps)
        except OutOfMemoryError as error:
            lines.write("\n")
            raise RefusedError(
                "Exception", failed_text(self.era, str(error), capture.name), WORKER + GRAPHS
            ) from error
        lines.write("\n")
        free = self.ledger.free_gib()
        self.graph_gib += before - free
        lines.log(
            lines.graph_end(
                self.era, capture.name, capture.sizes, capture.seconds, used=before - free, free=free
            )
        )

    def _summary(self) -> None:
        args = self.state.args
        lines.log(
            f"max_total_num_tokens={self.pools.tokens}, chunked_prefill_size={args['chunked_prefill_size']}, "
            f"max_prefill_tokens={args['max_prefill_tokens']}, max_running_requests={self.pools.requests}, "
            f"context_len={args['context_len']}, available_gpu_mem={self.ledger.free_gib():.2f} GB"
        )

    def _tree(self) -> None:
        hierarchical = bool(self.state.get("enable_hierarchical_cache"))
        if hierarchical:
            said = host_pools(self.state.args, self.era, self.pools, self.settings)
            for line in said:
                lines.log(line)
            wanted = host_bytes(self.state.args, self.era, self.pools, self.settings)
            self.pause(PIN_S_PER_GB * wanted / 1e9)
            self._kernel_limit(wanted)
        self.pause(TREE_S)
        if self.state.geometry.hybrid and not self.state.get("disable_radix_cache"):
            for line in lines.tree(self.era, hierarchical=hierarchical):
                lines.log(line)

    def _kernel_limit(self, wanted: float) -> None:
        """Before 0.5.21 a container's limit is not seen: the kernel ends the scheduler while it pins."""
        limit = self.settings.cgroup_gb * 1e9
        if limit and wanted > limit:
            os.kill(os.getpid(), 9)
