"""What tests/conftest.py promises: what did not run is counted with its reason, and floating-point
errors raise.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]

SUITE = """
import os, numpy as np, pytest

@pytest.mark.full
def test_one_of_many(): pass

@pytest.mark.full
def test_another_of_many(): pass

@pytest.mark.gpu
def test_on_a_gpu(): pass

def test_always():
    assert os.path.isdir(os.environ["TETRIS_SIM_CACHE_DIR"])

def test_division_by_zero_raises():
    with pytest.raises(FloatingPointError):
        np.ones(2) / np.zeros(2)

def test_seed(rng):
    print("drawn", rng.random())

def test_other_seed(rng):
    print("drawn", rng.random())
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    (tmp_path / "conftest.py").write_text((TESTS / "conftest.py").read_text())
    (tmp_path / "test_suite.py").write_text(SUITE)
    markers = ["full: all", "gpu: a GPU", "mpi: MPI", "slow: slow"]
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nmarkers =\n" + "".join(f"    {marker}\n" for marker in markers)
    )
    return tmp_path


def run_suite(folder: Path, *options: str) -> str:
    # Without visible devices and their driver this machine is one without a GPU, whatever it really
    # has.
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("PYTEST")
    }
    environment["CUDA_VISIBLE_DEVICES"] = ""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_skipped_tests_are_counted_with_their_reason_and_remedy(suite: Path) -> None:
    shown = run_suite(suite)
    assert "did not run: 2 x full: --run-full asks for it (make test-all)" in shown
    assert "did not run: 1 x gpu: no CUDA d" in shown
    assert "4 passed, 3 skipped" in shown


def test_run_full_runs_them(suite: Path) -> None:
    shown = run_suite(suite, "--run-full")
    assert "x full" not in shown
    assert "6 passed, 1 skipped" in shown


def test_the_count_is_right_with_several_workers(suite: Path) -> None:
    shown = run_suite(suite, "-n", "2")
    assert "did not run: 2 x full" in shown
    assert "4 passed, 3 skipped" in shown


def test_random_numbers_repeat_and_differ_between_tests(suite: Path) -> None:
    drawn = [
        [line for line in run_suite(suite, "-s").splitlines() if "drawn" in line] for _ in range(2)
    ]
    assert drawn[0] == drawn[1]
    assert len(set(drawn[0])) == 2


def test_the_cache_of_a_session_goes_with_it(suite: Path) -> None:
    test = "import os\ndef test_it(): print('cache', os.environ['TETRIS_SIM_CACHE_DIR'])\n"
    (suite / "test_suite.py").write_text(test)
    found = re.search(r"cache (/\S+)", run_suite(suite, "-s"))
    assert found is not None
    used = Path(found[1])
    assert used != Path(os.environ["TETRIS_SIM_CACHE_DIR"])
    assert not used.exists()
