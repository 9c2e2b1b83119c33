"""The simulated release, where SGLang 0.5.7 and later keep theirs."""

from . import settings

version = __version__ = settings.load().version
