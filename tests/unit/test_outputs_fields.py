from __future__ import annotations

import errno
import json
import os
import shutil
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import h5py
import numpy as np
import pytest

from tests.support.outputs_samples import (
    SALT,
    SHAPES,
    TEMPERATURE,
    fields_output,
    make_problem,
    names,
    snapshot,
    state,
    write_fields,
)
from tetris_sim.errors import CheckpointError, ExitCode, UnsupportedError
from tetris_sim.model.problem import Problem
from tetris_sim.outputs import field_file, fields
from tetris_sim.outputs.regions import blocks, chunk_shape
from tetris_sim.outputs.series import open_fields

STEPS = (0, 20, 40)
BOTH = (TEMPERATURE, SALT)


def whole(problem: Problem) -> tuple[tuple[int, int], ...]:
    return tuple((0, n) for n in problem.grid.shape)


@pytest.mark.parametrize("ndim", [1, 2, 3])
@pytest.mark.parametrize(("dtype", "compression"), [("float64", "none"), ("float32", "gzip")])
def test_every_bit_of_the_fields_is_in_the_files(
    tmp_path: Path, ndim: int, dtype: str, compression: str
) -> None:
    problem = make_problem(SHAPES[ndim], variables=BOTH, dtype=dtype)
    write_fields(problem, tmp_path, compression=compression)
    with h5py.File(tmp_path / "fields.h5") as index:
        for k, variable in enumerate(problem.variables):
            dataset = index[variable.name]
            assert dataset.is_virtual
            assert dataset.dtype == dtype
            np.testing.assert_array_equal(dataset[:], [state(problem, step)[k] for step in STEPS])
            assert dataset.attrs["units"] == variable.unit
            assert dataset.attrs["long_name"] == variable.long_name
        np.testing.assert_array_equal(index["time"][:], [0.0, 10.0, 20.0])
        np.testing.assert_array_equal(index["step"][:], STEPS)
        for axis, name in enumerate(problem.grid.axis_names):
            np.testing.assert_array_equal(index[name][:], problem.grid.coordinates(axis))
            assert index[name].is_scale
            assert index[name].attrs["units"] == "m"
        assert index["meta/config"].asstr()[()] == "title: Test\nmodel: {type: heat}\n"
        assert index["meta"].attrs["run_id"] == "abc"
        assert index.attrs["creator"].startswith("tetris_sim ")
        assert index.attrs["format_version"] == 1
    with h5py.File(tmp_path / "fields" / "fields_000000000020.h5") as file:
        assert set(file) == {
            "time",
            "step",
            "meta",
            "temperature",
            "salt",
            *problem.grid.axis_names,
        }
        np.testing.assert_array_equal(file["salt"][:], state(problem, 20)[1][None])
        np.testing.assert_array_equal(file["time"][:], [10.0])
        assert file["salt"].compression == (None if compression == "none" else "gzip")


@pytest.mark.parametrize("ndim", [1, 2, 3])
@pytest.mark.parametrize("name", ["fields.h5", "fields/fields_000000000020.h5"])
def test_xarray_reads_the_files_without_code_of_ours(tmp_path: Path, ndim: int, name: str) -> None:
    import xarray as xr

    problem = make_problem(SHAPES[ndim], variables=BOTH)
    write_fields(problem, tmp_path)
    steps = STEPS if name == "fields.h5" else (20,)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("error")
        with xr.open_dataset(tmp_path / name, engine="h5netcdf") as dataset:
            assert set(dataset.data_vars) == {"temperature", "salt"}
            assert set(dataset.coords) == {"time", "step", *problem.grid.axis_names}
            assert dataset["salt"].dims == ("time", *problem.grid.axis_names)
            assert dataset["salt"].attrs["units"] == "kg/m^3"
            np.testing.assert_array_equal(
                dataset["salt"].values, [state(problem, step)[1] for step in steps]
            )
            np.testing.assert_array_equal(dataset["step"].values, steps)
            x = float(problem.grid.coordinates(ndim - 1)[2])
            chosen = dataset["temperature"].sel(time=10.0, x=x).values
    np.testing.assert_array_equal(chosen, state(problem, 20)[0][..., 2])


