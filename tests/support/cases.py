"""Problems for the kernel tests: every named stencil, every kind of face, odd sizes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from tetris_sim.cpu_kernels.common.stepper import ThreadTeam
from tetris_sim.model.boundary import (
    SIDES,
    Boundary,
    Dirichlet,
    Face,
    Fixed,
    Neumann,
    Periodic,
    Robin,
)
from tetris_sim.model.grid import Grid
from tetris_sim.model.method import Method, Parameters
from tetris_sim.model.problem import PRECISIONS, Field, Problem, StateVariable, Total
from tetris_sim.model.slab import Slab
from tetris_sim.model.stencil import Stencil
from tetris_sim.model.stencils.catalogue import named_stencil

FACES: dict[str, Face] = {
    "dirichlet": Dirichlet(1.5),
    "fixed": Fixed(-0.75),
    "neumann": Neumann(flux=3.0, conductivity=2.0),
    "robin": Robin(h=4.0, ambient=0.5, conductivity=1.5),
    "periodic": Periodic(),
}
SHAPES = {1: (37,), 2: (11, 23), 3: (7, 9, 13)}
SPACING = {1: (0.5,), 2: (0.5, 0.25), 3: (0.5, 0.25, 0.125)}


def variables(count: int) -> tuple[StateVariable, ...]:
    return tuple(
        StateVariable(f"u{k}", "1", f"field {k}", Total("integral", "1", 1.0)) for k in range(count)
    )


def mixed_boundaries(ndim: int) -> Iterator[tuple[str, Boundary]]:
    """Each kind everywhere, and every ordered pair of kinds on the two sides of an axis in some
    combination.
    """
    kinds = list(FACES)
    for kind in kinds:
        yield kind, Boundary.everywhere(FACES[kind], ndim)
    reflecting = [kind for kind in kinds if kind != "periodic"]
    for shift, (first, second) in enumerate(itertools.permutations(reflecting, 2)):
        faces = [(FACES[first], FACES[second])]
        for axis in range(1, ndim):
            if (shift + axis) % 3 == 0:
                faces.append((Periodic(), Periodic()))
            else:
                low, high = reflecting[(shift + axis) % 4], reflecting[(shift + 2 * axis + 1) % 4]
                faces.append((FACES[low], FACES[high]))
        yield f"{first}-{second}-{shift}", Boundary(tuple(faces))


def make_problem(
    stencil: Stencil,
    boundary: Boundary,
    *,
    dtype: Any = np.float64,
    shape: tuple[int, ...] | None = None,
    n_fields: int = 1,
    steps: int = 8,
    seed: int = 0,
    mirrored: bool = False,
) -> tuple[Problem, Field]:
    """A problem with random weights (sum of magnitudes 1, so that nothing grows) and its random
    initial state.

    Mirrored weights are positive, so that their sum is 1, and equal for offsets that differ in
    signs only.
    """
    ndim = stencil.ndim
    shape = shape or SHAPES[ndim]
    rng = np.random.default_rng(seed)
    weights = rng.uniform(0.2, 1.0, stencil.n_points) * rng.choice(
        [-1.0, 1.0], stencil.n_points, p=[0.2, 0.8]
    )
    if mirrored:
        first = {
            tuple(map(abs, offset)): abs(weight)
            for offset, weight in zip(stencil.offsets, weights, strict=True)
        }
        weights = np.array([first[tuple(map(abs, offset))] for offset in stencil.offsets])
    weights /= np.abs(weights).sum()
    state = rng.uniform(-1.0, 2.0, (n_fields, *shape)).astype(dtype)

    def initial(slab: Slab) -> Field:
        box = tuple(slice(start, stop) for start, stop in zip(slab.start, slab.stop, strict=True))
        return state[(slice(None), *box)]

    problem = Problem(
        grid=Grid(shape=shape, spacing=SPACING[ndim], origin=(0.0,) * ndim),
        stencil=Stencil(stencil.offsets, tuple(weights)),
        boundary=boundary,
        initial=initial,
        dt=1.0,
        steps=steps,
        dtype=np.dtype(dtype),
        variables=variables(n_fields),
    )
    return problem, state


def dtype_of(method: Method, stencil: Stencil) -> str:
    """The most precise dtype that a method takes a stencil in; float64 if it takes none."""
    for dtype in PRECISIONS:
        problem, _ = make_problem(
            stencil, Boundary.everywhere(FACES["periodic"], stencil.ndim), dtype=dtype
        )
        if method.refusal(problem) is None:
            return dtype
    return PRECISIONS[0]


CUSTOM = {
    "skew": Stencil(((1, -2), (0, 3), (-1, 0)), (0.5, 0.25, 0.25)),
    "shift": Stencil(((3,),), (1.0,)),
    "flat": Stencil(((0, 1, 0), (0, -1, 0), (0, 0, 0)), (0.5, 0.25, 0.25)),
    "lopsided": Stencil(((0, -1, 2), (1, 0, 0), (0, 1, 1), (-1, 1, -1)), (0.4, 0.3, 0.2, 0.1)),
}
BOUNDARIES = {
    "rings": Boundary.everywhere(FACES["periodic"], 3),
    "walls": Boundary(
        (
            (FACES["robin"], FACES["fixed"]),
            (FACES["neumann"], FACES["robin"]),
            (FACES["dirichlet"], FACES["neumann"]),
        )
    ),
    "mixed": Boundary(
        (
            (FACES["periodic"], FACES["periodic"]),
            (FACES["fixed"], FACES["dirichlet"]),
            (FACES["periodic"], FACES["periodic"]),
        )
    ),
}
HALOS: list[tuple[str, tuple[tuple[int, int], ...]]] = [
    ("heat-1d", ((6, 6),)),
    ("star-1d5p", ((0, 13),)),
    ("heat-2d", ((7, 6), (0, 0))),
    ("box-2d9p", ((6, 0), (6, 6))),
    ("heat-2d", ((0, 0), (0, 6))),
    ("heat-3d", ((6, 6), (7, 6), (0, 0))),
    ("box-3d27p", ((0, 6), (6, 0), (6, 6))),
    ("heat-3d", ((0, 0), (6, 6), (0, 0))),
    ("box-3d27p", ((0, 0), (6, 7), (6, 6))),
]


# Slabs and the boundaries they can have: a periodic axis that is cut has neighbours on both sides.
HALOS_AND_KINDS = [
    (name, halo, kind)
    for name, halo in HALOS
    for kind, boundary in BOUNDARIES.items()
    if all(
        (low > 0) == (high > 0) or not Boundary(boundary.faces[3 - len(halo) :]).periodic(axis)
        for axis, (low, high) in enumerate(halo)
    )
]


def stencil_of(name: str) -> Stencil:
    return CUSTOM[name] if name in CUSTOM else named_stencil(name).stencil


def boundary_of(name: str, ndim: int) -> Boundary:
    return Boundary(BOUNDARIES[name].faces[3 - ndim :])


def run(
    method: Method,
    problem: Problem,
    parameters: Parameters,
    team: ThreadTeam,
    blocks: tuple[int, ...] = (1, 7, 4),
) -> Field:
    stepper = method.prepare(problem, Slab.whole(problem.grid), parameters, team)
    try:
        stepper.load(problem.initial)
        for steps in blocks:
            stepper.advance(steps)
        return stepper.interior()
    finally:
        stepper.close()


def run_with_halo(
    method: Method,
    problem: Problem,
    halo: tuple[tuple[int, int], ...],
    parameters: Parameters,
    team: ThreadTeam,
) -> list[Field]:
    """A slab in the middle of the grid, its halos filled with numbers twice: its field, and every
    edge before that.
    """
    shape = problem.grid.shape
    start = tuple(9 if low else 0 for low, _ in halo)
    stop = tuple(n - 11 if high else n for n, (_, high) in zip(shape, halo, strict=True))
    stepper = method.prepare(problem, Slab(start, stop, halo), parameters, team)
    stepper.load(problem.initial)
    edges = []
    for steps in (4, 6):
        numbers = np.random.default_rng(steps)
        for axis, widths in enumerate(halo):
            for side, width in zip(SIDES, widths, strict=True):
                if width:
                    edges.append(np.asarray(stepper.edge(axis, side)))
                    stepper.set_halo(axis, side, numbers.uniform(-1, 1, edges[-1].shape))
        stepper.advance(steps)
    result = [stepper.interior(), *edges]
    stepper.close()
    return result


def check_the_first_nan_is_named(method: Method, device: Any) -> None:
    """A stepper finds nothing in a finite field, and the box around the first of two values that
    are not.
    """
    problem, state = make_problem(stencil_of("heat-2d"), boundary_of("rings", 2), shape=(40, 30))
    stepper = method.prepare(problem, Slab.whole(problem.grid), {}, device)
    stepper.load(problem.initial)
    assert stepper.find_nonfinite() is None
    state[0, 33, 20] = np.inf
    state[0, 17, 12] = np.nan
    stepper.load(problem.initial)
    box = stepper.find_nonfinite()
    assert box is not None
    assert [start <= i < stop for (start, stop), i in zip(box, (17, 12), strict=True)] == [
        True,
        True,
    ]
    stepper.close()


def assert_rounded_at_random(found: Field, wanted: Field, largest: float) -> None:
    """Of float16: far less than the worst case, in which all roundings of hundreds of steps go one
    way.

    Rounding every one of 110 steps gives less than 0.8 places for every stencil of the catalogue,
    with every kind of face (root mean square, of the largest magnitude).
    """
    difference = found.astype(float) - wanted.astype(float)
    places = float(np.sqrt(np.mean(difference**2))) / (2.0**-11 * largest)
    assert places < 4, f"{places:.3g} places off in the mean"
