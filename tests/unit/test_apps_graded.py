"""Bodies on graded axes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.body_samples import PLAIN, build, finish, heat_model, settings, settle, start
from tests.unit.test_apps_body import ENDS, LAYERS
from tetris_sim.config import ConfigMistakesError, make_config
from tetris_sim.model.grid import Grid
from tetris_sim.model.problem import Problem


def heat_of(problem: Problem, u: np.ndarray[Any, Any]) -> float:
    assert problem.conduction is not None
    assert problem.conduction.coefficients is not None
    whole = tuple((0, n) for n in problem.grid.shape)
    capacity = problem.conduction.coefficients.capacity(whole)
    return float((np.where(np.isfinite(capacity), capacity, 0.0) * u).sum())


def test_positions_widths_and_volumes() -> None:
    grid = Grid.graded((2, 3), (4.0, 6.0), (None, (0.0, 1.0, 3.0, 6.0)))
    assert grid.coordinates(1).tolist() == [0.5, 2.0, 4.5]
    assert grid.coordinates(1, 1, 2).tolist() == [2.0]
    assert grid.widths(1).tolist() == [1, 2, 3]
    assert (grid.size, grid.spacing, grid.origin) == ((4.0, 6.0), (2.0, 1.0), (1.0, 0.5))
    assert grid.volumes(((0, 1), (1, 3))).tolist() == [[4.0, 6.0]]
    assert grid.volumes(((0, 2), (0, 3))).sum() == pytest.approx(grid.cell_volume * 6)
    assert grid.on_shape((5, 2)).coordinates(1).tolist() == [0.5, 2.0]
    with pytest.raises(ValueError, match="ascending"):
        Grid.graded((3,), (1.0,), ((0.0, 0.5, 0.4, 1.0),))


def test_even_edges_are_an_even_grid() -> None:
    sections: dict[str, Any] = {
        "model": heat_model(
            {"material": "brick"},
            {"material": "board", "where": "x + y > 0.61"},
            {"fluid": {"ambient": 5, "h": 3}, "box": {"x": [0.2, 0.3], "y": [0.2, 0.3]}},
            materials=LAYERS,
            contacts=[{"between": ["brick", "board"], "resistance": 0.3}],
            sources=[{"power": 7, "box": {"x": [0, 0.3]}}],
        ),
        "initial": {"type": "expression", "expression": "sin(9*x + y)"},
        "boundaries": {**ENDS, "y": {"type": "periodic"}},
        "time": {"dt": 1e-3, "steps": 25},
    }
    size = {"shape": [6, 4], "size": [0.6, 0.4]}
    graded = {
        "x": {"edges": [0.1 * n for n in range(6)] + [0.6]},
        "y": {"segments": [{"to": 0.4, "n": 4}]},
    }
    even, uneven = build(grid=size, **sections), build(grid={**size, "graded": graded}, **sections)
    assert even.dt_limit == pytest.approx(uneven.dt_limit)
    np.testing.assert_allclose(finish(even), finish(uneven), rtol=1e-11)


def test_a_composite_wall_on_a_graded_grid_is_exact() -> None:
    segments = [{"to": 0.2, "n": 2}, {"to": 0.3, "n": 5}, {"to": 0.6, "n": 4}]
    problem = build(
        grid={"shape": [11, 2], "size": [0.6, 0.2], "graded": {"x": {"segments": segments}}},
        model=heat_model(
            {"material": "brick"},
            {"material": "foam", "box": {"x": [0.2, 0.3]}},
            {"material": "board", "where": "x > 0.3"},
            materials=LAYERS,
            contacts=[{"between": ["foam", "brick"], "resistance": 0.5}],
        ),
        boundaries=ENDS,
    )
    flux = 30 / (0.2 / 0.7 + 0.5 + 0.1 / 0.03 + 0.3 / 0.2 + 1 / 8.0)
    x = problem.grid.coordinates(1)
    after = 0.2 / 0.7 + 0.5
    drop = np.where(
        x < 0.2,
        x / 0.7,
        np.where(x < 0.3, after + (x - 0.2) / 0.03, after + 0.1 / 0.03 + (x - 0.3) / 0.2),
    )
    u = settle(problem, steps=20)
    np.testing.assert_allclose(u, np.broadcast_to(20 - flux * drop, u.shape), atol=1e-9)


def test_heat_is_that_of_the_source_and_is_kept() -> None:
    edges = [0, 0.05, 0.2, 0.3, 0.7, 0.8, 1.2]
    problem = build(
        grid={"shape": [6, 3], "size": [1.2, 0.6], "graded": {"x": {"edges": edges}}},
        model=heat_model(
            {"material": "brick"},
            {"material": "foam", "where": "x > 0.5"},
            materials=LAYERS,
            sources=[{"power": 3, "box": {"x": [0.1, 0.75]}}],
        ),
        initial={"type": "expression", "expression": "cos(5*x) + y"},
        time={"dt": "auto", "steps": 40},
    )
    gained = heat_of(problem, finish(problem)) - heat_of(problem, start(problem)[0])
    assert gained == pytest.approx(3 * problem.time(40), rel=1e-11)


def test_the_largest_stable_step_is_that_of_the_narrowest_cell() -> None:
    grid = {"shape": [3], "size": [0.5], "graded": {"x": {"edges": [0, 0.2, 0.3, 0.5]}}}
    problem = build(grid=grid, model={"type": "heat", **PLAIN})
    # 0.1 m wide, 0.15 m from its neighbours on both sides
    assert problem.dt_limit == pytest.approx(0.1 / (2 / 0.15))


@pytest.mark.parametrize(
    ("graded", "message"),
    [
        ({"x": {"edges": [0, 0.3, 0.2, 1.2]}}, "they begin at 0 and ascend"),
        ({"x": {"segments": [{"to": 1.2, "n": 3}]}}, "has 3 cells, but shape says 12"),
        ({"x": {"segments": [{"to": 1, "n": 12}]}}, "ends at 1 m; size must say the same"),
        ({"y": {"segments": [{"to": 1, "n": 12}]}}, "shape has 1 entries"),
        ({"x": {}}, "give either edges or segments"),
    ],
)
def test_axes_that_do_not_fit_are_refused(graded: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigMistakesError, match=message):
        make_config(settings(grid={"shape": [12], "size": [1.2], "graded": graded}))


def test_a_stencil_has_no_graded_axes() -> None:
    graded = {"x": {"segments": [{"to": 1.2, "n": 12}]}}
    model = {"type": "stencil", "stencil": "heat-1d"}
    grid = {"shape": [12], "size": [1.2], "graded": graded}
    with pytest.raises(ConfigMistakesError, match="so its cells are alike"):
        make_config(settings(grid=grid, model=model, time={"steps": 1}))
