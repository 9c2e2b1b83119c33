"""
A rented box on loopback: a real OpenSSH server whose sessions land in a demo home.
"""

import getpass
from pathlib import Path
from typing import Any, Self

from mtpdeploy.demo.home import DemoHome, make_home
from tests.deploy.place import FAST, FITTING, SEED
from tests.e2e.client import Client
from tests.fakes.sshd import Sshd, free_port

SERVERS = {"seed": SEED, "fits": FITTING, "second": {**FITTING, "max_running_requests": 48}}
"""The servers in hosts.toml: needs four attempts, needs one, needs two."""


class Rented:
    """
    One box, one client of it, and the port that its servers are to listen on.
    """

    def __init__(
        self, folder: Path, *, lines: tuple[str, ...] = (), login_shell: str = "", **options: Any
    ) -> None:
        self.folder = folder
        self.port = free_port()
        home = folder / "box" / "home"
        environment = DemoHome(home, "python3").environment
        settings = f"SetEnv {' '.join(f'{name}={value}' for name, value in environment.items())}"
        self.sshd = Sshd(folder / "box", lines=(settings, *lines), login_shell=login_shell)
        options.setdefault("speed", FAST)
        self.home = make_home(home, **options)
        self.client = Client(folder / "client")
        self.write_hosts()

    @property
    def line(self) -> str:
        """
        What the provider's page would show.
        """
        return f"ssh -p {self.sshd.port} -i {self.sshd.key} {getpass.getuser()}@127.0.0.1"

    def write_hosts(self, *, port: int | None = None, host: str = "", **server: Any) -> None:
        """
        A hosts.toml with this box and its servers; `host` are further lines of the host, `port` another one.
        """
        line = self.line.replace(f"-p {self.sshd.port}", f"-p {port or self.sshd.port}")
        parts = [f'[hosts.box]\nssh = "{line}"\n{host}']
        for name, flags in SERVERS.items():
            given = {"model_path": str(self.home.model()), "port": self.port, **flags, **server}
            lines = [f"{key} = {_toml(value)}" for key, value in given.items()]
            parts.append("\n".join([f"[servers.{name}]", *lines]))
            parts.append(f'[servers.{name}.env]\nSGLANG_ENABLE_SPEC_V2 = "1"')
        self.client.write_hosts("\n\n".join(parts) + "\n")

    def __enter__(self) -> Self:
        self.sshd.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.sshd.stop()
        self.home.clean()


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) else str(value)
