"""gpu.resident: small grids that stay in registers for hundreds of steps.

Begin with the header of `resident.cu` and, for the exchange of rims in 3D, `resident_rims.cuh`.
`method.py` says how a grid is cut into tiles, which problems the method takes, and how the kernel
is launched.
"""
