"""
`mtpdeploy diagnose`: why a log ends as it does.
"""

from typing import TYPE_CHECKING, Any

import click
from msgspec import to_builtins

from mtpdeploy.cli import options, tables
from mtpdeploy.cli.output import Answer
from mtpdeploy.core.diagnosis import Stage
from mtpdeploy.core.units import duration
from mtpdeploy.errors import MTP_NOT_PROVEN, SERVER_NOT_UP, ConfigError

if TYPE_CHECKING:
    from mtpdeploy.core.outcome import Report
    from mtpdeploy.deploy.inquest import Inquest, Reached
    from mtpdeploy.engines.base import Shortfall


@click.command("diagnose")
@click.argument("files", metavar="[FILE…]", nargs=-1)
@options.host
@click.option("--attempt", type=options.Whole(1), help="With --on: an attempt of the newest ascent there.")
@click.option(
    "--exit-status", type=options.Whole(-64, 255), help="How the server ended, as a shell shows it: 137."
)
@click.option(
    "--together", is_flag=True, help="The FILEs are ranks or nodes of one server: name its root cause."
)
@click.option("--json", "as_json", is_flag=True, help="One document on stdout.")
def command(
    files: tuple[str, ...],
    attempt: int | None,
    exit_status: int | None,
    *,
    together: bool,
    as_json: bool,
    **asked: Any,
) -> int | Answer:
    """
    Judge SGLang logs from anywhere: stages, cause, the line that proves it, and what answers it.

    FILE may be gzipped, and `-` is standard input. Prefixes of docker, kubernetes and journalctl are taken
    off. Without FILE, with --on, the newest attempt on a box. Where a log holds several starts, the last is
    judged. Ends with 1 where a log shows a failure, or ends before the server was ready; with 8 where it
    serves and speculates in vain; with 2 where a FILE is no log of SGLang.
    """
    from mtpdeploy.deploy.inquest import root  # noqa: PLC0415 - imports of the work itself

    if files and asked["on"] is not None:
        raise click.UsageError("FILE and `--on` exclude each other")
    if files:
        held = _of_files(files, exit_status)
        status = _status(held)
    else:
        one, status = _of_box(options.Asked(**asked), attempt)
        held = [one]
    if together and files:
        found = root(held)
        held.sort(key=lambda one: one is not found)
    if as_json:
        documents = [_document(one) for one in held]
        return Answer(documents[0] if len(documents) == 1 else documents, status)
    for number, one in enumerate(held):
        lines = _brief(one) if together and number else _told(one, named=len(held) > 1)
        click.echo(("\n" if number else "") + "\n".join(lines))
    return status


def _of_files(files: tuple[str, ...], exit_status: int | None) -> list["Inquest"]:
    """
    Logs that lie here, judged.

    Raises:
        ConfigError: one cannot be read, or none is a log of SGLang.
    """
    from mtpdeploy.deploy.inquest import hold  # noqa: PLC0415 - imports of the work itself
    from mtpdeploy.engines.sglang import SGLANG  # noqa: PLC0415

    held = [hold(name, SGLANG, exit_status=exit_status) for name in files]
    if all(one.foreign for one in held):
        raise ConfigError(
            "; ".join(f"{one.name} is no log of SGLang: {one.foreign}" for one in held),
            hint="give what SGLang printed, stdout and stderr; `--exit-status` judges an empty one, too",
        )
    return held


def _status(held: list["Inquest"]) -> int:
    if any(one.failed for one in held):
        return SERVER_NOT_UP
    if any(one.foreign for one in held):
        return ConfigError.exit_status
    in_vain = any(warning.speculation for one in held for warning in one.warnings)
    return MTP_NOT_PROVEN if in_vain else 0


