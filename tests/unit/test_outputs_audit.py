"""What statistics say of the heat of a body is what a sum over its points and faces gives."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tests.support.conduction_cases import (
    CASES,
    RADIATION,
    Case,
    affine,
    closed,
    heating,
    insulated,
    mixed_faces,
    rings,
)
from tests.support.outputs_samples import FakeSnapshot, every
from tests.support.outputs_samples import make_problem as constant_problem
from tetris_sim.apps.heat.materials import MaterialCurves, Melting, make_enthalpy
from tetris_sim.config import make_config
from tetris_sim.model import reference
from tetris_sim.model.boundary import SIDES, Boundary, Dirichlet, Fixed, Neumann, Robin
from tetris_sim.model.conduction import Conduction, Medium, Numbers
from tetris_sim.model.grid import Grid
from tetris_sim.model.problem import Field, Problem, StateVariable, Total, View
from tetris_sim.model.slab import Ranges, Slab
from tetris_sim.outputs import materials
from tetris_sim.outputs.output import StateSnapshot
from tetris_sim.outputs.regions import blocks
from tetris_sim.outputs.tables import StatisticsOutput, read_audit, read_table
from tetris_sim.simulation.launch import launch

Row = dict[str, float]
EPS = float(np.finfo(np.float64).eps)


def start_of(problem: Problem) -> Field:
    return problem.initial(Slab.whole(problem.grid))


def follow(
    problem: Problem,
    directory: Path,
    steps: Sequence[int],
    *,
    begin: int = 0,
    state: Field | None = None,
) -> Field:
    """Let the statistics see the state at some steps; the last state."""
    output = StatisticsOutput(problem, directory, every(1, problem))
    output.start(begin)
    at, u = begin, start_of(problem) if state is None else state
    for step in steps:
        u = reference.advance(u, problem, step - at, at)
        at = step
        output.write(FakeSnapshot(problem, step, u))
    output.close()
    return u


def rows_of(directory: Path) -> list[Row]:
    header, rows = read_table(directory / "statistics.csv")
    assert len(set(header)) == len(header)
    return [dict(zip(header, row, strict=True)) for row in rows]


def partly_held(problem: Problem, held: int = 1) -> Problem:
    """The same, the state of one material being held."""
    assert problem.conduction is not None
    medium = problem.conduction.medium
    capacity = medium.capacity.copy()
    capacity[held] = np.inf
    medium = replace(medium, capacity=capacity)
    return replace(problem, conduction=replace(problem.conduction, medium=medium))


DOUBLE = [case for case in (*CASES, *RADIATION) if case.dtype is np.float64]


@pytest.mark.parametrize("case", DOUBLE, ids=lambda case: case.name)
@pytest.mark.parametrize("held", [False, True])
def test_with_a_record_at_every_step_nothing_is_left_over(
    tmp_path: Path, case: Case, held: bool
) -> None:
    problem = case.problem()
    if held and case.n_ids > 1:
        problem = partly_held(problem)
    follow(problem, tmp_path, range(12))
    rows = rows_of(tmp_path)
    moved = max(abs(row["heat stored [J]"]) for row in rows)
    for row in rows:
        scale = abs(row["heat [J]"]) + moved + math.prod(problem.state_shape)
        assert abs(row["heat residual [J]"]) < 30 * EPS * scale
    if case.face is mixed_faces:
        assert moved > 1e-3


def test_of_a_closed_body_nothing_is_left_over_however_seldom_it_is_looked_at(
    tmp_path: Path,
) -> None:
    case = Case("closed", (9, 11), 4, closed, heating(4, changes=True))
    follow(case.problem(), tmp_path, (0, 7, 200))
    last = rows_of(tmp_path)[-1]
    assert abs(last["heat by sources [J]"]) > 0.1
    assert last["heat through surfaces [J]"] == 0
    assert abs(last["heat residual [J]"]) < 1e-12
    assert not any(name.startswith("heat flow x") for name in last)


def test_between_records_flows_are_taken_to_change_linearly(tmp_path: Path) -> None:
    problem = Case("rod", (37,), 3, mixed_faces).problem()
    residuals = []
    for n in (5, 10):
        follow(problem, tmp_path, [20, *range(20 + n, 61, n)], begin=20)
        rows = rows_of(tmp_path)
        residuals.append(max(abs(row["heat residual [J]"]) for row in rows))
        (tmp_path / "statistics.csv").unlink()
    assert 1e-8 < residuals[0] < residuals[1] / 2


def test_materials_and_flows_are_those_of_a_loop_over_the_points(tmp_path: Path) -> None:
    problem = partly_held(Case("plate", (7, 9), 4, rings, heating(4, changes=False)).problem())
    assert problem.conduction is not None
    medium = problem.conduction.medium
    medium = replace(medium, names=("die", "air", "die", "glue"))
    problem = replace(problem, conduction=replace(problem.conduction, medium=medium))
    u = start_of(problem)[0]
    follow(problem, tmp_path, (0,))
    (row,) = rows_of(tmp_path)

    ids, volume = medium.ids(((0, 7), (0, 9))), problem.grid.cell_volume
    for name, of in (("die", (0, 2)), ("glue", (3,))):
        here = np.isin(ids, of)
        heat = (medium.capacity[ids] * u)[here].sum() * volume
        found = [row[f"{name} {what} [degC]"] for what in ("min", "max", "mean")]
        np.testing.assert_allclose(found, [u[here].min(), u[here].max(), u[here].mean()])
        assert row[f"{name} heat [J]"] == pytest.approx(heat)
    body = ids != 1
    assert row["temperature max [degC]"] == u[body].max()
    assert row["temperature mean [degC]"] == pytest.approx(u[body].mean())
    assert not any(name.startswith("air m") for name in row)

    wanted: dict[tuple[str, str], float] = {}
    for i, j in np.ndindex(7, 9):
        for axis, (k, m) in enumerate((((i + 1) % 7, j), (i, j + 1))):
            if m < 9:
                a, b = int(ids[i, j]), int(ids[k, m])
                names = medium.names[a], medium.names[b]
                flow = medium.conductance[axis, a, b] * (u[i, j] - u[k, m]) * volume
                wanted[names] = wanted.get(names, 0.0) + float(flow)
    for one, other in (("die", "air"), ("die", "glue"), ("air", "glue")):
        flow = wanted.get((one, other), 0.0) - wanted.get((other, one), 0.0)
        assert row[f"heat flow {one} to {other} [W]"] == pytest.approx(flow)
    power = np.linspace(-1, 2, 4)[ids]
    assert row["sources [W]"] == pytest.approx(power[body].sum() * volume)


def test_flows_through_faces_are_those_of_the_oracle(tmp_path: Path) -> None:
    problem = Case("block", (5, 4, 6), 3, mixed_faces).problem()
    follow(problem, tmp_path, (3,))
    (row,) = rows_of(tmp_path)
    assert problem.conduction is not None
    u = reference.advance(start_of(problem), problem, 3)
    for axis, name in enumerate("zyx"):
        for side, sign in zip(SIDES, "-+", strict=True):
            at = 0 if side == "low" else problem.grid.shape[axis] - 1
            box = tuple((at, at + 1) if k == axis else (0, n) for k, n in enumerate(u.shape[1:]))
            mirrors = u[0][tuple(slice(*span) for span in box)]
            ids = problem.conduction.medium.ids(box)
            ghosts = reference.ruled_ghosts(
                problem, axis, side, 3, box=box, ids=ids, inside={"mirror": mirrors}
            )
            flow = problem.conduction.medium.conductance[axis][ids, ids] * (ghosts - mirrors)
            column = f"heat flow {name}{sign} [W]"
            if column in row:
                assert row[column] == pytest.approx(flow.sum() * problem.grid.cell_volume)
            else:
                assert not np.any(flow)


@pytest.mark.parametrize("case", [CASES[2], CASES[5]], ids=lambda case: case.name)
def test_a_resumed_run_writes_the_same_rows(tmp_path: Path, case: Case) -> None:
    problem = case.problem()
    follow(problem, tmp_path / "once", (0, 5, 12, 20, 31))
    state = follow(problem, tmp_path / "twice", (0, 5, 12))
    follow(problem, tmp_path / "twice", (20, 31), begin=12, state=state)
    once, twice = ((tmp_path / name / "statistics.csv").read_text() for name in ("once", "twice"))
    assert once == twice


def test_blocks_may_be_of_any_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = partly_held(Case("block, rings", (8, 7, 9), 3, rings).problem())
    follow(problem, tmp_path / "whole", (2,))
    monkeypatch.setattr(materials, "blocks", lambda *args: blocks(*args, limit=8 * 40))
    follow(problem, tmp_path / "parts", (2,))
    whole, parts = (rows_of(tmp_path / name)[0] for name in ("whole", "parts"))
    assert list(whole) == list(parts)
    np.testing.assert_allclose(list(parts.values()), list(whole.values()), rtol=1e-12, atol=1e-12)


@dataclass(frozen=True)
class AsArrays:
    """The numbers of a medium, given for every face and cell."""

    problem: Problem

    @property
    def medium(self) -> Medium:
        assert self.problem.conduction is not None
        return self.problem.conduction.medium

    @property
    def separates(self) -> bool:
        return False

    def conductance(self, axis: int, box: Ranges) -> Numbers:
        low, high = box[axis]
        beside = (*box[:axis], (low + 1, high + 1), *box[axis + 1 :])
        ids = [self.problem.padded_ids(it) for it in (box, beside)]
        return np.asarray(
            self.medium.conductance[axis][ids[0], ids[1]] * self.problem.grid.cell_volume
        )

    def series(self, axis: int, box: Ranges) -> Numbers:
        # Both halves of one material, and no contact: only enthalpies ask.
        half = 0.5 / self.conductance(axis, box)
        return np.stack([half, half, 0 * half], axis=-1)

    def radiance(self, axis: int, box: Ranges) -> Numbers:
        """Nothing radiates."""
        return 0 * self.conductance(axis, box)

    def capacity(self, box: Ranges) -> Numbers:
        return np.asarray(
            self.medium.capacity[self.medium.ids(box)] * self.problem.grid.cell_volume
        )

    def volume(self, box: Ranges) -> Numbers:
        return np.full([high - low for low, high in box], self.problem.grid.cell_volume)


@pytest.mark.parametrize("case", [CASES[2], CASES[8]], ids=lambda case: case.name)
def test_coefficients_say_the_same_as_the_medium_they_are_made_of(
    tmp_path: Path, case: Case
) -> None:
    problem = partly_held(case.problem())
    assert problem.conduction is not None
    conduction = replace(problem.conduction, coefficients=AsArrays(problem))
    follow(problem, tmp_path / "medium", (0, 4, 9))
    follow(replace(problem, conduction=conduction), tmp_path / "arrays", (0, 4, 9))
    medium, arrays = (rows_of(tmp_path / name)[-1] for name in ("medium", "arrays"))
    assert list(medium) == list(arrays)
    np.testing.assert_allclose(list(arrays.values()), list(medium.values()), rtol=1e-11, atol=1e-11)


def test_a_body_without_one_heat_capacity_has_heat_all_the_same(tmp_path: Path) -> None:
    problem = Case("plate", (7, 9), 2, mixed_faces).problem()
    total = Total("integral", "degC m^2", 1.0)
    other = replace(problem, variables=(replace(problem.variables[0], total=total),))
    follow(problem, tmp_path / "J", (0, 3))
    follow(other, tmp_path / "J per m", (0, 3))
    rows, others = (rows_of(tmp_path / name)[-1] for name in ("J", "J per m"))
    wanted = [name.replace("[J]", "[J/m]").replace("[W]", "[W/m]") for name in rows]
    assert list(others) == wanted
    assert list(others.values()) == list(rows.values())


def _part(state: Field, box: Ranges) -> Field:
    return np.asarray(state[(slice(None), *(slice(*span) for span in box))])


def test_where_heat_content_is_the_state_it_is_what_is_stored(tmp_path: Path) -> None:
    """Wax that melts beside a metal, heated from the left."""
    n, h = 12, 0.1
    solids = [
        MaterialCurves(((0.0, 3.0),), ((0.0, 2.0),), 1.0),
        MaterialCurves(((0.0, 0.5),), ((0.0, 1.0),), 1.0, Melting(4.0, 0.5, 0.8)),
    ]
    enthalpy = make_enthalpy(solids, range(2), (h,), resistance=np.array([[0, 0.1], [0.1, 0]]))
    ids = np.repeat(np.arange(2, dtype=np.uint8), n // 2)
    medium = Medium(
        lambda box: ids[slice(*box[0])], np.eye(2)[None] / h**2, np.ones(2), ("metal", "wax")
    )
    shown = StateVariable("temperature", "degC", "temperature", Total("heat", "J/m^2", 1.0))
    melt = StateVariable("melt", "1", "melt", Total("volume", "m", 1.0))

    def look(box: Ranges, state: Field) -> Field:
        warm = enthalpy.of(enthalpy.temperature, state[0], ids[slice(*box[0])])
        return np.stack([warm, np.clip((warm - 0.5) / 0.3, 0, 1)])

    hot = affine(np.array([2 * 6.0]), -np.ones(1))  # the potential at 2 degC
    problem = replace(
        Case("rod", (n,), 1, closed).problem(),
        grid=Grid((n,), (h,), (h / 2,)),
        boundary=Boundary(((hot, insulated()),)),
        dt=0.3 * h * h,
        conduction=Conduction(medium, enthalpy=enthalpy),
        initial=lambda slab: np.zeros((1, *slab.shape)),
        view=View((shown, melt), look),
    )

    states: list[Field] = [np.zeros((1, n))]
    for step in range(120):
        states.append(reference.advance(states[-1], problem, 1, step))

    def observe(directory: Path, steps: Sequence[int], begin: int = 0) -> None:
        output = StatisticsOutput(problem.seen, directory, every(1, problem))
        output.start(begin)
        for step in steps:
            read = partial(_part, states[step])
            output.write(StateSnapshot(problem, step, read).seen())
        output.close()

    observe(tmp_path / "once", range(121))
    observe(tmp_path / "twice", range(5))
    observe(tmp_path / "twice", range(5, 121), begin=4)
    tables = [(tmp_path / name / "statistics.csv").read_text() for name in ("once", "twice")]
    assert tables[0] == tables[1]
    last, u = rows_of(tmp_path / "once")[-1], states[-1]
    assert 0.5 < last["wax max [degC]"] < last["metal min [degC]"] < 2.0
    assert last["melt max [1]"] > 0.1
    assert last["wax heat [J/m^2]"] == pytest.approx(u[0, n // 2 :].sum() * h)
    assert last["temperature heat [J/m^2]"] == pytest.approx(u.sum() * h)
    assert last["heat flow metal to wax [W/m^2]"] > 0.1
    assert abs(last["heat residual [J/m^2]"]) < 1e-13


FACES = (
    (Dirichlet(3.0), Robin(2.0, 5.0, 2.5)),
    (Fixed(1.0), Neumann(4.0, 2.5)),
)


def test_a_body_that_is_the_same_everywhere_has_flows_and_balance_too(tmp_path: Path) -> None:
    problem = constant_problem()
    h = problem.grid.spacing[0]
    assert problem.grid.spacing[0] != problem.grid.spacing[1]
    problem = replace(problem, boundary=Boundary(FACES))
    follow(problem, tmp_path, range(9))
    rows = rows_of(tmp_path)
    assert [name for name in rows[0] if "[W]" in name] == [
        f"heat flow {face} [W]" for face in ("x-", "x+", "y-", "y+")
    ]
    assert abs(rows[-1]["heat stored [J]"]) > 0.01
    for row in rows:
        assert abs(row["heat residual [J]"]) < 1e-12

    # heat-2d on unequal spacings is one fraction of the neighbours along each axis: the
    # conductivity that this means along y is fraction / dt * h^2 * density.
    fraction = dict(zip(problem.stencil.offsets, problem.stencil.weights, strict=True))[(1, 0)]
    conductivity = fraction / problem.dt * h**2 * 2.5
    u = start_of(problem)[0]
    wanted = conductivity * (3.0 - u[0]).sum() / (h / 2) * problem.grid.spacing[1]
    assert rows[0]["heat flow y- [W]"] == pytest.approx(wanted)


def test_without_heat_or_open_faces_nothing_is_added(tmp_path: Path) -> None:
    follow(constant_problem(), tmp_path, (0,))
    assert list(rows_of(tmp_path)[0])[-1] == "heat [J]"


def test_the_report_of_a_run_has_the_balance_at_its_end(tmp_path: Path) -> None:
    config = make_config(
        {
            "grid": {"shape": [12, 9], "size": ["15 mm", "15 mm"]},
            "model": {"type": "heat", "material": "copper"},
            "initial": {"type": "constant", "value": 100},
            "boundaries": {"*": {"type": "neumann"}, "x-": {"type": "dirichlet", "value": 20}},
            "time": {"cfl": 0.2, "steps": 20},
            "compute": {"method": "cpu.plain", "devices": "cpu", "threads": 1},
            "output": {
                "directory": str(tmp_path),
                "statistics": {"every": "1 steps"},
                "pictures": False,
            },
        },
        environ={},
    )
    report = launch(config)
    last = rows_of(tmp_path)[-1]
    assert last["step"] == 20
    assert report.heat == {name: last[name] for name in list(last)[6:]}
    assert report.heat["heat flow x- [W/m]"] < -100
    stored = report.heat["heat stored [J/m]"]
    assert abs(report.heat["heat residual [J/m]"]) < 1e-12 * last["heat [J/m]"]
    assert f"heat stored {stored:.6g} J/m, through surfaces {stored:.6g} J/m" in report.as_text()
    assert read_audit(tmp_path, 19) == {}
