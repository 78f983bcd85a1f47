"""TeaLeaf's benchmarks: ten implicit steps of heat through a crooked channel, by this solver.

    python benchmarks/tealeaf.py 4000 [--gpu]

UK-MAC/TeaLeaf_ref, Benchmarks: a square of 10 by 10, density 100 and 0.1 in the channel, energy 25
at its beginning; conductivities are 1 / density, their arithmetic means count between cells;
backward Euler steps of 0.004. What is compared is the sum of density * u * volume at the end.
"""

from __future__ import annotations

import argparse
import math
import time
from typing import Any

import numpy as np

from tetris_sim.cpu_kernels.common.stepper import ThreadTeam
from tetris_sim.cpu_kernels.solve.arithmetic import CpuArithmetic
from tetris_sim.gpu_kernels.common.device import GpuDevice
from tetris_sim.gpu_kernels.solve.arithmetic import GpuArithmetic
from tetris_sim.solvers.krylov import conjugate_gradients

# By cells along each axis, as the reference prints it.
PUBLISHED = {
    250: 106.27221178646569,
    500: 99.955877498324000,
    1000: 97.277332050749976,
    4000: 95.462351583362249,
}
_SIZE, _DT, _STEPS = 10.0, 0.004, 10
_TOLERANCE = 1e-12
# (energy, xmin, xmax, ymin, ymax) of the channel; later ones lie over earlier ones.
_CHANNEL = (
    (25.0, 0.0, 1.0, 1.0, 2.0),
    (0.1, 1.0, 6.0, 1.0, 2.0),
    (0.1, 5.0, 6.0, 1.0, 8.0),
    (0.1, 5.0, 10.0, 7.0, 8.0),
)


def make_state(n: int) -> tuple[Any, Any]:
    """Density and u = density * energy, (n, n)."""
    centres = (np.arange(n) + 0.5) * _SIZE / n
    density, energy = np.full((n, n), 100.0), np.full((n, n), 1e-4)
    for value, left, right, bottom, top in _CHANNEL:
        inside = np.ix_((centres > bottom) & (centres < top), (centres > left) & (centres < right))
        density[inside], energy[inside] = 0.1, value
    return density, density * energy


def run(n: int, device: Any, density: Any, u: Any) -> tuple[float, list[int]]:
    """The sum at the end, and the iterations of each step, from a state on the device."""
    width, xp = _SIZE / n, device.xp

    def between(axis: int) -> Any:
        k = (1 / density + 1 / xp.roll(density, -1, axis)) / 2 * _DT / width**2
        k[(slice(None),) * axis + (-1,)] = 0.0
        return k.reshape(n, 1, n)

    shape = (n, 1, n)
    operator = (between(0), xp.zeros(shape), between(1), xp.ones(shape))
    cycle, iterations = device.cycle(operator), []
    u = u.reshape(shape)
    for _ in range(_STEPS):
        before = u.copy()
        scale = float(xp.linalg.norm(before.reshape(-1)))
        solved = conjugate_gradients(
            operator, before, u, device, cycle, tolerance=_TOLERANCE, scale=scale, limit=500
        )
        iterations.append(solved.iterations)
    rows = (density * u.reshape(n, n)).sum(axis=1)
    return math.fsum(rows.tolist()) * width**2, iterations


def main() -> None:
    """Run one size and say how far from the published number it is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("n", type=int, choices=tuple(PUBLISHED))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--gpu", action="store_true", help="on GPU 0, the state already there")
    args = parser.parse_args()
    if args.gpu:
        opened: Any = GpuDevice()
        device: Any = GpuArithmetic(opened)
    else:
        opened = ThreadTeam(args.threads)
        device = CpuArithmetic(opened)

    with device.use():
        for n in (min(PUBLISHED), args.n):  # the first compiles
            state = [device.xp.asarray(it) for it in make_state(n)]
            begin = time.perf_counter()
            found, iterations = run(n, device, *state)
            seconds = time.perf_counter() - begin
    opened.close()
    off = found / PUBLISHED[args.n] - 1
    print(f"{args.n}^2: U = {found!r}, off by {off:.2g}; iterations {iterations}, {seconds:.2f} s")


if __name__ == "__main__":
    main()
