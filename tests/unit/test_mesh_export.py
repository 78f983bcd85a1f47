"""Fields at the points of a mesh of another program."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tetris_sim.__main__ import main
from tetris_sim.config import make_config
from tetris_sim.errors import ConfigError
from tetris_sim.model.grid import Grid
from tetris_sim.outputs.sampling import at_points
from tetris_sim.simulation.launch import launch

Box = tuple[tuple[int, int], ...]


def linear(grid: Grid, box: Box) -> np.ndarray:
    """2 z + 3 y - x in a box of cells."""
    z, y, x = (grid.coordinates(k)[slice(*it)] for k, it in enumerate(box))
    return 2 * z[:, None, None] + 3 * y[:, None] - x


def test_a_linear_field_is_found_on_cells_of_any_width() -> None:
    edges = (None, None, (0.0, 0.1, 0.4, 0.5, 1.0))
    grid = Grid.graded((5, 6, 4), (1.0, 2.0, 1.0), edges)
    points = np.random.default_rng(1).uniform((0.1, 0.2, 0.05), (0.9, 1.8, 0.75), (200, 3))
    found = at_points(lambda box: linear(grid, box), lambda box: np.ones(1, bool), grid, points)
    assert found == pytest.approx(points @ [2, 3, -1], abs=1e-13)


def test_cells_outside_of_the_body_do_not_count() -> None:
    grid = Grid.graded((1, 1, 10), (1.0, 1.0, 1.0), (None, None, None))

    def read(box: Box) -> np.ndarray:
        x = np.broadcast_to(grid.coordinates(2), (1, 1, 10)).copy()
        x[..., 6:] = 1000.0
        x[..., 9:] = np.nan
        return x[tuple(slice(*it) for it in box)]

    def inside(box: Box) -> np.ndarray:
        return np.broadcast_to(np.arange(10) < 6, (1, 1, 10))[tuple(slice(*it) for it in box)]

    points = np.array([[0.5, 0.5, it] for it in (0.3, 0.58, 0.64, 0.8)])
    found = at_points(read, inside, grid, points)
    assert found[:3] == pytest.approx([0.3, 0.55, 0.55])
    assert np.isnan(found[3])


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mesh") / "r"
    launch(
        make_config(
            {
                "grid": {"shape": [16, 12, 8], "size": ["16 mm", "12 mm", "8 mm"]},
                "model": {
                    "type": "heat",
                    "regions": [
                        {"fluid": {"ambient": 900, "h": 1}},
                        {"material": "copper", "box": {"z": [0, "4 mm"]}},
                    ],
                },
                "initial": {"type": "expression", "expression": "1000*x + 2000*z"},
                "boundaries": {"*": {"type": "insulated"}},
                "time": {"steps": 1, "dt": 1e-12},
                "output": {"directory": str(folder), "fields": {"every": "1 step"}},
                "compute": {"devices": "cpu", "tuning_budget": 0},
            }
        )
    )
    return folder


def mesh_of(path: Path, points: np.ndarray) -> Path:
    meshio = pytest.importorskip("meshio")
    meshio.Mesh(points, [("tetra", [[0, 1, 2, 3]])]).write(path)
    return path


def test_a_mesh_takes_the_temperatures_of_the_body(results: Path, tmp_path: Path) -> None:
    meshio = pytest.importorskip("meshio")
    corners = [[1, 1, 1], [15, 1, 1], [1, 11, 2.5], [8, 6, 4]]  # mm, the last one on the surface
    mesh = mesh_of(tmp_path / "part.vtu", np.array(corners, float))
    target = tmp_path / "stress.vtu"
    words = [str(results), "-o", str(target), "--mesh", str(mesh), "--mesh-unit", "mm"]
    assert main(["export", *words]) == 0
    found = meshio.read(target)
    assert found.points.tolist() == corners
    assert found.cells_dict["tetra"].tolist() == [[0, 1, 2, 3]]
    # Half a cell below its surface the body ends for linear values.
    assert found.point_data["temperature"] == pytest.approx([3, 17, 6, 15], abs=1e-6)


@pytest.mark.parametrize(
    ("points", "words", "told"),
    [
        ([[1, 1, 1]] * 3 + [[17, 1, 1]], ["--mesh-unit", "mm"], "1 of 4 points are outside of the"),
        ([[1, 1, 1]] * 4, [], "4 of 4 points are outside of the box"),
        ([[1, 1, 1]] * 3 + [[1, 1, 7]], ["--mesh-unit", "mm"], "are in fluids and voids"),
        ([[1, 1, 1]] * 4, ["--mesh-unit", "degC"], "--mesh-unit"),
    ],
)
def test_points_that_are_nowhere_are_told(
    results: Path,
    tmp_path: Path,
    points: list[list[float]],
    words: list[str],
    told: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    mesh = mesh_of(tmp_path / "part.vtu", np.array(points, float))
    target = tmp_path / "stress.vtu"
    assert main(["export", str(results), "-o", str(target), "--mesh", str(mesh), *words]) == 2
    assert told in capsys.readouterr().err
    assert not target.exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["-o", "a.vtu"], "--mesh FILE says at which points"),
        (["-o", "a.npy", "--mesh", "b.vtu"], "--mesh FILE says at which points"),
        (["-o", "a.vtu", "--mesh", "nothing.vtu"], "cannot be read as a mesh"),
    ],
)
def test_flags_that_do_not_fit_are_told(
    results: Path, tmp_path: Path, words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if "nothing.vtu" in words:
        pytest.importorskip("meshio")
    target = [str(tmp_path / it) if it.startswith("a.") else it for it in words]
    assert main(["export", str(results), *target]) == 2
    assert told in capsys.readouterr().err


def test_what_is_missing_is_said(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tetris_sim.commands.sources import open_series
    from tetris_sim.outputs.sampling import write_on_mesh

    monkeypatch.setitem(__import__("sys").modules, "meshio", None)
    with open_series(results) as series, pytest.raises(ConfigError, match=r"tetris-sim\[mesh\]"):
        write_on_mesh(series, 0, tmp_path / "part.vtu", 1.0, tmp_path / "a.vtu")
