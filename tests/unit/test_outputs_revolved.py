"""Outputs of bodies of revolution: files, pictures, statistics and meshes in space."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from tests.support.body_samples import PLAIN, build, heat_model, settings, settle
from tests.support.outputs_samples import FakeSnapshot, every
from tests.unit.test_apps_pde_revolved import equation, slope
from tests.unit.test_apps_revolved import ROUNDED, kept, round_grid
from tetris_sim.api.running import run
from tetris_sim.outputs.field_file import add_positions, read_grid
from tetris_sim.outputs.figure_layout import length_unit
from tetris_sim.outputs.sampling import default_cuts, sample
from tetris_sim.outputs.tables import StatisticsOutput, read_table


@pytest.mark.parametrize("grid", ROUNDED)
def test_a_file_has_its_coordinates(grid: dict[str, Any], tmp_path: Path) -> None:
    points = build(grid=grid, boundaries={"*": {"type": "neumann"}}).grid
    with h5py.File(tmp_path / "fields.h5", "w") as file:
        add_positions(file, points)
        assert read_grid(file) == points
        assert file["r"].attrs["units"] == "m"
        assert "theta" not in file or file["theta"].attrs["units"] == "rad"


def test_a_half_plane_is_drawn_on_both_sides_of_the_axis() -> None:
    grid = build(grid=round_grid("r z", [3, 2], [3.0, 1.0]), boundaries={"*": slope(0)}).grid
    values = np.arange(6.0).reshape(2, 3)
    (plane,) = sample(lambda box: values[tuple(slice(*it) for it in box)], grid, default_cuts(grid))
    assert plane.axes == ("z", "r")
    assert plane.bounds == ((0, 1), (-3, 3))
    assert plane.edges[1].tolist() == [-3, -2, -1, 0, 1, 2, 3]
    assert plane.values.tolist() == [[2, 1, 0, 0, 1, 2], [5, 4, 3, 3, 4, 5]]

    tube = round_grid("r z", [3, 2], [3.0, 1.0], origin={"r": 1.0})
    grid = build(grid=tube, boundaries={"*": slope(0)}).grid
    (plane,) = sample(lambda box: values[tuple(slice(*it) for it in box)], grid, default_cuts(grid))
    assert plane.bounds == ((0, 1), (1, 4))


@pytest.mark.parametrize(
    ("axes", "size", "axis"), [("r theta", "360 deg", "y"), ("ball r theta", "180 deg", "z")]
)
def test_a_disc_and_a_ball_are_drawn_round(axes: str, size: str, axis: str) -> None:
    grid = build(grid=round_grid(axes, [40, 60], [1.0, size]), boundaries={"*": slope(0)}).grid
    r, theta = grid.coordinates(1), grid.coordinates(0)[:, None]
    up = r * (np.sin(theta) if axis == "y" else np.cos(theta))
    (plane,) = sample(lambda box: up[tuple(slice(*it) for it in box)], grid, default_cuts(grid))
    assert plane.axes == (axis, "x")
    inside = np.isfinite(plane.values)
    assert inside.mean() == pytest.approx(math.pi / 4, rel=1e-2)
    where = np.broadcast_to(plane.positions[0][:, None], inside.shape)
    np.testing.assert_allclose(plane.values[inside], where[inside], atol=0.06)


def test_integrals_of_equations_weigh_rings_by_their_volume(tmp_path: Path) -> None:
    problem = equation(round_grid("ball r", [40], [2.0]), "0*u", "r", {"r+": slope(0)})
    state = np.array(problem.grid.coordinates(0))[None]
    output = StatisticsOutput(problem, tmp_path, every(1, problem))
    output.start(0)
    output.write(FakeSnapshot(problem, 0, state))
    output.flush()
    output.close()
    header, rows = read_table(tmp_path / "statistics.csv")
    said = dict(zip(header, rows[-1], strict=True))
    assert said["u mean [1]"] == pytest.approx(1.5, rel=1e-3)
    assert said["integral [m^3]"] == pytest.approx(16 * math.pi, rel=1e-3)


def test_a_steady_run_exports_hexahedra_around_the_axis(tmp_path: Path) -> None:
    sections = settings(
        grid=round_grid("r z", [8, 5], [0.02, 0.05]),
        model=heat_model({"material": "rod"}, materials={"rod": PLAIN}, sources=[{"power": 4}]),
        boundaries={"r+": kept(5), "z": {"type": "neumann"}},
        time={"scheme": "steady"},
        output={
            "fields": {"every": "1 step"},
            "statistics": {"every": "1 step"},
            "pictures": False,
        },
    )
    result = run({**sections, "compute": {"devices": "cpu"}}, tmp_path / "out", progress=False)
    del sections["time"]
    explicit = settle(build(**sections, time={"dt": "auto", "steps": 1}), steps=1)
    np.testing.assert_allclose(np.asarray(result.field()), explicit, atol=1e-5)

    header, rows = read_table(tmp_path / "out" / "statistics.csv")
    said = dict(zip(header, rows[-1], strict=True))
    assert said["sources [W]"] == pytest.approx(4)
    assert said["heat flow r+ [W]"] == pytest.approx(-4, rel=1e-6)
    assert said["heat flow r- [W]"] == 0

    from tetris_sim.__main__ import main

    mesh = tmp_path / "mesh.vtkhdf"
    assert main(["export", str(tmp_path / "out"), "-o", str(mesh)]) == 0
    with h5py.File(mesh) as file:
        root = file["VTKHDF"]
        assert root.attrs["Type"] == b"UnstructuredGrid"
        assert root["NumberOfCells"][0] == 8 * 5 * 36
        across = np.hypot(*root["Points"][:, :2].T)
        assert across.max() == pytest.approx(0.02)
        values = root["CellData/temperature"][: 8 * 5 * 36].reshape(5, 36, 8)
        assert (values == values[:, :1]).all()


def said(verb: str, path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    from tetris_sim.__main__ import main

    assert main([verb, str(path)]) == 0
    return " ".join(capsys.readouterr().out.split())


def test_a_plan_says_what_narrow_cells_at_the_axis_cost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for origin, scheme in ((0.0, "explicit"), (0.02, "explicit"), (0.0, "implicit")):
        sections = settings(
            grid=round_grid("r theta", [16, 64], [0.02, "360 deg"], origin={"r": origin}),
            model={"type": "heat", "diffusivity": 1e-5},
            boundaries={"r+": kept(5), "*": slope(0)},
            time={"scheme": scheme, "dt": "auto" if scheme == "explicit" else 0.1, "t_end": 0.2},
            output={"pictures": False},
        )
        path = tmp_path / "disc.yaml"
        path.write_text(json.dumps({**sections, "compute": {"tuning_budget": 0}}))
        text = said("plan", path, capsys)
        assert "spacing 0.00125 m x 0.09817 rad" in text
        narrow = "cells at r = 0.000625 m are 6.14e-05 m wide along theta and 0.00125 m along r"
        assert (narrow in text) == (origin == 0 and scheme == "explicit")
    assert "time.scheme: implicit" not in text


def test_info_says_angles_in_radians(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sections = settings(
        grid=round_grid("r theta z", [4, 8, 3], [0.02, "180 deg", 0.03]),
        time={"dt": "auto", "steps": 1},
        output={"fields": {"every": "1 step"}, "pictures": False},
        compute={"devices": "cpu", "tuning_budget": 0},
    )
    run(sections, tmp_path / "out", progress=False)
    text = said("info", tmp_path / "out" / "fields.h5", capsys)
    assert "4 x 8 x 3 points (r, theta, z), 20 mm x 3.142 rad x 30 mm" in text
    assert "spacing 5 mm x 0.3927 rad x 10 mm" in text


def test_a_plane_through_the_axis_of_a_rod_shows_both_sides() -> None:
    grid = build(
        grid=round_grid("r theta z", [4, 8, 2], [1.0, "360 deg", 1.0]), boundaries={"*": slope(0)}
    ).grid
    r, theta = grid.coordinates(2), grid.coordinates(1)[:, None]
    field = np.broadcast_to(r * np.cos(theta), grid.shape)
    planes = sample(lambda box: field[tuple(slice(*it) for it in box)], grid, default_cuts(grid))
    (plane,) = (it for it in planes if it.axes == ("z", "r"))
    assert plane.place is not None
    assert plane.place[0] == "theta"
    wanted = plane.positions[1] * math.cos(plane.place[1])
    np.testing.assert_allclose(plane.values, np.broadcast_to(wanted, (2, 8)), atol=1e-14)
    assert length_unit([0.05]).place(plane.place) == "theta = 202.5°"
    assert length_unit([0.05]).place(("z", 0.02)) == "z = 20 mm"

    half = build(
        grid=round_grid("r theta z", [4, 8, 2], [1.0, "180 deg", 1.0]), boundaries={"*": slope(0)}
    ).grid
    planes = sample(lambda box: field[tuple(slice(*it) for it in box)], half, default_cuts(half))
    assert [it.bounds[1] for it in planes if it.axes == ("z", "r")] == [(0, 1)]
