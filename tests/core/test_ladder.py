from collections.abc import Callable

import pytest

from mtpdeploy.core.diagnosis import Cause, End, Next, Stage, Verdict
from mtpdeploy.core.ladder import REPEATS, Ladder, Rung, Step, next_step
from mtpdeploy.core.outcome import Ascent, Outcome
from mtpdeploy.core.server import FlagValue, ServerSpec

Change = Callable[[ServerSpec, Verdict, str], ServerSpec | None]
FRACTION = "mem_fraction_static"


def server(**flags: FlagValue) -> ServerSpec:
    """
    A server with these flags.
    """
    return ServerSpec("m", {"model_path": "/m", **flags})


def verdict(cause: Cause, after: Next = Next.CLIMB, **figures: float) -> Verdict:
    """
    A verdict of that cause.
    """
    return Verdict(cause, after, figures=figures)


def outcome(ran: ServerSpec, ended: Verdict | None) -> Outcome:
    """
    An attempt that ended so.
    """
    return Outcome(1, "r", ran, End.EXITED, Stage.LAUNCHED, 0.0, 1.0, verdict=ended)


def ascent(*outcomes: Outcome) -> Ascent:
    """
    An ascent of these attempts.
    """
    return Ascent("a", "box", outcomes[0].server, outcomes)


def rung(name: str, cause: Cause, change: Change) -> Rung:
    """
    A rung for one cause.
    """
    return Rung(name, frozenset({cause}), "something", change)


def setting(**flags: FlagValue) -> Change:
    """
    A change that sets flags.
    """

    def change(ran: ServerSpec, why: Verdict, version: str) -> ServerSpec | None:
        del why, version
        return ran.with_flags(**flags)

    return change


def by(amount: float) -> Change:
    """
    A change that moves the fraction.
    """

    def change(ran: ServerSpec, why: Verdict, version: str) -> ServerSpec | None:
        del why, version
        return ran.with_flags(**{FRACTION: round((ran.number(FRACTION) or 0) + amount, 3)})

    return change


def nothing(ran: ServerSpec, why: Verdict, version: str) -> ServerSpec | None:
    """
    A change that has nothing to give.
    """
    del ran, why, version
    return None


UP = Rung("up", frozenset({Cause.OOM_KV_POOL}), "room", by(0.05), moves=FRACTION, up=True)
DOWN = Rung("down", frozenset({Cause.OOM_GRAPHS}), "pools", by(-0.03), moves=FRACTION)
GRAPHS = rung("graphs", Cause.OOM_GRAPHS, setting(graphs=1))
FRACTIONS = Ladder("fractions", (UP, DOWN, GRAPHS))


class TestCauses:
    """
    The climb goes by cause.
    """

    def test_the_first_rung_that_answers(self) -> None:
        """
        Rungs for other causes are passed over, as are those with nothing to give.
        """
        ladder = Ladder(
            "l",
            (
                rung("other", Cause.DISK_FULL, setting(other=1)),
                rung("empty", Cause.OOM_GRAPHS, nothing),
                rung("cheap", Cause.OOM_GRAPHS, setting(cheap=1)),
                rung("dear", Cause.OOM_GRAPHS, setting(dear=1)),
            ),
        )

        step = next_step(ladder, ascent(outcome(server(), verdict(Cause.OOM_GRAPHS))), "0.5.9")

        assert ("cheap", server(cheap=1)) == (step.rung, step.server)
        assert step.reason == f"cheap = 1: answers “{Cause.OOM_GRAPHS}”; gives up something"

    def test_concessions_add_up(self) -> None:
        """
        A second rung goes on from what the first gave.
        """
        ladder = Ladder(
            "l",
            (
                rung("cheap", Cause.OOM_GRAPHS, setting(cheap=1)),
                rung("dear", Cause.OOM_GRAPHS, setting(dear=1)),
            ),
        )
        history = ascent(
            outcome(server(), verdict(Cause.OOM_GRAPHS)), outcome(server(cheap=1), verdict(Cause.OOM_GRAPHS))
        )

        step = next_step(ladder, history, "0.5.9")

        assert ("dear", server(cheap=1, dear=1)) == (step.rung, step.server)

    def test_what_was_tried_is_never_tried_again(self) -> None:
        """
        A rung that leads back to an earlier configuration is passed over.
        """
        ladder = Ladder("l", (rung("back", Cause.OOM_GRAPHS, setting(x=0)),))
        history = ascent(
            outcome(server(x=0), verdict(Cause.OOM_KV_POOL)), outcome(server(x=1), verdict(Cause.OOM_GRAPHS))
        )

        assert next_step(ladder, history, "0.5.9") == Step(
            None, None, f"no rung is left that answers this: {Cause.OOM_GRAPHS}"
        )

    def test_the_version_reaches_the_rung(self) -> None:
        """
        A rung decides by the version on the box and by the verdict's figures.
        """

        def change(ran: ServerSpec, why: Verdict, version: str) -> ServerSpec | None:
            return ran.with_flags(seen=version, figure=why.figures["x"])

        ladder = Ladder("l", (rung("look", Cause.OOM_GRAPHS, change),))

        step = next_step(ladder, ascent(outcome(server(), verdict(Cause.OOM_GRAPHS, x=2.0))), "0.5.17")

        assert server(seen="0.5.17", figure=2.0) == step.server

    def test_an_attempt_without_a_verdict_is_a_mistake(self) -> None:
        """
        Nothing can be decided from an attempt that was not judged.
        """
        with pytest.raises(ValueError, match="no verdict"):
            next_step(FRACTIONS, ascent(outcome(server(), None)), "0.5.9")


