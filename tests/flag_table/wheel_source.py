"""
SGLang's source as it lies in a wheel, and the values of its constants, without running any of it.
"""

import ast
import re
import zipfile
from pathlib import Path
from typing import Any

from msgspec import Struct

WHEEL = re.compile(r"sglang-(?P<version>[0-9][^-]*)-")


class UnresolvedError(Exception):
    """
    An expression whose value cannot be told from the source alone.
    """


class ClassValue(Struct, frozen=True):
    """
    A class of the source, standing for its attributes or its enum members.
    """

    module: "Module"
    node: ast.ClassDef

    def attribute(self, name: str) -> Any:
        """
        The value of a class attribute; an enum member is its own name. Raises UnresolvedError.
        """
        constants: dict[str, Any] = {}
        for statement in self.node.body:
            for target, value in _targets(statement).items():
                if target == name:
                    return self.module.evaluate(value, constants)
                if isinstance(value, ast.Constant):
                    constants[target] = value.value
        raise UnresolvedError(f"{self.node.name}.{name}")

    def members(self) -> list["Member"]:
        """
        The members of an enum class, in the order of the source.
        """
        return [Member(name) for statement in self.node.body for name in _targets(statement)]


class Member(Struct, frozen=True):
    """
    A member of an enum class.
    """

    name: str


class FunctionValue(Struct, frozen=True):
    """
    A function of the source that returns a list of choices.
    """

    module: "Module"
    node: ast.FunctionDef


class Release:
    """
    One wheel: its version and its modules, parsed when first asked for.
    """

    def __init__(self, wheel: Path) -> None:
        match = WHEEL.match(wheel.name)
        if match is None:
            raise ValueError(f"{wheel.name} is not the name of an sglang wheel")
        self.version = match["version"]
        self._archive = zipfile.ZipFile(wheel)
        self._files = frozenset(self._archive.namelist())
        self._modules: dict[str, Module | None] = {}

    def paths(self) -> list[str]:
        """
        Every Python file in the wheel, sorted.
        """
        return sorted(name for name in self._files if name.endswith(".py"))

    def read(self, path: str) -> str:
        """
        The text of one file in the wheel.
        """
        return self._archive.read(path).decode("utf-8")

    def module(self, name: str) -> "Module | None":
        """
        The parsed module of that dotted name, or None where the wheel has none.
        """
        if name not in self._modules:
            stem = name.replace(".", "/")
            path = next((p for p in (f"{stem}.py", f"{stem}/__init__.py") if p in self._files), None)
            self._modules[name] = None if path is None else Module(self, name, ast.parse(self.read(path)))
        return self._modules[name]


