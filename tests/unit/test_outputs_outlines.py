"""Pictures show where materials meet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image

from tests.support.conduction_cases import Case, mixed_faces
from tests.support.outputs_samples import FakeSnapshot
from tetris_sim.outputs.pictures import PicturesOutput
from tetris_sim.outputs.raster import outlines
from tetris_sim.outputs.sampling import Plane


@given(
    arrays(np.int64, st.tuples(st.integers(1, 6), st.integers(1, 7)), elements=st.integers(0, 2))
)
def test_lines_are_the_faces_between_materials_and_no_others(
    materials: npt.NDArray[np.int64],
) -> None:
    rows, columns = materials.shape
    found = outlines(materials, (np.arange(rows + 1.0), np.arange(columns + 1.0)))
    drawn = set()
    for (x0, y0), (x1, y1) in found.astype(int).tolist():
        assert (x0 == x1) != (y0 == y1)
        drawn |= {("level", y0, x) for x in range(x0, x1)}
        drawn |= {("steep", x0, y) for y in range(y0, y1)}
    wanted = {
        ("level", i + 1, j)
        for i, j in np.ndindex(rows - 1, columns)
        if materials[i, j] != materials[i + 1, j]
    } | {
        ("steep", j + 1, i)
        for i, j in np.ndindex(rows, columns - 1)
        if materials[i, j] != materials[i, j + 1]
    }
    assert drawn == wanted


def test_what_lines_would_cover_is_not_outlined() -> None:
    edges = np.arange(81.0), np.arange(81.0)
    assert outlines(np.arange(6400).reshape(80, 80), edges).shape == (0, 2, 2)
    assert len(outlines(np.arange(6400).reshape(80, 80) // 640, edges)) == 9


@pytest.mark.parametrize("shape", [(40,), (30, 40), (20, 30, 40)])
def test_a_run_outlines_its_materials(
    tmp_path: Path, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Plane] = []

    def draw(planes: tuple[Plane, ...], *rest: object, **others: object) -> _Nothing:
        drawn.extend(planes)
        return _Nothing()

    monkeypatch.setattr("tetris_sim.outputs.pictures.draw_state", draw)
    problem = Case("body", shape, 4, mixed_faces).problem()
    assert problem.conduction is not None
    output = PicturesOutput(problem, tmp_path, heading="", initial=None)
    output.write(FakeSnapshot(problem, 0, np.zeros(problem.state_shape)))
    ids = problem.conduction.medium.ids(tuple((0, n) for n in shape))
    cuts = [ids] if len(shape) < 3 else [ids[10], ids[:, 15], ids[:, :, 20]]
    assert len(drawn) == len(cuts)
    for plane, cut in zip(drawn, cuts, strict=True):
        np.testing.assert_array_equal(plane.materials, cut)


class _Nothing:
    def save(self, path: Path) -> None: ...


def test_an_outline_is_seen_where_the_field_is_flat(tmp_path: Path) -> None:
    case: Any = Case("plate", (30, 40), 4, mixed_faces)
    problem = case.problem()
    colours = []
    with np.errstate(all="warn"):  # as in a run
        for one in (problem, Case("plate", (30, 40), 1, mixed_faces).problem()):
            output = PicturesOutput(one, tmp_path, heading="", initial=None)
            output.write(FakeSnapshot(one, 0, np.zeros(one.state_shape)))
            with Image.open(tmp_path / "initial.png") as picture:
                inside = np.asarray(picture.convert("RGB"))[150:300, 200:500]
            colours.append(len(np.unique(inside.reshape(-1, 3), axis=0)))
    assert colours[1] == 1 < colours[0]
