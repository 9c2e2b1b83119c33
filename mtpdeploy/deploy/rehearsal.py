"""
What `up` would do, without doing it.
"""

from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct

from mtpdeploy.core.foresight import Foreseen
from mtpdeploy.core.ladder import Step
from mtpdeploy.core.launch import SCRIPT_FILE, AttemptRecord, log_name, run_name
from mtpdeploy.core.machine import Facts
from mtpdeploy.core.outcome import Ascent
from mtpdeploy.core.server import ServerSpec
from mtpdeploy.core.stale import Clearance, judge
from mtpdeploy.deploy.attempt import Place, check_flags, place_of, render_files
from mtpdeploy.deploy.ground import describe, look
from mtpdeploy.deploy.order import Order, Tools
from mtpdeploy.deploy.planner import Unplanned, look_ahead, nothing_fits
from mtpdeploy.deploy.up import require_drafts, same_server
from mtpdeploy.engines.base import Engine
from mtpdeploy.errors import BoxUnfit, ConfigError, MtpDeployError
from mtpdeploy.remote import lock
from mtpdeploy.remote.facts import unfit
from mtpdeploy.remote.stale import never_ended


class Rehearsal(Struct, frozen=True):
    """
    The script of the first attempt, what would be stopped, what already serves, and what would end `up`.

    `foreseen` is how the first attempt was chosen; None where nothing was forecast.
    """

    script: str
    files: dict[str, str]
    in_the_way: tuple[str, ...]
    already_running: str | None
    problem: MtpDeployError | None
    foreseen: Foreseen | None = None

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
    try:
        check_flags(order.server, tools, facts)
    except ConfigError as error:
        raise problem or error from error
    same = None if order.options.force else same_server(facts, order)
    foreseen = _foresee(order, tools, facts) if same is None else None
    chosen = foreseen.server if foreseen and foreseen.server else order.server
    record = _first(chosen, tools.clock.now(), facts.sglang_version or "", asked=order.server)
    files = render_files(record, tools.engine, place_of(facts), host=order.host, templates=tools.templates)
    clearance = judge(facts, order.server, keep_others=order.options.keep_others)
    return Rehearsal(
        script=files[SCRIPT_FILE],
        files=files,
        in_the_way=tuple(describe(clearance)),
        already_running=same[0].run if same else None,
        problem=problem or _problem(order, facts, foreseen, None if same else clearance),
        foreseen=foreseen,
    )


def _foresee(order: Order, tools: Tools, facts: Facts) -> Foreseen | None:
    if not order.options.plan:
        return None
    ascent = Ascent(id="rehearsal", host=order.host.name, asked=order.server)
    step = Step(order.server, None, "as asked")
    found = look_ahead(step, order, facts, ascent, engine=tools.engine, state=tools.state)
    if isinstance(found, Unplanned):
        tools.note(f"not planned: {found.why}")
        return None
    return found


def _problem(
    order: Order, facts: Facts, foreseen: Foreseen | None, clearance: Clearance | None
) -> MtpDeployError | None:
    """
    What would end `up` on a box that is fit; without a `clearance` nothing would be launched.
    """
    try:
        require_drafts(order, facts)
    except BoxUnfit as error:
        return error
    if foreseen is not None and foreseen.server is None:
        return nothing_fits(order, facts, foreseen)
    return never_ended(order.host.name, clearance) if clearance else None


def script_for(
    order: Order, engine: Engine, *, now: float, version: str, python: str, templates: Path | None
) -> str:
    """
    The script of a first attempt for an SGLang version, without a box.

    Raises:
        ConfigError: the version does not know a flag.
    """
    record = _first(order.server, now, version, asked=order.server)
    place = Place(work_dir=order.host.work_dir, python=python)
    return render_files(record, engine, place, host=order.host, templates=templates)[SCRIPT_FILE]


def _first(server: ServerSpec, now: float, version: str, *, asked: ServerSpec) -> AttemptRecord:
    moment = datetime.fromtimestamp(now, UTC)
    return AttemptRecord(
        ascent="rehearsal",
        attempt=1,
        run=run_name(moment, server.name, "rehearsal", 1),
        log=log_name(moment, 1),
        started_at=moment.timestamp(),
        asked=asked,
        server=server,
        rung=None,
        sglang_version=version,
        client=lock.whoami(),
    )
