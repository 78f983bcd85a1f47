"""Numba: how CPU cores walk through a slab."""

from __future__ import annotations

from tetris_sim.cpu_kernels.plain.method import CpuPlainMethod
from tetris_sim.cpu_kernels.stream.method import StreamMethod
from tetris_sim.cpu_kernels.tessellate.method import TessellateMethod
from tetris_sim.model.method import Method

METHODS: tuple[Method, ...] = (StreamMethod(), TessellateMethod(), CpuPlainMethod())
"""The CPU methods, best guess first."""
