"""
Versions of SGLang: how they are written, and which is the newest known here.
"""

import re

from msgspec import Struct

_VERSION = re.compile(r"v?(\d+(?:\.\d+)+)(?:\.post(\d+))?((?:[.-]?(?:a|b|rc|dev)\d*)*)(?:\+[\w.-]+)?")


class Version(Struct, frozen=True, order=True):
    """
    A version of SGLang; a post release comes after its release.

    `before` marks a build on the way to it (`rc1`, `.dev3`), which goes by the release of its number.
    """

    release: tuple[int, ...]
    post: int = 0
    before: str = ""

    def __str__(self) -> str:
        number = ".".join(map(str, self.release))
        return (f"{number}.post{self.post}" if self.post else number) + self.before


NEWEST = Version((0, 5, 23))
"""The newest release that is known here."""


def parse_version(text: str) -> Version | None:
    """
    Read a version; None for what has no number of a release: `0.0.0.dev0`, a fork's name.
    """
    match = _VERSION.fullmatch(text.strip())
    if match is None:
        return None
    release = tuple(map(int, match[1].split(".")))
    return Version(release, int(match[2] or 0), match[3]) if any(release) else None
