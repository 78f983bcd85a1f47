"""How fast do CPU threads solve balances? Measured on a small body, for predictions."""

from __future__ import annotations

import functools
import time
from dataclasses import dataclass

import numpy as np

from tetris_sim.scheduler.machine.place import Place
from tetris_sim.solvers.krylov import conjugate_gradients

_LARGEST = 64  # cells of a cube along an axis: more than caches keep of all levels
_DIGITS = 1e-3  # enough iterations to be timed


@dataclass(frozen=True)
class SolvingRate:
    """What a solution takes.

    Attributes:
        before: what is made for an operator before the first iteration [s/point].
        iteration: of conjugate gradients [s/point].
        opened: until the device is ready, once [s].
        passes: of an iteration, however few points there are [s].
    """

    before: float
    iteration: float
    opened: float = 0.0
    passes: float = 0.0


def measure_solving(place: Place, n_points: int) -> SolvingRate:
    """On a body of as many points as are quickly solved for."""
    n = min(_LARGEST, max(8, round(n_points ** (1 / 3))))
    return _measured(place, 1 << (n.bit_length() - 1))


@functools.lru_cache(maxsize=8)
def _measured(place: Place, n: int) -> SolvingRate:
    _solve(place, 8)  # compiles
    return _solve(place, n)


def _solve(place: Place, n: int) -> SolvingRate:
    rng = np.random.default_rng(0)
    operator = [rng.uniform(1.0, 2.0, (n, n, n)) for _ in range(4)]
    for axis, k in enumerate(operator[:3]):
        k[(slice(None),) * axis + (-1,)] = 0.0
    operator[3][1:] = 0.0
    f, u = rng.standard_normal((n, n, n)), np.zeros((n, n, n))
    method = place.solving("steady")
    with place.opened() as opened:
        device = method.arithmetic(opened)
        with device.use():
            begin = time.perf_counter()
            cycle = device.cycle(tuple(operator))
            middle = time.perf_counter()
            solved = conjugate_gradients(
                tuple(operator),
                f,
                u,
                device,
                cycle,
                tolerance=_DIGITS,
                scale=float(np.linalg.norm(f)),
                limit=100,
            )
            end = time.perf_counter()
    points = n**3
    return SolvingRate((middle - begin) / points, (end - middle) / points / solved.iterations)