@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_our_reader_gives_back_grid_times_and_any_box(tmp_path: Path, ndim: int) -> None:
    problem = make_problem(SHAPES[ndim], variables=BOTH, dt_limit=float("inf"))
    write_fields(problem, tmp_path)
    with open_fields(tmp_path / "fields.h5") as series:
        assert series.grid == problem.grid
        assert (series.steps, series.times) == (STEPS, (0.0, 10.0, 20.0))
        assert [v.name for v in series.variables] == [
            "temperature",
            "salt",
        ]  # the problem's order, not the alphabet's
        assert series.timeless
        box = tuple((1, n - 1) for n in problem.grid.shape)
        np.testing.assert_array_equal(
            series.read(2, 1, box), state(problem, 40)[1][(slice(1, -1),) * ndim]
        )


def test_a_moved_directory_still_opens_wherever_one_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = make_problem()
    write_fields(problem, tmp_path / "here")
    shutil.move(tmp_path / "here", tmp_path / "there")
    # A decoy in the working directory must not be taken for the files beside the index.
    write_fields(make_problem(dt=0.25), tmp_path / "decoy", steps=(0, 20))
    with h5py.File(tmp_path / "decoy" / "fields" / "fields_000000000020.h5", "r+") as file:
        file["temperature"][:] = -1.0
    monkeypatch.chdir(tmp_path / "decoy")
    with h5py.File(tmp_path / "there" / "fields.h5") as index:
        np.testing.assert_array_equal(index["temperature"][1], state(problem, 20)[0])


def test_a_restart_drops_later_records_and_what_a_kill_left(tmp_path: Path) -> None:
    problem = make_problem()
    write_fields(problem, tmp_path)
    for leftover in (
        "fields.h5.123.part",
        "fields.xdmf.4.part",
        "fields/fields_000000000060.h5.9.part",
    ):
        (tmp_path / leftover).write_text("torn")
    (tmp_path / "checkpoint.h5.1.part").write_text("not ours")
    output = fields_output(problem, tmp_path)
    output.start(20)
    assert names(tmp_path) == [
        "checkpoint.h5.1.part",
        "fields.h5",
        "fields.xdmf",
        "fields/fields_000000000000.h5",
        "fields/fields_000000000020.h5",
    ]
    with open_fields(tmp_path / "fields.h5") as series:
        assert series.steps == (0, 20)
    output.write(snapshot(problem, 40))
    output.close()
    with open_fields(tmp_path / "fields.h5") as series:
        assert series.steps == STEPS


def test_a_fresh_start_keeps_nothing(tmp_path: Path) -> None:
    write_fields(make_problem(SHAPES[3]), tmp_path)
    output = fields_output(make_problem(SHAPES[2]), tmp_path)
    output.start(0)
    assert names(tmp_path) == []


def test_a_record_that_is_written_again_is_replaced(tmp_path: Path) -> None:
    problem = make_problem()
    output = fields_output(problem, tmp_path)
    output.start(0)
    for step in (0, 20, 20):
        output.write(snapshot(problem, step))
    changed = snapshot(problem, 20)
    changed.values = changed.values + 1
    output.write(changed)
    output.close()
    with open_fields(tmp_path / "fields.h5") as series:
        assert series.steps == (0, 20)
        np.testing.assert_array_equal(series.read(1, 0, whole(problem)), state(problem, 20)[0] + 1)


@pytest.mark.parametrize(
    "other",
    [
        make_problem((5, 9)),
        make_problem(size=(0.25, 0.9)),
        make_problem(dtype="float32"),
        make_problem(variables=BOTH),
    ],
    ids=["shape", "size", "dtype", "variables"],
)
def test_a_restart_beside_fields_of_another_problem_is_refused(
    tmp_path: Path, other: Problem
) -> None:
    write_fields(make_problem(), tmp_path)
    with pytest.raises(CheckpointError, match="--overwrite"):
        fields_output(other, tmp_path).start(20)
    assert "fields/fields_000000000020.h5" in names(tmp_path)


