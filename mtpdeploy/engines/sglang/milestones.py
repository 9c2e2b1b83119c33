"""
What SGLang's log lines prove: stages, and the figures printed with them.

The patterns hold for 0.5.6 to 0.5.23; what differs between versions (`#tokens` after `dtype`, `cuda`
or `CUDA graph`, `Time elapsed` or `elapsed`) is left out of them. "GB" in these lines is GiB, as
SGLang divides by 2^30, hence the names of the figures.
"""

import re
from collections.abc import Callable

from msgspec import Struct

from mtpdeploy.core.diagnosis import Stage

Figures = dict[str, float]

HEAD = 160
"""Characters at the beginning of a message within which it shows what it is."""

_BEGINNINGS = frozenset(
    (
        "Load",
        "Mamb",
        "KV C",
        "Memo",
        "Capt",
        "max_",
        "The ",
        "Sche",
        "Init",
        "Rece",
        "SIGQ",
        "kill",
        "Subp",
        "Rank",
        "Exit",
        "serv",
        "ERRO",
        "WARN",
        "CRIT",
        "DEBU",
        "Uvic",
        "SIGT",
        "Sign",
        "Grac",
        "Heal",
        "Dete",
        "nvcc",
    )
)
"""The first four characters of every message that is looked at. The HTTP requests of `INFO` are not."""

ARGUMENTS = (
    "mem_fraction_static",
    "max_running_requests",
    "max_mamba_cache_size",
    "context_length",
    "speculative_num_steps",
    "speculative_eagle_topk",
    "speculative_num_draft_tokens",
    "cuda_graph_max_bs",
    "cuda_graph_max_bs_decode",
    "chunked_prefill_size",
    "tp_size",
    "dp_size",
    "hicache_size",
    "watchdog_timeout",
    "speculative_algorithm",
    "attention_backend",
    "mamba_scheduler_strategy",
    "mamba_radix_cache_strategy",
    "mamba_ssm_dtype",
    "kv_cache_dtype",
    "disable_radix_cache",
    "disable_overlap_schedule",
    "enable_hierarchical_cache",
)
"""What is read from the server_args line. Never `api_key`: the line holds it in the clear."""

FOR_RUNGS = (
    "page_size",
    "hicache_ratio",
    "disable_cuda_graph",
    "disable_decode_cuda_graph",
    "disable_prefill_cuda_graph",
    "cuda_graph_backend_decode",
    "cuda_graph_backend_prefill",
    "prefill_attention_backend",
    "decode_attention_backend",
    "speculative_draft_attention_backend",
    "speculative_draft_model_path",
    "speculative_draft_model_quantization",
    "sampling_backend",
    "linear_attn_backend",
    "linear_attn_decode_backend",
    "linear_attn_prefill_backend",
    "linear_attn_verify_backend",
    "enable_linear_replayssm",
    "enable_linear_replayssm_spec",
    "mamba_track_interval",
    "cpu_offload_gb",
    "disable_custom_all_reduce",
)
"""What else is read there: what concessions change, and nobody needs to read in a log of stages."""

