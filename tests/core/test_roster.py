"""
Which of its child processes a server has lost.
"""

import pytest

from mtpdeploy.core.patience import Activity, Worker
from mtpdeploy.core.roster import LOST_GRACE, Roster

SCHEDULER = Worker(10, "100", "sglang::scheduler_TP0")
SECOND = Worker(11, "101", "sglang::scheduler_TP1")
DETOKENIZER = Worker(12, "102", "sglang::detokenizer")


def beat(now: float, workers: tuple[Worker, ...], untitled: int | None = None) -> Activity:
    """
    A heartbeat's count.
    """
    return Activity(
        at=now, processes=4, cpu_seconds=0.0, resident_bytes=0, workers=workers, untitled=untitled
    )


def lost(*beats: tuple[float, tuple[Worker, ...]], at: float) -> list[str]:
    """
    The titles that count as lost after these heartbeats.
    """
    roster = Roster()
    for now, workers in beats:
        roster.note(now, beat(now, workers))
    return [worker.title for worker in roster.lost(at)]


class TestLost:
    def test_one_that_was_never_there_is_not_lost(self) -> None:
        """
        A family that is still importing has no titles yet.
        """
        assert [] == lost((0.0, ()), (5.0, (DETOKENIZER,)), at=500.0)

    def test_one_of_several_after_the_grace(self) -> None:
        """
        One rank of several is enough, and it is told once the grace is over, not before.
        """
        beats = ((0.0, (SCHEDULER, SECOND, DETOKENIZER)), (5.0, (SCHEDULER, DETOKENIZER)))

        assert [] == lost(*beats, at=5.0 + LOST_GRACE - 0.1)
        assert ["sglang::scheduler_TP1"] == lost(*beats, at=5.0 + LOST_GRACE)

    def test_the_grace_runs_from_the_first_heartbeat_without_it(self) -> None:
        """
        Further heartbeats do not begin it anew.
        """
        beats = ((0.0, (SCHEDULER,)), (5.0, ()), (10.0, ()), (15.0, ()))

        assert ["sglang::scheduler_TP0"] == lost(*beats, at=15.0)

    def test_a_count_that_failed_once_is_forgiven(self) -> None:
        """
        A process that is seen again was never lost, nor is one that another took the place of.
        """
        again = Worker(99, "900", SCHEDULER.title)

        assert [] == lost((0.0, (SCHEDULER,)), (5.0, ()), (10.0, (SCHEDULER,)), at=100.0)
        assert [] == lost((0.0, (SCHEDULER,)), (5.0, (again,)), at=100.0)

    @pytest.mark.parametrize(
        ("workers", "scheduling", "titles"),
        [
            ((DETOKENIZER,), True, ["sglang::scheduler"]),
            ((DETOKENIZER,), False, []),
            ((), True, []),
            ((SCHEDULER, DETOKENIZER), True, []),
        ],
    )
    def test_one_that_was_never_seen_though_the_log_shows_its_work(
        self, workers: tuple[Worker, ...], scheduling: bool, titles: list[str]
    ) -> None:
        """
        It died before we came; without any title of SGLang's nothing is concluded.
        """
        roster = Roster()
        for now in (0.0, 5.0):
            roster.note(now, beat(now, workers), scheduling=scheduling)

        assert titles == [worker.title for worker in roster.lost(LOST_GRACE)]

    @pytest.mark.parametrize(
        ("workers", "untitled", "titles"),
        [
            ((DETOKENIZER,), 0, ["sglang::scheduler"]),
            ((DETOKENIZER,), 1, []),
            ((), 0, []),
            ((SCHEDULER, DETOKENIZER), 0, []),
        ],
    )
    def test_one_that_died_before_its_title_and_the_logs_first_word_of_it(
        self, workers: tuple[Worker, ...], untitled: int, titles: list[str]
    ) -> None:
        """
        The detokenizer is started after it, and no child is left that could still become it.
        """
        roster = Roster()
        for now in (0.0, 5.0):
            roster.note(now, beat(now, workers, untitled))

        assert titles == [worker.title for worker in roster.lost(LOST_GRACE)]

    def test_one_that_takes_its_title_late_is_not_lost(self) -> None:
        """
        An import may take longer than the grace.
        """
        roster = Roster()
        for now in (0.0, 20.0, 40.0):
            roster.note(now, beat(now, (DETOKENIZER,), 1))
        roster.note(45.0, beat(45.0, (SCHEDULER, DETOKENIZER), 0))

        assert () == roster.lost(100.0)

    def test_a_helper_is_not_missed(self) -> None:
        """
        Only those without which no request is answered count.
        """
        helper = Worker(20, "1", "sglang::tokenizer_worker:20")

        assert [] == lost((0.0, (SCHEDULER, helper)), (5.0, (SCHEDULER,)), at=100.0)
