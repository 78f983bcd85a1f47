"""What the benchmark advances: stencils of the catalogue with random weights, on random data.

Random, because zeros and ones are multiplied faster on some machines and because symmetric weights
would allow sums to be shared between points.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tetris_sim.model.boundary import Boundary, Face, Neumann, Periodic, Robin
from tetris_sim.model.grid import Grid
from tetris_sim.model.problem import Field, Problem, Total, Variable, arithmetic_of
from tetris_sim.model.slab import Slab
from tetris_sim.model.stencil import Stencil
from tetris_sim.model.stencils.catalogue import named_stencil

SHAPES = {1: (10_000_000,), 2: (4800, 4800), 3: (384, 384, 384)}
"""The usual grids by number of axes: no cache holds them."""

WHOLE_RUN_STEPS = {1: 1000, 2: 1000, 3: 100}
"""Steps of an end-to-end run by number of axes."""

_SHIFTS = {
    1: (1,),
    2: (1009, 1),
    3: (10007, 1009, 1),
}  # primes: no row length makes neighbouring rows alike


def random_field(shape: tuple[int, ...], dtype: npt.DTypeLike) -> Field:
    """Random numbers in (0, 1], read only: u[i, j, k] = table[10007 i + 1009 j + k].

    Rows are views of one table at different places, so the field of a large grid takes a fraction
    of its memory.

    Args:
        shape: points, array order.
        dtype: of `PRECISIONS`.
    """
    shifts = _SHIFTS[len(shape)]
    last = sum((n - 1) * shift for n, shift in zip(shape, shifts, strict=True))
    kind = np.dtype(dtype)
    wide = arithmetic_of(kind)
    table = random_numbers(np.random.default_rng(0), last + 1, wide)
    table += np.asarray(
        2.0**-24, dtype=wide
    )  # the spacing of float32 random numbers, of which one is 0
    table = table.astype(kind, copy=False)
    strides = tuple(shift * kind.itemsize for shift in shifts)
    return np.lib.stride_tricks.as_strided(table, shape, strides, writeable=False)


def random_numbers(generator: Any, shape: int | tuple[int, ...], dtype: npt.DTypeLike) -> Any:
    """Random numbers in [0, 1], of a generator of NumPy or CuPy, which have none of float16."""
    return generator.random(shape, dtype=arithmetic_of(dtype)).astype(dtype, copy=False)


WeightKind = Literal["random", "symmetric", "equal"]


def random_weights(name: str, kind: WeightKind = "random") -> Stencil:
    """A stencil of the catalogue with random positive weights of sum 1, which keep every field
    bounded.

    Args:
        name: of the catalogue.
        kind: random throughout; symmetric, so that points that mirror or permute into each other
            have one weight; or equal, so that all points but the centre have one weight, as those
            of the heat equation on square cells.
    """
    offsets = named_stencil(name).stencil.offsets
    weights = np.random.default_rng(1).uniform(0.5, 1.5, len(offsets))
    if kind != "random":
        classes: dict[tuple[int, ...], float] = {}
        for k, offset in enumerate(offsets):
            like = tuple(sorted(map(abs, offset))) if kind == "symmetric" else (int(any(offset)),)
            weights[k] = classes.setdefault(like, weights[k])
    return Stencil(offsets, tuple(weights / weights.sum()))


FaceKind = Literal["insulated", "periodic", "convection"]
FACES: dict[FaceKind, Face] = {
    "insulated": Neumann(),
    "periodic": Periodic(),
    "convection": Robin(h=1.0, ambient=0.5),
}


def random_problem(
    name: str,
    shape: tuple[int, ...],
    dtype: str,
    weights: WeightKind = "random",
    faces: FaceKind = "insulated",
    *,
    steps: int = 1,
) -> Problem:
    """`random_weights(name, weights)` on a `random_field`, with the same kind of face everywhere.

    Args:
        name: of the catalogue.
        shape: interior points, array order.
        dtype: of `PRECISIONS`.
        weights: their kind.
        faces: their kind.
        steps: of the run that it stands for.
    """
    field = random_field(shape, dtype)

    def initial(slab: Slab) -> Field:
        box = tuple(slice(start, stop) for start, stop in zip(slab.start, slab.stop, strict=True))
        return np.asarray(field[box])[np.newaxis]

    ndim = len(shape)
    return Problem(
        grid=Grid(shape, (1.0,) * ndim, (0.0,) * ndim),
        stencil=random_weights(name, weights),
        boundary=Boundary.everywhere(FACES[faces], ndim),
        initial=initial,
        dt=1.0,
        steps=steps,
        dtype=np.dtype(dtype),
        variables=(Variable("u", "1", "u", Total("integral", "1", 1.0)),),
    )
