"""cpu.steady, cpu.implicit: states that are solved for with the passes of `sweeps.py`."""

from __future__ import annotations

from typing import Any

from tetris_sim.solvers.krylov import Arithmetic
from tetris_sim.solvers.stepper import SolvingMethod

# By point, at most: of the balance, of conjugate gradients, of all levels, and of what is needed to
# make these.
_BYTES = 260
_PLAIN = (150, 0)  # without held cells or heat contents


def _arithmetic(team: Any) -> Arithmetic:
    from tetris_sim.cpu_kernels.solve.arithmetic import CpuArithmetic

    return CpuArithmetic(team)


STEADY = SolvingMethod("cpu.steady", "cpu", _arithmetic, "steady", _BYTES, plain=_PLAIN)
IMPLICIT = SolvingMethod("cpu.implicit", "cpu", _arithmetic, "implicit", _BYTES)
