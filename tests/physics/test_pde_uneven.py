"""Equations on axes whose cells differ in width, and fluxes around an axis or a centre.

The right values are manufactured states, integrals that must not change, and matrices that NumPy
takes apart; methods have the bits of the first one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.support.cases import run
from tests.support.config_cases import mistakes, read
from tests.support.pde_cases import affine, whole_and_continued
from tetris_sim.cpu_kernels import METHODS
from tetris_sim.cpu_kernels.common.stepper import ThreadTeam
from tetris_sim.model import reference
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab

Numbers = npt.NDArray[np.float64]


def ends(n: int, power: float = 1.6) -> list[float]:
    """The ends of cells that become wider and wider, from 0 to 1."""
    return [float(it) for it in np.linspace(0, 1, n + 1) ** power]


def graded(n: int, of: str = "x") -> dict[str, Any]:
    return {of: {"edges": ends(n)}}


def centres(n: int) -> Numbers:
    edges = np.array(ends(n))
    return np.asarray((edges[1:] + edges[:-1]) / 2)


def text_of(equation: str, grid: str, faces: str, initial: str = "0*x", **time: Any) -> str:
    return f"""\
grid: {{{grid}}}
model:
  type: pde
  fields:
    u: {{equation: "{equation}", initial: {{type: expression, expression: "{initial}"}}}}
