"""
What the flags of a server mean for memory, after SGLang's own defaults for the version and the card.
"""

from msgspec import Struct

from mtpdeploy.core.model import ModelShape
from mtpdeploy.core.server import ServerSpec
from mtpdeploy.engines.sglang.concessions import release
from mtpdeploy.engines.sglang.sizing.fraction import card_class, default_fraction
from mtpdeploy.engines.sglang.sizing.graphs import Captures, captures
from mtpdeploy.engines.sglang.sizing.strategy import is_on, scheduling, speculation

RESET_REQUESTS = 48
"""max_running_requests with speculation where none is given (0.5.6-0.5.23, server_args.py)."""

RATIO = 0.9
"""mamba_full_memory_ratio where none is given (0.5.6-0.5.23)."""

PAGE_LENGTH = 1
"""page_size where none is given; larger only for backends of the B200 (0.5.6-0.5.23)."""

REPLAY_LENGTH = 16
"""linear_replayssm_cache_len where none is given (0.5.15-0.5.23)."""

PREFILL_TOKENS = 16384
"""max_prefill_tokens where none are given; what prefill is sized by without chunks (0.5.6-0.5.23)."""

BYTES = {
    "float32": 4.0,
    "bfloat16": 2.0,
    "bf16": 2.0,
    "float16": 2.0,
    "half": 2.0,
    "float": 4.0,
    "fp8_e5m2": 1.0,
    "fp8_e4m3": 1.0,
    "fp4_e2m1": 0.5625,
}
"""Bytes of an element by the names that flags use; fp4 with a scale byte for each 16 elements."""

WITHOUT_DRAFT_MODEL = ("NGRAM",)
"""Algorithms that load no draft weights."""


