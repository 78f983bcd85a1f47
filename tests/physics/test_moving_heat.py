"""Bodies that move: exact profiles, moving sources, rotation, and heat that is kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.optimize import brentq
from scipy.sparse.linalg import spsolve
from scipy.special import k0

import tetris_sim as ts
from tetris_sim.config.loading import load_config, make_config
from tetris_sim.errors import ConfigError, ConfigMistakesError
from tetris_sim.model import reference
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab
from tetris_sim.solvers.newton import Systems
from tetris_sim.solvers.spectral.exponential import ArrayRates

Numbers = npt.NDArray[np.float64]
ONE = {"type": "heat", "conductivity": 1, "density": 1, "specific_heat": 1}
INSULATED = {"type": "neumann"}


def config(**sections: Any) -> dict[str, Any]:
    return {
        "initial": {"type": "constant", "value": 0},
        "boundaries": {"*": INSULATED},
        "time": {"scheme": "steady"},
    } | sections


def built(**sections: Any) -> Problem:
    return make_config(config(**sections)).build()


def start(problem: Problem) -> Numbers:
    return np.asarray(problem.initial(Slab.whole(problem.grid)), np.float64)


def steady(problem: Problem) -> Numbers:
    """The zero of a linear right-hand side."""
    nothing = np.zeros_like(start(problem))
    given = ArrayRates(problem)(nothing, 0.0)
    slopes = Systems(problem, None).jacobian(nothing, 0.0).tocsc()
    return np.asarray(spsolve(slopes, -given.reshape(-1))).reshape(problem.grid.shape)


@pytest.mark.parametrize("graded", [False, True])
def test_a_profile_between_two_temperatures_is_exponential_and_of_second_order(
    graded: bool,
) -> None:
    errors = []
    for n in (20, 40):
        sizes: dict[str, Any] = {"size": [1]}
        if graded:
            sizes |= {
                "graded": {
                    "x": {"segments": [{"to": 0.5, "n": n // 4}, {"to": 1, "n": 3 * n // 4}]}
                }
            }
        problem = built(
            grid={"shape": [n]} | sizes,
            model=ONE | {"velocity": [8], "advection": "central"},
            boundaries={
                "x-": {"type": "dirichlet", "value": 0},
                "x+": {"type": "dirichlet", "value": 1},
            },
        )
        x = problem.grid.coordinates(0)
        errors.append(abs(steady(problem) - np.expm1(8 * x) / np.expm1(8)).max())
    assert errors[1] < 0.005
    assert 3.5 < errors[0] / errors[1] < 4.5


def test_a_line_source_that_moves_is_that_of_rosenthal() -> None:
    h, nx, ny = 0.25, 96, 44
    problem = built(
        grid={"shape": [nx, ny], "size": [nx * h, ny * h], "origin": {"x": -8, "y": 0}},
        model=ONE
        | {"velocity": [1, 0], "sources": [{"power": 0.5, "box": {"x": [-h, h], "y": [0, h]}}]},
        boundaries={"x-": {"type": "dirichlet", "value": 0}, "*": INSULATED},
    )
    x, y = problem.grid.coordinates(1)[None, :], problem.grid.coordinates(0)[:, None]
    r = np.hypot(x, y)
    exact = np.exp(x / 2) * k0(r / 2) / (2 * np.pi)
    away = (r > 1.5) & (r < 6) & (exact > 0.02 * exact[r > 1.5].max())
    assert abs(steady(problem) / exact - 1)[away].max() < 0.02


DISC = {
    "type": "heat",
    "materials": {
        "steel": {"conductivity": 1e-6, "density": 1, "specific_heat": 1},
        "air": {"conductivity": 1e-6, "density": 1, "specific_heat": 2},
    },
    "regions": [
        {"material": "air"},
        {
            "material": "steel",
            "where": "hypot(x - 0.5, y - 0.5) < 0.4",
            "velocity": {"omega": "1 rad/s", "centre": [0.5, 0.5]},
        },
    ],
}


def widening(n: int, far: float) -> Numbers:
    """Faces from 0 on, of cells that begin with 0.2 and each are wider by one factor."""
    factor = brentq(lambda q: 0.2 * (q**n - 1) / (q - 1) - far, 1.001, 3.0)
    found = 0.2 * (factor ** np.arange(n + 1) - 1) / (factor - 1)
    return np.append(found[:-1], far)


def test_a_point_source_that_moves_is_that_of_rosenthal() -> None:
    across = widening(19, 16.0)
    along = np.concatenate([-widening(17, 8.0)[:0:-1], widening(23, 24.0)])
    problem = built(
        grid={
            "shape": [40, 19, 19],
            "size": [32, 16, 16],
            "origin": {"x": -8, "y": 0, "z": 0},
            "graded": {
                "x": {"edges": along.tolist()},
                "y": {"edges": across.tolist()},
                "z": {"edges": across.tolist()},
            },
        },
        model=ONE
        | {
            "velocity": [1, 0, 0],
            "advection": "central",
            "sources": [{"power": 0.25, "box": {"x": [-0.2, 0.2], "y": [0, 0.2], "z": [0, 0.2]}}],
        },
        boundaries={"x-": {"type": "dirichlet", "value": 0}, "*": INSULATED},
    )
    z, y, x = np.meshgrid(*(problem.grid.coordinates(k) for k in range(3)), indexing="ij")
    r = np.sqrt(x * x + y * y + z * z)
    exact = np.exp((x - r) / 2) / (4 * np.pi * r)
    away = (r > 1.3) & (r < 2.5) & (exact > 0.1 * exact[r > 1.3].max())
    assert abs(steady(problem) / exact - 1)[away].max() < 0.02


@pytest.mark.parametrize("advection", ["van_leer", "minmod", "superbee", "upwind"])
def test_a_disc_turns_what_is_on_it_and_keeps_its_heat(advection: str) -> None:
    n = 64
    problem = built(
        grid={"shape": [n, n], "size": [1, 1]},
        model=DISC | {"advection": advection},
        initial={"type": "expression", "expression": "exp(-((x - 0.7)**2 + (y - 0.5)**2)/0.01)"},
        time={"t_end": np.pi / 2},
    )
    before = start(problem)
    after = reference.advance(before, problem, problem.steps)[0]
    x, y = problem.grid.coordinates(1)[None, :], problem.grid.coordinates(0)[:, None]
    body = problem.at_rest.body
    weights = body.medium.capacity[body.medium.ids(((0, n), (0, n)))]
    assert abs((weights * (after - before[0])).sum()) < 1e-13 * (weights * before[0]).sum()
    # A quarter of a turn, counterclockwise: from (0.7, 0.5) to (0.5, 0.7).
    top = np.unravel_index(after.argmax(), after.shape)
    assert abs(y[top[0], 0] - 0.7) < 0.03
    assert abs(x[0, top[1]] - 0.5) < 0.03
    exact = np.exp(-((x - 0.5) ** 2 + (y - 0.7) ** 2) / 0.01)
    assert abs(after - exact).max() < (0.6 if advection == "upwind" else 0.2)
    assert after.min() > -1e-12


@pytest.mark.parametrize(
    "regions",
    [
        DISC["regions"],
        [
            {"material": "air"},
            {"material": "steel", "where": "abs(y - x) < 0.2", "velocity": [2, 2]},
        ],
        [
            {"material": "air"},
            {
                "material": "steel",
                "where": "abs(hypot(x - 0.5, y - 0.5) - 0.3) < 0.1",
                "velocity": {"omega": "60 rpm", "centre": [0.5, 0.5]},
            },
        ],
        [{"material": "steel", "velocity": ["4*y*(1 - y)", 0]}],
    ],
)
@pytest.mark.parametrize("advection", ["central", "van_leer"])
def test_a_body_of_one_temperature_keeps_it_however_it_moves(
    regions: list[dict[str, Any]], advection: str
) -> None:
    problem = built(
        grid={"shape": [17, 16], "size": [1, 1]},
        model=DISC | {"regions": regions, "advection": advection},
        initial={"type": "constant", "value": 7},
        boundaries={"*": {"type": "dirichlet", "value": 7}},
        time={"steps": 5, "dt": "auto"},
    )
    flows = problem.moving.flows if problem.moving else ()
    assert max(abs(it).max() for it in flows) > 0
    after = reference.advance(start(problem), problem, 5)
    assert abs(after - 7).max() < 1e-13


def test_faces_and_sources_of_a_body_that_hardly_moves_are_those_of_one_at_rest() -> None:
    both = []
    for velocity in ([0, 0], [1e-200, 0]):
        problem = built(
            grid={"shape": [9, 8], "size": [0.09, 0.08]},
            model={
                "type": "heat",
                "materials": {"a": "steel", "b": "copper"},
                "velocity": velocity,
                "regions": [
                    {"material": "a"},
                    {"material": "b", "box": {"y": [0.02, 0.04]}, "name": "core"},
                    {"fluid": {"ambient": 5, "h": 50}, "box": {"y": [0.05, 0.06]}},
                    {"void": True, "box": {"y": [0.06, 0.07]}},
                ],
                "contacts": [{"between": ["a", "b"], "resistance": 1e-4}],
                "sources": [
                    {"region": "core", "power": {"table": [[0, 0], [1, 900]]}},
                    {"material": "a", "density": 1e6},
                    {"density": "1e6*x/0.09*t"},
                ],
            },
            initial={"type": "expression", "expression": "100*x/0.09 + 20*y"},
            boundaries={
                "x-": {"type": "dirichlet", "value": {"table": [[0, 0], [1, 100]]}},
                "x+": {"type": "radiation", "emissivity": 0.8, "ambient": 300, "h": 5},
                "y-": [
                    {"type": "robin", "h": 30, "ambient": "20 + 5*t", "where": "x < 0.03"},
                    {"type": "dirichlet", "value": "100*x"},
                ],
                "y+": {"type": "neumann", "flux": 1e4},
            },
            time={"t_end": 1, "dt": 0.02},
        )
        assert (problem.equations is not None) == (velocity[0] != 0)
        both.append(reference.advance(start(problem), problem, problem.steps))
    held = np.isfinite(both[0])
    assert abs(both[1] - both[0])[held].max() < 1e-10 * abs(both[0][held]).max()
    assert abs(both[0] - start(problem))[0, 4, 4] > 0.1


def test_the_audit_counts_what_moves_in_and_out(tmp_path: Path) -> None:
    result = ts.run(
        config(
            grid={"shape": [12], "size": [1]},
            model={
                "type": "heat",
                "conductivity": 0.05,
                "density": 2,
                "specific_heat": 3,
                "velocity": [0.5],
                "sources": [{"power": 12, "box": {"x": [0.3, 0.7]}}],
            },
            initial={"type": "constant", "value": 20},
            boundaries={"x-": {"type": "dirichlet", "value": 20}, "x+": INSULATED},
            time={"t_end": 20},
            output={"statistics": {"every": "50 steps"}, "pictures": False},
            compute={"tuning_budget": 0, "threads": 1},
        ),
        tmp_path,
        progress=False,
    )
    rows = np.genfromtxt(tmp_path / "statistics.csv", delimiter=",", names=True)
    assert rows.dtype.names
    named = {name.split("_[")[0]: rows[name] for name in rows.dtype.names}
    stored = named[next(it for it in named if it.startswith("heat_stored"))]
    residual = named[next(it for it in named if it.startswith("heat_residual"))]
    leaving = named[next(it for it in named if it.startswith("heat_flow_x") and it.endswith("1"))]
    assert abs(residual).max() < 1e-9 * abs(stored).max()
    # What the source gives leaves with the bar: m c (T - Tref) with m = rho v.
    out = result.field()[-1]
    assert abs(-leaving[-1] - 2 * 3 * 0.5 * out) < 1e-9 * abs(leaving[-1])
    assert 2 * 3 * 0.5 * (out - 20) == pytest.approx(12, rel=0.01)
    assert "Peclet" in json.dumps(json.loads((tmp_path / "report.json").read_text()))


@pytest.mark.parametrize(
    ("line", "column", "text", "told"),
    [
        (3, 40, "velocity: [1, 2]", "2 components"),
        (3, 40, "velocity: {omega: 3 Hz, centre: [0]}", "rpm"),
        (3, 40, "velocity: [1 kg]", "speed"),
        (3, 40, "velocity: [z]", "z"),
    ],
)
def test_mistakes_are_told_with_their_place(
    tmp_path: Path, line: int, column: int, text: str, told: str
) -> None:
    path = tmp_path / "bar.yaml"
    path.write_text(
        f"grid: {{shape: [8], size: [1]}}\n"
        f"model:\n  {{type: heat, material: copper, {text}}}\n"
        "initial: {type: constant, value: 0}\n"
        "boundaries: {'*': {type: dirichlet, value: 0}}\n"
        "time: {scheme: steady}\n"
    )
    with pytest.raises((ConfigMistakesError, ConfigError)) as caught:
        load_config(path)
    assert f"bar.yaml:{line}:" in str(caught.value)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("model", "told"),
    [
        (
            {
                "regions": [
                    {"material": "air"},
                    {
                        "material": "steel",
                        "velocity": [1, 0],
                        "box": {"x": [0.2, 0.8], "y": [0.2, 0.8]},
                    },
                ]
            },
            "out of its own place",
        ),
        (
            {
                "regions": [
                    {"material": "air", "velocity": [1, 0]},
                    {"material": "steel", "velocity": [1, 0], "box": {"x": [0.5, 1]}},
                ]
            },
            "side by side",
        ),
        ({"regions": [{"material": "steel", "velocity": ["x", 0]}]}, "gathers"),
        (
            {"regions": [{"material": "steel", "velocity": [1, 0]}]},
            "its temperature has to be given",
        ),
    ],
)
def test_what_cannot_move_is_refused(model: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        built(grid={"shape": [20, 20], "size": [1, 1]}, model=DISC | model)


def test_implicit_steps_of_what_moves_are_as_long_as_the_tolerance_allows(tmp_path: Path) -> None:
    def moved(time: dict[str, Any]) -> Any:
        config = {
            "grid": {"shape": [40], "size": ["40 mm"]},
            "model": {
                "type": "heat",
                "conductivity": 50,
                "density": 7800,
                "specific_heat": 500,
                "velocity": ["2 mm/s"],
            },
            "initial": {"type": "constant", "value": 20},
            "boundaries": {
                "x-": {"type": "dirichlet", "value": 100},
                "x+": {"type": "neumann", "flux": 0},
            },
            "time": {"t_end": "4 s", **time},
            "output": {"directory": str(tmp_path / time["scheme"])},
        }
        return ts.run(config).field()

    # One step of 4 s would overshoot by 7 K; the explicit steps are wrong by 0.01 K.
    found = moved({"scheme": "implicit", "tolerance": 1e-5})
    assert abs(found - moved({"scheme": "explicit", "dt": 2e-3})).max() < 0.02


def test_a_ring_that_turns_in_a_fixed_heat_is_warm_behind_it() -> None:
    """A thin ring: omega u' = k u'' / r^2 - h u / d + cos(theta), of which sines are the answer."""
    thin, omega, loss, errors = 0.01, 2.0, 0.5, []
    for n in (24, 48):
        problem = built(
            grid={
                "coordinates": "cylindrical",
                "axes": ["r", "theta"],
                "shape": [2, n],
                "size": [thin, "360 deg"],
                "origin": {"r": 1 - thin / 2},
            },
            model=ONE
            | {
                "velocity": {"omega": omega, "centre": [0, 0]},
                "advection": "central",
                "sources": [{"density": "cos(theta)"}],
            },
            boundaries={
                "r-": INSULATED,
                "r+": {"type": "robin", "h": loss * thin, "ambient": 0},
            },
        )
        theta, k = problem.grid.coordinates(0)[:, None], 1 + loss
        exact = (k * np.cos(theta) + omega * np.sin(theta)) / (k**2 + omega**2)
        errors.append(abs(steady(problem) - exact).max())
    assert errors[1] < 4e-3
    assert errors[0] > 2 * errors[1]


