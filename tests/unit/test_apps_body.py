"""Bodies of several materials against closed forms, through the oracle."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tests.support.body_samples import (
    PLAIN,
    build,
    finish,
    heat_in,
    heat_model,
    settings,
    settle,
    start,
)
from tetris_sim.apps.heat.materials import MATERIALS
from tetris_sim.config import make_config
from tetris_sim.model.boundary import Dirichlet, Neumann, Robin
from tetris_sim.model.conduction import AFFINE
from tetris_sim.model.problem import Problem

LAYERS = {
    "brick": {"conductivity": 0.7, "density": 2.0, "specific_heat": 3.0},
    "foam": {"conductivity": 0.03, "density": 1.0, "specific_heat": 1.0},
    "board": {"conductivity": {"x": 0.2, "y": 2.0, "z": 5.0}, "density": 1, "specific_heat": 2},
}
ENDS = {"*": {"type": "neumann"}, "x-": {"type": "dirichlet", "value": 20}}
ENDS["x+"] = {"type": "robin", "h": 8.0, "ambient": -10}


def wall(ndim: int, **keys: Any) -> Problem:
    return build(
        grid={"shape": [12, 3, 2][:ndim], "size": [0.6, 0.3, 0.2][:ndim]},
        model=heat_model(
            {"material": "brick"},
            {"material": "foam", "box": {"x": [0.2, 0.3]}},
            {"material": "board", "where": "x > 0.3"},
            materials=LAYERS,
            **keys,
        ),
        boundaries=ENDS,
    )


@pytest.mark.parametrize("ndim", [1, 2, 3])
@pytest.mark.parametrize("joint", [0.0, 0.5])
def test_a_composite_wall_is_exact(ndim: int, joint: float) -> None:
    contacts = [{"between": ["foam", "brick"], "resistance": joint}]
    u = settle(wall(ndim, contacts=contacts), steps=20)
    total = 0.2 / 0.7 + joint + 0.1 / 0.03 + 0.3 / 0.2 + 1 / 8.0
    flux = 30 / total
    x = (np.arange(12) + 0.5) * 0.05
    drop = np.where(
        x < 0.2,
        x / 0.7,
        np.where(
            x < 0.3,
            0.2 / 0.7 + joint + (x - 0.2) / 0.03,
            0.2 / 0.7 + joint + 0.1 / 0.03 + (x - 0.3) / 0.2,
        ),
    )
    np.testing.assert_allclose(u, np.broadcast_to(20 - flux * drop, u.shape), atol=1e-9)


def test_materials_conduct_along_each_axis_as_they_say() -> None:
    problem = wall(3)
    assert problem.conduction is not None
    medium = problem.conduction.medium
    number = medium.names.index("board")
    spacing = problem.grid.spacing
    for axis, k in enumerate((5.0, 2.0, 0.2)):
        assert medium.conductance[axis, number, number] == pytest.approx(k / spacing[axis] ** 2)


def test_a_fin_in_a_fluid_is_the_analytic_one() -> None:
    # theta = cosh(m (L - x)) / cosh(m L), m^2 = 2 h / (k t): F. P. Incropera and D. P. DeWitt,
    # Fundamentals of Heat and Mass Transfer, Table 3.4, adiabatic tip.
    length, thick, h, k = 0.05, 1e-3, 50.0, 200.0
    problem = build(
        grid={"shape": [25, 5], "size": [length, 5 * thick]},
        model=heat_model(
            {"fluid": {"ambient": 20, "h": h}},
            {"material": "fin", "where": "abs(y - 2.5e-3) < 0.5e-3"},
            materials={"fin": {"conductivity": k, "density": 2700, "specific_heat": 900}},
        ),
        initial={"type": "constant", "value": 60},
        boundaries={"*": {"type": "neumann"}, "x-": {"type": "dirichlet", "value": 100}},
    )
    u = settle(problem, steps=20)
    m = math.sqrt(2 * h / (k * thick))
    x = problem.grid.coordinates(1)
    wanted = 20 + 80 * np.cosh(m * (length - x)) / math.cosh(m * length)
    # Half a cell of metal lies between the middle of the fin and the fluid, hence not exact.
    np.testing.assert_allclose(u[2], wanted, atol=0.02)
    assert (start(problem)[0][[0, 1, 3, 4]] == 20).all()
    assert (finish(problem)[[0, 1, 3, 4]] == 20).all()


def test_nothing_passes_a_void() -> None:
    problem = build(
        model=heat_model({"material": "copper"}, {"void": True, "box": {"x": [0.5, 0.7]}}),
        initial={"type": "expression", "expression": "100*(x < 0.5) + 7"},
    )
    np.testing.assert_array_equal(finish(problem), start(problem)[0])


def test_nafems_t3() -> None:
    # MOOSE, modules/heat_transfer/test/tests/NAFEMS/transient/T3: T(0.08 m, 32 s) = 36.6 degC. The
    # error of explicit steps of the largest length is 0.11 with 50 cells, and a quarter with 100.
    problem = build(
        grid={"shape": [100], "size": [0.1]},
        model={"type": "heat", "conductivity": 35, "density": 7200, "specific_heat": 440.5},
        boundaries={
            "x-": {"type": "dirichlet", "value": 0},
            "x+": {"type": "dirichlet", "value": "100*sin(pi*t/40)"},
        },
        time={"t_end": 32},
    )
    assert np.interp(0.08, problem.grid.coordinates(0), finish(problem)) == pytest.approx(
        36.6, abs=0.06
    )


def test_nafems_t2_stays_where_it_is() -> None:
    # acamech.com, one-dimensional steady heat transfer with radiation: 927.0 K; here 926.967 K.
    t, n, length, k = 926.967, 10, 0.1, 55.563
    slope = (t - 1000) / length
    problem = build(
        grid={"shape": [n], "size": [length]},
        model={"type": "heat", "conductivity": k, "density": 7850, "specific_heat": 460},
        initial={"type": "expression", "expression": f"1000 - 273.15 + {slope}*x"},
        boundaries={
            "x-": {"type": "dirichlet", "value": "1000 K"},
            "x+": {"type": "radiation", "emissivity": 0.98, "ambient": "300 K"},
        },
        time={"dt": "auto", "steps": 300},
    )
    np.testing.assert_allclose(finish(problem), start(problem)[0], atol=2e-3)


STEADY_SOURCES = [
    {"power": 12, "box": {"x": [0.3, 0.6]}},
    {"power": 12, "where": "(x - 0.5)**2 + (y - 0.3)**2 < 0.04"},
    {"density": 12 / (0.6 * 0.3), "material": "foam"},
    {"power": 12, "region": "middle"},
]


@pytest.mark.parametrize("source", STEADY_SOURCES, ids=["box", "where", "material", "region"])
def test_a_source_brings_the_power_that_it_should(source: dict[str, Any]) -> None:
    problem = build(
        grid={"shape": [12, 6], "size": [1.2, 0.6]},
        model=heat_model(
            {"material": "brick"},
            {"material": "foam", "box": {"x": [0.3, 0.6]}, "name": "middle"},
            {"material": "board", "box": {"x": [0.4, 0.7], "y": [0.3, 0.6]}},
            {"material": "foam", "box": {"x": [0.7, 1.0], "y": [0.0, 0.3]}},
            {"void": True, "box": {"x": [0.3, 0.4], "y": [0.0, 0.1]}},
            materials=LAYERS,
            sources=[source],
        ),
    )
    heat = heat_in(problem, finish(problem)) / problem.time(problem.steps)
    # Of the foam: 10 + 3 x 3 + 3 x 1 ... cells are counted below.
    assert problem.conduction is not None
    medium = problem.conduction.medium
    ids = medium.ids(((0, 6), (0, 12)))
    foam = sum((ids == n).sum() for n, name in enumerate(medium.names) if name == "foam")
    cells = foam if "material" in source else 18
    assert heat == pytest.approx(12 * cells / 18, rel=1e-12)


def test_overlapping_sources_add_up_and_follow_their_tables() -> None:
    problem = build(
        model=heat_model(
            {"material": "copper"},
            sources=[
                {"power": "3*t", "box": {"x": [0.3, 0.6]}},
                {"power": 5, "box": {"x": [0.5, 0.9]}, "over_time": [[0, 0], [1, 1], ["1 h", 1]]},
                {"density": "(x - 0.6)*t", "where": "x > 0.6"},
            ],
        ),
        time={"dt": 0.25, "steps": 8},
    )
    u, heat = start(problem)[0], 0.0
    from tetris_sim.model import reference

    for step in range(8):
        t = 0.25 * (
            step + 0.5
        )  # everything is linear within a step, whose mean is that of its middle
        heat += 0.25 * (3 * t + 5 * min(t, 1) + t * sum(0.05 + 0.1 * i for i in range(6)) * 0.1)
        u = reference.advance(u[None], problem, 1, step)[0]
    assert heat_in(problem, u) == pytest.approx(heat, rel=1e-9)


def test_a_body_that_turns_out_to_be_of_one_material_is_the_constant_problem() -> None:
    plain = build(model={"type": "heat", "material": "copper"}, boundaries=ENDS)
    for model in (
        heat_model({"material": "copper"}),
        heat_model({"material": "a"}, materials={"a": "copper", "b": "steel"}),
        heat_model({"material": "steel"}, {"material": "copper"}),
        {"type": "heat", "materials": {"a": {"material": "copper", "density": 8933}}},
    ):
        problem = build(model=model, boundaries=ENDS)
        assert problem.conduction is None
        assert (problem.stencil, problem.boundary) == (plain.stencil, plain.boundary)
        assert (problem.dt, problem.dt_limit) == (plain.dt, plain.dt_limit)
        assert problem.variables == plain.variables


def test_one_anisotropic_material_is_the_constant_problem() -> None:
    sections: dict[str, Any] = {
        "grid": {"shape": [7, 9], "size": [0.7, 0.9]},
        "initial": {"type": "expression", "expression": "sin(9*x) + y*y"},
        "boundaries": {"*": {"type": "robin", "h": 3, "ambient": 5}},
        "time": {"dt": 0.002, "steps": 30},
    }
    fibre = {"fibre": {"conductivity": {"x": 1.0, "y": 0.1}, "density": 1, "specific_heat": 1}}
    one = build(model=heat_model({"material": "fibre"}, materials=fibre), **sections)
    assert one.conduction is None
    # A source without power makes it a problem with a medium.
    source = [{"power": 0, "box": {"x": [0, 0.2]}}]
    two = build(
        model=heat_model({"material": "fibre"}, materials=fibre, sources=source), **sections
    )
    assert two.conduction is not None
    np.testing.assert_allclose(finish(one), finish(two), rtol=1e-12)
    assert one.dt_limit == pytest.approx(two.dt_limit)


def test_changing_faces_of_one_material_agree_with_constant_ones() -> None:
    faces = {
        "x-": {"type": "robin", "h": 2.0, "ambient": 30},
        "x+": {"type": "neumann", "flux": 4.0},
    }
    texts = {
        "x-": {"type": "robin", "h": "2.0 + 0*t", "ambient": "30 + 0*x"},
        "x+": {"type": "neumann", "flux": {"table": [[0, 4.0]]}},
    }
    one, two = build(boundaries=faces), build(boundaries=texts, time={"dt": "auto", "steps": 10})
    assert one.boundary.faces == ((Robin(2, 30, 1), Neumann(4, 1)),)
    assert two.conduction is not None
    np.testing.assert_allclose(finish(one), finish(two), rtol=1e-13)


def test_a_diffusivity_is_enough_for_a_changing_temperature() -> None:
    sections: dict[str, Any] = {
        "boundaries": {"*": {"type": "dirichlet", "value": "sin(t)"}},
        "time": {"dt": 0.001, "steps": 10},
    }
    one = build(model={"type": "heat", "diffusivity": 1.0}, **sections)
    np.testing.assert_allclose(finish(one), finish(build(**sections)), rtol=1e-14)


def test_the_first_entry_of_a_face_that_fits_holds() -> None:
    problem = build(
        grid={"shape": [10, 4], "size": [1.0, 0.4]},
        boundaries={
            "*": {"type": "neumann"},
            "y-": [
                {"type": "neumann", "flux": 30, "where": "x < 0.3"},
                {"type": "dirichlet", "value": 0, "where": "x > 0.78"},
                {"type": "neumann"},
            ],
        },
        time={"dt": 1e-4, "steps": 1},
    )
    after = finish(problem)
    np.testing.assert_allclose(after[0, :3], 30 / 0.1 * 1e-4)
    assert (after[0, 3:] == 0).all()
    assert (after[1:] == 0).all()
    warm = build(
        grid={"shape": [10, 4], "size": [1.0, 0.4]},
        initial={"type": "constant", "value": 1},
        boundaries={
            "*": {"type": "neumann"},
            "y-": [{"type": "dirichlet", "value": 0, "where": "x > 0.78"}, {"type": "neumann"}],
        },
        time={"dt": 1e-4, "steps": 1},
    )
    assert (finish(warm)[0] < 1).tolist() == [False] * 8 + [True] * 2


@pytest.mark.parametrize(("face", "width"), [("z+", 3), ("y-", 3), ("x+", 2)])
def test_a_beam_brings_the_share_of_its_power_that_is_absorbed(face: str, width: int) -> None:
    ndim = width
    grid = {"shape": [24, 20, 18][:ndim], "size": [2.4, 2.0, 1.8][:ndim]}
    problem = build(
        grid=grid,
        model={
            "type": "heat",
            **PLAIN,
            "sources": [
                {
                    "type": "beam",
                    "power": 100,
                    "absorptivity": 0.35,
                    "d4sigma": 0.6,
                    "face": face,
                    "path": {"x": "1.0 + 40*t"} if face[0] != "x" else {"y": "0.9 + 40*t"},
                }
            ],
        },
        time={"dt": 1e-3, "steps": 10},
    )
    u = finish(problem)
    assert heat_in(problem, u) == pytest.approx(35 * 0.01, rel=1e-5)
    # The warmest point lies a little behind the middle of the beam.
    where = np.unravel_index(int(u.argmax()), u.shape)
    moving = problem.grid.axis_names.index("x" if face[0] != "x" else "y")
    along = problem.grid.coordinates(moving)[where[moving]]
    first = 1.0 if face[0] != "x" else 0.9
    assert first < along < first + 0.36


def test_the_largest_stable_step_is_that_of_what_lies_side_by_side() -> None:
    # A film of copper one cell thick under an insulated face conducts to glass only.
    sections: dict[str, Any] = {"grid": {"shape": [10], "size": [1e-2]}}
    model = heat_model({"material": "glass"}, {"material": "copper", "box": {"x": [0, 1e-3]}})
    insulated = build(model=model, **sections)
    held = build(model=model, boundaries=ENDS, **sections)
    copper, glass = MATERIALS["copper"], MATERIALS["glass"]
    between = 1 / (1e-3 * (5e-4 / copper.conductivity + 5e-4 / glass.conductivity))
    own = [it.conductivity / 1e-6 for it in (copper, glass)]
    capacity = [it.density * it.specific_heat for it in (copper, glass)]
    assert insulated.dt_limit == pytest.approx(
        min(capacity[0] / between, capacity[1] / (between + own[1]), capacity[1] / (2 * own[1]))
    )
    assert held.dt_limit == pytest.approx(capacity[0] / (between + own[0]))


def test_a_step_at_the_limit_is_stable_and_above_it_is_not() -> None:
    rng = np.random.default_rng(4)
    problem = wall(1)
    noise = rng.uniform(-1, 1, (1, 12))
    from dataclasses import replace

    from tetris_sim.model import reference

    stable = replace(problem, dt=0.999 * problem.dt_limit)
    beyond = replace(problem, dt=2.0 * problem.dt_limit)
    assert np.abs(reference.advance(noise, stable, 300)).max() < 100
    assert np.abs(reference.advance(noise, beyond, 300)).max() > 1e6


def test_which_faces_last() -> None:
    def lasting(source: bool, **faces: Any) -> list[Any]:
        model: dict[str, Any] = {"type": "heat", **PLAIN}
        if source:
            model["sources"] = [{"power": 1, "box": {"x": [0, 0.3]}}]
        else:
            model = heat_model({"material": "steel"}, {"material": "glass", "where": "x > 0.5"})
        problem = build(model=model, boundaries=faces)
        return [problem.ruled_face(0, "low").lasting, problem.ruled_face(0, "high").lasting]

    held = {"type": "dirichlet", "value": 7}
    faces = {"x-": {"type": "neumann"}, "x+": held}
    assert lasting(False, **faces) == [(0.0, 1.0), (14.0, -1.0)]
    assert lasting(True, **faces) == [(0.0, 1.0), (14.0, -1.0)]
    faces = {"x-": {"type": "neumann", "flux": 1}, "x+": {"type": "dirichlet", "value": "7*t"}}
    assert lasting(False, **faces) == [None, None]
    problem = build(model={"type": "heat", **PLAIN, "sources": [{"power": 1}]})
    assert problem.ruled_face(0, "low").rule.program == AFFINE
    assert build(boundaries={"*": held}).boundary.faces[0][0] == Dirichlet(7)


def test_ids_do_not_depend_on_who_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    import tetris_sim.apps.initial as initial

    monkeypatch.setattr(initial, "BLOCK_POINTS", 64)
    model = heat_model(
        {"material": "steel"},
        {"material": "glass", "where": "hypot(x - 0.31, y - 0.22) < 0.17"},
        sources=[{"power": 1, "where": "x > y"}],
    )
    problem = build(grid={"shape": [17, 23], "size": [0.51, 0.69]}, model=model)
    assert problem.conduction is not None
    ids = problem.conduction.medium.ids
    whole = ids(((0, 23), (0, 17)))
    assert whole.dtype == np.uint8
    # Beside the four that are asked for, those of cells that the circle cuts.
    assert set(np.unique(whole)) == set(range(problem.conduction.medium.n_ids))
    assert problem.conduction.medium.n_ids > 4
    for box in (((3, 9), (2, 17)), ((22, 23), (0, 1)), ((0, 1), (5, 16))):
        np.testing.assert_array_equal(ids(box), whole[tuple(slice(*span) for span in box)])


def test_more_than_256_ids_take_two_bytes() -> None:
    sources = [{"power": 1, "box": {"x": [i / 300, (i + 1) / 300]}} for i in range(300)]
    problem = build(
        grid={"shape": [300], "size": [1.0]}, model={"type": "heat", **PLAIN, "sources": sources}
    )
    assert problem.conduction is not None
    ids = problem.conduction.medium.ids(((0, 300),))
    assert ids.dtype == np.uint16
    assert len(np.unique(ids)) == 300


def test_a_configuration_survives_its_text() -> None:
    config = make_config(
        settings(
            model=heat_model(
                {"material": "a"},
                {"fluid": {"ambient": "300 K", "h": 5}, "box": {"x": ["1 cm", 0.2]}},
                materials={
                    "a": {"conductivity": {"x": 1, "y": 2}, "density": 1, "specific_heat": 1}
                },
                sources=[{"density": {"table": [[0, 1], ["1 min", 2]]}}],
            ),
            boundaries={
                "x": [{"type": "neumann", "flux": "t", "where": "x < 1"}, {"type": "neumann"}]
            },
        )
    )
    from pathlib import Path

    from tetris_sim.config import read_config

    again = read_config(config.resolved_text(), name="text", base=Path())
    assert again == config
    assert again.build().dt == config.build().dt
