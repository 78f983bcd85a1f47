"""What melts or depends on temperature on graded axes, around an axis or a centre and in cells that
surfaces cut: against the solutions of Neumann, Paterson and Kirchhoff, other programs, and bodies
whose tables are numbers.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
import pytest
from scipy.integrate import solve_ivp
from scipy.optimize import brentq
from scipy.special import erf, erfc, expi

import tetris_sim as ts
from tests.support.body_samples import build, finish, heat_model, start
from tests.support.cases import run
from tests.unit import test_apps_melting, test_meter
from tests.unit.test_apps_melting import FACES, seen
from tetris_sim.cpu_kernels import METHODS
from tetris_sim.cpu_kernels.common.stepper import ThreadTeam
from tetris_sim.cpu_kernels.solve.arithmetic import CpuArithmetic
from tetris_sim.model.problem import Problem
from tetris_sim.solvers.implicit import ImplicitSteps
from tetris_sim.solvers.solver import OneDevice, Solver
from tetris_sim.solvers.steady import solve_steady

Numbers = npt.NDArray[np.float64]

# Freezes at 0 degC: solid k 1, c 1, liquid k 0.5, c 2.
LATENT, FREEZING = 5.0, 0.0
K_SOLID, K_LIQUID, C_LIQUID = 1.0, 0.5, 2.0
MELT = {
    "conductivity": {"table": [[-1e-6, K_SOLID], [1e-6, K_LIQUID]]},
    "density": 1.0,
    "specific_heat": {"table": [[-1e-6, 1.0], [1e-6, C_LIQUID]]},
    "latent_heat": LATENT,
    "solidus": FREEZING,
}
RATIO = math.sqrt(K_SOLID / (K_LIQUID / C_LIQUID))  # of the roots of both diffusivities


@pytest.fixture(scope="module")
def device() -> Iterator[Solver]:
    team = ThreadTeam(1)
    yield OneDevice(CpuArithmetic(team))
    team.close()


def stretched(n: int, length: float, begin: float = 0.0, power: float = 2.0) -> list[float]:
    """Ends of cells that grow from the low end on."""
    s = np.linspace(0, 1, n + 1)
    ends = begin + length * np.expm1(power * s) / np.expm1(power)
    ends[-1] = begin + length
    return [float(it) for it in ends]


def orders(errors: list[float]) -> list[float]:
    return [math.log2(a / b) for a, b in itertools.pairwise(errors)]


@pytest.mark.parametrize("around", [False, True], ids=["graded", "around an axis"])
@pytest.mark.parametrize("faces", FACES, ids=[" ".join(it) for it in FACES])
def test_tables_of_one_row_are_the_numbers_themselves(
    faces: dict[str, Any], around: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several materials, fluids, a void, a contact, sources and faces of every kind."""

    def on_cells(**sections: Any) -> Problem:
        grid = {
            **sections["grid"],
            "graded": {
                "x": {
                    "edges": [0, 0.13, 0.21, 0.3, 0.4, 0.47, *(0.6, 0.7, 0.8, 0.93, 1.0, 1.08), 1.2]
                },
                "y": {"edges": [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.73, 0.8, 0.9]},
            },
        }
        sections |= {"grid": grid, "time": {"dt": 3e-4, "steps": 40}}
        if around:
            text = re.sub(r"\by\b", "z", re.sub(r"\bx\b", "r", json.dumps(sections)))
            sections = json.loads(text)
            sections["grid"] |= {"coordinates": "cylindrical", "axes": ["r", "z"]}
            faces = sections["boundaries"]
            # Nothing flows through the axis.
            sections["boundaries"] = {k.replace("r-", "r+"): it for k, it in faces.items()}
        return build(**sections)

    monkeypatch.setattr(test_apps_melting, "build", on_cells)
    plain, tabled = (test_apps_melting.body(it, **faces) for it in (False, True))
    assert tabled.body.enthalpy is not None
    assert tabled.body.coefficients is not None
    assert tabled.dt_limit == pytest.approx(plain.dt_limit, rel=1e-12)
    before, after = (seen(plain, it)["temperature"] for it in (start(plain), finish(plain)[None]))
    assert np.nanmax(np.abs(after - before)) > 1
    np.testing.assert_allclose(seen(tabled, start(tabled))["temperature"], before, atol=1e-12)
    found = seen(tabled, finish(tabled)[None])["temperature"]
    np.testing.assert_allclose(found, after, rtol=0, atol=1e-10)


