"""
Which environment variables one SGLang release reads, and the defaults its registry gives them.

The registry is the class `Envs` of srt/environ.py; more names are read where they are used. A name that a
release mentions only to say that it is gone does not count as read.
"""

import ast
import re
from collections.abc import Iterator

from msgspec import Struct

from tests.flag_table.wheel_source import Release

Default = bool | int | float | str | None

VARIABLE = re.compile(r"(SGLANG|SGL)_[A-Z0-9_]*[A-Z0-9]")
QUOTED = re.compile(rf"""["']{VARIABLE.pattern}["']""")
REGISTRY = "sglang/srt/environ.py"
NOT_THE_SERVER = ("sglang/test/", "sglang/multimodal_gen/", "sglang/jit_kernel/tests/")
KIND_OF_REGISTRY = {
    "EnvBool": "bool",
    "EnvInt": "int",
    "EnvFloat": "float",
    "EnvStr": "str",
    "EnvTuple": "str",
}

ONLY_WARNED_ABOUT = {
    # srt/arg_groups/speculative_hook.py, 0.5.14-0.5.20: read to warn that it has no effect any more
    "sglang/srt/arg_groups/speculative_hook.py": {"SGLANG_ENABLE_SPEC_V2"},
}


class Variable(Struct, frozen=True):
    """
    One variable of one release: the default of the registry, None where it is computed or not registered.
    """

    name: str
    kind: str = ""
    default: Default = None


def variables_of(release: Release) -> dict[str, Variable]:
    """
    Every SGLANG_* and SGL_* variable that a release reads, by name.
    """
    found: dict[str, Variable] = {}
    for path in release.paths():
        if path.startswith(NOT_THE_SERVER):
            continue
        text = release.read(path)
        if path != REGISTRY and QUOTED.search(text) is None:
            continue
        tree = ast.parse(text)
        gone = set(_mentioned_as_gone(tree)) | ONLY_WARNED_ABOUT.get(path, set())
        for name in _whole_strings(tree) - gone:
            found.setdefault(name, Variable(name))
        if path == REGISTRY:
            found.update({variable.name: variable for variable in _registered(tree)})
    return found


def _whole_strings(tree: ast.Module) -> set[str]:
    return {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and VARIABLE.fullmatch(node.value)
    }


def _registered(tree: ast.Module) -> Iterator[Variable]:
    for owner in tree.body:
        if not isinstance(owner, ast.ClassDef) or owner.name != "Envs":
            continue
        for statement in owner.body:
            match statement:
                case ast.Assign(
                    targets=[ast.Name(id=name)], value=ast.Call(func=ast.Name(id=kind), args=arguments)
                ) if VARIABLE.fullmatch(name):
                    kind = kind.removesuffix("WithAlias")
                    yield Variable(name, KIND_OF_REGISTRY.get(kind, ""), _constant(arguments))


def _constant(arguments: list[ast.expr]) -> Default:
    if arguments:
        try:
            value = ast.literal_eval(arguments[0])
        except ValueError:
            return None
        if isinstance(value, (bool, int, float, str)):
            return value
    return None


def _mentioned_as_gone(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(
                func=ast.Name(id="_warn_deprecated_env_to_cli_flag"), args=[ast.Constant(value=str(name)), *_]
            ):
                yield name
            case ast.Call(func=ast.Name(id="_print_deprecated_env"), args=[ast.Constant(value=str(name))]):
                yield name
            case ast.AnnAssign(
                target=ast.Name(id="_DEPRECATED_ENVS"), value=ast.Dict(keys=keys, values=values)
            ):
                for key, value in zip(keys, values, strict=True):
                    if isinstance(key, ast.Constant) and not _has_replacement(value):
                        yield str(key.value)
            case _:
                continue


def _has_replacement(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and (
        bool(value.args) or any(word.arg == "replacement" for word in value.keywords)
    )
