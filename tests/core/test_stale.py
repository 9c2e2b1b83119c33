import pytest
from msgspec import structs

from mtpdeploy.core.machine import GpuHolder
from mtpdeploy.core.server import ServerSpec
from mtpdeploy.core.stale import Clearance, judge, needs_take
from mtpdeploy.core.units import GIB
from tests.core.crowds import SERVED, facts, ours, pid, pids, process, server, supervised, tree


def test_an_empty_box_is_clear() -> None:
    """
    Nothing runs, nothing is in the way, nothing is waited for.
    """
    assert Clearance(port=30000) == judge(facts(), server(), keep_others=False)


def test_a_run_of_ours_on_the_same_card_is_ended_whole() -> None:
    """
    Its whole family goes, the signal to the supervisor; the memory is waited for.
    """
    members = supervised(port=31000, gpu="GPU-aaaa")
    found = judge(
        facts(*members, runs=(ours("r", members, server(31000)),)), server(gpus=(0,)), keep_others=True
    )

    assert ([[100, 101, 102, 103, 104]], (), (), ()) == (
        pids(found.ours), found.others, found.foreign, found.kept,
    )  # fmt: skip
    assert ("r", "holds 90.00 GiB of GPU 0", (pid(100),)) == (
        found.ours[0].run, found.ours[0].why, found.ours[0].mains,
    )  # fmt: skip
    assert {"GPU-aaaa": 95 * GIB} == found.memory


def test_a_run_of_ours_on_the_same_port_is_ended() -> None:
    """
    On another card, but on the wanted port, it is in the way.
    """
    members = supervised(port=30000, gpu="GPU-bbbb")
    found = judge(
        facts(*members, runs=(ours("r", members, server(gpus=(1,))),)), server(gpus=(0,)), keep_others=False
    )

    assert ["listens on port 30000"] == [blocker.why for blocker in found.ours]


def test_a_run_of_ours_elsewhere_is_left_alone() -> None:
    """
    On another port and another card a run of ours goes on serving.
    """
    members = supervised(port=31000, gpu="GPU-bbbb")
    run = ours("r", members, server(31000, gpus=(1,)))
    found = judge(facts(*members, runs=(run,)), server(gpus=(0,)), keep_others=False)

    assert Clearance(port=30000) == found


def test_a_run_of_ours_that_holds_no_card_yet_may_use_the_one_it_was_given() -> None:
    """
    A start in its first seconds is judged by what it was told.
    """
    members = supervised(port=31000)[:2]
    members = (members[0], structs.replace(members[1], listens=()))
    box = facts(*members, runs=(ours("r", members, server(31000, gpus=(1,))),))

    assert ["may use GPU 1"] == [b.why for b in judge(box, server(gpus=(1,)), keep_others=False).ours]
    assert () == judge(box, server(gpus=(0,)), keep_others=False).ours


@pytest.mark.parametrize("asked", [None, server(31000)])
def test_without_cards_named_all_are_meant(asked: ServerSpec | None) -> None:
    """
    A run that names no card, or whose record is damaged, and holds none yet is in the way of every card.
    """
    members = supervised(port=31000)
    found = judge(facts(*members, runs=(ours("r", members, asked),)), server(gpus=(1,)), keep_others=False)

    assert ["may use GPU 1"] == [blocker.why for blocker in found.ours]


def test_a_server_that_names_no_card_wants_all() -> None:
    """
    Whoever holds any card is in its way.
    """
    found = judge(facts(*tree(port=31000, gpu="GPU-bbbb")), server(), keep_others=False)

    assert ["holds 90.00 GiB of GPU 1"] == [blocker.why for blocker in found.others]


def test_a_server_is_only_shown_some_cards() -> None:
    """
    CUDA_VISIBLE_DEVICES of the server, by number or by UUID, says which cards it wants.
    """
    box = facts(*tree(port=31000, gpu="GPU-bbbb"))
    zero, other = server(env={"CUDA_VISIBLE_DEVICES": "0"}), server(env={"CUDA_VISIBLE_DEVICES": "GPU-bb"})

    assert (0, 1) == (
        len(judge(box, zero, keep_others=False).others), len(judge(box, other, keep_others=False).others),
    )  # fmt: skip


