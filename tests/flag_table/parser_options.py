"""
What the command-line parser of one SGLang release accepts, read from its source.

Up to 0.5.13 `ServerArgs.add_cli_args` (srt/server_args.py) calls `parser.add_argument` for every flag. From
0.5.14 most flags follow from annotated fields (`A[int, Arg(...)]`, turned into arguments by
srt/arg_groups/arg_utils.py); from 0.5.20 these fields stand in srt/arg_groups/fields/.
"""

import ast
import re
from typing import Any

from msgspec import Struct

from tests.flag_table.wheel_source import Module, Release, UnresolvedError

SERVER_ARGS = "sglang.srt.server_args"
FIELDS = "sglang/srt/arg_groups/fields/"
SAYS_DEPRECATED = re.compile(r"\W*deprecated", re.IGNORECASE)
SWITCH_ACTIONS = {"store_true", "argparse.BooleanOptionalAction"}
RETIRED = {
    "DeprecatedAction",
    "DeprecatedStoreTrueAction",
    "DeprecatedStoreConstAction",
    "DeprecatedAliasStoreAction",
}
KIND_OF_TYPE = {
    "int": "int",
    "human_readable_int": "size",
    "float": "float",
    "str": "str",
    "nullable_str": "str",
    "parse_cuda_graph_backend_arg": "str",
    "json.loads": "json",
    "json_list_type": "json",
    "parse_cuda_graph_config_arg": "json",
}


class Option(Struct, frozen=True):
    """
    One argument of one release's parser.

    `field` is where argparse stores it; `options` its spellings, the one shown first in front; `negations`
    what a BooleanOptionalAction adds. `instead` names the option that a deprecation warning recommends.
    `refused` says that the parser knows the option only to stop at it.
    """

    field: str
    options: tuple[str, ...]
    kind: str
    nargs: str = ""
    choices: tuple[Any, ...] | None = None
    negations: tuple[str, ...] = ()
    deprecated: bool = False
    instead: str = ""
    refused: bool = False


def options_of(release: Release) -> list[Option]:
    """
    Every argument of a release's server parser. Raises UnresolvedError where the source is read wrongly.
    """
    server = release.module(SERVER_ARGS)
    if server is None:
        raise UnresolvedError(f"{release.version} has no {SERVER_ARGS}")
    owner = server.class_named("ServerArgs")
    derived = any(
        isinstance(node, ast.Call) and ast.unparse(node.func) == "add_cli_args_from_dataclass"
        for node in ast.walk(owner)
    )
    fields = _field_options(release, server, owner) if derived else []
    return fields + _call_options(server, owner)