def stefan(wall: float, warm: float) -> float:
    """Neumann's lambda of a half space that freezes from a wall."""

    def balance(lam: float) -> float:
        solid = math.exp(-(lam**2)) / math.erf(lam)
        liquid = math.exp(-((lam * RATIO) ** 2)) / math.erfc(lam * RATIO)
        liquid *= K_LIQUID / K_SOLID * RATIO * warm / wall
        return float(solid + liquid + lam * math.sqrt(math.pi) * LATENT / wall)

    return float(brentq(balance, 1e-3, 3))


def freezing_wall(n: int) -> Problem:
    return build(
        grid={"shape": [n], "size": [6.0], "graded": {"x": {"edges": stretched(n, 6.0)}}},
        model=heat_model({"material": "melt"}, materials={"melt": MELT}),
        initial={"type": "constant", "value": 0.5},
        boundaries={
            "x-": {"type": "dirichlet", "value": -1},
            "x+": {"type": "dirichlet", "value": 0.5},
        },
        time={"dt": "auto", "t_end": 1.0},
    )


def off_neumann(problem: Problem, state: Numbers) -> float:
    """The mean error of the temperature, of 1.5 degrees."""
    lam, x = stefan(-1.0, 0.5), problem.grid.coordinates(0)
    solid = -1 + erf(x / 2) / math.erf(lam)
    liquid = 0.5 - 0.5 * erfc(x / 2 * RATIO) / math.erfc(lam * RATIO)
    exact = np.where(x < 2 * lam, solid, liquid)
    found = seen(problem, state[None])
    front = float(((1 - found["liquid_fraction"]) * problem.grid.widths(0)).sum())
    assert front == pytest.approx(2 * lam, rel=0.06)
    return float((np.abs(found["temperature"] - exact) * problem.grid.widths(0))[x < 2].sum() / 2)


def test_neumanns_front_on_a_graded_axis(teams: dict[int, ThreadTeam]) -> None:
    errors = []
    for problem in map(freezing_wall, (12, 24, 48, 96)):
        state = run(METHODS[-1], problem, {}, teams[1], (problem.steps,))
        errors.append(off_neumann(problem, state[0]))
    assert errors[-1] < 1.5e-3
    assert min(orders(errors)) > 0.8
    assert orders(errors)[-1] > 1.3


def test_neumanns_front_in_implicit_steps(device: Solver) -> None:
    problem = replace(freezing_wall(48), dt=2e-3)
    steps = ImplicitSteps(problem, device, 1e-9)
    state = start(problem)[0]
    for number in range(500):
        state = steps.advance(state, number)
    assert off_neumann(problem, state) < 8e-3


def paterson(heat: float, warm: float) -> float:
    """Lambda of a line that takes heat [W/m] out of a melt."""

    def balance(lam: float) -> float:
        q = lam * lam
        solid = heat / (4 * math.pi) * math.exp(-q)
        liquid = K_LIQUID * warm / expi(-q * RATIO**2) * math.exp(-q * RATIO**2)
        return float(solid + liquid - q * LATENT)

    return float(brentq(balance, 1e-2, 3))


