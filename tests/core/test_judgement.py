import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtpdeploy.core.diagnosis import Cause, End, Evidence, Finding, Next, Stage, Verdict
from mtpdeploy.core.judgement import NAMELESS, SEEN_OF_A_GPU, STRONG, UNEXPLAINED, WEAK, judge
from mtpdeploy.engines.sglang.causes import KNOWLEDGE

OOM = "most likely the memory limit of its control group: `oom_kill 1` (+1 since the launch), limit 62.00 GiB"
SAID = {
    "box_restarted": "the box was restarted",
    "gpu_lost": "nvidia-smi: GPU is lost",
    "gpu_fault": "the driver reported Xid 79",
    "oom_kill": OOM,
    "xid": "the driver reported Xid 31",
    "segfault": "python3[7]: segfault at 0",
    "disk_full": "no room on the disk of the work directory",
    "shm_full": "no room in shared memory",
    "no_oom_kill": "its control group counts no kill for memory since the launch",
    "untold": "not told here: the kernel's log",
    "shm": "shared memory: 0.06 GiB of 0.06 GiB free",
}
WEIGHTS = {Cause.HOST_OOM_KILLED: 4, Cause.KILLED: 4, Cause.SCHEDULER_DIED: 1, Cause.SCHEDULER_EXCEPTION: 5}


def verdict(
    *after: str,
    log: Cause | None = None,
    end: End = End.EXITED,
    status: int | None = 137,
    stage: Stage = Stage.GRAPHS_BEGUN,
    stopping: bool = False,
) -> Verdict:
    """
    The verdict on an attempt whose log proves one cause, or none, and after which the box said all that.
    """
    findings = () if log is None else (Finding(log, 5, "the line", stage, weight=WEIGHTS.get(log, 10)),)
    told = (7, "SIGTERM received.") if stopping else None
    said = {name: SAID[name] for name in after}
    return judge(Evidence(end, stage, findings, ((9, "last"),), status, said, told), KNOWLEDGE)


class TestTheLogProves:
    """
    A root cause in the log stays; what the box says stands beside it.
    """

    @pytest.mark.parametrize("name", ["box_restarted", "oom_kill", "gpu_fault", "disk_full", "xid"])
    def test_and_the_box_says_something_else(self, name: str) -> None:
        """
        The proof is the log's, and the reader learns of the rest.
        """
        found = verdict(name, log=Cause.OOM_KV_POOL)

        assert (Cause.OOM_KV_POOL, "the line", "", (SAID[name],)) == (
            found.cause,
            found.proof,
            found.because,
            found.further,
        )

    @pytest.mark.parametrize("log", [Cause.HOST_OOM_KILLED, Cause.KILLED])
    def test_and_the_box_confirms_it(self, log: Cause) -> None:
        """
        An exit code -9 in the log with a kill that the kernel counts.
        """
        found = verdict("oom_kill", log=log, status=1)

        assert (Cause.HOST_OOM_KILLED, 5, (OOM,)) == (found.cause, found.line, found.further)
        assert Next.CLIMB is found.next

    def test_a_kill_that_the_kernel_does_not_count_was_not_for_memory(self) -> None:
        """
        -9 proves a signal and no more.
        """
        found = verdict("no_oom_kill", log=Cause.HOST_OOM_KILLED, status=1)

        assert (Cause.KILLED, Next.REPEAT, "the line") == (found.cause, found.next, found.proof)
        assert "counted no kill for memory" in found.remedy
        assert (SAID["no_oom_kill"],) == found.further

    @pytest.mark.parametrize("seen", [Cause.CUDA_FAULT, Cause.NCCL_FAILED, Cause.WATCHDOG])
    def test_what_a_failing_gpu_looks_like(self, seen: Cause) -> None:
        """
        No other backend mends a card that has fallen off the bus; the log's line is kept.
        """
        found = verdict("gpu_fault", log=seen)

        assert (Cause.GPU_FAULT, Next.STOP, SAID["gpu_fault"]) == (found.cause, found.next, found.because)
        assert ("log line 5: the line",) == found.further

    def test_a_fault_of_the_program_confirms_a_crashed_kernel(self) -> None:
        """
        Xid 31 is what the kernel's log says of an illegal address.
        """
        found = verdict("xid", log=Cause.CUDA_FAULT)

        assert (Cause.CUDA_FAULT, "the line", (SAID["xid"],)) == (found.cause, found.proof, found.further)

    @pytest.mark.parametrize(
        ("name", "cause"),
        [
            ("oom_kill", Cause.HOST_OOM_KILLED),
            ("disk_full", Cause.DISK_FULL),
            ("shm_full", Cause.SHARED_MEMORY_FULL),
        ],
    )
    @pytest.mark.parametrize("log", [Cause.SCHEDULER_EXCEPTION, Cause.SCHEDULER_DIED, Cause.WARMUP_FAILED])
    def test_an_exception_without_a_name_is_explained_by_the_box(
        self, log: Cause, name: str, cause: Cause
    ) -> None:
        """
        The log says who failed; the box says of what.
        """
        assert (cause, SAID[name]) == ((found := verdict(name, log=log)).cause, found.because)