def _field_options(release: Release, server: Module, owner: ast.ClassDef) -> list[Option]:
    files = [path for path in release.paths() if path.startswith(FIELDS)]
    if not files:
        return _annotated(server, owner)
    found: list[Option] = []
    for path in files:
        module = release.module(path.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
        if module is not None:
            for node in module.tree.body:
                if isinstance(node, ast.ClassDef) and _is_namespace(node):
                    found += _annotated(module, node)
    return found


def _is_namespace(node: ast.ClassDef) -> bool:
    return any(isinstance(s, ast.Assign) and ast.unparse(s.targets[0]) == "_NS_PATH" for s in node.body)


def _annotated(module: Module, owner: ast.ClassDef) -> list[Option]:
    found = []
    for node in owner.body:
        match node:
            case ast.AnnAssign(
                target=ast.Name(id=name),
                annotation=ast.Subscript(value=ast.Name(id="A"), slice=ast.Tuple(elts=[hint, *marks])),
            ):
                words = _field_words(module, name, hint, marks)
                if words is not None:
                    found.append(_option(*words))
    return found


def _field_words(
    module: Module, name: str, hint: ast.expr, marks: list[ast.expr]
) -> tuple[list[str], dict[str, Any]] | None:
    """
    What arg_utils.add_cli_args_from_dataclass would pass to add_argument for one field, or None.
    """
    meta = _arg(module, marks)
    if meta is None or meta.get("no_cli"):
        return None
    options = [str(meta.get("cli_name") or "--" + name.replace("_", "-")), *(meta.get("aliases") or [])]
    words: dict[str, Any] = {"dest": name, "help": meta.get("help", "")}
    if "action" in meta:
        return options, words | {"action": meta["action"]} | meta.get("action_kwargs", {})
    inner = _without_none(hint)
    parser, choices, nargs = meta.get("type_parser"), meta.get("choices"), meta.get("nargs")
    match inner:
        case ast.Subscript(value=ast.Name(id="Literal"), slice=values):
            literals = module.evaluate(values, {})
            literals = literals if isinstance(literals, list) else [literals]
            words |= {"type": parser or _scalar(type(literals[0]).__name__), "choices": choices or literals}
        case ast.Subscript(value=ast.Name(id="List" | "list"), slice=item) if parser is None:
            words |= {"type": _scalar(ast.unparse(item)), "nargs": nargs or "+", "choices": choices}
        case ast.Name(id="bool"):
            words |= {"action": "store_true"}
        case _:
            words |= {"type": parser or _scalar(ast.unparse(inner)), "nargs": nargs, "choices": choices}
    return options, words


def _arg(module: Module, marks: list[ast.expr]) -> dict[str, Any] | None:
    for mark in marks:
        if isinstance(mark, ast.Call):
            if ast.unparse(mark.func) == "Arg":
                return {str(word.arg): _word(module, str(word.arg), word.value, {}) for word in mark.keywords}
        else:
            return {"help": module.evaluate(mark, {})}
    return None


def _without_none(hint: ast.expr) -> ast.expr:
    match hint:
        case ast.Subscript(value=ast.Name(id="Optional"), slice=inner):
            return inner
        case ast.Subscript(
            value=ast.Name(id="Union"), slice=ast.Tuple(elts=[inner, ast.Constant(value=None)])
        ):
            return inner
        case ast.BinOp(left=inner, op=ast.BitOr(), right=ast.Constant(value=None)):
            return inner
        case _:
            return hint


def _scalar(name: str) -> str:
    return name if name in {"int", "float"} else "str"


def _call_options(module: Module, owner: ast.ClassDef) -> list[Option]:
    function = next(n for n in owner.body if isinstance(n, ast.FunctionDef) and n.name == "add_cli_args")
    local: dict[str, Any] = {}
    found = []
    for statement in function.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                local[name] = module.evaluate(value, local)
            case ast.Expr(
                value=ast.Call(func=ast.Attribute(attr="add_argument"), args=names, keywords=words)
            ):
                options = [str(module.evaluate(name, local)) for name in names]
                meanings = {str(w.arg): _word(module, str(w.arg), w.value, local) for w in words}
                found.append(_option(options, meanings))
            case ast.Expr(value=ast.Call(func=ast.Name(id="add_cli_args_from_dataclass"))):
                continue
            case ast.If(test=test) if "KV_CANARY" in ast.unparse(test):
                continue  # one more sampling backend, for SGLang's own debugging
            case _:
                raise UnresolvedError(ast.unparse(statement))
    return found


def _word(module: Module, word: str, value: ast.expr, local: dict[str, Any]) -> Any:
    """
    The value of one keyword of add_argument or Arg; types and actions by the name they have in the source.
    """
    if word in {"type", "type_parser"}:
        return ast.unparse(value)
    if word == "action":
        return value.value if isinstance(value, ast.Constant) else ast.unparse(value)
    if word == "action_kwargs" and isinstance(value, ast.Dict):
        return {
            str(module.evaluate(k, local)): _word(module, str(module.evaluate(k, local)), v, local)
            for k, v in zip(value.keys, value.values, strict=True)
            if k is not None
        }
    if word in {"default", "fallback", "const", "const_value", "required"} or "SUPPRESS" in ast.unparse(
        value
    ):
        return None
    return module.evaluate(value, local)


def _option(options: list[str], words: dict[str, Any]) -> Option:
    own_field = options[0].lstrip("-").replace("-", "_")
    action = words.get("action", "store")
    retired = action in RETIRED
    valueless = action in SWITCH_ACTIONS or (retired and _takes_no_value(action, words))
    choices = None if words.get("choices") is None else tuple(c for c in words["choices"] if c is not None)
    optional = action == "argparse.BooleanOptionalAction"
    return Option(
        field=own_field if action == "DeprecatedStoreConstAction" else words.get("dest", own_field),
        options=tuple(options),
        kind="switch" if valueless else KIND_OF_TYPE[words.get("type") or "str"],
        nargs="" if valueless else words.get("nargs") or "",
        choices=choices,
        negations=tuple(f"--no-{o.removeprefix('--')}" for o in options) if optional else (),
        deprecated=retired or SAYS_DEPRECATED.match(str(words.get("help"))) is not None,
        instead=str(words.get("new_flag") or ""),
        refused=words.get("error_message") is not None,
    )


def _takes_no_value(action: str, words: dict[str, Any]) -> bool:
    if action == "DeprecatedAliasStoreAction":
        return False
    return "nargs" not in words or words["nargs"] == 0