def frozen_round_a_line(n: int) -> Problem:
    """Heat is taken out of the innermost cells, which hold next to nothing."""
    ends, heat, inside = stretched(n, 6.0, power=4.0), 20.0, 0.06
    near = min(range(1, n), key=lambda k: abs(ends[k] - inside))
    return build(
        grid={
            "coordinates": "cylindrical",
            "axes": ["r"],
            "shape": [n],
            "size": [6.0],
            "graded": {"r": {"edges": ends}},
        },
        model=heat_model(
            {"material": "melt"},
            materials={"melt": MELT},
            sources=[
                {"density": -heat / (math.pi * ends[near] ** 2), "box": {"r": [0, ends[near]]}}
            ],
        ),
        initial={"type": "constant", "value": 0.5},
        boundaries={"r+": {"type": "dirichlet", "value": 0.5}},
        time={"dt": "auto", "t_end": 1.0},
    )


def test_patersons_front_round_a_line(teams: dict[int, ThreadTeam]) -> None:
    lam, errors = paterson(20.0, 0.5), []
    for problem in map(frozen_round_a_line, (20, 40)):
        state = run(METHODS[-1], problem, {}, teams[1], (problem.steps,))
        found, r = seen(problem, state), problem.grid.coordinates(0)
        solid = 20 / (4 * math.pi) * (expi(-r * r / 4) - expi(-lam * lam)) * 1.0
        liquid = 0.5 - 0.5 * expi(-r * r / 4 * RATIO**2) / expi(-((lam * RATIO) ** 2))
        exact, of = np.where(r < 2 * lam, solid, liquid), (r > 0.2) & (r < 4)
        errors.append(float(abs(found["temperature"] - exact)[of].mean()))
        area = ((1 - found["liquid_fraction"]) * problem.grid.volumes(((0, len(r)),))).sum()
        assert math.sqrt(area / math.pi) == pytest.approx(2 * lam, rel=0.02)
    assert errors[-1] < 0.02
    assert orders(errors)[0] > 0.8


def test_a_run_goes_on_with_the_bits_of_one_that_was_never_stopped(tmp_path: Path) -> None:
    config = {
        **test_meter.CASES["melting in a tube"],
        "initial": {"type": "expression", "expression": "25 + 200*r"},
        "time": {"dt": "0.02 s", "steps": 40},
        "checkpoint": {"every": "20 steps", "keep": 9},
        "output": {"fields": {"every": "40 steps"}, "pictures": False},
    }
    for method in ("cpu.plain", "cpu.tessellate"):
        chosen = {**config, "compute": {"method": method, "threads": 2}}
        whole, folder = (
            ts.run(chosen, tmp_path / f"{method} whole", progress=False),
            tmp_path / method,
        )
        half = {**chosen, "time": {"dt": "0.02 s", "steps": 20}}
        ts.run(half, folder, progress=False)
        ts.run(chosen, folder, resume="auto", progress=False)
        with (
            h5py.File(folder / "fields.h5") as found,
            h5py.File(tmp_path / f"{method} whole" / "fields.h5") as wanted,
        ):
            np.testing.assert_array_equal(found["heat_content"][-1], wanted["heat_content"][-1])
            assert 0 < np.nanmean(wanted["liquid_fraction"][-1]) < 1
        assert whole is not None


RISING = {"conductivity": {"table": [[0, 1.0], [100, 11.0]]}, "density": 1, "specific_heat": 1}


def potential(t: Any) -> Any:
    """Of k = 1 + T/10."""
    return t + t * t / 20


@pytest.mark.parametrize(
    ("kind", "shape_of", "order"),
    [
        ("cartesian", lambda r: r, None),
        ("cylindrical", np.log, 1.8),
        ("spherical", lambda r: -1 / r, 1.8),
    ],
)
def test_walls_of_k_of_t_are_those_of_kirchhoff(
    kind: str, shape_of: Callable[[Any], Any], order: float | None, device: Solver
) -> None:
    """The potential is linear in a rod, a logarithm in a tube, 1/r in a ball."""
    name, errors = "x" if kind == "cartesian" else "r", []
    for n in (12, 24, 48):
        ends = stretched(n, 2.0, begin=1.0, power=1.2)
        problem = build(
            grid={
                "shape": [n],
                "size": [2.0],
                "graded": {name: {"edges": ends}},
                "origin": {name: 1.0},
                **({} if kind == "cartesian" else {"coordinates": kind, "axes": ["r"]}),
            },
            model=heat_model({"material": "rising"}, materials={"rising": RISING}),
            boundaries={
                f"{name}-": {"type": "dirichlet", "value": 0},
                f"{name}+": {"type": "dirichlet", "value": 100},
            },
        )
        state = solve_steady(problem, start(problem)[0], device, tolerance=1e-12).state
        r = problem.grid.coordinates(0)
        share = (shape_of(r) - shape_of(1.0)) / (shape_of(3.0) - shape_of(1.0))
        found = potential(seen(problem, state[None])["temperature"]) / potential(100.0)
        errors.append(float(abs(found - share).max()))
    if order is None:
        assert max(errors) < 1e-4  # the accuracy of the pieces of its curves
    else:
        assert errors[-1] < 1e-3
        assert min(orders(errors)) > order


