import tracemalloc

from mtpdeploy.core.diagnosis import Cause, End, Stage
from mtpdeploy.core.lines import Line
from mtpdeploy.engines.sglang.reading import EARLIER, TAIL, LogReading
from mtpdeploy.engines.sglang.starts import FINDINGS
from tests.engines.sglang.recorded import (
    STAMP,
    START,
    main_exception,
    read,
    scheduler_exception,
    start_until,
)

OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 384.00 MiB. GPU 0 has a total capacity of "
)
OOM += "94.97 GiB of which 338.75 MiB is free."


def causes(reading: LogReading) -> list[Cause]:
    """
    The causes found, in the order of the log.
    """
    return [finding.cause for finding in reading.findings]


class TestStages:
    """
    How far a start came.
    """

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

    def test_a_rank_of_a_server_that_serves(self) -> None:
        """
        Only the main process says that it listens and is ready: a rank that fails then fails while serving.
        """
        ready = [f"{STAMP}{START[stage]}" for stage in ("listening", "ready")]
        lines = [*start_until("sized", " TP0"), *ready, *scheduler_exception(OOM, rank=" TP0")]

        assert Stage.READY is read(lines).findings[0].stage

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


class TestBounds:
    """
    Memory and effort stay within bounds.
    """

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
        assert [Cause.SCHEDULER_EXCEPTION] == [f.cause for f in reading.earlier[0].findings]


class TestSeveralStarts:
    """
    One log, appended to by one start after another.
    """

    FAILED = (*start_until("graphs begun"), *scheduler_exception(OOM))
    """A start that ran out of memory while it captured graphs: 16 lines."""

    def test_the_last_one_is_judged(self) -> None:
        """
        What failed first is history once the server came up: stage, figures and findings begin anew.
        """
        reading = read([*self.FAILED, *start_until("ready")])

        assert (Stage.READY, (), None) == (reading.stage, reading.findings, reading.fatal)
        assert (len(self.FAILED) + 1, 17) == (reading.begun, len(reading.milestones))
        assert 2.0 == reading.figures["graphs_gib"]

    def test_the_earlier_ones_are_told(self) -> None:
        """
        Which lines they have, how far they came, what was found.
        """
        reading = read([*start_until("ready"), *self.FAILED, *start_until("weights begun")])

        first, second = reading.earlier
        assert (1, True, Stage.READY, ()) == (first.first, first.ready, first.stage, first.findings)
        assert (Stage.GRAPHS_BEGUN, [Cause.OOM_GRAPHS]) == (second.stage, [f.cause for f in second.findings])
        assert (second.first, second.last) == (first.last + 1, reading.begun - 1)

    def test_each_is_judged_by_its_own_stage(self) -> None:
        """
        The same words mean weights in the second start, though the first came to its graphs.
        """
        reading = read([*self.FAILED, *start_until("weights begun"), *scheduler_exception(OOM)])

        assert [Cause.OOM_WEIGHTS] == causes(reading)

    def test_a_restart_that_has_only_begun_explains_nothing(self) -> None:
        """
        A container was started again after the failure, and the log ends: the failure is what there is.
        """
        reading = read([*self.FAILED, *start_until("arguments")])

        assert (Stage.ARGUMENTS, [Cause.OOM_GRAPHS]) == (reading.stage, causes(reading))
        assert Stage.GRAPHS_BEGUN is reading.evidence(End.EXITED, None, {}).stage

        assert reading.stands_for is reading.earlier[-1]

    def test_a_restart_that_went_on_stands_for_itself(self) -> None:
        """
        Once it loads weights, what ended the first is no longer what there is to say.
        """
        reading = read([*self.FAILED, "Killed", *start_until("weights loaded")])

        assert ((), None, Stage.WEIGHTS_LOADED) == (reading.findings, reading.stands_for, reading.stage)

    def test_a_second_start_that_fails_before_its_arguments(self) -> None:
        """
        The shell has told the first one's end, so that an exception of a program's start is another's; one of
        a process that lost the first, or of what launched it, is not.
        """
        missing = main_exception("ModuleNotFoundError: No module named 'sgl_kernel'")
        orphan = main_exception("BrokenPipeError: [Errno 32] Broken pipe")
        launcher = main_exception(
            "subprocess.CalledProcessError: Command 'x' died with <Signals.SIGKILL: 9>."
        )

        read_on = [read([*self.FAILED, "Killed", *more]) for more in (missing, orphan, launcher)]

        expected = [[Cause.KERNEL_MISMATCH], [Cause.OOM_GRAPHS], [Cause.OOM_GRAPHS]]
        assert expected == [causes(reading) for reading in read_on]
        assert [len(self.FAILED) + 2, 1, 1] == [reading.begun for reading in read_on]

    def test_a_second_start_that_refuses_its_arguments(self) -> None:
        """
        It prints no arguments that it resolved, and what ended the first is not its cause.
        """
        reading = read([*self.FAILED, "launch_server.py: error: unrecognized arguments: --no-such-flag"])

        assert [Cause.BAD_ARGUMENT] == causes(reading)

    def test_arguments_twice_in_one_start(self) -> None:
        """
        A launcher of several workers prints theirs one after another before anything is loaded.
        """
        lines = start_until("arguments") * 2 + start_until("ready")[1:]

        reading = read(lines)

        assert ([], 1, Stage.READY) == (list(reading.earlier), reading.begun, reading.stage)

    def test_a_log_full_of_restarts_stays_small(self) -> None:
        """
        Only the last few are kept.
        """
        reading = read([*self.FAILED] * 100)

        assert EARLIER == len(reading.earlier)


