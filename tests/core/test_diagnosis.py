import pytest
from msgspec import structs

from mtpdeploy.core.diagnosis import Cause, End, Evidence, Finding, Knowledge, Next, Stage, Verdict
from mtpdeploy.core.verdict import diagnose

KNOWLEDGE = {cause: Knowledge(Next.STOP, f"mend {cause.name}") for cause in Cause}


def finding(cause: Cause, line: int, weight: int = 10, **figures: float) -> Finding:
    """
    A finding on that line.
    """
    return Finding(
        cause, line, f"line {line}", Stage.KV_ALLOCATED, weight=weight, rank="TP1", figures=figures
    )


def judge(
    *findings: Finding,
    end: End = End.EXITED,
    exit_status: int | None = 137,
    tail: tuple[tuple[int, str], ...] = ((9, "last"),),
    **after: str,
) -> Verdict:
    """
    The verdict on an attempt with these findings.
    """
    return diagnose(Evidence(end, Stage.SIZED, findings, tail, exit_status, after), KNOWLEDGE)


class TestFindings:
    """
    What the log proves goes first.
    """

    def test_the_heaviest_goes_first(self) -> None:
        """
        A root cause beats what was printed before it and after it.
        """
        verdict = judge(
            finding(Cause.WARMUP_FAILED, 1, 3),
            finding(Cause.OOM_KV_POOL, 5, floor=0.9),
            finding(Cause.NCCL_FAILED, 9, 5),
        )

        assert (
            Verdict(
                cause=Cause.OOM_KV_POOL,
                next=Next.STOP,
                proof="line 5",
                line=5,
                rank="TP1",
                remedy="mend OOM_KV_POOL",
                figures={"floor": 0.9},
                stage=Stage.KV_ALLOCATED,
            )
            == verdict
        )

    def test_among_equals_the_earliest(self) -> None:
        """
        Whoever failed first made the others fail, whatever the order they were gathered in.
        """
        assert Cause.OOM_GRAPHS is judge(finding(Cause.NCCL_FAILED, 7), finding(Cause.OOM_GRAPHS, 4)).cause

    def test_a_finding_counts_without_an_exit_status(self) -> None:
        """
        A server that is ended because of what its log says has no status yet.
        """
        assert (
            Cause.OOM_KV_POOL is judge(finding(Cause.OOM_KV_POOL, 1), end=End.DOOMED, exit_status=None).cause
        )

    def test_what_merely_accompanies_a_death_needs_one(self) -> None:
        """
        A notice of weight 1 explains an exit, but not a stall, nor what the kernel explains better.
        """
        notice = finding(Cause.SCHEDULER_DIED, 3, 1)

        assert Cause.SCHEDULER_DIED is judge(notice).cause
        assert Cause.STALLED is judge(notice, end=End.STALLED, exit_status=None).cause
        assert Cause.HOST_OOM_KILLED is judge(notice, oom_kill="killed process 7").cause
        assert Cause.BOX_RESTARTED is judge(notice, box_restarted="another boot id").cause

    def test_a_root_cause_beats_the_kernels_word(self) -> None:
        """
        What the log proves is not overruled by a kill somewhere on the box.
        """
        assert Cause.OOM_KV_POOL is judge(finding(Cause.OOM_KV_POOL, 3), oom_kill="another process").cause