FOIL_ON_FOAM: dict[str, Any] = {
    "aluminium": {
        "conductivity": {"table": [[0, 236], [100, 240], [300, 228]]},
        "density": 2700,
        "specific_heat": {"table": [[0, 880], [300, 1040]]},
    },
    "foam": {
        "conductivity": {"table": [[0, 0.03], [200, 0.07]]},
        "density": 30,
        "specific_heat": {"table": [[0, 1400], [200, 1800]]},
    },
}


def test_a_foil_on_foam_carries_the_flow_of_both_materials(device: Solver) -> None:
    """Aluminium of 50 um, two cells, on 30 mm of foam, with contact and air outside."""
    foil, thick = 50e-6, 30e-3
    ends = [0.0, foil / 2, foil, *(foil + it for it in stretched(40, thick, power=3.0)[1:])]
    sections: dict[str, Any] = {
        "grid": {"shape": [42], "size": [foil + thick], "graded": {"x": {"edges": ends}}},
        "model": heat_model(
            {"material": "foam"},
            {"material": "aluminium", "box": {"x": [0, foil]}},
            materials=FOIL_ON_FOAM,
            contacts=[{"between": ["aluminium", "foam"], "resistance": 0.05}],
        ),
        "initial": {"type": "constant", "value": 20},
        "boundaries": {
            "x-": {"type": "robin", "h": 25, "ambient": 200},
            "x+": {"type": "dirichlet", "value": 20},
        },
    }
    problem = build(**sections)
    state = solve_steady(problem, start(problem)[0], device, tolerance=1e-11).state
    found = seen(problem, state[None])["temperature"]

    def left(q: float) -> float:
        """Foam: the integral of k = 0.03 + 2e-4 T from 20 to what is beyond the contact."""
        face = 200 - q / 25 - q * foil / 238 - q * 0.05
        return q * thick - (0.03 * (face - 20) + 1e-4 * (face**2 - 400))

    q = brentq(left, 0.0, 1e3)
    assert found[0] == pytest.approx(200 - q / 25, abs=2e-2)
    assert found[2] == pytest.approx(200 - q / 25 - q * 0.05, abs=0.6)
    # Implicit steps come to the same state.
    steps, u = ImplicitSteps(replace(problem, dt=60.0), device, 1e-9), start(problem)[0]
    for number in range(200):
        u = steps.advance(u, number)
    np.testing.assert_allclose(seen(problem, u[None])["temperature"], found, atol=1e-3)
    assert problem.dt_limit < 1e-4


