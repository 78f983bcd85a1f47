from __future__ import annotations

import dataclasses
import itertools
import math
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.checkpoint_samples import (
    SHAPES,
    awkward_field,
    bits,
    make_problem,
    make_state,
    reader,
    save,
    whole,
)
from tetris_sim.errors import CheckpointError
from tetris_sim.model.boundary import Boundary, Dirichlet, Periodic
from tetris_sim.model.method import Box
from tetris_sim.model.problem import Field, Problem
from tetris_sim.model.slab import Slab
from tetris_sim.model.stencil import Stencil
from tetris_sim.outputs.checkpoint import (
    file,
    open_checkpoint,
    problem_digest,
    write_checkpoint,
    write_crash_dump,
)
from tetris_sim.outputs.checkpoint.state import RunState, as_plain


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
@pytest.mark.parametrize("n_fields", [1, 3])
@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_what_is_read_is_what_was_written_to_the_bit(
    tmp_path: Path, ndim: int, n_fields: int, dtype: Any
) -> None:
    problem = make_problem(SHAPES[ndim], dtype=dtype, n_fields=n_fields)
    state, u = make_state(problem), awkward_field(problem)
    path = write_checkpoint(tmp_path / "new" / "folder", state, problem, reader(u), keep=2)
    assert path == tmp_path / "new" / "folder" / "checkpoint_000000000120.h5"
    with open_checkpoint(path) as checkpoint:
        values = checkpoint.read(whole(problem))
        assert values.dtype == dtype
        assert np.array_equal(bits(values), bits(u))
        assert checkpoint.state == state
        assert checkpoint.grid == problem.grid
        assert checkpoint.variables == problem.variables
        assert checkpoint.dtype == dtype
        assert checkpoint.shape == problem.state_shape
        assert checkpoint.good
        assert checkpoint.path == path


def test_only_the_finished_file_is_left_behind(tmp_path: Path) -> None:
    assert list(tmp_path.iterdir()) == []
    path = save(tmp_path, 7)
    assert list(tmp_path.iterdir()) == [path]


def test_a_state_of_any_size_and_script_comes_back(tmp_path: Path) -> None:
    problem = make_problem()
    state = make_state(
        problem,
        config="title: 銅板\n" + "# a long comment\n" * 10_000,
        config_history=("first: 1\n", "", "zweite: ä\n" * 20_000),
        methods={
            "workers": {
                f"cpu:{k}": {"method": "cpu.plain", "parameters": {"tile": k}} for k in range(3000)
            }
        },
        dt=math.nextafter(problem.dt, 1),
        wall_time_s=0.1 + 0.2,
    )
    with open_checkpoint(
        write_checkpoint(tmp_path, state, problem, reader(awkward_field(problem)), keep=1)
    ) as found:
        assert found.state == state
        assert found.state.time == 120 * state.dt


def test_a_state_as_plain_data_names_every_attribute() -> None:
    state = make_state(make_problem())
    plain = as_plain(state)
    assert plain["time"] == state.time
    assert {field.name for field in dataclasses.fields(RunState)} < set(plain)


@st.composite
def _boxes(draw: st.DrawFn, shape: tuple[int, ...]) -> Box:
    return tuple(
        draw(st.tuples(st.integers(0, n), st.integers(0, n)).map(lambda p: (min(p), max(p))))
        for n in shape
    )


@given(data=st.data())
def test_any_box_can_be_read_alone(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    problem = make_problem(SHAPES[3], n_fields=2)
    u = awkward_field(problem)
    path = tmp_path_factory.getbasetemp() / "boxes" / "checkpoint_000000000120.h5"
    if not path.exists():
        write_checkpoint(path.parent, make_state(problem), problem, reader(u), keep=1)
    box = data.draw(_boxes(problem.grid.shape))
    with open_checkpoint(path) as checkpoint:
        assert np.array_equal(bits(checkpoint.read(box)), bits(reader(u)(box)))


def test_a_run_goes_on_from_any_partition(tmp_path: Path) -> None:
    problem = make_problem(SHAPES[3])
    u = awkward_field(problem)
    path = write_checkpoint(tmp_path, make_state(problem), problem, reader(u), keep=1)
    with open_checkpoint(path) as checkpoint:
        n0, n1, n2 = problem.grid.shape
        for cut in range(1, n0):
            low = Slab((0, 0, 0), (cut, n1, n2), ((0, 2), (0, 0), (0, 0)))
            high = Slab((cut, 0, 0), (n0, n1, n2), ((2, 0), (0, 0), (0, 0)))
            parts = [checkpoint.initial(slab) for slab in (low, high)]
            assert np.array_equal(bits(np.concatenate(parts, axis=1)), bits(u))


@pytest.mark.parametrize(
    ("shape", "limit"), [((37,), 80), ((13, 29), 29 * 2 * 8 * 3), ((7, 5, 11), 200)]
)
def test_the_state_is_read_block_by_block_and_every_point_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...], limit: int
) -> None:
    monkeypatch.setattr(file, "_BLOCK", limit)
    problem = make_problem(shape, n_fields=2)
    u = awkward_field(problem)
    seen = np.zeros(shape, dtype=int)
    sizes = []

    def read(box: Box) -> Field:
        seen[tuple(slice(low, high) for low, high in box)] += 1
        values = reader(u)(box)
        sizes.append(values.nbytes)
        return values

    with open_checkpoint(
        write_checkpoint(tmp_path, make_state(problem), problem, read, keep=1)
    ) as checkpoint:
        assert np.array_equal(bits(checkpoint.read(whole(problem))), bits(u))
    assert (seen == 1).all()
    assert len(sizes) > 2
    assert max(sizes) <= limit


