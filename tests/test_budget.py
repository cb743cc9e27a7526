"""How much code there is, room by room: a ratchet that only falls.

A line of code is no blank, comment, docstring, string of a field or import.
Who brings a room above its budget deletes as much as they add, or an issue names
a new number. A change that gets below a budget lowers it.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("cfl_flower", "strategies", "clients", "simulations")
FILES = sorted(path for name in PACKAGES for path in (ROOT / name).rglob("*.py"))

BUDGET: dict[str, int] = {
    "cfl_flower": 1_216,
    "cfl_flower/analysis": 1_008,
    "cfl_flower/client": 1_056,
    "cfl_flower/clustering": 527,
    "cfl_flower/communication": 1_266,
    "cfl_flower/config": 759,
    "cfl_flower/data": 3_680,
    "cfl_flower/dropin": 781,
    "cfl_flower/engine": 2_077,
    "cfl_flower/environment": 210,
    "cfl_flower/learning": 1_293,
    "cfl_flower/models": 961,
    "cfl_flower/privacy": 84,
    "cfl_flower/runs": 1_197,
    "cfl_flower/secure": 627,
    "clients": 1_301,
    "simulations": 4_637,
    "strategies": 3_058,
}
"""Code lines of each room; `cfl_flower` has the modules at its top."""

LONGEST_FILE = 378
LONGEST_FUNCTION = 60
LONG_FILES = 42
"""Files of more than 240 lines."""
SINGLE_IMPORTERS = 64
"""Modules that one other module imports."""
TYPE_CHECKING = 8
"""Files that import something only for its type."""
TESTS = 43_410
"""Lines of all tests."""


@cache
def parsed(path: Path) -> ast.Module:
    """Return the syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"))


def room_of(path: Path) -> str:
    """Return the room of a file, such as `cfl_flower/engine` or `clients`."""
    parts = path.relative_to(ROOT).parts
    deep = parts[0] == "cfl_flower" and len(parts) > 2
    return "/".join(parts[:2]) if deep else parts[0]


def is_no_code(node: ast.AST) -> bool:
    """Return whether a node is an import, or a string that stands alone."""
    if isinstance(node, ast.Expr):
        value = node.value
        return isinstance(value, ast.Constant) and isinstance(value.value, str)
    return isinstance(node, ast.Import | ast.ImportFrom)


def code_lines(path: Path) -> int:
    """Return how many lines of a file are code."""
    left_out = {
        number
        for node in ast.walk(parsed(path))
        if is_no_code(node) and isinstance(node, ast.stmt)
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    lines = path.read_text(encoding="utf-8").splitlines()
    counted = [line for n, line in enumerate(lines, 1) if n not in left_out]
    texts = [line.strip() for line in counted]
    return sum(bool(text) and not text.startswith("#") for text in texts)


def module_of(path: Path) -> str:
    """Return the dotted name of a file."""
    named = path.relative_to(ROOT).with_suffix("")
    return ".".join(named.parts).removesuffix(".__init__")


def imported_by(path: Path) -> set[str]:
    """Return the modules of this project that a file imports."""
    known = {module_of(each) for each in FILES}
    found = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{name.name}" for name in node.names}
            found |= (inner & known) or {node.module} & known
    return found - {module_of(path)}


def function_lengths() -> list[int]:
    """Return the lines of every function, its docstring included."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    nodes = [node for path in FILES for node in ast.walk(parsed(path))]
    functions = [node for node in nodes if isinstance(node, kinds)]
    return [(node.end_lineno or node.lineno) - node.lineno + 1 for node in functions]


def test_every_room_is_within_its_budget() -> None:
    found: Counter[str] = Counter()
    for path in FILES:
        found[room_of(path)] += code_lines(path)
    above = {room: n for room, n in found.items() if n > BUDGET.get(room, 0)}
    assert not above, "delete as much as you add; see the head of this file"


def test_files_and_functions_are_no_longer_than_they_were() -> None:
    lengths = [len(path.read_text(encoding="utf-8").splitlines()) for path in FILES]
    assert max(lengths) <= LONGEST_FILE
    assert len([length for length in lengths if length > 240]) <= LONG_FILES
    assert max(function_lengths()) <= LONGEST_FUNCTION


def test_no_more_modules_have_a_single_importer() -> None:
    importers = Counter(name for path in FILES for name in imported_by(path))
    assert len([n for n in importers.values() if n == 1]) <= SINGLE_IMPORTERS


def test_few_files_import_only_for_types() -> None:
    texts = [path.read_text(encoding="utf-8") for path in FILES]
    assert len([text for text in texts if "if TYPE_CHECKING:" in text]) <= TYPE_CHECKING


def test_the_tests_are_no_longer_than_they_were() -> None:
    files = [*(ROOT / "tests").rglob("*.py")]
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files)
    assert lines <= TESTS


def faults(node: ast.AST) -> Iterator[str]:
    """Yield how a statement says more than one fact."""
    parts = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.Assign) and len(node.targets) > 1:
        yield "a = b = []"
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple):
        packed = any(isinstance(each, ast.Tuple) for each in node.targets)
        yield from ["a, b = 1, f(2)"] * packed
    if isinstance(node, ast.Call):
        starred = [each.value for each in parts if isinstance(each, ast.Starred)]
        yield from ["f(*(a, b))" for each in starred if isinstance(each, ast.Tuple)]
    if isinstance(node, ast.BinOp) and isinstance(
        node.op, ast.Add | ast.Sub | ast.Mult
    ):
        yield from ["n * (a > 1)" for each in parts if isinstance(each, ast.Compare)]
    if isinstance(node, ast.IfExp):
        yield from [
            "a if b else c if d else e" for it in parts if type(it) is type(node)
        ]
    if isinstance(node, ast.If | ast.While):
        named = [
            each for each in ast.walk(node.test) if isinstance(each, ast.NamedExpr)
        ]
        yield from ["if (a := f()) and (b := g()):"] * (len(named) > 1)


def test_a_statement_says_one_fact() -> None:
    found = [
        f"{module_of(path)}, line {getattr(node, 'lineno', 0)}: {text}"
        for path in FILES
        for node in ast.walk(parsed(path))
        for text in faults(node)
    ]
    assert found == []


def test_lines_and_facts_are_counted_as_is_said(tmp_path: Path) -> None:
    path = tmp_path / "one.py"
    head = '"""Head.\n\nMore.\n"""\n\nfrom a import (\n    b,\n)\n\n# why\nx = 1\n\n\n'
    path.write_text(head + 'class A:\n    """Doc."""\n\n    n: int\n    """Its."""\n')
    assert code_lines(path) == 3
    packed = (
        "a = b = []\na, b = 1, 2\nf(*(a, b))\nn * (a > 1)\na if b else c if d else e"
    )
    packed += "\nif (a := f()) and (b := g()):\n    pass"
    nodes = list(ast.walk(ast.parse(packed)))
    assert len([text for node in nodes for text in faults(node)]) == 6
