"""CUDA: how a GPU streams through a slab."""

from __future__ import annotations

from tetris_sim.gpu_kernels.plain import PlainMethod
from tetris_sim.method import Method

METHODS: tuple[Method, ...] = (PlainMethod(),)
"""The GPU methods, best guess first; the last one compiles quickly and never refuses what fits into memory."""
