"""A run never takes the results of another one for its own."""

from __future__ import annotations

from pathlib import Path

from tests.support.fault_runs import contents, tetris, write_plate


def test_a_checkpoint_of_elsewhere_does_not_replace_the_results_that_are_there(
    tmp_path: Path,
) -> None:
    first = write_plate(tmp_path / "first", steps=400, often=100, checkpoint=200)
    second = write_plate(tmp_path / "second", steps=300, often=100, checkpoint=100)
    for config in (first, second):
        assert tetris("run", config).returncode == 0
    before = contents(tmp_path / "first" / "out")
    checkpoint = next((tmp_path / "second" / "out" / "checkpoints").glob("*200.h5"))
    done = tetris("run", first, "--resume", checkpoint)
    assert done.returncode == 2
    assert "already holds the results of a run" in done.stderr
    assert contents(tmp_path / "first" / "out") == before


def test_resume_auto_without_a_checkpoint_does_not_replace_another_problem(tmp_path: Path) -> None:
    config = write_plate(tmp_path / "plate", steps=200, often=100, checkpoint=100)
    assert tetris("run", config).returncode == 0
    for path in (tmp_path / "plate" / "out" / "checkpoints").glob("*.h5"):
        path.unlink()
    before = contents(tmp_path / "plate" / "out")
    other = tetris("run", config, "--resume", "auto", "--set", "model.material=aluminium")
    assert other.returncode == 2
    assert "holds the results of another problem" in other.stderr
    assert "model.material is aluminium, and was copper" in other.stderr
    assert contents(tmp_path / "plate" / "out") == before
    assert tetris("run", config, "--resume", "auto").returncode == 0