def test_children_of_ours_that_lost_their_parent_are_still_ours() -> None:
    """
    The supervisor and the main process are gone, the scheduler lives under init: it is the run's.
    """
    orphan = process(102, "sglang::scheduler", kind="worker", pgid=101, gpu_bytes={"GPU-aaaa": GIB}, run="r")
    run = ours("r", (process(100), orphan), server(), alive=False, exit_status=137)
    found = judge(facts(orphan, runs=(run,)), server(), keep_others=True)

    assert ([[102]], (), (pid(102),)) == (pids(found.ours), found.foreign, found.ours[0].mains)


def test_another_server_in_the_way_is_ended_with_its_family() -> None:
    """
    Main, tracker, scheduler and detokenizer go together; the main process gets the signal.
    """
    found = judge(facts(*tree(gpu="GPU-aaaa")), server(), keep_others=False)

    assert ([[100, 101, 102, 103]], (), ()) == (pids(found.others), found.ours, found.foreign)
    assert (100, (pid(100),), (30000,), "root") == (
        found.others[0].pid, found.others[0].mains, found.others[0].ports, found.others[0].user,
    )  # fmt: skip
    assert "listens on port 30000, holds 90.00 GiB of GPU 0" == found.others[0].why
    assert {"GPU-aaaa": 95 * GIB} == found.memory


def test_another_server_elsewhere_is_left_alone() -> None:
    """
    Another port and another card: not in the way.
    """
    found = judge(facts(*tree(port=31000, gpu="GPU-bbbb")), server(gpus=(0,)), keep_others=False)

    assert Clearance(port=30000) == found


def test_orphaned_workers_are_a_family_of_their_process_group() -> None:
    """
    Scheduler, detokenizer and tracker under init, holding the card, go as one, each told by itself.
    """
    orphans = tuple(structs.replace(p, ppid=1) for p in tree(gpu="GPU-aaaa")[1:])
    found = judge(facts(*orphans), server(), keep_others=False)

    assert [[101, 102, 103]] == pids(found.others)
    assert {pid(101), pid(102), pid(103)} == set(found.others[0].mains)


def test_two_servers_of_one_script_are_two_families() -> None:
    """
    They share a process group; the one on another port and card is left alone.
    """
    one, two = tree(100, gpu="GPU-aaaa"), tree(200, port=31000, gpu="GPU-bbbb")
    found = judge(
        facts(*(structs.replace(p, pgid=50) for p in one + two)), server(gpus=(0,)), keep_others=False
    )

    assert [[100, 101, 102, 103]] == pids(found.others)


def test_whatever_a_server_started_belongs_to_it() -> None:
    """
    A compiler below the scheduler is part of the family.
    """
    compiler = process(150, "ninja -v", kind="", ppid=102)
    found = judge(facts(*tree(gpu="GPU-aaaa"), compiler), server(), keep_others=False)

    assert [[100, 101, 102, 103, 150]] == pids(found.others)


@pytest.mark.parametrize(
    ("flags", "devices", "in_the_way"),
    [("", None, True), ("--base-gpu-id 1", None, False), ("--tp-size=2 --base-gpu-id=0", None, True),
     ("", "1", False), ("", "0,1", True), ("--dp 2", None, True), ("--device cpu", None, False)],
)  # fmt: skip
def test_another_server_that_holds_no_card_yet(flags: str, devices: str | None, in_the_way: bool) -> None:
    """
    While it starts, its flags and its environment say which cards it will take.
    """
    main = process(100, f"{SERVED} --port 31000 {flags}", devices=devices)
    found = judge(facts(main), server(gpus=(0,)), keep_others=False)

    assert in_the_way == bool(found.others)


def test_keep_others_on_a_card_only_is_kept() -> None:
    """
    The user wants to share the card: the other server is named, not ended, and its memory not waited for.
    """
    found = judge(facts(*tree(port=31000, gpu="GPU-aaaa")), server(), keep_others=True)

    assert (1, (), (), {}) == (len(found.kept), found.others, found.foreign, found.memory)


def test_keep_others_on_the_port_is_in_the_way_for_good() -> None:
    """
    A port cannot be shared: kept there means foreign.
    """
    found = judge(facts(*tree(gpu="GPU-aaaa")), server(), keep_others=True)

    assert ([[100, 101, 102, 103]], (), ()) == (pids(found.foreign), found.kept, found.others)


def test_a_server_of_another_user_is_foreign() -> None:
    """
    Whatever it runs, it is not ended.
    """
    found = judge(facts(*tree(gpu="GPU-aaaa", user="bob")), server(), keep_others=False)

    assert ((), ()) == (found.ours, found.others)
    assert [("bob", "listens on port 30000"), ("bob", "holds 90.00 GiB of GPU 0")] == [
        (blocker.user, blocker.why) for blocker in found.foreign
    ]


