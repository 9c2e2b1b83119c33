"""
When things happened inside the program, without changing it.
"""

import functools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from msgspec import Struct


class Span(Struct, frozen=True):
    """
    One call: its name, and when it began and ended on `time.perf_counter`'s clock.
    """

    name: str
    begun: float
    ended: float

    @property
    def seconds(self) -> float:
        """
        How long it took.
        """
        return self.ended - self.begun


@contextmanager
def probing(spans: list[Span], *targets: tuple[ModuleType | type, str]) -> Iterator[None]:
    """
    Note every call of the named functions of modules and classes in `spans`.
    """
    before = [(owner, name, getattr(owner, name)) for owner, name in targets]
    for owner, name, function in before:
        setattr(owner, name, _noting(spans, name, function))
    try:
        yield
    finally:
        for owner, name, function in before:
            setattr(owner, name, function)


def total(spans: list[Span], name: str) -> float:
    """
    Seconds of all calls of that name.
    """
    return sum(span.seconds for span in spans if span.name == name)


def _noting(spans: list[Span], name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def noted(*args: Any, **kwargs: Any) -> Any:
        begun = time.perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            spans.append(Span(name, begun, time.perf_counter()))

    return noted
