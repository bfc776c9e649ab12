"""Every module of the cost model is imported by some test, so that none is only covered by way of others."""

from __future__ import annotations

import ast
import pkgutil
from pathlib import Path

import optimizer.objectives

TESTS = Path(__file__).resolve().parents[1]


def imported(path: Path) -> set[str]:
    """Modules that a test file names in its imports: `from a.b import c` may mean a.b or the module a.b.c."""
    found, text = set(), path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(text)) if optimizer.objectives.__name__ in text else ():
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def test_every_module_of_the_objective_is_imported_by_a_test() -> None:
    package = optimizer.objectives
    modules = {
        found.name for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}.") if not found.ispkg
    }
    assert len(modules) > 40
    named = set().union(*map(imported, TESTS.rglob("test_*.py")))
    assert sorted(modules - named) == []
