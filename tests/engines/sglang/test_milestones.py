import pytest

from mtpdeploy.core.diagnosis import Stage
from mtpdeploy.engines.sglang import milestones, signatures
from tests.engines.sglang import recorded

LINES = [
    # 0.5.6 - 0.5.9
    ("Load weight begin. avail mem=94.32 GB", Stage.WEIGHTS_BEGUN, {"avail_gib": 94.32}),
    (
        "Load weight end. type=Qwen3NextForCausalLM, dtype=bfloat16, avail mem=14.66 GB, mem usage=79.01 GB.",
        Stage.WEIGHTS_LOADED,
        {"avail_gib": 14.66, "usage_gib": 79.01},
    ),
    (
        (
            "Load weight end. elapsed=35.10 s, type=Qwen3_5ForConditionalGeneration, dtype=torch.bfloat16, "
            "avail mem=43.20 GB, mem usage=51.05 GB."
        ),
        Stage.WEIGHTS_LOADED,
        {"elapsed_s": 35.1, "avail_gib": 43.2, "usage_gib": 51.05},
    ),
    # 0.5.10 on
    (
        (
            "Load weight end. elapsed=12.00 s, type=Qwen3_5ForConditionalGeneration, quant=fp8, fmt=e4m3, "
            "avail mem=66.00 GB, mem usage=28.30 GB."
        ),
        Stage.WEIGHTS_LOADED,
        {"elapsed_s": 12.0, "avail_gib": 66.0, "usage_gib": 28.3},
    ),
    (
        (
            "Mamba Cache is allocated. max_mamba_cache_size: 124, conv_state size: 0.34GB, "
            "ssm_state size: 17.58GB intermediate_ssm_state_cache size: 2.11GB "
            "intermediate_conv_window_cache size: 0.02GB "
        ),
        Stage.STATE_ALLOCATED,
        {
            "max_mamba_cache_size": 124.0,
            "conv_state_gib": 0.34,
            "ssm_state_gib": 17.58,
            "intermediate_ssm_gib": 2.11,
            "intermediate_conv_gib": 0.02,
        },
    ),
    (
        "KV Cache is allocated. #tokens: 132000, K size: 4.03 GB, V size: 4.03 GB",
        Stage.KV_ALLOCATED,
        {"kv_tokens": 132000.0, "k_gib": 4.03, "v_gib": 4.03},
    ),
    # 0.5.13 on, and with a label from 0.5.17
    (
        "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 330323, K size: 10.08 GB, V size: 10.08 GB",
        Stage.KV_ALLOCATED,
        {"kv_tokens": 330323.0, "k_gib": 10.08, "v_gib": 10.08},
    ),
    (
        "Full KV Cache is allocated. dtype: torch.bfloat16, #tokens: 8192, KV size: 1.50 GB",
        Stage.KV_ALLOCATED,
        {"kv_tokens": 8192.0, "kv_gib": 1.5},
    ),
    ("Memory pool end. avail mem=20.00 GB", Stage.POOLS_READY, {"avail_gib": 20.0}),
    (
        "Capture cuda graph begin. This can take up to several minutes. avail mem=19.80 GB",
        Stage.GRAPHS_BEGUN,
        {"avail_gib": 19.8},
    ),
    (
        "Capture draft extend cuda graph end. Time elapsed: 5.10 s. mem usage=0.50 GB. avail mem=11.70 GB.",
        Stage.GRAPHS_CAPTURED,
        {"elapsed_s": 5.1, "usage_gib": 0.5, "avail_gib": 11.7},
    ),
    # 0.5.14 on
    (
        "Capture target verify CUDA graph begin. backend=full, bs=[1, 2], avail mem=13.40 GB",
        Stage.GRAPHS_BEGUN,
        {"avail_gib": 13.4},
    ),
    (
        "Capture target prefill CUDA graph end. elapsed=220.00 s, mem usage=3.85 GB, avail mem=9.10 GB.",
        Stage.GRAPHS_CAPTURED,
        {"elapsed_s": 220.0, "usage_gib": 3.85, "avail_gib": 9.1},
    ),
    (
        (
            "max_total_num_tokens=132000, chunked_prefill_size=8192, max_prefill_tokens=16384, "
            "max_running_requests=4, context_len=262144, available_gpu_mem=5.03 GB"
        ),
        Stage.SIZED,
        {
            "max_total_num_tokens": 132000.0,
            "chunked_prefill_size": 8192.0,
            "max_prefill_tokens": 16384.0,
            "max_running_requests": 4.0,
            "context_len": 262144.0,
            "available_gpu_mem_gib": 5.03,
        },
    ),
    ("INFO:     Uvicorn running on http://127.0.0.1:31024 (Press CTRL+C to quit)", Stage.LISTENING, {}),
    ("The server is fired up and ready to roll!", Stage.READY, {}),
]

