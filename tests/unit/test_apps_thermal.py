from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tetris_sim.apps.heat.materials import MATERIALS
from tetris_sim.apps.heat.model import HeatModel
from tetris_sim.config import make_config
from tetris_sim.errors import ConfigError, UnstableStepError
from tetris_sim.model.boundary import Boundary, Neumann, Robin
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab
from tetris_sim.model.stencil import euler_step, largest_stable_dt
from tetris_sim.model.stencils.catalogue import laplacian, laplacian_names


def settings(**sections: Any) -> dict[str, Any]:
    return {
        "grid": {"shape": [6, 5], "size": [0.3, 0.5]},
        "model": {"type": "heat", "material": "copper"},
        "initial": {"type": "constant", "value": 20},
        "boundaries": {"*": {"type": "neumann"}},
        "time": {"cfl": 0.2, "steps": 3},
        **sections,
    }


def build(dt: float | None = None, **sections: Any) -> Problem:
    config = make_config(settings(**sections))
    return config.model.build(config, dt=dt)


def body(**keys: Any) -> tuple[Any, ...]:
    found = HeatModel(type="heat", **keys).body()
    return found.diffusivity, found.conductivity, found.heat_capacity


def test_a_material_gives_all_properties() -> None:
    copper = MATERIALS["copper"]
    assert body(material="copper") == (copper.diffusivity, 401.0, 8933.0 * 385.0)


def test_numbers_of_your_own_count_more_than_the_material() -> None:
    a, k, c = body(material="copper", conductivity=200)
    assert (a, k, c) == (pytest.approx(200 / (8933 * 385)), 200, 8933 * 385)
    a, k, c = body(material="copper", specific_heat=400, density=9000)
    assert (a, k, c) == (pytest.approx(401 / 3.6e6), 401, 3.6e6)


def test_a_diffusivity_of_your_own_keeps_the_heat_capacity_and_sets_the_conductivity() -> None:
    a, k, c = body(material="copper", diffusivity=1.11e-4)
    assert (a, c) == (1.11e-4, 8933 * 385)
    assert k == pytest.approx(1.11e-4 * 8933 * 385)


def test_diffusivity_and_conductivity_of_your_own_set_the_heat_capacity() -> None:
    assert body(material="copper", diffusivity=1e-4, conductivity=300) == (
        1e-4,
        300,
        pytest.approx(3e6),
    )
    assert body(diffusivity=1e-4, conductivity=300) == (1e-4, 300, pytest.approx(3e6))


def test_a_diffusivity_alone_is_enough_for_the_temperature() -> None:
    assert body(diffusivity=1e-4) == (1e-4, None, None)


def test_conductivity_density_and_specific_heat_are_enough() -> None:
    assert body(conductivity=2, density=1000, specific_heat=500) == (pytest.approx(4e-6), 2, 5e5)


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"conductivity": 1},
        {"conductivity": 1, "density": 1},
        {"density": 1, "specific_heat": 1},
    ],
)
def test_too_few_properties_are_refused(keys: dict[str, float]) -> None:
    with pytest.raises(
        ValueError, match="give a material, or a diffusivity, or conductivity and density"
    ):
        body(**keys)


def test_four_numbers_that_contradict_each_other_are_refused_with_both_diffusivities() -> None:
    numbers = {"conductivity": 401, "density": 8933, "specific_heat": 385}
    assert body(diffusivity=1.17e-4, **numbers)[0] == 1.17e-4  # rounded as in a table
    with pytest.raises(ValueError, match=r"diffusivity is 0\.000111 m.*is 0\.000116597 m"):
        body(diffusivity=1.11e-4, **numbers)


def test_a_material_that_is_not_in_the_table_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ValueError, match=r"'coper' is not in the table.*did you mean 'copper'"):
        body(material="coper")


def test_properties_that_overflow_are_refused() -> None:
    with pytest.raises(ValueError, match="beyond what can be computed"):
        body(conductivity=1, density=1e200, specific_heat=1e200)


