"""cpu.stream: strips of the grid streamed through the caches, many time levels in flight."""

from __future__ import annotations

from tetris_sim.cpu_kernels.stream.method import StreamMethod

__all__ = ["StreamMethod"]
