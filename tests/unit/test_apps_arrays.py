"""Bodies of arrays are those of configurations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.body_samples import build, finish, heat_model
from tetris_sim import Boundary, Dirichlet, Neumann, Periodic, Robin
from tetris_sim.api.arrays import body_problem, thermal_diffusion
from tetris_sim.errors import ConfigError, UnstableStepError
from tetris_sim.model import reference
from tetris_sim.model.grid import Grid

GRID = Grid.box((4, 6), (0.4, 0.6))
NUMBERS: dict[str, Any] = {"conductivity": [1.0, 5.0], "capacity": [2.0, 3.0]}
IDS = np.zeros((4, 6), int)
IDS[1:3, 2:] = 1


def test_arrays_and_configuration_are_one_problem() -> None:
    faces = Boundary(((Periodic(), Periodic()), (Dirichlet(7.0), Robin(3.0, -2.0))))
    heat = np.where(np.arange(6) < 3, 40.0, 0.0) * np.ones((4, 1))
    problem = body_problem(
        np.ones((4, 6)), GRID, faces, 1e-4, 12, materials=IDS, sources=heat, **NUMBERS
    )
    materials = {
        "a": {"conductivity": 1, "density": 2, "specific_heat": 1},
        "b": {"conductivity": 5, "density": 3, "specific_heat": 1},
    }
    same = build(
        grid={"shape": [6, 4], "size": [0.6, 0.4]},
        model=heat_model(
            {"material": "a"},
            {"material": "b", "box": {"x": [0.2, 0.6], "y": [0.1, 0.3]}},
            materials=materials,
            sources=[{"density": 40, "box": {"x": [0, 0.3]}}],
        ),
        initial={"type": "constant", "value": 1},
        boundaries={
            "y": {"type": "periodic"},
            "x-": {"type": "dirichlet", "value": 7},
            "x+": {"type": "robin", "h": 3, "ambient": -2},
        },
        time={"dt": 1e-4, "steps": 12},
    )
    found = reference.advance(np.ones((1, 4, 6)), problem, 12)[0]
    np.testing.assert_array_equal(found, finish(same))
    assert problem.dt_limit == pytest.approx(same.dt_limit)
    assert problem.ruled_face(1, "low").lasting == (14.0, -1.0)


def test_a_face_of_a_flux_heats_the_points_beside_it() -> None:
    faces = Boundary.everywhere(Neumann(flux=10.0), 2)
    problem = body_problem(np.zeros((4, 6)), GRID, faces, None, 1, materials=IDS, **NUMBERS)
    u = reference.advance(np.zeros((1, 4, 6)), problem, 1)[0]
    capacity = np.array([2.0, 3.0])[IDS]
    assert (capacity * u).sum() * 0.01 == pytest.approx(10 * 2.0 * problem.dt)
    assert problem.dt == pytest.approx(0.92 * problem.dt_limit)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"materials": IDS}, "need the conductivity"),
        ({"materials": IDS[:2], **NUMBERS}, r"materials has the shape \(2, 6\)"),
        ({"materials": IDS + 1, **NUMBERS}, "whole numbers from 0 to 1"),
        ({"materials": IDS * 1.0, **NUMBERS}, "whole numbers"),
        ({**NUMBERS, "conductivity": [1.0, 0.0]}, "greater than 0"),
        ({**NUMBERS, "conductivity": [1.0]}, "one number per material"),
        ({**NUMBERS, "sources": np.full((4, 6), np.nan)}, "sources must be finite"),
        ({**NUMBERS, "cfl": 0.1}, "cfl and materials"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        thermal_diffusion(np.zeros((4, 6)), 1, **keys)


def test_a_step_that_is_too_large_is_refused() -> None:
    with pytest.raises(UnstableStepError, match="largest stable step"):
        thermal_diffusion(np.zeros((4, 6)), 1, dt=10.0, materials=IDS, **NUMBERS)