@pytest.mark.parametrize(("ndim", "size"), [(1, [0.7]), (2, [0.3, 0.5]), (3, [0.3, 0.5, 0.2])])
def test_a_step_is_forward_euler_with_the_named_laplacian(ndim: int, size: list[float]) -> None:
    for name in laplacian_names(ndim):
        problem = build(
            grid={"shape": [9, 7, 8][:ndim], "size": size},
            model={"type": "heat", "diffusivity": 1e-4, "stencil": name},
            time={"cfl": 0.1, "steps": 3},
        )
        assert problem.grid.spacing == pytest.approx(
            [length / n for length, n in zip(size, [9, 7, 8], strict=False)][::-1]
        )
        assert problem.dt == pytest.approx(0.1 * min(problem.grid.spacing) ** 2 / 1e-4)
        operator = laplacian(name, problem.grid.spacing)
        assert problem.dt_limit == pytest.approx(largest_stable_dt(operator) / 1e-4, rel=1e-9)
        expected = euler_step(operator, 1e-4 * problem.dt)
        assert problem.stencil.offsets == expected.offsets
        assert problem.stencil.weights == pytest.approx(expected.weights, rel=1e-12, abs=1e-15)


def test_the_plate_of_the_paper_has_the_weights_of_the_paper() -> None:
    problem = build(
        grid={"shape": [5, 5], "size": ["15 mm", "15 mm"]}, time={"cfl": 0.23, "steps": 1}
    )
    assert problem.stencil.offsets == ((-1, 0), (0, -1), (0, 0), (0, 1), (1, 0))
    assert problem.stencil.weights == pytest.approx(
        (0.23, 0.23, 1 - 4 * 0.23, 0.23, 0.23), rel=4e-15
    )


def test_the_usual_laplacian_is_taken_if_none_is_named() -> None:
    assert build().stencil.offsets == laplacian("heat-2d", (1.0, 1.0)).offsets


def test_a_laplacian_of_another_dimension_is_refused_at_its_key() -> None:
    with pytest.raises(ConfigError, match=r"model\.stencil.*heat-3d.*heat-2d, star-2d9p"):
        build(model={"type": "heat", "material": "copper", "stencil": "heat-3d"})


def test_heat_through_a_face_without_a_conductivity_is_refused_at_its_key() -> None:
    model = {"type": "heat", "diffusivity": 1e-4}
    robin = {"type": "robin", "h": 5, "ambient": 20}
    for face in (robin, {"type": "neumann", "flux": 3}):
        with pytest.raises(ConfigError, match=r"boundaries\.x-.*conductivity"):
            build(model=model, boundaries={"*": {"type": "neumann"}, "x-": face})
    problem = build(
        model=model, boundaries={"*": {"type": "neumann"}, "x-": {**robin, "conductivity": 7}}
    )
    assert problem.boundary == Boundary(((Neumann(), Neumann()), (Robin(5, 20, 7), Neumann())))


def test_faces_get_the_conductivity_of_the_body() -> None:
    robin = {"type": "robin", "h": 5, "ambient": 20}
    assert build(boundaries={"*": robin}).boundary.faces[0][0] == Robin(5, 20, 401)


def test_the_total_is_heat_where_the_capacity_is_known_and_an_integral_elsewhere() -> None:
    for ndim, unit in ((1, "J/m^2"), (2, "J/m"), (3, "J")):
        grid = {"shape": [4, 5, 6][:ndim], "size": [1] * ndim}
        total = build(grid=grid).variables[0].total
        assert (total.name, total.unit, total.density) == ("heat", unit, 8933 * 385)
        total = build(grid=grid, model={"type": "heat", "diffusivity": 1}).variables[0].total
        assert (total.name, total.density) == ("integral", 1.0)
        assert total.unit == ("degC m" if ndim == 1 else f"degC m^{ndim}")


