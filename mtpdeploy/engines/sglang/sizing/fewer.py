"""
Asking for fewer requests so that more of them run: draft states are made for all that are asked for.
"""

from collections.abc import Callable

from msgspec import structs

from mtpdeploy.core.memory import Fewer, Forecast
from mtpdeploy.core.server import ServerSpec


def with_fewer(
    server: ServerSpec, forecast: Forecast, predict: Callable[[ServerSpec], Forecast | None]
) -> Forecast:
    """
    The forecast of a server, with the halving of its `max_running_requests` under which most requests run;
    of several the smallest, which leaves most to the tokens.

    To 0.5.12 the draft states of all requests that are asked for are set aside, whether they can run or not,
    and what is left for recurrent states shrinks with each. Only where that leaves fewer than were asked for,
    and only what is likely to fit; at most a forecast for every halving.
    """
    more, best = forecast.max_running_requests + 1, None
    number = int(server.number("max_running_requests") or 0) // 2
    while number >= more:
        fewer = predict(server.with_flags(max_running_requests=number))
        if fewer is not None and fewer.likely and fewer.max_running_requests >= more:
            more = fewer.max_running_requests
            best = Fewer(number, more)
        number //= 2
    return structs.replace(forecast, fewer=best)
