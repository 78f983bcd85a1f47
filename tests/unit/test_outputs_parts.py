from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.conduction_cases import Case, affine, radiating, waving
from tests.support.outputs_samples import (
    PROVENANCE,
    FakeSnapshot,
    every,
    make_problem,
    snapshot,
    state,
)
from tetris_sim.config import make_config
from tetris_sim.errors import CheckpointError, ConfigError
from tetris_sim.model import reference
from tetris_sim.model.boundary import Dirichlet, Periodic
from tetris_sim.model.conduction import Curve, Enthalpy
from tetris_sim.model.grid import Grid
from tetris_sim.model.problem import Field, Problem
from tetris_sim.model.slab import Slab
from tetris_sim.outputs.field_file import record_name
from tetris_sim.outputs.fields import FieldsOutput
from tetris_sim.outputs.output import OutputTimes
from tetris_sim.outputs.regions import OutputRegion, make_part
from tetris_sim.outputs.sampling import default_cuts, sample
from tetris_sim.outputs.series import Series, open_fields

SHAPE, SIZE = (4, 6, 5), (4.0, 3.0, 10.0)  # spacing 1, 0.5, 2


def asked(moments: OutputTimes, begin: int = -1) -> list[int]:
    steps, step = [], moments.next_step(begin)
    while step is not None:
        steps.append(step)
        step = moments.next_step(step)
    return steps


def test_a_time_between_two_steps_wants_both_and_one_on_a_step_only_that() -> None:
    moments = OutputTimes((2.0, 0.75, 0.0), dt=0.5, last=10)
    assert moments.due == {0: (0.0, 1.0), 2: (0.75, 0.5), 4: (2.0, 1.0)}
    assert moments.before == {1}
    assert asked(moments) == [0, 1, 2, 4]


@given(steps=st.integers(1, 10**6), parts=st.integers(1, 10**6))
def test_a_time_that_is_a_whole_number_of_steps_but_for_rounding_is_one(
    steps: int, parts: int
) -> None:
    moments = OutputTimes((steps / parts,), dt=1 / parts, last=steps)
    assert moments.due == {steps: (steps / parts, 1.0)}


def test_after_a_change_of_the_step_only_later_times_count() -> None:
    moments = OutputTimes((1.0, 2.0, 2.7), dt=0.25, last=20, start=(10, 2.1))
    assert list(moments.due) == [13]
    assert moments.due[13] == pytest.approx((2.7, 0.4))
    assert OutputTimes((2.2,), dt=0.25, last=20, start=(10, 2.1)).before == {10}


def test_times_that_cannot_be_hit_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"0\.6 s and 0\.7 s lie within one step of 0\.5 s"):
        OutputTimes((0.7, 0.6), dt=0.5, last=10)
    with pytest.raises(ConfigError, match=r"5\.1 s is asked for, but the run ends at 5 s"):
        OutputTimes((5.1,), dt=0.5, last=10)


def written(
    problem: Problem, directory: Path, steps: list[int], **options: Any
) -> list[FakeSnapshot]:
    """Let an output write those of some steps that it asks for."""
    output = FieldsOutput(
        problem, directory, options.pop("schedule", None), provenance=PROVENANCE, **options
    )
    output.start(0)
    taken = []
    for step in steps:
        if step == 0 or output.next_step(step - 1) == step:
            taken.append(snapshot(problem, step))
            output.write(taken[-1])
    output.close()
    return taken


def whole(series: Series, record: int) -> Field:
    return series.read(record, 0, tuple((0, n) for n in series.grid.shape))


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_a_field_between_two_steps_is_linear_in_time(tmp_path: Path, compression: Any) -> None:
    problem = make_problem()
    moments = OutputTimes((0.0, 1.2, 3.0), problem.dt, problem.steps)  # dt = 0.5
    taken = written(problem, tmp_path, [*range(41)], moments=moments, compression=compression)
    assert [it.step for it in taken] == [0, 2, 3, 6]
    with open_fields(tmp_path / "fields.h5") as series:
        assert (series.steps, series.times) == ((0, 3, 6), (0.0, 1.2, 3.0))
        between = 0.6 * state(problem, 2)[0] + 0.4 * state(problem, 3)[0]
        np.testing.assert_allclose(whole(series, 1), between, rtol=1e-14)
        assert np.array_equal(whole(series, 2), state(problem, 6)[0])
    assert not (tmp_path / "fields" / "before.h5").exists()


