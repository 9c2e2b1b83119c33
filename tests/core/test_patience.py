"""
What a silent server shows of its work, and how long it is waited for.
"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from mtpdeploy.core.patience import (
    ALONE_MULTIPLE,
    BLIND_MULTIPLE,
    BYTES_ARE_WORK,
    GPU_MEMORY_IS_WORK,
    MEMORY_IS_WORK,
    Activity,
    Kind,
    Patience,
)

BEAT = 5.0
PATIENCE = 100.0

FIRST = Activity(
    at=0.0,
    processes=4,
    cpu_seconds=20.0,
    resident_bytes=10 << 30,
    read_bytes=0,
    written_bytes=0,
    gpu_bytes=50 << 30,
    gpu_busy=0.0,
)


def after(activity: Activity, **grown: Any) -> Activity:
    """
    The next heartbeat's count: fields that are numbers grow by so much, others are as given.
    """
    changes: dict[str, Any] = {"at": activity.at + BEAT}
    for name, value in grown.items():
        before = getattr(activity, name)
        changes[name] = before + value if isinstance(before, (int, float)) and name != "gpu_busy" else value
    return structs.replace(activity, **changes)


def noted(*activities: Activity, now: float = 0.0) -> Patience:
    """
    A patience that took these, each at its own time.
    """
    patience = Patience(now)
    for activity in activities:
        patience.note(activity.at, activity)
    return patience


class TestKinds:
    @pytest.mark.parametrize(
        ("grown", "kinds"),
        [
            ({}, []),
            ({"cpu_seconds": 0.04}, []),
            ({"cpu_seconds": 5.0}, [Kind.CPU]),
            ({"cpu_seconds": -3.0}, []),
            ({"cpu_seconds": 9.0, "compilers": ("cicc", "ninja")}, [Kind.COMPILERS, Kind.CPU]),
            ({"cpu_seconds": 0.0, "compilers": ("cicc",)}, []),
            ({"read_bytes": 20 << 20}, [Kind.READ]),
            ({"written_bytes": 20 << 20}, [Kind.WRITTEN]),
            ({"read_bytes": 4096, "written_bytes": 4096}, []),
            ({"resident_bytes": 8 << 30}, [Kind.MEMORY]),
            ({"pinned_bytes": 8 << 30}, [Kind.MEMORY]),
            ({"resident_bytes": -(8 << 30)}, []),
            ({"gpu_bytes": 1 << 30}, [Kind.GPU_MEMORY]),
            ({"gpu_bytes": -(1 << 30)}, [Kind.GPU_MEMORY]),
            ({"gpu_bytes": 1 << 20}, []),
            ({"gpu_busy": 100.0}, [Kind.GPU]),
            ({"gpu_busy": None}, []),
        ],
    )
    def test_of_one_heartbeat(self, grown: dict[str, Any], kinds: list[Kind]) -> None:
        """
        What counts as work between two heartbeats, and what is only noise.
        """
        patience = noted(FIRST, after(FIRST, **grown))

        assert kinds == [sign.kind for sign in patience.signs]

    def test_the_networks_bytes_stand_in_for_those_of_the_family(self) -> None:
        """
        Where a family's own bytes are not told, those that reach the container are taken.
        """
        first = structs.replace(FIRST, read_bytes=None, written_bytes=None, received_bytes=0)
        patience = noted(first, after(first, received_bytes=50 << 20))

        assert [Kind.RECEIVED] == [sign.kind for sign in patience.signs]

    def test_a_buffer_that_comes_and_goes_is_no_growth(self) -> None:
        """
        Memory counts above its highest mark only, so that a loop cannot show it again and again.
        """
        grown = after(FIRST, resident_bytes=2 * MEMORY_IS_WORK)
        shrunk = after(grown, resident_bytes=-2 * MEMORY_IS_WORK)
        patience = noted(FIRST, grown, shrunk)
        patience.begin_anew(15.0)
        patience.note(15.0, after(shrunk))
        patience.note(20.0, after(after(shrunk), resident_bytes=2 * MEMORY_IS_WORK))

        assert () == patience.signs

    def test_graphs_that_take_little_each_add_up(self) -> None:
        """
        Captures of 2 MiB each count together, though none of them would alone.
        """
        beats = [FIRST]
        for _ in range(8):
            beats.append(after(beats[-1], gpu_bytes=GPU_MEMORY_IS_WORK / 8))

        assert [Kind.GPU_MEMORY] == [sign.kind for sign in noted(*beats).signs]

    def test_memory_that_moves_is_told_by_how_much(self) -> None:
        """
        Up and down counts twice: what is shown is how much has moved, also where it is back at its level.
        """
        up = after(FIRST, gpu_bytes=1 << 30, resident_bytes=2 << 30)
        down = after(up, gpu_bytes=-(1 << 30), resident_bytes=1 << 30)

        assert [3 << 30, 2 << 30] == [sign.amount for sign in noted(FIRST, up, down).signs]

    def test_a_count_that_is_told_twice_is_no_work(self) -> None:
        """
        A reader that could not count anew tells what it counted before; the next count spans both.
        """
        patience = noted(FIRST)
        patience.note(5.0, FIRST)
        patience.note(10.0, after(FIRST, read_bytes=int(BYTES_ARE_WORK * BEAT)))

        assert [Kind.READ] == [sign.kind for sign in patience.signs]

    def test_amounts_count_from_the_last_line(self) -> None:
        """
        What is shown is what happened since the log's last line.
        """
        one = after(FIRST, read_bytes=1 << 30)
        two = after(one, read_bytes=1 << 30)
        three = after(two, read_bytes=1 << 30)
        patience = noted(FIRST, one)
        patience.begin_anew(6.0)
        patience.note(10.0, two)
        patience.note(15.0, three)
        patience.note(20.0, after(three, read_bytes=1 << 30))

        assert [2 << 30] == [sign.amount for sign in patience.signs]

    def test_what_moved_before_the_last_line_is_no_sign_after_it(self) -> None:
        """
        A deadlock right after the weights shows nothing, though they were loaded since the last heartbeat.
        """
        loaded = after(FIRST, read_bytes=5 << 20, gpu_bytes=72 << 30, resident_bytes=4 << 30, cpu_seconds=5.0)
        still = after(loaded)
        patience = noted(FIRST)
        patience.begin_anew(2.0)
        patience.note(5.0, loaded)
        patience.note(10.0, still)

        assert () == patience.signs
        assert "no line for 30 s, and no other sign of work" == patience.because(32.0)


class TestEnds:
    def test_silence_has_the_stages_patience(self) -> None:
        """
        Without any sign the end is the stage's patience after the last line.
        """
        assert PATIENCE == noted(FIRST, after(FIRST)).ends(PATIENCE)

    def test_work_begins_it_anew(self) -> None:
        """
        Bytes that are read are as good as a line.
        """
        assert BEAT + PATIENCE == noted(FIRST, after(FIRST, read_bytes=1 << 30)).ends(PATIENCE)

    def test_computing_alone_has_a_multiple_of_it(self) -> None:
        """
        A core that burns for ever with no other sign is a spin, a compiler in the process at best.
        """
        beats = [FIRST]
        for _ in range(60):
            beats.append(after(beats[-1], cpu_seconds=BEAT, gpu_busy=100.0))

        assert ALONE_MULTIPLE * PATIENCE == noted(*beats).ends(PATIENCE)
        assert 12 * BEAT + PATIENCE == noted(*beats[:13]).ends(PATIENCE)

    def test_blind_it_is_longer(self) -> None:
        """
        Where nothing but the log can be seen, silence proves less.
        """
        patience = Patience(7.0)

        assert 7.0 + BLIND_MULTIPLE * PATIENCE == patience.ends(PATIENCE)

    def test_a_box_that_was_restarted_counts_from_there(self) -> None:
        """
        The box's clock begins anew with it, and nothing of before is held against what is now.
        """
        later = structs.replace(FIRST, at=900.0, cpu_seconds=900.0)
        patience = noted(later)
        patience.note(910.0, FIRST)
        patience.note(915.0, after(FIRST))

        assert () == patience.signs

    GROWN = st.fixed_dictionaries(
        {
            "cpu_seconds": st.sampled_from([0.0, 5.0]),
            "read_bytes": st.sampled_from([0, 1 << 30]),
            "resident_bytes": st.sampled_from([0, 1 << 30]),
            "gpu_bytes": st.sampled_from([0, 1 << 30]),
            "gpu_busy": st.sampled_from([0.0, 100.0]),
            "compilers": st.sampled_from([(), ("ptxas",)]),
        }
    )

    @given(beats=st.lists(st.tuples(GROWN, GROWN, st.booleans()), max_size=12))
    def test_more_evidence_never_shortens_it(self, beats: list[tuple[Any, Any, bool]]) -> None:
        """
        Whoever shows more work, at any heartbeat, is waited for at least as long.
        """
        less, more = FIRST, FIRST
        patiences = noted(FIRST), noted(FIRST)
        for shown, further, line in beats:
            less = after(less, **shown)
            both = {name: max(value, further[name]) for name, value in shown.items()}
            more = after(more, **both)
            patiences[0].note(less.at, less)
            patiences[1].note(more.at, more)
            if line:
                patiences[1].begin_anew(more.at)

        assert patiences[0].ends(PATIENCE) <= patiences[1].ends(PATIENCE)


class TestWhy:
    def test_names_what_was_seen(self) -> None:
        """
        The verdict says whether nothing was seen, nothing any more, or only what a deadlock shows as well.
        """
        read = noted(FIRST, after(FIRST, read_bytes=1 << 30))
        spun = noted(FIRST, after(FIRST, cpu_seconds=5.0))

        assert "no line for 100 s, and no other sign of work" == noted(FIRST).because(100.0)
        assert "no line for 105 s, and no other sign of work for 100 s" == read.because(105.0)
        assert "for 200 s nothing but CPU time or a busy GPU" in spun.because(200.0)
        assert "nothing but the log can be seen there" in Patience(0.0).because(400.0)