_ARGUMENT = re.compile(
    r"[({ ]'?(" + "|".join(ARGUMENTS + FOR_RUNGS) + r")'?(?:=|: )('[^']*'|[-+.\w]+)",
)
_AVAIL = re.compile(r"avail mem=(-?[\d.]+) GB")
_USAGE = re.compile(r"mem usage=(-?[\d.]+) GB")
_ELAPSED = re.compile(r"elapsed(?:=|: )([\d.]+)")
_TYPE = re.compile(r"type=(\w+)")
_TOKENS = re.compile(r"#tokens: (\d+)")
_SIZE = re.compile(r"\b(K|V|KV) size: ([\d.]+) GB")
_STATE = re.compile(r"(max_mamba_cache_size|\w+ size): ([\d.]+)")
_SIZED = re.compile(
    r"(max_total_num_tokens|chunked_prefill_size|max_prefill_tokens|max_running_requests|context_len"
    r"|available_gpu_mem)=(-?\d+(?:\.\d+)?)"
)
_GRAPH = re.compile(r"Capture (.{0,60}?)(?:cuda|CUDA) graph (begin|end)\b")
_CAPPED = re.compile(r"max_running_requests (?:is capped to|was reduced from the requested \d+ to) (\d+)")
_BAR = re.compile(
    r"^\s*(?P<what>[^|%]{1,120}?):\s*\d+%(?:\|| Completed \|).*?(?P<n>[\d.]+\w?)/(?P<m>[\d.]+\w?) \["
)
_ECHO = re.compile(
    r'INFO: +\S+ - "GET /(?:health|health_generate|ready) HTTP/[\d.]+" \d+'
    r"|(?:^|\] )Health check failed\. Server"
)
_DRAFT_TYPES = ("MTP", "NextN", "Nextn", "NEXTN")
"""How the class names of SGLang's MTP models end (sglang/srt/models of 0.5.6-0.5.23)."""

_BARE = re.compile("rror|%|Traceback|atchdog|fault")
"""What a line without a time stamp has near its beginning where it matters: failures, bars, tracebacks."""


def is_echo(text: str) -> bool:
    """
    Whether a line only says that somebody asked for the server's health: an access line of uvicorn, or what
    SGLang says where no token came in time. A server that hangs prints them for ever, a line a question.

    Source: sglang 0.5.9 and 0.5.23 entrypoints/http_server.py, real logs of 0.5.23.
    """
    return _ECHO.search(text, 0, HEAD) is not None


class StageLine(Struct, frozen=True):
    """
    A stage that one line proves, with its figures; `draft` says that the line names a draft model.
    """

    stage: Stage
    figures: Figures = {}
    draft: bool = False


def interesting(text: str) -> bool:
    """
    Whether a line can prove anything at all: looked at for every one of millions of lines.

    A record tells by how its message begins, any other line by its first `HEAD` characters; the rest is
    searched for one thing only, a record that begins within the line (processes share the log).
    Tests hold this against the catalogue and the milestones.
    """
    if "\r" in text:
        return True
    if not text.startswith("[20"):
        return _BARE.search(text, 0, HEAD) is not None or "[20" in text
    close = text.find("] ", 20, 64)
    if close < 0 or text.find("[20", close) >= 0:
        return True
    begin = text[close + 2 : close + 6]
    if begin in _BEGINNINGS:
        return True
    if begin == "INFO":
        return text[close + 6] != ":" or text.startswith("Uvicorn", close + 12)
    head = text[close : close + HEAD]
    return "llocated" in head or "atchdog" in head or " hit an" in head


def stage_of(body: str) -> StageLine | None:
    """
    The stage that a record's message proves, or None. `body` is the text after the time stamp.
    """
    for start, read in _READERS:
        if body.startswith(start):
            return read(body)
    if "KV Cache is allocated." in body[:120]:
        return _kv(body)
    return None


def tells_arguments(text: str) -> bool:
    """
    Whether a record, or its message alone, prints the resolved arguments. Code in a traceback, which names
    them as well, does not.
    """
    at = text.find("server_args=", 0, HEAD)
    return at >= 0 and text.startswith(("ServerArgs(", "{"), at + len("server_args="))


def arguments_of(body: str) -> dict[str, str]:
    """
    The arguments worth knowing from a server_args line, in either of its forms (0.5.6, 0.5.19).
    """
    found: dict[str, str] = {}
    for name, value in _ARGUMENT.findall(body):
        found.setdefault(name, value.strip("'"))
    return found


def release_of(body: str) -> str:
    """
    Which releases print a server_args line of this form, in words.

    Source: sglang 0.5.18 and 0.5.19, entrypoints/engine.py and real logs of 0.5.12 and 0.5.23.
    """
    return "0.5.18 or older" if "server_args=ServerArgs(" in body else "0.5.19 or newer"


