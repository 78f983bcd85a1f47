from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tests.support.fault_runs import checkpoint_steps, tetris_here, write_plate
from tetris_sim.outputs.checkpoint import open_checkpoint

GROWING = """
schema: 1
grid: {{shape: [14, 9]}}
model:
  type: stencil
  offsets: [[0, 0], [-1, 0], [1, 0]]
  weights: [0.7, 0.25, 0.25]
  allow_growth: true
initial: {{type: expression, expression: "1 if hypot(x - 3.5, y - 4.5) < 0.1 else 0"}}
boundaries: {{"*": {{type: fixed, value: 0}}}}
time: {{steps: 6000}}
compute: {{method: cpu.plain, threads: 1, precision: {precision}}}
output: {{directory: {out}, pictures: false, statistics: {{every: {every} steps}}}}
checkpoint: {{every: 100 steps, keep: 2}}
"""


def _growing(folder: Path, *, precision: str = "float32", every: int = 10) -> Path:
    path = folder / "growing.yaml"
    path.write_text(GROWING.format(out=folder / "out", precision=precision, every=every))
    return path


def _overflow(precision: str) -> int:
    """The first step after which the field is not finite any more, by NumPy."""
    dtype = np.dtype(precision).type
    u = np.zeros((9, 14), dtype=dtype)
    u[4, 3] = 1
    with np.errstate(over="ignore", invalid="ignore"):
        for step in range(1, 10**6):
            padded = np.pad(u, ((0, 0), (1, 1)))
            u = dtype(0.7) * u + dtype(0.25) * padded[:, :-2] + dtype(0.25) * padded[:, 2:]
            if not np.isfinite(u).all():
                return step
    raise AssertionError


@pytest.mark.parametrize(("precision", "every"), [("float32", 10), ("float64", 7)])
def test_a_field_that_overflows_stops_the_run_and_spares_the_good_checkpoints(
    tmp_path: Path, precision: str, every: int
) -> None:
    config, out = _growing(tmp_path, precision=precision, every=every), tmp_path / "out"
    done = tetris_here("run", config)
    assert done.returncode == 5, done.stderr
    assert "Traceback" not in done.stderr

    first_bad = _overflow(precision)
    window = re.search(r"found at step (\d+) .*, all finite at step (\d+)", done.stderr)
    assert window is not None, done.stderr
    found, finite = int(window[1]), int(window[2])
    # Looked for before every output and checkpoint: the window is no longer than the shorter of the
    # two intervals.
    assert finite < first_bad <= found <= finite + every
    assert re.search(r"points x = \d+\.\.\d+, y = \d+\.\.\d+", done.stderr)

    good = checkpoint_steps(out)
    last = finite // 100 * 100
    assert good == [last - 100, last]
    assert str(out / "checkpoints" / f"checkpoint_{last:012d}.h5") in done.stderr
    for step in good:
        with open_checkpoint(out / "checkpoints" / f"checkpoint_{step:012d}.h5") as checkpoint:
            assert np.isfinite(checkpoint.read(((0, 9), (0, 14)))).all()
    lines = (out / "statistics.csv").read_text().splitlines()
    assert int(lines[-1].split(",")[0]) <= finite
    assert "nan" not in lines[-1]


def test_the_place_of_the_first_bad_value_is_told(tmp_path: Path) -> None:
    done = tetris_here("run", _growing(tmp_path, every=1))
    box = re.search(r"points x = (\d+)\.\.(\d+), y = (\d+)\.\.(\d+)", done.stderr)
    assert box is not None, done.stderr
    x_low, x_high, y_low, y_high = map(int, box.groups())
    dump = next((tmp_path / "out" / "checkpoints").glob("crash_*.h5"))
    with open_checkpoint(dump) as checkpoint:
        (u,) = checkpoint.read(((0, 9), (0, 14)))
    bad = np.argwhere(~np.isfinite(u))
    assert {int(y) for y, _ in bad} == {4}  # the stencil reaches along x only
    assert any(y_low <= y <= y_high and x_low <= x <= x_high for y, x in bad)


