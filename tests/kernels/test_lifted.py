"""A lifted field gives back what was put into it, and its rings and faces link the points that are
neighbours.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.cases import FACES, make_problem
from tetris_sim.cpu_kernels.common.layout import LINKS, Layout, pad
from tetris_sim.cpu_kernels.tessellate.lifted import LiftedField, can_lift, lift_slab
from tetris_sim.model.boundary import Boundary
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab
from tetris_sim.model.stencils.catalogue import named_stencil


def problem_of(name: str, shape: tuple[int, ...], kind: str = "fixed") -> Problem:
    stencil = named_stencil(name).stencil
    return make_problem(
        stencil, Boundary.everywhere(FACES[kind], stencil.ndim), shape=shape, n_fields=2
    )[0]


CASES = [
    ("heat-1d", (67,), ((0, 0),)),
    ("star-1d5p", (67,), ((5, 4),)),
    ("box-2d25p", (6, 53), ((3, 0), (0, 0))),
    ("heat-3d", (5, 4, 35), ((2, 1), (0, 3), (2, 2))),
]


@pytest.mark.parametrize("lifted", [True, False])
@pytest.mark.parametrize(("name", "shape", "halo"), CASES)
def test_boxes_come_back_as_they_were_written(
    name: str,
    shape: tuple[int, ...],
    halo: tuple[tuple[int, int], ...],
    lifted: bool,
    rng: np.random.Generator,
) -> None:
    problem = problem_of(name, tuple(n + 20 for n in shape))
    slab = Slab(tuple(10 for _ in shape), tuple(n + 10 for n in shape), halo)
    layout: Layout = lift_slab(problem, slab, 8) if lifted else pad(problem, slab)
    flat = layout.allocate()
    flat[:] = np.nan
    everything = tuple((-low, n + high) for n, (low, high) in zip(shape, halo, strict=True))
    values = rng.random((2, *(high - low for low, high in everything)))
    layout.write(flat, everything, values)
    np.testing.assert_array_equal(layout.read(flat, everything), values)
    part = tuple((max(low, 1), high - 1) for low, high in everything)
    inside = tuple(
        slice(start - low, stop - low)
        for (start, stop), (low, _) in zip(part, everything, strict=True)
    )
    layout.write(flat, part, -values[(slice(None), *inside)])
    values[(slice(None), *inside)] *= -1
    np.testing.assert_array_equal(layout.read(flat, everything), values)


@pytest.mark.parametrize("lifted", [True, False])
@pytest.mark.parametrize(("name", "shape", "halo"), CASES)
def test_pieces_of_all_parts_are_the_slab_once(
    name: str, shape: tuple[int, ...], halo: tuple[tuple[int, int], ...], lifted: bool
) -> None:
    problem = problem_of(name, tuple(n + 20 for n in shape))
    slab = Slab(tuple(10 for _ in shape), tuple(n + 10 for n in shape), halo)
    layout: Layout = lift_slab(problem, slab, 8) if lifted else pad(problem, slab)
    times = np.zeros(shape, dtype=int)
    for part in range(3):
        for ranges in layout.batches(part, 3, points=16):
            times[tuple(slice(low, high) for low, high in ranges)] += 1
    np.testing.assert_array_equal(times, 1)


@pytest.mark.parametrize("kind", ["periodic", "neumann"])
def test_every_neighbour_of_a_point_lies_in_the_same_lane_of_a_neighbouring_vector(
    kind: str,
) -> None:
    problem = problem_of("star-1d5p", (67,), kind)
    layout: LiftedField = lift_slab(problem, Slab.whole(problem.grid), 8)
    flat = layout.allocate()
    points = np.stack([np.arange(67.0), np.arange(67.0)])
    layout.write(flat, ((0, 67),), points)
    found = layout.geometry(problem, Slab.whole(problem.grid))
    axes, links, faces = found.axes, found.links, found.faces
    for k in range(axes[2, LINKS]):
        flat[links[2, k, 0]] = (
            faces[2, k, 0] * (kind == "periodic") + faces[2, k, 1] * flat[links[2, k, 1]]
        )
    vectors = flat[: layout.field_pitch].reshape(-1, 8)
    for p in range(layout.count[2]):
        for lane in range(8):
            x = lane * layout.stride + p
            for distance in (-2, -1, 1, 2):
                neighbour = x + distance
                if kind == "periodic":
                    neighbour %= 67
                elif not 0 <= neighbour < 67:  # an insulated face mirrors
                    neighbour = -1 - neighbour if neighbour < 0 else 2 * 67 - 1 - neighbour
                assert vectors[layout.first[2] + p + distance, lane] == neighbour


def test_rows_must_hold_the_radius_in_every_lane() -> None:
    assert can_lift(problem_of("star-1d5p", (16,)), Slab((0,), (16,), ((0, 0),)), 8)
    assert not can_lift(problem_of("star-1d5p", (15,)), Slab((0,), (15,), ((0, 0),)), 8)
