"""The function on arrays."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tetris_sim as ts
from tetris_sim.errors import ConfigError, NumericsError, UnstableStepError
from tetris_sim.model import reference
from tetris_sim.model.stencil import euler_step, largest_stable_dt
from tetris_sim.model.stencils.catalogue import laplacian, laplacian_names, named_stencil

# Which proposal is the fastest changes nothing here.
pytestmark = pytest.mark.usefixtures("_nothing_is_timed")

SHAPES = {1: (41,), 2: (13, 22), 3: (6, 9, 11)}


def start(ndim: int, dtype: Any = np.float64) -> Any:
    return np.random.default_rng(ndim).uniform(-1, 2, SHAPES[ndim]).astype(dtype)


def stepped(
    u: Any, stencil: ts.Stencil, boundary: ts.Boundary, steps: int, spacing: tuple[float, ...]
) -> Any:
    """The same by the reference."""
    state = u[np.newaxis]
    for _ in range(steps):
        state = reference.step(state, stencil, boundary, spacing)
    return state[0]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", [name for ndim in (1, 2, 3) for name in laplacian_names(ndim)])
def test_it_takes_steps_with_the_named_laplacian(name: str, dtype: Any) -> None:
    ndim = int(name[name.index("-") + 1])
    u = start(ndim, dtype)
    kept = u.copy()
    found = ts.thermal_diffusion(u, 7, name, cfl=0.1)
    step = euler_step(laplacian(name, (1.0,) * ndim), 0.1)
    expected = stepped(u, step, ts.Boundary.everywhere(ts.Neumann(), ndim), 7, (1.0,) * ndim)
    assert found.dtype == dtype
    np.testing.assert_allclose(
        found, expected, rtol=0, atol=7 * 2 * (2 * step.n_points + 2) * np.finfo(dtype).eps * 2
    )
    np.testing.assert_array_equal(u, kept)
    assert not np.shares_memory(found, u)


@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_without_a_name_it_is_the_usual_laplacian_at_092_of_the_limit(ndim: int) -> None:
    limit = largest_stable_dt(laplacian(f"heat-{ndim}d", (1.0,) * ndim))
    u = start(ndim)
    np.testing.assert_array_equal(
        ts.thermal_diffusion(u, 5), ts.thermal_diffusion(u, 5, f"heat-{ndim}d", cfl=0.92 * limit)
    )


def test_in_two_dimensions_that_is_the_cfl_number_of_the_paper() -> None:
    u = start(2)
    np.testing.assert_array_equal(
        ts.thermal_diffusion(u, 5), ts.thermal_diffusion(u, 5, "heat-2d", cfl=0.23)
    )


def test_physical_numbers_mean_the_same_as_a_cfl_number() -> None:
    u, spacing = start(2), (0.2, 0.1)
    physical = ts.thermal_diffusion(u, 9, diffusivity=1e-3, dt=2.0, spacing=spacing)
    np.testing.assert_allclose(
        physical, ts.thermal_diffusion(u, 9, cfl=0.2, spacing=spacing), rtol=0, atol=1e-14
    )
    step = euler_step(laplacian("heat-2d", spacing), 2e-3)
    expected = stepped(u, step, ts.Boundary.everywhere(ts.Neumann(), 2), 9, spacing)
    np.testing.assert_allclose(physical, expected, rtol=0, atol=1e-13)


def test_faces_follow_the_axes_of_the_array() -> None:
    boundary = ts.Boundary(((ts.Dirichlet(3.0), ts.Fixed(-1.0)), (ts.Periodic(), ts.Periodic())))
    u = start(2)
    step = euler_step(laplacian("heat-2d", (1.0, 1.0)), 0.2)
    found = ts.thermal_diffusion(u, 6, cfl=0.2, boundary=boundary)
    np.testing.assert_allclose(found, stepped(u, step, boundary, 6, (1.0, 1.0)), rtol=0, atol=1e-13)


def test_one_face_can_hold_everywhere() -> None:
    u = start(3)
    periodic = ts.thermal_diffusion(u, 4, boundary=ts.Periodic())
    rolled = ts.thermal_diffusion(np.roll(u, (2, 3, 4), (0, 1, 2)), 4, boundary=ts.Periodic())
    np.testing.assert_array_equal(np.roll(periodic, (2, 3, 4), (0, 1, 2)), rolled)


def test_a_stencil_of_your_own_is_one_step_as_it_is() -> None:
    u, stencil = start(2), named_stencil("box-2d25p").stencil
    found = ts.thermal_diffusion(u, 3, stencil, boundary=ts.Fixed(0.5))
    expected = stepped(u, stencil, ts.Boundary.everywhere(ts.Fixed(0.5), 2), 3, (1.0, 1.0))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13)


def test_it_is_what_the_configuration_does() -> None:
    config = ts.make_config(
        {
            "grid": {"shape": [22, 13], "size": [0.22, 0.26]},
            "model": {"type": "heat", "diffusivity": 1e-4},
            "initial": {"type": "gaussian", "amplitude": 100, "sigma": 0.03},
            "boundaries": {"*": {"type": "neumann"}},
            "time": {"cfl": 0.2, "steps": 30},
        },
        environ={},
    )
    problem = config.build()
    with ts.open_simulation(problem, ts.make_plan(problem, ts.find_machine())) as simulation:
        u0 = simulation.field()[0]
        simulation.run()
        expected = simulation.field()[0]
    found = ts.thermal_diffusion(
        u0, 30, diffusivity=1e-4, dt=problem.dt, spacing=problem.grid.spacing
    )
    np.testing.assert_array_equal(found, expected)


def test_no_steps_give_a_copy() -> None:
    u = start(2)
    found = ts.thermal_diffusion(u, 0)
    np.testing.assert_array_equal(found, u)
    assert not np.shares_memory(found, u)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (np.int64, np.float64),
        (bool, np.float64),
        (np.float16, np.float64),
        (np.float32, np.float32),
    ],
)
def test_other_numbers_are_computed_in_double_precision(given: Any, expected: Any) -> None:
    u = (start(2) * 3).astype(given)
    found = ts.thermal_diffusion(u, 2)
    assert found.dtype == expected
    np.testing.assert_array_equal(found, ts.thermal_diffusion(u.astype(expected), 2))


def test_the_precision_and_the_memory_layout_can_be_anything() -> None:
    u = start(2)
    assert ts.thermal_diffusion(u, 2, dtype="float32").dtype == np.float32
    assert ts.thermal_diffusion(u, 2, dtype="float16").dtype == np.float16
    np.testing.assert_array_equal(ts.thermal_diffusion(u.T, 2).T.shape, u.shape)
    strided = np.zeros((26, 44))[::2, ::2]
    strided[:] = u
    np.testing.assert_array_equal(ts.thermal_diffusion(strided, 3), ts.thermal_diffusion(u, 3))


def test_the_number_of_threads_does_not_change_the_result() -> None:
    u = start(3)
    np.testing.assert_array_equal(
        ts.thermal_diffusion(u, 5, threads=1), ts.thermal_diffusion(u, 5, threads=3)
    )


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"cfl": 0.1, "dt": 1.0}, "cfl and dt are given"),
        ({"dt": 1.0}, "give cfl alone, or diffusivity and dt"),
        ({"diffusivity": 1.0}, "give cfl alone, or diffusivity and dt"),
        ({"cfl": -0.1}, "cfl is -0.1"),
        ({"cfl": float("nan")}, "cfl is nan"),
        ({"dt": 0.0, "diffusivity": 1.0}, "dt is 0.0"),
        ({"stencil": "heat-3d"}, "'heat-3d' is no Laplacian for 2 axes.*heat-2d"),
        ({"stencil": "box-2d25p"}, "named_stencil"),
        (
            {"stencil": named_stencil("heat-2d").stencil, "cfl": 0.1},
            "cfl mean nothing for a Stencil",
        ),
        ({"stencil": named_stencil("heat-1d").stencil}, "the stencil has 1 axes, but field has 2"),
        ({"spacing": (1.0, 2.0, 3.0)}, "spacing has 3 entries, but field has 2 axes"),
        ({"spacing": 0.0}, "spacing is positive"),
        ({"spacing": (1e-60, 1.0)}, "differ by more than"),
        (
            {"boundary": ts.Boundary.everywhere(ts.Neumann(), 3)},
            "boundary has 3 axes, but field has 2",
        ),
        ({"boundary": ts.Dirichlet(1.7e308)}, "not finite"),
        ({"dtype": "int32"}, "dtype is int32"),
        ({"dtype": "float46"}, "dtype is float46"),
        ({"threads": 0}, "threads is 0"),
        ({"method": "cpu.nope"}, "cpu.nope"),
        ({"steps": -1}, "steps is -1"),
        ({"steps": 1.5}, "steps is 1.5"),
        ({"field": np.zeros((2, 2, 2, 2))}, "1, 2 or 3 axes"),
        ({"field": np.zeros((0, 3))}, "1, 2 or 3 axes"),
        ({"field": np.zeros((3, 3), dtype=complex)}, "real numbers"),
        ({"field": np.zeros((2, 3)), "stencil": "star-2d13p"}, "reaches 3"),
        ({"threads": 1.5}, r"threads is 1\.5; a whole number, 1 or more, is wanted"),
        ({"diffusivity": 1e-4}, "diffusivity by itself does not say how long"),
        ({"dt": "1 s", "diffusivity": 1.0}, r"dt is 1 s; a finite number greater than 0"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_in_words(
    arguments: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ConfigError, match=complaint):
        ts.thermal_diffusion(**{"field": start(2), "steps": 1, **arguments})


def test_a_stencil_that_would_create_heat_at_an_insulated_face_is_refused() -> None:
    skew = ts.named_stencil("heat-2d-tensor").stencil
    with pytest.raises(ConfigError, match=r"boundary, axis 0: the weights .* create heat"):
        ts.thermal_diffusion(np.ones((8, 9)), 3, skew)
    u = ts.thermal_diffusion(np.ones((8, 9)), 3, skew, boundary=ts.Dirichlet(1.0))
    np.testing.assert_allclose(u, 1.0, rtol=1e-14)


def test_an_unstable_step_is_refused_with_the_largest_stable_one() -> None:
    with pytest.raises(UnstableStepError, match=r"0\.3 is unstable.*0\.25"):
        ts.thermal_diffusion(start(2), 1, cfl=0.3)
    with pytest.raises(UnstableStepError, match=r"dt = 0\.0025 s"):
        ts.thermal_diffusion(start(2), 1, diffusivity=1.0, dt=0.003, spacing=0.1)


def test_a_start_that_is_not_finite_is_refused_at_its_place() -> None:
    u = start(2)
    u[4, 7] = np.inf
    with pytest.raises(NumericsError, match=r"field\[4, 7\] is inf"):
        ts.thermal_diffusion(u, 1)


def test_a_stencil_that_explodes_is_told() -> None:
    with pytest.raises(NumericsError, match="the field is not finite any more"):
        ts.thermal_diffusion(np.ones(9), 400, ts.Stencil(((0,),), (10.0,)))


def test_the_example_of_the_python_api_runs(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(
        str(Path(__file__).parents[2] / "examples" / "python_api.py"), run_name="__main__"
    )
    first, second = capsys.readouterr().out.splitlines()
    assert "steps of" in first
    assert second.endswith("their sum is still 2000.0")
