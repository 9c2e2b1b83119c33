from hypothesis import given
from hypothesis import strategies as st

from mtpdeploy.core.machine import Facts
from mtpdeploy.core.stale import judge
from mtpdeploy.core.units import GIB
from tests.core.crowds import SERVED, facts, ours, process, server

KINDS = ("server", "worker", "helper", "")


@st.composite
def crowds(draw: st.DrawFn) -> Facts:
    """
    Any crowd: users, kinds, parents, groups, cards, ports and runs at random, also contradictory ones.
    """
    numbers = draw(st.lists(st.integers(1, 40), unique=True, max_size=14))
    members = tuple(
        process(
            number,
            draw(st.sampled_from([SERVED, "sglang::scheduler", "vim sglang.md", "bash"])),
            kind=draw(st.sampled_from(KINDS)),
            user=draw(st.sampled_from(["root", "bob"])),
            ppid=draw(st.integers(0, 40)),
            pgid=draw(st.integers(0, 40)),
            listens=draw(st.sampled_from([(), (30000,), (31000,)])),
            gpu_bytes=draw(st.sampled_from([{}, {"GPU-aaaa": 0}, {"GPU-aaaa": 9 * GIB}, {"GPU-bbbb": GIB}])),
        )
        for number in numbers
    )
    named = draw(st.lists(st.sampled_from(members), unique_by=lambda p: p.id, max_size=4)) if members else []
    runs = (ours("r", tuple(named), draw(st.sampled_from([None, server()]))),) if named else ()
    return facts(*members, runs=runs, used=draw(st.sampled_from([(4, 4), (9000, 4), ()])))


@given(crowds(), st.booleans(), st.sampled_from([(), (0,), (1,)]))
def test_law_only_our_own_is_ever_ended(box: Facts, keep_others: bool, gpus: tuple[int, ...]) -> None:
    """
    Nothing of another user, no first process, no bystander is ever to be ended, whatever the box looks like.
    """
    found = judge(box, server(gpus=gpus), keep_others=keep_others)
    by_id = {p.id: p for p in box.processes}
    recorded = {identity for run in box.runs for identity in (run.process, *run.family)}
    to_end = [by_id[member] for blocker in found.ours + found.others for member in blocker.family]

    assert all(p.user == "root" and p.id.pid > 1 for p in to_end)
    assert all(member in recorded for blocker in found.ours for member in blocker.family)
    for blocker in found.others:
        kinds = [by_id[member].kind for member in blocker.family]
        assert {"server", "worker"} & set(kinds)
        assert all(by_id[m].kind or by_id[m].ppid in {i.pid for i in blocker.family} for m in blocker.family)
        assert not recorded & set(blocker.family)
    assert not (keep_others and found.others)


@given(crowds(), st.booleans())
def test_law_nobody_is_named_twice_for_ending(box: Facts, keep_others: bool) -> None:
    """
    Families are apart, and every one has somebody who gets the first signal and a reason.
    """
    found = judge(box, server(), keep_others=keep_others)
    members = [member for blocker in found.ours + found.others + found.kept for member in blocker.family]

    assert len(set(members)) == len(members)
    assert all(blocker.why for blocker in found.ours + found.others + found.foreign)
    assert all(set(b.mains) <= set(b.family) for b in found.ours + found.others)
