"""
A log that is judged once more, with what the box told when its attempt ended.
"""

from pathlib import Path

import pytest
from msgspec import structs

from mtpdeploy.core.diagnosis import Cause, End, Next, Verdict
from mtpdeploy.core.outcome import Outcome
from mtpdeploy.deploy.inquest import Inquest, hold, with_conclusion
from mtpdeploy.engines.sglang import SGLANG
from tests.deploy.examples import OUTCOME

KILLED = Verdict(cause=Cause.HOST_OOM_KILLED, next=Next.CLIMB, because="`oom_kill 1` (+1 since the launch)")


@pytest.fixture
def silent(tmp_path: Path) -> Inquest:
    """
    A log without a word about its end, with exit status 137.
    """
    log = tmp_path / "silent.log"
    log.write_bytes(b"[2026-12-01 03:07:28] Load weight begin. avail mem=94.32 GB\n")
    return hold(str(log), SGLANG, exit_status=137)


def test_what_the_box_told_then_is_told_again(silent: Inquest) -> None:
    """
    The cause, what it rests on, and the rungs that answer it.
    """
    server = OUTCOME.server.with_flags(enable_hierarchical_cache=True)
    outcome = structs.replace(OUTCOME, server=server, verdict=KILLED, after={"oom_kill": KILLED.because})
    told = with_conclusion(silent, outcome, SGLANG)

    assert (KILLED, silent.stage) == (told.verdict, told.stage)
    assert ["no-hierarchical-cache"] == [name for name, _ in told.answers]


def test_what_was_seen_then_counts_where_the_log_is_silent(silent: Inquest) -> None:
    """
    A stall stands in no log; a cause that the log does name goes before what was seen.
    """
    stalled = Verdict(cause=Cause.STALLED, next=Next.REPEAT, because="nothing moved for 30 s")
    outcome = structs.replace(OUTCOME, end=End.STALLED, verdict=stalled, after={})
    named = structs.replace(silent, verdict=Verdict(cause=Cause.OOM_GRAPHS, next=Next.CLIMB))

    assert stalled is with_conclusion(silent, outcome, SGLANG).verdict
    assert named is with_conclusion(named, outcome, SGLANG)


def test_what_the_box_tells_now_is_weighed(tmp_path: Path) -> None:
    """
    A server that went without an exit record, and nobody saw it: the box may still know why.
    """
    log = tmp_path / "silent.log"
    log.write_bytes(b"[2026-12-01 03:07:28] Load weight begin. avail mem=94.32 GB\n")
    killed = hold(str(log), SGLANG, after={"oom_kill": KILLED.because}).verdict
    vanished = hold(str(log), SGLANG, after={}).verdict

    assert killed is not None
    assert vanished is not None
    assert (Cause.HOST_OOM_KILLED, KILLED.because) == (killed.cause, killed.because)
    assert Cause.VANISHED is vanished.cause
    assert hold(str(log), SGLANG, running=True).verdict is None


@pytest.mark.parametrize(
    "outcome",
    [
        None,
        OUTCOME,
        structs.replace(OUTCOME, verdict=None, after={"disk": "x"}),
        structs.replace(OUTCOME, end=End.LOST, after={"lost": "x"}),
    ],
    ids=["no outcome", "the box was not asked", "no verdict", "nobody saw the end"],
)
def test_else_the_log_decides(outcome: Outcome | None, silent: Inquest) -> None:
    """
    An outcome that knows no more than the log changes nothing.
    """
    assert silent == with_conclusion(silent, outcome, SGLANG)
