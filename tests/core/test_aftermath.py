import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from mtpdeploy.core.aftermath import Aftermath, Baseline, MemoryGroup, Room, facts
from mtpdeploy.core.machine import Gpu, GpuHolder
from mtpdeploy.core.units import GIB, MIB
from mtpdeploy.core.xids import XIDS, Kind

GROUP = MemoryGroup("/sys/fs/cgroup", limit=62 * GIB, used=60 * GIB, oom_kill=4, hit=10, below=True)
ROOMS = {
    "work_dir": Room("/root/.mtpdeploy", 100 * GIB, 200 * GIB, 1_000_000),
    "shm": Room("/dev/shm", 8 * GIB, 16 * GIB, 1000),
}
QUIET = Aftermath(
    before=Baseline(boot="b", first="7", groups=(GROUP,)),
    boot="b",
    first="7",
    groups=(GROUP,),
    kernel=(),
    rooms=ROOMS,
    nvidia_smi="ok",
)
"""A box that tells of nothing unusual; its container had a kill for memory before this launch."""

EXPLAINING = {
    "box_restarted",
    "gpu_lost",
    "gpu_fault",
    "oom_kill",
    "xid",
    "segfault",
    "disk_full",
    "shm_full",
}

KILL = "Memory cgroup out of memory: Killed process 4242 (sglang::schedul) total-vm:9kB, anon-rss:8kB"


def with_kills(count: int | None, **changes: object) -> Aftermath:
    """
    The quiet box with another count of kills.
    """
    return structs.replace(QUIET, groups=(structs.replace(GROUP, oom_kill=count),), **changes)


def test_an_old_kill_explains_nothing() -> None:
    """
    What was counted before the launch is not this run's.
    """
    told = facts(QUIET)

    assert set() == EXPLAINING & told.keys()
    assert "its control group counts no kill for memory since the launch" == told["no_oom_kill"]
    assert "untold" not in told


@given(st.lists(st.text() | st.from_regex(r"NVRM: Xid \(.*\): \d+.*|.*Killed process \d+ \(.*\).*")))
def test_whatever_the_kernel_says_is_survived(lines: list[str]) -> None:
    """
    The kernel's log is text of others: any of it gives facts, and none of it a restart or a full disk.
    """
    told = facts(structs.replace(QUIET, kernel=tuple(lines)))

    assert set() == {"box_restarted", "disk_full", "shm_full", "gpu_lost", "oom_kill"} & told.keys()
    assert all(told.values())


class TestMemory:
    """
    Kills for memory are a difference.
    """

    def test_a_kill_since_the_launch(self) -> None:
        """
        The count, the difference and the limit; the kernel's line where there is one.
        """
        told = facts(with_kills(5, kernel=(KILL,)))["oom_kill"]

        assert (
            "most likely the memory limit of its control group: `oom_kill 5` (+1 since the launch), "
            f"limit 62.00 GiB; the kernel: {KILL}"
        ) == told

    def test_the_tightest_limit_is_told(self) -> None:
        """
        A group without a limit of its own ends by one above it.
        """
        above = MemoryGroup("/sys/fs", limit=30 * GIB, oom_kill=9, below=True)
        own = structs.replace(GROUP, limit=None, oom_kill=5)

        assert "limit 30.00 GiB" in facts(structs.replace(QUIET, groups=(own, above)))["oom_kill"]

    def test_without_any_limit_it_was_the_box(self) -> None:
        """
        A machine that runs out of memory kills in groups without a limit, too.
        """
        groups = (structs.replace(GROUP, limit=None, oom_kill=6),)

        assert (
            "most likely the memory of the box: `oom_kill 6` (+2 since the launch), no limit"
            == facts(structs.replace(QUIET, groups=groups))["oom_kill"]
        )

    def test_a_limit_that_was_reached_killed_nobody(self) -> None:
        """
        Reaching it mostly means that the page cache was made smaller.
        """
        groups = (structs.replace(GROUP, hit=13),)
        told = facts(structs.replace(QUIET, groups=groups))

        assert told["no_oom_kill"].endswith("though its limit was reached 3 times")
        assert "oom_kill" not in told

    def test_a_neighbours_kill_is_not_ours(self) -> None:
        """
        The kernel's log of a shared machine tells of everybody; the own group's count decides.
        """
        told = facts(structs.replace(QUIET, kernel=(KILL,)))

        assert (None, KILL) == (told.get("oom_kill"), told["oom_elsewhere"])

    @pytest.mark.parametrize(
        ("line", "ours"),
        [
            (KILL, True),
            ("Out of memory: Killed process 7 (python3) total-vm:1kB", True),
            ("Out of memory: Killed process 7 (pt_main_thread) total-vm:1kB", True),
            ("Out of memory: Killed process 7 (mysqld) total-vm:1kB", False),
            ("oom-kill:constraint=CONSTRAINT_NONE,task=python3,pid=7", False),
        ],
    )
    def test_where_nothing_counts_the_kernels_line_does(self, line: str, *, ours: bool) -> None:
        """
        Old kernels count no kills: then a line after the launch under a name that a server has.
        """
        told = facts(with_kills(None, kernel=(line,)))

        assert (f"the kernel: {line}" if ours else None) == told.get("oom_kill")
        assert "how often its control group had something killed" in told["untold"]

    @pytest.mark.parametrize(("below", "known"), [(True, True), (False, False)])
    def test_a_group_above_stands_in_where_it_counts_for_it(self, *, below: bool, known: bool) -> None:
        """
        A login's group is gone with its last process; version 1 counts nothing for it above.
        """
        own = structs.replace(GROUP, path="/sys/fs/cgroup/session", below=below)
        above = structs.replace(GROUP, below=below)
        before = Baseline("b", "7", (own, above))
        told = facts(structs.replace(QUIET, before=before, groups=(structs.replace(above, oom_kill=5),)))

        assert known is ("oom_kill" in told)

    def test_a_count_that_fell_is_of_another_group(self) -> None:
        """
        A group of the same name that was made anew tells nothing of the one before.
        """
        told = facts(with_kills(0))

        assert set() == {"oom_kill", "no_oom_kill"} & told.keys()


