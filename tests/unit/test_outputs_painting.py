"""Maps painted without matplotlib look as those that it draws."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from matplotlib import colormaps
from matplotlib.ticker import MaxNLocator

from tests.support.pictures_read import decode
from tetris_sim.model.grid import Grid
from tetris_sim.outputs.drawing import draw
from tetris_sim.outputs.figure_layout import (
    CHANGE_COLOURS,
    FIELD_COLOURS,
    TICK_STEPS,
    Caption,
    Panel,
    lay_out,
)
from tetris_sim.outputs.pictures import draw_overview, draw_state
from tetris_sim.outputs.raster import can_paint, colour_scale, labelled_ticks
from tetris_sim.outputs.sampling import Plane, default_cuts, sample

CAPTION = Caption("temperature", "degC", "A plate")


def plate(shape: tuple[int, int], *, materials: bool = False, most: int = 1500) -> Plane:
    grid = Grid.box(shape, (0.8, 1.2))
    y, x = np.meshgrid(grid.coordinates(0), grid.coordinates(1), indexing="ij")
    values = 20 + 80 * np.exp(-((x - 0.4) ** 2 + (y - 0.6) ** 2) / 0.05)
    (plane,) = sample(
        lambda box: values[tuple(slice(*it) for it in box)], grid, default_cuts(grid), most=most
    )
    return (
        replace(plane, materials=(np.arange(shape[1]) // 9)[None].repeat(shape[0], 0))
        if (materials)
        else plane
    )


@pytest.mark.parametrize(
    "plane",
    [plate((40, 64)), plate((40, 64), materials=True), plate((437, 901), most=500)],
    ids=["coarse", "materials", "thinned"],
)
def test_what_is_painted_looks_as_what_is_drawn(plane: Plane, tmp_path: Path) -> None:
    after = replace(plane, values=0.7 * plane.values)
    drawing = draw_overview([plane], [after], CAPTION, moments=("t = 0 s", "t = 1 s"))
    drawing.save(tmp_path / "painted.png")
    assert drawing.figure is drawing.figure
    with np.errstate(all="warn"):
        drawing.save(tmp_path / "drawn.png")
    painted, drawn = decode(tmp_path / "painted.png"), decode(tmp_path / "drawn.png")
    assert painted.shape == drawn.shape

    # Means over squares of 10 pixels: texts and lines are where they were, to within a few pixels.
    rows, columns = (n // 10 * 10 for n in painted.shape[:2])
    squares = [
        it[:rows, :columns].reshape(rows // 10, 10, columns // 10, 10, 3).mean((1, 3))
        for it in (painted, drawn)
    ]
    off = abs(squares[0] - squares[1]).max(axis=2)
    assert off.mean() < 0.012
    assert np.quantile(off, 0.99) < 0.25


def test_matplotlib_is_imported_only_when_its_figure_is_asked_for(tmp_path: Path) -> None:
    script = """
import sys
from pathlib import Path
import numpy as np
from tetris_sim.model.grid import Grid
from tetris_sim.outputs.pictures import draw_state
from tetris_sim.outputs.figure_layout import Caption
from tetris_sim.outputs.sampling import default_cuts, sample
grid = Grid.box((4, 6), (0.4, 0.6))
planes = sample(lambda _: np.arange(24.0).reshape(4, 6), grid, default_cuts(grid))
drawing = draw_state(planes, Caption("temperature", "degC", "A plate"), moment="t = 0 s")
drawing.save(Path(sys.argv[1]))
assert "matplotlib" not in sys.modules
assert len(drawing.figure.axes) == 2
assert "matplotlib" in sys.modules
"""
    command = [sys.executable, "-c", script, str(tmp_path / "a.png")]
    subprocess.run(command, check=True, timeout=60)


@pytest.mark.parametrize(("name"), [FIELD_COLOURS, CHANGE_COLOURS])
def test_colours_are_those_of_matplotlib(name: str) -> None:
    theirs = np.round(255 * colormaps[name](np.arange(256))[:, :3])
    np.testing.assert_array_equal(colour_scale(name), theirs)


@given(
    low=st.integers(-80000, 80000).map(lambda n: n / 8),
    size=st.integers(1, 80000).map(lambda n: n / 8),
    intervals=st.integers(1, 6),
)
@example(low=0.0, size=15.0, intervals=6)
@example(low=-1.0, size=2.0, intervals=1)
@example(low=2.875, size=0.125, intervals=1)
def test_ticks_are_where_matplotlib_has_them(low: float, size: float, intervals: int) -> None:
    high = low + size
    assume(size > 1e-2 * max(abs(low), abs(high)))
    theirs = MaxNLocator(intervals, steps=TICK_STEPS).tick_values(low, high)
    # A tick right at an end may be counted or not.
    inside = [it for it in theirs if low + 1e-6 * size < it < high - 1e-6 * size]
    ours = labelled_ticks((low, high), intervals)
    places = [low + share * size for _, share in ours]
    met = [it for it in places if low + 1e-6 * size < it < high - 1e-6 * size]
    if len(met) == len(places):
        np.testing.assert_allclose(met, inside, rtol=0, atol=1e-6 * size)
    else:
        # One that matplotlib does not count makes its steps shorter: it has ours among its own.
        assert all(np.isclose(inside, it, rtol=0, atol=1e-6 * size).any() for it in met)
    for (text, _), place in zip(ours, places, strict=True):
        assert float(text.replace("−", "-")) == pytest.approx(place, abs=1e-3 * size)


def test_what_is_no_number_is_white(tmp_path: Path) -> None:
    plane = plate((4, 6))
    values = plane.values.copy()
    values[1:3, 2:4] = np.nan
    drawing = draw_state([replace(plane, values=values)], CAPTION, moment="")
    drawing.save(tmp_path / "a.png")
    pixels = decode(tmp_path / "a.png")
    rows, columns = pixels.shape[:2]
    box = drawing.axes[0].get_position()
    middle = pixels[int((1 - (box.y0 + box.y1) / 2) * rows), int((box.x0 + box.x1) / 2 * columns)]
    np.testing.assert_array_equal(middle, 1.0)


@pytest.mark.parametrize(
    ("heading", "label", "limits"),
    [
        ("$x^2$", "", (0.0, 1.0)),
        ("", "$u$", (0.0, 1.0)),
        ("", "", (0.0, 1e-6)),
        ("", "", (0.0, 1e6)),
        ("", "", (300.0, 300.1)),
    ],
)
def test_formulas_and_powers_of_ten_are_left_to_matplotlib(
    heading: str, label: str, limits: tuple[float, float], tmp_path: Path
) -> None:
    sheet = lay_out([[Panel(plate((4, 6)), label, limits)]], heading=heading)
    assert not can_paint(sheet)
    assert can_paint(lay_out([[Panel(plate((4, 6)), "u", (0.0, 1.0))]], heading="plain"))
    with np.errstate(all="warn"):
        draw(sheet).save(tmp_path / "a.png")
    assert decode(tmp_path / "a.png").min() < 0.5  # it is drawn all the same
