"""mtpdeploy's simulated SGLang: real flags, real log lines, its own arithmetic, and no GPU."""

from __future__ import annotations


def __getattr__(name: str) -> str:
    if name == "__version__":
        from . import _version  # noqa: PLC0415  # read only when asked: starting must be fast

        return _version.version
    raise AttributeError(name)
