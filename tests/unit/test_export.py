from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import h5py
import numpy as np
import pytest
from PIL import Image

from tests.support.checkpoint_samples import make_problem as make_checkpoint_problem
from tests.support.checkpoint_samples import make_state
from tests.support.outputs_samples import (
    SALT,
    SHAPES,
    TEMPERATURE,
    make_problem,
    names,
    snapshot,
    state,
    write_fields,
)
from tetris_sim.__main__ import main
from tetris_sim.commands.export import WRITERS
from tetris_sim.config.sections.quantities import Every
from tetris_sim.errors import ExitCode
from tetris_sim.model.problem import Problem
from tetris_sim.outputs.checkpoint import write_checkpoint
from tetris_sim.outputs.output import StepSchedule
from tetris_sim.outputs.tables import ProbeOutput

STEPS = (0, 20, 40)
BOTH = (TEMPERATURE, SALT)


@pytest.fixture(autouse=True)
def _as_on_the_command_line() -> Any:
    with np.errstate(all="warn"):
        yield


def export(source: Path, target: Path, *flags: str) -> int:
    return main(["export", str(source), "-o", str(target), *flags])


def said(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().err


@pytest.fixture(params=[1, 2, 3])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Problem, Path]:
    """A results directory with three records of two variables, in 1D, 2D and 3D."""
    problem = make_problem(
        SHAPES[request.param], variables=BOTH, dtype="float32" if request.param == 2 else "float64"
    )
    write_fields(problem, tmp_path / "run")
    return problem, tmp_path / "run"


@pytest.fixture
def plate(tmp_path: Path) -> Path:
    write_fields(make_problem((30, 40), (0.3, 0.4)), tmp_path / "run")
    return tmp_path / "run"


def test_vtkhdf_is_laid_out_as_its_specification_says(
    run: tuple[Problem, Path], tmp_path: Path
) -> None:
    problem, directory = run
    assert export(directory, tmp_path / "a.vtkhdf") == 0
    with h5py.File(tmp_path / "a.vtkhdf") as file:
        root = file["VTKHDF"]
        assert list(root.attrs["Version"]) == [2, 0]
        assert root.attrs["Type"] == b"ImageData"
        kind = root.attrs.get_id("Type").get_type()
        assert not kind.is_variable_str()  # VTK asks for a string of fixed length
        cells = [*problem.grid.shape[::-1], 0, 0][:3]
        assert list(root.attrs["WholeExtent"]) == [0, cells[0], 0, cells[1], 0, cells[2]]
        ndim = problem.grid.ndim
        np.testing.assert_allclose(root.attrs["Origin"], 0, atol=1e-17)
        np.testing.assert_array_equal(root.attrs["Spacing"][:ndim], problem.grid.spacing[::-1])
        assert (root.attrs["Spacing"] > 0).all()
        np.testing.assert_array_equal(root.attrs["Direction"], np.eye(3).ravel())
        assert root["Steps"].attrs["NSteps"] == 3
        np.testing.assert_array_equal(root["Steps/Values"][:], [0.0, 10.0, 20.0])
        for k, variable in enumerate(BOTH):
            np.testing.assert_array_equal(
                root[f"Steps/CellDataOffsets/{variable.name}"][:], [0, 1, 2]
            )
            values = root[f"CellData/{variable.name}"]
            assert values.dtype == problem.dtype
            np.testing.assert_array_equal(values[:], [state(problem, step)[k] for step in STEPS])


def test_netcdf_is_read_by_xarray(run: tuple[Problem, Path], tmp_path: Path) -> None:
    import xarray as xr

    problem, directory = run
    assert export(directory, tmp_path / "a.nc", "--every", "2") == 0
    with xr.open_dataset(tmp_path / "a.nc", engine="h5netcdf") as dataset:
        assert set(dataset.coords) == {"time", "step", *problem.grid.axis_names}
        assert dataset["temperature"].dims == ("time", *problem.grid.axis_names)
        np.testing.assert_array_equal(dataset["time"].values, [0.0, 20.0])
        np.testing.assert_array_equal(
            dataset["salt"].values, [state(problem, step)[1] for step in (0, 40)]
        )
        assert dataset["salt"].attrs["units"] == "kg/m^3"
        assert dataset.attrs["title"] == "Test"


def test_npy_holds_all_times_or_one(run: tuple[Problem, Path], tmp_path: Path) -> None:
    problem, directory = run
    assert export(directory, tmp_path / "all.npy") == 0
    assert export(directory, tmp_path / "one.npy", "--step", "20", "--variable", "salt") == 0
    assert export(directory, tmp_path / "near.npy", "--time", "19 s") == 0
    assert export(directory, tmp_path / "last.npy", "--last") == 0
    np.testing.assert_array_equal(
        np.load(tmp_path / "all.npy"), [state(problem, step)[0] for step in STEPS]
    )
    np.testing.assert_array_equal(np.load(tmp_path / "one.npy"), state(problem, 20)[1])
    np.testing.assert_array_equal(np.load(tmp_path / "near.npy"), state(problem, 40)[0])
    np.testing.assert_array_equal(np.load(tmp_path / "last.npy"), state(problem, 40)[0])
    assert np.load(tmp_path / "all.npy").dtype == problem.dtype


