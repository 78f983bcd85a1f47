"""CPU methods: Numba kernels by which the cores of a host advance a slab.

Begin with `plain/sweep.py`, the simplest time loop; `stream` and `tessellate` add temporal
blocking, `equations` PDE systems, and `solve` the passes of the linear solvers.
"""

from __future__ import annotations

from tetris_sim.cpu_kernels.plain.method import CpuPlainMethod
from tetris_sim.cpu_kernels.stream.method import StreamMethod
from tetris_sim.cpu_kernels.tessellate.method import TessellateMethod
from tetris_sim.model.method import Method

METHODS: tuple[Method, ...] = (StreamMethod(), TessellateMethod(), CpuPlainMethod())
"""The CPU methods, best guess first."""
