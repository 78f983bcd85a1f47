"""Every import is declared, and the files of versions in .ci say what pyproject.toml says
(`make dependencies` writes them).
"""

from __future__ import annotations

import ast
import json
import re
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
RELEASED = ("notebook", "report", "compression", "stl")
FOLDERS = ("tetris_sim", "apps", "scheduler", "cpu_kernels", "gpu_kernels")
# What is imported by another name than that of its distribution.
IMPORTED_AS = {
    "ruamel-yaml": "ruamel",
    "cupy-cuda13x": "cupy",
    "annotated-types": "annotated_types",
    "pillow": "PIL",
}
# Parts of others that always come with them.
WITH_OTHERS = {
    "llvmlite": "numba",
    "pydantic_core": "pydantic",
    "cupyx": "cupy",
    "cupy_backends": "cupy",
    "IPython": "ipywidgets",
}


def declared(names: list[str]) -> dict[str, str]:
    """Lowest versions by name, as `ruamel-yaml`."""
    found = (re.match(r"([\w.-]+)(?:\[.*\])?>=([\d.]+)", name) for name in names)
    return {it[1].lower().replace(".", "-"): it[2] for it in found if it}


def pinned(name: str) -> dict[str, set[str]]:
    """Versions by name of a file in .ci; several if the interpreter decides."""
    text = (ROOT / ".ci" / name).read_text(encoding="utf-8")
    found: dict[str, set[str]] = {}
    for package, version in re.findall(r"^([\w.-]+)==([^\s;]+)", text, re.MULTILINE):
        found.setdefault(package, set()).add(version)
    return found


def as_numbers(version: str) -> tuple[int, ...]:
    """Without zeros at the end: 2.10 is 2.10.0."""
    return tuple(int(it) for it in re.sub(r"(\.0)+$", "", version).split("."))


def wanted() -> dict[str, str]:
    """What a release asks for, MPI aside, which is built on some machines."""
    return declared([*PROJECT["dependencies"], *(it for name in RELEASED for it in EXTRAS[name])])


def test_every_import_of_the_program_is_declared() -> None:
    names = declared([*PROJECT["dependencies"], *(it for names in EXTRAS.values() for it in names)])
    known = {IMPORTED_AS.get(name, name) for name in names}
    imported: dict[str, Path] = {}
    for path in (it for folder in FOLDERS for it in (ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {it.name.partition(".")[0]: path for it in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                imported[node.module.partition(".")[0]] = path
    assert {"numpy", "h5py", "xxhash"} <= imported.keys()
    undeclared = {
        name: str(path)
        for name, path in imported.items()
        if name not in sys.stdlib_module_names
        and name not in ("tetris_sim", *FOLDERS)
        and WITH_OTHERS.get(name, name) not in known
    }
    assert not undeclared


def test_the_lowest_versions_are_those_that_are_asked_for() -> None:
    lowest = pinned("lowest.txt")
    for name, bound in wanted().items():
        (version,) = lowest[name]
        assert as_numbers(version) == as_numbers(bound), f"{name}: make dependencies"


def test_the_lock_file_has_all_that_is_asked_for_with_digests() -> None:
    lock = pinned("lock.txt")
    for name, bound in (wanted() | declared(EXTRAS["mpi"])).items():
        assert all(as_numbers(it) >= as_numbers(bound) for it in lock[name]), name
    text = (ROOT / ".ci" / "lock.txt").read_text(encoding="utf-8")
    for entry in re.split(r"^(?=\w)", text, flags=re.MULTILINE)[1:]:
        assert "--hash=sha256:" in entry, entry


def test_licences_and_sbom_are_of_the_locked_versions() -> None:
    lock = pinned("lock.txt")
    sbom = json.loads((ROOT / ".ci" / "sbom.json").read_text(encoding="utf-8"))
    rows = re.findall(
        r"^\| (\S+) +\| (\S+) +\| (.+?) +\|$",
        (ROOT / ".ci" / "licences.md").read_text(encoding="utf-8"),
        re.MULTILINE,
    )[1:]
    for told in (
        {it["name"]: it["version"] for it in sbom["components"]},
        {name: version for name, version, _ in rows},
    ):
        found = {re.sub(r"[._]", "-", name.lower()): it for name, it in told.items()}
        assert len(found) >= 40
        assert all(version in lock[name] for name, version in found.items()), "make dependencies"
        assert set(wanted()) <= found.keys()
    assert not [row for row in rows if re.search(r"\bA?GPL", row[2])]


@pytest.mark.parametrize("name", ["lowest.txt", "lock.txt", "licences.md", "sbom.json"])
def test_no_file_has_a_path_of_the_machine_that_made_it(name: str) -> None:
    assert not re.search(r"file://|/home/|/root/|/tmp/", (ROOT / ".ci" / name).read_text())
