"""What kernels are told about faces: `struct Domain` of domain.cuh as a NumPy array."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from tetris_sim.alike import face_course
from tetris_sim.axes import LAST
from tetris_sim.boundary import SIDES, Reflection, Side
from tetris_sim.gpu_kernels.common.layout import ends_of
from tetris_sim.gpu_kernels.common.pairs import stored_numbers
from tetris_sim.mirrors import nearly_mirrors
from tetris_sim.problem import PAIR, Problem
from tetris_sim.slab import Slab


def domain_argument(problem: Problem, slab: Slab, depth: int = 1) -> npt.NDArray[np.void]:
    """`struct Domain`, with ghosts as deep as `depth` steps reach."""
    widths = [depth * radius for radius in problem.stencil.radii]
    domain = _pack(problem, slab, widths, functools.partial(_reflections, problem))
    for axis, width in enumerate(widths):
        three = LAST[problem.grid.ndim][axis]
        for number in range(2):
            if depth > 1 and nearly_mirrors(problem, axis, number) and not slab.halo[axis][number]:
                (a, b), *_ = _reflections(problem, axis, SIDES[number], 1)
                added = (a * part for part in _parts_of_ghosts(b, width))
                dtype = problem.arithmetic
                domain["a"][0, three, number, :width] = stored_numbers(list(added), dtype)
                domain["b"][0, three, number, :width], domain["deep"][0, three, number] = (
                    stored_numbers([b, b * b - 1], dtype)
                )
    return domain


def _parts_of_ghosts(b: float, width: int) -> Iterator[float]:
    """Of what a face adds to the first ghost, what it adds to each: with these, a field that has
    the value far away everywhere goes on as it is.
    """
    powers = 0.0  # 1 + b + ... of one less than the ghost's number
    for _ in range(width):
        yield 1 + (1 + b) * powers
        powers = 1 + b * powers


def domain_of_name(problem: Problem, slab: Slab, name: str) -> npt.NDArray[np.void]:
    """`struct Domain` for a name of the equations, with the ghosts that they read; TS_REACH is the
    same for all names.
    """
    equations, spacing = problem.equations, problem.grid.spacing
    assert equations is not None
    boundary = equations.boundaries[name]

    def reflections(axis: int, side: Side, width: int) -> tuple[Reflection, ...]:
        return boundary.reflections(axis, side, spacing=spacing[axis], width=width)

    return _pack(problem, slab, equations.ghosts[name], reflections, reach_of_names(problem))


def reach_of_names(problem: Problem) -> int:
    """The most ghosts beyond a face that equations read."""
    assert problem.equations is not None
    return max(
        (width for widths in problem.equations.ghosts.values() for width in widths), default=1
    )


def _pack(
    problem: Problem,
    slab: Slab,
    widths: Sequence[int],
    reflections: Callable[[int, Side, int], tuple[Reflection, ...]],
    reach: int = 1,
) -> npt.NDArray[np.void]:
    """`struct Domain` with so many ghosts per axis, and room for `reach`."""
    dtype, reach = problem.arithmetic, max(reach, *widths)
    # NumPy puts complex64 where a float may be, kernels put pairs where a double may be.
    filled = [("", np.int32)] if dtype == PAIR else []
    kind = np.dtype(
        [
            *[("low", np.int32, 3), ("high", np.int32, 3), ("period", np.int32, 3), *filled],
            *[("a", dtype, (3, 2, reach)), ("b", dtype, (3, 2, reach))],
            ("deep", dtype, (3, 2)),
        ],
        align=True,
    )

    domain = np.zeros(1, dtype=kind)
    domain["low"], domain["high"], domain["period"] = ends_of(problem, slab)

    for axis, width in enumerate(widths):
        three = LAST[problem.grid.ndim][axis]
        for number, side in enumerate(SIDES):
            if problem.boundary.periodic(axis) or slab.halo[axis][number]:
                continue
            for ghost, both in enumerate(reflections(axis, side, width)):
                a, b = stored_numbers(both, dtype)
                domain["a"][0, three, number, ghost], domain["b"][0, three, number, ghost] = a, b
    return domain


def _reflections(problem: Problem, axis: int, side: Side, width: int) -> tuple[Reflection, ...]:
    """As of `Boundary`; of a rule those that last, of one with a course all but what that adds
    (`courses.py`), and any of one that does not last: it is told by the body.
    """
    if problem.conduction is None:
        return problem.boundary.reflections(
            axis, side, spacing=problem.grid.spacing[axis], width=width
        )
    face = problem.ruled_face(axis, side)
    course = face_course(face)
    return (face.lasting or (0.0, 0.0 if course is None else course.b),) * width