def test_a_flux_through_a_face_brings_the_heat_that_it_should() -> None:
    from tetris_sim.model import reference

    flux = 1e5
    problem = build(
        model={"type": "heat", "material": "copper", "diffusivity": 1.11e-4},
        boundaries={"*": {"type": "neumann"}, "y+": {"type": "neumann", "flux": flux}},
        time={"cfl": 0.2, "steps": 40},
    )
    start = problem.initial(Slab.whole(problem.grid))
    end = reference.advance(start, problem, problem.steps)
    heat = (
        problem.variables[0].total.density * problem.grid.cell_volume * float((end - start).sum())
    )
    assert heat == pytest.approx(
        flux * 0.3 * problem.time(40), rel=1e-11
    )  # the face y+ is 0.3 m wide


def test_an_unstable_step_is_refused_with_the_largest_stable_one() -> None:
    with pytest.raises(UnstableStepError, match=r"cfl = 0\.3.*largest stable"):
        build(grid={"shape": [6, 5], "spacing": [0.1, 0.1]}, time={"cfl": 0.3, "steps": 1})


def test_a_continued_run_keeps_its_step() -> None:
    problem = build(time={"cfl": 0.2, "t_end": 10.0})
    again = build(dt=problem.dt, time={"cfl": 0.1, "t_end": 20.0})
    assert again.dt == problem.dt
    assert again.steps == 2 * problem.steps
    assert again.stencil == problem.stencil


def test_a_continued_run_does_not_need_the_file_of_its_initial_state(tmp_path: Path) -> None:
    path = tmp_path / "start.npy"
    np.save(path, np.zeros((5, 6)))
    initial = {"type": "file", "path": str(path)}
    dt = build(initial=initial).dt
    path.unlink()
    with pytest.raises(ConfigError, match="there is no file"):
        build(initial=initial)
    assert build(dt=dt, initial=initial).steps == 3


def test_precision_is_that_of_the_compute_section() -> None:
    problem = build(compute={"precision": "float32"})
    assert problem.dtype == np.float32
    assert problem.initial(Slab.whole(problem.grid)).dtype == np.float32


def test_a_grid_without_lengths_has_a_spacing_of_one() -> None:
    grid = build(grid={"shape": [6, 5]}).grid
    assert (grid.shape, grid.spacing, grid.origin) == ((5, 6), (1.0, 1.0), (0.5, 0.5))


@pytest.mark.parametrize(
    "sections",
    [
        {"grid": {"shape": [6, 5], "size": [1e-320, 1]}},
        {"grid": {"shape": [6, 5], "spacing": [1e200, 1e200]}},
        {"grid": {"shape": [6, 5], "spacing": [1e-200, 1e-200]}},
        {"grid": {"shape": [6, 5], "spacing": [1e-60, 1]}},
        {"grid": {"shape": [6, 5], "spacing": [1e308, 1e308]}},
        {"boundaries": {"*": {"type": "dirichlet", "value": 1.7e308}}},
        {
            "boundaries": {"*": {"type": "neumann", "flux": 1e308}},
            "grid": {"shape": [6, 5], "spacing": [1e9, 1e9]},
        },
        {
            "boundaries": {"*": {"type": "fixed", "value": 1e39}},
            "compute": {"precision": "float32"},
        },
        {"model": {"type": "heat", "diffusivity": 1e-320}, "time": {"t_end": 1, "dt": 1}},
        {"time": {"t_end": 1e300}},
    ],
)
def test_absurd_numbers_are_a_configuration_error(sections: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        build(**sections)


def test_a_grid_smaller_than_the_stencil_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"2 points along x.*reaches 3"):
        build(
            grid={"shape": [2, 5]},
            model={"type": "heat", "diffusivity": 1, "stencil": "star-2d13p"},
            time={"steps": 1},
        )


def test_dt_auto_stays_below_the_limit_by_the_safety_factor() -> None:
    problem = build(time={"dt": "auto", "safety": 0.8, "steps": 1})
    assert problem.dt == pytest.approx(0.8 * problem.dt_limit)
    assert not math.isinf(problem.dt_limit)
