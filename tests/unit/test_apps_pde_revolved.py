"""Equations around an axis or a centre: operators are those of the coordinates."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.support.body_samples import finish, settings, start
from tests.unit.test_apps_revolved import kept, round_grid, volumes
from tetris_sim import run
from tetris_sim.config import ConfigMistakesError, make_config
from tetris_sim.errors import ConfigError
from tetris_sim.model.problem import Problem

Section = dict[str, Any]


def slope(flux: float) -> Section:
    return {"type": "neumann", "flux": flux}


def equation(
    grid: Section, text: str, initial: str, boundaries: Section, dt: Any = 2.0**-10, **more: Any
) -> Problem:
    field = {"equation": text, "initial": {"type": "expression", "expression": initial}}
    sections = settings(
        grid=grid,
        model={"type": "pde", "fields": {"u": field}, **more},
        boundaries=boundaries,
        time={"dt": dt, "steps": 1},
    )
    del sections["initial"]
    return make_config(sections).build()


def rate(problem: Problem) -> Any:
    return (finish(problem) - start(problem)[0]) / problem.dt


@pytest.mark.parametrize(
    ("axes", "shape", "size", "initial", "edges", "wanted"),
    [
        ("r", [16], [2], "r**2", {"r+": slope(4)}, 4),
        ("ball r", [16], [2], "r**2", {"r+": slope(4)}, 6),
        (
            "r z",
            [16, 8],
            [2, 1],
            "r**2 + z**2",
            {"r+": slope(4), "z-": slope(0), "z+": slope(2)},
            6,
        ),
    ],
)
@pytest.mark.parametrize("text", ["laplace(u)", "div_grad(1, u)", "div_grad(1 + 0*u, u)"])
def test_the_laplacian_of_squares_is_exact_in_every_cell(
    axes: str, shape: list[int], size: Any, initial: str, edges: Section, wanted: float, text: str
) -> None:
    problem = equation(round_grid(axes, shape, size), text, initial, edges)
    np.testing.assert_allclose(rate(problem), wanted, rtol=1e-10)


@pytest.mark.parametrize(
    ("axes", "text", "initial", "wanted"),
    [
        ("r theta", "laplace(u)", "(r*cos(theta))**2", "2"),
        ("r theta", "div_grad(1 + r, u)", "(r*cos(theta))**2", "2*(1 + r) + 2*r*cos(theta)**2"),
        ("r theta", "advect(2, 3, u)", "r*cos(theta)", "2*cos(theta) - 3*sin(theta)"),
        ("r theta", "grad_squared(u)", "r*cos(theta)", "1"),
        ("r theta", "d_theta(u)*d_rr(u)", "r**2*sin(theta)", "r**2*cos(theta)*2*sin(theta)"),
        ("ball r theta", "laplace(u)", "(r*cos(theta))**2", "2"),
        (
            "ball r theta",
            "div_grad(1 + r, u)",
            "(r*cos(theta))**2",
            "2*(1 + r) + 2*r*cos(theta)**2",
        ),
        ("ball r", "div_grad(r, u)", "r**3", "15*r**2"),
        ("r z", "div_grad(z, u) + d_z(u)", "r**2*z", "4*z**2 + 2*r**2"),
        ("r", "biharmonic(u)", "r**4", "64"),
    ],
)
def test_operators_are_those_of_the_coordinates(
    axes: str, text: str, initial: str, wanted: str
) -> None:
    size = {"r": 1.0, "theta": "60 deg", "z": 1.0}
    names = axes.removeprefix("ball ").split()
    grid = round_grid(axes, [40] * len(names), [size[name] for name in names], origin={"r": 1.0})
    if "theta" in names:
        grid["origin"]["theta"] = "30 deg"
    problem = equation(
        grid, text, initial, {"*": slope(0)}, 1e-7, advection="central", allow_growth=True
    )
    inside = (slice(3, -3),) * len(names)
    along = [problem.grid.coordinates(k) for k in range(len(names))]
    at = dict(zip(problem.grid.axis_names, np.meshgrid(*along, indexing="ij"), strict=True))
    expected = eval(wanted, {"cos": np.cos, "sin": np.sin, **at})  # noqa: S307 (written above)
    expected = np.broadcast_to(expected, problem.grid.shape)
    np.testing.assert_allclose(rate(problem)[inside], expected[inside], rtol=3e-3, atol=3e-3)


WHOLE = [
    ("r theta", "360 deg", 4),
    ("r theta z", "360 deg", 4),
    ("ball r theta", "180 deg", 6),
]


def whole(axes: str, n: int, angle: str) -> Section:
    names = axes.removeprefix("ball ").split()
    return round_grid(axes, [n, 2 * n, 3][: len(names)], [2.0, angle, 1.0][: len(names)])


@pytest.mark.parametrize(("axes", "angle", "wanted"), WHOLE)
@pytest.mark.parametrize("text", ["laplace(u)", "div_grad(1, u)"])
def test_the_laplacian_of_r_squared_is_exact_at_all_angles(
    axes: str, angle: str, wanted: float, text: str
) -> None:
    faces = {"r+": slope(4), **({"z": slope(0)} if "z" in axes else {})}
    problem = equation(whole(axes, 8, angle), text, "r**2", faces, 2.0**-14)
    np.testing.assert_allclose(rate(problem), wanted, rtol=1e-9)


@pytest.mark.parametrize(("axes", "angle", "_"), WHOLE)
def test_a_straight_field_has_no_laplacian_but_of_second_order(
    axes: str, angle: str, _: int
) -> None:
    faces = {"r+": slope(0), **({"z": slope(0)} if "z" in axes else {})}
    errors = []
    for n in (8, 16):
        problem = equation(
            whole(axes, n, angle), "laplace(u)", "r*cos(theta)", faces, 1e-6, allow_growth=True
        )
        volumes = problem.grid.volumes([(0, it) for it in problem.grid.shape])
        # Not beside the surface, whose slope is another one.
        error = (np.sqrt(volumes) * rate(problem))[..., :-1]
        errors.append(np.linalg.norm(error))
    assert errors[0] / errors[1] > 3.5


def test_what_flows_across_the_axis_of_a_disc_is_kept() -> None:
    """A spot moves along x through r = 0, with a flux of first order."""
    spot = "exp(-((r*cos(theta) + 0.3)**2 + (r*sin(theta))**2)/0.02)"
    text = "-flux(cos(theta)*u, -sin(theta)*u, u)"
    off = []
    for n in (12, 24):
        grid = round_grid("r theta", [n, 4 * n], [1.0, "360 deg"])
        problem = equation(grid, text, spot, {"r+": slope(0)}, "auto")
        steps = round(0.4 / problem.dt)
        weights = problem.grid.volumes([(0, 4 * n), (0, n)])
        x = problem.grid.coordinates(1) * np.cos(problem.grid.coordinates(0))[:, None]
        first, last = start(problem)[0], finish(replace(problem, steps=steps))
        assert (weights * last).sum() == pytest.approx((weights * first).sum(), rel=2e-3)
        off.append(steps * problem.dt - 0.3 - (weights * last * x).sum() / (weights * last).sum())
    assert off[0] < 0.03
    assert off[0] / off[1] > 1.7


def test_derivatives_along_z_do_not_care_for_the_axis() -> None:
    grid = round_grid("r theta z", [3, 8, 6], [1.0, "360 deg", 6.0])
    problem = equation(grid, "d_z(u) + d_zz(u)", "z**2", {"r+": slope(0), "z": slope(0)}, 1e-7)
    z = problem.grid.coordinates(0)[1:-1, None, None]
    np.testing.assert_allclose(rate(problem)[1:-1], 2 * z + 2 + np.zeros((4, 8, 3)), rtol=1e-6)


def test_an_automatic_step_of_a_disc_is_that_of_its_narrow_cells() -> None:
    grid = round_grid("r theta", [10, 12], [1.0, "360 deg"])
    problem = equation(grid, "laplace(u)", "cos(theta)*r", {"r+": slope(0)}, "auto")
    arc = 0.05 * 2 * math.pi / 12
    assert problem.dt < 1.05 * arc**2 / 2


@pytest.mark.parametrize(
    ("grid", "text", "boundaries", "more", "message"),
    [
        (
            round_grid("r z", [8, 8], [1, 1]),
            "laplace(u)",
            {"*": slope(0), "r-": kept(1)},
            {},
            "r = 0 is the axis",
        ),
        (round_grid("r", [8], [1]), "d_z(u)", {"*": slope(0)}, {}, "the grid has no axis z"),
        (round_grid("r", [8], [1]), "dx(u)", {"*": slope(0)}, {}, "the grid has no axis x"),
        (round_grid("r", [8], [1]), "laplace(u)", {"*": slope(0)}, {"accuracy": 4}, "it is 2 with"),
        (
            round_grid("r theta", [8, 8], [1, "1 turn"]),
            "d_r(u)",
            {"*": slope(0)},
            {},
            "does not reach across r = 0",
        ),
        (
            round_grid("r theta", [8, 8], [1, "1 turn"]),
            "advect(1, 2, u)",
            {"*": slope(0)},
            {},
            "write it as flux",
        ),
        (
            round_grid("r theta", [8, 8], [1, "1 turn"]),
            "flux(u, 0*u, limiter: minmod)",
            {"*": slope(0)},
            {},
            "leave its limiter out",
        ),
        (
            round_grid("r theta", [8, 8], [1, "90 deg"]),
            "laplace(u)",
            {"*": slope(1)},
            {},
            "theta- takes a value of the field",
        ),
        (round_grid("r", [8], [1]), "heat_1d(u)", {"*": slope(0)}, {}, "for straight axes"),
    ],
)
def test_what_cannot_be_computed_is_refused(
    grid: Section, text: str, boundaries: Section, more: Section, message: str
) -> None:
    with pytest.raises(ConfigMistakesError, match=message):
        equation(grid, text, "r", boundaries, **more)


def test_a_constant_may_be_called_r_where_no_axis_is() -> None:
    grid = {"shape": [8], "size": [1]}
    problem = equation(grid, "r*u*theta", "1", {"*": slope(0)}, constants={"r": 2, "theta": "3*r"})
    np.testing.assert_allclose(rate(problem), 12)


def end_of(grid: Section, text: str, initial: str, boundaries: Section, **time: Any) -> Any:
    """The field at the end, (n0, ...)."""
    field = {"equation": text, "initial": {"type": "expression", "expression": initial}}
    sections = {
        "grid": grid,
        "model": {"type": "pde", "fields": {"u": field}},
        "boundaries": boundaries,
        "time": time,
        "compute": {"devices": ["cpu"], "tuning_budget": 0, "threads": 1},
    }
    return run(sections, progress=False).field()


def test_faces_around_an_axis_take_formulas_of_place_and_time() -> None:
    # r^2 z + z^3 + 10 z t is diffused as it is, by a value, a slope and a film.
    errors = []
    for n in (8, 16):
        edges = {
            "r+": kept("z + z**3 + 10*z*t"),
            "z-": {"type": "neumann", "flux": "-(r**2 + 10*t)"},
            "z+": {"type": "robin", "h": 2, "ambient": "1.5*r**2 + 2.5 + 15*t"},
        }
        grid = round_grid("r z", [n, n], [1, 1])
        time: Section = {"scheme": "implicit", "dt": 0.0125, "t_end": 0.1}
        found = end_of(grid, "laplace(u)", "r**2*z + z**3", edges, **time)
        z, r = np.meshgrid(*[(np.arange(n) + 0.5) / n] * 2, indexing="ij")
        errors.append(np.abs(found - (r**2 * z + z**3 + z)).max())
    assert errors[0] / errors[1] > 3.4


def test_the_edge_of_a_sector_is_held_along_it() -> None:
    errors = []
    for n in (8, 16):
        edges = {
            "r-": kept("0.25*cos(2*theta)"),
            "r+": {"type": "neumann", "flux": "3*cos(2*theta)"},
            "theta-": kept("r**2"),
            "theta+": kept("-r**2"),
        }
        grid = round_grid("r theta", [n, n], [1, "90 deg"], origin={"r": 0.5})
        found = end_of(grid, "laplace(u)", "0", edges, scheme="steady")
        half = (np.arange(n) + 0.5) / n
        theta, r = np.meshgrid(half * np.pi / 2, half + 0.5, indexing="ij")
        errors.append(np.abs(found - r**2 * np.cos(2 * theta)).max())
    assert errors[0] / errors[1] > 3.2


STOP: Section = {"type": "no_flux"}


@pytest.mark.parametrize(
    ("grid", "text"),
    [
        (round_grid("r", [24], [1]), "laplace(u) - flux(2*r*u)"),
        (round_grid("ball r", [24], [1]), "div_grad(1 + r, u) - flux(2*r*u)"),
        (
            round_grid("r", [6], [1], graded={"r": {"edges": [0, 0.4, 0.7, 0.8, 0.9, 0.95, 1]}}),
            "laplace(u) - flux(2*r*u)",
        ),
        (round_grid("r z", [6, 8], [1, 1]), "0.2*laplace(u) + dz(u) + div_grad(r, u)"),
        (
            round_grid("r theta", [6, 8], [1, "90 deg"], origin={"r": 0.5}),
            "laplace(u) - flux(0*u, sin(theta)*u)",
        ),
    ],
)
def test_a_wall_around_an_axis_stops_the_whole_flux(grid: Section, text: str) -> None:
    problem = equation(grid, text, "1 + r", {"*": STOP}, dt=2.0**-12)
    volume = volumes(problem)
    kept_of = float((volume * rate(problem)).sum() / np.abs(volume * rate(problem)).sum())
    assert abs(kept_of) < 1e-9
    if "r" in grid["axes"] and len(grid["axes"]) == 1 and "graded" not in grid:
        found = end_of(grid, text, "1", {"*": STOP}, scheme="implicit", dt=0.5, t_end=5)
        assert (volume * found).sum() == pytest.approx(volume.sum(), rel=1e-9)
        assert found.argmax() == found.size - 1


def test_walls_that_stop_no_more_than_slopes_are_insulated() -> None:
    grid = round_grid("r theta", [6, 8], [1, "90 deg"], origin={"r": 0.5})
    text, begin = "laplace(u) + div_grad(u, u)", "1 + 0.3*cos(theta)*r"
    found = [rate(equation(grid, text, begin, {"*": it}, dt=2.0**-12)) for it in (STOP, slope(0.0))]
    np.testing.assert_allclose(found[0], found[1], atol=1e-8)


@pytest.mark.parametrize("text", ["laplace(u) + dr(u)", "laplace(u) + advect(1, 0, u)"])
def test_a_slope_along_r_is_no_flow_that_a_wall_could_stop(text: str) -> None:
    grid = round_grid("r z", [6, 8], [1, 1])
    with pytest.raises(ConfigError, match=r"around an axis flux"):
        equation(grid, text, "1 + z", {"r+": STOP, "z-": slope(0), "z+": slope(0)})
    if "dr" in text:
        equation(grid, text, "1 + z", {"r+": slope(0), "z-": STOP, "z+": STOP})