class Module:
    """
    One parsed file: the names it defines at its top level, and what they stand for.
    """

    def __init__(self, release: Release, name: str, tree: ast.Module) -> None:
        self.release = release
        self.name = name
        self.tree = tree
        self._names: dict[str, ast.AST] = {}
        self._imports: dict[str, tuple[str, str]] = {}
        for statement in tree.body:
            self._define(statement)

    def _define(self, statement: ast.stmt) -> None:
        self._names.update(_targets(statement))
        if isinstance(statement, (ast.ClassDef, ast.FunctionDef)):
            self._names[statement.name] = statement
        elif isinstance(statement, ast.ImportFrom) and statement.module:
            for alias in statement.names:
                self._imports[alias.asname or alias.name] = (statement.module, alias.name)

    def lookup(self, name: str) -> Any:
        """
        The value of a top-level name, through imports inside the wheel. Raises UnresolvedError.
        """
        node = self._names.get(name)
        if isinstance(node, ast.ClassDef):
            return ClassValue(self, node)
        if isinstance(node, ast.FunctionDef):
            return FunctionValue(self, node)
        if isinstance(node, ast.expr):
            return self.evaluate(node, {})
        if name in self._imports:
            return self.imported(*self._imports[name])
        raise UnresolvedError(f"{self.name}.{name}")

    def imported(self, module_name: str, name: str) -> Any:
        """
        The value of a name in another module of the wheel. Raises UnresolvedError.
        """
        module = self.release.module(module_name)
        if module is None:
            raise UnresolvedError(f"{module_name}.{name}")
        return module.lookup(name)

    def class_named(self, name: str) -> ast.ClassDef:
        """
        The class of that name defined in this module. Raises UnresolvedError.
        """
        for node in self.tree.body:
            if isinstance(node, ast.ClassDef) and node.name == name:
                return node
        raise UnresolvedError(f"{self.name} has no class {name}")

    def evaluate(self, node: ast.AST, local: dict[str, Any]) -> Any:
        """
        The value of an expression made of constants, names and simple calls. Raises UnresolvedError.
        """
        found: Any
        match node:
            case ast.Constant(value=value):
                found = value
            case ast.List(elts=items) | ast.Tuple(elts=items):
                found = self._items(items, local)
            case ast.Set(elts=items):
                found = sorted(self._items(items, local))
            case ast.Dict(keys=keys):
                found = [self.evaluate(key, local) for key in keys if key is not None]
            case ast.Name(id=name):
                found = local[name] if name in local else self.lookup(name)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                found = self.evaluate(left, local) + self.evaluate(right, local)
            case ast.JoinedStr():
                found = ast.unparse(node)
            case ast.Attribute(value=owner, attr=attribute):
                found = self._attribute(self.evaluate(owner, local), attribute)
            case ast.ListComp(
                elt=element, generators=[ast.comprehension(target=ast.Name(id=name), iter=source)]
            ):
                values = _listed(self.evaluate(source, local))
                found = [self.evaluate(element, {**local, name: value}) for value in values]
            case ast.Call():
                found = self._call(node, local)
            case _:
                raise UnresolvedError(ast.unparse(node))
        return found

    def _items(self, items: list[ast.expr], local: dict[str, Any]) -> list[Any]:
        values: list[Any] = []
        for item in items:
            if isinstance(item, ast.Starred):
                values += _listed(self.evaluate(item.value, local))
            else:
                values.append(self.evaluate(item, local))
        return values

    def _attribute(self, owner: Any, attribute: str) -> Any:
        if isinstance(owner, ClassValue):
            return owner.attribute(attribute)
        if isinstance(owner, Member) and attribute == "name":
            return owner.name
        raise UnresolvedError(f"{owner!r}.{attribute}")

    def _call(self, node: ast.Call, local: dict[str, Any]) -> Any:
        match node:
            case ast.Call(func=ast.Name(id="list"), args=[argument]):
                return _listed(self.evaluate(argument, local))
            case ast.Call(func=ast.Name(id="set" | "frozenset" | "sorted"), args=[argument]):
                return sorted(_listed(self.evaluate(argument, local)))
            case ast.Call(func=ast.Attribute(value=owner, attr="keys"), args=[]):
                return _listed(self.evaluate(owner, local))
            case ast.Call(func=ast.Attribute(value=owner, attr="lower"), args=[]):
                return str(self.evaluate(owner, local)).lower()
            case ast.Call(func=ast.Name(id=name), args=[]):
                function = self.lookup(name)
                if isinstance(function, FunctionValue):
                    return function.module.returned(function.node)
        raise UnresolvedError(ast.unparse(node))

    def returned(self, function: ast.FunctionDef) -> Any:
        """
        What a function without arguments returns by its last statement. Raises UnresolvedError.
        """
        local: dict[str, Any] = {}
        for statement in function.body:
            if isinstance(statement, ast.ImportFrom) and statement.module:
                local |= {a.name: self.imported(statement.module, a.name) for a in statement.names}
            elif isinstance(statement, ast.Return) and statement.value is not None:
                return self.evaluate(statement.value, local)
        raise UnresolvedError(f"{self.name}.{function.name}()")


def _targets(statement: ast.stmt) -> dict[str, ast.AST]:
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            return {name: value}
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
            return {name: value}
        case _:
            return {}


def _listed(value: Any) -> list[Any]:
    if isinstance(value, ClassValue):
        return list(value.members())
    if isinstance(value, list):
        return list(value)
    raise UnresolvedError(f"not a list: {value!r}")
