"""
The errors of the tool, and the exit status of each.

- MtpDeployError (70): an error in mtpdeploy itself; the traceback is in a file
  - ConfigError (2): hosts.toml or the command line is wrong
  - BoxUnreachable (3): the box cannot be reached or entered
    - ConnectionLost (3): it was entered, and then lost for good
    - HostKeyChanged (3): something else answers at that address
  - BoxUnfit (4): the box lacks something that the server needs
  - BoxLocked (5): somebody else is deploying there
  - CommandFailed (6): a command that mtpdeploy relies on failed
  - Interrupted (130): the user detached

That a *server* fails is no error but a value: `core.outcome.Outcome`.
"""


class MtpDeployError(Exception):
    """
    Something the user, the network or mtpdeploy itself has to mend.

    `hint` says what to do, one line or several. Prints as `error: …`, a blank line, `hint: …`.
    """

    exit_status = 70

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class ConfigError(MtpDeployError):
    """
    hosts.toml, the environment or the command line says something that cannot be.
    """

    exit_status = 2


class BoxUnreachable(MtpDeployError):
    """
    The box cannot be reached or entered: address, port, key, login shell.
    """

    exit_status = 3


class ConnectionLost(BoxUnreachable):
    """
    The line to the box broke and did not come back within the retry policy.
    """


class HostKeyChanged(BoxUnreachable):
    """
    Another host key than the one seen before: a reused rented address, or an impostor.
    """


class BoxUnfit(MtpDeployError):
    """
    The box cannot hold the server: no GPU, no python, no sglang, no model, no disk, port taken.
    """

    exit_status = 4


class BoxLocked(MtpDeployError):
    """
    Somebody else is deploying on this box at this moment.
    """

    exit_status = 5


class CommandFailed(MtpDeployError):
    """
    A command that mtpdeploy relies on failed on the box: a fault of ours, or a new kind of box.
    """

    exit_status = 6


class Interrupted(MtpDeployError):
    """
    The user detached (Ctrl-C); whatever runs on the box goes on running.
    """

    exit_status = 130


SERVER_NOT_UP = 1
"""Exit status: the server did not come up, or failed a check."""

MTP_NOT_PROVEN = 8
"""Exit status: the server is up and answers, but does not speculate."""
