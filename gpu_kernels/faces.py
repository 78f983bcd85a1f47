"""What kernels are told about faces: `struct Faces` of faces.cuh and `struct Domain` of domain.cuh, as NumPy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.boundary import SIDES
from tetris_sim.ghosts import Links
from tetris_sim.gpu_kernels.layout import FAR, Box3
from tetris_sim.problem import Problem
from tetris_sim.slab import Slab


def most_links(links: Sequence[Links]) -> int:
    """Room for ghosts that `struct Links` needs."""
    return max(1, *map(len, links))


def faces_argument(links: Sequence[Links], dtype: np.dtype[Any]) -> npt.NDArray[np.void]:
    """`struct Faces`."""
    most = most_links(links)
    numbers = [("ghost", np.int32, most), ("source", np.int32, most), ("a", dtype, most), ("b", dtype, most)]
    kind = np.dtype([("n", np.int32), *numbers], align=True)
    faces = np.zeros(3, dtype=kind)
    for axis, along in enumerate(links):
        faces[axis]["n"] = len(along)
        for m, ((ghost, source), (a, b)) in enumerate(along):
            faces["ghost"][axis, m], faces["source"][axis, m] = ghost, source
            faces["a"][axis, m], faces["b"][axis, m] = a, b
    return faces


def without_images(links: Sequence[Links], count: Sequence[int]) -> Box3:
    """The box of the points that no ghost mirrors."""
    spans = []
    for along, n in zip(links, count, strict=True):
        sources = [source for (_, source), _ in along]
        low = max((source + 1 for source in sources if source < n // 2), default=-FAR)
        high = min((source for source in sources if source >= n // 2), default=FAR)
        spans.append((low, high))
    return spans[0], spans[1], spans[2]


def domain_argument(problem: Problem, slab: Slab, depth: int = 1) -> npt.NDArray[np.void]:
    """`struct Domain`, with ghosts as deep as `depth` steps reach."""
    missing = 3 - problem.grid.ndim
    dtype, reach = np.dtype(problem.dtype), max(1, depth * problem.stencil.radius)
    kind = np.dtype(
        [
            *[("low", np.int32, 3), ("high", np.int32, 3), ("period", np.int32, 3)],
            *[("a", dtype, (3, 2, reach)), ("b", dtype, (3, 2, reach))],
        ],
        align=True,
    )
    domain = np.zeros(1, dtype=kind)
    domain["low"], domain["high"] = -FAR, FAR
    for axis, (n, radius) in enumerate(zip(slab.shape, problem.stencil.radii, strict=True)):
        three = missing + axis
        if problem.boundary.periodic(axis):
            domain["period"][0, three] = n if slab.halo[axis] == (0, 0) else 0
            continue
        for number, side in enumerate(SIDES):
            if slab.halo[axis][number]:
                continue
            domain["low" if side == "low" else "high"][0, three] = 0 if side == "low" else n
            pairs = problem.boundary.reflections(axis, side, spacing=problem.grid.spacing[axis], width=depth * radius)
            for ghost, (a, b) in enumerate(pairs):
                domain["a"][0, three, number, ghost], domain["b"][0, three, number, ghost] = a, b
    return domain
