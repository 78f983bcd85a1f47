"""gpu.resident: what if a grid never leaves the multiprocessors? Small grids stay in registers for
hundreds of steps.

Begin with the headers of `resident.cu` and, for rims in 3D, `resident_rims.cuh`; `tile.py` says how
a grid is cut into tiles, `method.py` which problems it takes and how it is launched.
"""
