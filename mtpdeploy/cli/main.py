"""
The command group; turns errors into one message and an exit status.
"""

import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import click

from mtpdeploy.errors import CommandFailed, ConfigError, Interrupted, MtpDeployError

COMMANDS = {
    "up": "Bring a server up on a box, climbing the ladder by cause until it is ready.",
    "plan": "Say what a server will make of a GPU before it is launched, and what would fit.",
    "attach": "Go on following a launch, or an ascent, after its client died.",
    "logs": "Show the server's log.",
    "status": "Show what runs on a box.",
    "verify": "Prove that what serves answers, and that it speculates.",
    "down": "Stop a server and prove that it is gone.",
    "tunnel": "Keep localhost:PORT open on the endpoint of a box.",
    "diagnose": "Judge any SGLang log: cause, proving line, and what answers it.",
    "history": "Show earlier ascents from the local journal.",
    "report": "Write an ascent as one HTML file: ready to be attached to a bug report.",
    "render": "Print the wrapper script that would be launched.",
    "rungs": "List the rungs of a ladder: what each concedes, and which causes it answers.",
    "hosts": "List the hosts of hosts.toml; add one; forget a host key.",
    "config": "Print every value with where it came from.",
}
"""Every command with its short help, so that `--help` imports none of them."""

EXIT_STATUSES = """
\b
Exit status:
  0    the server is up, and MTP is proven where it was asked for
  1    the server did not come up, failed a check, or answers nonsense
  2    hosts.toml or the command line is wrong
  3    the box cannot be reached or entered, or was lost for good
  4    the box lacks something, or something else is in the way
  5    somebody else is deploying there
  6    a command mtpdeploy relies on failed, or its own output cannot be written
  8    up, but MTP not proven
  70   a bug in mtpdeploy; the traceback is in a file
  130  interrupted: detached, the server goes on
"""


class ReaderGone(Exception):
    """
    Nobody reads our output any more.
    """


class Commands(click.Group):
    """
    Commands that are imported when they are called.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """
        All names, in the order of a deployment.
        """
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """
        Import one command.
        """
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"mtpdeploy.cli.{cmd_name}")
        command: click.Command = module.command
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """
        Call a command; a broken pipe is hidden from click, which would leave with 1 for it.
        """
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise ReaderGone from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """
        The list of commands, without importing them.
        """
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(
    cls=Commands,
    epilog=EXIT_STATUSES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="mtpdeploy", prog_name="mtpdeploy")
def group() -> None:
    """
    Bring up SGLang with multi-token prediction on a rented GPU box over SSH.

    \b
    mtpdeploy up --on demo                                   see it on the built-in simulated box
    mtpdeploy up qwen3.6-27b --on "ssh -p 19248 root@IP"     paste your provider's line
    """  # noqa: D301 - click takes the character itself


def run(arguments: Sequence[str]) -> int:
    """
    Run one command line; return the exit status.
    """
    try:
        return _run(arguments)
    except CommandFailed as error:  # even the error could not be told
        from mtpdeploy.cli.output import print_error  # noqa: PLC0415 - only for an error

        print_error(error)
        return error.exit_status
    except (ReaderGone, BrokenPipeError):
        return _quiet_end()


def _run(arguments: Sequence[str]) -> int:
    """
    As `run`; with `--json` the only place that prints a document, so that there is always exactly one.
    """
    try:
        answer = group.main(list(arguments), prog_name="mtpdeploy", standalone_mode=False)
    except MtpDeployError as error:
        return _fail(error, arguments)
    except click.ClickException as error:
        return _misused(error, arguments)
    except (click.Abort, KeyboardInterrupt):
        return _fail(Interrupted("interrupted"), arguments)
    except ReaderGone:
        raise
    except Exception as error:  # noqa: BLE001 - the one place that turns a bug into a message
        return _fail(_bug(error), arguments)
    if answer is None or isinstance(answer, int):
        return answer or 0
    from mtpdeploy.cli.output import print_answer  # noqa: PLC0415 - not for `--help`

    return print_answer(answer)


def _misused(error: click.ClickException, arguments: Sequence[str]) -> int:
    """
    Print what is wrong with a command line, or for one without a command what there is.
    """
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        click.echo(error.format_message())
        return error.exit_code
    return _fail(ConfigError(_sentence(error), hint=_usage_hint(error)), arguments)


def _fail(error: MtpDeployError, arguments: Sequence[str]) -> int:
    """
    Print an error for people, and for the program that asked; return its exit status.
    """
    from mtpdeploy.cli.output import form_of, print_error, print_error_for_programs  # noqa: PLC0415

    print_error(error)
    print_error_for_programs(error, form_of(arguments))
    return error.exit_status


def _sentence(error: click.ClickException) -> str:
    text = error.format_message().rstrip(".")
    return text[:1].lower() + text[1:]


def _usage_hint(error: click.ClickException) -> str:
    context = getattr(error, "ctx", None)
    return f"see `{context.command_path} --help`" if context else "see `mtpdeploy --help`"


def _quiet_end() -> int:
    """
    Whoever read our output is gone; leave as a program in a pipe does.
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(nowhere, stream.fileno())
    return 141


def _bug(error: Exception) -> MtpDeployError:
    """
    The error that tells of a bug, its traceback kept in a file.
    """
    from mtpdeploy.deploy.journal import state_directory  # noqa: PLC0415 - only for a bug
    from mtpdeploy.deploy.redaction import Redactor  # noqa: PLC0415

    moment = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    try:
        path = state_directory() / f"traceback-{moment}-{os.getpid()}.txt"
        # Values of variables and of answers may be in it.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(Redactor().text("".join(traceback.format_exception(error))))
        where = f"the traceback is in {path}"
    except (OSError, ConfigError):
        traceback.print_exception(error)
        where = "the traceback is above"
    return MtpDeployError(
        Redactor().text(f"a bug in mtpdeploy: {type(error).__name__}: {error}"),
        hint=f"{where}; please report it",
    )