SILENT = [
    "Load weight end. Committed real weights after CUDA graph capture in 3.20 s",
    "Capture Frozen-KV MTP draft takes its time",
    'INFO:     127.0.0.1:39682 - "GET /model_info HTTP/1.1" 200 OK',
    "Prefill batch, #new-seq: 1, #new-token: 10, The server is fired up and ready to roll!",
    "Using hybrid linear attention backend for hybrid GDN models.",
]


class TestStages:
    """
    Lines that prove a stage.
    """

    @pytest.mark.parametrize(("body", "stage", "figures"), LINES)
    def test_a_line_proves_its_stage(self, body: str, stage: Stage, figures: dict[str, float]) -> None:
        """
        Every version's wording gives the stage and SGLang's own figures.
        """
        found = milestones.stage_of(body)

        assert found is not None
        assert (stage, figures) == (found.stage, found.figures)

    @pytest.mark.parametrize("body", SILENT)
    def test_other_lines_prove_nothing(self, body: str) -> None:
        """
        A request's text, a late note and a line that merely begins alike are no stages.
        """
        assert milestones.stage_of(body) is None

    def test_a_draft_is_known_by_its_class(self) -> None:
        """
        The model's class tells a draft from a target.
        """
        target = milestones.stage_of("Load weight end. type=Qwen3_5ForCausalLM, avail mem=1.00 GB")
        draft = milestones.stage_of("Load weight end. type=Qwen3_5ForCausalLMMTP, avail mem=1.00 GB")

        assert (False, True) == (target and target.draft, draft and draft.draft)


class TestInteresting:
    """
    The quick look at every line.
    """

    @pytest.mark.parametrize("rank", ["", " TP0", " DP0 TP1 EP1"])
    def test_no_line_that_proves_something_is_passed_over(self, rank: str) -> None:
        """
        The quick look lets through every stage and every failure, with and without a rank.
        """
        bodies = [body for body, _, _ in LINES]
        printed = [s.example for s in (*signatures.RECORDS, signatures.WARMUP, signatures.SILENT)]
        bodies += [
            text
            for text in printed
            if not text.startswith(("error: ", "Fatal ", "RMSNorm ", "box:", "[rank", "Failed: Cuda"))
        ]
        bodies += [
            "Scheduler hit an exception: Traceback (most recent call last):",
            "server_args={'model_path': 1}",
        ]
        bodies += ["DetokenizerManager hit an exception: Traceback (most recent call last):", "Exit code: -9"]
        bodies += ["max_running_requests was reduced from the requested 48 to 9 (per dp worker)"]
        bodies += ["kill_process_tree called: parent_pid=1, include_parent=True, pid=1"]

        lines = [f"[2026-12-01 03:07:28{rank}] {body}" for body in bodies]

        assert [] == [line for line in lines if not milestones.interesting(line)]

    def test_bare_lines_that_matter(self) -> None:
        """
        Tracebacks, argparse, bars and what kernels print have no time stamp.
        """
        lines = [
            "Traceback (most recent call last):",
            "[rank0]: Traceback (most recent call last):",
            "launch_server.py: error: unrecognized arguments: --x",
            "Fatal Python error: Segmentation fault",
            "RMSNorm failed with error code no kernel image is available for execution on the device",
            "box:9822:9901 [0] NCCL WARN Error while creating shared memory segment /dev/shm/nccl-x",
            "Loading safetensors checkpoint shards:  25% Completed | 3/12 [00:10<00:30,  3.31s/it]",
            "Capturing batches (bs=1 avail_mem=5.03 GB): 100%|####| 52/52 [00:10<00:00,  5.00it/s]",
            "leaked 4 instances[2026-12-01 03:07:28] kill_process_tree called: parent_pid=1",
            "25%|##        | 1/4\r50%|#####     | 2/4",
        ]

        assert [] == [line for line in lines if not milestones.interesting(line)]

    def test_what_a_busy_server_prints_is_not_looked_at(self) -> None:
        """
        Requests and batches, by far most of a long log, cost one quick look only.
        """
        lines = [
            '[2026-12-01 03:07:46] INFO:     127.0.0.1:39682 - "GET /model_info HTTP/1.1" 200 OK',
            "[2026-12-01 03:07:50 TP0] Prefill batch, #new-seq: 1, #new-token: 2, #cached-token: 0",
            "[2026-12-01 03:07:56] Decode batch, #running-req: 1, #full token: 42, accept len: 1.00",
            "x" * 1000,
            "",
        ]

        assert [] == [line for line in lines if milestones.interesting(line)]