GRIDS: dict[str, dict[str, Any]] = {
    "even": {"shape": [12, 9], "size": [1.2, 0.9]},
    "graded": {
        "shape": [12, 9],
        "size": [1.2, 0.9],
        "graded": {
            "x": {"edges": [0, 0.13, 0.21, 0.3, 0.4, 0.47, 0.6, 0.7, 0.8, 0.93, 1.0, 1.08, 1.2]},
            "y": {"edges": [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.73, 0.8, 0.9]},
        },
    },
    "cylindrical": {
        "coordinates": "cylindrical",
        "axes": ["r", "z"],
        "shape": [12, 9],
        "size": [1.2, 0.9],
    },
}
DISC = {"material": "core", "where": "hypot(x - 0.6, y - 0.45) < 0.31"}
BRICK = {"material": "core", "box": {"x": [0.33, 0.84], "y": [0.22, 0.58]}}
SHELL, WATER = {"material": "shell"}, {"fluid": {"ambient": 50, "h": 4.0}}
CONTACT: dict[str, Any] = {"contacts": [{"between": ["core", "shell"], "resistance": 0.2}]}
HEATED: dict[str, Any] = {"sources": [{"material": "core", "power": 30}]}
OFF_FACES: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {
    "disc in a shell": ([SHELL, DISC], {}),
    "disc behind a contact": ([SHELL, DISC], CONTACT),
    "disc in a fluid": ([WATER, DISC], HEATED),
    "brick in a shell": ([SHELL, BRICK], HEATED),
    "brick behind a contact": ([SHELL, BRICK], CONTACT),
    "bricks in a fluid": (
        [WATER, BRICK, {"material": "fibre", "box": {"x": [0.84, 1.0], "y": [0.22, 0.45]}}],
        {},
    ),
    "layers": (
        [SHELL, {"material": "core", "box": {"x": [0.33, 0.84]}}],
        {"sources": [{"density": "40*x*t", "box": {"y": [0.33, 0.7]}}]},
    ),
    "hole": ([{"material": "core"}, {**DISC, "material": None, "void": True}], HEATED),
    "channel": ([{"material": "core"}, {**WATER, "box": BRICK["box"]}], {}),
}


def off_faces(name: str, grid: str, *, tabled: bool) -> Problem:
    """A body whose surfaces are not the faces of cells; tables of one row are numbers."""

    def number(value: float) -> Any:
        return {"table": [[20, value]]} if tabled else value

    regions, more = OFF_FACES[name]
    materials = {
        "core": {"conductivity": number(3.0), "density": 2.0, "specific_heat": number(1.5)},
        "fibre": {"conductivity": {"x": 0.2, "y": 2.0}, "density": 1, "specific_heat": number(2)},
        "shell": {"conductivity": 1.0, "density": 1.0, "specific_heat": 1.0},
    }
    sections: dict[str, Any] = {
        "grid": GRIDS[grid],
        "model": heat_model(
            *({k: it for k, it in region.items() if it is not None} for region in regions),
            materials=materials,
            **more,
        ),
        "initial": {"type": "expression", "expression": "20 + 30*x - 10*y"},
        "boundaries": {
            "x+": {"type": "dirichlet", "value": 70},
            "y+": {"type": "robin", "h": 5, "ambient": 300},
            "y-": {"type": "neumann", "flux": 50},
        },
        "time": {"dt": 4e-4, "steps": 40},
    }
    if grid == "cylindrical":
        sections = json.loads(re.sub(r"\by\b", "z", re.sub(r"\bx\b", "r", json.dumps(sections))))
        return build(**revolved(sections))
    sections["boundaries"]["x-"] = {"type": "neumann"}
    return build(**sections)


def revolved(sections: dict[str, Any]) -> dict[str, Any]:
    """The same with faces and axes named as around an axis."""
    faces = sections["boundaries"]
    renamed = {k.replace("x", "r").replace("y", "z"): it for k, it in faces.items()}
    return {**sections, "boundaries": renamed, "grid": GRIDS["cylindrical"]}


def warmth(problem: Problem, state: Numbers) -> Numbers:
    """The temperatures of a state (n0, ...), NaN in voids."""
    whole = tuple((0, n) for n in problem.grid.shape)
    return np.asarray(problem.view.look(whole, state[None])[0] if problem.view else state)


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("name", OFF_FACES)
def test_tables_of_one_row_are_the_numbers_themselves_in_cut_cells(name: str, grid: str) -> None:
    plain, tabled = (off_faces(name, grid, tabled=it) for it in (False, True))
    assert plain.body.enthalpy is None
    assert tabled.body.enthalpy is not None
    assert np.unique(tabled.body.medium.capacity).size > 1
    # Where heat contents need the numbers of each face, the largest step is that of these.
    assert tabled.dt_limit >= plain.dt_limit * (1 - 1e-12)
    found, wanted = (warmth(it, finish(it)) for it in (tabled, plain))
    assert np.nanmax(abs(wanted - warmth(plain, start(plain)[0]))) > 1
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-11)


