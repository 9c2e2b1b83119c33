"""Failures as SGLang words them: the exception, the frames above it, and who prints them."""

from __future__ import annotations

from typing import List, Tuple

PACKAGES = "/opt/venv/lib/python3.12/site-packages"

Frame = Tuple[str, int, str, str]  # path below site-packages, line, function, source


class RefusedError(Exception):
    """
    SGLang gives up: `kind` is the exception class printed, `frames` the traceback above it.

    Raised while arguments are resolved it ends the main process with status 1; in the scheduler it becomes
    `Scheduler hit an exception` and status 137.
    """

    def __init__(self, kind: str, text: str, frames: Tuple[Frame, ...] = ()) -> None:
        super().__init__(text)
        self.kind = kind
        self.frames = frames


SCHEDULER: Tuple[Frame, ...] = (
    ("sglang/srt/managers/scheduler.py", 3130, "run_scheduler_process", "scheduler = Scheduler("),
    ("sglang/srt/managers/scheduler.py", 368, "__init__", "self.init_model_worker()"),
)
WORKER: Tuple[Frame, ...] = (
    *SCHEDULER,
    ("sglang/srt/managers/scheduler.py", 560, "init_model_worker", "self.init_tp_model_worker()"),
    (
        "sglang/srt/managers/scheduler.py",
        518,
        "init_tp_model_worker",
        "self.tp_worker = TpModelWorker(**worker_kwargs)",
    ),
    ("sglang/srt/managers/tp_worker.py", 247, "__init__", "self._init_model_runner()"),
    ("sglang/srt/managers/tp_worker.py", 330, "_init_model_runner", "self._model_runner = ModelRunner("),
    ("sglang/srt/model_executor/model_runner.py", 413, "__init__", "self.initialize(pre_model_load_memory)"),
)
DRAFT: Tuple[Frame, ...] = (
    *SCHEDULER,
    ("sglang/srt/managers/scheduler.py", 563, "init_model_worker", "self.maybe_init_draft_worker()"),
    (
        "sglang/srt/speculative/eagle_worker.py",
        151,
        "__init__",
        "super().__init__(",
    ),
)
_RUNNER = "sglang/srt/model_executor/model_runner.py"
LOAD: Tuple[Frame, ...] = (
    (_RUNNER, 498, "initialize", "self.load_model()"),
    (_RUNNER, 960, "load_model", "self.model = self.loader.load_model("),
    ("sglang/srt/model_loader/loader.py", 680, "load_model", "model = _initialize_model("),
)
POOLS: Tuple[Frame, ...] = (
    (_RUNNER, 559, "initialize", "self.init_memory_pool(pre_model_load_memory)"),
    (
        "sglang/srt/model_executor/model_runner_kv_cache_mixin.py",
        417,
        "init_memory_pool",
        "raise RuntimeError(",
    ),
)
BACKEND: Tuple[Frame, ...] = (
    (_RUNNER, 572, "initialize", "self.init_attention_backend()"),
    (
        "sglang/srt/layers/attention/attention_registry.py",
        203,
        "attn_backend_wrapper",
        'runner.server_args.attention_backend == "triton"',
    ),
)
GRAPHS: Tuple[Frame, ...] = (
    (_RUNNER, 581, "initialize", "self.init_device_graphs()"),
    (_RUNNER, 2158, "init_device_graphs", "self.graph_runner = graph_runners[self.device](self)"),
    ("sglang/srt/model_executor/cuda_graph_runner.py", 372, "__init__", "raise Exception("),
)
TREE: Tuple[Frame, ...] = (
    SCHEDULER[0],
    ("sglang/srt/managers/scheduler.py", 372, "__init__", "self.init_cache_with_memory_pool()"),
    (
        "sglang/srt/managers/scheduler.py",
        686,
        "init_cache_with_memory_pool",
        "self.tree_cache = HiRadixCache(params=params, server_args=server_args)",
    ),
)
SERVING: Tuple[Frame, ...] = (
    ("sglang/srt/managers/scheduler.py", 3152, "run_scheduler_process", "scheduler.event_loop_overlap()"),
    ("sglang/srt/managers/scheduler.py", 1150, "event_loop_overlap", "batch_result = self.run_batch(batch)"),
    (_RUNNER, 2410, "forward_extend", "return self.model.forward("),
)
ARGUMENTS_OLD: Tuple[Frame, ...] = (
    ("sglang/launch_server.py", 34, "<module>", "server_args = prepare_server_args(sys.argv[1:])"),
    ("sglang/srt/server_args.py", 5697, "prepare_server_args", "return ServerArgs.from_cli_args(raw_args)"),
    ("sglang/srt/server_args.py", 735, "__post_init__", "self._handle_model_specific_adjustments()"),
)
ARGUMENTS_NEW: Tuple[Frame, ...] = (
    ("sglang/launch_server.py", 84, "<module>", "run_server(server_args)"),
    ("sglang/launch_server.py", 29, "run_server", "server_args.resolve_once()"),
    ("sglang/srt/server_args.py", 277, "resolve_once", "run_resolution_pipeline(self)"),
)


def traceback_text(error: RefusedError, *, module: bool = False) -> str:
    """The traceback as Python prints it, without a newline at its end."""
    lines: List[str] = ["Traceback (most recent call last):"]
    if module:
        lines += [
            '  File "<frozen runpy>", line 198, in _run_module_as_main',
            '  File "<frozen runpy>", line 88, in _run_code',
        ]
    for path, line, function, source in error.frames:
        lines += [f'  File "{PACKAGES}/{path}", line {line}, in {function}', f"    {source}"]
        if source.endswith("("):
            lines.append("    " + "^" * len(source))
    text = str(error)
    lines.append(f"{error.kind}: {text}" if text else error.kind)
    return "\n".join(lines)
