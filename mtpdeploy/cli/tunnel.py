"""
`mtpdeploy tunnel`: localhost:PORT leads to the endpoint as long as this runs.
"""

import threading
from typing import Any

import click

from mtpdeploy.cli import options
from mtpdeploy.core.machine import Host


@click.command("tunnel")
@options.server
@click.option("--local-port", type=click.IntRange(0, 65535), help="Port here; the same as there by default.")
def command(local_port: int | None, **asked: Any) -> int:
    """
    Keep localhost:PORT open on the endpoint of a box, until Ctrl-C.

    Reconnects by itself; takes the next free port where the wanted one is taken, and says so.
    """
    from mtpdeploy.cli.choose import host_from, order_from  # noqa: PLC0415 - imports of the work itself
    from mtpdeploy.cli.opening import open_box  # noqa: PLC0415
    from mtpdeploy.cli.plain import Plain  # noqa: PLC0415
    from mtpdeploy.deploy.order import Options  # noqa: PLC0415
    from mtpdeploy.remote.tunnel import Tunnel  # noqa: PLC0415

    target = options.Asked(**asked)
    if target.port is not None:
        host, port = host_from(target), target.port
    else:
        order = order_from(target, Options())
        host, port = order.host, order.server.port
    wanted = local_port if local_port is not None else pasted_port(host, port)

    def tell(text: str) -> None:
        click.echo(text, err=True)

    with (
        open_box(host, Plain().show, strict=target.strict) as box,
        Tunnel(box, port, wanted, tell) as t,
    ):
        if t.port != wanted and wanted:
            tell(f"port {wanted} is taken here")
        tell(f"http://127.0.0.1:{t.port}/v1 leads to port {port} of {host.name}; Ctrl-C closes it")
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            tell("closed")
    return 0


def pasted_port(host: Host, port: int) -> int:
    """
    The port here that the host's pasted `-L` leads to `port` there; the same one where none does.
    """
    for forward in host.forwards:
        parts = forward.rsplit(":", 2)
        if len(parts) == 3 and parts[2] == str(port) and parts[0].rpartition(":")[2].isdigit():
            return int(parts[0].rpartition(":")[2])
    return port
