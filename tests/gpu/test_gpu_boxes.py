"""The arithmetic of boxes, frames and layouts on a GPU, which needs no GPU."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.cases import boundary_of, make_problem, stencil_of
from tetris_sim.gpu_kernels import METHODS
from tetris_sim.gpu_kernels.boundary.domain import THREADS, domain_argument, ghost_tiles
from tetris_sim.gpu_kernels.boundary.extents import (
    SHARED_BYTES,
    Extent,
    corners_of,
    frame_of,
    has_frame,
    three_radii,
    tile_of_frame,
    tiles_of,
    without_frame,
)
from tetris_sim.gpu_kernels.common.layout import (
    FAR,
    LINE,
    Box3,
    box_argument,
    memory_argument,
    pitch_slab,
)
from tetris_sim.gpu_kernels.fused.method import Family, FusedMethod
from tetris_sim.model import reference
from tetris_sim.model.boundary import Boundary, Dirichlet, Fixed, Neumann, Periodic, Robin
from tetris_sim.model.deep_ghosts import contradictions, lasting_sides
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab
from tetris_sim.model.stencil import scale


def points(box: Box3) -> set[tuple[int, ...]]:
    return set(itertools.product(*(range(low, high) for low, high in box)))


@st.composite
def nested(draw: st.DrawFn) -> tuple[Box3, Box3]:
    """A box within a box."""
    spans = []
    for _ in range(3):
        cuts = sorted(draw(st.lists(st.integers(-4, 6), min_size=4, max_size=4, unique=True)))
        spans.append(
            ((cuts[0], cuts[3]), draw(st.sampled_from([(cuts[1], cuts[2]), (cuts[0], cuts[3])])))
        )
    outer, inner = zip(*spans, strict=True)
    return (outer[0], outer[1], outer[2]), (inner[0], inner[1], inner[2])


@given(nested(), st.tuples(*[st.integers(1, 5)] * 3))
def test_a_frame_is_what_the_inner_box_leaves_each_point_once(
    boxes: tuple[Box3, Box3], tile: tuple[int, int, int]
) -> None:
    outer, inner = boxes
    tiles = [each for box in frame_of(outer, inner) for each in tiles_of(box, tile)]
    found = [point for box in tiles for point in points(box)]
    assert len(found) == len(set(found))
    assert set(found) == points(outer) - points(inner)
    assert all(high - low <= n for box in tiles for (low, high), n in zip(box, tile, strict=True))


@pytest.mark.parametrize("name", ["heat-1d", "star-2d13p", "box-3d27p"])
@pytest.mark.parametrize("depth", [1, 3, 8])
def test_the_inner_box_keeps_away_from_faces_but_not_from_neighbours(name: str, depth: int) -> None:
    stencil = stencil_of(name)
    shape = (200,) * stencil.ndim
    problem, _ = make_problem(stencil, boundary_of("walls", stencil.ndim), shape=shape)
    reach = depth * stencil.radius
    halo = ((4 * reach, 0), *[(0, 0)] * (stencil.ndim - 1))
    outer = Extent(depth).of(problem, Slab((0,) * stencil.ndim, shape, halo))
    assert outer[3 - stencil.ndim] == (-reach, 200)
    inner = without_frame(problem, Slab((0,) * stencil.ndim, shape, halo), outer, depth)
    assert inner is not None
    assert inner[2][0] * 8 % LINE == 0
    for axis in range(3 - stencil.ndim, 3):
        low, high = inner[axis]
        assert high == 200 - reach
        if axis == 3 - stencil.ndim:
            assert low == (-reach if axis < 2 else -(reach // 16) * 16)
        else:
            assert reach <= low < reach + 16
    assert (
        without_frame(problem, Slab.whole(problem.grid), ((0, 1), (0, 1), (0, 2 * reach)), depth)
        is None
    )


WARM, COLD = Dirichlet(1.0), Dirichlet(0.0)
INSULATED, HEATED, COOLED = Neumann(), Neumann(flux=2.0), Robin(h=1.0, ambient=0.0)
OPEN, SHUT = (True, True), (False, False)


@pytest.mark.parametrize(
    ("faces", "expected"),
    [
        (((Periodic(), Periodic()), (COOLED, COOLED)), (OPEN, OPEN)),
        (((COOLED, COLD), (Fixed(0.0), Robin(h=3.0, ambient=0.0))), (OPEN, OPEN)),
        (((COOLED, COOLED), (WARM, INSULATED)), (OPEN, OPEN)),
        (((Robin(h=0.0, ambient=9.0), HEATED), (HEATED, HEATED)), (OPEN, OPEN)),
        (((WARM, WARM), (WARM, WARM)), (OPEN, OPEN)),
        (((WARM, COLD), (INSULATED, INSULATED)), (OPEN, OPEN)),
        (((COLD, COLD), (COLD, WARM)), (OPEN, OPEN)),
        (((WARM, COLD), (HEATED, INSULATED)), (OPEN, OPEN)),
        (((HEATED, HEATED), (HEATED, HEATED)), (OPEN, OPEN)),
        (((HEATED, Fixed(1.0)), (COOLED, HEATED)), (OPEN, OPEN)),
    ],
)
def test_ghosts_last_beyond_faces_that_mirror_and_agree(faces: Any, expected: Any) -> None:
    problem, _ = make_problem(stencil_of("box-2d9p"), Boundary(faces), mirrored=True)
    assert lasting_sides(problem, Slab.whole(problem.grid)) == expected
    cut = lasting_sides(problem, Slab((0, 0), problem.grid.shape, ((2, 2), (0, 0))))
    assert cut[0] == SHUT
    random, _ = make_problem(stencil_of("box-2d9p"), Boundary(faces))
    assert lasting_sides(random, Slab.whole(random.grid)) == tuple(
        (isinstance(low, Periodic), isinstance(high, Periodic)) for low, high in faces
    )


@pytest.mark.parametrize(
    ("name", "dtype", "face", "lasts"),
    [
        ("heat-2d", "float64", COOLED, True),
        ("heat-2d", "float32", Fixed(1.0), True),
        ("heat-2d", "float16", COOLED, False),
        ("heat-2d", "float16", WARM, True),
        ("star-2d9p", "float64", COOLED, False),
        ("box-2d25p", "float64", Fixed(1.0), False),
        ("star-2d9p", "float64", WARM, True),
    ],
)
def test_what_only_nearly_mirrors_lasts_where_one_ghost_is_read_and_not_in_float16(
    name: str, dtype: str, face: Any, lasts: bool
) -> None:
    boundary = Boundary(((face, INSULATED), (INSULATED, face)))
    problem, _ = make_problem(
        stencil_of(name), boundary, dtype=dtype, shape=(40, 50), mirrored=True
    )
    slab = Slab.whole(problem.grid)
    assert lasting_sides(problem, slab) == ((lasts, True), (True, lasts))


def test_a_frame_is_left_where_faces_contradict_each_other() -> None:
    boundary = Boundary(((WARM, INSULATED), (COLD, WARM)))
    problem, _ = make_problem(stencil_of("heat-2d"), boundary, mirrored=True, shape=(40, 50))
    slab = Slab.whole(problem.grid)
    assert contradictions(problem, slab) == (((0, 0), (1, 0)),)
    box = without_frame(problem, slab, ((0, 1), (0, 40), (0, 50)), 4)
    assert box == ((0, 1), (0, 40), (0, 50))
    assert corners_of(problem, slab, box, 4) == [((0, 1), (0, 4), (0, 4))]
    cut = Slab((20, 0), (40, 50), ((4, 0), (0, 0)))
    assert contradictions(problem, cut) == ()


def test_what_a_face_gives_lasts_only_if_the_stencil_keeps_constants() -> None:
    for faces, expected in (((WARM, COLD), (False, True)), ((INSULATED, HEATED), (True, False))):
        problem, _ = make_problem(stencil_of("heat-1d"), Boundary((faces,)), mirrored=True)
        decaying = dataclasses.replace(problem, stencil=scale(problem.stencil, 0.5))
        assert lasting_sides(problem, Slab.whole(problem.grid)) == ((True, True),)
        assert lasting_sides(decaying, Slab.whole(problem.grid)) == (expected,)


@pytest.mark.parametrize("kind", ["walls", "rings"])
@pytest.mark.parametrize("name", ["heat-1d", "star-2d13p", "box-2d49p", "heat-3d", "box-3d27p"])
def test_the_tiles_of_a_frame_fit_into_shared_memory_or_there_is_none(name: str, kind: str) -> None:
    stencil = stencil_of(name)
    n = {1: 2000, 2: 300, 3: 90}[stencil.ndim]
    problem, _ = make_problem(stencil, boundary_of(kind, stencil.ndim), shape=(n,) * stencil.ndim)
    slab = Slab.whole(problem.grid)
    for depth in (1, 2, 4, 16, 64):
        smallest = np.prod([1 + 2 * depth * radius for radius in stencil.radii])
        assert has_frame(problem, depth) == (2 * 8 * smallest <= SHARED_BYTES)
        outer = Extent(0).of(problem, slab)
        inner = without_frame(problem, slab, outer, depth)
        if inner is None or not has_frame(problem, depth):
            continue
        for box in frame_of(outer, inner):
            edges, level = tile_of_frame(problem, slab, box, depth)
            assert 2 * 8 * level <= SHARED_BYTES
            for tile in list(tiles_of(box, edges))[:50]:
                assert (
                    np.prod([high - low for low, high in stored(problem, slab, tile, depth)])
                    <= level
                )


def stored(problem: Problem, slab: Slab, tile: Box3, depth: int) -> list[tuple[int, int]]:
    """What frame.cu keeps of a tile: what it depends on, and ghosts beyond faces."""
    domain = domain_argument(problem, slab)[0]
    return [
        (max(low - depth * r, first - r), min(high + depth * r, last + r))
        for (low, high), r, first, last in zip(
            tile,
            three_radii(problem),
            domain["low"].tolist(),
            domain["high"].tolist(),
            strict=True,
        )
    ]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", ["heat-1d", "box-2d25p", "heat-3d"])
def test_rows_begin_on_lines_and_points_lie_where_the_kernels_look(name: str, dtype: str) -> None:
    stencil = stencil_of(name)
    shape = {1: (37,), 2: (11, 23), 3: (7, 9, 13)}[stencil.ndim]
    problem, state = make_problem(
        stencil, boundary_of("walls", stencil.ndim), dtype=dtype, shape=shape, n_fields=2
    )
    layout = pitch_slab(problem, Slab.whole(problem.grid))
    flat = np.zeros(layout.n_bytes // layout.dtype.itemsize, dtype=dtype)
    layout.view(flat, tuple((0, n) for n in shape))[...] = state
    plane, row = layout.pitches
    assert layout.origin * layout.dtype.itemsize % LINE == 0
    assert row * layout.dtype.itemsize % LINE == 0
    where = tuple(n - 1 for n in shape)
    i, j, k = (0,) * (3 - stencil.ndim) + where
    assert flat[layout.field_pitch + layout.origin + i * plane + j * row + k] == state[(1, *where)]
    for axis, radius in enumerate(three_radii(problem)):
        low, high = layout.within[axis]
        assert low <= -radius
        assert high >= layout.count[axis] + radius


@pytest.mark.parametrize("name", ["heat-1d", "box-2d9p", "heat-3d"])
def test_the_depth_of_a_kernel_is_known_before_it_is_built(name: str) -> None:
    stencil = stencil_of(name)
    problem, _ = make_problem(
        stencil, boundary_of("walls", stencil.ndim), shape=(99,) * stencil.ndim
    )
    fused = [method for method in METHODS if isinstance(method, FusedMethod)]
    for method in fused:
        if method.refusal(problem) is None:
            parameters = method.parameters(problem)[-1]
            assert method.depth(problem, parameters) == method.kernel(problem, parameters).depth
            assert method.depth(problem, {"steps_per_block": 1}) == 1


def test_memory_is_asked_for_without_building_a_kernel() -> None:
    def kernel(*_: Any) -> Any:
        pytest.fail("a kernel was built")

    family = Family(kernel, lambda *_: ({"steps_per_block": 3, "warps": 4},), lambda *_: None)
    method = FusedMethod("gpu.a", {2: family})
    # Ghosts that last are as deep as the block, so the depth counts.
    problem, _ = make_problem(stencil_of("heat-2d"), boundary_of("rings", 2), shape=(90, 70))
    slab = Slab.whole(problem.grid)
    for parameters, depth in (({}, 3), ({"warps": 8}, 3), ({"steps_per_block": 7}, 7)):
        wanted = 2 * pitch_slab(problem, slab, depth).n_bytes
        assert method.memory(problem, slab, parameters) == wanted


def test_faces_are_told_as_the_reference_has_them() -> None:
    stencil = stencil_of("star-2d9p")
    problem, state = make_problem(stencil, boundary_of("walls", 2), shape=(5, 7))
    slab = Slab.whole(problem.grid)
    padded = reference.with_ghosts(state, problem.boundary, problem.grid.spacing, stencil.radii)[0]
    domain = domain_argument(problem, slab)
    for side, rows in ((0, padded[1::-1]), (1, padded[-2:])):
        for number in (0, 1):
            mirror = state[0, (number, -1 - number)[side]]
            expected = domain["a"][0, 1, side, number] + domain["b"][0, 1, side, number] * mirror
            np.testing.assert_allclose(rows[number, 2:-2], expected, rtol=1e-14)
    assert domain["low"][0].tolist() == [-FAR, 0, 0]
    assert domain["high"][0].tolist() == [FAR, 5, 7]
    ring, _ = make_problem(stencil, boundary_of("rings", 2), shape=(5, 7))
    assert domain_argument(ring, slab)["period"][0].tolist() == [0, 5, 7]


def test_structs_have_the_bytes_of_the_header() -> None:
    box: Box3 = ((1, 2), (3, 4), (5, 6))
    assert np.frombuffer(box_argument(box).tobytes(), np.int32).tolist() == [1, 3, 5, 2, 4, 6]
    memory = memory_argument(7, 8, box)
    assert memory.itemsize == 40
    assert np.frombuffer(memory.tobytes(), np.int64)[:2].tolist() == [7, 8]


@pytest.mark.parametrize("itemsize", [2, 4, 8])
@pytest.mark.parametrize(
    ("ends", "only"),
    [
        (((0, 0, 0), (1, 9, 13), (0, 0, 0)), -1),
        (((0, -FAR, 0), (5, FAR, 13), (0, 3, 0)), -1),
        (((0, 0, -FAR), (5, 9, FAR), (0, 0, 13)), -1),
        (((0, 0, 0), (5, 9, 13), (0, 0, 0)), 2),
    ],
)
def test_tiles_of_ghosts_hold_each_once_and_tell_what_it_mirrors(
    ends: Any, only: int, itemsize: int
) -> None:
    table = np.array(ends, np.int32)
    shape = [int(table[2, d] or min(table[1, d], 50)) for d in range(3)]
    inside = (0, shape[0]), (0, shape[1]), (0, shape[2])
    reach = (0 if shape[0] == 1 else 2, 4, 3)
    widths = reach if only == -1 else (0, 0, reach[2])
    z, y, x = ((-w, n + w) for w, n in zip(widths, shape, strict=True))
    outside = z, y, x
    found: dict[tuple[int, ...], tuple[int, ...]] = {}
    for tile in ghost_tiles(inside, outside, table, only, itemsize).tolist():
        low, high, sign, offset, side = (tile[n : n + 3] for n in range(0, 15, 3))
        assert high[0] == low[0] + 1
        assert high[2] - low[2] <= tile[15] <= THREADS
        z, y, x = zip(low, high, strict=True)
        for point in points((z, y, x)):
            assert point not in found
            found[point] = tuple(s * p + o for s, p, o in zip(sign, point, offset, strict=True))
            for d, at in enumerate(point):
                beyond = -1 if table[2, d] or 0 <= at < shape[d] else int(at >= shape[d])
                assert side[d] == (beyond if only in (-1, d) else -1)

    wanted = points(outside) - points(inside)
    assert wanted <= found.keys()
    row = (shape[2] + 3) * itemsize
    for point in found.keys() - wanted:  # they complete a sector of 32 bytes
        assert -32 <= point[2] * itemsize < -3 * itemsize or 0 <= point[2] * itemsize - row < 32
    for point, mirror in found.items():
        for at, image, n, period in zip(point, mirror, shape, table[2], strict=True):
            assert 0 <= image < n
            assert image == (at % n if period else min(max(at, -1 - at), 2 * n - 1 - at, key=abs))


def test_floats_divide_whole_numbers_exactly_though_they_round_twice_more() -> None:
    """As `quotient` of span.cuh does, with the error that CUDA allows `__fdividef`: two units."""
    m = np.arange(5000)
    for n in (1, 2, 3, 7, 33, 96, 127, 1000, 4096, 4999):
        quotients = (m.astype(np.float32) + np.float32(0.5)) / np.float32(n)
        for units in (-2, 2):
            near = quotients * np.float32(1 + units * 2.0**-23)
            np.testing.assert_array_equal(near.astype(int), m // n)


@pytest.mark.parametrize(
    ("span", "tiles"), [((0, 56), 1), ((4, 60), 2), ((-16, 40), 1), ((-4, 53), 2)]
)
def test_tiles_of_planes_begin_where_lines_of_memory_do(span: tuple[int, int], tiles: int) -> None:
    method = next(it for it in METHODS if it.name == "gpu.stream")
    assert isinstance(method, FusedMethod)
    problem, _ = make_problem(stencil_of("heat-3d"), boundary_of("walls", 3))
    kernel = method.kernel(problem, method.parameters(problem)[0])
    assert kernel.tile[2] == 56
    (found, _, _), _ = kernel.cut(((0, 9), (0, 9), span), slots=2)
    assert found == tiles
