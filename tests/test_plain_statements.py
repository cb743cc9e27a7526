"""One fact a statement: what STATEMENTS finds is not in the source."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

PACKAGES = ("cfl_flower", "strategies", "clients", "simulations")

FILES = sorted(path for name in PACKAGES for path in (ROOT / name).rglob("*.py"))


@pytest.fixture(scope="module")
def trees() -> dict[Path, ast.Module]:
    """All of the source, parsed."""
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in FILES}


def packed_assignments(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield assignments of several expressions to several names: ``a, b = 1, f(2)``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple):
            yield from (each for each in node.targets if isinstance(each, ast.Tuple))


def chained_assignments(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield assignments of one value to several names: ``a = b = []``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) > 1:
            yield node


def is_command_line(node: ast.expr) -> bool:
    """Return whether a tuple has words of a command, which any number may follow."""
    words = node.elts if isinstance(node, ast.Tuple) else []
    return any(isinstance(w, ast.Constant) and isinstance(w.value, str) for w in words)


def arguments_packed_before(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield calls with a tuple that stands in a name: ``told = a, b; f(*told)``."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        packed = {
            target.id
            for node in ast.walk(function)
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple)
            for target in node.targets
            if isinstance(target, ast.Name) and not is_command_line(node.value)
        }
        for node in ast.walk(function):
            if not isinstance(node, ast.Call):
                continue
            for argument in node.args:
                inner = argument.value if isinstance(argument, ast.Starred) else None
                if isinstance(inner, ast.Tuple):
                    yield node
                if isinstance(inner, ast.Name) and inner.id in packed:
                    yield node


def is_boolean(node: ast.AST) -> bool:
    """Return whether an expression is a comparison, or the opposite of one."""
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.Not)
    return isinstance(node, ast.Compare)


def arithmetic_on_booleans(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield sums and products with a comparison: ``text * (count > 1)``."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.BinOp):
            continue
        arithmetic = isinstance(node.op, ast.Add | ast.Sub | ast.Mult)
        if arithmetic and (is_boolean(node.left) or is_boolean(node.right)):
            yield node


def chained_conditionals(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield conditionals in conditionals: ``a if b else c if d else e``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.IfExp):
            inner = (node.body, node.test, node.orelse)
            if any(isinstance(each, ast.IfExp) for each in inner):
                yield node


def several_walruses(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield conditions that set two names: ``if (a := f()) and (b := g()):``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If | ast.While):
            found = [n for n in ast.walk(node.test) if isinstance(n, ast.NamedExpr)]
            if len(found) > 1:
                yield node


def shadowed_round(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield names that hide Python's own ``round``, but for fields of a class."""
    fields = {
        node.target
        for cls in ast.walk(tree)
        if isinstance(cls, ast.ClassDef)
        for node in cls.body
        if isinstance(node, ast.AnnAssign)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.arg) and node.arg == "round":
            yield node
        stored = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        if stored and node.id == "round" and node not in fields:
            yield node


STATEMENTS: list[Callable[[ast.AST], Iterator[ast.AST]]] = [
    packed_assignments,
    chained_assignments,
    arguments_packed_before,
    arithmetic_on_booleans,
    chained_conditionals,
    several_walruses,
    shadowed_round,
]


@pytest.mark.parametrize("find", STATEMENTS, ids=lambda find: find.__name__)
def test_source_has_no(
    find: Callable[[ast.AST], Iterator[ast.AST]], trees: dict[Path, ast.Module]
) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"
        for path, tree in trees.items()
        for node in find(tree)
    ]
    assert not found
