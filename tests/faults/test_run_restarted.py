from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.fault_runs import (
    assert_same_results,
    checkpoint_steps,
    contents,
    tetris_here,
    write_plate,
)

# The last step of a run is always recorded, so the middle of the whole run must be due there too.
N, OFTEN, FIELDS, CHECKPOINT, TWO = 1500, 50, 100, 300, "20 steps"
HALF = f"checkpoints/checkpoint_{N:012d}.h5"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of 2 N steps in one go, pictures included."""
    folder = tmp_path_factory.mktemp("whole")
    config = write_plate(
        folder,
        steps=2 * N,
        often=OFTEN,
        checkpoint=CHECKPOINT,
        fields=FIELDS,
        two=TWO,
        pictures=True,
    )
    done = tetris_here("run", config)
    assert done.returncode == 0, done.stderr
    return folder / "out"


def _half(folder: Path, *, pictures: bool = False) -> Path:
    """The results of N steps."""
    config = write_plate(
        folder,
        steps=N,
        often=OFTEN,
        checkpoint=CHECKPOINT,
        fields=FIELDS,
        two=TWO,
        pictures=pictures,
    )
    done = tetris_here("run", config)
    assert done.returncode == 0, done.stderr
    return folder / "out"


@pytest.mark.parametrize(
    "how",
    [
        "run --resume auto",
        "run --resume PATH",
        "restart FILE",
        "restart FOLDER",
        "restart CHECKPOINTS",
        "restart FILE CONFIG",
    ],
)
def test_a_run_of_two_halves_has_the_bits_of_the_whole(
    tmp_path: Path, whole: Path, how: str
) -> None:
    pictures = how in ("run --resume auto", "restart FILE")  # they take longer than all the rest
    out = _half(tmp_path, pictures=pictures)
    config, more = tmp_path / "plate.yaml", ("--set", f"time.steps={2 * N}")
    arguments: dict[str, tuple[object, ...]] = {
        "run --resume auto": ("run", config, "--resume", "auto"),
        "run --resume PATH": ("run", config, "--resume", out / HALF),
        "restart FILE": ("restart", out / HALF),
        "restart FOLDER": ("restart", out),
        "restart CHECKPOINTS": ("restart", (out / HALF).parent),
        "restart FILE CONFIG": ("restart", out / HALF, config),
    }
    done = tetris_here(*arguments[how], *more)
    assert done.returncode == 0, done.stderr
    assert f"at step {N}" in done.stderr
    assert_same_results(out, whole, pictures=pictures)
    assert pictures == ({"initial.png", "final.png", "difference.png"} <= contents(out).keys())


@pytest.mark.parametrize("devices", ["cpu", "cpu,cpu", "cpu,cpu,cpu"])
def test_a_run_goes_on_with_the_same_bits_on_other_devices(
    tmp_path: Path, whole: Path, devices: str
) -> None:
    out = _half(tmp_path)
    more = ("--set", f"time.steps={2 * N}", "--set", "compute.threads=auto", "--device", devices)
    done = tetris_here("run", tmp_path / "plate.yaml", "--resume", "auto", *more)
    assert done.returncode == 0, done.stderr
    assert_same_results(out, whole, pictures=False)


def test_a_run_goes_back_to_an_earlier_checkpoint_and_forgets_what_came_later(
    tmp_path: Path, whole: Path
) -> None:
    out = _half(tmp_path)
    earlier, newest = checkpoint_steps(out)
    assert (earlier, newest) == (N - CHECKPOINT, N)
    path = out / "checkpoints" / f"checkpoint_{earlier:012d}.h5"
    stopped = (
        "--set",
        f"time.steps={earlier + 2 * OFTEN}",
        "--set",
        "checkpoint.every=100000 steps",
    )
    done = tetris_here("restart", path, *stopped)
    assert done.returncode == 0, done.stderr
    assert checkpoint_steps(out) == [earlier, earlier + 2 * OFTEN]
    # What is found now is the state of the run as it is, not of the one before it went back.
    done = tetris_here(
        "run", tmp_path / "plate.yaml", "--resume", "auto", "--set", f"time.steps={2 * N}"
    )
    assert done.returncode == 0, done.stderr
    assert f"at step {earlier + 2 * OFTEN}" in done.stderr
    assert_same_results(out, whole, pictures=False)


def test_a_run_that_went_back_and_was_interrupted_is_not_found_at_a_later_step(
    tmp_path: Path,
) -> None:
    out = _half(tmp_path)
    earlier, _ = checkpoint_steps(out)
    path = out / "checkpoints" / f"checkpoint_{earlier:012d}.h5"
    # It ends without having saved anything, as if it had been killed.
    unsaved = ("--set", "checkpoint.at_end=false", "--set", "checkpoint.every=1 h wall")
    done = tetris_here("restart", path, *unsaved, "--set", f"time.steps={earlier + 10}")
    assert done.returncode == 0, done.stderr
    assert checkpoint_steps(out) == [earlier]
    lines = (out / "statistics.csv").read_text().splitlines()
    assert int(lines[-1].split(",")[0]) == earlier + 10


def test_other_outputs_do_not_change_the_field(tmp_path: Path, whole: Path) -> None:
    out = _half(tmp_path)
    changes = [
        "output.statistics.every=70 steps",
        "output.probes=[]",
        "output.fields.every=0.3 s",
        "checkpoint.keep=5",
    ]
    more = [part for change in changes for part in ("--set", change)]
    done = tetris_here("restart", out / HALF, "--set", f"time.steps={2 * N}", *more)
    assert done.returncode == 0, done.stderr
    last = f"checkpoints/checkpoint_{2 * N:012d}.h5:fields/temperature"
    assert contents(out)[last] == contents(whole)[last]
    assert len(checkpoint_steps(out)) == 5


def test_a_restart_in_another_folder_leaves_the_first_as_it_was(
    tmp_path: Path, whole: Path
) -> None:
    out = _half(tmp_path)
    before = contents(out)
    more = ("--set", f"time.steps={2 * N}", "--set", f"output.directory={tmp_path / 'other'}")
    done = tetris_here("restart", out / HALF, *more)
    assert done.returncode == 0, done.stderr
    assert contents(out) == before
    last = f"checkpoints/checkpoint_{2 * N:012d}.h5:fields/temperature"
    assert contents(tmp_path / "other")[last] == contents(whole)[last]


def test_a_finished_run_that_is_resumed_changes_nothing(tmp_path: Path) -> None:
    out = _half(tmp_path, pictures=True)
    before = contents(out)
    done = tetris_here("run", tmp_path / "plate.yaml", "--resume", "auto")
    assert done.returncode == 0, done.stderr
    assert contents(out) == before


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("model.material=steel", "model.material is steel, and was copper"),
        ("grid.shape=[31, 24]", "grid.shape is [31, 24], and was [31, 23]"),
        ("boundaries.x-.value=51", "boundaries.x-.value is 51"),
        ("compute.precision=float32", "compute.precision is float32, and was float64"),
        ("time.cfl=0.1", "time.cfl is 0.1, and was 0.15"),
        ("initial.expression=x", "initial.expression is x"),
    ],
)
def test_changed_physics_is_refused_with_the_difference_and_nothing_is_touched(
    tmp_path: Path, change: str, said: str
) -> None:
    out = _half(tmp_path)
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    for verb in (("restart", out / HALF), ("run", tmp_path / "plate.yaml", "--resume", "auto")):
        done = tetris_here(*verb, "--set", f"time.steps={2 * N}", "--set", change)
        assert done.returncode == 2
        assert said in done.stderr
        assert "Traceback" not in done.stderr
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


def test_a_run_cannot_end_before_its_checkpoint(tmp_path: Path) -> None:
    out = _half(tmp_path)
    done = tetris_here("restart", out / HALF, "--set", f"time.steps={N - 1}")
    assert done.returncode == 2
    assert f"at step {N}" in done.stderr
    assert f"step {N - 1}" in done.stderr


def test_what_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    out = _half(tmp_path)
    for path in (out / "fields.h5", out / "statistics.csv", out / "nothing.h5", tmp_path):
        done = tetris_here("restart", path)
        assert done.returncode == 2, path
        assert str(path) in done.stderr
        assert "Traceback" not in done.stderr


def test_a_checkpoint_that_a_killed_run_had_no_time_to_remove_goes_at_the_end(
    tmp_path: Path,
) -> None:
    results = _half(tmp_path)
    assert checkpoint_steps(results) == [N - CHECKPOINT, N]
    config = tmp_path / "plate.yaml"
    config.write_text(config.read_text().replace("keep: 2", "keep: 1"))
    done = tetris_here("run", str(config), "--resume", "auto")
    assert done.returncode == 0, done.stderr
    assert checkpoint_steps(results) == [N]
