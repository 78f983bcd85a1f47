"""The house: bodies have paragraphs, files are short, rooms are few.

What CONTRIBUTING.md asks for, counted; a limit is what was reached, not what would be nice.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("tetris_sim", "cpu_kernels", "gpu_kernels", "scheduler", "apps")
SOURCES = sorted(
    path
    for top in PACKAGES
    for path in (ROOT / top).rglob("*")
    if path.suffix in {".py", ".cu", ".cuh"}
)
MODULES = [path for path in SOURCES if path.suffix == ".py"]

LONG_BODY = 15  # lines from which on a body needs paragraphs
WITHOUT_PARAGRAPHS = 0.10  # of the long bodies
LONGEST_FILE = 400  # lines
MOST_MODULES = 447
MOST_IN_GPU_KERNELS = 14
MOST_FLOORS = 8


def long_bodies(text: str) -> list[tuple[str, bool]]:
    """(name, whether a blank line divides it) of every function body of `LONG_BODY` lines or more.

    >>> body = "    a = 1\\n" * 14
    >>> long_bodies(f"def one():\\n{body}    b = 2\\n\\ndef two():\\n{body}\\n    b = 2\\n")
    [('one', False), ('two', True)]
    """
    lines, bodies = text.split("\n"), []
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue

        statements = node.body[1:] if ast.get_docstring(node) is not None else node.body
        if not statements:
            continue
        body = lines[statements[0].lineno - 1 : node.end_lineno]
        if len(body) >= LONG_BODY:
            bodies.append((node.name, not all(line.strip() for line in body)))
    return bodies


def floors(folder: Path) -> int:
    """Modules on the longest chain of imports inside a folder: 1 if none imports another."""
    name = f"tetris_sim.{folder.name}"
    imports = {}
    for path in folder.rglob("*.py"):
        module = ".".join((name, *path.relative_to(folder).with_suffix("").parts))
        imports[module.removesuffix(".__init__")] = {
            target
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.ImportFrom) and node.module is not None
            for target in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))
        }

    heights: dict[str, int] = {}

    def height(module: str) -> int:
        if module not in heights:
            below = [height(other) for other in imports[module] & imports.keys() - {module}]
            heights[module] = 1 + max(below, default=0)
        return heights[module]

    return max(map(height, imports))


def test_bodies_of_many_lines_have_paragraphs() -> None:
    bodies = [
        (path.relative_to(ROOT), name, divided)
        for path in MODULES
        for name, divided in long_bodies(path.read_text())
    ]
    dense = [f"{path} {name}" for path, name, divided in bodies if not divided]
    assert len(bodies) > 100
    assert len(dense) <= WITHOUT_PARAGRAPHS * len(bodies), "\n".join(dense)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_file_has_at_most_400_lines(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= LONGEST_FILE


def test_modules_and_rooms_are_few() -> None:
    # Those that hold code: an `__init__` says what its room is for.
    assert len([path for path in MODULES if path.name != "__init__.py"]) <= MOST_MODULES
    rooms = [path for path in (ROOT / "gpu_kernels").iterdir() if path.name != "__pycache__"]
    assert len(rooms) <= MOST_IN_GPU_KERNELS


def test_the_scheduler_has_few_floors() -> None:
    assert floors(ROOT / "scheduler") <= MOST_FLOORS
