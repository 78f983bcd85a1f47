"""Exported files as the programs read them that people open them with.

VTK, PyVista, netCDF4 and ImageIO are no dependencies; where one is missing, its tests are skipped
and counted. xarray and pandas are there wherever the tests run.
"""

from __future__ import annotations

import csv
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.outputs_samples import (
    SALT,
    SHAPES,
    TEMPERATURE,
    make_problem,
    state,
    write_fields,
)
from tetris_sim.__main__ import main
from tetris_sim.model.problem import Problem

BOTH = (TEMPERATURE, SALT)
CASES = [(ndim, graded) for ndim in (1, 2, 3) for graded in (False, True)]
# Flags of `export`, and the steps of the records that it then writes.
CHOICES = [((), (0, 20, 40)), (("--every", "2"), (0, 40)), (("--last",), (40,))]


@pytest.fixture(autouse=True)
def _as_on_the_command_line() -> Any:
    with np.errstate(all="warn"):
        yield


def sample(ndim: int, *, graded: bool) -> Problem:
    problem = make_problem(SHAPES[ndim], variables=BOTH)
    if not graded:
        return problem
    edges = tuple(tuple((np.linspace(0, 1, n + 1) ** 1.3).tolist()) for n in problem.grid.shape)
    grid = replace(
        problem.grid,
        edges=edges,
        origin=tuple((it[0] + it[1]) / 2 for it in edges),
        spacing=tuple(float(np.diff(it).min()) for it in edges),
    )
    return replace(problem, grid=grid)


def export(problem: Problem, folder: Path, suffix: str, *flags: str) -> Path:
    write_fields(problem, folder / "run")
    target = folder / f"exported{suffix}"
    assert main(["export", str(folder / "run"), "-o", str(target), *flags]) == 0
    return target


@pytest.mark.parametrize(("flags", "steps"), CHOICES, ids=("all", "some", "last"))
@pytest.mark.parametrize(("ndim", "graded"), CASES)
def test_vtk_reads_every_record(
    ndim: int, graded: bool, flags: tuple[str, ...], steps: tuple[int, ...], tmp_path: Path
) -> None:
    vtk = pytest.importorskip("vtk", reason="VTK is not installed: pip install vtk")
    from vtk.util.numpy_support import vtk_to_numpy

    problem = sample(ndim, graded=graded)
    reader = vtk.vtkHDFReader()
    reader.SetFileName(str(export(problem, tmp_path, ".vtkhdf", *flags)))
    reader.UpdateInformation()
    assert reader.GetNumberOfSteps() == len(steps)

    for k, step in enumerate(steps):
        reader.SetStep(k)
        reader.Update()
        found = reader.GetOutput()
        for variable, values in zip(BOTH, state(problem, step), strict=True):
            read = vtk_to_numpy(found.GetCellData().GetArray(variable.name))
            np.testing.assert_array_equal(read.reshape(problem.grid.shape), values)
        bounds = np.reshape(found.GetBounds(), (3, 2))[:ndim]
        for axis, (low, high) in enumerate(bounds[::-1]):
            np.testing.assert_allclose((low, high), problem.grid.bounds(axis), atol=1e-12)
    if len(steps) == 1:
        when = found.GetFieldData().GetArray("TimeValue").GetValue(0)
        assert when == problem.time(40)


@pytest.mark.parametrize("ndim", [1, 2, 3])
@pytest.mark.parametrize("flags", [(), ("--step", "20"), ("--last",)])
def test_pyvista_reads_what_is_exported(ndim: int, flags: tuple[str, ...], tmp_path: Path) -> None:
    pyvista = pytest.importorskip("pyvista", reason="PyVista is not installed")
    problem = sample(ndim, graded=False)
    mesh = pyvista.read(export(problem, tmp_path, ".vtkhdf", *flags))
    step = {(): 0, ("--step", "20"): 20, ("--last",): 40}[flags]
    read = mesh.cell_data["temperature"].reshape(problem.grid.shape)
    np.testing.assert_array_equal(read, state(problem, step)[0])


