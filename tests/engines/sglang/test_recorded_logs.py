import pytest

from mtpdeploy.core.diagnosis import Cause
from tests.engines.sglang import recorded


@pytest.mark.parametrize("name", recorded.names())
class TestRecordedLogs:
    """
    Every log of the folder.
    """

    def test_stages(self, name: str) -> None:
        """
        A real log proves the stages that its start went through, in their order.
        """
        lines, known = recorded.recorded(name)

        reading = recorded.read(lines)

        assert known["stages"] == [milestone.stage.value for milestone in reading.milestones]

    def test_cause(self, name: str) -> None:
        """
        A real log yields its cause with the line and the rank that prove it, and a healthy one nothing.
        """
        lines, known = recorded.recorded(name)

        reading = recorded.read(lines)

        if "line" not in known:
            assert () == reading.findings
            if "cause" in known:
                assert Cause[known["cause"]] is recorded.verdict(reading, known["exit_status"]).cause
            return
        verdict = recorded.verdict(reading, known.get("exit_status", 137))
        assert (known["cause"], known["line"]) == (verdict.cause.name, verdict.line)
        assert known.get("rank", "") == verdict.rank
        assert verdict.proof.startswith(known["proof"])
        assert lines[known["line"] - 1].endswith(verdict.proof[-40:])

    def test_a_death_is_known_before_the_log_ends(self, name: str) -> None:
        """
        What no waiting can mend is known as soon as its line is read, not only at the end.
        """
        lines, known = recorded.recorded(name)
        if "line" not in known:
            assert recorded.read(lines).fatal is None
            return

        reading = recorded.read(lines[: known["line"]])

        assert reading.fatal is not None
        assert known["line"] == reading.fatal.line


def test_there_are_enough_of_them() -> None:
    """
    The folder was found and holds both versions and both kinds of ends.
    """
    known = [recorded.recorded(name)[1] for name in recorded.names()]

    assert len(known) >= 40
    assert {"0.5.12.post1", "0.5.23"} == {each["version"] for each in known}
    assert len([each for each in known if "ready" in each["stages"]]) >= 9
