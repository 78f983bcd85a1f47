"""gpu.steady, gpu.implicit, gpu.spectral: linear systems and spectral propagation on a GPU.

Begin with `arithmetic.py`, the passes of the conjugate gradient solver and the levels of its
multigrid preconditioner; `operator.cuh` says how threads walk along a column of points.
`GpuArrays` there makes many steps at once by eigen-decomposition.
"""
