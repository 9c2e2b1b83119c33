"""
`mtpdeploy diagnose`: why a log ends as it does.
"""

from typing import TYPE_CHECKING, Any

import click
from msgspec import to_builtins

from mtpdeploy.cli import options, tables
from mtpdeploy.cli.output import Answer
from mtpdeploy.core.units import duration
from mtpdeploy.errors import SERVER_NOT_UP

if TYPE_CHECKING:
    from mtpdeploy.deploy.inquest import Inquest, Reached


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
    judged. Ends with 1 where a log shows a failure.
    """
    from mtpdeploy.deploy.inquest import hold, root  # noqa: PLC0415 - imports of the work itself
    from mtpdeploy.engines.sglang import SGLANG  # noqa: PLC0415

    if not files:
        held = [_of_box(options.Asked(**asked), attempt)]
    elif asked["on"] is not None:
        raise click.UsageError("FILE and `--on` exclude each other")
    else:
        held = [hold(name, SGLANG, exit_status=exit_status) for name in files]
    status = SERVER_NOT_UP if any(one.verdict is not None for one in held) else 0
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


def _of_box(asked: options.Asked, attempt: int | None) -> "Inquest":
    """
    The newest attempt on a box, judged by its log, its exit status and what the box tells of its end.
    """
    import tempfile  # noqa: PLC0415 - only for this

    from msgspec import structs  # noqa: PLC0415

    from mtpdeploy.cli.reading import save_remote  # noqa: PLC0415
    from mtpdeploy.deploy.inquest import hold, with_conclusion  # noqa: PLC0415
    from mtpdeploy.deploy.up import read_outcome  # noqa: PLC0415
    from mtpdeploy.engines.sglang import SGLANG  # noqa: PLC0415

    with tempfile.NamedTemporaryFile(prefix="mtpdeploy-", suffix=".log") as file:
        run, record, after = save_remote(asked, attempt, file)
        # What somebody stopped did not fail by that.
        status = None if run.stopped_by else run.exit_status
        held = hold(file.name, SGLANG, exit_status=status, version=record.sglang_version, after=after)
        return structs.replace(with_conclusion(held, read_outcome(run), SGLANG), name=run.name)


def _told(one: "Inquest", *, named: bool) -> list[str]:
    from mtpdeploy.cli.words import cause_name, verdict_lines  # noqa: PLC0415 - only to show

    lines = [f"{one.name}:"] if named else []
    lines += [*_before(one), _timeline(one), ""]
    if one.verdict is None:
        said = "the server became ready" if one.ready else f"it got as far as “{one.stage}”"
        lines += [f"no failure in these {one.lines:,} lines; {said}", f"  | {one.last}"]
        return lines
    lines.append(f"{cause_name(one.verdict.cause)}: {one.verdict.cause}")
    lines += verdict_lines(one.verdict)
    lines += [f"  answered by {name}: gives up {given}" for name, given in one.answers]
    return lines


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
    lines = ["this log holds several starts; the last one is judged:"]
    for start in one.before:
        end = str(start.verdict.cause) if start.verdict else "no failure shown"
        came = "was ready" if start.ready else f"got as far as “{start.stage}”"
        lines.append(f"  lines {start.first:,} to {start.last:,} {came}: {end}")
    return [*lines, ""]


def _timeline(one: "Inquest") -> str:
    begun = next((r.moment for r in one.reached if r.moment is not None), None)
    rows, before = [], begun
    for reached in one.reached:
        rows.append(_row(reached, begun, before))
        before = reached.moment if reached.moment is not None else before
    if not rows:
        return "no stage of a start is in this log"
    return tables.table(("line", "at", "took", "stage", "figures"), rows)


def _row(reached: "Reached", begun: float | None, before: float | None) -> tuple[str, ...]:
    from mtpdeploy.cli.words import figures_told  # noqa: PLC0415 - only to show

    milestone, moment = reached.milestone, reached.moment
    at = "" if moment is None or begun is None else duration(moment - begun)
    took = "" if moment is None or before is None else duration(moment - before)
    return str(milestone.line), at, took, str(milestone.stage), figures_told(milestone.figures)


def _document(one: "Inquest") -> dict[str, Any]:
    from mtpdeploy.cli.words import cause_name  # noqa: PLC0415 - only for `--json`

    return {
        "name": one.name,
        "lines": one.lines,
        "stage": str(one.stage),
        "ready": one.ready,
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