class TestTheLogIsSilent:
    """
    Where the log proves nothing, the box decides; where that tells nothing, nothing is known.
    """

    @pytest.mark.parametrize(
        ("after", "end", "status", "cause"),
        [
            (("oom_kill",), End.EXITED, 137, Cause.HOST_OOM_KILLED),
            (("oom_kill",), End.VANISHED, None, Cause.HOST_OOM_KILLED),
            (("oom_kill",), End.DEAF, None, Cause.HOST_OOM_KILLED),
            (("box_restarted", "disk_full"), End.VANISHED, None, Cause.BOX_RESTARTED),
            (("gpu_fault",), End.STALLED, None, Cause.GPU_FAULT),
            (("gpu_lost",), End.VANISHED, None, Cause.GPU_FAULT),
            (("xid",), End.EXITED, 137, Cause.CUDA_FAULT),
            (("xid",), End.VANISHED, None, Cause.CUDA_FAULT),
            (("disk_full",), End.STALLED, None, Cause.DISK_FULL),
            (("disk_full",), End.EXITED, 1, Cause.DISK_FULL),
            (("shm_full",), End.EXITED, 1, Cause.SHARED_MEMORY_FULL),
            ((), End.EXITED, 137, Cause.VANISHED),
            (("no_oom_kill", "untold"), End.EXITED, 137, Cause.VANISHED),
            ((), End.EXITED, 1, Cause.UNKNOWN),
            (("untold",), End.EXITED, 1, Cause.UNKNOWN),
            (("no_oom_kill",), End.STALLED, None, Cause.STALLED),
        ],
    )
    def test_by_what_the_box_says(
        self, after: tuple[str, ...], end: End, status: int | None, cause: Cause
    ) -> None:
        """
        One row for each combination of an end and what was found after it.
        """
        found = verdict(*after, end=end, status=status)
        decisive = [SAID[name] for name in after if name not in ("no_oom_kill", "untold")]

        counted = {"oom_kills": 0.0} if "no_oom_kill" in after else {}
        assert (cause, KNOWLEDGE[cause].next, KNOWLEDGE[cause].advice(counted)) == (
            found.cause,
            found.next,
            found.remedy,
        )
        assert decisive[:1] == ([found.because] if decisive else [])
        assert "last" == found.proof

    @pytest.mark.parametrize(
        ("after", "cause"),
        [
            (("shm_full", "shm"), Cause.SHARED_MEMORY_FULL),
            (("disk_full", "shm"), Cause.DISK_FULL),
            (("shm",), Cause.BUS_ERROR),
        ],
    )
    def test_a_bus_error_is_of_what_is_full(self, after: tuple[str, ...], cause: Cause) -> None:
        """
        Where nothing is, the size of shared memory is told with it: 64 MiB is what a container gets that asks
        for none.
        """
        found = verdict(*after, status=135)

        assert cause is found.cause
        assert cause is Cause.DISK_FULL or SAID["shm"] in found.further
        assert cause is not Cause.BUS_ERROR or "exit status 135" in found.because

    @pytest.mark.parametrize(
        ("stage", "cause"),
        [
            (Stage.ARGUMENTS, Cause.NATIVE_CRASH),
            (Stage.WEIGHTS_BEGUN, Cause.NATIVE_CRASH),
            (Stage.GRAPHS_BEGUN, Cause.CUDA_FAULT),
        ],
    )
    def test_a_crash_that_only_the_kernel_saw(self, stage: Stage, cause: Cause) -> None:
        """
        Before the weights the installation is at fault, later a kernel (as for the same in a log).
        """
        assert cause is verdict("segfault", status=139, stage=stage).cause

    @pytest.mark.parametrize(
        ("stage", "after"), [(Stage.WEIGHTS_BEGUN, Next.REPEAT), (Stage.GRAPHS_BEGUN, Next.CLIMB)]
    )
    def test_a_fault_of_the_gpu_before_any_kernel_of_the_model_ran(self, stage: Stage, after: Next) -> None:
        """
        The same again, as no other configuration avoids what had not run.
        """
        found = verdict("xid", stage=stage)

        assert (Cause.CUDA_FAULT, after) == (found.cause, found.next)
        assert ("start the same again" in found.remedy) is (after is Next.REPEAT)

    def test_what_is_unknown_is_said_of_a_silent_death(self) -> None:
        """
        Somebody who reads `killed from outside` learns what could not be looked at.
        """
        found = verdict("no_oom_kill", "untold", end=End.VANISHED, status=None)

        assert (SAID["no_oom_kill"], SAID["untold"]) == found.further

    def test_all_else_stands_beside(self) -> None:
        """
        One fact decides, and the others are told in their order.
        """
        found = verdict("oom_kill", "disk_full", "xid")

        assert (OOM, (SAID["xid"], SAID["disk_full"])) == (found.because, found.further)


