"""
Random servers on random cards under every release, whose flags that release takes.
"""

import functools
import json
from collections.abc import Hashable
from pathlib import Path
from typing import Any, cast

from hypothesis import strategies as st
from msgspec import Struct

from mtpdeploy.core.memory import Card, Forecast, Weights
from mtpdeploy.core.server import FlagValue, ServerSpec
from mtpdeploy.core.wish import Wish
from mtpdeploy.demo.home import SimulatedGpu, SimulatedModel
from mtpdeploy.engines.sglang import SGLANG
from mtpdeploy.engines.sglang.concessions import release
from mtpdeploy.engines.sglang.sizing.forecast import forecast
from mtpdeploy.errors import ConfigError
from tests.engines.sglang.sizing.models import CONFIG_27B, CONFIG_DENSE, CONFIG_NEXT, shape

VERSIONS: list[str] = json.loads(
    (Path(SGLANG.command.__code__.co_filename).parent / "flags.json").read_text("utf-8")
)["versions"]
"""Every release of the flag table."""

GIB, MIB = 1 << 30, 1 << 20

MODELS = {
    "27b": SimulatedModel("27b", CONFIG_27B),
    "27b-fp8": SimulatedModel("27b-fp8", CONFIG_27B, weights_gib=29.09, draft_gib=5.29, given_back_gib=4.7),
    "next-fp8": SimulatedModel("next-fp8", CONFIG_NEXT, weights_gib=75.0, draft_gib=3.3, given_back_gib=1.2),
    "dense": SimulatedModel("dense", CONFIG_DENSE, 61.0, draft_gib=0.0, given_back_gib=0.0, mtp=False),
}
SHAPES = {name: shape(model.config) for name, model in MODELS.items()}

CARDS = [
    SimulatedGpu("RTX PRO 6000", 97887, 638, 666, "12.0"),
    SimulatedGpu("H100", 81559, 551, 644, "9.0"),
    SimulatedGpu("H200", 143771, 551, 644, "9.0"),
    SimulatedGpu("B200", 183359, 600, 650, "10.0"),
    SimulatedGpu("A100", 81920, 840, 500, "8.0"),
    SimulatedGpu("RTX 6000 Ada", 49140, 500, 450, "8.9"),
    SimulatedGpu("RTX 5090", 32607, 500, 450, "12.0"),
]

STRATEGIES = ("auto", "no_buffer", "extra_buffer", "extra_buffer", "extra_buffer_lazy")

FLAGS: dict[str, tuple[int, tuple[FlagValue, ...]]] = {
    # flag: in how many of ten servers, and its values
    "mem_fraction_static": (6, (0.6, 0.7, 0.75, 0.8, 0.85, 0.88, 0.9, 0.93, 0.95)),
    "max_running_requests": (6, (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 128, 512)),
    "mamba_radix_cache_strategy": (6, STRATEGIES),
    "disable_radix_cache": (2, (True,)),
    "disable_overlap_schedule": (2, (True,)),
    "mamba_ssm_dtype": (2, ("float32", "bfloat16")),
    "kv_cache_dtype": (3, ("auto", "bfloat16", "fp8_e4m3", "fp8_e5m2")),
    "max_mamba_cache_size": (2, (1, 4, 16, 43, 100, 300)),
    "max_total_tokens": (1, (1000, 100_000)),
    "mamba_full_memory_ratio": (2, (0.5, 0.9, 2.0)),
    "context_length": (2, (8192, 32_768, 131_072, 400_000)),
    "page_size": (1, (1, 16, 64)),
    "chunked_prefill_size": (1, (2048, 4096, 16_384)),
    "cuda_graph_max_bs_decode": (1, (8, 64, 300)),
    "disable_cuda_graph": (1, (True,)),
    "cuda_graph_backend_prefill": (1, ("disabled",)),
    "enable_linear_replayssm_spec": (1, (True,)),
    "mamba_track_interval": (1, (2, 64, 100, 256)),
    "attention_backend": (5, ("triton",)),
}

ENVIRONMENT = {
    "SGLANG_ENABLE_SPEC_V2": ("0", "1"),
    "SGLANG_OPT_MAMBA_SKIP_DECODE_LOCK": ("1",),
    "SGLANG_MAMBA_SSM_DTYPE": ("bfloat16",),
}

WISHES = [
    Wish(),
    Wish(requests=16),
    Wish(context=32_768),
    Wish(tokens=300_000),
    Wish(requests=4, context=65_536),
    Wish(requests=1),
]


class RandomStart(Struct, frozen=True):
    """
    A server, the release, the model and the card that it is to run on.
    """

    version: str
    model: str
    server: ServerSpec
    gpu: SimulatedGpu

    @property
    def free(self) -> int:
        """
        What is free before the weights.
        """
        return (self.gpu.torch_total_mib - self.gpu.context_mib) * MIB

    def forecast(self, server: ServerSpec | None = None, free: int | None = None) -> Forecast:
        """
        What the planner says of this server or another, from the loads as the demo box has them.
        """
        model = MODELS[self.model]
        weights = Weights(int(model.weights_gib * GIB), int(model.draft_gib * GIB))
        card = Card(self.gpu.total_mib, self.free if free is None else max(0, free), self.gpu.compute_cap)
        return forecast(server or self.server, SHAPES[self.model], self.version, card, weights)


@st.composite
def starts(draw: st.DrawFn) -> RandomStart:
    """
    One of them; flags that the release does not take are left out.
    """
    version = draw(st.sampled_from(VERSIONS))
    known = [name for name in MODELS if not name.startswith("27b") or release(version) >= (0, 5, 9)]
    model = draw(st.sampled_from(known))
    flags: dict[str, Any] = {"model_path": "m"}
    if model != "dense":
        flags |= draw(drafts())
    for name, (share, values) in FLAGS.items():
        if draw(st.integers(1, 10)) <= share:
            flags[name] = draw(st.sampled_from(values))
    env = {
        name: draw(st.sampled_from(values))
        for name, values in ENVIRONMENT.items()
        if draw(st.integers(1, 10)) <= 2
    }
    server = ServerSpec(name="m", flags=flags, env=env)
    return RandomStart(version, model, taken(server, version), draw(st.sampled_from(CARDS)))


@st.composite
def drafts(draw: st.DrawFn) -> dict[str, FlagValue]:
    """
    The speculative flags: none, the algorithm alone, or all of them.
    """
    kind = draw(st.integers(1, 10))
    if kind <= 2:
        return {}
    found: dict[str, FlagValue] = {"speculative_algorithm": draw(st.sampled_from(["EAGLE", "NEXTN"]))}
    if kind <= 4:
        return found
    steps, topk = draw(st.sampled_from([1, 2, 3, 5])), draw(st.sampled_from([1, 1, 1, 2, 4]))
    found |= {"speculative_num_steps": steps, "speculative_eagle_topk": topk}
    return {**found, "speculative_num_draft_tokens": steps + 1 if topk == 1 else 8}


def taken(server: ServerSpec, version: str) -> ServerSpec:
    """
    The server without what the release does not know.
    """
    unknown = [
        name for name, value in server.flags.items() if not is_taken(name, cast("Hashable", value), version)
    ]
    return server.with_flags(**dict.fromkeys(unknown))


@functools.cache
def is_taken(name: str, value: Hashable, version: str) -> bool:
    """
    Whether a release knows a flag and takes its value.
    """
    try:
        SGLANG.command(ServerSpec(name="m", flags={name: cast("FlagValue", value)}), "python3", version)
    except ConfigError:
        return False
    return True
