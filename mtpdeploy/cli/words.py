"""
All prose of the program: events as sentences, verdicts as paragraphs.
"""

import shlex

from mtpdeploy.cli.proof_words import proof_lines, verdict_of
from mtpdeploy.core import events
from mtpdeploy.core.diagnosis import Cause, End, Verdict
from mtpdeploy.core.foresight import Passed
from mtpdeploy.core.launch import AttemptRecord
from mtpdeploy.core.memory import Fewer, Forecast
from mtpdeploy.core.outcome import Ascent, Outcome, Report
from mtpdeploy.core.patience import Kind, Sign
from mtpdeploy.core.proof import Proof
from mtpdeploy.core.units import counted, duration, figure, size

SIMULATED = "simulated: this box, its GPU and its server are mtpdeploy's built-in demo, not real hardware"
"""Said wherever the demo box is shown."""

FIGURES = {
    "max_mamba_cache_size": "{:.0f} state slots",
    "conv_state_gib": "conv {:.2f} GiB",
    "ssm_state_gib": "SSM {:.2f} GiB",
    "intermediate_ssm_gib": "draft SSM {:.2f} GiB",
    "intermediate_conv_gib": "draft conv {:.2f} GiB",
    "kv_tokens": "{:,.0f} tokens",
    "k_gib": "K {:.2f} GiB",
    "v_gib": "V {:.2f} GiB",
    "kv_gib": "KV {:.2f} GiB",
    "max_total_num_tokens": "{:,.0f} tokens",
    "max_running_requests": "{:.0f} requests at a time",
    "context_len": "context {:,.0f}",
    "usage_gib": "{:.2f} GiB taken",
    "avail_gib": "{:.2f} GiB free",
    "available_gpu_mem_gib": "{:.2f} GiB free",
}
"""How the numbers that SGLang prints at its stages are shown."""


def sentence(event: events.AnyEvent) -> str:  # noqa: C901, PLR0911, PLR0912 - a case for each event
    """
    An event in one line for people; empty for events that a line-by-line screen shows in its own way.
    """
    match event:
        case events.Connected(host=host, address=address, seconds=seconds, simulated=simulated):
            note = f"\n{SIMULATED}" if simulated else ""
            return f"connected to {host} ({address}) in {duration(seconds)}{note}"
        case events.Surveyed():
            return _surveyed(event)
        case events.InTheWay(pid=pid, command=command, why=why, fate=fate):
            return f"in the way: pid {pid} {shorten(command, 60)} ({why}): {fate}"
        case events.Cleared(ended=ended, killed=killed, seconds=seconds):
            forced = f", {len(killed)} of them by KILL" if killed else ""
            count = len(ended) + len(killed)
            told = counted(count, "process", "processes")
            return f"cleared: {told} ended{forced}, memory and port free in {duration(seconds)}"
        case events.Planned(forecast=forecast, passed=passed):
            return "\n".join(planned_lines(forecast, passed))
        case events.Foretold(line=line, reason=reason):
            return f"log line {line}: {reason}; ended now rather than waited for"
        case events.Compared(rows=rows):
            return _compared(rows)
        case events.AttemptBegun():
            return _attempt(event)
        case events.Launched(pid=pid, run_dir=run_dir, seconds=seconds):
            return f"launched in {duration(seconds)}: pid {pid}, {run_dir}"
        case events.Following():
            return _following(event)
        case events.Reached(milestone=milestone, seconds=seconds):
            return f"{_clock(seconds)}  {milestone.stage}{_figures(milestone.figures)}"
        case events.Quiet():
            return _quiet(event)
        case events.LineLost():
            return "the line to the box broke; the server goes on there, trying to come back"
        case events.LineBack(seconds=seconds):
            return f"the line is back after {duration(seconds)}; nothing of the log is lost"
        case events.Doomed(line=line, text=text):
            return f"log line {line} cannot be mended by waiting: {shorten(text, 160)}"
        case events.Proving(by=by):
            return f"looks ready ({by}); sending real requests"
        case events.Verified(report=report):
            return "\n".join(report_lines(report))
        case events.AttemptEnded(outcome=outcome, again=True) if outcome.end is End.READY:
            return f"attempt {outcome.attempt} serves as before; its start took {duration(outcome.seconds)}"
        case events.AttemptEnded(outcome=outcome):
            return "\n".join(outcome_lines(outcome))
        case events.NextStep(goes_on=True, rung=rung, reason=reason, wait=wait):
            when = f" in {duration(wait)}" if wait else ""
            return f"next: {rung or 'again'}{when}: {reason}"
        case events.NextStep(reason=reason):
            return f"no further attempt: {reason}"
        case events.Note(text=text):
            return text
        case _:
            return ""


def outcome_lines(outcome: Outcome) -> list[str]:
    """
    How an attempt ended, with the line that proves it and what to do.
    """
    took = duration(outcome.seconds)
    if outcome.end is End.READY:
        return [f"attempt {outcome.attempt} is ready after {took}"]
    verdict = outcome.verdict
    cause = verdict.cause if verdict else outcome.end
    lines = [f"attempt {outcome.attempt} failed after {took} at “{outcome.stage}”: {cause}"]
    return lines + (verdict_lines(verdict) if verdict else [])


