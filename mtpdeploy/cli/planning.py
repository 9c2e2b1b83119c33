"""
What `plan` forecasts: a server of hosts.toml on a box, or flags of the command line on a card.
"""

from msgspec import structs

from mtpdeploy.cli.choose import order_from, overrides_of
from mtpdeploy.cli.offline import Given, given_card, given_loads, given_model, given_version
from mtpdeploy.cli.opening import open_tools
from mtpdeploy.cli.options import Asked
from mtpdeploy.cli.plain import Plain
from mtpdeploy.cli.plan import NEWEST
from mtpdeploy.core.machine import Facts, Host
from mtpdeploy.core.memory import Fit, Forecast
from mtpdeploy.core.server import ServerSpec
from mtpdeploy.deploy.attempt import check_flags
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


def on_box(asked: Asked, *, search: bool = False) -> tuple[ServerSpec, Predict]:
    """
    A server of hosts.toml, and forecasts on what its box shows now.

    Raises:
        BoxUnfit: the box lacks what a plan rests on, or before a `search` anything that `up` needs.
        ConfigError: its SGLang does not take a flag, or is too old.
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
    check_flags(order.server, tools, facts)
    if search:
        if problem := _refused(facts, order.host, order.server):
            raise problem
        return sensible(order.server), predict
    return sensible(order.server), _as_up_would(predict, facts, order.host)


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


def without_box(asked: Asked, given: Given) -> tuple[ServerSpec, Predict]:
    """
    The flags of a server of hosts.toml (where one is named) and of `--set`, on a card that is named.

    Raises:
        ConfigError: a model, a card or a flag that cannot be.
    """
    shape, weights = given_model(given)
    loads = given_loads(given)
    card, version = given_card(given), given_version(given) or NEWEST
    server = sensible(_server(asked, given.model or ""))

    def predict(changed: ServerSpec) -> Forecast:
        return SGLANG.forecast(changed, shape, version, card, weights, loads)

    SGLANG.command(server, "python3", version)
    return server, predict


def _server(asked: Asked, model: str) -> ServerSpec:
    if asked.server is not None:
        inventory = load(asked.config_file)
        named = server_of(inventory, choose_server(inventory, asked.server, overrides_of(asked)))
        return named.with_flags(model_path=model)
    return _with(ServerSpec(name="the server", flags={"model_path": model}), asked.settings)


def with_setting(server: ServerSpec, key: str, value: str) -> ServerSpec:
    """
    The server with one of the values that `--compare` puts side by side.

    Raises:
        ConfigError: no such key, or a value that it does not take.
    """
    try:
        return sensible(_with(server, (f"{key}={value}",)))
    except ConfigError as error:
        message = error.message.replace("`--set", "`--compare", 1)
        raise ConfigError(message, hint=error.hint) from None


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
