"""
What the flags of a server mean for memory, after SGLang's own defaults for the version and the card.
"""

from msgspec import Struct

from mtpdeploy.core.model import ModelShape
from mtpdeploy.core.server import ServerSpec
from mtpdeploy.engines.sglang.concessions import STRATEGY, release
from mtpdeploy.engines.sglang.sizing.fraction import card_class, default_fraction, prefill_buckets

RESET_REQUESTS = 48
"""max_running_requests with speculation where none is given (0.5.6-0.5.23, server_args.py)."""

RATIO = 0.9
"""mamba_full_memory_ratio where none is given (0.5.6-0.5.23)."""

PAGE_LENGTH = 1
"""page_size where none is given; larger only for backends of the B200 (0.5.6-0.5.23)."""

REPLAY_LENGTH = 16
"""linear_replayssm_cache_len where none is given (0.5.15-0.5.23)."""

DRAFT = (3, 1, 4)
"""Steps, top-k and draft tokens where EAGLE is given none of them (0.5.6-0.5.23, auto_choose)."""

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

STEPLESS = ("NGRAM", "DFLASH", "DSPARK", "UNO")
"""Algorithms whose draft tokens do not follow from steps."""

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
    fraction_given: bool
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
    algorithm, steps, topk, drafts = _speculation(server)
    strategy, overlap, radix = _scheduling(server, model, era, bool(drafts))
    class_chunk, class_batch = card_class(total_mib, tp, era)
    chunk = _int(server, "chunked_prefill_size") or class_chunk
    batch = _graph_batch(server, era, class_batch)
    buckets = _prefill_buckets(server, model, era, chunk, drafts)
    given = server.number("mem_fraction_static")
    fraction = given or default_fraction(
        era,
        total_mib,
        chunk,
        batch or class_batch,
        algorithm=algorithm,
        buckets=buckets,
        ranks=tp * pp,
        attn_dp=attn_dp,
        vision=model.vision,
    )
    return Asked(
        version=version,
        release=era,
        model=model,
        mem_fraction_static=fraction,
        fraction_given=given is not None,
        algorithm=algorithm,
        steps=steps,
        topk=topk,
        draft_tokens=drafts,
        draft_path=bool(server.flags.get("speculative_draft_model_path")),
        max_running_requests=_int(server, "max_running_requests") or (RESET_REQUESTS if drafts else None),
        max_mamba_cache_size=_int(server, "max_mamba_cache_size"),
        max_total_tokens=_int(server, "max_total_tokens"),
        ratio=server.number("mamba_full_memory_ratio") or RATIO,
        strategy=strategy,
        radix=radix,
        overlap=overlap,
        context_length=_int(server, "context_length") or model.context_length,
        page_size=_int(server, "page_size") or PAGE_LENGTH,
        tp=tp,
        pp=pp,
        attn_tp=max(1, tp // attn_dp),
        attn_dp=attn_dp,
        state_itemsize=_state_itemsize(server, model, era),
        conv_itemsize=BYTES.get(server.env.get("SGLANG_MAMBA_CONV_DTYPE", ""), 2.0),
        kv_itemsize=_kv_itemsize(server, model),
        replay=bool(drafts) and bool(server.flags.get("enable_linear_replayssm_spec")),
        replay_length=_int(server, "linear_replayssm_cache_len") or REPLAY_LENGTH,
        skip_decode_lock=era >= (0, 5, 17) and is_on(server.env.get("SGLANG_OPT_MAMBA_SKIP_DECODE_LOCK")),
        chunk=chunk,
        graph_batch=batch,
        prefill_buckets=buckets,
        multimodal_reserve_mib=_multimodal_reserve(server, model, era),
    )


def is_on(value: str | None) -> bool:
    """
    Whether a variable switches something on, as SGLang reads it (environ.py, EnvBool).
    """
    return (value or "").strip().lower() in ("1", "true", "yes", "y", "on", "t")


def _int(server: ServerSpec, flag: str) -> int | None:
    value = server.number(flag)
    return None if value is None else int(value)


def _speculation(server: ServerSpec) -> tuple[str, int, int, int]:
    mtp = server.mtp
    if mtp is None:
        return "", 0, 1, 0
    algorithm = "EAGLE" if mtp.algorithm.upper() == "NEXTN" else mtp.algorithm.upper()
    if algorithm in STEPLESS:
        return algorithm, mtp.num_steps or 0, mtp.eagle_topk or 1, mtp.num_draft_tokens or DRAFT[2]
    if mtp.num_steps is None and mtp.eagle_topk is None and mtp.num_draft_tokens is None:
        return algorithm, *DRAFT
    topk = mtp.eagle_topk or 1
    steps = mtp.num_steps or max(1, (mtp.num_draft_tokens or DRAFT[2]) - 1)
    # With one branch SGLang itself sets the draft tokens to steps + 1.
    drafts = steps + 1 if topk == 1 else mtp.num_draft_tokens or steps + 1
    return algorithm, steps, topk, drafts


def _scheduling(
    server: ServerSpec, model: ModelShape, era: tuple[int, ...], speculative: bool
) -> tuple[str, bool, bool]:
    """
    The state strategy, whether the overlap scheduler runs, and whether the radix cache is used.
    """
    radix = not server.flags.get("disable_radix_cache")
    overlap = _overlap(server, era, speculative)
    if model.state is None:
        return "", overlap, radix
    strategy = str(server.flags.get(STRATEGY) or "auto") if era >= (0, 5, 7) else "no_buffer"
    if strategy == "auto":
        strategy = "extra_buffer" if era >= (0, 5, 14) and overlap else "no_buffer"
    if strategy == "no_buffer" and speculative and (0, 5, 8) <= era < (0, 5, 10):
        # Speculation silently takes the radix cache with it in these two releases.
        radix = False
    return strategy, overlap, radix


def _overlap(server: ServerSpec, era: tuple[int, ...], speculative: bool) -> bool:
    asked = not server.flags.get("disable_overlap_schedule")
    if not speculative or era >= (0, 5, 14):
        return asked
    switch = server.env.get("SGLANG_ENABLE_SPEC_V2")
    return is_on(switch) if switch is not None else era >= (0, 5, 11)


def _graph_batch(server: ServerSpec, era: tuple[int, ...], class_batch: int) -> int:
    off = ("disable_cuda_graph", "disable_decode_cuda_graph")
    if any(server.flags.get(name) for name in off):
        return 0
    if server.flags.get("cuda_graph_backend_decode") == "disabled":
        return 0
    listed = server.flags.get("cuda_graph_bs_decode")
    if isinstance(listed, list) and listed:
        return max(int(size) for size in listed)
    given, requests = _int(server, "cuda_graph_max_bs_decode"), _int(server, "max_running_requests")
    if given is None and era >= (0, 5, 22) and requests:
        return min(class_batch, requests)
    return given or class_batch


def _prefill_buckets(
    server: ServerSpec, model: ModelShape, era: tuple[int, ...], chunk: int, drafts: int
) -> int:
    """
    For how many sizes prefill is captured: by default for hybrids of text from 0.5.15, of images from 0.5.16.
    """
    if _prefill_graphs_off(server):
        return 0
    if era < (0, 5, 10):
        return prefill_buckets(chunk) if server.flags.get("enable_piecewise_cuda_graph") else 0
    first = (0, 5, 16) if model.is_multimodal else (0, 5, 15) if model.state else (0, 5, 10)
    if era < first or (era < (0, 5, 11) and drafts):
        return 0
    return prefill_buckets(chunk)


def _prefill_graphs_off(server: ServerSpec) -> bool:
    switches = ("disable_cuda_graph", "disable_prefill_cuda_graph", "disable_piecewise_cuda_graph")
    if server.flags.get("cuda_graph_backend_prefill") == "disabled":
        return True
    return any(server.flags.get(name) for name in switches)


def _state_itemsize(server: ServerSpec, model: ModelShape, era: tuple[int, ...]) -> float:
    given = server.flags.get("mamba_ssm_dtype")
    replaying = server.flags.get("enable_linear_replayssm_spec") and server.mtp is not None
    if given is None and not replaying and era >= (0, 5, 9):
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
