"""What float16 costs is said before and after a run; whole runs in float16, their files, and how
they go on.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tetris_sim.config import Config, make_config
from tetris_sim.cpu_kernels.plain.method import CpuPlainMethod
from tetris_sim.model import reference
from tetris_sim.model.slab import Slab
from tetris_sim.outputs.checkpoint import open_checkpoint
from tetris_sim.scheduler.facts.shares import Plan, Share
from tetris_sim.simulation import precision_notes
from tetris_sim.simulation.launch import launch
from tetris_sim.simulation.precision_notes import first_step, half_precision_notes, half_spacing


def plate(**others: Any) -> Config:
    """A hot spot, convection on one side."""
    values = {
        "grid": {"shape": [40, 30], "size": ["15 mm", "15 mm"]},
        "model": {"type": "heat", "material": "copper"},
        "initial": {"type": "gaussian", "amplitude": 100, "sigma": "2.15 mm"},
        "boundaries": {"*": {"type": "neumann"}, "x-": {"type": "robin", "h": 25, "ambient": 20}},
        "time": {"cfl": 0.2, "steps": 12},
        "compute": {"precision": "float16", "devices": "cpu", "threads": 2, "tuning_budget": 0},
    }
    return make_config({**values, **others}, environ={})


def notes_of(config: Config, steps_per_block: int = 1) -> tuple[str, ...]:
    problem = config.build()
    share = Share(
        "cpu:0",
        Slab.whole(problem.grid),
        CpuPlainMethod(),
        {"steps_per_block": steps_per_block},
        1,
        1e9,
        0,
    )
    plan = Plan((share,), 1, 1.0, 0.0, copy_for_checkpoints=False, reasons=())
    return half_precision_notes(config, problem, plan)


@given(st.floats(-65000.0, 65000.0))
def test_the_spacing_is_that_of_numpy(value: float) -> None:
    magnitude = np.float16(abs(value))
    if float(magnitude) == abs(value):
        assert half_spacing(value) == float(np.nextafter(magnitude, np.float16(np.inf)) - magnitude)
    assert half_spacing(value) <= max(2.0**-10 * abs(value), 2.0**-24)


def test_the_first_step_of_a_large_grid_is_looked_at_in_slabs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problem = plate(compute={"precision": "float64"}).build()
    before = problem.initial(Slab.whole(problem.grid))
    change = float(np.abs(reference.advance(before, problem, 1) - before).max())
    whole = first_step(problem)
    assert (whole.largest, whole.change, whole.partly) == (float(before.max()), change, False)
    assert whole.ghosts >= whole.largest
    monkeypatch.setattr(precision_notes, "_SLAB_POINTS", 5 * 40)
    few = first_step(problem)
    assert few.partly
    assert 0 < few.change <= change
    monkeypatch.setattr(precision_notes, "_MOST_SLABS", 6)  # six of five rows hold all 30
    assert first_step(problem) == whole


def test_what_faces_pull_a_field_to_counts() -> None:
    cold = {"initial": {"type": "constant", "value": 0}}
    hot = {"*": {"type": "dirichlet", "value": 300}, "y": {"type": "robin", "h": 25, "ambient": 20}}
    found = first_step(plate(**cold, boundaries=hot, compute={"precision": "float64"}).build())
    assert found.largest == pytest.approx(300)
    assert found.spacing == 0.25
    assert found.change > 50


def test_nothing_is_said_of_other_precisions() -> None:
    for precision in ("float64", "float32"):
        assert notes_of(plate(compute={"precision": precision})) == ()


def test_a_coarse_plate_is_bounded_and_does_not_freeze() -> None:
    spacing, bound = notes_of(plate())
    assert "0.0625 degC apart" in spacing
    assert "rounded every step" in spacing
    assert "may differ from that of float64 by up to" in bound


def test_what_is_said_to_freeze_does() -> None:
    config = plate(time={"cfl": 1e-3, "steps": 200})
    *_, freezes = notes_of(config)
    assert "freezes near 98.95 degC" in freezes
    problem = config.build()
    start = problem.initial(Slab.whole(problem.grid))
    hottest = start > 0.9 * start.max()
    assert np.all(reference.advance(start, problem, 50)[hottest] == start[hottest])
    exact = dataclasses.replace(problem, dtype=np.dtype(np.float64))
    assert np.any(reference.advance(start, exact, 50)[hottest] < start[hottest] - 0.1)


def test_steps_that_are_rounded_together_freeze_less() -> None:
    config = plate(time={"cfl": 0.004, "steps": 200}, boundaries={"*": {"type": "neumann"}})
    assert any("freezes" in note for note in notes_of(config))
    together = notes_of(config, 20)
    assert "rounded every 20 steps" in together[0]
    assert not any("freezes" in note for note in together)


def test_many_launches_have_no_useful_bound() -> None:
    assert any(
        "nothing bounds the difference" in note
        for note in notes_of(plate(time={"cfl": 0.2, "steps": 5000}))
    )


def test_a_state_that_is_not_there_any_more_is_no_error(tmp_path: Path) -> None:
    path = tmp_path / "start.npy"
    np.save(path, np.ones((30, 40)))
    config = plate(initial={"type": "file", "path": str(path)})
    problem = config.build()
    path.unlink()
    share = Share("cpu:0", Slab.whole(problem.grid), CpuPlainMethod(), {}, 1, 1e9, 0)
    plan = Plan((share,), 1, 1.0, 0.0, copy_for_checkpoints=False, reasons=())
    (note,) = half_precision_notes(config, problem, plan)
    assert "by up to 2^-11 of itself" in note


def test_a_run_in_float16_reports_its_cost_and_goes_on_with_the_same_bits(tmp_path: Path) -> None:
    def run_in(folder: str, steps: int, resume: str = "never") -> Any:
        output = {
            "directory": str(tmp_path / folder),
            "fields": {"every": "6 steps"},
            "statistics": {"every": "6 steps"},
        }
        config = plate(
            time={"cfl": 0.2, "steps": steps},
            output={**output, "pictures": False},
            checkpoint={"every": "7 steps"},
        )
        return launch(config, resume=resume)  # type: ignore[arg-type]

    report = run_in("whole", 12)
    assert report.precision == "float16"
    assert any("0.0625 degC apart" in note for note in report.notes)
    assert "0.0625 degC apart" in (tmp_path / "whole" / "report.txt").read_text()
    assert json.loads((tmp_path / "whole" / "report.json").read_text())["notes"] == list(
        report.notes
    )
    last = tmp_path / "whole" / "checkpoints" / "checkpoint_000000000012.h5"
    with open_checkpoint(last) as checkpoint:
        assert checkpoint.dtype == np.float16
        state = checkpoint.read(((0, 30), (0, 40)))
    with h5py.File(tmp_path / "whole" / "fields.h5") as file:  # no other program reads float16
        assert file["temperature"].dtype == np.float32
        np.testing.assert_array_equal(file["temperature"][-1], state[0].astype(np.float32))
    last.unlink()
    run_in("whole", 12, resume="auto")
    with open_checkpoint(last) as checkpoint:
        np.testing.assert_array_equal(checkpoint.read(((0, 30), (0, 40))), state)
    table = np.genfromtxt(tmp_path / "whole" / "statistics.csv", delimiter=",", skip_header=1)
    assert table[-1, 4] == pytest.approx(state.astype(np.float64).mean(), rel=1e-12)


def test_of_a_field_that_does_not_fit_nothing_else_is_said() -> None:
    (said,) = notes_of(
        plate(
            initial={"type": "gaussian", "amplitude": 60000, "background": 60000, "sigma": "2 mm"}
        )
    )
    assert (
        said
        == "float16: the field reaches 1.193e+05 degC, and float16 holds 65504 at most. Use float32."
    )
    wall = {"*": {"type": "dirichlet", "value": 40000}}
    (said,) = notes_of(plate(initial={"type": "constant", "value": 0}, boundaries=wall))
    assert "ghosts beside the faces may reach 1.05e+05 degC" in said


def test_the_largest_number_is_a_number() -> None:
    said = notes_of(
        plate(
            initial={"type": "constant", "value": 65504},
            boundaries={"*": {"type": "fixed", "value": 0}},
        )
    )
    assert "are 32 degC apart" in said[0]
    assert not any("inf" in sentence or "freezes" in sentence for sentence in said)


def test_where_waves_grow_nothing_bounds_the_difference() -> None:
    growing = {
        "type": "stencil",
        "offsets": [[-1], [0], [1]],
        "weights": [0.3, 0.9, 0.3],
        "allow_growth": True,
    }
    config = plate(
        grid={"shape": [64]},
        model=growing,
        initial={"type": "random", "low": 0.3, "high": 1, "seed": 7},
        boundaries={"*": {"type": "periodic"}},
        time={"steps": 25},
    )
    said = notes_of(config)
    assert any(sentence.startswith("float16: waves grow with every step") for sentence in said)
    assert not any("may differ from that of float64 by up to" in sentence for sentence in said)


def test_numbers_that_are_not_stored_may_be_large() -> None:
    """A flux, and coefficients of ghosts: both are computed in float32."""
    flux = {"*": {"type": "neumann", "flux": "1e5 W/m^2"}}
    assert plate(boundaries=flux).build().dtype == np.float16
    assert (
        plate(boundaries={"*": {"type": "dirichlet", "value": 40000}}).build().dtype == np.float16
    )