@pytest.mark.parametrize("name", ["disc behind a contact", "brick in a shell"])
@pytest.mark.parametrize("grid", ["even", "graded"])
def test_implicit_and_steady_solutions_of_cut_cells_are_those_of_numbers(
    name: str, grid: str, device: Solver
) -> None:
    found, settled = [], []
    for tabled in (False, True):
        problem = replace(off_faces(name, grid, tabled=tabled), dt=5e-3)
        steps, u = ImplicitSteps(problem, device, 1e-12), start(problem)[0]
        for number in range(5):
            u = steps.advance(u, number)
        found.append(warmth(problem, u))
        steady = solve_steady(problem, u, device, tolerance=1e-12)
        settled.append(warmth(problem, steady.state))
    np.testing.assert_allclose(found[1], found[0], rtol=0, atol=1e-7)
    np.testing.assert_allclose(settled[1], settled[0], rtol=0, atol=1e-6)


def test_a_disc_that_melts_takes_up_the_latent_heat_of_its_area(tmp_path: Path) -> None:
    """Surfaces off the faces of cells: what is molten at last is the disc."""
    radius, latent = 10e-3, 1e5
    config: dict[str, Any] = {
        "grid": {"shape": [23, 23], "size": [24e-3, 24e-3]},
        "model": {
            "type": "heat",
            "materials": {
                "wax": {
                    "conductivity": {"table": [[20, 0.2], [60, 0.4]]},
                    "density": 900,
                    "specific_heat": 2000,
                    "latent_heat": latent,
                    "solidus": 30,
                    "liquidus": 32,
                }
            },
            "regions": [
                {"fluid": {"ambient": 60, "h": 1e4}},
                {"material": "wax", "where": f"hypot(x - 12e-3, y - 12e-3) < {radius}"},
            ],
        },
        "initial": {"type": "constant", "value": 20},
        "boundaries": {"*": {"type": "neumann"}},
        "time": {"t_end": 4000, "dt": "auto"},
        "output": {"statistics": {"every": "1000 s"}, "pictures": False},
        "compute": {"method": "cpu.plain", "threads": 1},
    }
    row = ts.run(config, tmp_path, progress=False).statistics.iloc[-1]
    area = math.pi * radius**2
    assert row["liquid_fraction liquid volume [m^3/m]"] == pytest.approx(area, rel=2e-3)
    stored = area * 900 * (2000 * 40 + latent)
    assert row["temperature mean [degC]"] == pytest.approx(60, abs=0.05)
    assert row["heat stored [J/m]"] == pytest.approx(stored, rel=3e-3)


def warmed_foil(ends: list[float], foil: float) -> dict[str, Any]:
    """A foil in hot air on foam, from 20 degC on for 60 s, in implicit steps."""
    return {
        "grid": {"shape": [len(ends) - 1], "size": [ends[-1]], "graded": {"x": {"edges": ends}}},
        "model": heat_model(
            {"material": "foam"},
            {"material": "aluminium", "box": {"x": [0, foil]}},
            materials=FOIL_ON_FOAM,
        ),
        "initial": {"type": "constant", "value": 20},
        "boundaries": {
            "x-": {"type": "robin", "h": 25, "ambient": 200},
            "x+": {"type": "dirichlet", "value": 20},
        },
        "time": {"t_end": 60, "scheme": "implicit", "tolerance": 1e-6},
        "compute": {"threads": 1},
    }


