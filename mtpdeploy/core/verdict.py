"""
From the evidence of an ended attempt to its verdict, as far as its log and its exit tell.
"""

from collections.abc import Mapping

from mtpdeploy.core.diagnosis import EARLY, Cause, End, Evidence, Finding, Knowledge, Stage, Verdict

BUS_ERROR = (135, -7)
"""The exit status of SIGBUS: mapped memory cannot be had; /dev/shm is full, or a mapped file is cut short."""

KILLED = (137, -9)
"""The exit status of SIGKILL, with which SGLang also ends itself."""

ORDERED = {129: "SIGHUP", 130: "SIGINT", 143: "SIGTERM", -1: "SIGHUP", -2: "SIGINT", -15: "SIGTERM"}
"""
The exit status of signals that are an order from outside: nothing inside a server sends them to it, and one
that has no handler yet (SGLang 0.5.23 while it imports) acknowledges them by nothing but its status.
"""

CRASHED = {
    **dict.fromkeys((139, -11), "a segmentation fault (SIGSEGV)"),
    **dict.fromkeys((134, -6), "an abort (SIGABRT)"),
    **dict.fromkeys((136, -8), "a floating point exception (SIGFPE)"),
    **dict.fromkeys((132, -4), "an illegal instruction (SIGILL)"),
}
"""The exit statuses of a crash outside Python (Linux, signal(7))."""

ALIVE = (End.DEAF, End.REFUSING, End.STALLED)
"""Ends of servers that still lived: no exit tells of them, and somebody has to have seen them."""


def diagnose(evidence: Evidence, knowledge: Mapping[Cause, Knowledge]) -> Verdict:
    """
    Name the cause of an ended attempt; pure.

    The finding of highest weight wins and among equals the earliest, so that a root cause beats the
    echoes printed after it. Without a finding the exit and the facts gathered afterwards speak;
    what is not known is called unknown. A finding of weight 1 merely accompanies a death: what the
    kernel says of it (memory ran out, box restarted) and a stop that was ordered go before. One that
    is not fatal explains a server that lives on, and no death.
    """
    heard = [finding for finding in evidence.findings if _speaks(finding, evidence)]
    if heard:
        best = max(heard, key=lambda f: (f.weight, -f.line))
        known = knowledge[best.cause]
        return Verdict(
            cause=best.cause,
            next=known.next,
            proof=best.text,
            line=best.line,
            rank=best.rank,
            remedy=known.advice({**evidence.told, **best.figures}, best.text, evidence.releases),
            figures=best.figures,
            stage=best.stage,
        )
    cause, because = _without_finding(evidence)
    known = knowledge[cause]
    last_line, last = evidence.tail[-1] if evidence.tail else (None, "")
    if cause is Cause.STOPPED and evidence.told_to_stop is not None:
        last_line, last = evidence.told_to_stop
    return Verdict(
        cause=cause,
        next=known.next,
        proof=last,
        line=last_line,
        because=because,
        remedy=known.advice(evidence.told, "", evidence.releases),
        stage=evidence.stage,
    )


def _speaks(finding: Finding, evidence: Evidence) -> bool:
    if not finding.fatal:
        return evidence.end in ALIVE
    if finding.weight > 1:
        return True
    explained = evidence.told_to_stop is not None or evidence.after.keys() & {"box_restarted", "oom_kill"}
    return not explained and (evidence.exit_status is not None or evidence.end is End.UNTOLD)


def _without_finding(evidence: Evidence) -> tuple[Cause, str]:  # noqa: PLR0911 - one for each way to end
    after = evidence.after
    if "box_restarted" in after:
        return Cause.BOX_RESTARTED, after["box_restarted"]
    if "oom_kill" in after:
        return Cause.HOST_OOM_KILLED, after["oom_kill"]
    match evidence.end:
        case End.STALLED:
            return Cause.STALLED, _with_stack(
                f"{after.get('patience', 'no sign of work')}, at stage `{evidence.stage}`", after
            )
        case End.DEAF if "worker_lost" in after:
            died = Cause.SCHEDULER_DIED if "scheduler" in after["worker_lost"] else Cause.DETOKENIZER_DIED
            return died, _with_stack(after["worker_lost"], after)
        case End.DEAF:
            return Cause.DEAF, _with_stack(after.get("deaf", "the checks got no answer"), after)
        case End.REFUSING:
            return Cause.REQUESTS_REFUSED, after.get("refused", "a check was refused")
        case End.STOPPED:
            return Cause.STOPPED, after.get("stopped", "a stop was ordered")
        case _ if evidence.told_to_stop is not None:
            return Cause.STOPPED, "it was told to stop, from outside"
        case End.VANISHED:
            return Cause.VANISHED, "the process is gone and left no exit record"
        case _:
            return _by_status(evidence)


def _reached(stage: Stage) -> str:
    if stage is Stage.LAUNCHED:
        return "the log ends before any stage of a start"
    return f"the log ends at “{stage}” without ready"


def _with_stack(because: str, after: Mapping[str, str]) -> str:
    """
    What a verdict rests on, and where the processes stood before they were ended.
    """
    return f"{because}; {after['stack']}" if "stack" in after else because


def _by_status(evidence: Evidence) -> tuple[Cause, str]:
    status, stage = evidence.exit_status, evidence.stage
    if status is None and evidence.end is End.UNTOLD:
        return Cause.UNKNOWN, f"{_reached(stage)}; nothing says why: is it still running?"
    if status in BUS_ERROR:
        return Cause.BUS_ERROR, f"exit status {status}: a bus error"
    if status in KILLED:
        return Cause.VANISHED, f"exit status {status} and nothing in the log that explains it"
    if status in ORDERED:
        return Cause.STOPPED, f"exit status {status}: {ORDERED[status]} from outside"
    return _by_crash(status, stage) if status in CRASHED else (Cause.UNKNOWN, _by_number(status, stage))


def _by_crash(status: int, stage: Stage) -> tuple[Cause, str]:
    cause = Cause.NATIVE_CRASH if stage in EARLY else Cause.UNKNOWN
    return cause, f"exit status {status}: {CRASHED[status]}"


def _by_number(status: int | None, stage: Stage) -> str:
    if status == 0:
        return "it ended with status 0, by itself or because it was told to"
    told = "its exit status is not known" if status is None else f"exit status {status}"
    return f"{told}; it came to “{stage}”"
