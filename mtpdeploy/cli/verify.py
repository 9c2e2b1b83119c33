"""
`mtpdeploy verify`: prove that what serves on a box answers, and that it speculates.
"""

from typing import Any

import click
from msgspec import to_builtins

from mtpdeploy.cli import options
from mtpdeploy.cli.output import Answer


@click.command("verify")
@options.running
@click.option(
    "--compare-without-mtp",
    is_flag=True,
    help="Restart it once without speculation and once with it, and put both side by side. Takes two starts.",
)
@click.option("--take", is_flag=True, help="With a comparison: restart it while it works on requests.")
@click.option(
    "--break-lock", is_flag=True, help="With a comparison: take over from whoever is deploying there."
)
@click.option("--json", "as_json", is_flag=True, help="One document on stdout.")
def command(
    *, compare_without_mtp: bool, take: bool, break_lock: bool, as_json: bool, **asked: Any
) -> int | Answer:
    """
    Send real requests to what serves on a box (SERVER, where it is named): does it answer, does MTP work?

    Ends with 0, with 1 where a request fails or is answered with nonsense, with 8 where MTP was asked for and
    is not proven, or is off since a comparison was broken off. A comparison restarts the server twice.
    """
    from mtpdeploy.cli.choose import host_from  # noqa: PLC0415 - imports of the work itself
    from mtpdeploy.cli.documents import report_status  # noqa: PLC0415
    from mtpdeploy.cli.opening import open_tools  # noqa: PLC0415
    from mtpdeploy.cli.plain import Plain  # noqa: PLC0415
    from mtpdeploy.cli.words import (  # noqa: PLC0415
        environment_lines,
        off_lines,
        report_lines,
        same_box,
    )
    from mtpdeploy.deploy.proof import verify_running  # noqa: PLC0415
    from mtpdeploy.errors import MTP_NOT_PROVEN  # noqa: PLC0415

    target = options.Asked(**asked)
    if compare_without_mtp:
        from mtpdeploy.cli.comparing import compare  # noqa: PLC0415

        return compare(target, take=take, break_lock=break_lock, as_json=as_json)
    if take or break_lock:
        raise click.UsageError("`--take` and `--break-lock` belong to `--compare-without-mtp`")
    host = host_from(target)
    with open_tools(host, target, Plain().show) as tools:
        tools.note("sending real requests: each kind of text alone, then all at once")
        record, report = verify_running(tools, server=target.server)
    status = report_status(report)
    off = off_lines(record, same_box(target.on or host.name, target.config_file))
    status = status or (MTP_NOT_PROVEN if off else 0)
    if as_json:
        named = {"server": record.server.name, "run": record.run, "compares": record.compares or None}
        document = {**named, **to_builtins(report)}
        return Answer({**document, "exit_status": status}, status)
    click.echo("\n".join([*report_lines(report), *environment_lines(report), *off]))
    return status
