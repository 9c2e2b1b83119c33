"""
The prose of the program, compared whole with stored texts.
"""

from pathlib import Path

import pytest
from msgspec import structs

from mtpdeploy.cli import words
from mtpdeploy.cli.plain import LINE_WIDTH, Plain
from mtpdeploy.core import events
from mtpdeploy.core.diagnosis import Cause, End
from mtpdeploy.core.events import AnyEvent
from mtpdeploy.core.memory import Fewer
from mtpdeploy.core.outcome import ENVIRONMENT, Check, Outcome, Report
from tests.deploy.examples import ASCENT, AT, EVENTS, OUTCOME, READY, RECORD, REPORT, VERDICT

SENTENCES = (Path(__file__).parent / "data" / "sentences.txt").read_text()


class Screen:
    """
    Takes what is written, as a stream that is no terminal does.
    """

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> int:
        """
        Take a text.
        """
        self.text += text
        return len(text)

    def flush(self) -> None:
        """
        Nothing to do.
        """

    def isatty(self) -> bool:
        """
        Whether it understands colours.
        """
        return False


class TestSentences:
    """
    What is said of each event.
    """

    def test_every_event_has_its_sentence(self) -> None:
        """
        All of them, word for word; those that a line-by-line screen does not show have none.
        """
        said = "".join(f"[{type(event).__name__}]\n{words.sentence(event)}\n" for event in EVENTS)

        assert SENTENCES == said

    def test_none_is_forgotten(self) -> None:
        """
        There is a sentence for every event but the transient ones and the two last.
        """
        silent = {kind for kind in AnyEvent.__args__ if f"[{kind.__name__}]\n\n" in SENTENCES}

        assert {events.LogLines, events.Progress, events.Finished, events.Failed} == silent

    @pytest.mark.parametrize(
        ("event", "said"),
        [
            (
                events.Connected(AT, host="h", address="a:22", seconds=12.0),
                "connected to h (a:22) in 12 s",
            ),
            (
                events.Cleared(AT, ended=(1, 2), killed=(), seconds=0.5),
                "cleared: 2 processes ended, memory and port free in 0.5 s",
            ),
            (
                events.NextStep(AT, goes_on=True, rung=None, reason="it passes by itself"),
                "next: again: it passes by itself",
            ),
            (
                events.NextStep(AT, goes_on=True, rung=None, reason="it passes by itself", wait=17.4),
                "next: again in 17 s: it passes by itself",
            ),
            (
                events.AttemptBegun(
                    AT, record=RECORD, changed=(), conceded=("a 2 → 1",), reason="", command=()
                ),
                "attempt 2: qwen as before, with a 2 → 1",
            ),
            (
                events.AttemptBegun(AT, record=RECORD, changed=(), conceded=(), reason="", command=()),
                "attempt 2: qwen as asked, again",
            ),
            (
                events.Compared(AT, attempt=2, rows=(("kv_tokens", 132779.0, 98765.4), ("gib", 1.5, 2.0))),
                "forecast: 0 of 2 figures as printed; kv_tokens 132,779, printed 98,765; gib 1.5, printed 2",
            ),
            (
                events.NextStep(AT, goes_on=False, rung=None, reason="no rung is left"),
                "no further attempt: no rung is left",
            ),
            (
                events.Following(AT, record=RECORD, offset=0, stage="ready", proved=True),
                "attempt 2 of qwen serves already in this configuration; nothing is restarted",
            ),
            (
                events.Surveyed(
                    AT, gpus=(), sglang_version="not found", python="", clock_offset=1.0, seconds=0.1
                ),
                "surveyed in 0.1 s: no GPU; sglang not found",
            ),
        ],
        ids=lambda value: type(value).__name__ if not isinstance(value, str) else "",
    )
    def test_variants(self, event: AnyEvent, said: str) -> None:
        """
        What depends on the event's content.
        """
        assert said == words.sentence(event)


