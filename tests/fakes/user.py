"""
A user for whom the modes of files count, also where root runs the tests.
"""

import os

WITHOUT_CAPABILITIES = ("setpriv", "--bounding-set=-all", "--inh-caps=-all")
"""Takes from root what lets it read and write any file."""


def plain_user() -> tuple[str, ...]:
    """
    The words to put before a command.
    """
    return WITHOUT_CAPABILITIES if os.geteuid() == 0 else ()