def _of_box(asked: options.Asked, attempt: int | None) -> tuple["Inquest", int]:
    """
    The newest attempt on a box, judged by its log, its exit status and what the box tells of its end, with
    what was found when it was proved; and the status that this calls for.
    """
    import tempfile  # noqa: PLC0415 - only for this

    from msgspec import structs  # noqa: PLC0415

    from mtpdeploy.cli.documents import report_status  # noqa: PLC0415
    from mtpdeploy.cli.reading import save_remote  # noqa: PLC0415
    from mtpdeploy.deploy.inquest import hold, with_conclusion  # noqa: PLC0415
    from mtpdeploy.deploy.up import read_outcome  # noqa: PLC0415
    from mtpdeploy.engines.sglang import SGLANG  # noqa: PLC0415

    with tempfile.NamedTemporaryFile(prefix="mtpdeploy-", suffix=".log") as file:
        try:
            run, record, after = save_remote(asked, attempt, file)
        except ConfigError as error:
            if asked.on is not None:
                raise
            hint = "a log file: `diagnose FILE`, `diagnose -`; the newest attempt on a box: `--on HOST`"
            raise ConfigError(str(error), hint=hint) from None
        # What somebody stopped did not fail by that.
        status = None if run.stopped_by else run.exit_status
        running = run.alive or run.launching
        version = record.sglang_version
        held = hold(file.name, SGLANG, exit_status=status, version=version, after=after, running=running)
        outcome = read_outcome(run)
        held = structs.replace(with_conclusion(held, outcome, SGLANG), name=run.name)
        report = outcome.report if outcome is not None and held.verdict is None else None
        if version:
            held = structs.replace(held, version=version)
        if report is None:
            return held, _status([held])
        held = structs.replace(held, warnings=(*_proved(report), *held.warnings))
        return held, report_status(report) or _status([held])


def _proved(report: "Report") -> list["Shortfall"]:
    """
    What was found wanting when the server was asked, by the checks and the proof.
    """
    from mtpdeploy.cli.proof_words import verdict_of  # noqa: PLC0415 - only to show
    from mtpdeploy.engines.base import Shortfall  # noqa: PLC0415

    wanting = [Shortfall("check-failed", f"{check.name}: {check.detail}") for check in report.failed]
    found = report.speculation
    if report.mtp_proven is False or report.talks_nonsense:
        text = "; ".join(line.strip().removeprefix("proof  ") for line in verdict_of(found)) if found else ""
        wanting.append(Shortfall("mtp-not-proven", f"{report.state}: {text}", speculation=True))
    return wanting


def _told(one: "Inquest", *, named: bool) -> list[str]:
    from mtpdeploy.cli.words import cause_name, verdict_lines  # noqa: PLC0415 - only to show

    lines = [f"{one.name}:"] if named else []
    if one.foreign:
        return [*lines, f"no log of SGLang: {one.foreign}"]
    lines += [*_before(one), *_facts(one), _timeline(one), ""]
    warnings = [f"  WARNING: {warning.text}" for warning in one.warnings]
    if one.verdict is None:
        lines += [*_without_failure(one), *warnings]
        return lines
    lines.append(f"{cause_name(one.verdict.cause)}: {one.verdict.cause}")
    lines += [*verdict_lines(one.verdict), *warnings]
    lines += [f"  answered by {name}: gives up {given}" for name, given in one.answers]
    return lines


def _without_failure(one: "Inquest") -> list[str]:
    if not one.ready:
        said = f"it runs, and has come to “{one.stage}”"
    elif any(reached.milestone.stage is Stage.READY for reached in one.reached):
        said = "the server became ready"
    else:
        said = "the server answers requests; the beginning of its log is missing"
    line, last = one.stopped or (one.lines, one.last)
    told = f", and was told to stop (log line {line})" if one.stopped else ""
    return [f"no failure in these {one.lines:,} lines; {said}{told}", f"  | {last}"]


ASKED = (
    "mem_fraction_static",
    "max_running_requests",
    "context_length",
    "speculative_algorithm",
    "speculative_num_steps",
    "speculative_num_draft_tokens",
    "attention_backend",
    "kv_cache_dtype",
)
"""The arguments that are shown: what memory and speculation hang on."""


