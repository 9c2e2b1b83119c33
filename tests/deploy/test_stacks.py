"""
Where a server stood that is about to be ended.
"""

import json
from pathlib import Path

import pytest

from mtpdeploy.core import events
from mtpdeploy.core.diagnosis import End
from mtpdeploy.core.events import AnyEvent
from mtpdeploy.core.launch import STACKS_FILE
from mtpdeploy.core.machine import Host
from mtpdeploy.deploy import stacks
from mtpdeploy.deploy.journal import Journal
from mtpdeploy.deploy.order import Tools
from mtpdeploy.deploy.watch import Ending
from mtpdeploy.engines.sglang import SGLANG
from mtpdeploy.errors import ConnectionLost
from mtpdeploy.remote.box import Result
from mtpdeploy.remote.run import Run
from tests.deploy.scripted import record
from tests.fakes.clock import FakeClock

RUN = Run("~/.mtpdeploy", "run-1", "python3")
STALLED = Ending(End.STALLED, after={"patience": "no line for 900 s, and no other sign of work"})


class SayingBox:
    """
    A box that has one answer for everything; None: its line is lost.
    """

    host = Host(name="box", address="192.0.2.1")

    def __init__(self, answer: dict[str, str] | None) -> None:
        self.answer = answer
        self.asked = 0

    def run(self, *_: object, **__: object) -> Result:
        """
        Answer.
        """
        self.asked += 1
        if self.answer is None:
            raise ConnectionLost("the line to box broke")
        return Result(0, json.dumps(self.answer).encode(), b"")


def look(tmp_path: Path, box: SayingBox, ending: Ending) -> tuple[Ending, list[str]]:
    """
    The ending with what the box answers, and the notes that were told.
    """
    told: list[AnyEvent] = []
    tools = Tools(
        box=box,  # type: ignore[arg-type]
        engine=SGLANG,
        clock=FakeClock(),
        emit=told.append,
        state=tmp_path,
        ladder=lambda _name: None,  # type: ignore[arg-type, return-value]
    )
    after = stacks.with_stacks(ending, record(), RUN, tools, Journal(tmp_path, "a"))
    return after, [event.text for event in told if isinstance(event, events.Note)]


class TestWithStacks:
    def test_the_innermost_frames_go_into_the_ending_and_all_into_the_journal(self, tmp_path: Path) -> None:
        """
        Beside what was known of the ending before.
        """
        answer = {
            "text": "Thread 1\n    f (a.py:1)\n",
            "short": "sglang::scheduler stood in f",
            "how": "py-spy",
        }
        ending, notes = look(tmp_path, SayingBox(answer), STALLED)
        kept = tmp_path / "ascents" / "a" / "run-1" / STACKS_FILE

        assert {**STALLED.after, "stack": "sglang::scheduler stood in f"} == ending.after
        assert answer["text"] == kept.read_text()
        assert [f"the stacks of its processes, told by py-spy: {kept}"] == notes

    def test_where_nothing_tells_the_ending_stays(self, tmp_path: Path) -> None:
        """
        A box without /proc and without py-spy has nothing to say.
        """
        ending, notes = look(tmp_path, SayingBox({"text": "", "short": "", "how": ""}), STALLED)

        assert (STALLED, []) == (ending, notes)

    def test_a_lost_line_is_told_and_changes_nothing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """
        They only explain: what has to be done next is done without them.
        """
        monkeypatch.setattr(stacks, "STACKS_LIMIT", 0.0)
        ending, notes = look(tmp_path, SayingBox(None), STALLED)

        assert ending == STALLED
        assert ["the stacks of its processes could not be taken: the line to box broke"] == notes

    @pytest.mark.parametrize("end", sorted(set(End) - {End.STALLED, End.DEAF}))
    def test_of_what_has_ended_or_serves_none_are_taken(self, tmp_path: Path, end: End) -> None:
        """
        The box is not even asked.
        """
        box = SayingBox(None)

        assert Ending(end) == look(tmp_path, box, Ending(end))[0]
        assert 0 == box.asked
