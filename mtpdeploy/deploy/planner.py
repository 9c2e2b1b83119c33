"""
Forecasts on the facts of a box: what a server will make of it, before anything is launched.
"""

from collections.abc import Callable
from pathlib import Path

from msgspec import Struct, structs

from mtpdeploy.core.diagnosis import Cause, Milestone, Stage, Verdict
from mtpdeploy.core.foresight import Foreseen, foresee
from mtpdeploy.core.ladder import Step
from mtpdeploy.core.launch import AttemptRecord
from mtpdeploy.core.machine import Facts, ModelFacts
from mtpdeploy.core.memory import Card, Fit, Forecast, Seen, Weights
from mtpdeploy.core.model import ModelShape, NotAModel, read_model
from mtpdeploy.core.outcome import Ascent
from mtpdeploy.core.server import ServerSpec
from mtpdeploy.core.stale import judge, wanted_gpus
from mtpdeploy.core.units import MIB
from mtpdeploy.deploy.calibration import Calibration, Memory, seen_in, still_true
from mtpdeploy.deploy.order import Order, Tools
from mtpdeploy.engines.base import Engine
from mtpdeploy.errors import BoxUnfit
from mtpdeploy.remote.stale import never_ended

TELLING = (Stage.WEIGHTS_LOADED, Stage.DRAFT_LOADED)
"""Stages whose figures decide the pools: what comes later is sized from them."""

Predict = Callable[[ServerSpec], Forecast | None]
"""Says what a server will make of the box, or None where it cannot be said."""


class Unplanned(Struct, frozen=True):
    """
    Why nothing can be said of a box: no GPU figures, no config.json.
    """

    why: str


def predictor(
    engine: Engine,
    facts: Facts,
    seen: Seen | None = None,
    *,
    running: bool = False,
    keep_others: bool = False,
) -> Predict | Unplanned:
    """
    A function that forecasts servers of the surveyed model on the surveyed box.

    What is in the way and will be ended before the launch counts as gone. `seen` is of an earlier
    start there, or of the attempt itself that is `running`.
    """
    model = facts.model
    if model is None or not model.config:
        return Unplanned("the model's config.json is not on the box")
    if not facts.gpus or facts.sglang_version is None:
        return Unplanned("the box shows no GPU" if not facts.gpus else "SGLang's version is not known")
    try:
        shape = read_model(model.config)
    except NotAModel as error:
        return Unplanned(f"config.json describes no model: {error}")
    weights, version = weights_of(model, shape), facts.sglang_version

    def predict(server: ServerSpec) -> Forecast | None:
        card = card_of(facts, server, keep_others=keep_others)
        if card is None:
            return None
        if seen is None:
            return engine.forecast(server, shape, version, card, weights, None)
        if running:
            return engine.forecast(
                server, shape, version, structs.replace(card, free=seen.free), weights, seen
            )
        return engine.forecast(server, shape, version, card, weights, still_true(seen, server))

    return predict


def look_ahead(
    step: Step, order: Order, facts: Facts, ascent: Ascent, *, engine: Engine, state: Path
) -> Foreseen | Unplanned:
    """
    What forecasts on fresh facts, and what is remembered of the box, make of a step that the ladder suggests.
    """
    known = Memory(state, facts).read()
    predict = predictor(engine, facts, known.seen, keep_others=order.options.keep_others)
    if isinstance(predict, Unplanned):
        return predict
    before = None if ascent.outcomes else proven_before(order.server, known, predict)
    version = facts.sglang_version or ""
    found = before or foresee(step, order.ladder, ascent, version, predict, engine.knowledge)
    if found.server is None or found.forecast is None:
        return found
    return structs.replace(found, forecast=engine.with_fewer(found.server, found.forecast, predict))


def proven_before(asked: ServerSpec, known: Calibration, predict: Predict) -> Foreseen | None:
    """
    The configuration in which the same server was ready on the same box before, unless it will not fit now.
    """
    if known.ready is None or known.asked != asked:
        return None
    forecast = predict(known.ready)
    if forecast is None or forecast.fit is Fit.DOES_NOT_FIT:
        return None
    return Foreseen(known.ready, known.rungs, (), forecast, proven=True)