class Asked(Struct, frozen=True):
    """
    Sizes that a server is asked for, by SGLang's own names where it has one.

    `draft_tokens` is 0 without speculation. `max_running_requests` is None where SGLang is to estimate it,
    `max_mamba_cache_size` and `max_total_tokens` where memory decides. Item sizes are in bytes. `attn_tp`
    is by how many cards attention is divided, `attn_dp` how many share out the requests. `prefill_buckets`
    are the sizes for which prefill is captured, `graph_batch` the largest captured decode batch, 0 for none.
    """

    version: str
    release: tuple[int, ...]
    model: ModelShape
    mem_fraction_static: float
    algorithm: str
    steps: int
    topk: int
    draft_tokens: int
    draft_path: bool
    max_running_requests: int | None
    max_mamba_cache_size: int | None
    max_total_tokens: int | None
    ratio: float
    strategy: str
    radix: bool
    overlap: bool
    context_length: int
    page_size: int
    tp: int
    pp: int
    attn_tp: int
    attn_dp: int
    state_itemsize: float
    conv_itemsize: float
    kv_itemsize: float
    replay: bool
    replay_length: int
    skip_decode_lock: bool
    chunk: int
    graph_batch: int
    prefill_buckets: int
    multimodal_reserve_mib: float

    @property
    def requests_per_worker(self) -> int | None:
        """
        The requests asked for, of one of the workers that share them out.
        """
        if self.max_running_requests is None:
            return None
        return max(1, self.max_running_requests // self.attn_dp)


def read_asked(server: ServerSpec, model: ModelShape, version: str, total_mib: int) -> Asked:
    """
    The sizes that `server` asks for on cards of `total_mib` MiB.
    """
    era = release(version)
    tp, pp, dp = (_int(server, name) or 1 for name in ("tp_size", "pp_size", "dp_size"))
    attn_dp = dp if server.flags.get("enable_dp_attention") else 1
    draft = speculation(server, model, era)
    scheduled = scheduling(server, model, era, draft, _int(server, "page_size") or PAGE_LENGTH)
    class_chunk, class_batch = card_class(total_mib, tp, era)
    chunk = _chunk(server, class_chunk)
    captured = captures(
        server, model, era, class_batch=class_batch, chunk=chunk, draft_tokens=draft.draft_tokens
    )
    return Asked(
        version=version,
        release=era,
        model=model,
        mem_fraction_static=server.number("mem_fraction_static")
        or _fraction(server, model, era, draft.algorithm, captured, total_mib=total_mib, chunk=chunk),
        algorithm=draft.algorithm,
        steps=draft.steps,
        topk=draft.topk,
        draft_tokens=draft.draft_tokens,
        draft_path=draft.path,
        max_running_requests=_int(server, "max_running_requests")
        or (RESET_REQUESTS if draft.draft_tokens else None),
        max_mamba_cache_size=_int(server, "max_mamba_cache_size"),
        max_total_tokens=_int(server, "max_total_tokens"),
        ratio=server.number("mamba_full_memory_ratio") or RATIO,
        strategy=scheduled.strategy,
        radix=scheduled.radix,
        overlap=scheduled.overlap,
        context_length=_int(server, "context_length") or model.context_length,
        page_size=scheduled.page_size,
        tp=tp,
        pp=pp,
        attn_tp=max(1, tp // attn_dp),
        attn_dp=attn_dp,
        state_itemsize=_state_itemsize(server, model, era),
        conv_itemsize=BYTES.get(server.env.get("SGLANG_MAMBA_CONV_DTYPE", ""), 2.0),
        kv_itemsize=_kv_itemsize(server, model),
        replay=_replays(server, model),
        replay_length=_int(server, "linear_replayssm_cache_len") or REPLAY_LENGTH,
        skip_decode_lock=era >= (0, 5, 17) and is_on(server.env.get("SGLANG_OPT_MAMBA_SKIP_DECODE_LOCK")),
        chunk=chunk,
        graph_batch=captured.decode_batch,
        prefill_buckets=captured.prefill_buckets,
        multimodal_reserve_mib=_multimodal_reserve(server, model, era),
    )


def _fraction(
    server: ServerSpec,
    model: ModelShape,
    era: tuple[int, ...],
    algorithm: str,
    captured: Captures,
    *,
    total_mib: int,
    chunk: int,
) -> float:
    tp, pp, dp = (_int(server, name) or 1 for name in ("tp_size", "pp_size", "dp_size"))
    return default_fraction(
        era,
        total_mib,
        chunk,
        captured.class_batch,
        algorithm=algorithm,
        buckets=captured.prefill_buckets,
        ranks=tp * pp,
        attn_dp=dp if server.flags.get("enable_dp_attention") else 1,
        latent=bool(model.latent_size),
        vision=None if server.flags.get("language_only") else model.vision,
    )


def _int(server: ServerSpec, flag: str) -> int | None:
    value = server.number(flag)
    return None if value is None else int(value)


def _replays(server: ServerSpec, model: ModelShape) -> bool:
    """
    Whether drafts are verified by replaying them, with or without a draft (0.5.17-0.5.23).
    """
    kinds = ("gdn", "kda")
    return (
        bool(server.flags.get("enable_linear_replayssm_spec"))
        and model.state is not None
        and model.state.kind in kinds
    )


def _chunk(server: ServerSpec, class_chunk: int) -> int:
    """
    The tokens of one prefill; without chunks (-1) the most that one prefill may have.
    """
    given = _int(server, "chunked_prefill_size")
    if given is not None and given <= 0:
        return _int(server, "max_prefill_tokens") or PREFILL_TOKENS
    return given or class_chunk


def _state_itemsize(server: ServerSpec, model: ModelShape, era: tuple[int, ...]) -> float:
    given = server.flags.get("mamba_ssm_dtype")
    if given is None and not server.flags.get("enable_linear_replayssm_spec") and era >= (0, 5, 9):
        given = server.env.get("SGLANG_MAMBA_SSM_DTYPE") or model.state_dtype or None
    return BYTES.get(str(given or "float32"), 4.0)


def _kv_itemsize(server: ServerSpec, model: ModelShape) -> float:
    given = str(server.flags.get("kv_cache_dtype") or "auto")
    if given == "auto":
        given = model.kv_cache_dtype or "bfloat16"
    return BYTES.get(given, 2.0)


def _multimodal_reserve(server: ServerSpec, model: ModelShape, era: tuple[int, ...]) -> float:
    """
    MiB kept of the pools for what a multimodal model allocates later (0.5.18 on, mm_runtime_reservation_gb).
    """
    if era < (0, 5, 18) or not model.is_multimodal:
        return 0.0
    cache = float(server.env.get("SGLANG_VLM_CACHE_SIZE_MB") or 100)
    transported = server.flags.get("mm_feature_transport") in ("cuda_ipc", "cuda_vmm")
    return cache + (1024.0 if transported else 0.0)
