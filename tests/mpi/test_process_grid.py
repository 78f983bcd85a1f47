"""Cuts: everything is covered once, halos fit, and before anything is measured thick slabs or
little surface.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.support.cases import make_problem
from tetris_sim.model.boundary import Boundary, Neumann, Periodic
from tetris_sim.model.problem import Problem
from tetris_sim.model.stencils.catalogue import named_stencil
from tetris_sim.scheduler.facts.shares import Domain
from tetris_sim.scheduler.plan.offer import describe_parts
from tetris_sim.scheduler.plan.partition import (
    cut,
    halo_points,
    likely_parts,
    longest_block,
    possible_parts,
    redundant_points,
    surface,
)
from tetris_sim.scheduler.workers.exchange import find_routes


def problem_of(
    shape: tuple[int, ...], *, periodic: bool = False, name: str | None = None
) -> Problem:
    name = name or {1: "heat-1d", 2: "heat-2d", 3: "heat-3d"}[len(shape)]
    boundary = Boundary.everywhere(Periodic() if periodic else Neumann(), len(shape))
    return make_problem(named_stencil(name).stencil, boundary, shape=shape)[0]


def domain_of(shape: tuple[int, ...], *, periodic: bool = False, name: str | None = None) -> Domain:
    return Domain.of(problem_of(shape, periodic=periodic, name=name))


def test_parts_are_likely_to_be_slabs_while_these_are_thick() -> None:
    assert likely_parts(domain_of((256, 64, 64)), 8) == (8, 1, 1)
    assert likely_parts(domain_of((255, 64, 64)), 8) == (4, 2, 1)
    assert likely_parts(domain_of((30,)), 6) == (6,)


def test_where_slabs_are_thin_the_cut_with_the_least_surface_is_likely() -> None:
    assert likely_parts(domain_of((12, 200)), 4) == (1, 4)
    assert likely_parts(domain_of((60, 60)), 9) == (3, 3)
    periodic = domain_of((40, 60, 10), periodic=True)
    chosen = likely_parts(periodic, 6)
    assert surface(periodic, chosen) == min(
        surface(periodic, parts) for parts in possible_parts(periodic, 6)
    )


def test_a_short_first_axis_stays_whole() -> None:
    assert likely_parts(domain_of((6, 64, 64), periodic=True), 4) == (1, 4, 1)
    assert likely_parts(domain_of((6, 64), periodic=True), 4) == (1, 4)
    assert possible_parts(domain_of((3, 64)), 8) == [(2, 4), (1, 8)]
    assert possible_parts(domain_of((5, 6)), 40) == []


def test_the_surface_is_that_of_all_cuts_from_both_sides() -> None:
    assert surface(domain_of((10, 20)), (2, 1)) == 2 * 20
    assert surface(domain_of((10, 20)), (1, 4)) == 3 * 2 * 10
    assert surface(domain_of((10, 20), periodic=True), (2, 2)) == 2 * 2 * (20 + 10)
    assert surface(domain_of((10, 20), name="star-2d9p"), (2, 1)) == 2 * 2 * 20


@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize(
    ("shape", "parts"),
    [
        ((37,), (4,)),
        ((11, 23), (3, 1)),
        ((11, 23), (2, 3)),
        ((9, 8, 5), (2, 2, 1)),
        ((9, 8, 7), (3, 2, 2)),
    ],
)
def test_a_cut_covers_every_point_once_and_every_halo_has_an_owner(
    shape: tuple[int, ...], parts: tuple[int, ...], periodic: bool
) -> None:
    problem = problem_of(shape, periodic=periodic)
    slabs = cut(
        Domain.of(problem), parts, [1.0 + k for k in range(int(np.prod(parts)))], time_block=2
    )
    covered = np.zeros(shape, dtype=int)
    for slab in slabs:
        covered[tuple(slice(a, b) for a, b in zip(slab.start, slab.stop, strict=True))] += 1
    assert (covered == 1).all()
    routes = list(itertools.chain(*find_routes(problem, slabs)))  # raises if a halo has no owner
    assert len(routes) == sum(halo_points(slab)[0] for slab in slabs)
    wanted = sum(
        2 * (count if periodic else count - 1) * len(slabs) // count for count in parts if count > 1
    )
    assert len(routes) == wanted


def test_slabs_are_as_long_as_their_workers_are_fast() -> None:
    slabs = cut(domain_of((100, 7)), (2, 1), [3.0, 1.0], time_block=4)
    assert [slab.shape for slab in slabs] == [(75, 7), (25, 7)]
    assert [slab.halo for slab in slabs] == [((0, 4), (0, 0)), ((4, 0), (0, 0))]


def test_what_halos_cost_is_what_the_slabs_say() -> None:
    problem = problem_of((40, 30))
    first, second = cut(Domain.of(problem), (2, 1), [1.0, 1.0], time_block=5)
    assert halo_points(first) == (1, 5 * 30)
    assert (
        redundant_points(second, problem.stencil.radii, 5) == 2 * 30
    )  # 4, 3, 2, 1 and 0 planes in 5 steps
    assert longest_block(Domain.of(problem), (2, 1)) == 20
    assert longest_block(Domain.of(problem), (2, 4)) == 7
    assert longest_block(Domain.of(problem), (41, 1)) == 0


def test_cuts_are_described_by_axes() -> None:
    assert describe_parts((4,)) == "4 along x"
    assert describe_parts((3, 1, 1)) == "3 along z"
    assert describe_parts((3, 2, 1)) == "3 x 2 along z and y"
    assert describe_parts((3, 2, 2)) == "3 x 2 x 2 along z, y and x"
    assert describe_parts((2, 2)) == "2 x 2 along y and x"