def by_lines(ends: list[float], foil: float) -> Numbers:
    """The same by SciPy: temperatures of cells, with k and c as formulas of T."""
    x, widths = np.array(ends), np.diff(ends)
    metal = (x[1:] + x[:-1]) / 2 < foil

    def k(t: Numbers) -> Numbers:
        warm = np.where(t < 100, 236 + t / 25, 240 - 0.06 * (t - 100))
        return np.where(metal, warm, 0.03 + 2e-4 * t)

    def rate(_: float, t: Numbers) -> Numbers:
        c = np.where(metal, 2700 * (880 + t * 160 / 300), 30 * (1400 + 2 * t))
        half = widths / 2 / k(t)
        # Within foam k is linear, and its mean between two temperatures is that of both.
        low, high = slice(None, -1), slice(1, None)
        mean = (widths[low] + widths[high]) / (k(t)[low] + k(t)[high])
        resists = np.where(metal[high] == metal[low], mean, half[low] + half[high])
        flow = np.diff(t) / resists
        warms = (200 - t[0]) / (1 / 25 + half[0])
        mean_to_face = (k(t)[-1] + k(np.full(t.shape, 20.0))[-1]) / 2
        leaves = (20 - t[-1]) * mean_to_face / (widths[-1] / 2)
        gained = np.zeros(len(t))
        gained[low] += flow
        gained[high] -= flow
        gained[0] += warms
        gained[-1] += leaves
        return np.asarray(gained / (c * widths))

    start = np.full(len(widths), 20.0)
    # Every cell depends on its neighbours alone.
    solved = solve_ivp(rate, (0, 60), start, "BDF", rtol=1e-9, atol=1e-9)
    return np.asarray(solved.y[:, -1])


def test_a_foil_that_warms_is_that_of_scipy_and_of_cells_that_are_alike() -> None:
    foil, thick = 0.2e-3, 10e-3
    ends = [0.0, foil / 2, foil, *(foil + it for it in stretched(24, thick, power=2.0)[1:])]
    found = np.asarray(ts.run(warmed_foil(ends, foil)).field())
    wanted = by_lines(ends, foil)
    assert 80 < wanted[0] < 199
    assert abs(found - wanted).max() < 1e-4 * np.ptp(wanted)

    even = [float(it) for it in np.linspace(0, foil + thick, 103)]
    fine = np.asarray(ts.run(warmed_foil(even, foil)).field())
    middles = [(np.array(it[1:]) + np.array(it[:-1])) / 2 for it in (ends, even)]
    at_the_same = np.interp(middles[0][2:], middles[1], fine)
    assert abs(found[2:] - at_the_same).max() < 5e-3 * np.ptp(wanted)
    assert found[0] == pytest.approx(fine[0], abs=2e-3 * np.ptp(wanted))


def test_a_front_around_an_axis_is_the_same_in_every_plane(teams: dict[int, ThreadTeam]) -> None:
    """What melts on graded [r, z] is what melts on [r]."""
    ends, fronts = stretched(16, 3.0), []
    for axes in (["r"], ["r", "z"]):
        deep = len(axes) > 1
        graded, faces = {"r": {"edges": ends}}, {"r+": {"type": "dirichlet", "value": -3}}
        if deep:
            graded["z"] = {"edges": [0.0, 0.2, 0.3, 0.7, 1.2]}
            faces["z"] = {"type": "neumann"}
        problem = build(
            grid={
                "coordinates": "cylindrical",
                "axes": axes,
                "shape": [16, 4] if deep else [16],
                "size": [3.0, 1.2] if deep else [3.0],
                "graded": graded,
            },
            model=heat_model({"material": "melt"}, materials={"melt": MELT}),
            initial={"type": "constant", "value": 0.5},
            boundaries=faces,
            time={"dt": 1e-3, "steps": 600},
        )
        state = run(METHODS[-1], problem, {}, teams[1], (problem.steps,))
        fronts.append(seen(problem, state))
    for name, flat in fronts[0].items():
        np.testing.assert_allclose(fronts[1][name], np.broadcast_to(flat, (4, 16)), atol=1e-9)
    assert 0.1 < fronts[0]["liquid_fraction"].mean() < 0.9
