"""What pytest does before it imports a module for its doctests."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parent


def pytest_collect_file(file_path: Path) -> None:
    """Import the package of a module first, as Python does.

    A package may import its modules. If pytest imported such a module before the
    package, it would be there twice: with two classes of each name, neither of which
    has the other's instances.
    """
    package = file_path.parent
    if file_path.suffix == ".py" and (package / "__init__.py").exists():
        import_module(".".join(package.relative_to(ROOT).parts))
