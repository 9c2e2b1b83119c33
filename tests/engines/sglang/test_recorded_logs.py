import re

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
                assert Cause[known["cause"]] is recorded.judged(reading, known).cause
            return
        verdict = recorded.judged(reading, known)
        assert (known["cause"], known["line"]) == (verdict.cause.name, verdict.line)
        assert known.get("rank", "") == verdict.rank
        assert verdict.proof.startswith(known["proof"])
        assert lines[known["line"] - 1].strip().endswith(verdict.proof.partition(" (in ")[0][-40:])

    def test_a_death_is_known_before_the_log_ends(self, name: str) -> None:
        """
        What no waiting can mend is known as soon as its line is read, not only at the end.
        """
        lines, known = recorded.recorded(name)
        if "line" not in known:
            assert recorded.read(lines).fatal is None
            return

        reading = recorded.read(lines[: known["line"]])

        alive = known.get("end") in ("DEAF", "REFUSING")
        assert alive == (reading.fatal is None)
        assert known["line"] in {finding.line for finding in reading.findings}

    @pytest.mark.parametrize("place", ["/sgl-workspace/sglang/python", "/opt/sglang/lib/site-packages"])
    def test_wherever_it_is_installed(self, name: str, place: str) -> None:
        """
        The same log of SGLang in another folder, also one that is called sglang, has the same verdict.
        """
        lines, known = recorded.recorded(name)
        moved = [re.sub(r'(?<=File ")/[^"]*(?=/sglang/)', place, line) for line in lines]

        here, there = (recorded.judged(recorded.read(each), known) for each in (lines, moved))

        assert (here.cause, here.line) == (there.cause, there.line)


def test_there_are_enough_of_them() -> None:
    """
    The folder was found and holds real starts of two versions, written ones of every era, and both kinds of
    ends; each says which it is.
    """
    known = [recorded.recorded(name)[1] for name in recorded.names()]

    real = [each for each in known if each["source"].startswith("a real start")]
    written = [each for each in known if each["source"].startswith("written from")]
    assert {"0.5.12.post1", "0.5.23"} == {each["version"] for each in real}
    assert len(known) == len(real) + len(written)
    assert (len(real), len(written)) >= (40, 100)
    assert len([each for each in known if "ready" in each["stages"]]) >= 30
