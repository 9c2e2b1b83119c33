import json
import tracemalloc

import pytest

from mtpdeploy.core.diagnosis import Cause, End, Stage
from mtpdeploy.engines.sglang.reading import FINDINGS, TAIL, LogReading
from tests.engines.sglang.recorded import (
    DATA,
    STAMP,
    main_exception,
    read,
    scheduler_exception,
    start_until,
    verdict,
)

OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 384.00 MiB. GPU 0 has a total capacity of "
)
OOM += "94.97 GiB of which 338.75 MiB is free."


def causes(reading: LogReading) -> list[Cause]:
    return [finding.cause for finding in reading.findings]


class TestStages:
    def test_a_whole_start_with_a_draft(self) -> None:
        """
        Up to 0.5.13 the draft comes after the target's graphs; its stages are its own.
        """
        reading = read(start_until("ready"))

        assert [
            Stage.ARGUMENTS,
            Stage.WEIGHTS_BEGUN,
            Stage.WEIGHTS_LOADED,
            Stage.STATE_ALLOCATED,
            Stage.KV_ALLOCATED,
            Stage.POOLS_READY,
            Stage.GRAPHS_BEGUN,
            Stage.GRAPHS_CAPTURED,
            Stage.DRAFT_BEGUN,
            Stage.DRAFT_LOADED,
            Stage.KV_ALLOCATED,
            Stage.POOLS_READY,
            Stage.GRAPHS_BEGUN,
            Stage.GRAPHS_CAPTURED,
            Stage.SIZED,
            Stage.LISTENING,
            Stage.READY,
        ] == [milestone.stage for milestone in reading.milestones]
        assert Stage.READY is reading.stage

    def test_figures_are_kept_by_plain_names(self) -> None:
        """
        Target and draft do not overwrite each other; graph memory adds up.
        """
        figures = read(start_until("ready")).figures

        assert (51.05, 5.53) == (figures["weights_gib"], figures["draft_weights_gib"])
        assert (4.03, 0.25) == (figures["k_gib"], figures["draft_k_gib"])
        assert (132000, 10, 2.0) == (
            figures["kv_tokens"],
            figures["max_running_requests"],
            figures["graphs_gib"],
        )

    def test_ranks_are_told_once(self) -> None:
        """
        With two GPUs every line comes twice; a stage is told by the leading rank only.
        """
        lines: list[str] = []
        for zero, one in zip(start_until("sized", " TP0"), start_until("sized", " TP1"), strict=True):
            lines += [zero, one]

        stages = [milestone.stage for milestone in read(lines).milestones]

        assert 1 == stages.count(Stage.WEIGHTS_BEGUN) == stages.count(Stage.DRAFT_BEGUN)
        assert 14 == len([stage for stage in stages if stage is not Stage.ARGUMENTS])

    def test_a_rank_ahead_is_judged_by_its_own_stage(self) -> None:
        """
        TP1 runs out of memory in its graphs while TP0 has only just loaded its weights.
        """
        lines = [*start_until("weights loaded", " TP0"), *start_until("graphs begun", " TP1")[1:]]

        reading = read([*lines, *scheduler_exception(OOM, rank=" TP1")])

        assert (Stage.WEIGHTS_LOADED, [Cause.OOM_GRAPHS]) == (reading.stage, causes(reading))
        assert ("TP1", Stage.GRAPHS_BEGUN) == (reading.findings[0].rank, reading.findings[0].stage)

    def test_where_a_bar_stands(self) -> None:
        """
        Bars overwrite themselves with carriage returns; a new stage begins a new bar.
        """
        bar = "\r".join(
            f"Loading safetensors checkpoint shards:  {n}% Completed | {n}/12 [00:0{n}<00:30]"
            for n in (1, 2, 3)
        )

        reading = read([*start_until("weights begun"), bar])
        seen = reading.progress
        reading.feed(9, start_until("weights loaded")[-1])

        assert ("shards 3/12", "") == (seen, reading.progress)

    def test_a_line_cut_into_by_another_process(self) -> None:
        """
        Processes share the log: a record that begins within a line counts like any other.
        """
        reading = read(
            [f"See https://nanobind.readthedocs.io/refleaks.html{STAMP}Memory pool end. avail mem=2.00 GB"]
        )

        assert Stage.POOLS_READY is reading.stage

    def test_words_of_a_request_are_no_stage(self) -> None:
        """
        A prompt that is logged cannot make a server ready.
        """
        line = f"{STAMP}Receive: obj=GenerateReqInput(text='The server is fired up and ready to roll!')"

        assert Stage.LAUNCHED is read([line]).stage


