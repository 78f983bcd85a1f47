from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from pydantic import TypeAdapter

from tetris_sim.apps import initial as module
from tetris_sim.apps.initial import make_initial
from tetris_sim.config.sections.conditions import InitialSection
from tetris_sim.errors import ConfigError, NumericsError
from tetris_sim.model.grid import Grid
from tetris_sim.model.problem import Field
from tetris_sim.model.slab import Slab

ADAPTER: TypeAdapter[Any] = TypeAdapter(InitialSection)
GRIDS = {
    1: Grid.box((23,), (2.3,)),
    2: Grid.box((7, 11), (0.7, 3.3)),
    3: Grid.box((5, 6, 7), (1.0, 0.6, 3.5)),
}
KINDS: dict[str, dict[str, Any]] = {
    "constant": {"type": "constant", "value": 21.5},
    "gaussian": {"type": "gaussian", "amplitude": 100, "sigma": 0.4, "background": 5},
    "expression": {
        "type": "expression",
        "expression": "T0*exp(-x**2)*sin(3*x) + Lx",
        "constants": {"T0": 3},
    },
    "random": {"type": "random", "low": -2, "high": 3, "seed": 11},
}


def values(
    section: dict[str, Any], grid: Grid, slab: Slab | None = None, dtype: Any = np.float64
) -> Field:
    return make_initial(ADAPTER.validate_python(section), grid, np.dtype(dtype))(
        slab or Slab.whole(grid)
    )


def slab_of(*ranges: tuple[int, int]) -> Slab:
    return Slab(
        tuple(low for low, _ in ranges), tuple(high for _, high in ranges), ((0, 0),) * len(ranges)
    )


@st.composite
def partitions(draw: st.DrawFn) -> tuple[int, list[Slab], int]:
    """A grid, a cut of it into boxes along every axis, and a block size."""
    ndim = draw(st.integers(1, 3))
    ranges = []
    for n in GRIDS[ndim].shape:
        cuts = sorted({0, n, *draw(st.lists(st.integers(0, n), max_size=2))})
        ranges.append(list(itertools.pairwise(cuts)))
    return (
        ndim,
        [slab_of(*box) for box in itertools.product(*ranges)],
        draw(st.sampled_from([1, 5, 16, 60, 1 << 18])),
    )


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
@pytest.mark.parametrize("kind", KINDS)
@given(partition=partitions())
@settings(max_examples=25, deadline=None)
def test_any_partition_gives_the_same_bits(
    kind: str, dtype: Any, partition: tuple[int, list[Slab], int]
) -> None:
    ndim, slabs, block = partition
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK_POINTS", block)
        whole = values(KINDS[kind], GRIDS[ndim], dtype=dtype)
        pieced = np.full_like(whole, np.nan)
        for slab in slabs:
            box = tuple(slice(a, b) for a, b in zip(slab.start, slab.stop, strict=True))
            pieced[(slice(None), *box)] = values(KINDS[kind], GRIDS[ndim], slab, dtype)
    assert whole.shape == (1, *GRIDS[ndim].shape)
    assert whole.dtype == dtype
    np.testing.assert_array_equal(pieced, whole)


def test_no_array_larger_than_the_slab_and_a_few_blocks_is_made() -> None:
    import tracemalloc

    grid = Grid.box((4000, 3000), (4.0, 3.0))  # 96 MB as a whole
    slab = slab_of((1000, 1100), (0, 3000))
    tracemalloc.start()
    values(KINDS["gaussian"], grid, slab)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < slab.n_points * 8 + 8 * module.BLOCK_POINTS * 8


def test_a_gaussian_has_its_height_width_and_place() -> None:
    grid = Grid.box((40, 50), (4.0, 10.0))
    section = {
        "type": "gaussian",
        "amplitude": 100,
        "sigma": 0.5,
        "center": [2.5, 1.5],
        "background": -3,
    }
    y, x = np.meshgrid(grid.coordinates(0), grid.coordinates(1), indexing="ij")
    expected = -3 + 100 * np.exp(-((x - 2.5) ** 2 + (y - 1.5) ** 2) / (2 * 0.5**2))
    np.testing.assert_allclose(values(section, grid)[0], expected, rtol=1e-13)
    centred = values({"type": "gaussian", "amplitude": 1, "sigma": 1}, grid)[0]
    np.testing.assert_allclose(centred, centred[::-1, ::-1], rtol=1e-13)


def test_a_gaussian_much_narrower_than_a_cell_is_the_background() -> None:
    assert (
        values({"type": "gaussian", "amplitude": 1, "sigma": 1e-200, "background": 4}, GRIDS[2])
        == 4
    ).sum() == 76


def test_a_center_needs_one_component_per_axis() -> None:
    with pytest.raises(ConfigError, match=r"initial\.center has 1 components.*2 axes"):
        values({"type": "gaussian", "amplitude": 1, "sigma": 1, "center": [1]}, GRIDS[2])