@pytest.mark.parametrize(
    ("axes", "velocity", "told"),
    [
        (["r", "theta"], {"omega": 1, "centre": [0.1, 0]}, "around an axis it turns about that"),
        (["r", "theta"], [0, 1], "moves along z or turns"),
        (["r", "z"], {"omega": 1, "centre": [0, 0]}, "which the grid has not"),
    ],
)
def test_bodies_around_an_axis_turn_about_it(axes: list[str], velocity: Any, told: str) -> None:
    grid = {"coordinates": "cylindrical", "axes": axes, "shape": [4, 8], "size": [1, 2]}
    with pytest.raises(ConfigError, match=told):
        built(grid=grid, model=ONE | {"velocity": velocity}, boundaries={"*": INSULATED})


def test_a_sector_that_turns_would_leave_its_place() -> None:
    with pytest.raises(ConfigError, match=r"out of its own place; .* theta = .* rad"):
        built(
            grid={
                "coordinates": "cylindrical",
                "axes": ["r", "theta"],
                "shape": [4, 12],
                "size": [1, "360 deg"],
            },
            model={
                "type": "heat",
                "materials": {"a": {"conductivity": 1, "density": 1, "specific_heat": 1}},
                "regions": [
                    {"material": "a"},
                    {
                        "material": "a",
                        "box": {"theta": ["-30 deg", "60 deg"]},
                        "velocity": {"omega": 1, "centre": [0, 0]},
                    },
                ],
            },
            boundaries={"r+": INSULATED},
        )