def _facts(one: "Inquest") -> list[str]:
    """
    The version, what was asked for, and what was made of it.
    """
    told = ((name, one.arguments.get(name, "None")) for name in ASKED)
    asked = ", ".join(f"{name} {value}" for name, value in told if value != "None")
    figures, applied = one.figures, []
    if (requests := figures.get("effective_running_requests")) is not None:
        applied.append(f"{requests:,.0f} requests at a time")
    for name, words in (
        ("max_total_num_tokens", "{:,.0f} tokens in all"),
        ("context_len", "context {:,.0f}"),
    ):
        applied += [words.format(figures[name])] if name in figures else []
    if (length := figures.get("accept_length")) is not None:
        applied.append(f"accept length {length:.2f} on {figures['decode_lines']:,.0f} decode lines")
    rows = (("SGLang", one.version), ("arguments", asked), ("runs", ", ".join(applied)))
    lines = [f"{name:10} {value}" for name, value in rows if value]
    return [*lines, ""] if lines else []


def _brief(one: "Inquest") -> list[str]:
    """
    A log beside the one that tells the cause.
    """
    end = str(one.verdict.cause) if one.verdict else "no failure shown"
    line = f", log line {one.verdict.line}" if one.verdict and one.verdict.line else ""
    return [f"{one.name}: got as far as “{one.stage}”; {end}{line}"]


def _before(one: "Inquest") -> list[str]:
    """
    The earlier starts of the same log, which are not judged.
    """
    if not one.before:
        return []
    judged = "the last has only begun, so the one before it" if one.stands_for else "the last one"
    lines = [f"this log holds several starts; {judged} is judged:"]
    for start in one.before:
        end = str(start.verdict.cause) if start.verdict else "no failure shown"
        came = "was ready" if start.ready else f"got as far as “{start.stage}”"
        lines.append(f"  lines {start.first:,} to {start.last:,} {came}: {end}")
    return [*lines, ""]


def _timeline(one: "Inquest") -> str:
    rows, passed, before = [], 0.0, None
    for reached in one.reached:
        took = None if reached.moment is None else reached.moment - (before or reached.moment)
        # A clock that was set back tells nothing of this stage; the others keep their durations.
        passed += max(took or 0.0, 0.0)
        rows.append(_row(reached, passed, took))
        before = reached.moment if reached.moment is not None else before
    if not rows:
        return "no stage of a start is in this log"
    return tables.table(("line", "at", "took", "stage", "figures"), rows)


def _row(reached: "Reached", passed: float, took: float | None) -> tuple[str, ...]:
    from mtpdeploy.cli.words import figures_told  # noqa: PLC0415 - only to show

    milestone = reached.milestone
    at = "" if took is None else duration(passed)
    for_it = "" if took is None else duration(took) if took >= 0 else "clock set back"
    # What the arguments say is asked for, and no figure yet.
    figures = {} if milestone.stage is Stage.ARGUMENTS else milestone.figures
    return str(milestone.line), at, for_it, str(milestone.stage), figures_told(figures)


def _document(one: "Inquest") -> dict[str, Any]:
    from mtpdeploy.cli.words import cause_name  # noqa: PLC0415 - only for `--json`

    return {
        "name": one.name,
        "lines": one.lines,
        "stage": str(one.stage),
        "ready": one.ready,
        "version": one.version or None,
        "foreign": one.foreign or None,
        "stopped": {"line": one.stopped[0], "text": one.stopped[1]} if one.stopped else None,
        "warnings": [to_builtins(warning) for warning in one.warnings],
        "stands_for_earlier": one.stands_for,
        "cause": cause_name(one.verdict.cause) if one.verdict else None,
        "verdict": to_builtins(one.verdict),
        "answers": [{"rung": name, "gives_up": given} for name, given in one.answers],
        "before": [to_builtins(start) for start in one.before],
        "timeline": [
            {
                "stage": str(reached.milestone.stage),
                "line": reached.milestone.line,
                "moment": reached.moment,
                "figures": reached.milestone.figures,
            }
            for reached in one.reached
        ],
        "figures": one.figures,
        "arguments": one.arguments,
    }