class TestNext:
    """
    Stop, repeat, climb.
    """

    def test_stop(self) -> None:
        """
        What only the user can mend ends the climb, even where a rung would answer.
        """
        step = next_step(FRACTIONS, ascent(outcome(server(), verdict(Cause.OOM_GRAPHS, Next.STOP))), "0.5.9")

        assert (None, None) == (step.server, step.rung)
        assert "no configuration cures this" in step.reason

    def test_repeat_at_most_twice(self) -> None:
        """
        What passes by itself is waited for, but not for ever.
        """
        taken = outcome(server(), verdict(Cause.PORT_TAKEN, Next.REPEAT))
        history: list[Outcome] = []
        steps: list[Step] = []
        for _ in range(REPEATS + 1):
            history.append(taken)
            steps.append(next_step(FRACTIONS, ascent(*history), "0.5.9"))

        assert [server(), server(), None] == [step.server for step in steps]
        assert {None} == {step.rung for step in steps}

    def test_repeats_are_counted_for_each_configuration(self) -> None:
        """
        An earlier configuration's repeats are not held against a later one.
        """
        taken = verdict(Cause.PORT_TAKEN, Next.REPEAT)
        history = [outcome(server(), taken)] * 2 + [outcome(server(x=1), taken)]

        assert server(x=1) == next_step(FRACTIONS, ascent(*history), "0.5.9").server

    def test_a_rung_that_answers_goes_before_a_repeat(self) -> None:
        """
        Better something that may help than the same again.
        """
        ladder = Ladder("l", (rung("lighter", Cause.VANISHED, setting(light=1)),))
        history = ascent(outcome(server(), verdict(Cause.VANISHED, Next.REPEAT)))
        later = ascent(*history.outcomes, outcome(server(light=1), verdict(Cause.VANISHED, Next.REPEAT)))

        assert ("lighter", server(light=1)) == (
            next_step(ladder, history, "0.5.9").rung,
            next_step(ladder, history, "0.5.9").server,
        )
        assert Step(None, None, "") != next_step(ladder, later, "0.5.9")
        assert server(light=1) == next_step(ladder, later, "0.5.9").server


class TestFractions:
    """
    A fraction that one rung raises and another lowers.
    """

    def run(self, *tried: tuple[float, Cause], **rest: FlagValue) -> Step:
        """
        The step after these attempts, alike but for the fraction.
        """
        history = [outcome(server(**{FRACTION: value}, **rest), verdict(cause)) for value, cause in tried]
        return next_step(FRACTIONS, ascent(*history), "0.5.9")

    def test_free_at_first(self) -> None:
        """
        Nothing is proven yet: the rung's own step.
        """
        assert server(**{FRACTION: 0.85}) == self.run((0.8, Cause.OOM_KV_POOL)).server

    def test_halves_the_way_between(self) -> None:
        """
        0.80 is too low, 0.85 too high: 0.82 would be the step down, 0.81 after that goes up to the middle.
        """
        down = self.run((0.8, Cause.OOM_KV_POOL), (0.82, Cause.OOM_GRAPHS))
        up = self.run((0.85, Cause.OOM_GRAPHS), (0.82, Cause.OOM_KV_POOL))

        assert ("down", 0.81) == (down.rung, down.server and down.server.flags[FRACTION])
        assert ("up", 0.835) == (up.rung, up.server and up.server.flags[FRACTION])

    def test_gives_up_the_direction_where_nothing_is_left(self) -> None:
        """
        Less than a hundredth between the two: another rung has to help.
        """
        step = self.run((0.8, Cause.OOM_KV_POOL), (0.809, Cause.OOM_GRAPHS))

        assert ("graphs", server(**{FRACTION: 0.809}, graphs=1)) == (step.rung, step.server)

    def test_a_hundredth_is_enough(self) -> None:
        """
        Exactly a hundredth still has a middle.
        """
        step = self.run((0.8, Cause.OOM_KV_POOL), (0.81, Cause.OOM_GRAPHS))

        assert ("down", 0.805) == (step.rung, step.server and step.server.flags[FRACTION])

    def test_another_rest_of_the_configuration_proves_nothing(self) -> None:
        """
        What was too high with large graphs may fit with small ones.
        """
        history = [
            outcome(server(**{FRACTION: 0.83}), verdict(Cause.OOM_GRAPHS)),
            outcome(server(**{FRACTION: 0.80}, graphs=1), verdict(Cause.OOM_KV_POOL)),
        ]

        step = next_step(FRACTIONS, ascent(*history), "0.5.9")

        assert server(**{FRACTION: 0.85}, graphs=1) == step.server

    def test_a_value_that_only_the_log_knows(self) -> None:
        """
        Where the flag was not given, what SGLang chose and printed is what was proven.
        """

        def down(ran: ServerSpec, why: Verdict, version: str) -> ServerSpec | None:
            del version
            return ran.with_flags(**{FRACTION: round(why.figures[FRACTION] - 0.03, 3)})

        ladder = Ladder("l", (UP, Rung("down", frozenset({Cause.OOM_GRAPHS}), "pools", down, moves=FRACTION)))
        first = outcome(server(), verdict(Cause.OOM_GRAPHS, mem_fraction_static=0.793))
        lower = next_step(ladder, ascent(first), "0.5.9").server
        assert lower == server(**{FRACTION: 0.763})

        back = next_step(ladder, ascent(first, outcome(lower, verdict(Cause.OOM_KV_POOL))), "0.5.9")

        assert ("up", 0.778) == (back.rung, back.server and back.server.flags[FRACTION])
