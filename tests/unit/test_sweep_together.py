"""Runs of a sweep that differ in their initial fields only are made together, and are what they are
alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import tetris_sim
from tetris_sim.api import sweep_workers
from tetris_sim.api.sweep_workers import ProcessSlot, launch_batch, make_batches
from tetris_sim.api.sweeping import make_cases
from tetris_sim.config import Config, load_config
from tetris_sim.errors import ExitCode
from tetris_sim.model.lowering import together, why_not_planes
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab
from tetris_sim.outputs.meter import Weights, find_weights
from tetris_sim.simulation.launch import launch
from tetris_sim.simulation.report import read_report
from tetris_sim.support.stopping import Stopping, StopReason

TEXT = """\
grid: {shape: [13, 11], size: [13 mm, 11 mm]}
model: {type: heat, material: copper}
initial: {type: expression, expression: 100*x/Lx}
boundaries: {"*": {type: neumann}, y+: {type: robin, h: 50, ambient: 20}}
time: {steps: 40}
compute: {devices: cpu, tuning_budget: 0, method: METHOD}
output:
  probes: [{name: mid, at: [6 mm, 5 mm], every: 7 steps}]
  fields: {every: 20 steps}
"""
H, WHERE = "boundaries.y+.h", "initial.expression"
OVER: dict[str, list[Any]] = {
    H: [10.0, 500.0],
    WHERE: ["100*x/Lx", "y/Ly", "20*sin(300*x)*y/Ly"],
}


def write(folder: Path, method: str = "cpu.plain", more: str = "") -> Path:
    path = folder / "plate.yaml"
    path.write_text(TEXT.replace("METHOD", method) + more, encoding="utf-8")
    return path


@pytest.fixture
def plate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write(tmp_path)


class CrewHere:
    """A crew without a process, which counts what it is asked."""

    asked: list[int]
    error = ""

    def __init__(self, seat: ProcessSlot) -> None:
        type(self).asked = []

    def plan(self, config: Config) -> None:
        """Nothing is measured."""

    def run(self, config: Config) -> dict[str, Any]:
        self.asked.append(1)
        return {"ended": launch(config, resume="auto").ended, "exit_code": 0}

    def run_together(self, configs: Sequence[Config]) -> dict[str, Any]:
        self.asked.append(len(configs))
        return {"error": self.error} if self.error else launch_batch(configs)

    def close(self) -> None:
        """Nothing is open."""


def left_by(folder: Path) -> dict[str, Any]:
    """What a run wrote: its tables, its fields, and the state of its last checkpoint."""
    found: dict[str, Any] = {
        name: (folder / name).read_text() for name in ("statistics.csv", "probes/mid.csv")
    }
    for path in (*folder.glob("fields/*.h5"), *folder.glob("checkpoints/*.h5")):
        with h5py.File(path) as file:

            def keep(name: str, it: Any, where: str = path.name) -> None:
                if isinstance(it, h5py.Dataset) and it.dtype.kind == "f":
                    found[f"{where} {name}"] = np.asarray(it)

            file.visititems(keep)
    return found


def assert_same(folder: Path, other: Path) -> None:
    one, two = left_by(folder), left_by(other)
    assert set(one) == set(two)
    assert sum(isinstance(it, np.ndarray) and it.size >= 13 * 11 for it in one.values()) >= 4
    for name, value in one.items():
        np.testing.assert_array_equal(value, two[name], err_msg=name)


@pytest.mark.parametrize("method", ["cpu.plain", "cpu.tessellate", "cpu.stream"])
def test_runs_made_together_leave_what_they_leave_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    monkeypatch.chdir(tmp_path)
    plate = write(tmp_path, method)
    monkeypatch.setattr("tetris_sim.api.sweeping.ProcessPool", CrewHere)
    result = tetris_sim.sweep(plate, OVER, processes=1)
    assert result.exit_code == ExitCode.OK
    assert CrewHere.asked == [3, 3]

    for row in result.rows:
        words = [f"{H}={row[H]}", f"{WHERE}='{row[WHERE]}'", f"output.directory=alone{row['run']}"]
        alone = load_config(plate, overrides=[*words, "output.pictures=false"])
        statistics = result.directory / "runs" / f"{row['run']:04}" / "resolved.yaml"
        alone = alone.model_copy(
            update={
                "output": alone.output.model_copy(
                    update={"statistics": load_config(statistics).output.statistics}
                )
            }
        )
        launch(alone)
        assert_same(statistics.parent, Path(f"alone{row['run']}"))
        report = read_report(statistics.parent / "report.json")
        assert "together with 2 other runs" in "".join(report.notes)
        assert report.points == 13 * 11


def test_processes_make_them_too_and_a_second_call_makes_nothing(
    plate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = tetris_sim.sweep(plate, OVER, processes=2)
    assert [row["ended"] for row in first.rows] == ["Done"] * 6
    monkeypatch.setattr("tetris_sim.api.sweeping.ProcessPool", None)
    assert tetris_sim.sweep(plate, OVER).rows == first.rows


def test_what_fails_together_is_made_one_by_one(
    plate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tetris_sim.api.sweeping.ProcessPool", CrewHere)
    monkeypatch.setattr(CrewHere, "error", "a value is not finite")
    result = tetris_sim.sweep(plate, {WHERE: OVER[WHERE]}, processes=1)
    assert CrewHere.asked == [3, 1, 1, 1]
    assert not result.failed


def test_reports_tell_of_parts_and_heat_is_weighed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    weighed = list[Problem]()

    def find(problem: Problem) -> Weights | None:
        weighed.append(problem)
        return find_weights(problem)

    monkeypatch.setattr("tetris_sim.outputs.meter.find_weights", find)
    monkeypatch.setattr("tetris_sim.api.sweeping.ProcessPool", CrewHere)
    over = "  statistics: {every: 20 steps, over: {left: {box: {x: [0, 6 mm]}}}}\n"
    result = tetris_sim.sweep(write(tmp_path, more=over), {WHERE: OVER[WHERE]}, processes=1)
    assert CrewHere.asked == [3]
    assert len(weighed) == 1

    for row in result.rows:
        told = [f"{WHERE}='{row[WHERE]}'", f"output.directory=alone{row['run']}"]
        alone = launch(load_config(tmp_path / "plate.yaml", overrides=told))
        report = read_report(result.directory / "runs" / f"{row['run']:04}" / "report.json")
        assert any(name.startswith("left ") for name in report.heat)
        assert report.heat == alone.heat


def test_a_batch_that_is_stopped_goes_on_run_by_run(
    plate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Impatient(Stopping):
        def reason(self, block_seconds: float = 0.0) -> StopReason | None:
            return StopReason(ExitCode.REQUEUE, "enough")

    over = {WHERE: OVER[WHERE]}
    monkeypatch.setattr("tetris_sim.api.sweeping.ProcessPool", CrewHere)
    whole = tetris_sim.sweep(plate, over, processes=1, directory="whole")
    monkeypatch.setattr(sweep_workers, "Stopping", Impatient)
    stopped = tetris_sim.sweep(plate, over, processes=1, directory="stopped")
    assert stopped.exit_code == ExitCode.REQUEUE
    folder = stopped.directory / "runs" / "0002"
    assert 0 < read_report(folder / "report.json").step < 40

    monkeypatch.undo()
    monkeypatch.chdir(plate.parent)
    monkeypatch.setattr("tetris_sim.api.sweeping.ProcessPool", CrewHere)
    after = tetris_sim.sweep(plate, over, processes=1, directory="stopped")
    assert CrewHere.asked == [1, 1, 1]
    assert after.exit_code == ExitCode.OK
    found, wanted = left_by(folder), left_by(whole.directory / "runs" / "0002")
    assert found["probes/mid.csv"] == wanted["probes/mid.csv"]
    assert found["statistics.csv"].splitlines()[-1] == wanted["statistics.csv"].splitlines()[-1]


@pytest.mark.parametrize(
    ("more", "over", "said"),
    [
        ("checkpoint: {every: 10 steps}\n", {}, "checkpoints on the way"),
        ("run: {max_walltime: 1 h}\n", {}, "limits of time"),
        ("", {"initial.expression": ["x"]}, "no two of them differ"),
        ("", {"time.scheme": ["auto"]}, "schemes may differ"),
        ("", {"grid.shape": [[2000, 1000]]}, "at most 1048576 points"),
    ],
)
def test_why_runs_are_not_made_together_is_said(
    tmp_path: Path, more: str, over: dict[str, list[Any]], said: str
) -> None:
    path = write(tmp_path, more=more)
    cases = make_cases(path, {WHERE: ["x", "y"], **over}, tmp_path / "sweep", zipped=False)
    batches, how = make_batches(cases, 1)
    assert said in how
    assert all(len(batch) == 1 for batch in batches)


def test_seats_share_out_a_group(plate: Path, tmp_path: Path) -> None:
    over = {WHERE: [f"{k}*x" for k in range(7)]}
    cases = make_cases(plate, over, tmp_path / "sweep", zipped=False)
    batches, how = make_batches(cases, 3)
    assert [len(batch) for batch in batches] == [3, 3, 1]
    assert how.startswith("Up to 3 runs together")


def test_problems_that_differ_in_more_are_refused(plate: Path) -> None:
    problems = [load_config(plate, overrides=[f"{H}={h}"]).build() for h in (1, 2)]
    assert "boundary" in str(why_not_planes(problems))
    with pytest.raises(ValueError, match="boundary"):
        together(problems)


def test_a_part_of_the_planes_begins_as_that_part_of_each(plate: Path) -> None:
    problems = [load_config(plate, overrides=[f"{WHERE}='{k}*x'"]).build() for k in range(4)]
    slab = Slab.box(((1, 3), (2, 7), (4, 6)))
    part = together(problems).initial(slab)
    for k in (1, 2):
        np.testing.assert_array_equal(
            part[:, k - 1], problems[k].initial(Slab.box(((2, 7), (4, 6))))
        )