@pytest.mark.parametrize(("ndim", "graded"), CASES)
def test_xdmf_is_read_by_vtk(ndim: int, graded: bool, tmp_path: Path) -> None:
    vtk = pytest.importorskip("vtk", reason="VTK is not installed: pip install vtk")
    if not hasattr(vtk, "vtkXdmfReader"):
        pytest.skip("this VTK was built without its XDMF reader")
    problem = sample(ndim, graded=graded)
    reader = vtk.vtkXdmfReader()
    reader.SetFileName(str(export(problem, tmp_path, ".xdmf")))
    reader.Update()
    found = reader.GetOutputDataObject(0)
    assert found.GetNumberOfElements(vtk.vtkDataObject.CELL) == np.prod(problem.grid.shape)


@pytest.mark.parametrize("flags", [(), ("--last",)])
@pytest.mark.parametrize(("ndim", "graded"), CASES)
def test_netcdf4_reads_a_file_of_the_cf_conventions(
    ndim: int, graded: bool, flags: tuple[str, ...], tmp_path: Path
) -> None:
    netcdf = pytest.importorskip("netCDF4", reason="netCDF4 is not installed")
    problem = sample(ndim, graded=graded)
    with netcdf.Dataset(export(problem, tmp_path, ".nc", *flags)) as file:
        assert file.Conventions.startswith("CF-1.")
        for k, variable in enumerate(BOTH):
            values = file[variable.name]
            assert values.dimensions == ("time", *problem.grid.axis_names)
            assert values.units == variable.unit
            np.testing.assert_array_equal(values[-1], state(problem, 40)[k])
        for name in problem.grid.axis_names:
            assert file[name].axis == name.upper()
            if graded:
                assert file[file[name].bounds].shape == (len(file[name]), 2)


@pytest.mark.parametrize("engine", ["h5netcdf", "netcdf4"])
def test_xarray_reads_exports_and_fields_alike(engine: str, tmp_path: Path) -> None:
    xarray = pytest.importorskip("xarray")
    pytest.importorskip(
        {"netcdf4": "netCDF4"}.get(engine, engine), reason=f"{engine} is not installed"
    )
    problem = sample(3, graded=False)
    exported = export(problem, tmp_path, ".nc")
    for path in (exported, tmp_path / "run" / "fields.h5"):
        with xarray.open_dataset(path, engine=engine) as dataset:
            assert dataset.attrs["Conventions"].startswith("CF-1.")
            found = dataset["salt"].isel(time=1)
            np.testing.assert_array_equal(found.values, state(problem, 20)[1])


def test_pandas_reads_a_line(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    problem = sample(1, graded=True)
    frame = pandas.read_csv(export(problem, tmp_path, ".csv", "--last"))
    assert list(frame.columns) == [
        "step",
        "time [s]",
        "x [m]",
        "temperature [degC]",
        "salt [kg/m^3]",
    ]
    np.testing.assert_allclose(frame["salt [kg/m^3]"], state(problem, 40)[1], rtol=0, atol=0)


def test_the_csv_module_reads_a_line_of_one_record(tmp_path: Path) -> None:
    with export(sample(1, graded=False), tmp_path, ".csv", "--last").open(newline="") as file:
        assert len(list(csv.reader(file))) == 1 + SHAPES[1][0]


@pytest.mark.parametrize("suffix", [".gif", ".mp4", ".png"])
def test_imageio_reads_pictures_and_films(suffix: str, tmp_path: Path) -> None:
    imageio = pytest.importorskip("imageio.v3", reason="ImageIO is not installed")
    if suffix == ".mp4":
        pytest.importorskip("imageio_ffmpeg", reason="imageio-ffmpeg is not installed")
        if shutil.which("ffmpeg") is None:
            pytest.skip("ffmpeg is not installed")
    target = export(sample(2, graded=False), tmp_path, suffix)
    frames = imageio.imread(target) if suffix == ".png" else imageio.imread(target, index=None)
    assert frames.shape[:-3] == (() if suffix == ".png" else (3,))
    assert np.ptp(frames) > 100
