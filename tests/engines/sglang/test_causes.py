from mtpdeploy.core.diagnosis import Cause, Next
from mtpdeploy.engines.sglang.causes import KNOWLEDGE
from mtpdeploy.engines.sglang.rungs import RUNGS


class TestKnowledge:
    """
    What every cause calls for.
    """

    def test_every_cause_has_its_entry(self) -> None:
        """
        A new cause cannot be forgotten here.
        """
        assert list(Cause) == [cause for cause in Cause if cause in KNOWLEDGE]

    def test_every_remedy_is_a_sentence_or_two_to_act_on(self) -> None:
        """
        Nobody is left with a bare name of what went wrong.
        """
        wrong = [
            cause.name
            for cause, known in KNOWLEDGE.items()
            if not (known.remedy.endswith((".", ").")) and 40 <= len(known.remedy) <= 300)
        ]

        assert [] == wrong

    def test_what_climbs_has_a_rung_and_what_stops_has_none(self) -> None:
        """
        A cause sends nobody up a ladder without rungs, and no rung answers what only the user can mend.
        """
        answered = {cause for rung in RUNGS.values() for cause in rung.causes}

        assert {c for c, k in KNOWLEDGE.items() if k.next is Next.CLIMB} - answered == set()
        assert {c for c, k in KNOWLEDGE.items() if k.next is Next.STOP} & answered == set()