class TestArguments:
    """
    The line of all arguments.
    """

    def test_both_forms_of_the_line(self) -> None:
        """
        ServerArgs(...) up to 0.5.18 and a dict from 0.5.19 give the same.
        """
        old = (
            "server_args=ServerArgs(model_path='/m', mem_fraction_static=0.8, speculative_algorithm='EAGLE')"
        )
        new = "server_args={'model_path': '/m', 'mem_fraction_static': 0.8, 'speculative_algorithm': 'EAGLE'}"

        expected = {"mem_fraction_static": "0.8", "speculative_algorithm": "EAGLE"}

        assert expected == milestones.arguments_of(old) == milestones.arguments_of(new)
        assert {"mem_fraction_static": 0.8} == milestones.numbers(expected)

    def test_a_real_line_of_19_kilobytes(self) -> None:
        """
        The real line of 0.5.23 with MTP gives what was asked for and resolved.
        """
        lines, _ = recorded.recorded("ok-qwen35-gdn-nextn-mtp")
        line = next(line for line in lines if "server_args=" in line)

        found = milestones.arguments_of(line)

        assert len(line) > 15_000
        assert ("EAGLE", "3", "1", "4", "no_buffer", "True") == (
            found["speculative_algorithm"],
            found["speculative_num_steps"],
            found["speculative_eagle_topk"],
            found["speculative_num_draft_tokens"],
            found["mamba_radix_cache_strategy"],
            found["disable_overlap_schedule"],
        )


class TestProgress:
    """
    Bars.
    """

    @pytest.mark.parametrize(
        ("line", "expected"),
        [
            ("Loading safetensors checkpoint shards:  25% Completed | 3/12 [00:10<00:30]", "shards 3/12"),
            ("Multi-thread loading shards: 100% Completed | 1/1 [00:00<00:00, 391.04it/s]", "shards 1/1"),
            ("Capturing batches (bs=8 avail_mem=5.03 GB):  19%|##  | 10/52 [00:10<00:00]", "graphs 10/52"),
            ("Fetching 12 files:  25%|##5  | 3/12 [00:01<00:03,  2.90it/s]", "Fetching 12 files 3/12"),
            ("model-00001-of-00012.safetensors:  45%|##  | 2.2G/4.9G [00:10<00:12, 221MB/s]",
             "model-00001-of-00012.safetensors 2.2G/4.9G"),
            ("warning: 100% of the time", ""),
        ],
    )  # fmt: skip
    def test_bars(self, line: str, expected: str) -> None:
        """
        A bar of tqdm says how far it is.
        """
        assert expected == milestones.progress_of(line)


class TestEcho:
    @pytest.mark.parametrize(
        ("line", "echo"),
        [
            ('[2026-12-01 02:41:17] INFO:     127.0.0.1:5550 - "GET /health HTTP/1.1" 200 OK', True),
            ('[2026-12-01 02:41:18] INFO:     [::1]:5558 - "GET /health_generate HTTP/1.1" 503 Wait', True),
            ("[2026-12-01 02:41:18] Health check failed. Server couldn't get a response from", True),
            ('[2026-12-01 02:41:18] INFO:     127.0.0.1:5558 - "GET /model_info HTTP/1.1" 200 OK', False),
            ('[2026-12-01 02:41:18] INFO:     127.0.0.1:5558 - "POST /generate HTTP/1.1" 200 OK', False),
            ("[2026-12-01 02:41:18] Prefill batch, #new-seq: 1, #new-token: 1", False),
            ("", False),
        ],
    )
    def test_knows_what_only_answers_a_question_of_health(self, line: str, echo: bool) -> None:
        """
        Such a line comes for every question, whether anything moves or not.
        """
        assert echo == milestones.is_echo(line)