def verdict_lines(verdict: Verdict) -> list[str]:
    """
    The proof of a verdict, what else was found, and its remedy.
    """
    lines = []
    if verdict.because:
        lines.append(f"  {verdict.because}")
    if verdict.proof:
        rank = f"rank {verdict.rank}, " if verdict.rank else ""
        what = "last line" if verdict.because else "proof"
        lines += [f"  {what}: {rank}log line {verdict.line}", f"  | {shorten(verdict.proof, 300)}"]
    lines += [f"  also: {shorten(text, 300)}" for text in verdict.further]
    if verdict.remedy:
        lines.append(f"  {verdict.remedy}")
    return lines


def report_lines(report: Report) -> list[str]:
    """
    The answers of a ready server, one line a check, and the proof of speculation with its figures.
    """
    marks = {True: "ok", False: "FAILED", None: "-"}
    lines = [f"  {marks[check.passed]:6} {check.name}: {check.detail}" for check in report.checks]
    return lines + (proof_lines(report.speculation) if report.speculation else [])


def hand_over(ascent: Ascent, *, on: str, local_log: str) -> list[str]:
    """
    What the user needs once the server is up; `on` are the words by which a command names the box.
    """
    outcome = ascent.ready
    if outcome is None:
        return []
    server, host = outcome.server, ascent.host
    lines = [
        f"endpoint  http://127.0.0.1:{server.port}/v1 on {host}, model {server.served_name}",
        f"tunnel    mtpdeploy tunnel {on} --port {server.port}   (keeps localhost:{server.port} open)",
        f"conceded  {'; '.join(ascent.conceded) or 'nothing'}",
        *_runs(outcome),
        *(environment_lines(outcome.report) if outcome.report else ()),
        *_proof(outcome),
        f"log       {host}:{outcome.log}",
    ]
    if local_log:
        lines.append(f"copy      {local_log}")
    return [*lines, f"stop      mtpdeploy down {on}"]


def environment_lines(report: Report) -> list[str]:
    """
    What of the asked environment did not reach the server, where somebody has to do something about it.
    """
    if not report.unlike_asked:
        return []
    return [
        f"variables NOT AS ASKED: {report.unlike_asked}",
        "          launch.sh exports them: the image's own wrapper or a launcher changes them on the way",
    ]


def off_lines(record: AttemptRecord, on: str) -> list[str]:
    """
    That a server runs without speculation although it was asked to speculate, and the way back.
    """
    if record.original is None:
        return []
    return [
        f"MTP IS OFF: it runs {record.purpose}",
        f"          mtpdeploy attach {shlex.quote(record.asked.name)} {on}   (restarts it as before)",
    ]


def _proof(outcome: Outcome) -> list[str]:
    """
    What the proof says, where somebody has to do something about it.
    """
    found = outcome.report.speculation if outcome.report else None
    loud = found is not None and found.proof not in (Proof.SPECULATING, Proof.NOT_ASKED)
    if found is None or not loud:
        return []
    first, *others = (line.removeprefix("  proof  ").strip() for line in verdict_of(found))
    return [f"proof     {first}", *(f"          {line}" for line in others)]


MUCH_LESS = 10
"""A server that takes this many times fewer requests than it was asked for is not what anybody wanted."""


def _runs(outcome: Outcome) -> list[str]:
    """
    What the server itself says that it can take, which may be less than was asked for.
    """
    figures = outcome.report.figures if outcome.report else {}
    named = {"max_running_requests": "request{} at a time", "max_total_num_tokens": "token{} in all"}
    told = [
        f"{figures[name]:,.0f} {words.format('' if figures[name] == 1 else 's')}"
        for name, words in named.items()
        if figures.get(name)
    ]
    if not told:
        return []
    runs, asked = figures.get("max_running_requests"), outcome.server.number("max_running_requests")
    if not runs or not asked or runs >= asked:
        return [f"runs      {', '.join(told)}"]
    fewer = outcome.fewer if outcome.fewer is not None and outcome.fewer.runs > runs else None
    better = [f"          {fewer_line(fewer)}"] if fewer is not None else []
    if runs * MUCH_LESS > asked:
        return [f"runs      {', '.join(told)}; {asked:,.0f} were asked for", *better]
    return [
        f"runs      CAPPED: {', '.join(told)}; {asked:,.0f} were asked for, and the others wait",
        *better,
        f"          `mtpdeploy plan --solve --want requests={asked:.0f}` tells what more would take",
    ]


def same_box(on: str, config_file: str | None) -> str:
    """
    The options by which another command finds the same box: `--on` as it was given, and `--config`.
    """
    config = f" --config {shlex.quote(config_file)}" if config_file else ""
    return f"--on {shlex.quote(on)}{config}"


