"""
What a user wants of a server that has to fit, and the configuration found for it.
"""

from msgspec import Struct

from mtpdeploy.core.memory import Forecast
from mtpdeploy.core.server import ServerSpec
from mtpdeploy.core.units import counted


class Wish(Struct, frozen=True):
    """
    `requests` to run at a time, `tokens` of keys and values in all, `context` tokens for each of the
    requests. What is not wanted is None; with no number of requests the most are looked for.
    """

    requests: int | None = None
    context: int | None = None
    tokens: int | None = None

    def needed_tokens(self, requests: int) -> int:
        """
        The tokens that so many requests need.
        """
        return max(self.tokens or 1, (self.context or 1) * requests)

    def __str__(self) -> str:
        told = [
            counted(self.requests, "request", "requests") if self.requests else "",
            f"{self.context:,} tokens of context each" if self.context else "",
            f"{self.tokens:,} tokens" if self.tokens else "",
        ]
        return ", ".join(part for part in told if part) or "the most requests"


class Concession(Struct, frozen=True):
    """
    A change against what was asked, and what it costs; nothing where it costs no quality and no speed.
    """

    change: str
    costs: str = ""


class Solution(Struct, frozen=True):
    """
    A configuration that is predicted to fit, what it concedes, and what was predicted for the asked one.
    """

    server: ServerSpec
    forecast: Forecast
    concessions: tuple[Concession, ...]
    asked: Forecast


class Unsolved(Struct, frozen=True):
    """
    That nothing fulfils a wish, why, and what was predicted for the asked configuration.
    """

    because: str
    asked: Forecast