def test_another_program_on_the_card_is_foreign() -> None:
    """
    A training job of the same user is named with its pid and command.
    """
    job = process(7, "python train.py", kind="", gpu_bytes={"GPU-bbbb": 20 * GIB})
    found = judge(facts(job), server(), keep_others=False)

    assert [(7, "python train.py", "holds 20.00 GiB of GPU 1")] == [
        (b.pid, b.command, b.why) for b in found.foreign
    ]
    assert () == judge(facts(job), server(gpus=(0,)), keep_others=False).foreign


def test_a_little_foreign_memory_is_tolerated() -> None:
    """
    Up to 1 GiB on a card (a desktop, a monitor) nobody has to go; together above it they are named.
    """
    some = [process(n, f"Xorg {n}", kind="", gpu_bytes={"GPU-aaaa": 700 << 20}) for n in (7, 8)]

    assert () == judge(facts(some[0]), server(), keep_others=False).foreign
    assert 2 == len(judge(facts(*some), server(), keep_others=False).foreign)


def test_a_holder_outside_the_container_is_named_without_a_pid() -> None:
    """
    nvidia-smi shows pids of the host: a process of that pid here is not accused.
    """
    holder = GpuHolder("GPU-aaaa", 100, "python", 30 * GIB, visible=False)
    found = judge(facts(process(100, "bash", kind=""), holders=(holder,)), server(), keep_others=False)

    assert [0] == [blocker.pid for blocker in found.foreign]
    assert "from outside this container (its pid there is 100)" in found.foreign[0].why
    assert not found.foreign[0].settles


def test_memory_that_nobody_is_listed_for_may_settle() -> None:
    """
    A card that is used by no process that can be seen is foreign, and worth waiting for.
    """
    found = judge(facts(used=(9000, 4)), server(), keep_others=False)

    assert [(0, True)] == [(blocker.pid, blocker.settles) for blocker in found.foreign]
    assert {"GPU-aaaa": 95 * GIB} == found.memory


def test_untold_memory_is_put_down_to_a_server_in_the_way() -> None:
    """
    In a container where nvidia-smi lists nobody, the server here is what uses the card.
    """
    found = judge(facts(*tree(), used=(90000, 4)), server(gpus=(0,)), keep_others=False)

    assert (1, ()) == (len(found.others), found.foreign)
    assert {"GPU-aaaa": 95 * GIB} == found.memory


def test_a_holder_whose_share_is_not_told() -> None:
    """
    Where the driver says N/A a stranger on a used card is foreign, and on an idle one tolerated.
    """
    holder = GpuHolder("GPU-aaaa", 7, "python", None, visible=True)
    job = process(7, "python train.py", kind="", gpu_bytes={})

    assert ["holds memory of GPU 0"] == [
        b.why
        for b in judge(facts(job, holders=(holder,), used=(9000, 4)), server(), keep_others=False).foreign
    ]
    assert () == judge(facts(job, holders=(holder,)), server(), keep_others=False).foreign


@pytest.mark.parametrize(
    ("holder", "named"), [(0, "a process that cannot be seen"), (7, "nginx: master process")]
)
def test_a_stranger_on_the_port_is_foreign(holder: int, named: str) -> None:
    """
    Whoever else listens on the wanted port is named, seen or not.
    """
    nginx = process(7, "nginx: master process", kind="", user="www-data")
    found = judge(facts(nginx, port_holders=(holder,)), server(), keep_others=False)

    assert [(holder, named, "listens on port 30000")] == [(b.pid, b.command, b.why) for b in found.foreign]


def test_the_server_that_the_container_was_made_for_is_foreign() -> None:
    """
    With the first process the box would end: neither it nor its workers are touched.
    """
    first, *children = tree(1, gpu="GPU-aaaa")
    found = judge(facts(first, *children), server(), keep_others=False)

    assert ((), ()) == (found.ours, found.others)
    assert {"listens on port 30000", "first process"} <= {
        part
        for blocker in found.foreign
        for part in (blocker.why, "first process" * ("first process" in blocker.why))
    }


def test_only_what_works_on_requests_needs_take() -> None:
    """
    One with requests needs it; one without, and one that could not be asked, do not.
    """
    found = judge(
        facts(*tree(100), *tree(200, gpu="GPU-aaaa", port=1), *tree(300, port=2)), server(), keep_others=False
    )

    assert [100] == [blocker.pid for blocker in needs_take(found, {100: 3, 200: 0})]
    assert 3 == len(found.others)