boundaries: {faces}
time: {{{", ".join(f"{key}: {value}" for key, value in (time or {"steps": 1, "dt": 1e-7}).items())}}}
"""


def line(n: int) -> str:
    return f"shape: [{n}], size: [1], graded: {graded(n)}"


def between(low: str, high: str) -> str:
    return f"{{x-: {low}, x+: {high}}}"


def given(value: float) -> str:
    return f"{{type: dirichlet, value: {value!r}}}"


def at_rest(problem: Problem) -> Numbers:
    matrix, b = affine(problem)
    return np.asarray(np.linalg.solve(matrix, -b).reshape(problem.grid.shape))


SINE = between(given(0.0), given(float(np.sin(1))))
STEADY: dict[str, tuple[str, str, Callable[[Numbers], Numbers]]] = {
    "laplace": ("laplace(u) + sin(x)", SINE, np.sin),
    "dxx and dx": ("0.3*dxx(u) - dx(u) + cos(x) + 0.3*sin(x)", SINE, np.sin),
    "div_grad": (
        "div_grad(1 + x, u) - cos(x) + (1 + x)*sin(x)",
        SINE,
        np.sin,
    ),
    "fluxes and slopes": (
        "div_grad(2 + cos(x), u) + (2 + cos(x))*sin(x) + sin(x)*cos(x)",
        between(
            "{type: neumann, flux: -1.0}",
            f"{{type: robin, h: 2, ambient: {float(np.sin(1) + np.cos(1) / 2)!r}}}",
        ),
        np.sin,
    ),
    "a wall that stops the whole flux": (
        "dxx(u) + 2*dx(u) - u + 2*exp(-2*x)/(1 - exp(-2))",
        between("{type: no_flux}", "{type: no_flux}"),
        lambda x: 2 * np.exp(-2 * x) / (1 - np.exp(-2)),
    ),
}


@pytest.mark.parametrize("name", STEADY)
def test_states_at_rest_are_of_second_order(name: str) -> None:
    equation, faces, right = STEADY[name]
    errors = [
        float(
            np.abs(
                at_rest(read(text_of(equation, line(n), faces)).build()) - right(centres(n))
            ).max()
        )
        for n in (24, 48)
    ]
    assert errors[0] < 2e-2
    assert np.log2(errors[0] / errors[1]) > 1.75


def test_differences_of_straight_lines_are_exact() -> None:
    texts: dict[str, tuple[str, Callable[[Numbers], Numbers]]] = {
        "dx(u)": ("3*x", lambda x: 3 + 0 * x),
        "dx_plus(u)": ("3*x", lambda x: 3 + 0 * x),
        "-advect(2, u)": ("3*x", lambda x: -6 + 0 * x),
        "grad_squared(u)": ("3*x", lambda x: 9 + 0 * x),
        "div_grad(1 + x, u)": ("3*x", lambda x: 3 + 0 * x),
    }
    for equation, (initial, right) in texts.items():
        faces = between("{type: neumann}", "{type: neumann}")
        text = text_of(equation, line(15), faces, initial, steps=1, dt=1e-6)
        problem = read(text, "model.allow_growth=true").build()
        before = problem.initial(Slab.whole(problem.grid))
        rate = (reference.advance(before, problem, 1) - before)[0] / 1e-6
        # Ghosts of these faces are those of another state, beside which nothing is exact.
        np.testing.assert_allclose(
            rate[1:-1], right(centres(15))[1:-1], rtol=1e-6, err_msg=equation
        )


STEEP = f"shape: [60], size: [1], graded: {{x: {{edges: {[k**3 / 60**3 for k in range(61)]}}}}}"


@pytest.mark.parametrize(
    ("equation", "faces"),
    [
        ("dx(u)", between("{type: neumann}", given(0.0))),
        ("-dx(u)", between(given(0.0), "{type: neumann}")),
        ("-dx(u)", '{"*": {type: periodic}}'),
    ],
)
def test_waves_that_are_carried_do_not_grow(equation: str, faces: str) -> None:
    """Slopes that are exact for parabolas would make some grow without end."""
    more: dict[str, Any] = {"steps": 1, "dt": 1e-9, "scheme": "rk4"}
    problem = read(text_of(equation, STEEP, faces, **more)).build()
    waves = np.linalg.eigvals(affine(problem)[0])
    assert waves.real.max() < 1e-6 * np.abs(waves.imag).max()


def test_a_wall_leaves_the_energy_of_what_is_carried_to_its_cell() -> None:
    more: dict[str, Any] = {"steps": 1, "dt": 1e-9, "scheme": "rk4"}
    problem = read(text_of("dx(u)", STEEP, '{"*": {type: no_flux}}', **more)).build()
    widths = problem.grid.widths(0)
    growth = widths[:, None] * affine(problem)[0]
    growth += growth.T
    wanted = np.zeros(60)
    wanted[[0, -1]] = 1, -1
    np.testing.assert_allclose(growth, np.diag(wanted), atol=1e-4)


def test_a_wall_stops_flows_through_parts_in_series() -> None:
    edges = [0.0, 0.1, 0.3, 0.35, 0.6, 0.8, 1.0]
    grid = f"shape: [6], size: [1], graded: {{x: {{edges: {edges}}}}}"
    flow = "div_grad(where(x < 0.35, 1, 5), u, mean: harmonic)"
    equation = f"{flow} + where(x < 0.1, 10, 0) - where(x > 0.8, 5, 0)"
    problem = read(text_of(equation, grid, '{"*": {type: no_flux}}', dt="auto", steps=1)).build()
    matrix, b = affine(problem)
    found = np.linalg.lstsq(matrix, -b, rcond=None)[0]
    widths, k = np.diff(edges), np.array([1, 1, 1, 5, 5, 5])
    series = (widths[:-1] / k[:-1] + widths[1:] / k[1:]) / 2  # through which flows 1
    np.testing.assert_allclose(-np.diff(found), series, rtol=1e-9)


@pytest.mark.parametrize("n", [32, 64, 200])
def test_a_pressure_between_walls_has_a_mean_of_0(n: int) -> None:
    text = f"""\
grid: {{{line(n)}}}
model:
  type: pde
  fields:
    w: {{equation: "0*w", initial: {{type: expression, expression: "cos(pi*x)"}}}}
    p: {{equation: "0 = laplace(p) + w - mean(w)"}}