def test_xdmf_elsewhere_points_back_to_the_files(run: tuple[Problem, Path], tmp_path: Path) -> None:
    problem, directory = run
    (tmp_path / "views").mkdir()
    assert export(directory, tmp_path / "views" / "a.xdmf", "--variable", "salt") == 0
    root = ElementTree.parse(tmp_path / "views" / "a.xdmf").getroot()
    items = root.findall(".//Attribute/DataItem/DataItem[@Format='HDF']")
    assert len(items) == 3
    for item, step in zip(items, STEPS, strict=True):
        name, _, dataset = (item.text or "").partition(":")
        assert not Path(name).is_absolute()
        with h5py.File(tmp_path / "views" / name) as file:
            np.testing.assert_array_equal(file[dataset][0], state(problem, step)[1])


def test_csv_has_a_row_per_time_and_point_of_a_line(tmp_path: Path) -> None:
    problem = make_problem(SHAPES[1], variables=BOTH)
    write_fields(problem, tmp_path / "run")
    assert export(tmp_path / "run", tmp_path / "a.csv") == 0
    with (tmp_path / "a.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["step", "time [s]", "x [m]", "temperature [degC]", "salt [kg/m^3]"]
    assert len(rows) == 3 * 7
    numbers = np.array(rows, dtype=float).reshape(3, 7, 5)
    np.testing.assert_array_equal(numbers[:, :, 0], np.repeat(STEPS, 7).reshape(3, 7))
    np.testing.assert_array_equal(numbers[1, :, 2], problem.grid.coordinates(0))
    for i, step in enumerate(STEPS):
        np.testing.assert_array_equal(numbers[i, :, 3:].T, state(problem, step))


def test_csv_of_a_plate_is_its_probes_or_refused(plate: Path, tmp_path: Path, capsys: Any) -> None:
    assert export(plate, tmp_path / "a.csv") == ExitCode.CONFIG
    assert "use .npy, .nc or .vtkhdf for fields" in said(capsys)
    problem = make_problem((30, 40), (0.3, 0.4))
    for name, place in (("b", (0.1, 0.1)), ("a", (0.2, 0.3))):
        probe = ProbeOutput(
            problem,
            plate,
            name,
            position=place,
            schedule=StepSchedule(Every(20, "steps"), problem.dt, problem.steps),
        )
        probe.start(0)
        for step in STEPS:
            probe.write(snapshot(problem, step))
        probe.close()
    for source, target in ((plate, "b.csv"), (plate / "probes", "c.csv")):
        assert export(source, tmp_path / target) == 0
        lines = (tmp_path / target).read_text().splitlines()
        assert lines[0] == "probe,step,time [s],temperature [degC]"
        assert [line.split(",")[:2] for line in lines[1:]] == [
            [name, str(step)] for name in ("a", "b") for step in STEPS
        ]
        own = (plate / "probes" / "b.csv").read_text().splitlines()[2]
        assert lines[5] == f"b,{own}"
    capsys.readouterr()
    assert export(plate, tmp_path / "d.csv", "--step", "20") == ExitCode.CONFIG
    assert "probes are exported whole" in said(capsys)


@pytest.mark.parametrize("suffix", [s for s in WRITERS if s not in (".csv", ".mp4")])
def test_every_kind_can_be_made_from_a_file_of_one_step(
    plate: Path, tmp_path: Path, suffix: str
) -> None:
    target = tmp_path / f"a{suffix}"
    assert export(plate / "fields" / "fields_000000000020.h5", target) == 0
    assert target.stat().st_size > 100


@pytest.mark.parametrize("suffix", [".xdmf", ".vtkhdf", ".nc", ".npy", ".png", ".gif"])
@pytest.mark.parametrize("whole", [True, False])
def test_every_kind_can_be_made_from_a_checkpoint(
    tmp_path: Path, suffix: str, *, whole: bool
) -> None:
    problem = make_checkpoint_problem()
    values = np.arange(13.0 * 29).reshape(problem.state_shape)
    checkpoints = tmp_path / "run" / "checkpoints"
    path = write_checkpoint(
        checkpoints,
        make_state(problem),
        problem,
        lambda box: values[(slice(None), *(slice(low, high) for low, high in box))],
        keep=1,
    )
    target = tmp_path / f"a{suffix}"
    assert export(tmp_path / "run" if whole else path, target) == 0
    if suffix == ".npy":
        np.testing.assert_array_equal(np.load(target), values)
    if suffix == ".xdmf":
        item = (
            ElementTree.parse(target)
            .getroot()
            .find(".//Attribute/DataItem/DataItem[@Format='HDF']")
        )
        assert item is not None
        name, _, dataset = (item.text or "").partition(":")
        with h5py.File(tmp_path / name) as file:
            np.testing.assert_array_equal(file[dataset][:], values[0])
            assert item.attrib["Dimensions"] == "13 29"


def test_a_checkpoint_in_float16_becomes_float32_where_others_read_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    problem = make_checkpoint_problem(dtype=np.float16)
    values = np.arange(13.0 * 29, dtype=np.float16).reshape(problem.state_shape)
    path = write_checkpoint(
        tmp_path,
        make_state(problem),
        problem,
        lambda box: values[(slice(None), *(slice(low, high) for low, high in box))],
        keep=1,
    )
    for name in ("a.vtkhdf", "a.nc", "a.npy", "a.png"):
        assert export(path, tmp_path / name) == 0
    with h5py.File(tmp_path / "a.vtkhdf") as vtk, h5py.File(tmp_path / "a.nc") as netcdf:
        name = problem.variables[0].name
        for dataset in (vtk["VTKHDF/CellData"][name], netcdf[name]):
            assert dataset.dtype == np.float32
            np.testing.assert_array_equal(np.squeeze(dataset), values[0].astype(np.float32))
    assert np.load(tmp_path / "a.npy").dtype == np.float16
    assert export(path, tmp_path / "a.xdmf") == ExitCode.CONFIG
    assert "no reader of it knows float16; write a .vtkhdf file instead" in said(capsys)


def test_a_picture_is_of_the_last_record_unless_another_is_asked_for(
    plate: Path, tmp_path: Path
) -> None:
    for name, flags in (("a", []), ("b", ["--step", "40"]), ("c", ["--step", "0"])):
        assert export(plate, tmp_path / f"{name}.png", *flags) == 0
    a, b, c = (np.asarray(Image.open(tmp_path / f"{name}.png").convert("RGB")) for name in "abc")
    np.testing.assert_array_equal(a, b)
    assert not np.array_equal(a, c)


def test_what_is_there_is_replaced_only_when_asked(
    plate: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "a.npy"
    target.write_text("precious")
    assert export(plate, target) == ExitCode.CONFIG
    assert "use --overwrite" in said(capsys)
    assert target.read_text() == "precious"
    assert export(plate, target, "--overwrite") == 0
    assert np.load(target).shape == (3, 30, 40)


@pytest.mark.parametrize(
    ("target", "flags", "message"),
    [
        (
            "a.nc4",
            [],
            (
                "the suffix .nc4, which says what to write; allowed: .xdmf, .vtkhdf, .nc, .npy, "
                ".csv, .png"
            ),
        ),
        ("a", [], "has no suffix"),
        ("missing/a.nc", [], "the directory"),
        ("a.nc", ["--step", "7"], "no record of this step; the nearest are 0, 20 and 40"),
        ("a.nc", ["--time", "soon"], "'soon' was found; a time is wanted"),
        ("a.nc", ["--variable", "temprature"], "has temperature (did you mean 'temperature'?)"),
        ("a.xdmf", ["--slice", "z=1mm"], "--slice makes new values"),
        ("a.png", ["--slice", "z=1mm"], "an axis of x or y"),
        ("a.png", ["--slice", "x=1mm"], "a slice is for 3D fields"),
        ("a.nc", ["--fps", "3"], "--fps is for films"),
        ("a.gif", ["--fps", "0"], "--fps 0"),
        ("a.gif", ["--fps", "nan"], "--fps nan"),
        ("a.gif", ["--every", "0"], "--every 0"),
        ("a.gif", ["--every", "2", "--last"], "--every chooses among many records"),
        ("a.png", ["--every", "2"], "--every chooses among many records"),
    ],
)
def test_a_wrong_wish_is_refused_with_what_is_allowed(
    plate: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    target: str,
    flags: list[str],
    message: str,
) -> None:
    before = names(tmp_path)
    assert export(plate, tmp_path / target, *flags) == ExitCode.CONFIG
    assert message in said(capsys)
    assert names(tmp_path) == before


@pytest.mark.parametrize("source", ["nowhere", "empty", "text.h5"])
def test_a_source_without_fields_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], source: str
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.h5").write_text("no HDF5")
    assert export(tmp_path / source, tmp_path / "a.nc") == ExitCode.CONFIG
    assert str(tmp_path / source) in said(capsys)


def test_a_program_reads_what_was_written(
    plate: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert export(plate, tmp_path / "a.npy", "--every", "2", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found == {
        "file": str(tmp_path / "a.npy"),
        "bytes": (tmp_path / "a.npy").stat().st_size,
        "steps": [0, 40],
    }


def test_a_packed_series_can_be_exported(tmp_path: Path) -> None:
    problem = make_problem((30, 40), (0.3, 0.4), dtype="float32")
    write_fields(problem, tmp_path / "run", compression="gzip")
    assert export(tmp_path / "run", tmp_path / "a.npy", "--step", "20") == 0
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), state(problem, 20)[0])
