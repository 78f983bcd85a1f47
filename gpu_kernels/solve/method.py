"""gpu.steady, gpu.implicit: states that are solved for with the passes of `arithmetic.py`."""

from __future__ import annotations

from typing import Any

from tetris_sim.solvers.krylov import Arithmetic
from tetris_sim.solvers.stepper import SolvingMethod

# By point: FP64 of the operator and of five fields; levels in FP32 and halves of it; what is left
# of making these.
_BYTES = 120
_HOST_BYTES = 200  # the balance, and what it is made of
_PLAIN = (_BYTES, 48)  # without held cells or heat contents, whose balance is made on the GPU


def _arithmetic(device: Any) -> Arithmetic:
    from tetris_sim.gpu_kernels.solve.arithmetic import GpuArithmetic

    return GpuArithmetic(device)


STEADY = SolvingMethod("gpu.steady", "gpu", _arithmetic, "steady", _BYTES, _HOST_BYTES, _PLAIN)
IMPLICIT = SolvingMethod("gpu.implicit", "gpu", _arithmetic, "implicit", _BYTES, _HOST_BYTES)