class TestRootCause:
    @pytest.mark.parametrize(
        ("stage", "cause"),
        [
            ("launched", Cause.OOM_WEIGHTS),
            ("weights begun", Cause.OOM_WEIGHTS),
            ("weights loaded", Cause.OOM_POOLS),
            ("pools", Cause.OOM_POOLS),
            ("graphs begun", Cause.OOM_GRAPHS),
            ("draft begun", Cause.OOM_DRAFT_WEIGHTS),
            ("draft kv", Cause.OOM_POOLS),
            ("draft graphs begun", Cause.OOM_GRAPHS),
            ("listening", Cause.OOM_SERVING),
            ("ready", Cause.OOM_SERVING),
        ],
    )
    def test_out_of_memory_by_stage(self, stage: str, cause: Cause) -> None:
        """
        The same text means different things at different stages, with opposite cures.
        """
        assert [cause] == causes(read([*start_until(stage), *scheduler_exception(OOM)]))

    def test_the_two_memory_errors_are_told_apart(self) -> None:
        """
        Pools too small for the fraction, and a fraction too large for the graphs.
        """
        small = (
            "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current value: "
        )
        small += "self.server_args.mem_fraction_static=0.8"
        large = "Exception: Capture cuda graph failed: CUDA out of memory. Tried to allocate 970.00 MiB."
        hints = ["Possible solutions:", "1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)"]

        too_small = read([*start_until("weights loaded"), *scheduler_exception(small)])
        too_large = read([*start_until("graphs begun"), *scheduler_exception(large, *hints)])

        assert ([Cause.OOM_KV_POOL], [Cause.OOM_GRAPHS]) == (causes(too_small), causes(too_large))

    def test_the_last_exception_of_a_chain_is_the_cause(self) -> None:
        """
        What was raised while another exception was handled goes before it.
        """
        lines = scheduler_exception(
            "KeyError: 'qwen3_5'",
            "",
            "During handling of the above exception, another exception occurred:",
            "",
            "Traceback (most recent call last):",
            '  File "/opt/venv/lib/python3.11/site-packages/sglang/srt/x.py", line 1, in load',
            "    raise",
            "ValueError: Model architectures ['X'] are not supported for now. Supported architectures: dict_keys([",
        )

        assert [Cause.MODEL_UNSUPPORTED] == causes(read(lines))

    def test_a_message_of_many_lines(self) -> None:
        """
        A message whose first line says nothing is named by a later one.
        """
        lines = main_exception(
            "RuntimeError: \x1b[91m\x1b[1mCRITICAL WARNING: PyTorch 2.9.1 & CuDNN Compatibility Issue Detected",
            "-" * 80,
            "Current Environment: PyTorch 2.9.1 | CuDNN 9.10",
        )
        late = scheduler_exception(
            "ImportError: ", "[sgl_kernel] CRITICAL: Could not load any common_ops library!"
        )

        assert [Cause.CUDNN_TOO_OLD] == causes(read(lines))
        assert [Cause.KERNEL_MISMATCH] == causes(read(late))

    def test_an_assertion_without_words_is_known_by_its_place(self) -> None:
        """
        SGLang checks some things with a bare assert.
        """
        incomplete = main_exception("AssertionError", function="_handle_eagle_family", code="assert (")
        interval = main_exception(
            "AssertionError",
            function="validate_mamba_extra_buffer",
            code="assert view.mamba_track_interval % view.page_size == 0",
        )
        other = main_exception("AssertionError", function="somewhere", code="assert x")

        assert [Cause.SPEC_INCOMPLETE] == causes(read(incomplete))
        assert [Cause.TRACK_INTERVAL] == causes(read(interval))
        assert [Cause.PYTHON_EXCEPTION] == causes(read(other))

    def test_echoes_do_not_count(self) -> None:
        """
        What other ranks and the main process say while SGLang ends itself is a consequence.
        """
        reading = read(
            [
                *start_until("weights loaded"),
                *scheduler_exception(
                    "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static."
                ),
                *scheduler_exception(
                    "torch.distributed.DistBackendError: NCCL error in: x.cpp:1", rank=" TP1"
                ),
                f"{STAMP}kill_process_tree called: parent_pid=1, include_parent=True, pid=1",
                *main_exception("RuntimeError: something else"),
            ]
        )

        assert [Cause.OOM_KV_POOL] == causes(reading)

    def test_an_orphan_is_no_cause(self) -> None:
        """
        A scheduler whose main process was killed ends with a broken pipe: it vanished.
        """
        reading = read(
            [*start_until("sized"), *scheduler_exception("BrokenPipeError: [Errno 32] Broken pipe")]
        )

        assert [Cause.SCHEDULER_DIED] == causes(reading)
        assert Cause.HOST_OOM_KILLED is verdict(reading, 137, oom_kill="killed process 7").cause

    def test_a_silent_child(self) -> None:
        """
        Only the notice that a child failed: that much is said, and no more.
        """
        reading = read([*start_until("graphs begun"), scheduler_exception()[-1]])

        assert ([Cause.SCHEDULER_DIED], 1) == (causes(reading), reading.findings[0].weight)

    def test_a_scheduler_found_dead_by_an_old_version(self) -> None:
        """
        0.5.9 says that the scheduler is dead, its status, and an EOFError that means nothing.
        """
        reading = read(
            [
                *start_until("weights begun"),
                f"{STAMP}Rank 0 scheduler is dead. Please check if there are relevant logs.",
                f"{STAMP}Exit code: -9",
                *main_exception("EOFError"),
            ]
        )

        assert Cause.HOST_OOM_KILLED is verdict(reading, 1).cause

    def test_a_name_goes_before_the_way_it_ended(self) -> None:
        """
        A scheduler that said why and was then killed died of what it said.
        """
        reading = read(
            [
                *start_until("ready"),
                *scheduler_exception("RuntimeError: CUDA error: an illegal memory access was encountered")[
                    :-1
                ],
                f"{STAMP}Subprocess scheduler_0 (pid=9) crashed with exit code -9. Triggering SIGQUIT for cleanup...",
            ]
        )

        assert Cause.CUDA_FAULT is verdict(reading).cause

    def test_the_detokenizer(self) -> None:
        """
        An exception of the detokenizer is the detokenizer's.
        """
        lines = scheduler_exception("UnicodeDecodeError: 'utf-8' codec can't decode byte 0xff")
        lines[0] = lines[0].replace("Scheduler", "DetokenizerManager")

        assert [Cause.DETOKENIZER_DIED] == causes(read(lines))

    def test_a_failed_warm_up_is_explained_by_the_scheduler(self) -> None:
        """
        The scheduler's word counts, before the warm-up's or after it; alone the warm-up's is enough.
        """
        warmup = [
            f"{STAMP}Initialization failed. warmup error: Traceback (most recent call last):",
            '  File "/opt/venv/lib/python3.11/site-packages/sglang/srt/entrypoints/http_server.py", line 1, in f',
            '    assert res.status_code == 200, f"{res=}, {res.text=}"',
            "requests.exceptions.ReadTimeout: HTTPConnectionPool(host='127.0.0.1', port=30000): Read timed out.",
            "",
        ]
        death = scheduler_exception(OOM)

        alone = read([*start_until("listening"), *warmup])
        before = read([*start_until("listening"), *death[:-1], *warmup])
        after = read([*start_until("listening"), *warmup, *death])

        assert Cause.WARMUP_FAILED is verdict(alone).cause
        assert Cause.OOM_SERVING is verdict(before).cause is verdict(after).cause
        assert "requests.exceptions.ReadTimeout" in verdict(alone).proof

    def test_the_watchdog_but_not_its_soft_form(self) -> None:
        """
        The soft watchdog only reports; the hard one ends the process.
        """
        hard = f"{STAMP}Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)"
        soft = f"{STAMP}Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=True)"

        assert ([Cause.WATCHDOG], []) == (causes(read([hard])), causes(read([soft])))

    def test_tracebacks_that_somebody_survived(self) -> None:
        """
        Optional imports, plug-ins and request handlers log tracebacks and go on.
        """
        optional = [
            f"{STAMP}Ignore import error when loading sglang.srt.models.x: Could not load libtorchcodec. Likely causes:",
            "[start of libtorchcodec loading traceback]",
            "FFmpeg version 8:",
            "Traceback (most recent call last):",
            '  File "/opt/venv/lib/python3.11/site-packages/torchcodec/_core/ops.py", line 57, in load_torchcodec',
            "    torch.ops.load_library(core_library_path)",
            "OSError: libnvrtc.so.13: cannot open shared object file: No such file or directory",
            "[end of libtorchcodec loading traceback].",
        ]
        handler = [
            f"{STAMP}[http_server] Error: request failed",
            "Traceback (most recent call last):",
            '  File "/opt/venv/lib/python3.11/site-packages/sglang/srt/entrypoints/http_server.py", line 9, in generate',
            "    async for out in x:",
            "ValueError: Input length (3034 tokens) exceeds the maximum allowed length (1735 tokens)",
        ]

        reading = read([*optional, *start_until("ready"), *handler])

        assert ((), None, Stage.READY) == (reading.findings, reading.fatal, reading.stage)

    def test_a_death_after_a_harmless_traceback(self) -> None:
        """
        A traceback without an end does not swallow the one that counts.
        """
        cut = ["Traceback (most recent call last):", '  File "/opt/x.py", line 1, in load_plugins']

        assert [Cause.DISK_FULL] == causes(
            read([*cut, *scheduler_exception("OSError: [Errno 28] No space left on device")])
        )

    def test_ranks_that_fail_together(self) -> None:
        """
        Two ranks' tracebacks mixed line by line still give the cause, once, with the first rank.
        """
        error = "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static."
        lines: list[str] = []
        first, second = (scheduler_exception(error, rank=f" TP{n}") for n in (0, 1))
        for one, two in zip(first, second, strict=True):
            lines += [one, two]

        reading = read([*start_until("weights loaded"), *lines])

        assert ([Cause.OOM_KV_POOL], "TP0") == (causes(reading), reading.findings[0].rank)

    def test_the_port_story(self) -> None:
        """
        With another server on the port SGLang prints its ready line all the same: it is not ready.
        """
        reading = read(
            [
                *start_until("sized"),
                f"{STAMP}ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 30000): "
                "address already in use",
                *start_until("ready")[-1:],
            ]
        )

        assert (Stage.SIZED, [Cause.PORT_TAKEN]) == (reading.stage, causes(reading))

    def test_the_line_of_all_arguments_is_never_taken_for_a_failure(self) -> None:
        """
        It holds every word there is, and the key of the API: neither matters nor is kept.
        """
        line = (
            f"{STAMP}server_args={{'api_key': 'sk-very-secret', 'mem_fraction_static': 0.85, "
            "'x': 'Not enough memory. Please try to increase --mem-fraction-static error: unrecognized arguments:'}"
        )

        reading = read([line])

        assert ((), 0.85) == (reading.findings, reading.figures["mem_fraction_static"])
        assert "secret" not in str(reading.evidence(End.EXITED, 1, {}))

    def test_figures_go_with_the_finding(self) -> None:
        """
        A rung needs the fraction in force and what the allocation lacked.
        """
        reading = read([*start_until("graphs begun"), *scheduler_exception(OOM)])

        assert {
            "mem_fraction_static": 0.8,
            "asked_mib": 384.0,
            "free_mib": 338.75,
            "total_mib": 94.97 * 1024,
            "capturing_prefill": 0.0,
        } == reading.findings[0].figures

    @pytest.mark.parametrize("line", (DATA / "failures.jsonl").read_text().splitlines())
    def test_lines_of_public_reports(self, line: str) -> None:
        """
        Literal lines of failures that people met give the cause that the report found.
        """
        report = json.loads(line)
        lines = start_until(report["stage"])
        match report["printed_by"]:
            case "scheduler":
                lines += scheduler_exception(*report["lines"])
            case "main":
                lines += main_exception(*report["lines"])
            case "bare":
                lines += report["lines"]
            case _:
                lines += [STAMP + text for text in report["lines"]]

        reading = read(lines)

        if report["cause"] is None:
            assert () == reading.findings
        else:
            assert report["cause"] == verdict(reading).cause.name


