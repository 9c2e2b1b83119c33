"""
What `plan` forecasts: a server of hosts.toml on a box, or flags of the command line on a card.
"""

from msgspec import Struct, structs

from mtpdeploy.cli.choose import order_from, overrides_of
from mtpdeploy.cli.offline import Given, given_card, given_loads, given_model, given_version
from mtpdeploy.cli.opening import open_tools
from mtpdeploy.cli.options import Asked
from mtpdeploy.cli.plain import Plain
from mtpdeploy.cli.plan import NEWEST
from mtpdeploy.core.machine import Facts, Host
from mtpdeploy.core.memory import Fit, Forecast
from mtpdeploy.core.server import ServerSpec
from mtpdeploy.deploy.calibration import Memory
from mtpdeploy.deploy.ground import look
from mtpdeploy.deploy.order import Options
from mtpdeploy.deploy.planner import Predict, Unplanned, predictor
from mtpdeploy.engines.sglang import SGLANG
from mtpdeploy.engines.sglang.sizing.sense import nonsense
from mtpdeploy.errors import BoxUnfit, ConfigError, MtpDeployError
from mtpdeploy.inventory.keys import SERVER_KEYS
from mtpdeploy.inventory.load import load
from mtpdeploy.inventory.overrides import Overrides, option_claims
from mtpdeploy.inventory.resolve import choose_server, server_of
from mtpdeploy.remote.fitness import require_mtp, unfit


class Subject(Struct, frozen=True):
    """
    The server in question, the SGLang version that it is planned for, and what forecasts it.
    """

    server: ServerSpec
    version: str
    predict: Predict


def on_box(asked: Asked, *, search: bool = False) -> Subject:
    """
    A server of hosts.toml, and forecasts on what its box shows now.

    Raises:
        ConfigError: a flag or a value that the version on the box does not take; its SGLang is too old.
        BoxUnfit: the box lacks what a plan rests on, or before a `search` anything that `up` needs.
    """
    order = order_from(asked, Options())
    with open_tools(order.host, asked, Plain().show, lay_out=True) as tools:
        facts = look(tools, order.server)
        known = Memory(tools.state, facts).read()
    predict = predictor(SGLANG, facts, known.seen)
    if isinstance(predict, Unplanned):
        problem = unfit(facts, order.host, order.server)
        raise problem or BoxUnfit(
            f"nothing can be planned on `{order.host.name}`: {predict.why}",
            hint="`--model`, `--gpu` and `--sglang` plan without a box",
        )
    version = facts.sglang_version or ""
    server = _taken(order.server, version)
    if not search:
        return Subject(server, version, _as_up_would(predict, facts, order.host))
    if problem := _refused(facts, order.host, server):
        raise problem
    return Subject(server, version, predict)


def _refused(facts: Facts, host: Host, server: ServerSpec) -> MtpDeployError | None:
    """
    What `up` would say to it before any launch.
    """
    try:
        require_mtp(facts, host, server)
    except BoxUnfit as error:
        return unfit(facts, host, server) or error
    return unfit(facts, host, server)


def _as_up_would(predict: Predict, facts: Facts, host: Host) -> Predict:
    """
    Forecasts whose verdict is that of `up`, which launches nothing on a box that is not fit for it.
    """

    def predicted(server: ServerSpec) -> Forecast | None:
        forecast, problem = predict(server), _refused(facts, host, server)
        if forecast is None or problem is None:
            return forecast
        memory = f"as for memory alone: {forecast.fit}: {forecast.reason}"
        notes = (f"`up` refuses it: {problem.hint}", memory, *forecast.notes)
        return structs.replace(forecast, fit=Fit.DOES_NOT_FIT, reason=problem.message, notes=notes)

    return predicted


def without_box(asked: Asked, given: Given) -> Subject:
    """
    The flags of a server of hosts.toml (where one is named) and of `--set`, on a card that is named.

    Raises:
        ConfigError: a model, a card or a flag that cannot be.
    """
    shape, weights = given_model(given)
    loads = given_loads(given)
    card, version = given_card(given), given_version(given) or NEWEST
    server = _taken(_server(asked, given.model or ""), version)

    def predict(changed: ServerSpec) -> Forecast:
        return SGLANG.forecast(changed, shape, version, card, weights, loads)

    return Subject(server, version, predict)


def _server(asked: Asked, model: str) -> ServerSpec:
    if asked.server is not None:
        inventory = load(asked.config_file)
        named = server_of(inventory, choose_server(inventory, asked.server, overrides_of(asked)))
        return named.with_flags(model_path=model)
    if asked.config_file is not None:
        load(asked.config_file)  # one that cannot be read is wrong although nothing of it is asked for
    return _with(ServerSpec(name="the server", flags={"model_path": model}), asked.settings)


def with_setting(subject: Subject, key: str, value: str) -> ServerSpec:
    """
    The server with one of the values that `--compare` puts side by side.

    Raises:
        ConfigError: no such key, or a value that it does not take, at all or in this version.
    """
    try:
        server = sensible(_with(subject.server, (f"{key}={value}",)))
    except ConfigError as error:
        message = error.message.replace("`--set", "`--compare", 1)
        raise ConfigError(message, hint=error.hint) from None
    try:
        return _taken(server, subject.version)
    except ConfigError as error:
        hint = f"leave `{value}` out, or plan for another version by `--sglang`"
        raise ConfigError(f"`--compare {key}`: {error.message}", hint=hint) from None


def _taken(server: ServerSpec, version: str) -> ServerSpec:
    """
    The server, if its numbers can be and the version takes its flags, as `up` asks before a launch.
    """
    SGLANG.command(sensible(server), "python3", version)
    return server


def sensible(server: ServerSpec) -> ServerSpec:
    """
    The server, if its numbers can be at all.

    Raises:
        ConfigError: one that cannot.
    """
    for one in nonsense(server):
        raise ConfigError(f"`{one.flag}` cannot be {one.value}", hint=f"give a number {one.allowed}")
    return server


def _with(server: ServerSpec, settings: tuple[str, ...]) -> ServerSpec:
    claims = option_claims(Overrides(sets=settings))
    values = {key: claim[0].value for key, claim in claims.items()}
    flags = {k: v for k, v in values.items() if k not in SERVER_KEYS and not k.startswith("env.")}
    env = {k.removeprefix("env."): str(v) for k, v in values.items() if k.startswith("env.")}
    return server.with_flags(**flags).with_env(**env)
