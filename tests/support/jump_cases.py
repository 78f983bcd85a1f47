"""Problems that jump: constant coefficients and stacks of layers, for every device."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.fft

from tetris_sim.config import make_config
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab
from tetris_sim.model.stencil import Stencil
from tetris_sim.solvers.spectral.operator import read_operator
from tetris_sim.solvers.spectral.stepper import make_jump


class HostArrays:
    """What steppers use of a device: NumPy, with the transforms that a device has."""

    def __init__(self, types: Sequence[int] = (1, 2, 3, 4)) -> None:
        self.xp: Any = np
        self.fft: Any = scipy.fft
        self.types = frozenset(types)
        self.options: dict[str, Any] = {}

    def each(self, parts: Sequence[slice], work: Callable[[slice], None]) -> None:
        for part in parts:
            work(part)


def star(ndim: int, steps: float) -> Stencil:
    """Diffusion with different numbers along the axes, which add up to `steps` / 2."""
    shares = np.arange(1.0, ndim + 1)
    numbers = steps / 2 * shares / shares.sum()
    terms = {(0,) * ndim: 1 - 2 * float(numbers.sum())}
    for axis, sign in itertools.product(range(ndim), (-1, 1)):
        terms[tuple(sign * (k == axis) for k in range(ndim))] = float(numbers[axis])
    return Stencil.from_terms(terms)


def jumped(problem: Problem, steps: int, arrays: Any = None) -> npt.NDArray[Any]:
    """The same by a jump."""
    u = problem.initial(Slab.whole(problem.grid))[0].astype(np.float64)
    return np.asarray(make_jump(read_operator(problem), arrays or HostArrays()).advance(u, steps))


def with_weights(problem: Problem, stencil: Stencil) -> Problem:
    """Not the random weights of a test case."""
    return replace(problem, stencil=stencil)


MATERIALS = {
    "a": {"conductivity": 1.0, "density": 1.0, "specific_heat": 1.0},
    "b": {"conductivity": 7.0, "density": 2.0, "specific_heat": 1.5},
    "c": {"conductivity": 0.2, "density": 3.0, "specific_heat": 1.0},
}
KINDS = {
    "p": {"type": "periodic"},
    "d": {"type": "dirichlet", "value": 2.0},
    "n": {"type": "neumann", "flux": 3.0},
    "r": {"type": "robin", "h": 3.0, "ambient": 5.0},
    "f": {"type": "fixed", "value": 1.5},
}
UNEVEN = ("sin(52*x+17*x*x)", "+cos(31*y+x)", "*cos(23*z+y)")


def stack(
    shape: Sequence[int],
    across: str,
    boundaries: dict[str, Any],
    *,
    graded: dict[str, Any] | None = None,
    **model: Any,
) -> Problem:
    """Three materials across an axis."""
    size = [0.1 * n for n in shape]
    length = size["xyz".index(across)]
    regions = [
        {"material": "a"},
        {"material": "b", "where": f"{across} > {0.35 * length}"},
        {"material": "c", "where": f"{across} > {0.6 * length}"},
    ]
    config = make_config(
        {
            "grid": {"shape": list(shape), "size": size, **({"graded": graded} if graded else {})},
            "model": {"type": "heat", "regions": regions, "materials": MATERIALS, **model},
            "initial": {"type": "expression", "expression": "".join(UNEVEN[: len(shape)])},
            "boundaries": {"*": {"type": "neumann"}, **boundaries},
            "time": {"dt": "auto", "steps": 10},
        }
    )
    return config.build()
