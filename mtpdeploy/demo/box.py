"""
The demo box: a home with a simulated GPU and SGLang, behind a real SSH server in this process.

The home stays between commands, and so does what runs in it: `status`, `logs`, `attach` and `down` find
what `up` started, as on a rented box.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

from msgspec import Struct, ValidationError, convert, structs

from mtpdeploy import __path__ as package
from mtpdeploy.core.machine import Host
from mtpdeploy.demo import place
from mtpdeploy.demo.home import H100, RTX_PRO_6000, STAGES, DemoHome, Hostile, make_home
from mtpdeploy.demo.wire import SshServer, Wire
from mtpdeploy.errors import ConfigError

CARDS = {"rtx-pro-6000": RTX_PRO_6000, "h100": H100}
"""The cards that the demo box can have."""

KEY_ALIAS = "mtpdeploy-demo"
"""What the demo box's host key is filed under: its port is another one each time."""

LIKENESS = ("sglang", "gpu", "speed")
"""What makes a home another one: it is laid out anew when one of these changes."""


class Likeness(Struct, frozen=True):
    """
    What a demo box is like: `demo:sglang=0.5.23,gpu=h100,hang_at=graphs`.
    """

    sglang: str = "0.5.9"
    gpu: str = "rtx-pro-6000"
    speed: float = 30.0
    hostile: Hostile = Hostile()
    wire: Wire = Wire()


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


def read_likeness(address: str) -> Likeness:
    """
    Read what stands behind `demo:`.

    Raises:
        ConfigError: an unknown key or a value that cannot be.
    """
    likeness = Likeness()
    for part in filter(None, address.partition(":")[2].split(",")):
        key, _, text = part.partition("=")
        likeness = _with(likeness, key.strip(), text.strip())
    if likeness.gpu not in CARDS:
        raise ConfigError(f"the demo box has no card `{likeness.gpu}`", hint="it has " + ", ".join(CARDS))
    hostile = likeness.hostile
    for stage in filter(None, (hostile.die_at, hostile.hang_at, hostile.killed_at)):
        if stage not in STAGES:
            raise ConfigError(f"the demo box has no stage `{stage}`", hint="it has " + ", ".join(STAGES))
    return likeness


def _with(likeness: Likeness, key: str, text: str) -> Likeness:
    known: dict[str, Any] = {}
    for part in ("hostile", "wire"):
        kind = type(getattr(likeness, part))
        names = [f.name for f in fields(kind)] if part == "hostile" else list(kind.__struct_fields__)
        known |= dict.fromkeys(names, part)
    try:
        if key in LIKENESS:
            return convert({**structs.asdict(likeness), key: text}, type=Likeness, strict=False)
        if known.get(key) == "wire":
            wire = convert({**structs.asdict(likeness.wire), key: text or "true"}, type=Wire, strict=False)
            return structs.replace(likeness, wire=wire)
        if known.get(key) == "hostile":
            old = {f.name: getattr(likeness.hostile, f.name) for f in fields(Hostile)}
            hostile = convert({**old, key: text or "true"}, type=Hostile, strict=False)
            return structs.replace(likeness, hostile=hostile)
    except ValidationError as error:
        raise ConfigError(f"`{key}={text}` of the demo box: {error}") from error
    raise ConfigError(
        f"the demo box knows no `{key}`", hint="it knows " + ", ".join(sorted([*LIKENESS, *known]))
    )


def _home(folder: Path, path: Path, likeness: Likeness, *, lay_out: bool) -> DemoHome:
    """
    The home that is there, where it is as wanted or nothing new is to be laid out; else a new one.
    """
    home = DemoHome(path.resolve(), sys.executable)
    stamp = folder / "likeness"
    likeness_text = f"{likeness.sglang} {likeness.gpu} {likeness.speed:g} {likeness.hostile}"
    wanted = f"{package[0]} {sys.executable} {likeness_text}"
    there = path.is_dir() and stamp.is_file()
    alike = there and stamp.read_text() == wanted and likeness.hostile == Hostile()
    if there and (alike or not lay_out):
        return home
    if there and any(not role.startswith("stranger") for _, _, role in home.living()):
        raise ConfigError("another demo box is in use", hint="`mtpdeploy down --on demo` stops its server")
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
