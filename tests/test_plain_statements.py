"""One fact a statement: what STATEMENTS finds is not in the source."""

import ast
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

PACKAGES = ("cfl_flower", "strategies", "clients", "simulations")


def packed_assignment(node: ast.AST) -> bool:
    """Tell ``a, b = 1, f(2)``: several expressions go to several names."""
    packed = isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple)
    return packed and any(isinstance(each, ast.Tuple) for each in node.targets)


def chained_assignment(node: ast.AST) -> bool:
    """Tell ``a = b = []``: one value goes to several names."""
    return isinstance(node, ast.Assign) and len(node.targets) > 1


def packed_arguments(node: ast.AST) -> bool:
    """Tell ``f(*(a, b))``: arguments are packed for nothing."""
    arguments = node.args if isinstance(node, ast.Call) else []
    starred = [each.value for each in arguments if isinstance(each, ast.Starred)]
    return any(isinstance(each, ast.Tuple) for each in starred)


def arithmetic_on_booleans(node: ast.AST) -> bool:
    """Tell ``text * (count > 1)``: a comparison is a number."""
    kinds = (ast.Compare,)
    arithmetic = isinstance(node, ast.BinOp) and isinstance(
        node.op, ast.Add | ast.Sub | ast.Mult
    )
    return arithmetic and (
        isinstance(node.left, kinds) or isinstance(node.right, kinds)
    )


def chained_conditional(node: ast.AST) -> bool:
    """Tell ``a if b else c if d else e``: a conditional is in another one."""
    return isinstance(node, ast.IfExp) and any(
        isinstance(each, ast.IfExp) for each in (node.body, node.test, node.orelse)
    )


def several_walruses(node: ast.AST) -> bool:
    """Tell ``if (a := f()) and (b := g()):``: a condition sets two names."""
    found = list(ast.walk(node.test)) if isinstance(node, ast.If | ast.While) else []
    return sum(isinstance(each, ast.NamedExpr) for each in found) > 1


STATEMENTS: list[Callable[[ast.AST], bool]] = [
    packed_assignment,
    chained_assignment,
    packed_arguments,
    arithmetic_on_booleans,
    chained_conditional,
    several_walruses,
]


@pytest.mark.parametrize("package", PACKAGES)
def test_source_has_one_fact_a_statement(package):
    found = [
        f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}: {rule.__name__}"
        for path in sorted((ROOT / package).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for rule in STATEMENTS
        if rule(node)
    ]
    assert found == []
