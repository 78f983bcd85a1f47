from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib import colormaps

from tests.support.pictures_read import Pixels, decode
from tetris_sim.errors import ConfigError
from tetris_sim.model.grid import Grid
from tetris_sim.outputs import sampling
from tetris_sim.outputs.drawing import DPI, Drawing
from tetris_sim.outputs.figure_layout import (
    Caption,
    LengthUnit,
    change_limits,
    field_limits,
    length_unit,
    moment,
)
from tetris_sim.outputs.pictures import draw_change, draw_overview, draw_state
from tetris_sim.outputs.regions import blocks
from tetris_sim.outputs.sampling import CrossSection, Plane, cuts_at, default_cuts, sample

CAPTION = Caption("temperature", "degC", "A plate")


@pytest.fixture(autouse=True)
def _as_in_a_run() -> Any:
    # Matplotlib computes with what may underflow or be invalid in between.
    with np.errstate(all="warn"):
        yield


def planes_of(
    grid: Grid,
    function: Callable[..., Any],
    *,
    most: int = 1500,
    cuts: tuple[CrossSection, ...] | None = None,
) -> tuple[Plane, ...]:
    """The planes of a field given as a function of its coordinates in array order."""
    values = np.asarray(
        function(*np.meshgrid(*map(grid.coordinates, range(grid.ndim)), indexing="ij"))
    )

    def read(box: Any) -> Any:
        return values[tuple(slice(low, high) for low, high in box)]

    return sample(read, grid, default_cuts(grid) if cuts is None else cuts, most=most)


def panel(pixels: Pixels, drawing: Drawing, k: int) -> Pixels:
    """The inside of panel k, rows counted from its bottom."""
    box = drawing.axes[k].get_position()
    rows, columns = pixels.shape[:2]
    left, right = math.ceil(box.x0 * columns) + 3, math.floor(box.x1 * columns) - 3
    bottom, top = math.ceil(box.y0 * rows) + 3, math.floor(box.y1 * rows) - 3
    return pixels[rows - top : rows - bottom, left:right][::-1]


def place_of(pixels: Pixels, colour: tuple[float, float, float]) -> tuple[float, float]:
    """Where the pixels are that are most like a colour: (up, right), each from 0 to 1."""
    distance = ((pixels - np.array(colour)) ** 2).sum(axis=2)
    rows, columns = np.nonzero(distance <= distance.min() + 1e-4)
    return rows.mean() / pixels.shape[0], columns.mean() / pixels.shape[1]


def top_colour(name: str) -> tuple[float, float, float]:
    red, green, blue, _ = colormaps[name](1.0)
    return red, green, blue


def bottom_colour(name: str) -> tuple[float, float, float]:
    red, green, blue, _ = colormaps[name](0.0)
    return red, green, blue


def hill(y0: float, x0: float, height: float = 1.0) -> Callable[..., Any]:
    """A smooth hill on the plane."""
    return lambda y, x: height * np.exp(-((y - y0) ** 2 + (x - x0) ** 2) / 0.02)


PLATE = Grid.box((60, 90), (0.6, 0.9))


def test_the_hottest_pixel_is_where_the_hottest_point_is_with_y_upwards(tmp_path: Path) -> None:
    drawing = draw_state(planes_of(PLATE, hill(0.12, 0.7)), CAPTION, moment="t = 1 s")
    drawing.save(tmp_path / "a.png")
    pixels = decode(tmp_path / "a.png")
    up, right = place_of(panel(pixels, drawing, 0), top_colour("inferno"))
    assert up == pytest.approx(0.12 / 0.6, abs=0.02)
    assert right == pytest.approx(0.7 / 0.9, abs=0.02)


def test_the_picture_has_the_size_of_its_figure_and_the_panel_the_shape_of_the_box(
    tmp_path: Path,
) -> None:
    drawing = draw_state(planes_of(PLATE, hill(0.3, 0.3)), CAPTION, moment="t = 1 s")
    drawing.save(tmp_path / "a.png")
    pixels = decode(tmp_path / "a.png")
    width, height = drawing.figure.get_size_inches()
    assert pixels.shape[:2] == (int(height * DPI), int(width * DPI))
    box = drawing.axes[0].get_position()
    assert box.width * width / (box.height * height) == pytest.approx(0.9 / 0.6, rel=1e-9)
    assert len(np.unique(pixels.reshape(-1, 3), axis=0)) > 200  # not blank
    np.testing.assert_array_equal(pixels[[0, 0, -1, -1], [0, -1, 0, -1]], 1.0)  # a white edge


