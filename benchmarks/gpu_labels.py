"""Words that stand in results of the GPU benchmarks and that tables and pictures look for."""

from __future__ import annotations

CONVSTENCIL, TETRIS = "ConvStencil, Figure 6", "Tetris, Figure 12"
"""The ladders of the breakdown, by the figure that they remake."""

ONE_STEP = ", one step"
"""Ends the label of a line of the sweep that makes one step per launch."""