def test_an_expression_sees_the_coordinates_the_lengths_and_its_constants() -> None:
    grid = GRIDS[3]
    found = values(
        {
            "type": "expression",
            "expression": "x + 10*y + 100*z + c*(Lx + Ly*Lz)",
            "constants": {"c": 2},
        },
        grid,
    )
    z, y, x = np.meshgrid(*(grid.coordinates(axis) for axis in range(3)), indexing="ij")
    np.testing.assert_allclose(found[0], x + 10 * y + 100 * z + 2 * (3.5 + 0.6 * 1.0), rtol=1e-13)


def test_an_expression_without_coordinates_is_a_constant() -> None:
    np.testing.assert_array_equal(
        values({"type": "expression", "expression": "2*pi"}, GRIDS[1]), np.full((1, 23), 2 * np.pi)
    )


@pytest.mark.parametrize("name", ["x", "z", "Ly", "pi", "exp", "not a name"])
def test_a_constant_with_a_name_that_has_a_meaning_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"initial\.constants"):
        values({"type": "expression", "expression": "1", "constants": {name: 2}}, GRIDS[1])


def test_a_name_that_is_not_known_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"initial\.expression.*'y'"):
        values({"type": "expression", "expression": "y"}, GRIDS[1])


def test_the_first_value_that_is_not_finite_is_named() -> None:
    grid = Grid.box((4, 5), (4.0, 5.0))
    section = {"type": "expression", "expression": "1 / ((x - 2.5)**2 + (y - 1.5)**2)"}
    with pytest.raises(
        NumericsError, match=r"inf at x = 2\.5 m, y = 1\.5 m \(array index \[1, 2\]\)"
    ):
        values(section, grid)
    values(section, grid, slab_of((2, 4), (0, 5)))  # the other half is good


def test_a_value_too_large_for_the_precision_is_refused() -> None:
    section = {"type": "constant", "value": 1e39}
    assert values(section, GRIDS[1])[0, 0] == 1e39
    with pytest.raises(NumericsError, match="finite in float32"):
        values(section, GRIDS[1], dtype=np.float32)


def test_random_numbers_fill_their_interval_evenly_and_depend_on_the_seed() -> None:
    grid = Grid.box((64, 250), (1.0, 1.0))
    found = values({"type": "random", "low": -2, "high": 4, "seed": 1}, grid)
    assert found.min() >= -2
    assert found.max() <= 4
    n = found.size  # mean and variance of a uniform sample, five standard errors
    assert abs(found.mean() - 1) < 5 * (6 / 12**0.5) / n**0.5
    assert abs(found.var() - 3) < 5 * 3 * (0.8 / n) ** 0.5
    assert np.unique(found).size == n
    assert (values({"type": "random", "low": -2, "high": 4, "seed": 2}, grid) != found).all()


def test_random_numbers_are_the_same_on_every_machine() -> None:
    found = values({"type": "random", "seed": 2**80}, Grid.box((3,), (1.0,)))
    # The stream is fixed by NumPy's promise for raw bit generators (NEP 19); so are these numbers.
    np.testing.assert_array_equal(
        found[0], [0.8789972611024145, 0.31473637879506955, 0.16132272845892215]
    )


def array_for(grid: Grid) -> Field:
    return np.random.default_rng(0).uniform(0, 9, grid.shape)


@pytest.mark.parametrize("ndim", [1, 2, 3])
@pytest.mark.parametrize("suffix", [".npy", ".h5"])
def test_a_file_gives_its_array_whatever_slab_asks(tmp_path: Path, suffix: str, ndim: int) -> None:
    grid, path = GRIDS[ndim], tmp_path / f"start{suffix}"
    array = array_for(grid)
    if suffix == ".npy":
        np.save(path, array)
    else:
        with h5py.File(path, "w") as file:
            file["somewhere/T"] = array
    section = {"type": "file", "path": str(path)}
    np.testing.assert_array_equal(values(section, grid)[0], array)
    ranges = [(1, n - 1) for n in grid.shape]
    inside = tuple(slice(a, b) for a, b in ranges)
    np.testing.assert_array_equal(values(section, grid, slab_of(*ranges))[0], array[inside])


@pytest.mark.parametrize("dtype", [np.int16, np.float32, ">f8", bool])
def test_files_of_any_kind_of_real_numbers_are_read(tmp_path: Path, dtype: Any) -> None:
    array = (array_for(GRIDS[2]) * 20).astype(dtype)
    np.save(tmp_path / "a.npy", np.asfortranarray(array))
    found = values({"type": "file", "path": str(tmp_path / "a.npy")}, GRIDS[2])
    np.testing.assert_array_equal(found[0], array.astype(float))


