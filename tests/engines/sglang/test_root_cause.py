import pytest

from mtpdeploy.core.diagnosis import Cause, End, Stage
from mtpdeploy.engines.sglang.reading import LogReading
from tests.engines.sglang.recorded import (
    SITE,
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

GRAPHS = (f'  File "{SITE}/model_executor/cuda_graph_runner.py", line 7, in capture', "    run()")
MODEL = (f'  File "{SITE}/models/qwen3.py", line 7, in load_weights', "    load()")
NO_ATTRIBUTE = "AttributeError: 'X' object has no attribute 'y'"


def causes(reading: LogReading) -> list[Cause]:
    """
    The causes found, in the order of the log.
    """
    return [finding.cause for finding in reading.findings]


class TestRootCause:
    """
    What counts as the cause, and what does not.
    """

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
            "ValueError: Model architectures ['X'] are not supported for now. Supported architectures:",
        )

        assert [Cause.MODEL_UNSUPPORTED] == causes(read(lines))

    def test_a_message_of_many_lines(self) -> None:
        """
        A message whose first line says nothing is named by a later one.
        """
        lines = main_exception(
            "RuntimeError: \x1b[91m\x1b[1mCRITICAL WARNING: PyTorch & CuDNN Compatibility Issue Detected",
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
        assert [Cause.BAD_ARGUMENT] == causes(read(other))

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

        assert Cause.KILLED is verdict(reading, 1).cause

    @pytest.mark.parametrize(
        ("stage", "hierarchical_cache", "cause"),
        [
            ("sized", "True", Cause.HOST_OOM_KILLED),
            ("sized", "False", Cause.KILLED),
            ("weights begun", "True", Cause.KILLED),
            ("graphs begun", "True", Cause.KILLED),
            ("ready", "True", Cause.KILLED),
        ],
    )
    def test_a_scheduler_killed_while_host_memory_is_pinned(
        self, stage: str, hierarchical_cache: str, cause: Cause
    ) -> None:
        """
        -9 alone proves a signal; where the hierarchical cache was just taking its memory it says more.
        """
        lines = start_until(stage)
        lines[0] = lines[0].replace("tp_size=1", f"tp_size=1, enable_hierarchical_cache={hierarchical_cache}")
        killed = "Subprocess scheduler_0 (pid=7) crashed with exit code -9. Triggering SIGQUIT for cleanup..."

        reading = read([*lines, f"{STAMP}{killed}"])

        found = verdict(reading)
        assert cause is found.cause
        assert "hierarchical" not in found.remedy or hierarchical_cache == "True"

    @pytest.mark.parametrize(
        ("stage", "frames", "message", "cause"),
        [
            (
                "graphs begun",
                GRAPHS,
                "AttributeError: 'X' object has no attribute 'y'",
                Cause.GRAPHS_FAILED,
            ),
            (
                "graphs begun",
                (),
                "AttributeError: 'X' object has no attribute 'y'",
                Cause.SCHEDULER_EXCEPTION,
            ),
            (
                "graphs begun",
                GRAPHS,
                "FileNotFoundError: [Errno 2] No such file or directory: '/root/.cache/flashinfer/x.so'",
                Cause.JIT_CACHE,
            ),
            (
                "weights begun",
                MODEL,
                "AttributeError: 'NoneType' object has no attribute 'shape'",
                Cause.SCHEDULER_EXCEPTION,
            ),
            ("weights begun", MODEL, "KeyError: 'model.layers.0.w'", Cause.CHECKPOINT_UNFIT),
        ],
    )
    def test_a_stage_alone_names_no_cause(
        self, stage: str, frames: tuple[str, ...], message: str, cause: Cause
    ) -> None:
        """
        What is raised while graphs are captured is of graphs where their code is on the stack; a None that
        has no attributes is a fault of code, and of no checkpoint.
        """
        reading = read([*start_until(stage), *scheduler_exception(*frames, message)])

        assert cause is verdict(reading).cause

    def test_compilers_that_were_killed_above_the_exception_of_the_build(self) -> None:
        """
        Their own line says why ninja failed; a capture around it does not.
        """
        build = ["nvcc error   : 'cicc' died due to signal 9 (Kill signal)", "Killed"]
        ninja = (
            "subprocess.CalledProcessError: Command '['ninja', '-v', '-C', '/root/.cache/flashinfer/0.6.14"
        )
        exception = scheduler_exception(
            *GRAPHS, f"{ninja}/120a/cached_ops']' returned non-zero exit status 255."
        )

        found = verdict(read([*start_until("graphs begun"), *build, *exception]))
        without = verdict(read([*start_until("graphs begun"), *exception]))

        assert (Cause.BUILD_KILLED, build[0]) == (found.cause, found.proof)
        assert Cause.TOOLCHAIN_MISSING is without.cause

    @pytest.mark.parametrize(
        ("stage", "line", "cause", "told"),
        [
            ("weights begun", "crashed with exit code -11.", Cause.NATIVE_CRASH, "packages for another CUDA"),
            ("ready", "crashed with exit code -11.", Cause.CUDA_FAULT, "Most likely a kernel crashed"),
            ("weights begun", "crashed with exit code -7.", Cause.BUS_ERROR, "may be cut short"),
        ],
    )
    def test_a_crash_proves_no_more_than_that(self, stage: str, line: str, cause: Cause, told: str) -> None:
        """
        A signal says how a process went, and most likely of what.
        """
        killed = f"{STAMP}Subprocess scheduler_0 (pid=7) {line} Triggering SIGQUIT for cleanup..."

        found = verdict(read([*start_until(stage), killed]))

        assert (cause, True) == (found.cause, told in found.remedy)

    def test_a_call_that_cuda_refused_while_serving(self) -> None:
        """
        An invalid argument is no crash.
        """
        reading = read(
            [*start_until("ready"), *scheduler_exception("RuntimeError: CUDA error: invalid argument")]
        )

        assert verdict(reading).remedy.startswith("CUDA refused a call, most likely a kernel's")

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
                f"{STAMP}Subprocess scheduler_0 (pid=9) crashed with exit code -9. Triggering SIGQUIT",
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
            f'  File "{SITE}/entrypoints/http_server.py", line 1, in execute',
            '    assert res.status_code == 200, f"{res=}, {res.text=}"',
            "requests.exceptions.ReadTimeout: HTTPConnectionPool(host='127.0.0.1'): Read timed out.",
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
            f"{STAMP}Ignore import error when loading sglang.srt.models.x: Could not load libtorchcodec.",
            "[start of libtorchcodec loading traceback]",
            "FFmpeg version 8:",
            "Traceback (most recent call last):",
            '  File "/opt/venv/lib/torchcodec/_core/ops.py", line 57, in load_torchcodec_shared_libraries',
            "    torch.ops.load_library(core_library_path)",
            "OSError: libnvrtc.so.13: cannot open shared object file: No such file or directory",
            "[end of libtorchcodec loading traceback].",
        ]
        handler = [
            f"{STAMP}[http_server] Error: request failed",
            "Traceback (most recent call last):",
            f'  File "{SITE}/entrypoints/http_server.py", line 9, in generate',
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
        Two ranks' tracebacks mixed line by line still give the cause, once; whose line it is nobody knows.
        """
        error = "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static."
        lines: list[str] = []
        first, second = (scheduler_exception(error, rank=f" TP{n}") for n in (0, 1))
        for one, two in zip(first, second, strict=True):
            lines += [one, two]

        reading = read([*start_until("weights loaded"), *lines])

        assert ([Cause.OOM_KV_POOL], "") == (causes(reading), reading.findings[0].rank)

    def test_a_shell_is_no_exception(self) -> None:
        """
        Where the exception is missing the shell's word below the frames does not take its place, so that no
        name is given for the function that stands above it.
        """
        frames = scheduler_exception()[:-1]

        for word in ("Killed", "Segmentation fault (core dumped)", "run.sh: line 3:  7 Killed      python3"):
            (found,) = read([*start_until("weights begun"), *frames, word]).findings
            assert (Cause.SCHEDULER_EXCEPTION, True) == (found.cause, "hit an exception" in found.text)

    def test_the_port_story(self) -> None:
        """
        With another server on the port SGLang prints its ready line all the same: it is not ready.
        """
        reading = read(
            [
                *start_until("sized"),
                f"{STAMP}ERROR:    error while attempting to bind on address x: address already in use",
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
            "'x': 'Not enough memory. Please try to increase it; error: unrecognized arguments:'}"
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
            "free_before_weights_gib": 94.32,
            "weights_gib": 51.05,
            "free_after_pools_gib": 20.0,
            "pools_gib": pytest.approx(29.42),
            "recurrent_state": 1.0,
        } == reading.findings[0].figures


class TestCutAtItsHead:
    """
    A log whose first lines are the rest of a traceback, as `tail` and rotation leave it.
    """

    WHOLE = scheduler_exception(
        f'  File "{SITE}/model_executor/model_runner.py", line 9, in init_memory_pool',
        "    raise RuntimeError(",
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
    )

    @pytest.mark.parametrize("head", range(1, 7))
    def test_wherever_it_is_cut(self, head: int) -> None:
        """
        Within the frames or before the exception: its last line is what counts.
        """
        assert [Cause.OOM_KV_POOL] == causes(read(self.WHOLE[head:]))

    def test_without_a_name(self) -> None:
        """
        An exception that the catalogue does not know is still named as the cause.
        """
        lines = scheduler_exception("KeyError: 'x'")[1:]

        assert [Cause.SCHEDULER_EXCEPTION] == causes(read(lines))

    def test_one_that_was_survived(self) -> None:
        """
        A stage that is reached after it shows that it ended nothing.
        """
        lines = [*self.WHOLE[2:-1], *start_until("graphs begun")]

        assert [] == causes(read(lines))

    def test_a_whole_one_goes_before(self) -> None:
        """
        What is known to have ended the scheduler explains more than a rest.
        """
        lines = [*self.WHOLE[2:-1], *scheduler_exception("AssertionError: Can not alloc mamba cache")]

        assert [Cause.STATE_SLOTS] == causes(read(lines))

    def test_other_first_lines(self) -> None:
        """
        Prose and code before the first record are no traceback.
        """
        lines = ["Error: none", "  File a report", "value error: 3", *scheduler_exception()[-1:]]

        assert [Cause.SCHEDULER_DIED] == causes(read(lines))
