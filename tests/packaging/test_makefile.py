"""The Makefile says what its targets do, and in a sentence what is missing on a machine where it
cannot work.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TARGETS = {
    "run",
    "test",
    "test-all",
    "test-gpu",
    "test-mpi",
    "test-lowest",
    "smoke-lowest",
    "dependencies",
    "check",
    "lint",
    "docs",
    "site",
    "bench",
    "size",
    "clean",
    "help",
}


# Without what the `make test` that runs this hands down to makes below it.
ENVIRONMENT = {
    name: value
    for name, value in os.environ.items()
    if name not in {"MAKEFLAGS", "MFLAGS", "MAKELEVEL"}
}


def make(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", *arguments],
        cwd=folder,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def fresh(tmp_path: Path) -> Path:
    """What a clone has before anything was installed, as far as make looks at it."""
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def test_help_is_the_default_and_describes_every_target(fresh: Path) -> None:
    shown = make(fresh)
    assert shown.returncode == 0
    described = re.findall(r"^make (\S+) +\S.+$", shown.stdout, re.MULTILINE)
    assert set(described) == TARGETS
    assert len(described) == len(TARGETS)


@pytest.mark.parametrize("target", ["run", "test"])
def test_without_a_new_enough_python_a_sentence_says_so_and_nothing_is_made(
    fresh: Path, target: str
) -> None:
    shown = make(fresh, target, "PYTHON=no-such-python")
    assert shown.returncode == 2
    assert "No Python 3.11 or newer was found (tried: no-such-python)" in shown.stderr
    assert not (fresh / ".venv").exists()


def test_without_ensurepip_a_sentence_says_what_to_install(fresh: Path) -> None:
    # An interpreter such as Debian's without python3-venv: new enough, but it cannot import these
    # two modules.
    python = fresh / "python-without-venv"
    python.write_text(
        f'#!/bin/sh\ncase "$2" in *ensurepip*) exit 1;; esac\nexec {sys.executable} "$@"\n'
    )
    python.chmod(0o755)
    shown = make(fresh, "run", f"PYTHON={python}")
    assert shown.returncode == 2
    assert "apt install python3-venv" in shown.stderr
    assert not (fresh / ".venv").exists()


def test_a_failed_installation_shows_the_error_and_is_tried_again(fresh: Path) -> None:
    (fresh / "pyproject.toml").write_text("this is not toml\n")
    for _ in range(2):
        shown = make(fresh, ".venv/.installed", f"PYTHON={sys.executable}")
        assert shown.returncode == 2
        assert "ERROR" in shown.stderr
        assert "toml" in shown.stderr.lower()
        assert not (fresh / ".venv" / ".installed").exists()


def test_an_environment_whose_interpreter_has_gone_is_made_anew(fresh: Path) -> None:
    (fresh / ".venv" / "bin").mkdir(parents=True)
    (fresh / ".venv" / "bin" / "python").symlink_to("/no/such/python")
    (fresh / ".venv" / ".installed").touch()
    shown = make(fresh, "--dry-run", "run", f"PYTHON={sys.executable}")
    assert "-m venv --clear .venv" in shown.stdout
    assert (
        shown.stdout.index("-m venv")
        < shown.stdout.index("pip install")
        < shown.stdout.index("tetris_sim run")
    )


def test_what_ci_calls_exists() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    assert subprocess.run(["bash", "-n", ROOT / ".ci" / "run"], check=False).returncode == 0
    called = set(re.findall(r"make ([a-z-]+)", script))
    assert {"test", "docs"} <= called <= TARGETS
    for tool in ("ruff check", "ruff format --check", "mypy", "lint-imports"):
        assert tool in script


def test_a_failing_step_of_ci_is_named_and_ends_it(tmp_path: Path) -> None:
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci")
    tools = tmp_path / ".venv" / "bin"
    tools.mkdir(parents=True)
    (tools / "python").write_text('#!/bin/sh\ncase "$*" in "-m mypy") exit 3;; esac\n')
    (tools / "python").chmod(0o755)
    (tmp_path / "Makefile").write_text(
        ".venv/.installed-dev docs smoke-lowest test:\n\t@echo made $@\n"
    )
    shown = subprocess.run(
        ["bash", ".ci/run"],
        cwd=tmp_path,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert shown.returncode == 1
    assert shown.stderr.strip() == "== FAILED: types (.venv/bin/python -m mypy)"
    assert "== format: 0 s" in shown.stdout
    assert "made test" not in shown.stdout
