"""Rungs of Tetris's Figure 12 that no method has: products with banded matrices."""