@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_memory_is_that_of_a_block(
    tmp_path: Path, ndim: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = make_problem({1: (4000,), 2: (90, 70), 3: (12, 20, 30)}[ndim], variables=BOTH)
    limit = problem.state_bytes // 9
    monkeypatch.setattr(
        field_file, "blocks", lambda *args, **kw: blocks(*args, **{**kw, "limit": limit})
    )
    taken = snapshot(problem, 0)
    output = fields_output(problem, tmp_path)
    output.start(0)
    output.write(taken)
    output.close()
    assert 0 < taken.largest <= limit
    with open_fields(tmp_path / "fields.h5") as series:
        np.testing.assert_array_equal(series.read(0, 0, whole(problem)), state(problem, 0)[0])


def test_a_full_disk_leaves_the_old_index_and_says_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = make_problem()
    output = fields_output(problem, tmp_path)
    output.start(0)
    output.write(snapshot(problem, 0))
    before = {name: (tmp_path / name).read_bytes() for name in names(tmp_path)}
    real = os.pwrite

    def pwrite(descriptor: int, data: Any, offset: int) -> int:
        if offset > 2000:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, data, offset)

    with monkeypatch.context() as full:
        full.setattr(os, "pwrite", pwrite)
        with pytest.raises(
            UnsupportedError, match=r"fields_000000000020\.h5 cannot be written: disk full"
        ) as caught:
            output.write(snapshot(problem, 20))
        output.close()
    assert "bytes are free" in str(caught.value)
    assert caught.value.exit_code == ExitCode.RESOURCES
    assert {name: (tmp_path / name).read_bytes() for name in names(tmp_path)} == before
    with open_fields(tmp_path / "fields.h5") as series:
        assert series.steps == (0,)


def test_with_many_records_the_index_is_not_written_with_each_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = make_problem((3,), steps=10**6)
    written: list[int] = []
    real = field_file.write_index
    now = 0.0

    def write_index(directory: Path, problem: Problem, records: Any, *more: Any) -> Path:
        nonlocal now
        written.append(len(records))
        now += 0.01 * len(records)  # seconds
        return real(directory, problem, records, *more)

    monkeypatch.setattr(fields, "write_index", write_index)
    monkeypatch.setattr(fields, "time", SimpleNamespace(perf_counter=lambda: now))
    output = fields_output(problem, tmp_path)
    output.start(0)
    for step in range(60):
        now += 1.0
        output.write(snapshot(problem, step))
        output.flush()  # as before a checkpoint
    assert 5 < len(written) < 25
    assert 0.01 * sum(written) < 0.06 * now  # however many records there are

    output.close()
    assert written[-1] == 60
    with open_fields(tmp_path / "fields.h5") as series:
        assert series.steps == tuple(range(60))


@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_the_xdmf_file_leads_to_the_right_numbers_in_a_box_of_true_size(
    tmp_path: Path, ndim: int
) -> None:
    problem = make_problem(SHAPES[ndim], variables=BOTH, dtype="float32")
    write_fields(problem, tmp_path)
    root = ElementTree.parse(tmp_path / "fields.xdmf").getroot()
    frames = root.findall("./Domain/Grid[@CollectionType='Temporal']/Grid")
    assert [float(frame.find("Time").attrib["Value"]) for frame in frames] == [0.0, 10.0, 20.0]  # type: ignore[union-attr]
    missing = 3 - ndim
    for step, frame in zip(STEPS, frames, strict=True):
        topology = frame.find("Topology")
        assert topology is not None
        assert topology.attrib["TopologyType"] == "3DCoRectMesh"
        nodes = [int(word) for word in topology.attrib["Dimensions"].split()]
        assert nodes == [2] * missing + [n + 1 for n in problem.grid.shape]
        corner, spacing = (
            [float(w) for w in (item.text or "").split()]
            for item in frame.findall("Geometry/DataItem")
        )
        lengths = [(n - 1) * h for n, h in zip(nodes, spacing, strict=True)][missing:]
        np.testing.assert_allclose(lengths, problem.grid.size, rtol=1e-15)
        np.testing.assert_allclose(corner, 0.0, rtol=0, atol=1e-17)
        attributes = frame.findall("Attribute")
        assert [attribute.attrib["Name"] for attribute in attributes] == ["temperature", "salt"]
        for k, attribute in enumerate(attributes):
            assert attribute.attrib["Center"] == "Cell"
            np.testing.assert_array_equal(
                read_hyperslab(attribute, tmp_path), state(problem, step)[k].ravel()
            )


