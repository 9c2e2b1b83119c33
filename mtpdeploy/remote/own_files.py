"""
The files of this machine that connecting needs: named in whatever the system says about them.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from mtpdeploy.errors import ConfigError


def unusable(error: OSError, path: Path) -> ConfigError:
    """
    A file here that connecting needs, or has to heed, cannot be read or written.
    """
    return ConfigError(
        f"a file that connecting needs cannot be used: {error.strerror or error}: {error.filename or path}",
        hint="mend that path on this machine (its owner, its mode, or what stands in its place)",
    )


@contextlib.contextmanager
def using(path: Path) -> Iterator[None]:
    """
    Name the file in whatever the system says about it.
    """
    try:
        yield
    except OSError as error:
        raise unusable(error, path) from error
