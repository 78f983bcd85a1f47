"""Problems for the kernel tests: every named stencil, every kind of face, odd sizes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from tetris_sim.boundary import Boundary, Dirichlet, Face, Fixed, Neumann, Periodic, Robin
from tetris_sim.grid import Grid
from tetris_sim.problem import Field, Problem, Total, Variable
from tetris_sim.slab import Slab
from tetris_sim.stencil import Stencil

FACES: dict[str, Face] = {
    "dirichlet": Dirichlet(1.5),
    "fixed": Fixed(-0.75),
    "neumann": Neumann(flux=3.0, conductivity=2.0),
    "robin": Robin(h=4.0, ambient=0.5, conductivity=1.5),
    "periodic": Periodic(),
}
SHAPES = {1: (37,), 2: (11, 23), 3: (7, 9, 13)}
SPACING = {1: (0.5,), 2: (0.5, 0.25), 3: (0.5, 0.25, 0.125)}


def variables(count: int) -> tuple[Variable, ...]:
    return tuple(Variable(f"u{k}", "1", f"field {k}", Total("integral", "1", 1.0)) for k in range(count))


def mixed_boundaries(ndim: int) -> Iterator[tuple[str, Boundary]]:
    """Each kind everywhere, and every ordered pair of kinds on the two sides of an axis in some combination."""
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
) -> tuple[Problem, Field]:
    """A problem with random weights (sum of magnitudes 1, so that nothing grows) and its random initial state."""
    ndim = stencil.ndim
    shape = shape or SHAPES[ndim]
    rng = np.random.default_rng(seed)
    weights = rng.uniform(0.2, 1.0, stencil.n_points) * rng.choice([-1.0, 1.0], stencil.n_points, p=[0.2, 0.8])
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