class TestOutcomes:
    """
    How an attempt ended, in a few words and in many.
    """

    @pytest.mark.parametrize(
        ("outcome", "said"),
        [
            (READY, "ready"),
            (
                structs.replace(READY, report=structs.replace(REPORT, mtp_proven=False)),
                "ready, MTP not proven",
            ),
            (
                structs.replace(
                    READY, report=Report((Check("makes sense", passed=False, detail=""),), mtp_proven=False)
                ),
                "ready, answers nonsense",
            ),
            (OUTCOME, "memory left after the weights is too small for the pools"),
            (structs.replace(OUTCOME, verdict=None, end=End.LOST), "lost"),
        ],
        ids=["ready", "not proven", "nonsense", "failed", "lost"],
    )
    def test_in_a_few_words(self, outcome: Outcome, said: str) -> None:
        """
        For tables.
        """
        assert said == words.how_it_ended(outcome)

    def test_without_a_proof_the_reason_and_the_last_line(self) -> None:
        """
        What nothing in the log explains is told with what the verdict rests on.
        """
        verdict = structs.replace(VERDICT, cause=Cause.VANISHED, because="exit status 137", rank="", line=9)

        assert [
            "  exit status 137",
            "  last line: log line 9",
            f"  | {VERDICT.proof}",
            "  Ask for fewer running requests.",
        ] == words.verdict_lines(verdict)

    def test_every_cause_has_a_short_name(self) -> None:
        """
        As hosts.toml and `--json` write it; no two are alike.
        """
        names = [words.cause_name(cause) for cause in Cause]

        assert len(set(names)) == len(names)
        assert all(name.replace("-", "").isalnum() and name == name.lower() for name in names)


class TestHandOver:
    """
    What the user needs once the server is up.
    """

    def test_whole(self) -> None:
        """
        Endpoint, tunnel, concessions, log, copy, and how to stop it, as commands that find the same box.
        """
        on = words.same_box("ssh -p 19248 root@192.0.2.1", "my hosts.toml")

        assert [
            "endpoint  http://127.0.0.1:30000/v1 on box, model /models/Qwen3.6-27B",
            f"tunnel    mtpdeploy tunnel {on} --port 30000   (keeps localhost:30000 open)",
            "conceded  max_running_requests 512 → 16",
            "runs      12 requests at a time; 16 were asked for",
            f"log       box:{READY.log}",
            "copy      /here",
            "stop      mtpdeploy down --on 'ssh -p 19248 root@192.0.2.1' --config 'my hosts.toml'",
        ] == words.hand_over(ASCENT, on=on, local_log="/here")

    def test_nothing_conceded(self) -> None:
        """
        A server as asked says so.
        """
        as_asked = structs.replace(ASCENT, outcomes=(structs.replace(READY, server=ASCENT.asked),))

        assert "conceded  nothing" in words.hand_over(as_asked, on="--on box", local_log="")

    @pytest.mark.parametrize(
        ("asked", "told"),
        [
            (12, ["runs      12 requests at a time"]),
            (119, ["runs      12 requests at a time; 119 were asked for"]),
            (
                120,
                [
                    "runs      CAPPED: 12 requests at a time; 120 were asked for, and the others wait",
                    "          `mtpdeploy plan --solve --want requests=120` tells what more would take",
                ],
            ),
        ],
    )
    def test_fewer_requests_than_asked(self, asked: int, told: list[str]) -> None:
        """
        What SGLang capped is told beside what was asked for; a tenth of it loudly.
        """
        server = READY.server.with_flags(max_running_requests=asked)
        capped = structs.replace(ASCENT, outcomes=(structs.replace(READY, server=server),))
        lines = words.hand_over(capped, on="--on box", local_log="")

        assert told == [line for line in lines if line.startswith(("runs", "     "))]

    def test_a_variable_that_did_not_arrive(self) -> None:
        """
        It is told at the end as well, where nobody has to look for it.
        """
        lacking = structs.replace(
            REPORT, checks=(Check(ENVIRONMENT, False, "missing: MAX_JOBS (process 7)"),)
        )
        ascent = structs.replace(ASCENT, outcomes=(structs.replace(READY, report=lacking),))
        told = words.hand_over(ascent, on="--on box", local_log="")

        assert "variables NOT AS ASKED: missing: MAX_JOBS (process 7)" in told
        assert not any("variables" in line for line in words.hand_over(ASCENT, on="--on box", local_log=""))

    def test_one_request(self) -> None:
        """
        One is no plural.
        """
        assert READY.report is not None
        figures = {"max_running_requests": 1.0, "max_total_num_tokens": 1.0}
        ready = structs.replace(READY, report=structs.replace(READY.report, figures=figures))
        lines = words.hand_over(structs.replace(ASCENT, outcomes=(ready,)), on="--on box", local_log="")

        assert any("1 request at a time, 1 token in all" in line for line in lines)

    @pytest.mark.parametrize("runs", [12, 16])
    def test_asking_for_fewer(self, runs: int) -> None:
        """
        That it would run more is told exactly where it would run more than run now.
        """
        server = READY.server.with_flags(max_running_requests=119)
        ready = structs.replace(READY, server=server, fewer=Fewer(32, runs))
        lines = words.hand_over(structs.replace(ASCENT, outcomes=(ready,)), on="--on box", local_log="")
        more = "asking for fewer gives more: with `--set max_running_requests=32` 16 requests run at a time"

        assert (runs > 12) is (f"          {more}" in lines)

    def test_nothing_to_hand_over(self) -> None:
        """
        Without a ready server there is nothing.
        """
        failed = structs.replace(ASCENT, outcomes=(OUTCOME,))

        assert [] == words.hand_over(failed, on="--on box", local_log="")


