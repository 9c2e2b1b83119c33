"""
`mtpdeploy hosts`: list, add, forget a host key.
"""

from pathlib import Path

import click
from msgspec import to_builtins

from mtpdeploy.cli import options, tables
from mtpdeploy.cli.output import Answer


@click.group("hosts", invoke_without_command=True)
@options.config
@click.option("--json", "as_json", is_flag=True, help="One document on stdout.")
@click.pass_context
def command(context: click.Context, config_file: str | None, *, as_json: bool) -> Answer | None:
    """
    List the hosts of hosts.toml.
    """
    if context.invoked_subcommand is not None:
        if as_json:
            raise click.UsageError(
                f"`--json` is for the list of hosts, not for `{context.invoked_subcommand}`"
            )
        context.obj = config_file
        return None
    from mtpdeploy.inventory.load import load  # noqa: PLC0415 - imports of the work itself
    from mtpdeploy.inventory.reach import configured_host, host_of  # noqa: PLC0415
    from mtpdeploy.remote.address import parse_address  # noqa: PLC0415

    inventory = load(config_file)
    hosts = [
        host_of(configured_host(inventory, name, read_address=parse_address)) for name in inventory.hosts
    ]
    if as_json:
        return Answer([to_builtins(host) for host in hosts])
    rows = [
        (
            host.name,
            host.address,
            str(host.port or ""),
            host.user or "",
            host.work_dir,
            "" if host.price_per_hour is None else f"{host.price_per_hour:g}",
        )
        for host in hosts
    ]
    click.echo(tables.table(("host", "address", "port", "user", "work_dir", "price per hour"), rows))
    return None


@command.command("add")
@click.argument("name")
@click.argument("ssh_line")
@click.option("--force", is_flag=True, help="Replace a host of that name.")
@options.config
@click.pass_obj
def add(outer: str | None, name: str, ssh_line: str, config_file: str | None, *, force: bool) -> None:
    """
    Write the provider's ssh line into hosts.toml under NAME; comments there are kept.
    """
    from mtpdeploy.inventory.edit import add_host  # noqa: PLC0415 - imports of the work itself
    from mtpdeploy.remote.address import parse_address  # noqa: PLC0415

    parse_address(ssh_line)
    path = Path(config_file or outer or "hosts.toml")
    add_host(path, name, ssh_line, force=force)
    click.echo(f"{name} is in {path}: mtpdeploy up --on {name}", err=True)


@command.command("forget")
@click.argument("host", type=options.Text())
@click.pass_obj
def forget(config_file: str | None, host: str) -> None:
    """
    Forget the host key that was trusted for HOST, and only that one.
    """
    from mtpdeploy.cli.choose import host_from  # noqa: PLC0415 - imports of the work itself
    from mtpdeploy.deploy.journal import state_directory  # noqa: PLC0415
    from mtpdeploy.errors import ConfigError  # noqa: PLC0415
    from mtpdeploy.remote.hostkeys import forget as forget_key  # noqa: PLC0415
    from mtpdeploy.remote.ssh_config import SSH_PORT, effective  # noqa: PLC0415

    settings = effective(host_from(options.Asked(on=host, config_file=config_file)))
    pins = state_directory() / "known_hosts"
    if not forget_key(settings.host_key_name, SSH_PORT, pins=pins):
        raise ConfigError(
            f"no host key is kept for {settings.address} port {settings.port}",
            hint="only keys in mtpdeploy's own known_hosts can be forgotten here; "
            f"for OpenSSH's: ssh-keygen -R '{settings.host_key_name}'",
        )
    click.echo(f"forgot the host key of {settings.address} port {settings.port}", err=True)
