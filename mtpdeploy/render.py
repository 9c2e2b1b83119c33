"""
Templates: an attempt as the files of its run directory, with everything quoted for sh by default, and a
report as a page, with everything quoted for HTML.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

import jinja2

from mtpdeploy.core.launch import (
    LONGEST_WORD,
    READ_ONLY,
    RUN_MARKER,
    SCRIPT_FILE,
    SUPERVISOR_FILE,
    AttemptRecord,
    shell_path,
)
from mtpdeploy.core.lines import terminal_view
from mtpdeploy.core.server import changes
from mtpdeploy.engines.base import Command
from mtpdeploy.errors import ConfigError

VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

LOG_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")

LONGEST_COMMENT = 300
"""Characters of a value that a comment of the script repeats; the value itself stands in its export."""

ALWAYS = {"LC_ALL": "C.UTF-8", "PYTHONUNBUFFERED": "1", "PYTHONUTF8": "1"}
"""Exported unless given: whole lines in the log at once, and in UTF-8 whatever the login says."""


class Raw(str):
    """
    Text that a template puts into the script as it stands. Everything else is quoted.
    """

    __slots__ = ()


def render_launch(
    *,
    run: str,
    run_dir: str,
    log: str,
    attempt: AttemptRecord,
    command: Command,
    env: Mapping[str, str],
    secrets: Sequence[str],
    secrets_file: str,
    python: str,
    template_dir: Path | None,
) -> dict[str, str]:
    """
    The files of a run directory that start its server, by name.

    `env` is exported to the server, then the command's own variables, which win. `run_dir`,
    `secrets_file` and `python` are paths on the box and may begin with `~/`. `template_dir` is the
    user's own folder of templates, looked into first.

    Raises:
        ConfigError: a name or a value that no program can be given, or a fault in a user's template.
    """
    exported = variables(env, command, run)
    _check_variables(exported, secrets)
    _check_words("the command", [word for line in command.argv for word in line])
    if not LOG_NAME.fullmatch(log):
        raise ConfigError(f"not a name for a log: `{log}`")
    environment = _environment(template_dir)
    try:
        script = environment.get_template("launch.sh.j2").render(
            run=run,
            run_dir=Raw(shell_path(run_dir)),
            log=log,
            attempt=attempt,
            concessions=changes(attempt.asked, attempt.server),
            command=command,
            engine_template=f"{attempt.server.engine}.sh.j2",
            env={Raw(name): value for name, value in sorted(exported.items())},
            secrets=[Raw(name) for name in secrets],
            secrets_file=Raw(shell_path(secrets_file)),
            python=Raw(shell_path(python)),
        )
        supervisor = _source(environment, SUPERVISOR_FILE)
    except jinja2.TemplateError as error:
        raise _template_fault(error) from error
    return {SCRIPT_FILE: script, SUPERVISOR_FILE: supervisor}


def variables(env: Mapping[str, str], command: Command, run: str) -> dict[str, str]:
    """
    Everything that the script exports by value: what a server is given on purpose, beside its login's.
    """
    return {**ALWAYS, **env, **command.env, RUN_MARKER: run}


def render_report(page: object) -> str:
    """
    A report as HTML that needs nothing beside it; nothing in it is taken for markup, nor runs.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_own_folders()),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        finalize=visible,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    text = environment.get_template("report.html.j2").render(page=page)
    return text.encode(errors="replace").decode().lstrip()


def visible(value: object) -> object:
    """
    A value without control characters, which HTML cannot hold; line ends and tabs stay.
    """
    if not isinstance(value, str) or hasattr(value, "__html__"):
        return value
    return "\n".join(map(terminal_view, value.split("\n")))


def quoted(value: object) -> Raw:
    """
    A value as sh reads it back: one word, or, for a sequence, one word for each member.
    """
    if isinstance(value, Raw):
        return value
    if isinstance(value, jinja2.Undefined):
        str(value)  # raises, since it is a StrictUndefined
    if isinstance(value, list | tuple):
        return Raw(" ".join(shlex.quote(str(word)) for word in value))
    return Raw(shlex.quote(str(value)))


def comment(value: object) -> Raw:
    """
    A value as part of a comment line: nothing in it can end the line.
    """
    text = "".join(character if character.isprintable() else " " for character in str(value))
    return Raw(text if len(text) <= LONGEST_COMMENT else text[:LONGEST_COMMENT] + "…")


def _environment(template_dir: Path | None) -> jinja2.Environment:
    folders = [template_dir, *_own_folders()]
    environment = jinja2.Environment(  # noqa: S701 - this is no HTML; `finalize` quotes for sh
        loader=jinja2.FileSystemLoader([folder for folder in folders if folder is not None]),
        undefined=jinja2.StrictUndefined,
        finalize=quoted,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["comment"] = comment
    return environment


def _own_folders() -> list[Path]:
    """
    Where the templates lie: in the installed package, else beside it in a checkout.
    """
    package = Path(__file__).parent
    return [package / "templates", package.parent / "templates"]


def _source(environment: jinja2.Environment, name: str) -> str:
    if environment.loader is None:
        raise jinja2.TemplateNotFound(name)
    return environment.loader.get_source(environment, name)[0]


def _check_variables(exported: Mapping[str, str], secrets: Sequence[str]) -> None:
    for name in [*exported, *secrets]:
        if not VARIABLE.fullmatch(name):
            raise ConfigError(
                f"not a name for an environment variable: `{name}`",
                hint="use letters, digits and `_`, and no digit first",
            )
        if name in READ_ONLY:
            raise ConfigError(
                f"the shell on the box does not let `{name}` be set", hint="take it out of the environment"
            )
    _check_words("the environment", [f"{name}={value}" for name, value in exported.items()])


def _check_words(where: str, words: Sequence[str]) -> None:
    for word in words:
        if "\0" in word:
            raise ConfigError(
                f"a NUL character in {where}: {word[:40]!r}", hint="no program can be given one"
            )
        if len(word.encode("utf-8", "surrogatepass")) > LONGEST_WORD:
            raise ConfigError(
                f"too long for {where}: {word[:40]!r}…",
                hint=f"Linux takes {LONGEST_WORD} bytes at most; put it into a file on the box and name that",
            )
        if any("\ud800" <= character <= "\udfff" for character in word):
            raise ConfigError(f"not text in {where}: {word[:40]!r}", hint="values are UTF-8")


def _template_fault(error: jinja2.TemplateError) -> ConfigError:
    where = ""
    if isinstance(error, jinja2.TemplateSyntaxError):
        where = f" in {error.filename or error.name}, line {error.lineno}"
    return ConfigError(
        f"a template cannot be rendered{where}: {error.message or error}",
        hint="`mtpdeploy render` shows the script; take your own template away to use the built-in one",
    )