class TestRestart:
    """
    Another boot, or another first process.
    """

    @pytest.mark.parametrize(
        ("changes", "what"),
        [
            ({"boot": "other"}, "the box was restarted"),
            ({"first": "99"}, "the container was restarted"),
            ({"boot": "", "first": ""}, None),
        ],
    )
    def test_is_told_by_what_stood_at_the_launch(self, changes: dict[str, str], what: str | None) -> None:
        """
        What is not told now is no difference.
        """
        told = facts(structs.replace(QUIET, **changes)).get("box_restarted")

        assert what == (told and told.partition(":")[0])

    def test_counters_begin_anew_with_it(self) -> None:
        """
        After a restart the old count compares with nothing.
        """
        assert "oom_kill" not in facts(with_kills(9, boot="other", kernel=None))

    def test_without_a_baseline_nothing_is_compared(self) -> None:
        """
        Nothing remembered: no difference, no restart, and that is said.
        """
        told = facts(structs.replace(QUIET, before=None, kernel=None))

        assert set() == (EXPLAINING | {"no_oom_kill"}) & told.keys()
        assert told["untold"].startswith("not told here: what stood at the launch")


class TestGpu:
    """
    What the driver says.
    """

    @pytest.mark.parametrize(
        ("number", "name"),
        [
            (48, "gpu_fault"),
            (79, "gpu_fault"),
            (119, "gpu_fault"),
            (31, "xid"),
            (13, "xid"),
            (45, "xid_noted"),
        ],
    )
    def test_an_xid_by_who_is_at_fault(self, number: int, name: str) -> None:
        """
        Hardware, program, or a mere consequence: our own kill makes an Xid 45.
        """
        line = f"NVRM: Xid (PCI:0000:01:00): {number}, pid=7, name=python3, something"
        told = facts(structs.replace(QUIET, kernel=(line, line)))

        assert {name} == {"gpu_fault", "xid", "xid_noted"} & told.keys()
        assert told[name].startswith(
            f"the driver reported Xid {number} on 0000:01:00 ({XIDS[number].meaning}"
        )
        assert 1 == told[name].count("Xid ")

    def test_one_that_is_not_listed_is_told_as_it_is(self) -> None:
        """
        A number that this table lacks is shown, and explains nothing.
        """
        told = facts(structs.replace(QUIET, kernel=("NVRM: Xid (PCI:0000:01:00): 999, new",)))

        assert "Xid 999" in told["xid_noted"]
        assert set() == EXPLAINING & told.keys()

    @pytest.mark.parametrize(("address", "ours"), [("0000:01:00", True), ("0000:C1:00", False)])
    def test_of_other_peoples_gpus_nothing_is_told(self, address: str, *, ours: bool) -> None:
        """
        A shared machine's log names every card; a container is shown its own.
        """
        before = Baseline("b", "7", (GROUP,), ("0000:01:00.0",))
        line = f"NVRM: Xid (PCI:{address}): 79, GPU has fallen off the bus."
        told = facts(structs.replace(QUIET, before=before, kernel=(line,)))

        assert ours is ("gpu_fault" in told)

    @pytest.mark.parametrize(
        ("used", "told"),
        [((0,), True), ((1,), False), ((), True), ((5,), True)],
        ids=["ours", "not", "all", "lost"],
    )
    def test_of_gpus_that_the_run_does_not_use_nothing_is_told(
        self, used: tuple[int, ...], *, told: bool
    ) -> None:
        """
        A neighbour's card may fail; one that nvidia-smi does not list any more may have been ours.
        """
        addresses = (
            {1: "00000000:C1:00.0"} if used == (5,) else {0: "00000000:01:00.0", 1: "00000000:C1:00.0"}
        )
        line = "NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus."
        after = structs.replace(QUIET, kernel=(line,), addresses=addresses)

        assert told is ("gpu_fault" in facts(after, used))

    @pytest.mark.parametrize(
        ("state", "lost"),
        [
            (
                "Unable to determine the device handle for GPU0000:01:00.0: GPU is lost. Reboot the system",
                True,
            ),
            ("no answer within 5 s", False),
            ("absent", False),
        ],
    )
    def test_a_card_that_is_gone(self, state: str, *, lost: bool) -> None:
        """
        A slow driver is no lost card.
        """
        told = facts(structs.replace(QUIET, nvidia_smi=state)).get("gpu_lost")

        assert (f"nvidia-smi: {state}" if lost else None) == told

    def test_who_holds_memory(self) -> None:
        """
        Holders are told by the pids that nvidia-smi shows, which may be the host's.
        """
        gpu = Gpu(0, "GPU-a", "H", total_bytes=80 * GIB, free_bytes=60 * GIB, used_bytes=20 * GIB)
        holder = GpuHolder(gpu_uuid="GPU-a", pid=99, name="python3", used_bytes=19 * GIB)
        told = facts(structs.replace(QUIET, gpus=(gpu,), holders=(holder,)))

        assert "GPU 0 20.00 GiB in use: pid 99 python3 19.00 GiB" == told["gpu_memory"]

    def test_kinds_follow_nvidias_first_advice(self) -> None:
        """
        What asks for a reset or a restart of the machine is hardware; what mends itself has no advice.
        """
        assert all(
            xid.kind is Kind.HARDWARE for xid in XIDS.values() if xid.advice.startswith(("reset", "restart"))
        )
        assert not [number for number, xid in XIDS.items() if xid.kind is Kind.NOTICE and xid.advice]


