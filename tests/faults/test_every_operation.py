"""Every operation on a file may fail, at any moment of any kind of run: a sample of them here, many
with --run-full, all by `python tests/support/failing_files.py 0 --all`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.failing_files import KINDS, build_shim, why_no_shim

SCRIPT = Path(__file__).parents[1] / "support" / "failing_files.py"


@pytest.fixture(autouse=True)
def _shim() -> None:
    if (why_not := why_no_shim()) is not None:
        pytest.skip(why_not)


def campaign(folder: Path, tries: int, *kinds: str, seed: int = 1) -> dict[str, Any]:
    """What came of so many tries of some kinds of runs."""
    told = folder / "told.json"
    words = [word for kind in kinds for word in ("--kind", kind)]
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(tries), "--seed", str(seed), "--json", told, *words],
        capture_output=True,
        text=True,
        timeout=3000,
        check=False,
    )
    assert told.exists(), done.stderr[-2000:]
    found: dict[str, Any] = json.loads(told.read_text())
    return found


def check(told: dict[str, Any], tries: int) -> None:
    assert told["tries"] == tries
    for kind in told["kinds"]:
        assert not kind["failures"], kind["failures"]
        assert kind["operations"] > 100, kind  # of HDF5 too
        assert kind["right"] + kind["told"] + kind["killed"] == kind["tries"]


def test_the_shim_sees_what_python_and_hdf5_do_and_nothing_elsewhere(tmp_path: Path) -> None:
    code = f"""
import os, sys
from pathlib import Path
from tests.support.failing_files import open_control, FAIL, SHORT
import h5py
control, inside = open_control(), Path({str(tmp_path / "inside")!r})
inside.mkdir()
control.folder, control.at = os.fsencode(inside), -1
def counted(work):
    before = control.count
    work()
    return control.count - before
assert counted(lambda: Path({str(tmp_path / "beside")!r}).write_text("x")) == 0
assert counted(lambda: (inside / "a").write_text("x")) >= 2
def hdf5():
    with h5py.File(inside / "b.h5", "w") as file:
        file["x"] = range(1000)
assert counted(hdf5) >= 4
control.at, control.how, control.error, control.once = control.count, FAIL, 5, 1
try:
    (inside / "c").write_text("x")
except OSError as error:
    assert error.errno == 5
else:
    raise AssertionError
assert control.hits == 1 and control.named.startswith(b"open")
control.at, control.how = control.count + 1, SHORT
assert os.write(os.open(inside / "d", os.O_WRONLY | os.O_CREAT), b"1234") == 2
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | build_shim(tmp_path),
        cwd=SCRIPT.parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


OUTPUTS = """
import os, sys
import tetris_sim as ts
from tests.support.failing_files import open_control
control = open_control()
folder = sys.argv[1]
control.folder, control.at = os.fsencode(folder), -1
plate = {
    "grid": {"shape": [8, 6], "size": ["8 mm", "6 mm"]},
    "model": {"type": "heat", "material": "copper"},
    "initial": {"type": "gaussian", "amplitude": 100, "sigma": "2 mm"},
    "boundaries": {"*": {"type": "neumann"}},
    "time": {"dt": "1 ms", "steps": 450},
    "compute": {"method": "cpu.plain", "threads": 1},
    "output": {
        "pictures": False,
        "fields": {"every": "1 step"},
        "statistics": {"every": "1 step"},
        "probes": [{"at": ["1 mm", "1 mm"], "every": "1 step", "name": "one"}],
    },
    "checkpoint": {"every": "10 steps", "keep": 2},
}
def call(sim):
    print(sim.step, control.count, control.bytes, flush=True)
with ts.simulate(plate, folder) as sim:
    sim.run(every="150 steps", call=call)
"""


def test_an_output_moves_as_many_bytes_however_many_there_are(tmp_path: Path) -> None:
    """Fields, statistics, probes and checkpoints of steps 300 to 450 beside those of 150 to 300."""
    done = subprocess.run(
        [sys.executable, "-c", OUTPUTS, str(tmp_path / "out")],
        env=os.environ | build_shim(tmp_path),
        cwd=SCRIPT.parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    (_, n0, b0), (_, n1, b1), (_, n2, b2) = rows[:3]
    assert n2 - n1 == pytest.approx(n1 - n0, rel=0.1)
    assert b2 - b1 == pytest.approx(b1 - b0, rel=0.3), rows


@pytest.mark.slow
def test_a_sample_of_operations_may_fail(tmp_path: Path) -> None:
    check(campaign(tmp_path, 12, "explicit", "restart", "export", "sweep"), 12)


@pytest.mark.slow
@pytest.mark.mpi
def test_operations_of_ranks_may_fail(tmp_path: Path) -> None:
    check(campaign(tmp_path, 2, "two ranks"), 2)


@pytest.mark.full
def test_many_operations_of_each_kind_of_run_may_fail(tmp_path: Path) -> None:
    check(campaign(tmp_path, 100 * len(KINDS), *KINDS, seed=2), 100 * len(KINDS))