class TestBounds:
    def test_the_tail(self) -> None:
        """
        The last lines are kept with their numbers, however long they are.
        """
        reading = read([f"line {n}" for n in range(1, 100)] + ["y" * 5000])

        assert TAIL == len(reading.tail)
        assert (61, "line 61") == reading.tail[0]
        assert 2001 == len(reading.tail[-1][1])

    def test_findings_are_bounded_and_keep_the_first(self) -> None:
        """
        A server that fails in a loop is remembered by the first of each kind.
        """
        reading = read(
            [
                f"{STAMP}Scheduler watchdog timeout (self.watchdog_timeout={n}, self.soft=False)"
                for n in range(1000)
            ]
        )

        assert 1 == len(reading.findings) < FINDINGS
        assert 1 == reading.findings[0].line

    def test_memory_stays_constant(self) -> None:
        """
        A hundred megabytes of bars, batches, ranks and tracebacks leave nothing behind.
        """
        noise = [
            "\r".join(["Loading safetensors checkpoint shards:   1% Completed | 1/99 [00:01<00:30]"] * 300),
            f"{STAMP}Decode batch, #running-req: 1" + " y" * 5000,
            "Traceback (most recent call last):",
            '  File "/opt/x.py", line 1, in handler',
            "ValueError: " + "z" * 5_000,
        ]
        reading = LogReading()
        for number in range(500):
            reading.feed(number, noise[number % len(noise)])
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()

        for number in range(500, 2500):
            rank = f"[2026-12-01 03:07:28 TP{number}] Memory pool end. avail mem=1.00 GB"
            reading.feed(number, rank if number % 7 == 0 else noise[number % len(noise)])

        after, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert after - before < 3_000_000

    def test_an_endless_line(self) -> None:
        """
        A bar of fifty megabytes without a newline is read at both ends only.
        """
        bar = "Loading safetensors checkpoint shards:  9% Completed | {}/99 [00:01<00:30]\r"
        line = bar.format(1) * 10 + "x" * 50_000_000 + "\r" + bar.format(98) * 3

        reading = read([line])

        assert "shards 98/99" == reading.progress

    def test_a_traceback_without_an_end_is_given_up(self) -> None:
        """
        A log cut within a traceback is not read word by word for ever.
        """
        reading = read([*scheduler_exception()[:1], *["  y"] * 6000, *start_until("ready")])

        assert Stage.READY is reading.stage
        assert [Cause.SCHEDULER_EXCEPTION] == causes(reading)


class TestEvidence:
    def test_carries_everything(self) -> None:
        """
        Evidence holds stage, findings, tail, status and what the box said.
        """
        reading = read([*start_until("weights loaded"), *scheduler_exception("KeyError: 'x'")])

        evidence = reading.evidence(End.EXITED, 137, {"oom_kill": "no"})

        assert (End.EXITED, Stage.WEIGHTS_LOADED, 137) == (evidence.end, evidence.stage, evidence.exit_status)
        assert ([Cause.SCHEDULER_EXCEPTION], {"oom_kill": "no"}) == (
            [finding.cause for finding in evidence.findings],
            evidence.after,
        )
        assert evidence.tail[-1][1].endswith("It usually means the child failed.")

    def test_nothing_at_all(self) -> None:
        """
        An empty log says so.
        """
        evidence = LogReading().evidence(End.VANISHED, None, {})

        assert (Stage.LAUNCHED, (), ()) == (evidence.stage, evidence.findings, evidence.tail)
