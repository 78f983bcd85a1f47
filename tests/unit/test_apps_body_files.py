"""Bodies out of files: labels, closed surfaces, tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.support.body_samples import PLAIN, build, heat_model
from tetris_sim.config import ConfigMistakesError
from tetris_sim.model.problem import Problem

THREE = {"a": PLAIN, "b": {**PLAIN, "conductivity": 2}, "c": {**PLAIN, "conductivity": 3}}


def names(problem: Problem) -> np.ndarray[Any, Any]:
    """The material of every point."""
    assert problem.conduction is not None
    medium = problem.conduction.medium
    return np.array(medium.names)[medium.ids(tuple((0, n) for n in problem.grid.shape))]


def labelled(path: Path, /, ndim: int = 2, **keys: Any) -> dict[str, Any]:
    return {
        "grid": {"shape": [4, 3, 2][:ndim], "size": [4, 3, 2][:ndim]},
        "model": heat_model({"material": "a"}, {"labels": str(path), **keys}, materials=THREE),
    }


def write(path: Path, labels: np.ndarray[Any, Any]) -> None:
    if path.suffix == ".npy":
        np.save(path, labels)
    elif path.suffix == ".h5":
        import h5py

        with h5py.File(path, "w") as file:
            file["ids"] = labels
    else:
        Image.fromarray(labels[::-1].astype(np.uint8)).save(path)


LABELS = np.array([[0, 0, 7, 7], [0, 255, 255, 7], [0, 0, 0, 0]])


@pytest.mark.parametrize("kind", ["ids.npy", "ids.h5", "ids.png"])
def test_labels_choose_materials(tmp_path: Path, kind: str) -> None:
    write(tmp_path / kind, LABELS)
    keys: dict[str, Any] = {"materials": {"0": "b", "7": "c", "255": "a"}}
    found = names(build(**labelled(tmp_path / kind, **keys)))
    assert found.tolist() == [list("bbcc"), list("baac"), list("bbbb")]


def test_labels_that_are_not_zero_are_a_region(tmp_path: Path) -> None:
    write(tmp_path / "ids.npy", LABELS)
    box: dict[str, Any] = {"box": {"x": [0, 3]}}
    found = names(build(**labelled(tmp_path / "ids.npy", material="c", **box)))
    assert found.tolist() == [list("aaca"), list("acca"), list("aaaa")]


def test_a_picture_of_x_and_y_holds_for_all_z(tmp_path: Path) -> None:
    write(tmp_path / "plan.png", LABELS)
    found = names(build(**labelled(tmp_path / "plan.png", ndim=3, material="c", box={"z": [1, 2]})))
    assert (found[0] == "a").all()
    assert found[1].tolist() == [list("aacc"), list("accc"), list("aaaa")]


@pytest.mark.parametrize(
    ("labels", "keys", "message"),
    [
        (LABELS, {"materials": {"0": "a", "7": "b"}}, r"regions\.1\.materials: 255 is in the file"),
        (LABELS[:2], {"material": "b"}, r"regions\.1\.labels: .* shape \(2, 4\)"),
        (LABELS.astype(complex), {"material": "b"}, "real numbers are needed"),
    ],
)
def test_labels_that_do_not_fit_are_refused(
    tmp_path: Path, labels: np.ndarray[Any, Any], keys: dict[str, Any], message: str
) -> None:
    write(tmp_path / "ids.npy", labels)
    with pytest.raises(ConfigMistakesError, match=message):
        build(**labelled(tmp_path / "ids.npy", **keys))
    with pytest.raises(ConfigMistakesError, match="there is no file"):
        build(**labelled(tmp_path / "gone.npy", **keys))


def body(path: Path, shape: list[int], **keys: Any) -> dict[str, Any]:
    return {
        "grid": {"shape": shape, "size": [2.0, 2.0, 2.0]},
        "model": heat_model(
            {"void": True}, {"labels": str(path), "material": "a", **keys}, materials=THREE
        ),
    }


def test_points_inside_a_closed_surface_are_its_region(tmp_path: Path) -> None:
    trimesh = pytest.importorskip("trimesh")
    ball = trimesh.creation.icosphere(subdivisions=3, radius=600)
    ball.export(tmp_path / "ball.stl")
    at = [1.0, 0.9, 1.1]
    problem = build(**body(tmp_path / "ball.stl", [33, 27, 29], scale="1 mm", offset=at))
    inside = names(problem) == "a"
    z, y, x = np.meshgrid(*(problem.grid.coordinates(axis) for axis in range(3)), indexing="ij")
    r = np.sqrt((x - at[0]) ** 2 + (y - at[1]) ** 2 + (z - at[2]) ** 2)
    assert inside[r < 0.59].all()
    assert not inside[r > 0.6].any()
    assert inside.sum() * problem.grid.cell_volume == pytest.approx(ball.volume * 1e-9, rel=0.02)


def test_lines_through_edges_and_corners_count_right(tmp_path: Path) -> None:
    # Sides, edges, diagonals and corners of the box lie exactly on lines of cell centres.
    trimesh = pytest.importorskip("trimesh")
    box = trimesh.creation.box(extents=(1.0, 0.75, 0.5))
    box.export(tmp_path / "box.stl")
    problem = build(**body(tmp_path / "box.stl", [32, 32, 32], offset=[1, 1 + 1 / 32, 1 + 1 / 32]))
    assert (names(problem) == "a").sum() == 16 * 12 * 8


def test_a_surface_that_is_not_closed_is_refused(tmp_path: Path) -> None:
    trimesh = pytest.importorskip("trimesh")
    ball = trimesh.creation.icosphere(subdivisions=1)
    trimesh.Trimesh(ball.vertices, ball.faces[1:]).export(tmp_path / "open.stl")
    with pytest.raises(ConfigMistakesError, match=r"regions\.1\.labels: .*is not closed"):
        build(**body(tmp_path / "open.stl", [4, 4, 4]))
    (tmp_path / "text.stl").write_text("no surface at all")
    with pytest.raises(ConfigMistakesError, match=r"text\.stl is cut off or damaged"):
        build(**body(tmp_path / "text.stl", [4, 4, 4]))


def face_value(problem: Problem, time: float) -> float:
    face = problem.ruled_face(0, "low")
    parameter = face.rule.parameters[0]
    return float(parameter.during(time, time)[0]) / 2


def test_tables_come_from_files_with_units(tmp_path: Path) -> None:
    path = tmp_path / "weather.csv"
    path.write_text("time [h],outside [K]\n0,273.15\n1,283.15\n\n2,263.15\n")
    problem = build(boundaries={"*": {"type": "dirichlet", "value": {"table": str(path)}}})
    values = [face_value(problem, t) for t in (-5, 0, 1800, 3600, 5400, 7200, 1e6)]
    assert values == pytest.approx([0, 0, 5, 10, 0, -10, -10])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0,1\n2,3\n1,5\n", r"c\.csv: .*ascend, but 2 s of row 2 is followed by 1 s"),
        ("0,1\n2,three\n", r"row 2: 'three'"),
        ("0,1,2\n", r"two columns are wanted"),
        ("", "0 rows"),
    ],
)
def test_tables_that_are_none_are_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "c.csv"
    path.write_text(text)
    with pytest.raises(ConfigMistakesError, match=rf"boundaries\.\*\.value: .*{message}"):
        build(boundaries={"*": {"type": "dirichlet", "value": {"table": str(path)}}})
    with pytest.raises(ConfigMistakesError, match=rf"model\.sources\.0\.over_time: .*{message}"):
        build(model={"type": "heat", **PLAIN, "sources": [{"power": 1, "over_time": str(path)}]})


@pytest.mark.parametrize("kind", ["stl", "stl_ascii"])
@pytest.mark.parametrize("missing", [1, 50, 60, 700])
def test_a_surface_that_was_cut_off_is_refused(kind: str, missing: int, tmp_path: Path) -> None:
    trimesh = pytest.importorskip("trimesh")
    path = tmp_path / "box.stl"
    trimesh.creation.box((1, 1, 1)).export(path, file_type=kind)
    whole = path.read_bytes()
    path.write_bytes(whole[: -missing - 8 * (kind == "stl_ascii")])
    with pytest.raises(ConfigMistakesError, match=r"box\.stl is cut off or damaged"):
        build(**body(path, [4, 4, 4]))
    if kind == "stl":
        path.write_bytes(whole + bytes(missing))
        with pytest.raises(ConfigMistakesError, match=r"the 12 triangles of its head take 684"):
            build(**body(path, [4, 4, 4]))
