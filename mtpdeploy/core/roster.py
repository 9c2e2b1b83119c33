"""
Which child processes a server has, and which it has lost while it lives on.
"""

from collections.abc import Collection

from mtpdeploy.core.patience import Activity, Worker

SCHEDULER, DETOKENIZER = "sglang::scheduler", "sglang::detokenizer"

NEEDED = (SCHEDULER, DETOKENIZER, "sglang::data_parallel_controller")
"""
Titles (or how they begin, `sglang::scheduler_TP0`) of processes without which no request is answered; none
of them is ever started again (SGLang 0.5.6-0.5.23, entrypoints/engine.py).
"""

LOST_GRACE = 10.0
"""
Seconds that a server may live on without one of its processes: newer ones notice and are gone 6 to 7 s after
a scheduler was killed (SGLang 0.5.23, logs s05 and s10), older ones never do (to 0.5.9).
"""


UNSEEN = Worker(0, "", SCHEDULER)
"""A scheduler that must have been there; its pid is not known."""


def lacks_scheduler(titles: Collection[str]) -> bool:
    """
    Whether a server of which these titles live, and which has begun to load, has no scheduler.

    The detokenizer shows that titles are to be seen there; without it nothing is concluded.
    """
    return DETOKENIZER in titles and not any(title.startswith(SCHEDULER) for title in titles)


class Roster:
    """
    A fold over the heartbeats of one attempt. `now` is our monotonic clock.
    """

    def __init__(self) -> None:
        self._present: frozenset[Worker] = frozenset()
        self._gone: dict[Worker, float] = {}

    def note(self, now: float, activity: Activity, *, scheduling: bool = False) -> None:
        """
        Take a heartbeat; a process is gone when it was seen before and neither it nor one in its place is.

        One that was never seen is gone as well, if the detokenizer shows that titles are to be seen: it died
        between two heartbeats, or before we came. Either the log shows a scheduler at work (`scheduling`), or
        no child is left that may still take its title: schedulers are started before the detokenizer
        (SGLang 0.5.6-0.5.23, entrypoints/engine.py).
        """
        present = frozenset(worker for worker in activity.workers if worker.title.startswith(NEEDED))
        titles = {worker.title for worker in present}
        known = {(worker.pid, worker.start) for worker in present}
        missing = [worker for worker in self._present | self._gone.keys() if worker.title not in titles]
        missing = [worker for worker in missing if (worker.pid, worker.start) not in known]
        seen = titles | {worker.title for worker in missing}
        if (scheduling or activity.untitled == 0) and DETOKENIZER in titles and lacks_scheduler(seen):
            missing.append(UNSEEN)
        self._gone = {worker: self._gone.get(worker, now) for worker in missing}
        self._present = present

    def lost(self, now: float) -> tuple[Worker, ...]:
        """
        Those that have been gone for longer than the grace, by title.
        """
        gone = [worker for worker, since in self._gone.items() if now - since >= LOST_GRACE]
        return tuple(sorted(gone, key=lambda worker: worker.title))