class TestEvidence:
    """
    What a verdict is made from.
    """

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

    def test_how_the_shell_says_it_ended(self) -> None:
        """
        Where nobody knows the exit status the shell's last word gives it; a log alone has none.
        """
        lines = start_until("graphs begun")

        told = [read([*lines, last]).evidence(End.UNTOLD, None, {}) for last in ("Killed", "a warning")]
        known = read([*lines, "Killed"]).evidence(End.EXITED, 1, {})

        assert [137, None] == [evidence.exit_status for evidence in told]
        assert (1, "Killed") == (known.exit_status, told[0].tail[-1][1])


class TestServing:
    """
    What lines of a server that serves say of it.
    """

    DECODE = f"{STAMP}Decode batch, #running-req: 1, #token: 10, accept len: {{}}, gen throughput: 81.2"

    def look_over(self, lines: list[str]) -> LogReading:
        """
        Read lines, and look them over together, as a file is read.
        """
        reading = read(lines)
        reading.look_over([Line(number, text) for number, text in enumerate(lines, 1)])
        return reading

    def test_what_is_accepted(self) -> None:
        """
        The mean over the last start alone.
        """
        lines = [*start_until("ready"), *[self.DECODE.format("1.00")] * 9]
        lines += [*start_until("ready"), self.DECODE.format("2.00"), self.DECODE.format("3.00")]

        figures = self.look_over(lines).figures

        assert (2.5, 2) == (figures["accept_length"], figures["decode_lines"])

    def test_a_log_without_its_head(self) -> None:
        """
        It decodes, so it serves. Within a start its own first request proves nothing.
        """
        decode = self.DECODE.format("2.00")

        assert [True, False] == [
            self.look_over(lines).serves for lines in ([decode], [*start_until("listening"), decode])
        ]

    def test_what_it_survived_is_no_failure(self) -> None:
        """
        A request that was logged line by line may hold a whole failure; what decodes after it lives.
        """
        request = [f'{STAMP}Receive: obj=GenerateReqInput(text="', *scheduler_exception(OOM)[:-2], '")']
        lines = [*start_until("ready"), *request]

        died, lived = self.look_over(lines), self.look_over([*lines, self.DECODE.format("2.00")])

        assert ([Cause.OOM_SERVING], []) == (causes(died), causes(lived))

    def test_a_failure_that_ended_it_stays(self) -> None:
        """
        Another rank may still print a batch before SGLang ends them all.
        """
        failed = scheduler_exception(OOM)
        lines = [*start_until("ready"), *failed[:-1], self.DECODE.format("2.00"), failed[-1]]

        assert [Cause.OOM_SERVING] == causes(self.look_over(lines))
