"""Bodies of which something melts or depends on temperature: what a configuration says of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
import pytest

from tests.support.body_samples import PLAIN, build, finish, heat_model, settings, start
from tests.unit.test_apps_body_mistakes import mistakes
from tetris_sim.config import load_config, make_config
from tetris_sim.cpu_kernels import METHODS
from tetris_sim.cpu_kernels.common.stepper import ThreadTeam
from tetris_sim.model import reference
from tetris_sim.model.boundary import SIDES, Side
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab
from tetris_sim.outputs.checkpoint import open_checkpoint
from tetris_sim.simulation.launch import launch

ICE = {
    "conductivity": {"table": [["-20 degC", "2.4 W/(m K)"], [0, 2.2], [1, 0.6]]},
    "density": 917,
    "specific_heat": {"table": [[-20, 1950], [0, 2100], [1, 4200]]},
    "latent_heat": "334 kJ/kg",
    "solidus": "0 degC",
}
ALLOY = {**PLAIN, "latent_heat": 20, "solidus": 10, "liquidus": 30}


def seen(problem: Problem, state: npt.NDArray[Any]) -> dict[str, npt.NDArray[Any]]:
    assert problem.view is not None
    whole = tuple((0, n) for n in problem.grid.shape)
    names = [variable.name for variable in problem.view.variables]
    return dict(zip(names, problem.view.look(whole, state), strict=True))


def body(tabled: bool, **faces: Any) -> Problem:
    """Everything that a body may have; tables of one row are the numbers themselves."""

    def number(value: float) -> Any:
        return {"table": [[20, value]]} if tabled else value

    materials = {
        "core": {"conductivity": number(3.0), "density": 2.0, "specific_heat": number(1.5)},
        "fibre": {"conductivity": {"x": 0.2, "y": 2.0}, "density": 1, "specific_heat": number(2)},
        "shell": PLAIN,
    }
    return build(
        grid={"shape": [12, 9], "size": [1.2, 0.9]},
        model=heat_model(
            {"material": "shell"},
            {"material": "core", "box": {"x": [0.3, 0.8]}},
            {"material": "fibre", "box": {"y": [0.6, 0.9]}},
            {"fluid": {"ambient": 50, "h": 4.0}, "box": {"x": [0.4, 0.6], "y": [0.2, 0.4]}},
            {"fluid": {"ambient": 90, "h": 0.0}, "box": {"x": [0.7, 0.8], "y": [0.2, 0.4]}},
            {"void": True, "box": {"x": [0.8, 1.0], "y": [0.1, 0.3]}},
            materials=materials,
            contacts=[{"between": ["core", "shell"], "resistance": 0.2}],
            sources=[
                {"material": "core", "power": 30, "over_time": [[0, 1], [0.05, 2]]},
                {"density": "40*x*t", "box": {"y": [0.5, 0.8]}},
            ],
        ),
        initial={"type": "expression", "expression": "20 + 30*x - 10*y"},
        boundaries={"*": {"type": "neumann"}, **faces},
        time={"dt": 8e-4, "steps": 40},
    )


FACES: list[dict[str, Any]] = [
    {"x-": {"type": "dirichlet", "value": 70}, "y+": {"type": "robin", "h": 5, "ambient": 300}},
    {"x-": {"type": "dirichlet", "value": "70 + 1e3*t"}, "y-": {"type": "fixed", "value": 10}},
    {"x-": {"type": "dirichlet", "value": "70 + 30*y"}, "y+": {"type": "fixed", "value": "9*x"}},
    {"x+": {"type": "neumann", "flux": 90}, "y+": {"type": "neumann", "flux": "50*x"}},
    {"x+": {"type": "robin", "h": "3 + y", "ambient": "100*t"}, "y": {"type": "periodic"}},
    {
        "y+": {"type": "radiation", "emissivity": 0.8, "ambient": 400, "h": 3},
        "x-": [
            {"type": "neumann", "flux": 200, "where": "y < 0.4"},
            {"type": "dirichlet", "value": 5},
        ],
    },
]


@pytest.mark.parametrize("faces", FACES, ids=[" ".join(it) for it in FACES])
def test_tables_of_one_row_are_the_numbers_themselves(faces: dict[str, Any]) -> None:
    plain, tabled = body(False, **faces), body(True, **faces)
    assert plain.conduction is not None
    assert plain.conduction.enthalpy is None
    assert tabled.dt_limit == pytest.approx(plain.dt_limit, rel=1e-12)
    before, after = (seen(plain, it)["temperature"] for it in (start(plain), finish(plain)[None]))
    assert np.nanmax(np.abs(after - before)) > 1
    np.testing.assert_allclose(seen(tabled, start(tabled))["temperature"], before, atol=1e-12)
    found = seen(tabled, finish(tabled)[None])["temperature"]
    np.testing.assert_allclose(found, after, rtol=0, atol=1e-10)


def test_a_material_that_is_nowhere_changes_nothing() -> None:
    sections: dict[str, Any] = {
        "model": heat_model({"material": "m"}, materials={"m": PLAIN, "ice": ICE}),
        "boundaries": {"*": {"type": "dirichlet", "value": "t"}},
    }
    problem = build(**sections)
    assert problem.conduction is not None
    assert problem.conduction.enthalpy is None
    assert problem.view is None


def melting_rod(**sections: Any) -> Problem:
    return build(
        **{
            "model": heat_model(
                {"material": "alloy"},
                {"material": "shell", "box": {"x": [0, 0.3]}},
                materials={"alloy": ALLOY, "shell": PLAIN},
            ),
            "initial": {"type": "expression", "expression": "80 - 60*x"},
            "time": {"dt": "auto", "steps": 60},
            **sections,
        }
    )


def test_people_see_temperature_liquid_and_heat() -> None:
    problem = melting_rod()
    assert [it.unit for it in problem.seen.variables] == ["degC", "1", "J/m^3"]
    x = (np.arange(12) + 0.5) * 0.1
    temperature = 80 - 60 * x
    molten = np.where(x < 0.3, 0.0, np.clip((temperature - 10) / 20, 0, 1))
    found = seen(problem, start(problem))
    np.testing.assert_allclose(found["temperature"], temperature, atol=1e-12)
    np.testing.assert_allclose(found["liquid_fraction"], molten, atol=1e-12)
    np.testing.assert_allclose(found["heat_content"], temperature + 20 * molten, atol=1e-12)
    np.testing.assert_array_equal(found["heat_content"], start(problem)[0])

    state = finish(problem)
    assert abs(state - start(problem)[0]).max() > 5
    assert state.sum() == pytest.approx(start(problem).sum(), rel=1e-14)


def test_without_melting_no_liquid_is_shown() -> None:
    material = {**PLAIN, "conductivity": {"table": [[0, 1], [100, 2]]}}
    problem = build(model=heat_model({"material": "m"}, materials={"m": material}))
    assert [it.name for it in problem.seen.variables] == ["temperature", "heat_content"]


def test_the_largest_stable_step_is_that_of_the_fastest_piece() -> None:
    """k / (rho c) is 2.4 / (917 * 1950) in the cold, and 2.2 / (917 * 2100) just below 0 degC."""
    one = heat_model({"material": "ice"}, materials={"ice": ICE})
    h = 0.1
    problem = build(model=one, boundaries={"*": {"type": "dirichlet", "value": 20}})
    assert problem.dt_limit == pytest.approx(h * h * 917 * 1950 / 2.4 / 2, rel=1e-3)
    # Of a cell between two of another material, by its largest k and smallest rho c.
    wall = {"conductivity": 50.0, "density": 1e6, "specific_heat": 1e3}
    problem = build(
        model=heat_model(
            {"material": "wall"},
            {"material": "ice", "box": {"x": [0.5, 0.6]}},
            materials={"ice": ICE, "wall": wall},
        )
    )
    series = 1 / (h / 2 / 2.4 + h / 2 / 50.0) / h
    assert problem.dt_limit == pytest.approx(917 * 1950 / (2 * series), rel=1e-3)


@pytest.mark.parametrize("side", SIDES)
def test_faces_exchange_heat_by_the_temperature_that_they_have(side: Side) -> None:
    """What flows in is that of convection and radiation at the temperature of the face."""
    sign = "-" if side == "low" else "+"
    face = {"type": "radiation", "emissivity": 0.9, "ambient": 600, "h": 30}
    problem = build(
        model=heat_model({"material": "ice"}, materials={"ice": ICE}),
        boundaries={"*": {"type": "neumann"}, f"x{sign}": face},
    )
    assert problem.conduction is not None
    place = 0 if side == "low" else 11
    box = ((place, place + 1),)
    for heat in (-2e7, 1e8, 5e8):  # cold, melting, molten
        inside = reference.potentials(problem.conduction, np.array([heat]), np.zeros(1, np.uint8))
        ghost = reference.ruled_ghosts(
            problem, 0, side, 3, box=box, ids=np.zeros(1, np.uint8), inside=inside
        )
        flow = (ghost - inside["mirror"])[0] / 0.1
        surface = inside["temperature"] + flow * 0.1 / 2 / inside["conductivity"]
        kelvin = surface[0] + 273.15
        wanted = 30 * (600 - surface[0]) + 0.9 * 5.670374419e-8 * (873.15**4 - kelvin**4)
        assert flow == pytest.approx(wanted, rel=1e-9)


def test_a_temperature_of_a_face_is_a_potential_of_each_material() -> None:
    """A wall of k = 1 + T between 8 and 2 degC lets pass what its mean conductivity says."""
    material = {**PLAIN, "conductivity": {"table": [[0, 1], [10, 11]]}}
    problem = build(
        model=heat_model({"material": "m"}, materials={"m": material}),
        boundaries={
            "x-": {"type": "dirichlet", "value": 8},
            "x+": {"type": "dirichlet", "value": "2 + 0*t"},
        },
        time={"dt": "auto", "steps": 1500},
    )
    heat = finish(problem)
    x = problem.grid.coordinates(0) / 1.2
    potential = (8 + 32) + (2 + 2 - 40) * x  # T + T^2 / 2
    found = seen(problem, heat[None])["temperature"]
    np.testing.assert_allclose(found, np.sqrt(1 + 2 * potential) - 1, atol=2e-3)


@pytest.mark.parametrize(
    ("keys", "key", "message"),
    [
        ({"conductivity": {"table": [[1, 1], [0, 2]]}}, ".conductivity", "1 degC of row 1 is foll"),
        ({"conductivity": {"table": [[0, 1], [5, -2]]}}, ".conductivity", "row 2 of the table: -2"),
        ({"specific_heat": {"table": []}}, ".specific_heat", "a list of [temperature, value]"),
        ({"specific_heat": {"table": [[1, 2, 3]]}}, ".specific_heat", "row 1 of the table is"),
        ({"specific_heat": {"table": [["1 m", 2]]}}, ".specific_heat", "row 1 of the table: "),
        ({"conductivity": {"table": [[0, 1]], "x": 2}}, ".conductivity", "a table stands alone"),
        ({"conductivity": "quick"}, ".conductivity", "a thermal conductivity greater than 0"),
        ({"latent_heat": 5}, "", "latent_heat needs solidus"),
        ({"solidus": 5}, "", "need its latent_heat"),
        ({"latent_heat": 5, "solidus": 5, "liquidus": 4}, "", "liquidus, 4 degC, is below"),
        ({"latent_heat": -5, "solidus": 5}, ".latent_heat", "greater than 0"),
    ],
)
def test_mistakes_are_told(keys: dict[str, Any], key: str, message: str) -> None:
    material = {**PLAIN, **keys}
    found = mistakes(model=heat_model({"material": "m"}, materials={"m": material}))
    assert list(found) == [f"model.materials.m{key}"]
    assert message in found[f"model.materials.m{key}"]


def test_what_heat_contents_do_not_go_with_is_told() -> None:
    model = heat_model({"material": "ice"}, materials={"ice": ICE})
    found = mistakes(model=model, compute={"precision": "float16"})
    assert "take float64 or float32" in found["compute.precision"]


def test_a_run_writes_what_is_seen_and_goes_on_from_heat_contents(tmp_path: Path) -> None:
    def run(steps: int, resume: str) -> npt.NDArray[Any]:
        config = make_config(
            settings(
                grid={"shape": [12, 5], "size": [1.2, 0.5]},
                model=heat_model({"material": "alloy"}, materials={"alloy": ALLOY}),
                initial={"type": "expression", "expression": "80 - 60*x"},
                boundaries={"*": {"type": "neumann"}, "x-": {"type": "dirichlet", "value": 5}},
                time={"dt": 1e-3, "steps": steps},
                compute={"method": "cpu.plain", "threads": 1},
                output={
                    "directory": str(tmp_path),
                    "fields": {"every": "6 steps"},
                    "statistics": {"every": "1 step"},
                    "pictures": False,
                },
                checkpoint={"every": "6 steps", "keep": 9},
            )
        )
        launch(config, resume=resume)  # type: ignore[arg-type]
        with open_checkpoint(tmp_path / "checkpoints" / "checkpoint_000000000012.h5") as last:
            return last.read(((0, 5), (0, 12)))

    state = run(12, "never")
    (tmp_path / "checkpoints" / "checkpoint_000000000012.h5").unlink()
    np.testing.assert_array_equal(run(12, "auto"), state)
    with h5py.File(tmp_path / "fields.h5") as file:
        np.testing.assert_array_equal(file["heat_content"][-1], state[0])
        molten = file["liquid_fraction"][-1]
        assert 0 < molten.mean() < 1
        np.testing.assert_allclose(file["temperature"][-1] + 20 * molten, state[0], atol=1e-12)

    # The balance of heat closes: there is a record at every step.
    lines = (tmp_path / "statistics.csv").read_text().splitlines()
    last = dict(zip(lines[0].split(","), map(float, lines[-1].split(",")), strict=True))
    assert abs(last["heat stored [J/m]"]) > 1
    assert abs(last["heat residual [J/m]"]) < 1e-12 * abs(last["heat_content heat [J/m]"])


def test_the_solder_of_the_example_melts_and_freezes_from_the_track_up() -> None:
    path = Path(__file__).parents[2] / "examples" / "solder_joint.yaml"
    config = load_config(path, overrides=["grid.shape=[30, 20]"], environ={})
    assert make_config(config.resolved()).resolved() == config.resolved()
    problem = config.build()
    team, molten, done = ThreadTeam(1), [], 0
    stepper = METHODS[-1].prepare(problem, Slab.whole(problem.grid), {}, team)
    try:
        stepper.load(problem.initial)
        for until in (0.01, 0.08, 0.12):
            steps = round(until / problem.dt) - done
            stepper.advance(steps)
            done += steps
            molten.append(seen(problem, stepper.interior())["liquid_fraction"])
    finally:
        stepper.close()
        team.close()
    none, most, left = molten
    assert none.max() == 0
    assert 0.15 < left.sum() / most.sum() < 0.6
    rows = [np.flatnonzero(it.sum(axis=1)).min() for it in (most, left)]
    assert rows[0] < rows[1]