ROOT_CAUSES = sorted(set(Cause) - {*NAMELESS, *SEEN_OF_A_GPU, *UNEXPLAINED, Cause.HOST_OOM_KILLED})
ENDS = (End.EXITED, End.VANISHED, End.STALLED, End.DOOMED, End.DEAF)


class TestLaws:
    """
    What holds for every combination.
    """

    @given(st.sets(st.sampled_from(sorted(SAID))), st.sampled_from(ROOT_CAUSES), st.sampled_from(ENDS))
    def test_a_root_cause_of_the_log_is_never_overruled(self, after: set[str], log: Cause, end: End) -> None:
        """
        Whatever the box says, the proof stays; all that may explain a death is told beside it.
        """
        found = verdict(*sorted(after), log=log, end=end)

        assert (log, "the line", KNOWLEDGE[log].next) == (found.cause, found.proof, found.next)
        assert {SAID[name] for name in after & {*STRONG, *WEAK}} <= set(found.further)

    @given(
        st.sets(st.sampled_from(sorted(SAID))),
        st.none() | st.sampled_from(sorted(Cause)),
        st.sampled_from(ENDS),
        st.sampled_from([None, 0, 1, 135, 137, 139]),
    )
    def test_nothing_is_told_twice_or_lost(
        self, after: set[str], log: Cause | None, end: End, status: int | None
    ) -> None:
        """
        Every fact that may explain a death is what the verdict rests on, or stands beside it, once.
        """
        found = verdict(*sorted(after), log=log, end=end, status=status)
        told = [found.because, *found.further]

        assert all(1 == told.count(SAID[name]) for name in after & {*STRONG, *WEAK})
        assert (KNOWLEDGE[found.cause].next, True) == (found.next, bool(found.remedy))


class TestOrderedEnds:
    """
    A stop that was ordered, and a refusal, explain themselves.
    """

    @pytest.mark.parametrize("name", ["disk_full", "xid", "shm_full"])
    def test_a_stop_stays_one(self, name: str) -> None:
        """
        A full disk on the side did not stop it.
        """
        assert Cause.STOPPED is verdict(name, stopping=True).cause
        assert Cause.STOPPED is verdict(name, end=End.STOPPED, status=0).cause

    def test_a_refusal_stays_one(self) -> None:
        """
        The server's own answer says what it objects to.
        """
        assert Cause.REQUESTS_REFUSED is verdict("disk_full", end=End.REFUSING, status=None).cause
