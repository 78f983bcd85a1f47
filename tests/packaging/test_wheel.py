"""The wheel, away from the checkout, among a user's own `apps` and `scheduler`: the reason for the
links (ADR 0001).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LINKED = ("cpu_kernels", "gpu_kernels", "scheduler", "apps")
NOT_SOURCE = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist", "results")
SOURCES = {
    ".py",
    ".cu",
    ".cuh",
    ".yaml",
    ".html",
    ".css",
    ".js",
    ".json",
    ".png",
    ".flp",
    ".ptrace",
}

CONFIG = """\
schema: 1
grid: {shape: [11, 7], size: [11 mm, 7 mm]}
model: {type: heat, diffusivity: 1e-6 m^2/s}
initial: {type: constant, value: 20 degC}
boundaries: {"*": {type: neumann, flux: 0}}
time: {cfl: 0.2, steps: 5}
"""


@dataclass(frozen=True)
class Built:
    """What the build backend made of a copy of the checkout."""

    source: Path
    sdist: Path
    wheel: Path
    wheel_from_sdist: Path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    work = tmp_path_factory.mktemp("build")
    source = work / "source"
    # A copy, so that nothing is written into the checkout; with its links, as `git clone` makes it.
    shutil.copytree(ROOT, source, symlinks=True, ignore=NOT_SOURCE)
    build = [sys.executable, "-m", "build", "--no-isolation"]
    run([*build, "--wheel", "--outdir", str(work / "direct")], cwd=source)
    shutil.rmtree(source / "build")
    run(
        [*build, "--outdir", str(work / "dist")], cwd=source
    )  # the sdist, and a wheel from the sdist
    (sdist,) = (work / "dist").glob("*.tar.gz")
    (wheel,) = (work / "direct").glob("*.whl")
    (wheel_from_sdist,) = (work / "dist").glob("*.whl")
    return Built(source, sdist, wheel, wheel_from_sdist)


@pytest.fixture(scope="module")
def installed(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Interpreter of an environment with the wheel and, through a path file, the dependencies of
    this one.
    """
    folder = tmp_path_factory.mktemp("installed")
    run([sys.executable, "-m", "venv", "--without-pip", str(folder)])
    python = folder / "bin" / "python"
    wheel = str(built.wheel)
    run(
        [
            sys.executable,
            "-m",
            "pip",
            "--python",
            str(python),
            "install",
            "--no-deps",
            "--no-index",
            "-q",
            wheel,
        ]
    )
    # Path files inside a folder that was itself added by a path file are not read, so an editable
    # install of the checkout does not come along.
    (site_packages,) = (folder / "lib").glob("python*/site-packages")
    (site_packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A working directory with modules of the user's own that are named like our folders."""
    for name in LINKED:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(
            f"raise ImportError('the user has a package {name} too')\n"
        )
    shutil.rmtree(tmp_path / "scheduler")
    (tmp_path / "scheduler.py").write_text(
        "raise ImportError('the user has a module scheduler too')\n"
    )
    (tmp_path / "plate.yaml").write_text(CONFIG)
    return tmp_path


def run(command: list[str], *, cwd: Path | None = None) -> str:
    """Run a command without this process's import path; its output, or an assertion that shows
    it.
    """
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COV_"))
    }
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command} exited {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {
            name: archive.read(name) for name in archive.namelist() if not name.endswith("RECORD")
        }


def source_files() -> dict[str, Path]:
    """Every file of the package by its place in the wheel. (`rglob` does not follow the links.)"""
    found = {}
    for top in ("tetris_sim", *LINKED):
        prefix = "" if top == "tetris_sim" else "tetris_sim/"
        for path in (ROOT / top).rglob("*"):
            if path.is_file() and (path.suffix in SOURCES or path.name == "py.typed"):
                found[prefix + path.relative_to(ROOT).as_posix()] = path
    return found


def test_a_registry_takes_the_wheel_and_the_sdist(built: Built) -> None:
    pytest.importorskip("twine")
    files = [str(path) for path in (built.sdist, built.wheel, built.wheel_from_sdist)]
    said = run([sys.executable, "-m", "twine", "check", "--strict", *files])
    assert said.count("PASSED") == 3


def test_every_package_folder_is_listed_in_pyproject() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    folders = {
        name.removesuffix("/__init__.py").replace("/", ".")
        for name in source_files()
        if "__init__" in name
    }
    assert set(project["tool"]["setuptools"]["packages"]) == folders


def test_the_four_links_are_relative_and_lead_to_the_top_folders() -> None:
    for name in LINKED:
        link = ROOT / "tetris_sim" / name
        assert link.is_symlink()
        assert os.readlink(link) == f"../{name}"


def test_the_wheel_holds_every_source_file_under_tetris_sim(built: Built) -> None:
    held = contents(built.wheel)
    files = {name: text for name, text in held.items() if ".dist-info/" not in name}
    sources = source_files()
    assert files.keys() == sources.keys()
    assert not [name for name, path in sources.items() if files[name] != path.read_bytes()]
    assert "tetris_sim/py.typed" in files
    assert [name for name in files if name.startswith("tetris_sim/commands/templates/")]


def test_the_sdist_holds_the_real_folders_and_builds_the_same_wheel(built: Built) -> None:
    with tarfile.open(built.sdist) as archive:
        members = {member.name.split("/", 1)[-1]: member for member in archive.getmembers()}
    assert not [name for name, member in members.items() if member.issym() or member.islnk()]
    for name in LINKED:
        assert f"{name}/__init__.py" in members
    assert {"pyproject.toml", "README.md", "LICENSE"} <= set(members)
    assert contents(built.wheel_from_sdist) == contents(built.wheel)


def test_the_installed_package_is_not_confused_by_folders_of_the_same_names(
    installed: Path, hostile: Path
) -> None:
    code = (
        "import tetris_sim.apps, tetris_sim.scheduler as s, tetris_sim as t; print(t.__file__); "
        "print(s.__file__)"
    )
    for line in run([str(installed), "-c", code], cwd=hostile).split():
        assert installed.parents[1] in Path(line).parents
    version = run([str(installed), "-m", "tetris_sim", "--version"], cwd=hostile)
    assert version == run([str(installed.parent / "tetris-sim"), "--version"], cwd=hostile)
    assert "0.1.0" in version


def test_the_installed_package_validates_and_runs_in_such_a_folder(
    installed: Path, hostile: Path
) -> None:
    run([str(installed), "-m", "tetris_sim", "validate", "plate.yaml"], cwd=hostile)
    run([str(installed), "-m", "tetris_sim", "run", "plate.yaml", "--no-progress"], cwd=hostile)
    assert any((hostile / "results" / "plate").rglob("*.h5"))


def test_the_wheel_names_the_licence_and_the_versions_of_python(built: Built) -> None:
    (name,) = (name for name in contents(built.wheel) if name.endswith("METADATA"))
    metadata = contents(built.wheel)[name].decode()
    assert "License-Expression: MIT" in metadata
    assert "Requires-Python: >=3.11" in metadata
    for minor in (11, 12, 13):
        assert f"Classifier: Programming Language :: Python :: 3.{minor}\n" in metadata