def test_a_time_takes_the_place_of_the_record_that_is_due_at_its_step(tmp_path: Path) -> None:
    problem = make_problem()
    moments = OutputTimes((1.2, 9.9), problem.dt, problem.steps)
    written(problem, tmp_path, [*range(41)], moments=moments, schedule=every(10, problem))
    with open_fields(tmp_path / "fields.h5") as series:
        assert series.steps == (0, 3, 10, 20, 30, 40)
        assert series.times == (0.0, 1.2, 5.0, 9.9, 15.0, 20.0)


def test_a_run_that_goes_on_before_a_time_asks_for_the_state_that_it_begins_with(
    tmp_path: Path,
) -> None:
    problem = make_problem()
    moments = OutputTimes((1.2,), problem.dt, problem.steps)
    output = FieldsOutput(problem, tmp_path, None, provenance=PROVENANCE, moments=moments)
    assert [output.start(step) for step in (0, 1, 2, 3)] == [False, False, True, False]
    output.write(snapshot(problem, 2))
    output.write(snapshot(problem, 3))
    with open_fields(tmp_path / record_name(3)) as series:
        assert series.times == (1.2,)
    output.start(2)
    with pytest.raises(CheckpointError, match=r"before\.h5 is not there"):
        output.write(snapshot(problem, 3))  # what an earlier run left is not taken


def whole_slab(problem: Problem) -> Slab:
    shape = problem.grid.shape
    return Slab(start=(0,) * len(shape), stop=shape, halo=((0, 0),) * len(shape))


def part_of(problem: Problem, box: Any = None, slices: Any = None) -> OutputRegion:
    return make_part(problem, "some", box=box or {}, slices=slices or {})


def test_a_box_holds_the_bits_of_its_points(tmp_path: Path) -> None:
    problem = make_problem(SHAPE, SIZE, dtype="float32")
    part = part_of(problem, {"x": (2.9, 7.0), "z": (0.0, 1.5)})
    taken = written(problem, tmp_path, [0, 20, 40], part=part, schedule=every(20, problem))
    with open_fields(tmp_path / "fields-some.h5") as series:
        assert series.grid == Grid((2, 6, 3), (1.0, 0.5, 2.0), (0.5, 0.25, 3.0))
        assert series.steps == (0, 20, 40)
        for record, it in enumerate(taken):
            assert np.array_equal(whole(series, record), it.values[0, 0:2, :, 1:4])
            assert it.boxes == [((0, 2), (0, 6), (1, 4))]  # no other point was asked for
        assert series.place(1, 0)[0] == tmp_path / record_name(20, "fields-some")


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_slice_is_linear_between_the_points_around_it(tmp_path: Path, axis: int) -> None:
    problem = make_problem(SHAPE, SIZE)
    name, slopes, place = problem.grid.axis_names[axis], (7.0, -5.0, 3.0), (1.7, 1.1, 5.3)[axis]
    values = np.zeros(problem.state_shape)
    for k, slope in enumerate(slopes):
        along = [-1 if i == k else 1 for i in range(3)]
        values += slope * problem.grid.coordinates(k).reshape(along)

    part = part_of(problem, slices={name: place})
    output = FieldsOutput(problem, tmp_path, every(20, problem), provenance=PROVENANCE, part=part)
    output.start(0)
    output.write(FakeSnapshot(problem, 0, values))
    output.close()
    with open_fields(tmp_path / "fields-some.h5") as series:
        others = [k for k in range(3) if k != axis]
        assert series.grid.axis_names == tuple(problem.grid.axis_names[k] for k in others)
        assert series.grid.cut == ((name, place),)
        x, y = (series.grid.coordinates(k) for k in (0, 1))
        expected = slopes[others[0]] * x[:, None] + slopes[others[1]] * y + slopes[axis] * place
        np.testing.assert_allclose(whole(series, 0), expected, rtol=1e-13, atol=1e-12)
        (plane,) = sample(
            lambda box: series.read(0, 0, box), series.grid, default_cuts(series.grid)
        )
        assert plane.axes == series.grid.axis_names
    with h5py.File(tmp_path / "fields-some.h5") as file:
        assert file[name][()] == place
        assert file["temperature"].attrs["coordinates"] == f"step {name}"


def test_a_slice_on_a_face_has_the_values_there_and_one_in_a_seam_those_of_both_sides() -> None:
    held = make_problem(SHAPE, SIZE, face=Dirichlet(7.0))
    plane = part_of(held, slices={"z": 4.0}).read(snapshot(held, 0), ((0, 6), (0, 5)))
    assert np.array_equal(plane, np.full((1, 6, 5), 7.0))

    joined = make_problem(SHAPE, SIZE, face=Periodic())
    u = state(joined, 0)
    line = part_of(joined, {"y": (0, 1.5)}, {"x": 10.0, "z": 0.5})
    found = line.read(snapshot(joined, 0), ((0, 3),))
    np.testing.assert_allclose(found, (u[:, 0, :3, 0] + u[:, 0, :3, -1]) / 2, rtol=1e-15)


