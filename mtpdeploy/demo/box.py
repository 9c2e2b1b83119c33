"""
The demo box: a home with a simulated GPU and SGLang, behind a real SSH server in this process.

The home stays between commands, and so does what runs in it: `status`, `logs`, `attach` and `down` find
what `up` started, as on a rented box.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import structs

from mtpdeploy import __path__ as package
from mtpdeploy.core.machine import Host
from mtpdeploy.demo import place
from mtpdeploy.demo.home import DemoHome, Hostile, make_home
from mtpdeploy.demo.likeness import CARDS, Likeness, read_likeness
from mtpdeploy.demo.wire import SshServer
from mtpdeploy.errors import ConfigError

KEY_ALIAS = "mtpdeploy-demo"
"""What the demo box's host key is filed under: its port is another one each time."""

LAYOUT = 2
"""How a home is laid out, one more with every change: 2, shards have headers. An older one is replaced."""


@contextmanager
def demo_box(host: Host, state: Path, *, lay_out: bool) -> Iterator[Host]:
    """
    The demo box that a host's address describes, reachable as the host that comes back.

    With `lay_out` it becomes as described, anew where it is not; without, the one that is there is used.

    Raises:
        ConfigError: the address says something that no demo box has.
    """
    likeness = read_likeness(host.address)
    folder = place.folder(state)
    home = _home(folder, place.home(state), likeness, lay_out=lay_out)
    with SshServer(home.path, folder / "keys", home.environment, likeness.wire) as server:
        yield structs.replace(
            host,
            address=server.address,
            port=server.port,
            user=server.user,
            identity_file=str(server.identity_file),
            python=str(home.bin / "python"),
            ssh_options=(f"HostKeyAlias={KEY_ALIAS}",),
        )


def _home(folder: Path, path: Path, likeness: Likeness, *, lay_out: bool) -> DemoHome:
    """
    The home that is there, where it is as wanted or nothing new is to be laid out; else a new one.
    """
    home = DemoHome(path.resolve(), sys.executable)
    stamp = folder / "likeness"
    likeness_text = f"{likeness.sglang} {likeness.gpu} {likeness.speed:g} {likeness.hostile}"
    wanted = f"{LAYOUT} {package[0]} {sys.executable} {likeness_text}"
    there = path.is_dir() and stamp.is_file()
    alike = there and stamp.read_text() == wanted and likeness.hostile == Hostile()
    if there and (alike or not lay_out):
        return home
    if there and any(not role.startswith("stranger") for _, _, role in home.living()):
        raise ConfigError(
            "another demo box is in use",
            hint="end what uses it: its server by `mtpdeploy down --on demo`, and any `tunnel` or `logs -f`",
        )
    home.clean()
    home = make_home(
        path,
        sglang_version=likeness.sglang,
        gpu=CARDS[likeness.gpu],
        hostile=likeness.hostile,
        speed=likeness.speed,
    )
    stamp.write_text(wanted)
    return home
