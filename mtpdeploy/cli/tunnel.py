"""
`mtpdeploy tunnel`: localhost:PORT leads to the endpoint as long as this runs.
"""

import threading
from typing import Any

import click

from mtpdeploy.cli import options


@click.command("tunnel")
@options.server
@click.option("--local-port", type=click.IntRange(0, 65535), help="Port here; the same as there by default.")
def command(local_port: int | None, **asked: Any) -> int:
    """
    Keep localhost:PORT open on the endpoint of a box, until Ctrl-C.

    Reconnects by itself; takes the next free port where the wanted one is taken, and says so.
    """
    from mtpdeploy.cli.choose import order_from  # noqa: PLC0415 - imports of the work itself
    from mtpdeploy.cli.opening import open_box  # noqa: PLC0415
    from mtpdeploy.cli.plain import Plain  # noqa: PLC0415
    from mtpdeploy.deploy.order import Options  # noqa: PLC0415
    from mtpdeploy.remote.tunnel import Tunnel  # noqa: PLC0415

    target = options.Asked(**asked)
    order = order_from(target, Options())
    port = order.server.port
    wanted = port if local_port is None else local_port

    def tell(text: str) -> None:
        click.echo(text, err=True)

    with (
        open_box(order.host, Plain().show, strict=target.strict) as box,
        Tunnel(box, port, wanted, tell) as t,
    ):
        if t.port != wanted and wanted:
            tell(f"port {wanted} is taken here")
        tell(f"http://127.0.0.1:{t.port}/v1 leads to port {port} of {order.host.name}; Ctrl-C closes it")
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            tell("closed")
    return 0