class Foreteller:
    """
    Judges a running attempt by the figures that it has printed so far.
    """

    def __init__(self, record: AttemptRecord, tools: Tools, facts: Facts) -> None:
        self._record = record
        self._tools = tools
        self._facts = facts
        self._total = min((gpu.total_bytes for gpu in facts.gpus), default=0)

    def __call__(self, figures: dict[str, float], milestone: Milestone) -> Verdict | None:
        """
        The verdict on an attempt that must fail by what SGLang itself works out later, None on any other.
        """
        if milestone.stage not in TELLING:
            return None
        seen = seen_in(figures, self._record.server, self._total)
        predict = predictor(self._tools.engine, self._facts, seen, running=True)
        forecast = None if isinstance(predict, Unplanned) else predict(self._record.server)
        if forecast is None or forecast.error is None or forecast.fit is not Fit.DOES_NOT_FIT:
            return None
        if seen.weights is None or (self._record.server.mtp is not None and seen.draft is None):
            # What is not loaded yet is a guess, and a guess ends nothing that lives.
            return None
        cause = forecast.cause or Cause.UNKNOWN
        known = self._tools.engine.knowledge[cause]
        return Verdict(
            cause=cause,
            next=known.next,
            proof=milestone.text,
            line=milestone.line,
            because=f"foretold by its own figures: {forecast.reason}",
            remedy=known.advice(forecast.verdict_figures),
            figures=forecast.verdict_figures,
        )


def nothing_fits(order: Order, facts: Facts, foreseen: Foreseen) -> BoxUnfit:
    """
    The error where every configuration on the ladder is predicted to fail: what is in the way, and is never
    ended, or that nothing fits.
    """
    clearance = judge(facts, order.server, keep_others=order.options.keep_others)
    if (problem := never_ended(order.host.name, clearance)) is not None:
        return problem
    ends = foreseen.passed[:1] + foreseen.passed[-1:]
    passed = [f"{', '.join(one.changed) or 'as asked'}: {one.reason}" for one in ends]
    listed = "; ".join(dict.fromkeys(passed))
    return BoxUnfit(
        f"nothing on the ladder `{order.ladder.name}` is predicted to fit on `{order.host.name}`: {listed}",
        hint="`mtpdeploy plan --solve` looks for a configuration that does; with `--no-plan` the ladder is"
        " climbed all the same",
    )


def card_of(facts: Facts, server: ServerSpec, *, keep_others: bool = False) -> Card | None:
    """
    The smallest of the cards that a server may use; None where there is none.
    """
    gpus = wanted_gpus(facts, server)
    if not gpus:
        return None
    clearance = judge(facts, server, keep_others=keep_others)
    ending = {one for blocker in (*clearance.ours, *clearance.others) for one in blocker.family}
    held = [process.gpu_bytes for process in facts.processes if process.id in ending]
    unused = min(
        # Who holds what may be hidden; what a launch waits for is told all the same, less what is tolerated.
        max(gpu.free_bytes + sum(of.get(gpu.uuid, 0) for of in held), clearance.memory.get(gpu.uuid, 0))
        for gpu in gpus
    )
    return Card(
        total_mib=min(gpu.total_bytes for gpu in gpus) // MIB,
        unused=unused,
        capability=gpus[0].compute_capability,
        host_free=facts.ram_free_bytes,
        host_limit=facts.ram_limit_bytes,
    )


def weights_of(model: ModelFacts, shape: ModelShape) -> Weights:
    """
    What a checkpoint loads for the target and for its own draft, which has two vocabulary tables at first.
    """
    table = 2 * shape.parameters.table * 2
    drafted = model.mtp_bytes
    if drafted is None:
        drafted = shape.parameters.draft * 2 if model.has_mtp is not False else 0
    target = None if model.weight_bytes is None else max(0, model.weight_bytes - drafted)
    return Weights(target=target, draft=drafted + table if shape.mtp_layers else None)