def test_the_bad_state_is_kept_for_looking_at_and_refused_for_going_on(tmp_path: Path) -> None:
    config, out = _growing(tmp_path), tmp_path / "out"
    assert tetris_here("run", config).returncode == 5
    (dump,) = (out / "checkpoints").glob("crash_*.h5")
    last = out / "checkpoints" / f"checkpoint_{checkpoint_steps(out)[-1]:012d}.h5"
    before = {path: path.read_bytes() for path in (out / "checkpoints").iterdir()}
    done = tetris_here("restart", dump)
    assert done.returncode == 2, done.stderr
    assert "NaN or infinity" in done.stderr
    assert str(last) in done.stderr
    assert {path: path.read_bytes() for path in (out / "checkpoints").iterdir()} == before

    again = tetris_here("run", config, "--resume", "auto")
    assert again.returncode == 5
    assert f"Continuing from {last}" in again.stderr
    assert {path.name for path in (out / "checkpoints").iterdir()} == {path.name for path in before}


def test_an_unstable_time_step_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    config = write_plate(tmp_path, steps=100, often=10, checkpoint=50)
    done = tetris_here("run", config, "--set", "time.cfl=0.6")
    assert done.returncode == 4
    assert "largest stable" in done.stderr
    assert not (tmp_path / "out" / "checkpoints").exists()
    assert not (tmp_path / "out" / "statistics.csv").exists()


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    """The configuration of a run that has ended."""
    config = write_plate(tmp_path, steps=100, often=10, checkpoint=50, pictures=True)
    assert tetris_here("run", config).returncode == 0
    return config


def _everything(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_results_are_not_overwritten_unless_asked(finished: Path) -> None:
    before = _everything(finished.parent)
    done = tetris_here("run", finished, "--set", "time.steps=70")
    assert done.returncode == 2
    assert "--overwrite" in done.stderr
    assert "--resume" in done.stderr
    assert _everything(finished.parent) == before


@pytest.mark.parametrize(
    "left", ["fields.h5", "statistics.csv", "probes", "checkpoints", "final.png"]
)
def test_any_single_result_is_protected(finished: Path, left: str) -> None:
    out = finished.parent / "out"
    keep = finished.parent / "kept"
    (out / left).rename(keep)
    for path in sorted(out.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    keep.rename(out / left)
    before = _everything(out)
    assert tetris_here("run", finished).returncode == 2
    assert {
        name: content for name, content in _everything(out).items() if not name.endswith(".lock")
    } == before


def test_overwriting_replaces_everything_of_the_earlier_run_and_nothing_else(
    finished: Path,
) -> None:
    out = finished.parent / "out"
    (out / "notes.txt").write_text("mine")
    changes = (
        "--set",
        "time.steps=70",
        "--set",
        "output.fields.every=30 steps",
        "--set",
        "output.probes=[]",
    )
    done = tetris_here("run", finished, "--overwrite", *changes)
    assert done.returncode == 0, done.stderr
    assert (out / "notes.txt").read_text() == "mine"
    assert checkpoint_steps(out) == [50, 70]
    assert not (out / "probes").exists()
    assert sorted(path.name for path in (out / "fields").iterdir()) == [
        f"fields_{step:012d}.h5" for step in (0, 30, 60, 70)
    ]


def test_overwriting_and_continuing_exclude_each_other(finished: Path) -> None:
    before = _everything(finished.parent)
    for resume in ("auto", finished.parent / "out" / "checkpoints" / "checkpoint_000000000100.h5"):
        done = tetris_here("run", finished, "--overwrite", "--resume", resume)
        assert done.returncode == 2
        assert "--overwrite" in done.stderr
    assert _everything(finished.parent) == before


@pytest.mark.parametrize("verb", ["run", "plan"])
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (["grid.shape=[2000000, 1000000]"], "memory"),
        (["output.fields.every=1 steps", "time.steps=999990", "grid.shape=[3100, 2300]"], "free"),
    ],
    ids=["memory", "disk"],
)
def test_what_does_not_fit_is_refused_before_anything_is_written(
    tmp_path: Path, verb: str, changes: list[str], said: str
) -> None:
    config = write_plate(tmp_path, steps=100, often=10, checkpoint=50)
    overrides = [part for change in changes for part in ("--set", change)]
    done = tetris_here(verb, config, *overrides)
    assert done.returncode == 3, done.stderr + done.stdout
    assert said in done.stderr
    assert "GiB" in done.stderr
    written = [path for path in (tmp_path / "out").rglob("*") if path.name != ".lock"]
    assert written == []


def test_results_that_do_not_fit_beside_the_earlier_ones_leave_those_alone(finished: Path) -> None:
    before = _everything(finished.parent)
    done = tetris_here("run", finished, "--overwrite", "--set", "grid.shape=[2000000, 1000000]")
    assert done.returncode == 3
    assert _everything(finished.parent) == before
