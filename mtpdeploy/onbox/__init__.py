"""
Small programs that are sent to a box and run by the box's own Python.

They are ordinary modules here, and travel as one text: the modules of this package that a program
imports are put in front of it, without their own `main`. They use the standard library alone and the
syntax of Python 3.8.
"""

import ast
import functools
import json
import secrets
from collections.abc import Mapping
from pathlib import Path

from mtpdeploy.core.launch import shell_path

PACKAGE = "mtpdeploy.onbox"


def compose(name: str, request: Mapping[str, object]) -> str:
    """
    The program `name` with everything it needs in front, ending in a call of its `main(request)`.

    `request` is anything that JSON can say.

    Raises:
        ValueError: two of the modules define the same name, so that one would replace the other.
    """
    document = json.dumps(request)
    call = f"main(json.loads({document!a}))\n"
    return "\n".join(["from __future__ import annotations", "import json", *_bodies(name), call])


def script(name: str, request: Mapping[str, object], python: str) -> str:
    """
    POSIX sh text that runs the program `name` with the interpreter `python` and prints its answer.

    A leading `~/` of `python` means the home directory on the box. The program is handed over on
    standard input, apart from any variable that would change what Python does (`-I`).
    """
    source = compose(name, request)
    mark = f"EOF-{secrets.token_hex(8)}"
    while mark in source:
        mark = f"EOF-{secrets.token_hex(8)}"
    return f"{shell_path(python)} -I - <<'{mark}'\n{source}{mark}\n"


@functools.cache
def _bodies(name: str) -> tuple[str, ...]:
    """
    The texts of `name` and of what it imports from this package, each once, the imported first.
    """
    bodies: dict[str, str] = {}
    _collect(name, bodies, {}, program=True)
    return tuple(bodies.values())


def _collect(name: str, bodies: dict[str, str], owners: dict[str, str], *, program: bool) -> None:
    source = (Path(__file__).parent / f"{name}.py").read_text(encoding="utf-8")
    lines = source.splitlines(keepends=True)
    for node in ast.parse(source).body:
        needed = _module(node)
        if needed is not None and needed not in bodies:
            _collect(needed, bodies, owners, program=False)
        if needed is not None or _is_future(node) or (_is_main(node) and not program):
            for number in range(node.lineno - 1, node.end_lineno or node.lineno):
                lines[number] = ""
            continue
        for defined in _defines(node):
            if owners.setdefault(defined, name) != name:
                raise ValueError(
                    f"`{defined}` is defined in both onbox/{owners[defined]}.py and onbox/{name}.py"
                )
    bodies[name] = "".join(lines)


def _module(node: ast.stmt) -> str | None:
    """
    The module of this package that a statement imports from.
    """
    if isinstance(node, ast.ImportFrom) and node.module is not None and node.module.startswith(PACKAGE + "."):
        return node.module.removeprefix(PACKAGE + ".")
    return None


def _is_future(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def _is_main(node: ast.stmt) -> bool:
    return isinstance(node, ast.FunctionDef) and node.name == "main"


def _defines(node: ast.stmt) -> list[str]:
    """
    The names that a statement at the top of a module defines, imports apart.
    """
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.AnnAssign):
        return [node.target.id] if isinstance(node.target, ast.Name) else []
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    return []
