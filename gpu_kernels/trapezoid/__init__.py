"""gpu.trapezoid: a stencil as banded matrices on FP64 tensor cores, by tensor trapezoid folding
(Tetris, section 3.2).

Begin with `numerics.py`, which is the transformation in NumPy; `kernel.py` plans `trapezoid.cu` (2D
and 3D) and `trapezoid_1d.cu` for a stencil.
"""
