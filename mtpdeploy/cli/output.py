"""
Data for programs on stdout; everything else, errors as well, goes to stderr.
"""

import sys
from collections.abc import Sequence
from enum import Enum
from typing import Any

import click
from msgspec import Struct, json, to_builtins

from mtpdeploy.clock import SystemClock
from mtpdeploy.core import events
from mtpdeploy.errors import Interrupted, MtpDeployError


class Answer(Struct, frozen=True):
    """
    What a command returns with `--json`: its one document, printed when all is done, and its exit status.
    """

    document: Any
    status: int = 0


class Form(Enum):
    """
    What a program that reads stdout asked for.
    """

    NOTHING = ""
    DOCUMENT = "--json"
    EVENTS = "--json-events"


def form_of(arguments: Sequence[str]) -> Form:
    """
    The form that a command line asks for, also one that is wrong otherwise.

    Where it asks for both (which is an error) its one line is one document, too.
    """
    words = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return next((form for form in (Form.EVENTS, Form.DOCUMENT) if form.value in words), Form.NOTHING)


def print_json(document: Any) -> None:
    """
    One document, indented, on stdout.
    """
    click.echo(_escaped(json.format(json.encode(document), indent=2).decode()))


def print_json_line(document: Any) -> None:
    """
    One document in one line on stdout, flushed at once.
    """
    sys.stdout.write(_escaped(json.encode(document).decode()) + "\n")
    sys.stdout.flush()


def print_verbatim(text: str) -> None:
    """
    A text that another program is to have as it is; a terminal is shown it without what it would obey.
    """
    from mtpdeploy.cli.streams import Screen  # noqa: PLC0415 - only where it is needed

    if isinstance(sys.stdout, Screen):
        sys.stdout.verbatim(text)
    else:
        sys.stdout.write(text)


def _escaped(text: str) -> str:
    """
    JSON of the same meaning, in which nothing is left that a terminal obeys.
    """
    from mtpdeploy.core.lines import OBEYED  # noqa: PLC0415 - only where it is needed

    return OBEYED.sub(lambda m: "".join(f"\\u{unit:04x}" for unit in _units(m[0])), text)


def _units(character: str) -> "tuple[int, ...]":
    """
    The units of UTF-16 that JSON escapes a character by (RFC 8259, section 7).
    """
    coded = character.encode("utf-16-be", "surrogatepass")
    return tuple(int.from_bytes(coded[at : at + 2], "big") for at in range(0, len(coded), 2))


def print_answer(answer: Answer) -> int:
    """
    The document of a command; returns its exit status.
    """
    print_json(answer.document)
    return answer.status


def print_error(error: MtpDeployError) -> None:
    """
    An error and its hint for people, on stderr.
    """
    from mtpdeploy.core.lines import terminal_view  # noqa: PLC0415 - only for an error

    prefix = "" if isinstance(error, Interrupted) else "error: "
    message = "\n".join(map(terminal_view, _encodable(error.message).split("\n")))
    click.secho(f"{prefix}{message}", err=True, fg="red" if prefix else None)
    if error.hint:
        lines = [terminal_view(line) for line in _encodable(error.hint).splitlines()]
        click.echo("", err=True)
        click.echo("\n".join([f"hint: {lines[0]}", *(f"      {line}" for line in lines[1:])]), err=True)


def print_error_for_programs(error: MtpDeployError, form: Form) -> None:
    """
    An error as the one document, or as the last event, on stdout.
    """
    told = events.Failed(
        at=SystemClock().now(),
        error=_encodable(error.message),
        hint=_encodable(error.hint),
        exit_status=error.exit_status,
    )
    match form:
        case Form.DOCUMENT:
            print_json({"error": told.error, "hint": told.hint, "exit_status": told.exit_status})
        case Form.EVENTS:
            print_json_line(to_builtins(told))
        case Form.NOTHING:
            pass


def _encodable(text: str) -> str:
    """
    The text without what is no Unicode: a command line may hold any bytes, JSON and UTF-8 may not.
    """
    return text.encode(errors="replace").decode()
