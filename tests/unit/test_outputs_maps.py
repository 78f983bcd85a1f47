"""What lies where, beside the fields: materials and regions in files, and in pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import tetris_sim as ts
from tests.support.body_samples import PLAIN, build, heat_model
from tetris_sim.__main__ import main
from tetris_sim.outputs.materials import cell_maps, sample_materials, show_body
from tetris_sim.outputs.regions import make_part
from tetris_sim.outputs.sampling import default_cuts, sample

REGIONS = (
    {"material": "a", "name": "base plate"},
    {"material": "b", "box": {"y": [0.5, 1.0]}},
    {"fluid": {"ambient": -500 + 300, "h": 1.0}, "box": {"x": [0.9, 1.2]}, "name": "air"},
    {"void": True, "box": {"x": [0, 0.3], "y": [0, 0.3]}},
)
MATERIALS = {"a": PLAIN, "b": {**PLAIN, "conductivity": 2.0}}
REGION = np.zeros((10, 12), int)
REGION[5:] = 1
REGION[:, 9:] = 2
REGION[:3, :3] = 3


def body(**more: Any) -> dict[str, Any]:
    return {
        "grid": {"shape": [12, 10], "size": [1.2, 1.0]},
        "model": heat_model(*REGIONS, materials=MATERIALS),
        "initial": {"type": "constant", "value": 20.0},
        "time": {"dt": "auto", "steps": 2},
        **more,
    }


@pytest.fixture
def run(tmp_path: Path) -> Path:
    output = {
        "directory": str(tmp_path / "run"),
        "fields": {"every": "1 steps"},
        "parts": [{"name": "line", "slice": {"y": 0.3}, "every": "2 steps"}],
        "pictures": False,
    }
    ts.run(body(output=output, boundaries={"*": {"type": "neumann"}}))
    return tmp_path / "run"


@pytest.mark.parametrize("engine", ["h5netcdf", "netcdf4"])
def test_xarray_has_materials_and_regions_beside_the_field(run: Path, engine: str) -> None:
    xarray = pytest.importorskip("xarray")
    if engine == "netcdf4":
        pytest.importorskip("netCDF4", reason="netCDF4 is not installed")
    with xarray.open_dataset(run / "fields.h5", engine=engine) as fields:
        assert list(fields.data_vars) == ["temperature"]
        np.testing.assert_array_equal(fields["region"].values, REGION)
        names = fields["region"].attrs["flag_meanings"].split()
        assert names == ["base_plate", "region_2", "air", "region_4"]
        materials = fields["material"].attrs["flag_meanings"].split()
        assert materials[int(fields["material"][9, 0])] == "b"
        # A region's mean needs no more than this.
        assert float(fields["temperature"].where(fields["region"] == 2).mean()) == -200.0

    found = ts.open_result(run)
    np.testing.assert_array_equal(found.fields["region"].values, REGION)
    np.testing.assert_array_equal(found.fields["region"][2:4, 5].values, REGION[2:4, 5])
    # On a slice along the upper side of the void, values are of the body above it.
    assert found.part("line")["region"].values.tolist() == [0] * 9 + [2] * 3


@pytest.mark.parametrize("flags", [(), ("--last",), ("--slice", "y=0.75")])
@pytest.mark.parametrize("suffix", [".vtkhdf", ".nc"])
def test_exports_carry_the_maps(
    run: Path, tmp_path: Path, suffix: str, flags: tuple[str, ...]
) -> None:
    target = tmp_path / f"a{suffix}"
    assert main(["export", str(run), "-o", str(target), *flags]) == 0
    with h5py.File(target) as file:
        found = np.squeeze((file["VTKHDF/CellData"] if suffix == ".vtkhdf" else file)["region"])
    np.testing.assert_array_equal(found, REGION[7] if "--slice" in flags else REGION)


@pytest.mark.parametrize("many", [True, False])
def test_vtk_reads_the_maps(run: Path, tmp_path: Path, *, many: bool) -> None:
    pyvista = pytest.importorskip("pyvista", reason="PyVista is not installed")
    vtk = pytest.importorskip("vtk", reason="VTK is not installed")
    flags = [] if many else ["--last"]
    assert main(["export", str(run), "-o", str(tmp_path / "a.vtkhdf"), *flags]) == 0
    mesh = pyvista.read(tmp_path / "a.vtkhdf")
    np.testing.assert_array_equal(mesh.cell_data["region"].reshape(10, 12), REGION)

    reader = vtk.vtkXdmfReader()
    reader.SetFileName(str(run / "fields.xdmf"))
    reader.Update()
    cells = pyvista.wrap(reader.GetOutputDataObject(0)).cell_data
    np.testing.assert_array_equal(cells["region"].reshape(10, 12), REGION)


def test_a_checkpoint_gets_its_maps_from_its_configuration(tmp_path: Path) -> None:
    output = {"directory": str(tmp_path / "run"), "pictures": False}
    ts.run(body(output=output, boundaries={"*": {"type": "neumann"}}))
    assert main(["export", str(tmp_path / "run"), "-o", str(tmp_path / "a.nc")]) == 0
    with h5py.File(tmp_path / "a.nc") as file:
        np.testing.assert_array_equal(file["region"], REGION)


def test_a_body_of_one_material_and_region_has_no_maps() -> None:
    assert cell_maps(build()) == ()
    plain = build(model=heat_model({"material": "copper"}))
    assert cell_maps(plain) == ()


def test_another_body_in_the_same_folder_leaves_no_map_behind(run: Path) -> None:
    output = {"directory": str(run), "fields": {"every": "1 steps"}, "pictures": False}
    plain = body(output=output, boundaries={"*": {"type": "neumann"}})
    plain["model"] = {"type": "heat", "material": "copper"}
    ts.run(plain, overwrite=True)
    assert not list(run.rglob("geometry.h5"))


def test_pictures_are_blank_in_fluids_and_scaled_by_the_body() -> None:
    problem = build(**body())
    cuts = default_cuts(problem.grid)
    values = np.where(REGION == 2, -200.0, 20.0)
    planes = sample(lambda box: values[tuple(slice(*span) for span in box)], problem.grid, cuts)
    (shown,) = show_body(planes, sample_materials(cell_maps(problem), problem.grid, cuts))
    np.testing.assert_array_equal(np.isnan(shown.values), REGION >= 2)
    assert shown.materials is not None
    assert len(np.unique(shown.materials)) == 4


def test_a_slice_between_a_fluid_and_the_body_is_of_the_body() -> None:
    problem = build(**body())
    at_surface = make_part(problem, "cut", box={}, slices={"x": 0.9})
    numbers = {it.name: it.read(((0, 10),)) for it in cell_maps(problem, at_surface)}
    np.testing.assert_array_equal(numbers["region"], REGION[:, 8])
