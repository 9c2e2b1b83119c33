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
from mtpdeploy.remote import lock
from mtpdeploy.remote.facts import unfit


class Rehearsal(Struct, frozen=True):
    """
    The script of the first attempt, what would be stopped, and what already serves.
    """

    script: str
    files: dict[str, str]
    in_the_way: tuple[str, ...]
    already_running: str | None
    problem: str | None


def rehearse(order: Order, tools: Tools) -> Rehearsal:
    """
    Look at the box and render the first attempt; nothing there is touched.

    Raises:
        ConfigError: the version on the box does not know a flag.
    """
    facts = look(tools, order.server)
    problem = unfit(facts, order.host, order.server)
    record = _first(order.server, tools.clock.now(), facts.sglang_version or "")
    files = render_files(record, tools.engine, place_of(facts), host=order.host, templates=tools.templates)
    same = same_server(facts, order)
    return Rehearsal(
        script=files[SCRIPT_FILE],
        files=files,
        in_the_way=tuple(describe(judge(facts, order.server, keep_others=order.options.keep_others))),
        already_running=same[0].run if same else None,
        problem=problem.message if problem else None,
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
