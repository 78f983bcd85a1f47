"""CUDA: how a GPU streams through a slab."""

from __future__ import annotations

from tetris_sim.method import Method

METHODS: tuple[Method, ...] = ()
"""The GPU methods, best guess first."""
