"""
What is certain of flags beyond their kind: ranges of values, and which of them no concession changes.

Only what every release 0.5.6-0.5.23 refuses, or cannot start with, stands here: a value that some release
understands in a way of its own (`chunked_prefill_size = -1`) is left to SGLang.
"""

import math

from msgspec import Struct


class Range(Struct, frozen=True):
    """
    The numbers that a flag takes, from `least` to `most`; where `open_ends`, neither of the two itself.
    """

    least: float
    most: float | None = None
    open_ends: bool = False

    def holds(self, number: float) -> bool:
        """
        Whether a number lies within.
        """
        if self.open_ends:
            return number > self.least and (self.most is None or number < self.most)
        return number >= self.least and (self.most is None or number <= self.most)

    @property
    def lower(self) -> str:
        """
        The lower end in words, "" where there is none.
        """
        if self.least == -math.inf:
            return ""
        return f"{'above' if self.open_ends else 'from'} {self.least:g}"

    def __str__(self) -> str:
        if self.most is None:
            return self.lower
        return f"{self.lower} {'and below' if self.open_ends else 'to'} {self.most:g}"


SHARE = Range(0, 1, open_ends=True)
COUNT = Range(1)
AMOUNT = Range(0)
ANY = Range(-math.inf)

RANGES = {
    # A share of the GPU's memory (srt/server_args.py, help text): at 0 no pool fits, at 1 no activation does.
    "mem_fraction_static": SHARE,
    # srt/managers/tp_worker.py: "max_running_request is zero"; `max_queued_requests` beside it.
    "max_running_requests": COUNT,
    "max_queued_requests": COUNT,
    # Sizes of pools, pages and of one request: nothing fits into none.
    "max_total_tokens": COUNT,
    "max_prefill_tokens": COUNT,
    "context_length": COUNT,
    "page_size": COUNT,
    "max_mamba_cache_size": COUNT,
    # Processes and machines (srt/server_args.py: GPUs are counted by products of these).
    "tp_size": COUNT,
    "dp_size": COUNT,
    "pp_size": COUNT,
    "ep_size": COUNT,
    "nnodes": COUNT,
    "node_rank": AMOUNT,
    "base_gpu_id": AMOUNT,
    "tokenizer_worker_num": COUNT,  # "Tokenizer worker num must >= 1" (srt/server_args.py)
    "max_loras_per_batch": COUNT,  # "max_loras_per_batch must be positive" (srt/server_args.py)
    # Speculation: branches and tokens of a draft.
    "speculative_eagle_topk": COUNT,
    "speculative_num_draft_tokens": COUNT,
    "speculative_num_steps": AMOUNT,
    # Tokens between two tracked states, and of a cache of them (srt/server_args.py, defaults).
    "mamba_track_interval": COUNT,
    "linear_replayssm_cache_len": COUNT,
    # Divisors: every so many tokens or batches (srt/managers/scheduler_output_processor_mixin.py).
    "stream_interval": COUNT,
    "decode_log_interval": COUNT,
    # Amounts that may be nothing (srt/server_args.py, defaults).
    "hicache_size": AMOUNT,
    "hicache_ratio": AMOUNT,
    "mamba_full_memory_ratio": AMOUNT,
    "cpu_offload_gb": AMOUNT,
    "schedule_conservativeness": AMOUNT,
    "cuda_graph_max_bs_decode": AMOUNT,
    "cuda_graph_max_bs_prefill": AMOUNT,
    "cuda_graph_bs_decode": COUNT,
    "cuda_graph_bs_prefill": COUNT,
}
"""The ranges by the newest names of the flags; of a flag that takes a list each value lies within."""

FIXED = frozenset(
    {
        "model_path",
        "revision",
        "tokenizer_path",
        "served_model_name",
        "is_embedding",
        "host",
        "port",
        "grpc_port",
        "api_key",
        "admin_api_key",
        "ssl_keyfile",
        "ssl_certfile",
        "ssl_ca_certs",
        "ssl_keyfile_password",
        "dist_init_addr",
        "nnodes",
        "node_rank",
        "base_gpu_id",
        "device",
    }
)
"""
What is served, where, and to whom. A concession changes how well a server does what it was asked for; with
one of these changed it is another server, or one that its clients do not find.
"""
