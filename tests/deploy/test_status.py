"""
What runs on a box, told from its files and processes alone.
"""

from msgspec import structs

from mtpdeploy.core.machine import Facts, ProcessId, RunRecord
from mtpdeploy.deploy.down import take_down
from mtpdeploy.deploy.status import is_living, statuses
from tests.deploy.place import SEED, Place


class TestStatuses:
    def test_a_server_that_serves(self, place: Place, port: int) -> None:
        """
        It is `ready`, with its port, its pid, its log and its accept length.
        """
        ascent = place.up(place.server(port))
        assert ascent.ready is not None
        assert ascent.ready.report is not None

        (status,) = statuses(place.facts())

        assert ("ready", port, 1) == (status.state, status.port, status.attempt)
        assert ascent.ready.report.accept_length == status.accept_length
        assert ascent.ready.log == status.log
        assert ascent.id == status.ascent
        assert is_living(status)

    def test_a_server_whose_scheduler_is_gone(self, place: Place, port: int) -> None:
        """
        What was ready and lost its scheduler is not `ready`, though its main process and its port are there.
        """
        place.up(place.server(port))
        facts = place.facts()
        left = tuple(p for p in facts.processes if not p.command.startswith("sglang::scheduler"))

        (status,) = statuses(structs.replace(facts, processes=left))

        assert len(left) == len(facts.processes) - 1
        assert "running, but its scheduler is gone: it answers nothing" == status.state
        assert is_living(status)

    def test_a_failed_attempt(self, place: Place, port: int) -> None:
        """
        Its cause is told after how it ended, and it does not live.
        """
        place.up(place.server(port, SEED), max_attempts=1, plan=False)

        (status,) = statuses(place.facts())

        assert "exited: memory left after the weights is too small for the pools" == status.state
        assert 137 == status.exit_status
        assert not is_living(status)

    def test_one_that_was_taken_down(self, place: Place, port: int) -> None:
        """
        A server that was ready and then stopped is no longer ready.
        """
        place.up(place.server(port))
        take_down(place.tools(), server=None)

        (status,) = statuses(place.facts())

        assert "exited" == status.state
        assert not is_living(status)

    def test_one_that_is_starting(self, place: Place, port: int) -> None:
        """
        A server without an outcome that lives is `running`.
        """
        place.up(place.server(port), detach=True)

        (status,) = statuses(place.facts())

        assert "running" == status.state
        assert is_living(status)

    def test_records_that_cannot_be_read_are_passed_over(self, place: Place, port: int) -> None:
        """
        A damaged attempt.json hides no other run.
        """
        place.up(place.server(port), detach=True)
        facts = place.facts()
        damaged = (RunRecord("z-1", "{"), RunRecord("z-2", ""), RunRecord("z-3", '{"ascent": 3}'))

        assert 1 == len(statuses(_with_runs(facts, (*damaged, *facts.runs))))

    def test_a_damaged_outcome_is_none(self, place: Place, port: int) -> None:
        """
        A run whose outcome cannot be read is told by its files.
        """
        place.up(place.server(port), detach=True)
        facts = place.facts()
        run = facts.runs[0]
        broken = RunRecord(
            run.name, run.attempt, process=ProcessId(1, "1"), alive=True, outcome="{", exit_status=None
        )

        assert ["running"] == [s.state for s in statuses(_with_runs(facts, (broken,)))]


def _with_runs(facts: Facts, runs: tuple[RunRecord, ...]) -> Facts:
    fields = {name: getattr(facts, name) for name in facts.__struct_fields__}
    return Facts(**{**fields, "runs": runs})