class TestWithoutFindings:
    """
    Where the log proves nothing.
    """

    @pytest.mark.parametrize(
        ("end", "status", "after", "cause"),
        [
            (End.EXITED, 137, {}, Cause.VANISHED),
            (End.EXITED, -9, {}, Cause.VANISHED),
            (End.EXITED, 1, {}, Cause.UNKNOWN),
            (End.EXITED, 137, {"oom_kill": "kernel: killed process 7"}, Cause.HOST_OOM_KILLED),
            (End.VANISHED, None, {}, Cause.VANISHED),
            (End.VANISHED, None, {"box_restarted": "boot id differs"}, Cause.BOX_RESTARTED),
            (End.VANISHED, None, {"oom_kill": "x", "box_restarted": "y"}, Cause.BOX_RESTARTED),
            (End.STALLED, None, {}, Cause.STALLED),
            (End.DEAF, None, {"deaf": "no answer"}, Cause.DEAF),
            (End.REFUSING, None, {"refused": "HTTP 400"}, Cause.REQUESTS_REFUSED),
            (End.STOPPED, 0, {}, Cause.STOPPED),
        ],
    )
    def test_the_end_and_the_box_speak(
        self, end: End, status: int | None, after: dict[str, str], cause: Cause
    ) -> None:
        """
        137 alone is SGLang's own way to die and no proof of a lack of memory: the kernel's word is.
        """
        verdict = diagnose(Evidence(end, Stage.SIZED, (), ((9, "last"),), status, after), KNOWLEDGE)

        assert (cause, f"mend {cause.name}") == (verdict.cause, verdict.remedy)
        assert verdict.because

    def test_the_last_line_is_shown(self) -> None:
        """
        Where nothing explains a death, the reader sees the last that was said.
        """
        verdict = judge(tail=((8, "before"), (9, "last words")))

        assert ("last words", 9) == (verdict.proof, verdict.line)

    def test_an_empty_log(self) -> None:
        """
        Nothing was printed at all, and the verdict still says what it rests on.
        """
        verdict = judge(end=End.VANISHED, exit_status=None, tail=())

        assert ("", None, "the process is gone and left no exit record") == (
            verdict.proof,
            verdict.line,
            verdict.because,
        )


class TestLivingAndStopped:
    """
    What explains a server that lives on explains no death, and an ordered stop is none.
    """

    def test_what_is_not_fatal_explains_only_a_server_that_lives(self) -> None:
        """
        A warning that a busy server prints as well goes with one that answers nothing, and with no death.
        """
        warned = structs.replace(finding(Cause.NAN_LOGITS, 3, 3), fatal=False)

        assert Cause.NAN_LOGITS is judge(warned, end=End.DEAF, exit_status=None).cause
        assert Cause.UNKNOWN is judge(warned, exit_status=1).cause

    def test_a_drained_server_was_stopped(self) -> None:
        """
        SGLang ends itself with 137 after a stop that it acknowledged; a root cause goes before.
        """
        told = Evidence(End.EXITED, Stage.READY, (), ((9, "last"),), 137, {}, (7, "SIGTERM received."))
        broken = structs.replace(told, findings=(finding(Cause.OOM_SERVING, 5),))

        stopped = diagnose(told, KNOWLEDGE)

        assert (Cause.STOPPED, 7, "SIGTERM received.") == (stopped.cause, stopped.line, stopped.proof)
        assert Cause.OOM_SERVING is diagnose(broken, KNOWLEDGE).cause
        killed = structs.replace(told, after={"oom_kill": "killed process 7"})
        assert Cause.HOST_OOM_KILLED is diagnose(killed, KNOWLEDGE).cause

    @pytest.mark.parametrize("status", [129, 130, 143, -1, -2, -15])
    def test_an_order_that_nobody_acknowledged(self, status: int) -> None:
        """
        SIGTERM while SGLang imports leaves no line, only the status: stopped, and no guess is due.
        """
        verdict = judge(exit_status=status)

        assert Cause.STOPPED is verdict.cause
        assert f"exit status {status}: SIG" in verdict.because
        assert Cause.OOM_KV_POOL is judge(finding(Cause.OOM_KV_POOL, 1), exit_status=status).cause

    @pytest.mark.parametrize("status", [135, -7])
    def test_a_bus_error_without_a_line(self, status: int) -> None:
        """
        Its status alone does not say whether shared memory is full or a file is cut short.
        """
        assert Cause.BUS_ERROR is judge(exit_status=status).cause

    def test_figures_make_the_remedy(self) -> None:
        """
        With figures the remedy says them, without it stays plain.
        """
        known = Knowledge(
            Next.CLIMB, "plain", lambda figures: f"by {figures['x']}" if "x" in figures else None
        )

        verdict = diagnose(
            Evidence(End.EXITED, Stage.SIZED, (finding(Cause.DISK_FULL, 1, x=2),)), {Cause.DISK_FULL: known}
        )

        assert ("by 2", "plain") == (verdict.remedy, known.advice({}))
