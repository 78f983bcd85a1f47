"""Statements about heat that a physicist would check first, through the configuration and the run
loop of a user.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import tetris_sim as ts
from tetris_sim.model.problem import Problem

# Which proposal is the fastest changes nothing here.
pytestmark = pytest.mark.usefixtures("_nothing_is_timed")

EXAMPLES = Path(__file__).parents[2] / "examples"
Values = npt.NDArray[np.floating[Any]]


def run(problem: Problem) -> Values:
    """The final state of the only field."""
    with ts.open_simulation(problem, ts.make_plan(problem, ts.find_machine())) as simulation:
        simulation.run()
        final: Values = simulation.field()[0]
    return final


def build(**sections: Any) -> Problem:
    usual: dict[str, Any] = {
        "grid": {"shape": [24, 18], "size": [0.24, 0.27]},  # spacings of 10 mm and 15 mm
        "model": {"type": "heat", "diffusivity": 1e-4},
        "initial": {"type": "constant", "value": 20},
        "boundaries": {"*": {"type": "neumann"}},
        "time": {"steps": 50},
    }
    return ts.make_config({**usual, **sections}, environ={}).build()


def plate(n: int) -> Problem:
    """The copper plate of the Tetris paper, section 6.5, on n x n points."""
    return build(
        grid={"shape": [n, n], "size": ["15 mm", "15 mm"]},
        model={"type": "heat", "material": "copper", "diffusivity": "1.11e-4 m^2/s"},
        initial={"type": "gaussian", "amplitude": 100, "sigma": "2.15 mm"},
        time={"cfl": 0.23, "t_end": "19.22 ms"},
    )


@pytest.mark.parametrize("n", [65, 97])
def test_the_centre_of_the_copper_plate_ends_at_the_52_degrees_of_the_paper(n: int) -> None:
    problem = plate(n)
    assert problem.steps == pytest.approx(3.8e6 * (n / 9600) ** 2, abs=2)
    centre = float(run(problem)[n // 2, n // 2])  # n is odd: a point lies exactly there
    assert round(centre, 1) == 52.0
    variance = 2.15e-3**2
    assert centre == pytest.approx(100 * variance / (variance + 2 * 1.11e-4 * 19.22e-3), abs=0.05)


def test_the_example_of_the_copper_plate_takes_the_steps_of_the_paper() -> None:
    problem = ts.load_config(EXAMPLES / "copper_plate.yaml", environ={}).build()
    assert problem.steps == 10809 == round(3.8e6 * (512 / 9600) ** 2)
    assert problem.time(problem.steps) == pytest.approx(19.22e-3, rel=5e-4)
    full = ts.load_config(EXAMPLES / "copper_plate_full.yaml", environ={}).build()
    assert full.steps == 3_800_000
    assert full.time(full.steps) == pytest.approx(19.22e-3, rel=5e-4)


@pytest.mark.parametrize("axis", [0, 1])
def test_a_long_wave_decays_at_the_rate_of_the_heat_equation(axis: int) -> None:
    # cos(pi x / L) between insulated faces decays as exp(-kappa (pi / L)^2 t); to second order in
    # the spacing.
    name, length, points = (("y", 0.27, 18), ("x", 0.24, 24))[axis]
    problem = build(
        initial={"type": "expression", "expression": f"5*cos(pi*{name}/L{name})"},
        time={"cfl": 0.1, "steps": 400},
    )
    rate = 1e-4 * (math.pi / length) ** 2
    decay = math.exp(-rate * problem.time(400))
    start = problem.initial(ts.Slab.whole(problem.grid))[0]
    found = run(problem)
    np.testing.assert_allclose(found, found.flat[0] / start.flat[0] * start, rtol=1e-10, atol=1e-12)
    # Leading errors of the rate: theta^2 / 12 in space, rate dt / 2 in time.
    theta = math.pi / points
    allowed = rate * problem.time(400) * (theta**2 / 12 + rate * problem.dt / 2)
    assert found.flat[0] / start.flat[0] == pytest.approx(decay, rel=1.1 * allowed)
    assert 0.2 < decay < 0.9


def transposed(section: dict[str, Any]) -> dict[str, Any]:
    """A configuration with x and y exchanged."""
    faces = {
        key.translate(str.maketrans("xy", "yx")): face
        for key, face in section["boundaries"].items()
    }
    grid = {key: list(reversed(values)) for key, values in section["grid"].items()}
    text = section["initial"]["expression"].translate(str.maketrans("xy", "yx"))
    return {
        **section,
        "grid": grid,
        "boundaries": faces,
        "initial": {**section["initial"], "expression": text},
    }


@pytest.mark.parametrize("stencil", ["heat-2d", "star-2d9p", "star-2d13p", "box-2d9p"])
def test_exchanging_x_and_y_exchanges_them_in_the_result(stencil: str) -> None:
    section: dict[str, Any] = {
        "grid": {"shape": [24, 18], "size": [0.24, 0.36]},
        "model": {"type": "heat", "diffusivity": 1e-4, "conductivity": 30, "stencil": stencil},
        "initial": {"type": "expression", "expression": "100*(x/Lx)**2*(1 + 3*y/Ly)"},
        "boundaries": {
            "x-": {"type": "dirichlet", "value": 5},
            "x+": {"type": "robin", "h": 200, "ambient": 40},
            "y-": {"type": "neumann", "flux": 3000},
            "y+": {"type": "dirichlet", "value": -10},
        },
        "time": {"cfl": 0.1, "steps": 60},
    }
    if stencil.startswith("box"):
        # It reads corners, which belong to the axis that is filled last, x; they commute where one
        # face is insulated.
        section["boundaries"] |= {"y-": {"type": "neumann"}, "y+": {"type": "neumann"}}
    # Sums are taken in another order: equal to within rounding.
    straight, exchanged = run(build(**section)), run(build(**transposed(section)))
    assert straight.shape == (18, 24)
    np.testing.assert_allclose(exchanged.T, straight, rtol=0, atol=1e-10)
    assert (
        float(np.abs(straight - straight[::-1, ::-1]).max()) > 10
    )  # nothing about it is symmetric by itself


@pytest.mark.parametrize(
    ("grid", "name"), [([40], "heat-1d"), ([20, 14], "box-2d9p"), ([10, 12, 8], "box-3d27p")]
)
def test_a_symmetric_state_stays_symmetric(grid: list[int], name: str) -> None:
    problem = build(
        grid={"shape": grid, "spacing": [0.01, 0.012, 0.009][: len(grid)]},
        model={"type": "heat", "diffusivity": 1e-4, "conductivity": 20, "stencil": name},
        initial={"type": "gaussian", "amplitude": 80, "sigma": 0.03},
        boundaries={"*": {"type": "robin", "h": 50, "ambient": 10}},
        time={"dt": "auto", "steps": 40},
    )
    found = run(problem)
    for axis in range(len(grid)):
        np.testing.assert_allclose(
            np.flip(found, axis), found, rtol=0, atol=40 * 30 * 2.0**-52 * 90
        )


def test_adding_states_adds_results() -> None:
    def of(expression: str) -> Values:
        return run(
            build(
                initial={"type": "expression", "expression": expression},
                boundaries={"*": {"type": "periodic"}},
            )
        )

    first, second = "sin(2*pi*x/Lx)", "y/Ly"
    both = of(f"3*({first}) - 2*({second})")
    np.testing.assert_allclose(both, 3 * of(first) - 2 * of(second), rtol=0, atol=1e-13)


def test_a_wall_between_two_convective_faces_tends_to_the_temperatures_of_the_text_book() -> None:
    # The same heat passes the air on both sides and the wall: thermal resistances in series.
    k, thickness, h_in, h_out, inside, outside = 0.7, 0.2, 8.0, 25.0, 20.0, -10.0
    problem = build(
        grid={"shape": [20], "size": [thickness]},
        model={"type": "heat", "diffusivity": 1e-6, "conductivity": k},
        boundaries={
            "x-": {"type": "robin", "h": h_in, "ambient": inside},
            "x+": {"type": "robin", "h": h_out, "ambient": outside},
        },
        time={"dt": "auto", "steps": 20_000},
    )
    flow = (inside - outside) / (1 / h_in + thickness / k + 1 / h_out)
    x = problem.grid.coordinates(0)
    np.testing.assert_allclose(run(problem), inside - flow / h_in - flow * x / k, rtol=0, atol=1e-9)


def test_a_heat_flow_through_a_body_makes_a_slope_of_flux_over_conductivity() -> None:
    flux, k = 500.0, 15.0
    problem = build(
        grid={"shape": [4, 5, 16], "size": [0.04, 0.05, 0.16]},
        model={"type": "heat", "diffusivity": 4e-6, "conductivity": k},
        boundaries={
            "*": {"type": "neumann"},
            "z-": {"type": "dirichlet", "value": 20},
            "z+": {"type": "neumann", "flux": flux},
        },
        time={"dt": "auto", "steps": 20_000},
    )
    z = problem.grid.coordinates(0)
    expected = np.broadcast_to((20 + flux / k * z)[:, None, None], (16, 5, 4))
    np.testing.assert_allclose(run(problem), expected, rtol=0, atol=1e-9)


def test_the_heat_that_convection_takes_is_the_heat_that_the_body_loses() -> None:
    # A thin sheet of one point: d(heat)/dt = h (ambient - face temperature), step by step.
    h, k = 40.0, 2.0
    problem = build(
        grid={"shape": [1], "size": [0.01]},
        model={"type": "heat", "conductivity": k, "density": 1000, "specific_heat": 500},
        boundaries={"x-": {"type": "neumann"}, "x+": {"type": "robin", "h": h, "ambient": 5}},
        time={"cfl": 0.2, "steps": 1},
    )
    loss = problem.variables[0].total.density * 0.01 * (20 - float(run(problem)[0]))
    # Between the point and the face lies half a cell, which conducts; both resistances in series.
    flow = (20 - 5) / (1 / h + 0.005 / k)
    assert loss == pytest.approx(flow * problem.dt, rel=1e-12)


def test_a_fixed_ring_is_first_order_and_a_dirichlet_face_second_order() -> None:
    def error(kind: str, n: int) -> float:
        problem = build(
            grid={"shape": [n], "size": [1]},
            model={"type": "heat", "diffusivity": 1},
            boundaries={"*": {"type": kind, "value": 0}},
            initial={"type": "expression", "expression": "sin(pi*x)"},
            time={"cfl": 0.25, "t_end": 0.05},
        )
        exact = math.exp(-(math.pi**2) * 0.05) * np.sin(math.pi * problem.grid.coordinates(0))
        return float(np.abs(run(problem) - exact).max())

    assert math.log2(error("fixed", 40) / error("fixed", 80)) == pytest.approx(1, abs=0.1)
    assert math.log2(error("dirichlet", 40) / error("dirichlet", 80)) == pytest.approx(2, abs=0.1)


def test_the_rod_of_the_examples_is_within_a_degree_of_a_straight_line() -> None:
    problem = ts.load_config(EXAMPLES / "rod_1d.yaml", environ={}).build()
    line = 100 * problem.grid.coordinates(0) / 0.5
    error = float(np.abs(run(problem) - line).max())
    assert 0.01 < error < 1


def test_the_pattern_of_the_examples_keeps_its_mean_and_loses_its_short_wave() -> None:
    problem = ts.load_config(EXAMPLES / "periodic_2d.yaml", environ={}).build()
    start, end = problem.initial(ts.Slab.whole(problem.grid))[0], run(problem)
    assert end.mean() == pytest.approx(start.mean(), rel=1e-12)
    short = [abs(np.fft.rfft2(state)[0, 8]) / state.size for state in (start, end)]
    long = [abs(np.fft.rfft2(state)[1, 1]) / state.size for state in (start, end)]
    assert short[0] > 1
    assert short[1] < 1e-6
    assert long[1] / long[0] == pytest.approx(
        math.exp(-1e-5 * 60 * (2 * math.pi) ** 2 * (1 / 0.3**2 + 1 / 0.2**2)), rel=0.01
    )


def test_the_block_of_the_examples_is_hottest_at_the_plane_of_symmetry_and_on_the_floor() -> None:
    problem = ts.load_config(EXAMPLES / "block_3d.yaml", environ={}).build()
    found = run(problem)
    hottest = np.unravel_index(int(np.argmax(found)), found.shape)
    assert hottest[0] == 0
    assert hottest[2] == 0
    assert hottest[1] in (31, 32)  # y is the only axis that is cooled from both sides
    assert found.min() == found[-1, -1, -1] or found.min() == found[-1, 0, -1]
    assert 25 < found.min() < found.max() < 800


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.name)
def test_every_example_says_what_it_is_and_can_be_built(path: Path) -> None:
    text = path.read_text()
    assert text.startswith("# ")
    config = ts.load_config(path, environ={})
    assert config.title
    problem = config.build()
    assert problem.steps > 0
    assert problem.dt <= problem.dt_limit or config.time.scheme == "implicit"


def test_the_smoothing_of_the_examples_leaves_no_rough_waves() -> None:
    problem = ts.load_config(EXAMPLES / "stencil_box.yaml", environ={}).build()
    start, end = problem.initial(ts.Slab.whole(problem.grid))[0], run(problem)
    assert end.dtype == np.float32
    assert float(np.abs(end).max()) < 0.1 < 0.99 < float(np.abs(start).max())
    assert float(np.abs(np.diff(end, axis=1)).max()) < 0.2 * float(np.abs(end).max())