def read_hyperslab(attribute: ElementTree.Element, directory: Path) -> Any:
    """What a reader of XDMF sees: the selected part of the dataset, a value per cell."""
    slab = attribute.find("DataItem")
    assert slab is not None
    selection, item = slab.findall("DataItem")
    name, _, dataset = (item.text or "").strip().partition(":")
    start, stride, count = np.array([int(w) for w in (selection.text or "").split()]).reshape(3, -1)
    with h5py.File(directory / name) as file:
        assert list(file[dataset].shape) == [int(w) for w in item.attrib["Dimensions"].split()]
        assert file[dataset].dtype.itemsize == int(item.attrib["Precision"])
        values = file[dataset][
            tuple(slice(a, a + b * c, b) for a, b, c in zip(start, stride, count, strict=True))
        ]
    assert values.size == np.prod([int(w) for w in slab.attrib["Dimensions"].split()])
    return values.ravel()


def test_a_record_that_somebody_removed_is_named(tmp_path: Path) -> None:
    problem = make_problem()
    write_fields(problem, tmp_path)
    (tmp_path / "fields" / "fields_000000000020.h5").unlink()
    with open_fields(tmp_path / "fields.h5") as series:
        np.testing.assert_array_equal(series.read(2, 0, whole(problem)), state(problem, 40)[0])
        with pytest.raises(CheckpointError, match=r"fields_000000000020\.h5 is not there"):
            series.read(1, 0, whole(problem))
    with h5py.File(tmp_path / "fields.h5") as index:
        assert np.isnan(index["temperature"][1]).all()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "is not there"),
        (b"no HDF5 at all", "cannot be opened as HDF5"),
        (b"", "cannot be opened as HDF5"),
    ],
)
def test_a_file_that_cannot_be_read_is_said_so(
    tmp_path: Path, content: bytes | None, message: str
) -> None:
    path = tmp_path / "fields.h5"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CheckpointError, match=message), open_fields(path):
        pass


def test_files_of_other_programs_and_of_the_future_are_refused(tmp_path: Path) -> None:
    write_fields(make_problem(), tmp_path)
    with h5py.File(tmp_path / "foreign.h5", "w") as file:
        file["temperature"] = np.arange(3)
    with (
        pytest.raises(CheckpointError, match="not one of fields"),
        open_fields(tmp_path / "foreign.h5"),
    ):
        pass
    with h5py.File(tmp_path / "fields.h5", "r+") as file:
        file.attrs["format_version"] = 2
    with pytest.raises(CheckpointError, match="format version 2, this program reads up to 1"):
        open_fields(tmp_path / "fields.h5").__enter__()


def test_a_file_without_a_part_of_ours_is_damaged(tmp_path: Path) -> None:
    write_fields(make_problem(), tmp_path)
    with h5py.File(tmp_path / "fields.h5", "r+") as file:
        del file["step"]
    with pytest.raises(CheckpointError, match="is damaged"), open_fields(tmp_path / "fields.h5"):
        pass


@pytest.mark.parametrize("shape", [(1,), (1000,), (7, 5), (1, 1, 50), (3, 40, 50), (50, 1, 3)])
@pytest.mark.parametrize("limit", [8, 100, 3000, 10**9])
def test_blocks_cover_the_grid_once_in_storage_order(shape: tuple[int, ...], limit: int) -> None:
    numbers = np.arange(np.prod(shape)).reshape(shape)
    found = [numbers[tuple(slice(*pair) for pair in box)] for box in blocks(shape, 8, limit=limit)]
    np.testing.assert_array_equal(np.concatenate([part.ravel() for part in found]), numbers.ravel())
    assert max(part.size * 8 for part in found) <= max(limit, 8)


def test_blocks_of_a_packed_file_never_share_a_chunk() -> None:
    shape = (23, 40, 50)
    chunk = chunk_shape(shape, 8, target=8 * 50 * 6)
    assert chunk == (1, 6, 50)
    for box in blocks(shape, 8, multiple=chunk, limit=8 * 50 * 15):
        for (low, high), n, unit in zip(box, shape, chunk, strict=True):
            assert low % unit == 0
            assert high % unit == 0 or high == n


def test_versions_are_stored_with_the_fields(tmp_path: Path) -> None:
    write_fields(make_problem(), tmp_path)
    with h5py.File(tmp_path / "fields.h5") as file:
        assert json.loads(file["meta"].attrs["versions"]) == {"x": "1"}
