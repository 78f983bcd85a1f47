"""Numba: how CPU cores walk through a slab."""

from __future__ import annotations

from tetris_sim.cpu_kernels.plain import PlainMethod
from tetris_sim.method import Method

METHODS: tuple[Method, ...] = (PlainMethod(),)
"""The CPU methods, best guess first."""
