"""The smallest bodies: one cell, graded or not, and cells from which no heat flows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tetris_sim.api.running import run
from tetris_sim.config import make_config
from tetris_sim.errors import ConfigError

PLAIN = {"conductivity": 2.0, "density": 1000, "specific_heat": 1000}
GRADED = {"x": {"edges": [0, 0.01]}}
ALONE = ({"void": True, "box": {"x": [0.05, 0.06]}}, {"void": True, "box": {"x": [0.07, 0.08]}})


def heated(grid: dict[str, Any], *regions: dict[str, Any], **sections: Any) -> dict[str, Any]:
    return {
        "grid": grid,
        "model": {
            "type": "heat",
            "materials": {"m": PLAIN, "wax": {**PLAIN, "latent_heat": 3000, "solidus": 2}},
            "regions": [{"material": "m"}, *regions],
            "sources": [{"density": 1e6}],
        },
        "initial": {"type": "constant", "value": 0},
        "boundaries": {"*": {"type": "neumann", "flux": 0}},
        "time": {"dt": 3.0, "steps": 4},
        "output": {"pictures": False},
        "compute": {"tuning_budget": 0},
        **sections,
    }


def last(data: dict[str, Any]) -> Any:
    return run(data, progress=False).field("temperature")


@pytest.mark.parametrize(
    "grid",
    [
        {"shape": [1], "size": [0.01]},
        {"shape": [1], "size": [0.01], "graded": GRADED},
        {"shape": [1, 1], "size": [0.01, 0.01], "graded": GRADED},
        {"shape": [1, 1, 1], "size": [0.01, 0.01, 0.01]},
    ],
    ids=["even", "graded", "plane", "cube"],
)
@pytest.mark.parametrize("time", [{"dt": 3.0, "steps": 4}, {"dt": 1e6, "t_end": 12.0}])
def test_an_insulated_cell_warms_by_its_source_whatever_dt(
    grid: dict[str, Any], time: dict[str, Any]
) -> None:
    data = heated(grid, time=time)
    np.testing.assert_allclose(last(data), np.full(grid["shape"], 12.0), rtol=1e-12)


def test_an_insulated_cell_melts() -> None:
    data = heated({"shape": [1], "size": [0.01]}, {"material": "wax"})
    np.testing.assert_allclose(last(data), [12 - 3], rtol=1e-9)


def test_implicit_steps_warm_it_as_well() -> None:
    data = heated({"shape": [1], "size": [0.01]}, time={"scheme": "implicit", "dt": 4, "t_end": 12})
    np.testing.assert_allclose(last(data), [12.0], rtol=1e-9)


@pytest.mark.parametrize("graded", [False, True])
def test_a_cell_between_voids_does_not_forbid_the_rest(graded: bool) -> None:
    grid: dict[str, Any] = {"shape": [8], "size": [0.08]}
    if graded:
        grid["graded"] = {"x": {"edges": [n / 100 for n in range(9)]}}
    found = last(heated(grid, *ALONE))
    np.testing.assert_allclose(found, [12, 12, 12, 12, 12, np.nan, 12, np.nan], rtol=1e-12)
    whole = {"shape": [3], "size": [0.03]}
    walls = [{"void": True, "box": {"x": [k / 100, (k + 1) / 100]}} for k in (0, 2)]
    np.testing.assert_allclose(last(heated(whole, *walls)), [np.nan, 12, np.nan], rtol=1e-12)


@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (5, 1)])
def test_one_graded_cell_across_gives_what_an_even_one_gives(shape: tuple[int, int]) -> None:
    faces = {"*": {"type": "dirichlet", "value": 10}}
    grid = {"shape": list(shape), "size": [0.01 * n for n in shape]}
    graded = {**grid, "graded": {"x": {"edges": [0.01 * n for n in range(shape[0] + 1)]}}}
    even = last(heated(grid, boundaries=faces))
    np.testing.assert_allclose(last(heated(graded, boundaries=faces)), even, rtol=1e-12)
    assert np.ptp(even) > 0.1 or even.size == 1


@pytest.mark.parametrize("time", [{"steps": 4}, {"dt": "auto", "t_end": 5}])
def test_an_automatic_step_says_that_nothing_limits_it(time: dict[str, Any]) -> None:
    data = heated({"shape": [1], "size": [0.01]}, time=time)
    with pytest.raises(ConfigError, match=r"time\.dt: auto: nothing limits .* give time\.dt"):
        make_config(data).build()
