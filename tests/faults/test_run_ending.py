from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.fault_runs import assert_same_results, tetris_here
from tetris_sim.config import load_config
from tetris_sim.outputs.checkpoint import find_checkpoint
from tetris_sim.outputs.series import open_fields
from tetris_sim.outputs.tables import read_table

ROD = """
grid: {{shape: [12], size: [24 mm]}}
model: {{type: heat, material: copper}}
initial: {{type: expression, expression: "100*exp(-((x-0.01)**2)/1e-5)"}}
boundaries: {{"*": {{type: robin, h: 100, ambient: 20}}}}
time: {{dt: 7 ms, t_end: {end}}}
compute: {{method: cpu.plain, threads: 1}}
output:
  directory: {folder}/out
  fields: {{every: 100 ms}}
  statistics: {{every: 100 ms}}
  probes: [{{at: [10 mm], every: 30 ms, name: one}}]
  pictures: false
checkpoint: {{every: 10 steps}}
"""


def run(folder: Path, end: str, *how: object) -> Path:
    folder.mkdir(exist_ok=True)
    config = folder / "rod.yaml"
    config.write_text(ROD.format(folder=folder, end=end))
    done = tetris_here("run", config, *how)
    assert done.returncode == 0, done.stderr
    return folder / "out"


def times(out: Path) -> tuple[float, ...]:
    with open_fields(out / "fields.h5") as series:
        return series.times


def test_a_run_whose_end_moves_ends_there_to_rounding(tmp_path: Path) -> None:
    out = run(tmp_path, "300 ms")
    short = times(out)
    assert short[-1] == pytest.approx(0.3, rel=1e-15)

    run(tmp_path, "455 ms", "--resume", "auto")  # 66.8 of the run's steps
    assert times(out)[:4] == short  # when the first steps were does not change
    assert times(out)[-1] == pytest.approx(0.455, rel=1e-15)
    # The first step at or after each multiple of 100 ms, as at the beginning of the run.
    assert all(-1e-12 < time - 0.1 * k < 7e-3 for k, time in enumerate(times(out)[:-1]))
    _, rows = read_table(out / "statistics.csv")
    assert [row[1] for row in rows] == list(times(out))

    newest, _ = find_checkpoint(out / "checkpoints")
    assert newest is not None
    with newest:
        assert newest.state.time == pytest.approx(0.455, rel=1e-15)
        assert newest.state.start == (43, short[-1])
        assert 0.155 / 24 < newest.state.dt < 7e-3


def test_a_run_that_went_on_with_another_step_continues_with_the_same_bits(tmp_path: Path) -> None:
    whole, broken = (run(tmp_path / name, "300 ms") for name in ("whole", "broken"))
    run(tmp_path / "whole", "455 ms", "--resume", "auto")
    run(tmp_path / "broken", "455 ms", "--resume", "auto")
    for path in sorted((broken / "checkpoints").glob("checkpoint_*.h5"))[-1:]:
        path.unlink()  # the last one: it goes on from one after the step has changed
    left, _ = find_checkpoint(broken / "checkpoints")
    assert left is not None
    with left:
        assert 43 < left.state.step < 66
        assert left.state.start[0] == 43
    run(tmp_path / "broken", "455 ms", "--resume", "auto")
    assert_same_results(broken, whole)


def test_a_run_does_not_end_before_its_checkpoint(tmp_path: Path) -> None:
    run(tmp_path, "300 ms")
    config = tmp_path / "rod.yaml"
    for earlier in ("299 ms", "150 ms"):  # less and more than a step before
        config.write_text(ROD.format(folder=tmp_path, end=earlier))
        done = tetris_here("run", config, "--resume", "auto")
        assert done.returncode != 0
        assert "is at step 43, but the run is to end at step" in done.stderr


def test_whole_steps_more_keep_the_step(tmp_path: Path) -> None:
    out = run(tmp_path, "300 ms")
    dt = load_config(out / "resolved.yaml", environ={}).build().dt
    run(tmp_path, "600 ms", "--resume", "auto")
    newest, _ = find_checkpoint(out / "checkpoints")
    assert newest is not None
    with newest:
        assert (newest.state.dt, newest.state.start) == (dt, (0, 0.0))
        assert newest.state.time == pytest.approx(0.6, rel=1e-15)