boundaries: {{"*": {{type: neumann}}}}
time: {{steps: 1, dt: 0.1}}
"""
    problem = read(text).build()
    found = problem.initial(Slab.whole(problem.grid))[problem.system.fields.index("p")]
    widths = np.diff(ends(n))
    assert abs(float((found * widths).sum())) < 1e-12
    right = np.cos(np.pi * centres(n)) / np.pi**2
    assert np.abs(found - right + (right * widths).sum()).max() < 0.5 / n**2


def test_a_jump_of_k_between_cells_is_that_of_two_half_cells_in_series() -> None:
    edges = [0.0, 0.1, 0.3, 0.35, 0.6, 0.8, 1.0]
    grid = f"shape: [6], size: [1], graded: {{x: {{edges: {edges}}}}}"
    equation = "div_grad(where(x < 0.35, 1, 5), u, mean: harmonic)"
    found = at_rest(read(text_of(equation, grid, between(given(0.0), given(1.0)))).build())
    middle = (np.array(edges)[1:] + np.array(edges)[:-1]) / 2
    flow = 1 / (0.35 + 0.65 / 5)
    right = flow * (np.minimum(middle, 0.35) + np.maximum(middle - 0.35, 0) / 5)
    np.testing.assert_allclose(found, right, rtol=1e-10)


def test_mixed_derivatives_and_two_graded_axes() -> None:
    """`dxy` of x y is 1, and of x**2 y**2 nearly 4 x y."""
    for axes in (("x",), ("y",), ("x", "y")):
        widths = {key: value for of in axes for key, value in graded(12, of).items()}
        grid = f"shape: [12, 12], size: [1, 1], graded: {widths}"
        faces = '{"*": {type: neumann}}'
        for initial, tolerance in (("x*y", 1e-6), ("x**2*y**2", 0.05)):
            problem = read(text_of("dxy(u)", grid, faces, initial, steps=1, dt=1e-6)).build()
            before = problem.initial(Slab.whole(problem.grid))
            rate = (reference.advance(before, problem, 1) - before)[0] / 1e-6
            x, y = (problem.grid.coordinates(axis, 0, 12) for axis in (1, 0))
            right = 4 * np.multiply.outer(y, x) if "2" in initial else np.ones((12, 12))
            np.testing.assert_allclose(rate[1:-1, 1:-1], right[1:-1, 1:-1], atol=tolerance)


@pytest.mark.parametrize("face", ["x", "x + 0*t", "x + 0*u"])
@pytest.mark.parametrize("more", ["", f", graded: {{x: {{edges: {[it - 5 for it in ends(12)]}}}}}"])
def test_a_face_has_its_own_place_wherever_the_grid_begins(face: str, more: str) -> None:
    grid = "shape: [12], size: [1], origin: {x: -5}" + more
    text = text_of("laplace(u)", grid, f'{{"*": {{type: dirichlet, value: "{face}"}}}}', "x")
    problem = read(text).build()
    before = problem.initial(Slab.whole(problem.grid))
    np.testing.assert_allclose(reference.advance(before, problem, 1), before, rtol=1e-13)


CONSERVING = "laplace(u) - flux(u**2/2) + div_grad(1 + u**2, u) + 2*dx(u)"


@pytest.mark.parametrize("faces", ['{"*": {type: no_flux}}', '{"*": {type: periodic}}'])
def test_what_one_cell_loses_the_next_one_gains(faces: str) -> None:
    equation = CONSERVING if "no_flux" in faces else CONSERVING.replace(" + 2*dx(u)", "")
    text = text_of(equation, line(30), faces, "1 + 0.5*sin(2*pi*x)", steps=200, dt="auto")
    problem = read(text).build()
    widths = np.diff(ends(30))
    before = problem.initial(Slab.whole(problem.grid))
    after = reference.advance(before, problem, 200)
    assert abs(after - before).max() > 0.05
    assert abs(float(((after - before) * widths).sum())) < 1e-13


@pytest.mark.parametrize("grid", [line(40), "shape: [40], size: [1]"])
def test_the_largest_step_is_that_of_the_matrix(grid: str) -> None:
    faces = between(given(0.0), given(1.0))
    problem = read(text_of("div_grad(1 + x, u)", grid, faces, steps=1, dt=1e-7)).build()
    largest = 2 / -np.linalg.eigvals(affine(problem)[0]).real.min()
    # Narrow cells are taken to lie among others that are as narrow.
    assert 0.75 * largest < problem.dt_limit < 1.05 * largest


BOTH = f"shape: [26, 19], size: [1, 1], graded: {graded(26)}"
ROUND = (
    "shape: [24, 18], size: [1, 2], coordinates: cylindrical, axes: [r, z], "
    f"graded: {graded(24, 'r')}"
)
SOLVED = {
    "straight": text_of(
        "laplace(u) + div_grad(1 + u**2, u) - advect(1, 0.5, u) - flux(u**2/2, 0*u) + sin(t)*x",
        BOTH,
        "{x-: {type: neumann, flux: 0.3}, x+: {type: robin, h: 2, ambient: 1}, y: {type: periodic}}",
        "1 + 0.1*sin(7*x)*y",
        steps=8,
        dt="auto",
    ),
    "round": text_of(
        "laplace(u) + div_grad(1 + u**2, u) - flux(u*r, -u*z, limiter: none) + z*u",
        ROUND,
        "{r+: {type: dirichlet, value: 1}, z: {type: neumann}}",
        "1 + 0.1*sin(7*r)*z",
        steps=8,
        dt="auto",
        scheme="rk2",
    ),
}


@pytest.mark.parametrize("name", SOLVED)
def test_every_method_agrees_and_slabs_have_the_bits_of_the_whole(name: str) -> None:
    problem, team = read(SOLVED[name]).build(), ThreadTeam(2)
    whole = Slab.whole(problem.grid)
    expected = reference.advance(problem.initial(whole), problem, 4)
    found: dict[str, Any] = {}
    for method in METHODS:
        if method.refusal(problem) is None:
            found[method.name] = run(method, problem, {}, team, (4,))
    team.close()
    first = found["cpu.plain"]
    assert len(found) > 1
    np.testing.assert_allclose(first, expected, rtol=1e-12)
    for it in found.values():
        np.testing.assert_array_equal(it, first)


def test_a_run_goes_on_with_the_same_bits(tmp_path: Path) -> None:
    text = text_of(CONSERVING, line(30), '{"*": {type: no_flux}}', "1 + x", t_end=1e-3, dt="auto")
    whole, continued = whole_and_continued(text, tmp_path, ["u"], every=40)
    np.testing.assert_array_equal(whole, continued)


def test_fluxes_around_an_axis_keep_what_flows_and_what_is_still() -> None:
    """Water that leaves a line source evenly, 1/r, stays 1; in a ball nothing is lost."""
    tube = "shape: [40], size: [1], coordinates: cylindrical, axes: [r], origin: {r: 0.5}"
    faces = "{r-: {type: dirichlet, value: 1}, r+: {type: neumann}}"
    problem = read(text_of("-flux(u/r)", tube, faces, "1 + 0*r", steps=50, dt="auto")).build()
    after = reference.advance(problem.initial(Slab.whole(problem.grid)), problem, 50)
    np.testing.assert_allclose(after, 1, rtol=1e-13)

    ball = f"shape: [40], size: [1], coordinates: spherical, axes: [r], graded: {graded(40, 'r')}"
    faces = "{r+: {type: dirichlet, value: 0}}"
    start = "where(r < 0.8, where(r > 0.5, 1, 0), 0)"
    problem = read(text_of("flux(u)", ball, faces, start, steps=150, dt="auto")).build()
    whole = Slab.whole(problem.grid)
    before, volumes = problem.initial(whole), problem.grid.volumes(whole.spans)
    after = reference.advance(before, problem, 150)
    assert abs(after - before).max() > 0.5
    np.testing.assert_allclose((after * volumes).sum(), (before * volumes).sum(), rtol=1e-13)


def test_what_takes_equal_distances_is_refused() -> None:
    faces = between("{type: extrapolate}", "{type: neumann}")
    wrong = {
        "-flux(u, limiter: van_leer)": "flux(limiter=van_leer) takes points at equal distances",
        "heat_1d(u)": "heat_1d takes points at equal distances",
        "laplace(u)": "extrapolate takes points at equal distances, and x is graded",
    }
    for equation, told in wrong.items():
        assert told in "\n".join(mistakes(text_of(equation, line(9), faces)))
    text = text_of("laplace(u)", line(9), '{"*": {type: neumann}}')
    assert "model.accuracy: it is 2 with grid.graded" in "\n".join(
        mistakes(text, "model.accuracy=4")
    )