def test_hotter_is_red_colder_is_blue_and_unchanged_is_neutral(tmp_path: Path) -> None:
    before = planes_of(PLATE, lambda y, x: 20 + 0 * x)
    after = planes_of(
        PLATE, lambda y, x: 20 + hill(0.45, 0.2, 5.0)(y, x) - hill(0.15, 0.7, 2.0)(y, x)
    )
    drawing = draw_change(before, after, CAPTION, moment="")
    drawing.save(tmp_path / "a.png")
    shown = panel(decode(tmp_path / "a.png"), drawing, 0)
    up, right = place_of(shown, top_colour("RdBu_r"))
    np.testing.assert_allclose((up, right), (0.45 / 0.6, 0.2 / 0.9), rtol=0, atol=0.02)
    bluest = np.unravel_index((shown[..., 2] - shown[..., 0]).argmax(), shown.shape[:2])
    assert bluest[0] / shown.shape[0] == pytest.approx(0.15 / 0.6, abs=0.04)
    assert bluest[1] / shown.shape[1] == pytest.approx(0.7 / 0.9, abs=0.04)
    np.testing.assert_allclose(
        shown[2, 2], colormaps["RdBu_r"](0.5)[:3], atol=0.02
    )  # the lower left corner
    low, high = drawing.artists[0].get_clim()
    assert low == -high
    assert high == pytest.approx(5.0, rel=0.01)


def test_before_and_after_share_their_scale_in_the_overview(tmp_path: Path) -> None:
    before, after = planes_of(PLATE, hill(0.3, 0.3, 100.0)), planes_of(PLATE, hill(0.3, 0.3, 50.0))
    drawing = draw_overview(before, after, CAPTION, moments=("t = 0 s", "t = 1 s"))
    drawing.save(tmp_path / "a.png")
    first, last, change = drawing.artists
    assert first.get_clim() == last.get_clim()
    assert first.get_clim()[1] == pytest.approx(100, rel=0.01)
    assert change.get_clim()[1] == pytest.approx(50, rel=0.01)
    assert [axes.get_title() for axes in drawing.axes] == ["t = 0 s", "t = 1 s", "difference"]
    pixels = decode(tmp_path / "a.png")
    peak = (
        panel(pixels, drawing, 0)[::-1].max(axis=(0, 1)),
        panel(pixels, drawing, 1).max(axis=(0, 1)),
    )
    assert peak[0][1] > peak[1][1] + 0.3  # half as hot is not shown as bright
    blue = panel(pixels, drawing, 2)
    np.testing.assert_allclose(
        place_of(blue, bottom_colour("RdBu_r")), (0.5, 1 / 3), rtol=0, atol=0.02
    )


def test_a_thinned_picture_shows_the_same_place(tmp_path: Path) -> None:
    grid = Grid.box((640, 960), (0.6, 0.9))
    (plane,) = planes_of(grid, hill(0.12, 0.7), most=97)
    assert max(plane.values.shape) <= 97
    np.testing.assert_array_equal(
        plane.values, hill(0.12, 0.7)(*np.meshgrid(*plane.positions, indexing="ij"))
    )
    for positions, (low, high) in zip(plane.positions, plane.bounds, strict=True):
        assert (
            abs((positions[0] - low) - (high - positions[-1])) < grid.spacing[0] * 1.001
        )  # centred
    drawing = draw_state((plane,), CAPTION, moment="")
    drawing.save(tmp_path / "a.png")
    up, right = place_of(panel(decode(tmp_path / "a.png"), drawing, 0), top_colour("inferno"))
    np.testing.assert_allclose((up, right), (0.12 / 0.6, 0.7 / 0.9), rtol=0, atol=0.03)


