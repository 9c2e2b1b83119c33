"""
Opening the line to a box: over SSH, or to the built-in demo box.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from mtpdeploy.cli.choose import find_ladder
from mtpdeploy.cli.options import Asked
from mtpdeploy.clock import SystemClock
from mtpdeploy.core import events
from mtpdeploy.core.events import Emit
from mtpdeploy.core.machine import Host
from mtpdeploy.deploy.journal import state_directory
from mtpdeploy.deploy.order import Tools
from mtpdeploy.engines.sglang import SGLANG
from mtpdeploy.errors import ConfigError
from mtpdeploy.remote.box import Box


@contextmanager
def open_tools(host: Host, asked: Asked, emit: Emit, *, lay_out: bool = False) -> Iterator[Tools]:
    """
    The open box of a host, and everything else an ascent works with.

    `lay_out` makes the demo box what its address says, where another one is there.
    """
    clock = SystemClock()
    with ExitStack() as stack:
        box = stack.enter_context(open_box(host, emit, strict=asked.strict, lay_out=lay_out))
        yield Tools(
            box=box,
            engine=SGLANG,
            clock=clock,
            emit=emit,
            state=state_directory(),
            ladder=lambda name: find_ladder(asked.config_file, name),
            templates=own_templates(),
        )


@contextmanager
def open_box(host: Host, emit: Emit, *, strict: bool = False, lay_out: bool = False) -> Iterator[Box]:
    """
    An open line to a host.

    Raises:
        BoxUnreachable: it cannot be reached or entered.
        ConfigError: the demo box was asked for and its extra is not installed.
    """
    from mtpdeploy.remote.ssh import SshBox  # noqa: PLC0415 - fabric and paramiko take 300 ms

    clock = SystemClock()

    def told(text: str) -> None:
        emit(events.Note(at=clock.now(), text=text))

    with ExitStack() as stack:
        reachable = stack.enter_context(_demo_box(host, lay_out=lay_out)) if host.simulated else host
        begun = clock.monotonic()
        box = stack.enter_context(SshBox(reachable, state=state_directory(), strict=strict, told=told))
        box.connect()
        emit(
            events.Connected(
                at=clock.now(),
                host=host.name,
                address=f"{reachable.address}:{reachable.port or 22}",
                seconds=clock.monotonic() - begun,
                simulated=host.simulated,
            )
        )
        yield box


@contextmanager
def _demo_box(host: Host, *, lay_out: bool) -> Iterator[Host]:
    try:
        from mtpdeploy.demo.box import demo_box  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise ConfigError(
            "the demo box needs the extra `demo`", hint="pip install 'mtpdeploy[demo]'"
        ) from error
    with demo_box(host, state_directory(), lay_out=lay_out) as reachable:
        yield reachable


def own_templates() -> Path | None:
    """
    The user's own folder of templates, where there is one.
    """
    import platformdirs  # noqa: PLC0415 - only where scripts are rendered

    folder = Path(platformdirs.user_config_dir("mtpdeploy")) / "templates"
    return folder if folder.is_dir() else None