def test_on_a_face_with_a_rule_a_slice_has_what_the_rule_says_at_its_time() -> None:
    def face(axis: int, side: int, n_ids: int) -> Any:
        return waving(3.0, 5.0) if (axis, side) == (0, 0) else radiating(2)

    problem = Case("plate", (6, 8), 3, face).problem()
    taken = FakeSnapshot(problem, 17, problem.initial(whole_slab(problem)))
    line = part_of(problem, slices={"y": 0.0}).read(taken, ((0, 8),))
    wave = 3.0 * np.sin(2 * np.pi * problem.time(17) / 5.0)
    np.testing.assert_allclose(line, np.full((1, 8), wave), rtol=1e-13)

    # Half of the way to the face, and on the other one half of the way to the ghosts.
    size = problem.grid.size[0]
    line = part_of(problem, slices={"y": 0.25 * problem.grid.spacing[0]}).read(taken, ((0, 8),))
    np.testing.assert_allclose(line, (taken.values[:, 0] + wave) / 2, rtol=1e-13)
    line = part_of(problem, slices={"y": size}).read(taken, ((0, 8),))
    mirror, x = taken.values[:, -1], problem.grid.coordinates(1)
    y = problem.grid.coordinates(0)[-1]
    ghost = mirror + 0.01 * (1.5**4 - (abs(mirror) + 0.1) ** 4) * (1 + 0.1 * x * y)
    np.testing.assert_allclose(line, (mirror + ghost) / 2, rtol=1e-13)


def test_where_the_state_is_heat_the_way_to_a_face_is_in_degrees() -> None:
    c, k, flux = 4.0, 2.5, 7.0  # H = c T, phi = k T
    case = Case("rod", (6,), 1, lambda axis, side, n: affine(np.array([0.5 * flux]), np.ones(1)))
    plain = case.problem()  # a spacing of 0.5; ghosts are potentials

    def curve(slope: float, begin: float = 0.0) -> Curve:
        return Curve(np.array([[begin]]), np.array([[slope]]))

    enthalpy = Enthalpy(
        knots=np.zeros((1, 1)),
        temperature=curve(1 / c),
        potential=curve(k / c),
        conductivity=curve(0.0, k),
        kinds=np.zeros(1, np.int64),
        half=np.full((1, 1), 0.125),
        contact=np.zeros((1, 1, 1)),
        radiance=np.zeros((1, 1, 1)),
    )
    assert plain.conduction is not None
    problem = replace(plain, conduction=replace(plain.conduction, enthalpy=enthalpy))
    heat = problem.initial(whole_slab(problem))[0]
    risen = reference.rise_to_face(problem, 0, 0, "high", ((5, 6),), heat[5:])
    np.testing.assert_allclose(risen, 0.25 * flux / k, rtol=1e-13)  # half a cell at flux / k


def test_a_box_between_two_points_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"output\.parts: some holds no point"):
        part_of(make_problem(SHAPE, SIZE), {"x": (3.1, 4.9)})


@pytest.mark.parametrize(
    ("output", "complaint"),
    [
        ({"fields": {"compression": "gzip"}}, "neither every nor at is given"),
        ({"fields": {"at": [1, "20 s"]}}, r"output\.fields\.at\.1: 20 s is after the end"),
        ({"parts": [{"name": "a", "every": 1}]}, "neither box nor slice"),
        ({"parts": [{"name": "a", "every": 1, "slice": {"z": 1}}]}, "no axis z"),
        ({"parts": [{"name": "a", "every": 1, "slice": {"x": 1, "y": 1}}]}, "no axis is left"),
        ({"parts": [{"name": "a", "every": 1, "slice": {"x": 5}}]}, "x = 5 m is outside the box"),
        ({"parts": [{"name": "a", "every": 1, "box": {"x": [2, 1]}}]}, "lower end comes first"),
        (
            {"parts": [{"name": "a", "every": 1, "box": {"x": [0, 1]}, "slice": {"x": 1}}]},
            "x is in box and in slice",
        ),
        (
            {"parts": [{"name": "a", "every": 1, "slice": {"x": 1}}] * 2},
            "two parts are named 'a'",
        ),
    ],
)
def test_outputs_that_mean_nothing_are_refused(output: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        make_config(
            {
                "grid": {"shape": [8, 6], "size": [4, 3]},
                "model": {"type": "heat", "diffusivity": 1e-3},
                "initial": {"type": "constant", "value": 1},
                "boundaries": {"*": {"type": "periodic"}},
                "time": {"t_end": 10},
                "output": output,
            }
        )
