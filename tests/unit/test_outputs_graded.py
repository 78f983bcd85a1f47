"""Outputs of grids whose cells differ in width."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.body_samples import PLAIN, build, finish, heat_model, start
from tests.support.checkpoint_samples import make_state
from tests.support.outputs_samples import (
    PROVENANCE,
    FakeSnapshot,
    every,
    make_problem,
    write_fields,
)
from tetris_sim.__main__ import main
from tetris_sim.model.boundary import Periodic
from tetris_sim.model.grid import Grid
from tetris_sim.model.problem import Problem
from tetris_sim.outputs.checkpoint import open_checkpoint, write_checkpoint
from tetris_sim.outputs.drawing import draw
from tetris_sim.outputs.fields import FieldsOutput
from tetris_sim.outputs.figure_layout import Panel, lay_out
from tetris_sim.outputs.regions import make_part, neighbours_of, read_along
from tetris_sim.outputs.sampling import cuts_at, default_cuts, sample
from tetris_sim.outputs.series import open_fields
from tetris_sim.outputs.tables import StatisticsOutput, read_table

X, Y, Z = (0.0, 1.0, 1.5, 3.5, 4.0), (0.0, 0.25, 1.0, 2.0), (0.0, 1.0, 4.0)
GRID = Grid.graded((3, 4), (2.0, 4.0), (Y, X))
BLOCK = Grid.graded((2, 3, 4), (4.0, 2.0, 4.0), (Z, None, X))
SECTION = {
    "shape": [4, 3],
    "size": [4, 2],
    "graded": {"x": {"edges": list(X)}, "y": {"edges": list(Y)}},
}
widths = st.lists(st.floats(0.01, 10.0), min_size=1, max_size=8)


def graded(grid: Grid = GRID, **options: Any) -> Problem:
    return replace(make_problem(grid.shape, grid.size, **options), grid=grid)


def line(widths: list[float]) -> Grid:
    ends = tuple(itertools.accumulate(widths, initial=0.0))
    return Grid.graded((len(widths),), (ends[-1],), (ends,))


@given(n=st.integers(1, 9), place=st.floats(0, 1), periodic=st.booleans())
def test_even_edges_are_an_even_grid(n: int, place: float, periodic: bool) -> None:
    even, uneven = Grid.box((n,), (n / 4,)), line([0.25] * n)
    at = place * n / 4
    assert even.index_at(0, at) == pytest.approx(
        uneven.index_at(0, at, periodic=periodic), abs=1e-12
    )
    assert (even.bounds(0), even.widest) == (uneven.bounds(0), uneven.widest)
    assert even.cell_at(0, at) == uneven.cell_at(0, at)
    assert even.within(0, at, n / 5) == uneven.within(0, at, n / 5)
    assert np.array_equal(even.ends(0), uneven.ends(0))


@given(widths=widths, shares=st.tuples(st.floats(0, 1), st.floats(0, 1)))
def test_an_index_goes_on_from_point_to_point(
    widths: list[float], shares: tuple[float, float]
) -> None:
    grid = line(widths)
    points, size = grid.coordinates(0), grid.size[0]
    for number, place in enumerate(points):
        assert grid.index_at(0, place) == pytest.approx(number, abs=1e-12)
    assert grid.index_at(0, 0.0) == pytest.approx(-0.5)
    assert grid.index_at(0, size) == pytest.approx(len(points) - 0.5)
    low, high = (size * share for share in sorted(shares))
    first, last = grid.within(0, low, high)
    inside = [k for k, place in enumerate(points) if low <= place <= high]
    assert list(range(first, last)) == inside
    assert grid.ends(0)[grid.cell_at(0, low)] <= low
    assert low <= grid.ends(0)[grid.cell_at(0, low) + 1]


def test_every_point_is_within_no_bounds() -> None:
    assert GRID.within(1, -np.inf, np.inf) == (0, 4)
    assert GRID.within(1, 0.5, 1.25) == (0, 2)  # points at 0.5 m and 1.25 m


@pytest.mark.parametrize("at", [0.0, 0.3, 0.5, 1.1, 2.0, 3.75, 3.9, 4.0])
def test_a_probe_in_a_wall_reads_its_line_up_to_the_faces(at: float) -> None:
    problem = build(
        grid=SECTION,
        model=heat_model({"material": "wall"}, materials={"wall": PLAIN}),
        initial={"type": "expression", "expression": "10 + 5*x"},
        boundaries={
            "x-": {"type": "dirichlet", "value": 10},
            "x+": {"type": "robin", "h": 0.5, "ambient": 40},  # 0.5 (40 - 30) = 5
            "y": {"type": "neumann"},
        },
        time={"dt": "auto", "steps": 50},
    )
    values = finish(problem)  # the line is steady
    axes = [neighbours_of(problem, 0, 1.9), neighbours_of(problem, 1, at)]
    taken = FakeSnapshot(problem, 50, values[None])
    assert float(read_along(taken, axes)[0]) == pytest.approx(10 + 5 * at, rel=1e-11)


def test_in_the_seam_of_a_ring_the_nearer_end_counts_more() -> None:
    found = neighbours_of(graded(face=Periodic()), 1, 0.0)
    # Half of 1 m to the first point, half of 0.5 m to the last one.
    assert found.indices == (3, 0)
    assert found.weights == pytest.approx((0.5 / 0.75, 0.25 / 0.75))


def test_boxes_and_slices_keep_the_ends_of_their_cells(tmp_path: Path) -> None:
    problem = graded(BLOCK)
    part = make_part(problem, "some", box={"x": (1.0, 3.0)}, slices={"y": 0.5})
    expected = Grid((2, 2), (1.0, 0.5), (0.5, 1.25), cut=(("y", 0.5),), edges=(Z, (1.0, 1.5, 3.5)))
    assert part.grid == expected

    output = FieldsOutput(problem, tmp_path, every(20, problem), provenance=PROVENANCE, part=part)
    output.start(0)
    output.write(FakeSnapshot(problem, 0, start(problem)))
    output.close()
    with open_fields(tmp_path / "fields-some.h5") as series:
        assert series.grid == expected


@pytest.mark.parametrize("grid", [GRID, BLOCK, line([1.0, 2.0])])
def test_checkpoints_and_fields_say_where_cells_end(tmp_path: Path, grid: Grid) -> None:
    problem = graded(grid)
    values = start(problem)
    path = write_checkpoint(
        tmp_path,
        make_state(problem),
        problem,
        lambda box: values[(slice(None), *(slice(*span) for span in box))],
        keep=1,
    )
    with open_checkpoint(path) as checkpoint:
        assert checkpoint.grid == grid
    write_fields(problem, tmp_path)
    with open_fields(tmp_path / "fields.h5") as series:
        assert series.grid == grid


def test_netcdf_has_bounds_as_the_cf_conventions_want_them(tmp_path: Path) -> None:
    import xarray as xr

    write_fields(graded(BLOCK), tmp_path / "run")
    assert main(["export", str(tmp_path / "run"), "-o", str(tmp_path / "a.nc")]) == 0
    for path in (tmp_path / "a.nc", tmp_path / "run" / "fields.h5"):
        with xr.open_dataset(path, engine="h5netcdf", decode_coords="all") as found:
            assert set(found.coords) == {"time", "step", "x", "y", "z", "x_bounds", "z_bounds"}
            assert found["x_bounds"].dims == ("x", "bound")
            assert found["x_bounds"].values.tolist() == [list(it) for it in itertools.pairwise(X)]
            assert found["z_bounds"].values.tolist() == [[0, 1], [1, 4]]


def test_xdmf_and_vtkhdf_have_meshes_of_the_ends_of_cells(tmp_path: Path) -> None:
    write_fields(graded(BLOCK), tmp_path / "run")
    root = ElementTree.parse(tmp_path / "run" / "fields.xdmf").getroot()
    topology = root.find(".//Topology")
    assert topology is not None
    assert topology.attrib == {"TopologyType": "3DRectMesh", "Dimensions": "3 4 5"}
    items = root.findall(".//Grid/Grid/Geometry[@GeometryType='VXVYVZ']/DataItem")[:3]
    ends = [[float(word) for word in (item.text or "").split()] for item in items]
    middle = BLOCK.ends(1).tolist()
    assert ends == [list(X), middle, list(Z)]
    assert [item.attrib["Dimensions"] for item in items] == ["5", "4", "3"]

    assert main(["export", str(tmp_path / "run"), "-o", str(tmp_path / "a.vtkhdf")]) == 0
    with h5py.File(tmp_path / "a.vtkhdf") as file:
        found = file["VTKHDF"]
        assert found.attrs["Type"] == b"RectilinearGrid"
        assert found.attrs["Dimensions"].tolist() == [5, 4, 3]
        for name, nodes in zip("XYZ", (X, middle, Z), strict=True):
            assert found[f"{name}Coordinates"][:].tolist() == list(nodes)
            assert found[f"Steps/{name}CoordinatesOffsets"][:].tolist() == [0, 0, 0]
        assert found["CellData/temperature"].shape == (3, 2, 3, 4)


def test_a_slice_has_a_mesh_where_it_cuts(tmp_path: Path) -> None:
    part = make_part(graded(BLOCK), "some", box={}, slices={"z": 2.5})
    write_fields(graded(BLOCK), tmp_path, part=part)
    root = ElementTree.parse(tmp_path / "fields-some.xdmf").getroot()
    items = root.findall(".//Grid/Grid/Geometry/DataItem")[:3]
    low, high = (float(word) for word in (items[2].text or "").split())
    assert (low + high) / 2 == 2.5
    assert main(["export", str(tmp_path / "fields-some.h5"), "-o", str(tmp_path / "a.vtkhdf")]) == 0
    with h5py.File(tmp_path / "a.vtkhdf") as file:
        assert file["VTKHDF/ZCoordinates"][:].tolist() == [2.5]
        assert file["VTKHDF"].attrs["Dimensions"].tolist() == [5, 4, 1]


def test_pictures_are_true_to_scale() -> None:
    numbers = np.arange(12.0).reshape(3, 4)
    (plane,) = sample(
        lambda box: numbers[tuple(slice(*it) for it in box)], GRID, default_cuts(GRID)
    )
    materials = np.array([[1, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]])
    drawing = draw(lay_out([[Panel(replace(plane, materials=materials), "", (0, 11))]], heading=""))
    (image,) = drawing.artists
    assert image.get_extent() == [0, 4, 0, 2]
    shown = np.asarray(image.get_array())
    shares = np.array([(shown == value).mean() for value in numbers.flat]).reshape(3, 4)
    exact = np.outer(np.diff(Y) / 2, np.diff(X) / 4)
    np.testing.assert_allclose(shares, exact, atol=2e-3)
    assert (np.diff(shown, axis=0) >= 0).all()
    (lines,) = drawing.axes[0].collections
    borders = [it.tolist() for it in lines.get_segments()]  # type: ignore[attr-defined]
    assert borders == [[[0.0, 0.25], [1.0, 0.25]], [[1.0, 0.0], [1.0, 0.25]]]

    drawing.show([replace(plane, values=-numbers)], "")
    np.testing.assert_array_equal(image.get_array(), -shown)


def test_a_border_on_a_graph_lies_between_its_cells() -> None:
    grid = line([1.0, 3.0])
    (plane,) = sample(lambda _: np.array([5.0, 6.0]), grid, default_cuts(grid))
    panel = Panel(replace(plane, materials=np.array([0, 1])), "", (5, 6))
    drawing = draw(lay_out([[panel]], heading=""))
    (curve, border) = drawing.axes[0].lines
    assert np.asarray(curve.get_xdata()).tolist() == [0.5, 2.5]
    assert np.asarray(border.get_xdata()).tolist() == [1.0, 1.0]


@given(widths=widths, most=st.integers(1, 9))
def test_thinned_points_stand_for_all_cells(widths: list[float], most: int) -> None:
    grid = line(widths)
    (plane,) = sample(
        lambda box: np.arange(*box[0], dtype=float), grid, default_cuts(grid), most=most
    )
    (edges,) = plane.edges
    assert (edges[0], edges[-1]) == grid.bounds(0)
    assert len(edges) == len(plane.values) + 1 <= most + 1
    assert ((edges[:-1] < plane.positions[0]) & (plane.positions[0] < edges[1:])).all()


def test_planes_through_a_block_lie_where_it_is_asked_and_in_the_middle() -> None:
    assert [cut.index for cut in default_cuts(BLOCK)] == [1, 1, 2]
    assert [cut.index for cut in cuts_at(BLOCK, [("z", 0.9), ("z", 4.0), ("x", 1.4)])] == [0, 1, 1]
    (plane,) = sample(lambda box: np.zeros([b - a for a, b in box]), BLOCK, default_cuts(BLOCK)[:1])
    assert plane.place == ("z", 2.5)


def test_the_mean_is_that_of_the_volume(tmp_path: Path) -> None:
    problem = build(
        grid=SECTION,
        model=heat_model({"material": "wall"}, materials={"wall": PLAIN}),
        initial={"type": "expression", "expression": "x*x + y"},
        time={"dt": 1e-3, "steps": 5},
    )
    output = StatisticsOutput(problem, tmp_path, every(5, problem))
    output.start(0)
    output.write(FakeSnapshot(problem, 0, start(problem)))
    output.close()
    header, rows = read_table(tmp_path / "statistics.csv")
    row = dict(zip(header, rows[0], strict=True))
    mean = float((start(problem)[0] * GRID.volumes(((0, 3), (0, 4)))).sum() / 8)
    assert row["temperature mean [degC]"] == pytest.approx(mean)
    assert row["heat [J/m]"] == pytest.approx(8 * mean)


def test_info_says_how_wide_cells_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_fields(graded(), tmp_path)
    assert main(["info", str(tmp_path / "fields.h5")]) == 0
    assert "spacing 50 cm to 200 cm x 25 cm to 100 cm" in capsys.readouterr().out


def test_a_run_on_a_graded_grid_says_and_writes_where_its_cells_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {
        "grid": SECTION,
        "model": heat_model({"material": "wall"}, materials={"wall": PLAIN}),
        "initial": {"type": "expression", "expression": "10 + 5*x"},
        "boundaries": {"x-": {"type": "dirichlet", "value": 10}, "*": {"type": "neumann"}},
        "time": {"dt": "auto", "steps": 6},
        "output": {
            "directory": str(tmp_path / "out"),
            "probes": [{"name": "wall", "at": [0, 1], "every": "3 steps"}],
            "parts": [{"name": "cut", "every": "6 steps", "slice": {"x": 0}}],
            "pictures": False,
        },
        "compute": {"devices": "cpu", "method": "cpu.plain"},
    }
    path = tmp_path / "a.yaml"
    path.write_text(json.dumps(settings))  # JSON is YAML
    assert main(["plan", str(path)]) == 0
    assert "spacing 0.5 to 2 x 0.25 to 1 m" in capsys.readouterr().out
    assert main(["run", str(path)]) == 0
    _, rows = read_table(tmp_path / "out" / "probes" / "wall.csv")
    assert [row[-1] for row in rows] == pytest.approx([10.0] * 3)
    with open_fields(tmp_path / "out" / "fields-cut.h5") as series:
        assert series.grid == Grid((3,), (0.25,), (0.125,), cut=(("x", 0.0),), edges=(Y,))
        np.testing.assert_allclose(series.read(1, 0, ((0, 3),)), 10.0, rtol=1e-14)
    assert main(["info", str(tmp_path / "out")]) == 0  # the checkpoint, too
    assert "spacing 50 cm to 200 cm x 25 cm to 100 cm" in capsys.readouterr().out
