"""Tetris as it is published: tensor trapezoid folding in NumPy, and rungs of Figure 12 that no
method has (products with banded matrices).
"""