class TestPlain:
    """
    The screen of lines.
    """

    def test_log_lines(self) -> None:
        """
        Each on its own, marked; empty ones are left out.
        """
        screen = Screen()
        Plain(screen).show(events.LogLines(AT, attempt=1, first=1, lines=("one", "  ", "two")))  # type: ignore[arg-type]

        assert "  | one\n  | two\n" == screen.text

    def test_without_the_log(self) -> None:
        """
        `--no-log` leaves them out, and nothing else.
        """
        screen = Screen()
        plain = Plain(screen, show_log=False)  # type: ignore[arg-type]
        plain.show(events.LogLines(AT, attempt=1, first=1, lines=("one",)))
        plain.show(events.Note(AT, text="a note"))

        assert "a note\n" == screen.text

    def test_nothing_that_a_terminal_obeys(self) -> None:
        """
        Colours, titles and cursor movements of the log do not reach the screen; long lines are cut.
        """
        screen = Screen()
        hostile = "\x1b[31mred\x1b[0m \x1b]0;title\x07\x1b[2J" + "x" * 300_000
        Plain(screen).show(events.LogLines(AT, attempt=1, first=1, lines=(hostile,)))  # type: ignore[arg-type]

        assert "\x1b" not in screen.text
        assert "\x07" not in screen.text
        assert LINE_WIDTH + 5 == len(screen.text)

    def test_no_colour_where_there_is_no_terminal(self) -> None:
        """
        All events together are plain text in a pipe.
        """
        screen = Screen()
        plain = Plain(screen)  # type: ignore[arg-type]
        for event in EVENTS:
            plain.show(event)

        assert "\x1b" not in screen.text
        assert VERDICT.proof in screen.text


def test_what_else_was_found_stands_before_the_remedy() -> None:
    """
    A fact that did not decide is one line of its own, cut as the others are.
    """
    verdict = structs.replace(VERDICT, further=("the driver reported Xid 31", "x" * 1000))
    lines = words.verdict_lines(verdict)

    assert "  also: the driver reported Xid 31" == lines[-3]
    assert f"  {verdict.remedy}" == lines[-1]
    assert max(map(len, lines)) < 320


def test_compared_figures_are_written_out() -> None:
    """
    Tokens are counted, not written as powers of ten.
    """
    rows = (("kv_tokens", 132_800.0, 131_072.0), ("k_gib", 4.2, 4.03))

    said = words.sentence(events.Compared(at=AT, attempt=1, rows=rows))

    assert "kv_tokens 132,800, printed 131,072; k_gib 4.2, printed 4.03" in said