def test_values_of_another_precision_are_refused_and_leave_nothing_behind(tmp_path: Path) -> None:
    problem = make_problem(dtype=np.float32)
    u = np.zeros(problem.state_shape)
    with pytest.raises(TypeError, match="float32 problem was given values of float64"):
        write_checkpoint(tmp_path, make_state(problem), problem, reader(u), keep=1)
    assert list(tmp_path.iterdir()) == []


def test_any_hdf5_reader_finds_the_field_and_its_coordinates(tmp_path: Path) -> None:
    problem = make_problem(SHAPES[3], n_fields=2)
    u = awkward_field(problem)
    path = write_checkpoint(tmp_path, make_state(problem), problem, reader(u), keep=1)
    with h5py.File(path) as file:
        assert np.array_equal(bits(file["fields/u1"][:]), bits(u[1]))
        assert [dimension[0].name for dimension in file["fields/u1"].dims] == [
            "/fields/z",
            "/fields/y",
            "/fields/x",
        ]
        assert file["fields/u1"].attrs["units"] == "degC"
        assert file["meta"].attrs["step"] == 120
        assert file["meta/config"].asstr()[()] == "title: Kupferplatte, 15 µm\n"


def test_xarray_opens_it_without_being_told_how(tmp_path: Path) -> None:
    xarray = pytest.importorskip("xarray")
    problem = make_problem()
    u = awkward_field(problem)
    path = write_checkpoint(tmp_path, make_state(problem), problem, reader(u), keep=1)
    with xarray.open_dataset(path, group="fields") as data:
        assert data["u0"].dims == ("y", "x")
        assert np.array_equal(bits(data["u0"].values), bits(u[0]))
        assert np.array_equal(data["x"].values, problem.grid.coordinates(1))


def test_a_crash_dump_can_be_looked_at_and_says_what_it_is(tmp_path: Path) -> None:
    problem = make_problem()
    u = awkward_field(problem)
    u[0, 3, 4], u[0, 5, 6] = np.nan, -np.inf
    path = write_crash_dump(tmp_path, make_state(problem, 33), problem, reader(u))
    assert path == tmp_path / "crash_000000000033.h5"
    with open_checkpoint(path) as checkpoint:
        assert not checkpoint.good
        assert np.array_equal(bits(checkpoint.read(whole(problem))), bits(u))


def test_reading_after_closing_is_a_clean_error(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(save(tmp_path, 7))
    checkpoint.close()
    with pytest.raises(CheckpointError, match=r"checkpoint_000000000007\.h5"):
        checkpoint.read(((0, 1), (0, 1)))


def _changed_problems() -> dict[str, Problem]:
    problem = make_problem()
    grid, stencil = problem.grid, problem.stencil
    terms = stencil.terms
    (name, *others) = problem.variables
    ulp = {(0, 0): math.nextafter(terms[0, 0], 1)}
    return {
        "shape": make_problem((29, 13)),
        "spacing": dataclasses.replace(
            problem,
            grid=dataclasses.replace(
                grid, spacing=(grid.spacing[0], math.nextafter(grid.spacing[1], 1))
            ),
        ),
        "origin": dataclasses.replace(problem, grid=dataclasses.replace(grid, origin=(0.0, 0.0))),
        "weight": dataclasses.replace(problem, stencil=Stencil.from_terms(terms | ulp)),
        "offset": dataclasses.replace(problem, stencil=Stencil.from_terms(terms | {(1, 1): 0.0})),
        "boundary": dataclasses.replace(
            problem,
            boundary=Boundary(
                ((problem.boundary.faces[0][0], Dirichlet(1.25)), (Periodic(), Periodic()))
            ),
        ),
        "periodic": dataclasses.replace(problem, boundary=Boundary.everywhere(Periodic(), 2)),
        "dt": dataclasses.replace(problem, dt=math.nextafter(problem.dt, 1)),
        "dtype": make_problem(dtype=np.float32),
        "name": dataclasses.replace(
            problem, variables=(dataclasses.replace(name, name="v"), *others)
        ),
        "n_fields": make_problem(n_fields=2),
    }


def test_the_digest_of_a_problem_changes_with_every_part_of_it() -> None:
    digests = {"unchanged": problem_digest(make_problem())}
    digests |= {name: problem_digest(problem) for name, problem in _changed_problems().items()}
    for first, second in itertools.combinations(digests, 2):
        assert digests[first] != digests[second], (first, second)


def test_the_digest_of_a_problem_does_not_know_its_length_or_its_initial_field() -> None:
    problem = make_problem()
    other = dataclasses.replace(
        problem, steps=5, initial=lambda slab: np.ones((1, *slab.shape)), dt_limit=3.0
    )
    assert problem_digest(other) == problem_digest(problem) == problem_digest(make_problem())