def test_a_dataset_is_found_by_its_name_and_may_have_an_axis_of_one_time_in_front(
    tmp_path: Path,
) -> None:
    array = array_for(GRIDS[2])
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["fields/temperature"] = array[None]
        file["x"] = np.arange(11.0)
    section = {"type": "file", "path": str(tmp_path / "a.h5")}
    np.testing.assert_array_equal(
        values({**section, "dataset": "/fields/temperature"}, GRIDS[2])[0], array
    )
    with pytest.raises(ConfigError, match=r"initial\.dataset is not given.*fields/temperature, x"):
        values(section, GRIDS[2])
    with pytest.raises(ConfigError, match=r"'y' is not in.*fields/temperature, x"):
        values({**section, "dataset": "y"}, GRIDS[2])
    with pytest.raises(ConfigError, match="'fields' is not in"):
        values({**section, "dataset": "fields"}, GRIDS[2])


@pytest.mark.parametrize("mode", ["L", "LA", "RGB", "RGBA", "P", "I;16", "1"])
def test_a_grey_picture_is_read_upright_between_its_black_and_white(
    tmp_path: Path, mode: str
) -> None:
    grid, path = GRIDS[2], tmp_path / "start.png"
    grey = (array_for(grid) * 25).astype(np.uint8)
    if mode == "1":
        grey = np.where(grey > 100, 255, 0).astype(np.uint8)
    if mode == "I;16":
        Image.fromarray(grey.astype(np.uint16) * 257).save(path)
    else:
        Image.fromarray(grey).convert(mode).save(path)
    found = values({"type": "file", "path": str(path), "black": -10, "white": 30}, grid)
    np.testing.assert_allclose(found[0], -10 + 40 * (grey[::-1] / 255), rtol=0, atol=1e-12)


def test_a_picture_in_colour_is_refused(tmp_path: Path) -> None:
    pixels = np.zeros((7, 11, 3), dtype=np.uint8)
    pixels[2, 3] = 200, 0, 0
    Image.fromarray(pixels).save(tmp_path / "red.png")
    with pytest.raises(ConfigError, match="in colour"):
        values({"type": "file", "path": str(tmp_path / "red.png")}, GRIDS[2])


def test_a_picture_is_for_two_axes_only(tmp_path: Path) -> None:
    Image.fromarray(np.zeros((7, 11), dtype=np.uint8)).save(tmp_path / "a.png")
    with pytest.raises(ConfigError, match="the grid has 1 axes"):
        values({"type": "file", "path": str(tmp_path / "a.png")}, GRIDS[1])


def test_another_shape_is_refused_with_both_shapes_in_words(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((11, 7)))
    with pytest.raises(ConfigError, match=r"7 along x, 11 along y.*11 along x, 7 along y"):
        values({"type": "file", "path": str(tmp_path / "a.npy")}, GRIDS[2])
    np.save(tmp_path / "b.npy", np.zeros((1, 1, 7, 11)))
    with pytest.raises(ConfigError, match="no shape of a grid"):
        values({"type": "file", "path": str(tmp_path / "b.npy")}, GRIDS[2])


def test_a_missing_file_is_found_when_the_problem_is_built(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no file"):
        make_initial(
            ADAPTER.validate_python({"type": "file", "path": str(tmp_path / "no.npy")}),
            GRIDS[1],
            np.dtype("f8"),
        )


@pytest.mark.parametrize("name", ["a.npy", "a.h5", "a.png", "a.txt"])
@pytest.mark.parametrize(
    "content",
    [b"", b"rubbish that is no array", b"\x93NUMPY\x01\x00\xff\xff", b"\x89PNG\r\n\x1a\n"],
)
def test_a_damaged_file_is_a_configuration_error(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match="cannot be read"):
        values({"type": "file", "path": str(tmp_path / name)}, GRIDS[2])


@pytest.mark.parametrize(
    "array",
    [np.zeros((7, 11), dtype=complex), np.full((7, 11), "a"), np.zeros((7, 11), dtype=object)],
)
def test_a_file_without_real_numbers_is_refused(tmp_path: Path, array: Any) -> None:
    np.save(tmp_path / "a.npy", array, allow_pickle=True)
    with pytest.raises(ConfigError, match="numbers"):
        values({"type": "file", "path": str(tmp_path / "a.npy")}, GRIDS[2])


def test_a_dataset_of_something_that_is_no_hdf5_file_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", array_for(GRIDS[2]))
    with pytest.raises(ConfigError, match=r"initial\.dataset = 'T' needs an HDF5 file"):
        values({"type": "file", "path": str(tmp_path / "a.npy"), "dataset": "T"}, GRIDS[2])


def test_a_hole_in_a_file_is_found(tmp_path: Path) -> None:
    array = array_for(GRIDS[2])
    array[3, 4] = np.nan
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(NumericsError, match=r"the file gives nan at x = 1\.35 m, y = 0\.35 m"):
        values({"type": "file", "path": str(tmp_path / "a.npy")}, GRIDS[2])
