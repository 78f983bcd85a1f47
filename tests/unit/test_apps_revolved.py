"""Bodies around an axis or a centre: areas and volumes, known solutions, and what is refused."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.support.body_samples import (
    PLAIN,
    ROUND,
    build,
    finish,
    heat_model,
    settings,
    settle,
    start,
)
from tests.unit.test_apps_graded import heat_of
from tetris_sim.config import ConfigMistakesError, make_config
from tetris_sim.model.problem import Problem

Section = dict[str, Any]
BODY: Section = {"type": "heat", **PLAIN}


def round_grid(axes: str, shape: list[int], size: list[Any], **more: Any) -> Section:
    kind = "spherical" if axes.startswith("ball") else "cylindrical"
    names = axes.removeprefix("ball ").split()
    return {"coordinates": kind, "axes": names, "shape": shape, "size": size, **more}


ROUNDED = [
    round_grid("r", [5], [2]),
    round_grid("r z", [5, 3], [2, 3], origin={"r": 1, "z": -2}),
    round_grid("r theta", [3, 8], [2, "90 deg"], graded={"r": {"edges": [0, 0.5, 1, 2]}}),
    round_grid("r theta z", [5, 8, 2], [2, "1 turn", 3]),
    round_grid("ball r theta", [5, 4], [3, "90 deg"]),
]


def kept(value: float | str) -> Section:
    return {"type": "dirichlet", "value": value}


def volumes(problem: Problem) -> Any:
    return problem.grid.volumes(tuple((0, n) for n in problem.grid.shape))


@pytest.mark.parametrize(
    ("grid", "volume", "area"),
    [
        (round_grid("r", [5], [2]), 4 * math.pi, 4 * math.pi),
        (round_grid("r z", [5, 3], [2, 3]), 12 * math.pi, 12 * math.pi),
        (round_grid("r z", [5, 3], [2, 3], origin={"r": 1}), 24 * math.pi, 18 * math.pi),
        (round_grid("r theta", [5, 8], [2, "90 deg"]), math.pi, math.pi),
        (round_grid("r theta z", [5, 8, 2], [2, "1 turn", 3]), 12 * math.pi, 12 * math.pi),
        (round_grid("ball r", [5], [3]), 36 * math.pi, 36 * math.pi),
        (round_grid("ball r theta", [5, 4], [3, "90 deg"]), 18 * math.pi, 18 * math.pi),
    ],
)
def test_volumes_and_areas_are_those_of_the_whole_body(
    grid: Section, volume: float, area: float
) -> None:
    problem = build(grid=grid, boundaries={"*": {"type": "neumann"}})
    assert volumes(problem).sum() == pytest.approx(volume, rel=1e-14)
    assert problem.grid.cell_volume * problem.grid.n_points == pytest.approx(volume, rel=1e-14)
    whole = tuple((0, n) for n in problem.grid.shape)
    outermost = problem.grid.areas(problem.grid.ndim - 1, whole)[..., -1]
    assert outermost.sum() == pytest.approx(area, rel=1e-14)


@pytest.mark.parametrize(("axes", "n"), [("r", 4), ("ball r", 6)])
def test_a_heated_rod_and_ball_are_parabolas(axes: str, n: int) -> None:
    problem = build(
        grid=round_grid(axes, [16], [2.0]),
        model={**BODY, "sources": [{"density": 3}]},
        boundaries={"r+": kept(5)},
    )
    r, u = problem.grid.coordinates(0), settle(problem)
    # Exact but for half a cell at the surface, whose flow is that of the whole body.
    h = 2.0 / 16
    np.testing.assert_allclose(u, 5 + 3 * (4 - r * r) / n + 3 * h * h / 4 / n, rtol=1e-12)


def test_a_tube_is_a_logarithm_and_a_shell_a_hyperbola_of_second_order() -> None:
    def tube(r: Any) -> Any:
        return np.log(r) / math.log(3)

    def shell(r: Any) -> Any:
        return 1.5 - 1.5 / r

    for axes, solution in (("r", tube), ("ball r", shell)):
        errors = []
        for n in (10, 20):
            problem = build(
                grid=round_grid(axes, [n], [2.0], origin={"r": 1.0}),
                boundaries={"r-": kept(0), "r+": kept(1)},
            )
            errors.append(np.abs(settle(problem) - solution(problem.grid.coordinates(0))).max())
        assert errors[1] < 2e-2
        assert errors[0] / errors[1] > 3.3


def test_a_pipe_of_two_layers_has_the_resistance_of_both() -> None:
    edges = np.concatenate([np.geomspace(0.05, 0.06, 11), np.geomspace(0.06, 0.1, 21)[1:]])
    problem = build(
        grid=round_grid(
            "r", [30], [0.05], origin={"r": 0.05}, graded={"r": {"edges": edges.tolist()}}
        ),
        model=heat_model(
            {"material": "steel"},
            {"material": "wool", "box": {"r": [0.06, 0.1]}},
            materials={
                "steel": {**PLAIN, "conductivity": 50},
                "wool": {**PLAIN, "conductivity": 0.04},
            },
        ),
        boundaries={"r-": kept(100), "r+": {"type": "robin", "h": 10, "ambient": 20}},
    )
    resistance = (math.log(1.2) / 50 + math.log(0.1 / 0.06) / 0.04 + 1 / (10 * 0.1)) / (2 * math.pi)
    u, grid = settle(problem), problem.grid
    assert problem.conduction is not None
    assert problem.conduction.coefficients is not None
    k = problem.conduction.coefficients.conductance(0, ((0, 29),))
    np.testing.assert_allclose(k * (u[:-1] - u[1:]), 80 / resistance, rtol=2e-3)
    assert grid.bounds(0) == pytest.approx((0.05, 0.1))


@pytest.mark.parametrize(
    ("axes", "size"), [("r theta", [1.0, "360 deg"]), ("ball r theta", [1.0, "180 deg"])]
)
def test_a_disc_and_a_ball_between_hot_and_cold_are_straight_inside(axes: str, size: Any) -> None:
    errors = []
    for n in (6, 12):
        problem = build(
            grid=round_grid(axes, [n, 2 * n], size), boundaries={"r+": kept("cos(theta)")}
        )
        r, theta = problem.grid.coordinates(1), problem.grid.coordinates(0)
        error = settle(problem, steps=1) - r * np.cos(theta)[:, None]
        errors.append(math.sqrt((volumes(problem) * error**2).sum()))
    assert errors[0] / errors[1] > 3.3


def test_a_half_heated_disc_is_warm_by_the_series() -> None:
    problem = build(
        grid=round_grid("r theta", [24, 32], [1.0, "360 deg"]),
        boundaries={"r+": kept("1 if theta < pi else 0")},
    )
    r, theta = problem.grid.coordinates(1), problem.grid.coordinates(0)[:, None]
    terms = [2 / (math.pi * k) * r**k * np.sin(k * theta) for k in range(1, 199, 2)]
    series = 0.5 + np.sum(terms, axis=0)
    inside = r < 0.5
    np.testing.assert_allclose(settle(problem, steps=1)[:, inside], series[:, inside], atol=3e-3)


def test_a_sector_loses_heat_through_arcs_of_any_radius() -> None:
    """Between two radial faces, u = theta turns: the flux through them is k du/dtheta / r."""
    problem = build(
        grid=round_grid("r theta", [5, 6], [1.0, "60 deg"], origin={"r": 1.0}),
        boundaries={
            "r": {"type": "neumann"},
            "theta-": kept(0),
            "theta+": {"type": "neumann", "flux": "3/r"},
        },
    )
    theta = problem.grid.coordinates(0)[:, None]
    np.testing.assert_allclose(settle(problem), 3 * theta + np.zeros(5), rtol=1e-10)


@pytest.mark.parametrize("axes", ["r", "ball r"])
def test_a_cooling_rod_and_ball_follow_the_series(axes: str) -> None:
    n, time = 80, 0.05
    problem = build(
        grid=round_grid(axes, [n], [1.0]),
        initial={"type": "constant", "value": 1},
        boundaries={"r+": kept(0)},
        time={"dt": "auto", "safety": 0.5, "t_end": time},
    )
    r = problem.grid.coordinates(0)
    from scipy import special

    if axes == "r":
        zeros = special.jn_zeros(0, 30)
        terms = [
            2 * special.j0(z * r) / (z * special.j1(z)) * math.exp(-z * z * time) for z in zeros
        ]
    else:
        terms = [
            2
            * (-1) ** (k + 1)
            * np.sin(k * math.pi * r)
            / (k * math.pi * r)
            * math.exp(-((k * math.pi) ** 2) * time)
            for k in range(1, 30)
        ]
    np.testing.assert_allclose(finish(problem), np.sum(terms, axis=0), atol=1e-4)


def test_a_fin_of_revolution_is_of_bessel_functions() -> None:
    from scipy import special

    r1, r2, half, k, h = 0.02, 0.06, 0.001, 100.0, 40.0
    problem = build(
        grid=round_grid("r z", [32, 2], [r2 - r1, half], origin={"r": r1}),
        model={**BODY, "conductivity": k},
        boundaries={
            "r-": kept(100),
            "r+": {"type": "neumann"},
            "z-": {"type": "neumann"},
            "z+": {"type": "robin", "h": h, "ambient": 0},
        },
    )
    m, u = math.sqrt(h / (k * half)), settle(problem, steps=1)
    r = problem.grid.coordinates(1)
    i0, k0, i1, k1 = special.i0, special.k0, special.i1, special.k1
    wanted = (i0(m * r) * k1(m * r2) + k0(m * r) * i1(m * r2)) / (
        i0(m * r1) * k1(m * r2) + k0(m * r1) * i1(m * r2)
    )
    np.testing.assert_allclose(u.mean(axis=0) / 100, wanted, atol=1e-3)


def test_a_borehole_warms_the_ground_as_a_line_source_does() -> None:
    from scipy import special

    rb, k, c, time, power = 0.02, 2.0, 2e6, 4 * 86400.0, 30.0
    edges = rb + 20 * (1.12 ** np.arange(41) - 1) / (1.12**40 - 1)
    problem = build(
        grid=round_grid(
            "r", [40], [20.0], origin={"r": rb}, graded={"r": {"edges": edges.tolist()}}
        ),
        model={"type": "heat", "conductivity": k, "density": 1000, "specific_heat": c / 1000},
        boundaries={
            "r-": {"type": "neumann", "flux": power / (2 * math.pi * rb)},
            "r+": kept(0),
        },
        time={"dt": "auto", "t_end": time},
    )
    r, u = problem.grid.coordinates(0), finish(problem)
    line = power / (4 * math.pi * k) * special.exp1(r**2 * c / (4 * k * time))
    far = (r > 0.3) & (r < 1.5)
    np.testing.assert_allclose(u[far], line[far], rtol=1e-2)


@pytest.mark.parametrize(
    ("grid", "source"),
    [
        (round_grid("r z", [6, 4], ["3 m", "2 m"]), {"r": [0, 1.4]}),
        (round_grid("r theta", [5, 9], [1.0, "1 turn"]), {"theta": ["0 deg", "90 deg"]}),
        (round_grid("ball r", [9], [1.0]), {"r": [0, 0.5]}),
    ],
)
def test_power_is_that_of_the_whole_body_and_heat_is_kept(grid: Section, source: Section) -> None:
    problem = build(
        grid=grid,
        model={**BODY, "sources": [{"power": 7, "box": source}]},
        initial={"type": "expression", "expression": "cos(5*r)"},
        boundaries={"*": {"type": "neumann"}},
        time={"dt": "auto", "steps": 30},
    )
    gained = heat_of(problem, finish(problem)) - heat_of(problem, start(problem)[0])
    assert gained == pytest.approx(7 * problem.time(30), rel=1e-10)


def test_windings_conduct_along_their_own_axes() -> None:
    problem = build(
        grid=round_grid("r z", [4, 5], [1.0, 1.0]),
        model=heat_model(
            {"material": "coil"},
            materials={"coil": {**PLAIN, "conductivity": {"r": 1, "z": 30}}},
        ),
        boundaries={"*": {"type": "neumann"}},
    )
    assert problem.conduction is not None
    assert problem.conduction.coefficients is not None
    whole = tuple((0, n) for n in problem.grid.shape)
    along_z = problem.conduction.coefficients.conductance(0, whole)[0, 0]
    assert along_z == pytest.approx(30 * math.pi * 0.25**2 / 0.2)


@pytest.mark.parametrize(
    ("span", "held"),
    [
        (["-30 deg", "60 deg"], [0, 1, 11]),
        (["330 deg", "420 deg"], [0, 1, 11]),
        (["690 deg", "780 deg"], [0, 1, 11]),
        (["-90 deg", "300 deg"], range(12)),
        (["90 deg", "150 deg"], [3, 4]),
    ],
)
def test_boxes_go_around_where_theta_does(span: list[str], held: Any) -> None:
    problem = build(
        grid=round_grid("r theta", [4, 12], [1.0, "360 deg"]),
        model=heat_model(
            {"material": "a"},
            {"material": "b", "box": {"theta": span}},
            materials={"a": PLAIN, "b": {**PLAIN, "conductivity": 2.0}},
            sources=[{"density": 3.0, "box": {"theta": span}}],
        ),
        boundaries={"*": {"type": "neumann"}},
    )
    u = finish(replace(problem, steps=1))[:, 0]
    assert np.flatnonzero(u > 0).tolist() == [*held]

    sector = round_grid("r theta", [4, 12], [1.0, "180 deg"])
    problem = build(
        grid=sector,
        model={**BODY, "sources": [{"density": 3.0, "box": {"theta": ["-30 deg", "30 deg"]}}]},
    )
    assert np.flatnonzero(finish(replace(problem, steps=1))[:, 0] > 0).tolist() == [0, 1]


def test_a_cfl_number_is_that_of_the_narrowest_cells() -> None:
    grid = round_grid("r theta", [6, 12], [60.0, "360 deg"])
    problem = build(grid=grid, boundaries=ALL, time={"cfl": 0.1, "steps": 1})
    assert problem.dt == pytest.approx(0.1 * (5 * 2 * math.pi / 12) ** 2)
    assert problem.grid.narrowest == pytest.approx((5 * 2 * math.pi / 12, 10))


PLATE = round_grid("r z", [6, 4], ["3 mm", "2 mm"])
DISC = round_grid("r theta", [6, 8], ["3 mm", "360 deg"])
ALL: Section = {"*": {"type": "neumann"}}


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"grid": PLATE, "boundaries": {**ALL, "r-": kept(1)}}, "boundaries.r-.*r = 0 is the axis"),
        ({"grid": PLATE, "boundaries": {**ALL, "r": kept(1)}}, "takes no condition; write r\\+"),
        (
            {"grid": round_grid("ball r", [4], [1]), "boundaries": {**ALL, "r-": kept(1)}},
            "r = 0 is the centre",
        ),
        (
            {"grid": DISC, "boundaries": {**ALL, "theta-": kept(1)}},
            "a full circle of theta is periodic by itself",
        ),
        ({"grid": PLATE, "boundaries": {**ALL, "x-": kept(1)}}, "there is no face x-"),
        ({"boundaries": {**ALL, "r+": kept(1)}}, "there is no face r\\+"),
        ({"grid": {**PLATE, "axes": ["z", "r"]}}, "\\[r\\], \\[r, z\\], \\[r, theta\\]"),
        ({"grid": {"shape": [4], "size": [1], "axes": ["r"]}}, "coordinates: cylindrical or"),
        ({"grid": {"shape": [4], "size": [1], "origin": {"y": 1}}}, "none of the axes x"),
        ({"grid": {**PLATE, "origin": {"theta": 1}}}, "none of the axes r and z"),
        ({"grid": {**PLATE, "origin": {"r": "-1 mm"}}}, "radii begin at 0 or above"),
        ({"grid": {**DISC, "size": ["3 mm", "400 deg"]}}, "at most a turn"),
        ({"grid": {**DISC, "size": ["3 mm", "4 mm"]}}, "an angle, .* is wanted along theta"),
        (
            {"grid": {**DISC, "graded": {"theta": {"segments": [{"to": "90 deg", "n": 8}]}}}},
            "ends at 1.5708 rad",
        ),
        (
            {
                "grid": DISC,
                "model": {**BODY, "sources": [{"power": 1, "box": {"theta": [2, 1]}}]},
            },
            "from 2 rad to 1 rad",
        ),
        ({"grid": {**PLATE, "size": ["3 mm", "90 deg"]}}, "a length is wanted along z"),
        (
            {"grid": PLATE, "initial": {"type": "expression", "expression": "x"}},
            "unknown name 'x'",
        ),
        (
            {"grid": DISC, "initial": {"type": "gaussian", "amplitude": 1, "sigma": 1}},
            "theta is an angle",
        ),
        (
            {"grid": PLATE, "output": {"probes": [{"at": ["4 mm", 0], "every": "1 s"}]}},
            "r = 0.004 m is outside",
        ),
        (
            {"grid": PLATE, "model": {**BODY, "sources": [{"power": 1, "box": {"y": [0, 1]}}]}},
            "the axes r and z only",
        ),
        (
            {"grid": PLATE, "model": {"type": "stencil", "stencil": "heat-2d"}},
            "around an axis steps differ",
        ),
        (
            {
                "grid": PLATE,
                "model": {
                    "type": "heat",
                    "materials": {"a": {**PLAIN, "conductivity": {"x": 1, "y": 2}}},
                    "regions": [{"material": "a"}],
                },
            },
            "given along x and y; r and z is wanted",
        ),
    ],
)
def test_what_does_not_fit_is_refused(sections: Section, message: str) -> None:
    with pytest.raises(ConfigMistakesError, match=message):
        make_config(settings(**{"boundaries": ALL, **sections}))


def test_a_configuration_that_was_resolved_means_the_same() -> None:
    first = make_config(settings(grid=DISC, boundaries=ALL))
    again = make_config(first.resolved())
    assert again.resolved() == first.resolved()
    assert {*first.boundaries} == {"*", "r-", "theta-", "theta+"}


@pytest.mark.parametrize(
    "faces",
    [
        {"theta-": {"type": "neumann", "flux": 90}, "theta+": {"type": "neumann"}},
        {
            "theta-": {"type": "robin", "h": 5, "ambient": 300},
            "theta+": {"type": "dirichlet", "value": 5},
        },
        {
            "theta-": {"type": "radiation", "emissivity": 0.8, "ambient": 400},
            "theta+": {"type": "neumann", "flux": "9*r"},
        },
    ],
    ids=["flux", "convection", "radiation"],
)
def test_tables_of_one_row_are_the_numbers_themselves_in_a_sector(faces: dict[str, Any]) -> None:
    """Cells at faces across theta are as far from them as their radius says."""

    def sector(*, tabled: bool) -> Problem:
        def number(value: float) -> Any:
            return {"table": [[20, value]]} if tabled else value

        core = {"conductivity": number(3.0), "density": 2.0, "specific_heat": number(1.5)}
        return build(
            grid={
                "coordinates": "cylindrical",
                "axes": ["r", "theta"],
                "shape": [8, 6],
                "size": [0.8, 1.5],
                "origin": {"r": 0.3},
            },
            model=heat_model(
                {"material": "brick"},
                {"material": "core", "box": {"r": [0.5, 0.9]}},
                materials={**ROUND, "core": core},
            ),
            initial={"type": "constant", "value": 20},
            boundaries={
                "r-": {"type": "neumann"},
                "r+": {"type": "robin", "h": 2, "ambient": 50},
                **faces,
            },
            time={"dt": 1e-4, "steps": 60},
        )

    plain, tabled = (sector(tabled=it) for it in (False, True))
    assert tabled.body.enthalpy is not None
    assert tabled.view is not None
    whole = tuple((0, n) for n in tabled.grid.shape)
    found, wanted = tabled.view.look(whole, finish(tabled)[None])[0], finish(plain)
    assert abs(wanted - 20).max() > 1
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-11)