@pytest.mark.parametrize("shape", [(700,), (50, 90), (13, 17, 11)])
@pytest.mark.parametrize("most", [1, 5, 12, 1500])
def test_thinning_reads_little_at_a_time_and_every_point_it_shows(
    shape: tuple[int, ...], most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = Grid.box(shape, tuple(0.1 * n for n in shape))
    values = np.arange(math.prod(shape), dtype=float).reshape(shape)
    limit = values.nbytes // 5
    monkeypatch.setattr(sampling, "blocks", lambda *args: blocks(*args, limit=limit))

    def read(box: Any) -> Any:
        part = values[tuple(slice(low, high) for low, high in box)]
        assert part.nbytes <= limit
        return part

    for plane, cut in zip(
        sample(read, grid, default_cuts(grid), most=most), default_cuts(grid), strict=True
    ):
        whole = values if cut.axis is None else values.take(cut.index, axis=cut.axis)
        assert all(n <= most for n in plane.values.shape)
        assert set(plane.values.ravel()) <= set(whole.ravel())
        assert len(set(plane.values.ravel())) == plane.values.size
        if most == 1500:
            np.testing.assert_array_equal(plane.values, whole)


def test_a_3d_field_is_shown_in_its_three_middle_planes(tmp_path: Path) -> None:
    grid = Grid.box((4, 6, 10), (0.04, 0.06, 0.1))
    planes = planes_of(grid, lambda z, y, x: 100 * z + 10 * y + x)
    assert [plane.axes for plane in planes] == [("y", "x"), ("z", "x"), ("z", "y")]
    assert [plane.place and plane.place[0] for plane in planes] == ["z", "y", "x"]
    z, y, x = (grid.coordinates(axis) for axis in range(3))
    np.testing.assert_allclose(planes[1].values, 100 * z[:, None] + 10 * y[3] + x[None, :])
    drawing = draw_state(planes, CAPTION, moment="t = 1 s")
    assert [axes.get_title() for axes in drawing.axes] == ["z = 2.5 cm", "y = 3.5 cm", "x = 5.5 cm"]
    assert drawing.axes[1].get_ylabel() == "z [cm]"
    assert len({artist.get_clim() for artist in drawing.artists}) == 1
    drawing.save(tmp_path / "a.png")
    shown = panel(decode(tmp_path / "a.png"), drawing, 1).sum(axis=2)
    assert shown[-1].mean() > shown[0].mean()  # z upwards: the top is hotter


def test_a_slice_goes_through_the_nearest_points_and_must_lie_in_the_box() -> None:
    grid = Grid.box((4, 6, 10), (0.04, 0.06, 0.1))
    assert cuts_at(grid, [("z", 0.0), ("x", 0.1), ("y", 0.0349), ("y", 0.04)]) == (
        CrossSection(0, 0),
        CrossSection(2, 9),
        CrossSection(1, 3),
        CrossSection(1, 4),
    )
    with pytest.raises(
        ConfigError, match=r"z = 0\.05 m lies outside the box, which is from 0 m to 0\.04 m"
    ):
        cuts_at(grid, [("z", 0.05)])
    with pytest.raises(ConfigError, match="for 3D fields"):
        cuts_at(PLATE, [("y", 0.0)])


def test_a_line_goes_through_its_values() -> None:
    grid = Grid.box((50,), (0.5,))
    before, after = planes_of(grid, lambda x: 0 * x + 1), planes_of(grid, lambda x: 3 * x)
    drawing = draw_overview(before, after, CAPTION, moments=("t = 0 s", "t = 1 s"))
    top, bottom = drawing.axes
    lines = {line.get_label(): line for line in top.get_lines()}
    np.testing.assert_allclose(np.asarray(lines["t = 1 s"].get_xdata()), 100 * grid.coordinates(0))
    np.testing.assert_allclose(np.asarray(lines["t = 1 s"].get_ydata()), 3 * grid.coordinates(0))
    np.testing.assert_allclose(np.asarray(lines["t = 0 s"].get_ydata()), 1)
    np.testing.assert_allclose(
        np.asarray(drawing.artists[1].get_ydata()), 3 * grid.coordinates(0) - 1
    )
    assert (top.get_xlabel(), top.get_ylabel()) == ("x [cm]", "temperature [°C]")
    assert bottom.get_ylabel() == "change of temperature [K]"


@pytest.mark.parametrize("size", [(1e-3, 0.2), (2.0, 0.01), (15e-3, 15e-3), (1e4, 3e4)])
@pytest.mark.parametrize(
    "heading", ["Plate", "A heading that is much longer than any picture is wide, " * 4]
)
def test_nothing_overlaps_and_nothing_leaves_the_picture(
    size: tuple[float, float], heading: str
) -> None:
    grid = Grid.box((12, 20), size)
    before, after = planes_of(grid, lambda y, x: y * 1e4), planes_of(grid, lambda y, x: -x / 7)
    caption = Caption("temperature", "degC", heading)
    drawing = draw_overview(before, after, caption, moments=("t = 0 s", "t = 19.22 ms"))
    figure: Any = drawing.figure
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()
    panels: list[Any] = [axes.get_tightbbox(renderer) for axes in drawing.axes]
    for k, box in enumerate(panels):
        assert box.x0 >= -1
        assert box.y0 >= -1
        assert box.x1 <= figure.bbox.width + 1
        assert box.y1 <= figure.bbox.height + 1
        assert not any(box.overlaps(other) for other in panels[k + 1 :])
    (text,) = [text for text in figure.texts if text.get_text().startswith(heading[:5])]
    over = text.get_window_extent(renderer)
    assert over.x1 <= figure.bbox.width
    assert not any(over.overlaps(box) for box in panels)


def test_scales_hold_constant_and_broken_fields() -> None:
    def plane(*values: float) -> Plane:
        positions = np.linspace(0.0, 1.0, len(values))
        return Plane(("x",), (positions,), (positions,), ((0.0, 1.0),), np.array(values))

    assert field_limits([plane(1.0, 5.0), plane(-2.0, 3.0)]) == (-2.0, 5.0)
    low, high = field_limits([plane(20.0, 20.0)])
    assert low < 20.0 < high
    assert field_limits([plane(20.0, 20.0 + 1e-9)]) == (20.0, 20.0 + 1e-9)
    assert field_limits([plane(1.0, np.nan, np.inf, 2.0)]) == (1.0, 2.0)
    assert change_limits([plane(-3.0, -3.0)]) == (-3.0, 3.0)
    assert change_limits([plane(0.0, 0.0)]) == (-1.0, 1.0)
    low, high = field_limits([plane(np.nan)])
    assert low < high


@pytest.mark.parametrize(
    ("length", "unit", "text"),
    [
        (0.015, "mm", "7.5 mm"),
        (0.3, "cm", "15 cm"),
        (2.0, "m", "1 m"),
        (3e-7, "nm", "150 nm"),
        (5e7, "km", "2.5e+04 km"),
    ],
)
def test_lengths_are_short_numbers(length: float, unit: str, text: str) -> None:
    found = length_unit([length / 3, length])
    assert isinstance(found, LengthUnit)
    assert (found.name, found.text(length / 2)) == (unit, text)


def test_a_step_without_physical_time_is_called_by_its_number() -> None:
    assert moment(1200, 1200.0, timeless=True) == "step 1200"
    assert moment(1200, 0.0125, timeless=False) == "t = 12.5 ms"


def test_a_power_of_ten_is_a_formula_and_numbers_are_text() -> None:
    values = -1e-6 * (1.0 + np.arange(30.0).reshape(5, 6))
    grid = Grid.box((5, 6), (0.5, 0.6))
    planes = sample(lambda box: values, grid, default_cuts(grid))
    drawing = draw_state(planes, CAPTION, moment="t = 0")
    drawing.png(90)
    bar = drawing.figure.axes[-1].yaxis
    assert bar.get_offset_text().get_text() == r"$\times\mathdefault{10^{−5}}\mathdefault{}$"
    texts = [tick.get_text() for tick in bar.get_ticklabels()]
    assert "−2.0" in texts
    assert all(float(text.replace("−", "-")) <= 0 for text in texts)
