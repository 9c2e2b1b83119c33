"""
`mtpdeploy render`: the wrapper script, without a box.
"""

import time
from typing import Any

import click

from mtpdeploy.cli import options


@click.command("render")
@options.server
@click.option(
    "--sglang",
    "version",
    type=options.Text(),
    help="Version to spell the flags for; the newest known by default.",
)
@click.option(
    "--python", type=options.Text(), default="python3", show_default=True, help="Interpreter on the box."
)
def command(version: str | None, python: str, **asked: Any) -> int:
    """
    Print the wrapper script of a first attempt, for any SGLang version, without touching a box.

    Without --on, and with several hosts in hosts.toml, none of them adds its own variables.
    """
    from mtpdeploy.cli.choose import order_from  # noqa: PLC0415 - imports of the work itself
    from mtpdeploy.cli.opening import own_templates  # noqa: PLC0415
    from mtpdeploy.cli.output import print_verbatim  # noqa: PLC0415
    from mtpdeploy.deploy.order import Options  # noqa: PLC0415
    from mtpdeploy.deploy.rehearsal import script_for  # noqa: PLC0415
    from mtpdeploy.engines.sglang import SGLANG  # noqa: PLC0415
    from mtpdeploy.engines.sglang.versions import NEWEST, parse_version  # noqa: PLC0415
    from mtpdeploy.errors import ConfigError  # noqa: PLC0415

    order = order_from(options.Asked(**asked), Options(), needs_host=False)
    wanted = parse_version(version or str(NEWEST))
    if wanted is None:
        raise ConfigError(
            f"`--sglang {version}` is no version", hint=f"as `pip show sglang` prints it: {NEWEST}"
        )
    script = script_for(
        order,
        SGLANG,
        now=time.time(),
        version=version or str(NEWEST),
        python=python,
        templates=own_templates(),
    )
    for note in SGLANG.command(order.server, python, version or str(NEWEST)).notes:
        click.echo(note, err=True)
    print_verbatim(script)
    return 0