class TestDisksAndCrashes:
    """
    Rooms that are full, and processes that crashed.
    """

    @pytest.mark.parametrize(
        ("name", "room", "told"),
        [
            ("work_dir", Room("/w", 3 * MIB, 50 * GIB), "disk_full"),
            ("cache", Room("/c", 40 * GIB, 50 * GIB, 0), "disk_full"),
            ("shm", Room("/dev/shm", 0, 64 * MIB), "shm_full"),
            ("work_dir", Room("/w", 0, 0), None),
            ("model", Room("/m", 1 * GIB, 50 * GIB, 7), None),
        ],
        ids=["no bytes", "no files", "shared memory", "a file system without sizes", "enough"],
    )
    def test_what_is_full(self, name: str, room: Room, told: str | None) -> None:
        """
        Too few bytes, or no file that could still be made; a file system that tells no size is not full.
        """
        found = facts(structs.replace(QUIET, rooms={name: room}))

        assert ({told} if told else set()) == {"disk_full", "shm_full"} & found.keys()

    @pytest.mark.parametrize(
        ("line", "ours"),
        [
            ("python3[4242]: segfault at 0 ip 00007f sp 00007f error 4 in libcuda.so.1[7f+1]", True),
            ("traps: sglang::schedul[7] general protection fault ip:7f sp:7f error:0", True),
            ("traps: python3[7] trap invalid opcode ip:7f sp:7f error:0", True),
            ("chrome[7]: segfault at 0 ip 00007f", False),
        ],
    )
    def test_a_crash(self, line: str, *, ours: bool) -> None:
        """
        Of a process with a name that a server's processes have.
        """
        assert (line if ours else None) == facts(structs.replace(QUIET, kernel=(line,))).get("segfault")