def numbers(arguments: dict[str, str]) -> Figures:
    """
    Those arguments that are numbers.
    """
    found: Figures = {}
    for name, value in arguments.items():
        try:
            found[name] = float(value)
        except ValueError:
            continue
    return found


def effective_requests(body: str) -> float | None:
    """
    How many running requests are left where SGLang reduced them (said from 0.5.14 on), or None.
    """
    match = _CAPPED.search(body)
    return float(match[1]) if match else None


def progress_of(line: str) -> str:
    """
    What a progress bar says: `shards 3/12`, `graphs 10/52`; empty where it is none.
    """
    match = _BAR.match(line)
    if match is None:
        return ""
    what = match["what"].strip()
    if "shard" in what:
        what = "shards"
    elif what.startswith("Capturing"):
        what = "graphs"
    return f"{what} {match['n']}/{match['m']}"


def captures_prefill(body: str) -> bool:
    """
    Whether a capture line speaks of the prefill graphs (0.5.14 on; `piecewise` before).
    """
    match = _GRAPH.match(body)
    return match is not None and ("prefill" in match[1] or "piecewise" in match[1])


def _memory(body: str) -> Figures:
    named = (("avail_gib", _AVAIL), ("usage_gib", _USAGE), ("elapsed_s", _ELAPSED))
    return {name: float(match[1]) for name, pattern in named if (match := pattern.search(body))}


def _weights_begun(body: str) -> StageLine:
    return StageLine(Stage.WEIGHTS_BEGUN, _memory(body))


def _weights_loaded(body: str) -> StageLine | None:
    kind = _TYPE.search(body)
    if kind is None:
        return None
    return StageLine(Stage.WEIGHTS_LOADED, _memory(body), draft=kind[1].endswith(_DRAFT_TYPES))


def _state(body: str) -> StageLine:
    names = {"conv_state size": "conv_state_gib", "ssm_state size": "ssm_state_gib"}
    names["intermediate_ssm_state_cache size"] = "intermediate_ssm_gib"
    names["intermediate_conv_window_cache size"] = "intermediate_conv_gib"
    figures = {names.get(name, name): float(value) for name, value in _STATE.findall(body)}
    return StageLine(Stage.STATE_ALLOCATED, figures)


def _kv(body: str) -> StageLine:
    figures = {f"{name.lower()}_gib": float(value) for name, value in _SIZE.findall(body)}
    if tokens := _TOKENS.search(body):
        figures["kv_tokens"] = float(tokens[1])
    return StageLine(Stage.KV_ALLOCATED, figures)


def _pools(body: str) -> StageLine:
    return StageLine(Stage.POOLS_READY, _memory(body))


def _graphs(body: str) -> StageLine | None:
    match = _GRAPH.match(body)
    if match is None:
        return None
    stage = Stage.GRAPHS_BEGUN if match[2] == "begin" else Stage.GRAPHS_CAPTURED
    return StageLine(stage, _memory(body))


def _sized(body: str) -> StageLine:
    figures = {name: float(value) for name, value in _SIZED.findall(body)}
    if "available_gpu_mem" in figures:
        figures["available_gpu_mem_gib"] = figures.pop("available_gpu_mem")
    return StageLine(Stage.SIZED, figures)


def _listening(body: str) -> StageLine | None:
    return StageLine(Stage.LISTENING) if "Uvicorn running on" in body else None


def _ready(body: str) -> StageLine | None:
    return StageLine(Stage.READY) if "fired up and ready to roll" in body else None


_READERS: tuple[tuple[str, Callable[[str], StageLine | None]], ...] = (
    ("Load weight begin.", _weights_begun),
    ("Load weight end.", _weights_loaded),
    ("Mamba Cache is allocated.", _state),
    ("KV Cache is allocated.", _kv),
    ("Memory pool end.", _pools),
    ("Capture ", _graphs),
    ("max_total_num_tokens=", _sized),
    ("INFO: ", _listening),
    ("Uvicorn running on", _listening),
    ("The server is fired up", _ready),
)
