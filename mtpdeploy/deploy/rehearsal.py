"""
What `up` would do, without doing it.
"""

from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct

from mtpdeploy.core.launch import SCRIPT_FILE, AttemptRecord, log_name, run_name
from mtpdeploy.core.server import ServerSpec
from mtpdeploy.core.stale import judge
from mtpdeploy.deploy.attempt import Place, place_of, render_files
from mtpdeploy.deploy.ground import describe, look
from mtpdeploy.deploy.order import Order, Tools
from mtpdeploy.deploy.up import same_server
from mtpdeploy.engines.base import Engine
from mtpdeploy.errors import ConfigError, MtpDeployError
from mtpdeploy.remote import lock
from mtpdeploy.remote.facts import unfit
from mtpdeploy.remote.stale import never_ended


class Rehearsal(Struct, frozen=True):
    """
    The script of the first attempt, what would be stopped, what already serves, and what would end `up`.
    """

    script: str
    files: dict[str, str]
    in_the_way: tuple[str, ...]
    already_running: str | None
    problem: MtpDeployError | None

    @property
    def exit_status(self) -> int:
        """
        What `up` would leave with before any attempt, as far as looking can tell; 0 where it would begin one.
        """
        return self.problem.exit_status if self.problem else 0


def rehearse(order: Order, tools: Tools) -> Rehearsal:
    """
    Look at the box and render the first attempt; nothing there is touched.

    Raises:
        ConfigError: the version on the box does not know a flag.
        BoxUnfit: the same, and the box is not fit anyhow, which `up` would say first.
    """
    facts = look(tools, order.server)
    problem = unfit(facts, order.host, order.server)
    record = _first(order.server, tools.clock.now(), facts.sglang_version or "")
    try:
        files = render_files(
            record, tools.engine, place_of(facts), host=order.host, templates=tools.templates
        )
    except ConfigError as error:
        raise problem or error from error
    same = None if order.options.force else same_server(facts, order)
    clearance = judge(facts, order.server, keep_others=order.options.keep_others)
    if problem is None and same is None:
        problem = never_ended(order.host.name, clearance)
    return Rehearsal(
        script=files[SCRIPT_FILE],
        files=files,
        in_the_way=tuple(describe(clearance)),
        already_running=same[0].run if same else None,
        problem=problem,
    )


def script_for(
    order: Order, engine: Engine, *, now: float, version: str, python: str, templates: Path | None
) -> str:
    """
    The script of a first attempt for an SGLang version, without a box.

    Raises:
        ConfigError: the version does not know a flag.
    """
    record = _first(order.server, now, version)
    place = Place(work_dir=order.host.work_dir, python=python)
    return render_files(record, engine, place, host=order.host, templates=templates)[SCRIPT_FILE]


def _first(server: ServerSpec, now: float, version: str) -> AttemptRecord:
    moment = datetime.fromtimestamp(now, UTC)
    return AttemptRecord(
        ascent="rehearsal",
        attempt=1,
        run=run_name(moment, server.name, "rehearsal", 1),
        log=log_name(moment, 1),
        started_at=moment.timestamp(),
        asked=server,
        server=server,
        rung=None,
        sglang_version=version,
        client=lock.whoami(),
    )
