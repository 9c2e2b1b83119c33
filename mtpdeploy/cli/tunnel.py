"""
`mtpdeploy tunnel`: localhost:PORT leads to the endpoint as long as this runs.
"""

import threading
from typing import TYPE_CHECKING, Any

import click

from mtpdeploy.cli import options
from mtpdeploy.core.machine import Host

if TYPE_CHECKING:
    from mtpdeploy.deploy.order import Tools


@click.command("tunnel")
@options.running
@click.option("--port", type=options.Whole(1, 65535), help="Port on the box; that of the server by default.")
@click.option("--local-port", type=options.Whole(0, 65535), help="Port here; the same as there by default.")
def command(port: int | None, local_port: int | None, **asked: Any) -> int:
    """
    Keep localhost:PORT open on the endpoint of a box, until Ctrl-C.

    The port is that of the server that runs there (SERVER's, where it is named). Reconnects by itself;
    takes the next free port here where the wanted one is taken, and says so.
    """
    from mtpdeploy.cli.choose import host_from  # noqa: PLC0415 - imports of the work itself
    from mtpdeploy.cli.opening import open_tools  # noqa: PLC0415
    from mtpdeploy.cli.plain import Plain  # noqa: PLC0415
    from mtpdeploy.remote.tunnel import Tunnel  # noqa: PLC0415

    target = options.Asked(**asked)
    host = host_from(target)

    def tell(text: str) -> None:
        click.echo(text, err=True)

    with open_tools(host, target, Plain().show) as tools:
        there = port or _port_of_server(tools, target.server)
        wanted = local_port if local_port is not None else pasted_port(host, there)
        if host.simulated and wanted == there:
            # The demo box is this machine: on the same port the tunnel would lead to itself.
            wanted += 1
            tell(f"the demo box is this machine, so its port {there} is not free here")
        with Tunnel(tools.box, there, wanted, tell) as tunnel:
            if tunnel.port != wanted and wanted:
                tell(f"port {wanted} is taken here")
            tell(f"http://127.0.0.1:{tunnel.port}/v1 leads to port {there} of {host.name}; Ctrl-C closes it")
            try:
                threading.Event().wait()
            except KeyboardInterrupt:
                tell("closed")
    return 0


def _port_of_server(tools: "Tools", server: str | None) -> int:
    from mtpdeploy.deploy.attach import newest  # noqa: PLC0415 - imports of the work itself
    from mtpdeploy.deploy.ground import look  # noqa: PLC0415

    return newest(look(tools, None), server=server)[1].server.port


def pasted_port(host: Host, port: int) -> int:
    """
    The port here that the host's pasted `-L` leads to `port` there; the same one where none does.
    """
    for forward in host.forwards:
        parts = forward.rsplit(":", 2)
        if len(parts) == 3 and parts[2] == str(port) and parts[0].rpartition(":")[2].isdigit():
            return int(parts[0].rpartition(":")[2])
    return port