def go_on_hint(on: str) -> str:
    """
    What can be done with a server that was left to itself; `on` as for `hand_over`.
    """
    return f"go on with it: mtpdeploy attach {on}\nstop it:       mtpdeploy down {on}"


def shorten(text: str, width: int) -> str:
    """
    A text cut to `width` characters, with the cut shown.
    """
    flat = " ".join(text.split())
    return flat if len(flat) <= width else flat[: width - 1] + "…"


def how_it_ended(outcome: Outcome) -> str:
    """
    An outcome in a few words, for tables.
    """
    if outcome.end is End.READY:
        return outcome.report.state if outcome.report else "ready"
    return str(outcome.verdict.cause) if outcome.verdict else str(outcome.end)


def in_short(outcome: Outcome) -> str:
    """
    An outcome as a name: `ready`, or the short name of its cause.
    """
    if outcome.verdict is not None:
        return cause_name(outcome.verdict.cause)
    return how_it_ended(outcome)


def cause_name(cause: Cause) -> str:
    """
    A cause's short name, as hosts.toml and `--json` write it: `oom-kv-pool`.
    """
    return cause.name.lower().replace("_", "-")


def _following(event: events.Following) -> str:
    what = f"attempt {event.record.attempt} of {event.record.server.name}"
    if event.proved:
        return f"{what} serves already in this configuration; nothing is restarted"
    return f"{what} runs already, at “{event.stage}”; following from byte {event.offset:,} of its log"


def _surveyed(event: events.Surveyed) -> str:
    gpus = "; ".join(event.gpus) or "no GPU"
    skew = "" if abs(event.clock_offset) < 2 else f", its clock runs {event.clock_offset:+.0f} s against ours"
    return f"surveyed in {duration(event.seconds)}: {gpus}; sglang {event.sglang_version}{skew}"


def _quiet(event: events.Quiet) -> str:
    nothing = "nothing but the log can be seen there" if event.blind else "no other sign of work"
    seen = ", ".join(_sign(sign) for sign in event.signs) or nothing
    end = f"counts as stalled in {duration(max(0.0, event.left))} unless more is seen"
    return f"no line for {duration(event.seconds)} at “{event.stage}”; {seen}; {end}"


def _sign(sign: Sign) -> str:
    """
    One kind of work, in a few words.
    """
    match sign.kind:
        case Kind.COMPILERS:
            return f"compilers running ({', '.join(sign.names)})"
        case Kind.MEMORY:
            return f"{size(sign.amount)} more memory"
        case Kind.GPU_MEMORY:
            return f"GPU memory moved by {size(sign.amount)}"
        case Kind.CPU:
            return f"{duration(sign.amount)} of CPU time"
        case Kind.GPU:
            watts = f" at {sign.watts:.0f} W" if sign.watts else ""
            return f"GPU {sign.amount:.0f} % busy{watts}"
        case _:
            return f"{size(sign.amount)} {sign.kind}"


def _attempt(event: events.AttemptBegun) -> str:
    record = event.record
    lines = [f"attempt {record.attempt}: {record.server.name}"]
    if event.changed:
        lines[0] += f" with {', '.join(event.changed)}"
    elif record.attempt > 1:
        lines[0] += f" as before, with {', '.join(event.conceded)}" if event.conceded else " as asked, again"
    lines += [f"  {note}" for note in event.notes]
    return "\n".join(lines)


def planned_lines(forecast: Forecast | None, passed: tuple[Passed, ...]) -> list[str]:
    """
    What was passed over and why, and what is expected of the configuration that is launched.
    """
    lines = [f"passed over: {', '.join(one.changed) or 'as asked'}: {one.reason}" for one in passed]
    if forecast is not None:
        lines.append(f"forecast: {forecast.fit}: {forecast.reason}")
        lines += [fewer_line(forecast.fewer)] if forecast.fewer is not None else []
    return lines


def fewer_line(fewer: Fewer) -> str:
    """
    That asking for fewer requests runs more of them, and how to ask.
    """
    told = counted(fewer.runs, "request runs", "requests run")
    return f"asking for fewer gives more: with `--set max_running_requests={fewer.asked}` {told} at a time"


def _compared(rows: tuple[tuple[str, float, float], ...]) -> str:
    """
    The figures that were off by more than the last printed digit, and how many were not.
    """
    off = [row for row in rows if abs(row[1] - row[2]) > max(0.006, 0.005 * abs(row[2]))]
    same = f"forecast: {len(rows) - len(off)} of {len(rows)} figures as printed"
    told = "; ".join(f"{name} {figure(forecast)}, printed {figure(seen)}" for name, forecast, seen in off)
    return f"{same}; {told}" if told else same


def _figures(figures: dict[str, float]) -> str:
    told = figures_told(figures)
    return f" ({told})" if told else ""


def figures_told(figures: dict[str, float]) -> str:
    """
    The numbers that SGLang prints at a stage, as far as people look at them.
    """
    return ", ".join(form.format(figures[name]) for name, form in FIGURES.items() if name in figures)


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60:3d}:{int(seconds) % 60:02d}"
