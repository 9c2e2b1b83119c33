"""
A forecast in one sentence: why a server fits, or what is in the way of it.
"""

from mtpdeploy.core.diagnosis import Cause
from mtpdeploy.core.memory import Fit, Forecast
from mtpdeploy.core.units import gib
from mtpdeploy.engines.sglang.sizing.asked import Asked
from mtpdeploy.engines.sglang.sizing.division import Loads
from mtpdeploy.engines.sglang.sizing.pools import Pools
from mtpdeploy.engines.sglang.sizing.state import conv_bytes, slots_per_request, ssm_bytes


def reason(
    asked: Asked, loads: Loads, pools: Pools, forecast: Forecast, guessed: tuple[str, ...] = ()
) -> str:
    """
    The sentence; what is `guessed` is told where nothing else speaks against a start.
    """
    if forecast.fit is not Fit.DOES_NOT_FIT and forecast.cause is None:
        return _fits(asked, forecast) + (f"; but that is a guess: {guessed[0]}" if guessed else "")
    if forecast.cause in (Cause.OOM_WEIGHTS, Cause.OOM_DRAFT_WEIGHTS) and forecast.error is not None:
        weights = loads.weights + (loads.draft if forecast.cause is Cause.OOM_DRAFT_WEIGHTS else 0)
        return f"the weights take {gib(weights)}; {gib(loads.free)} are free"
    if pools.refusal is not None and forecast.error == pools.refusal.text:
        return _no_room(asked, loads, pools)
    if forecast.error is not None:
        return f"SGLang {asked.version} refuses it: {forecast.cause}"
    needed = f"{gib(forecast.needed)} (± {gib(forecast.needed_uncertainty)})"
    if forecast.cause in (Cause.OOM_DRAFT_WEIGHTS, Cause.OOM_POOLS):
        return (
            f"the draft takes {gib(loads.draft)} as it loads, beside pools that leave "
            f"{gib(forecast.left + loads.draft_kept)} of the card"
        )
    return f"{gib(forecast.left)} are left after the pools; graphs and activations take about {needed}"


def _fits(asked: Asked, forecast: Forecast) -> str:
    noun = "request" if forecast.max_running_requests == 1 else "requests"
    said = f"{forecast.max_running_requests:,} {noun} at a time, {forecast.kv_tokens:,} tokens"
    wanted = asked.requests_per_worker
    if wanted and forecast.max_running_requests < wanted:
        said += f" ({wanted:,} requests were asked for)"
    return f"{said}; {gib(forecast.left)} are left for graphs and activations"


def _no_room(asked: Asked, loads: Loads, pools: Pools) -> str:
    rest = max(0, pools.rest)
    left = f"{gib(rest)} {'is' if rest == 0 else 'are'} left after the weights"
    weights = loads.weights + (loads.draft if asked.release >= (0, 5, 14) else 0)
    if pools.rest <= 0:
        share = gib(loads.free * asked.mem_fraction_static)
        return (
            f"the weights take {gib(weights)}, and mem_fraction_static {asked.mem_fraction_static:.3g} of "
            f"{gib(loads.free)} free is {share}"
        )
    slot = conv_bytes(asked) + ssm_bytes(asked)
    if pools.charged_drafts > pools.rest:
        requests = round(pools.charged_drafts / max(1, slot * asked.draft_tokens))
        padded = requests - (1 if asked.release >= (0, 5, 17) else 0)
        return f"{padded:,} requests need {gib(pools.charged_drafts)} of draft states; {left}"
    if pools.slots > 0 and slot * pools.slots + pools.charged_drafts > pools.rest:
        return (
            f"{pools.slots:,} state slots and the draft states need "
            f"{gib(slot * pools.slots + pools.charged_drafts)}; {left}"
        )
    if slot:
        one = slot * (slots_per_request(asked) + asked.draft_tokens)
        return f"one request needs {gib(one)} of state, and the state gets only its share; {left}"
    return f"not one page of keys and values fits; {left}"
