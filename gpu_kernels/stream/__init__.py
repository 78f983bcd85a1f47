"""gpu.stream: temporal blocking by streaming. Several time levels stay in registers and shared
memory while rows (2D) or planes (3D) stream by; in 1D a tile stays in registers.

Begin with the header of `stream_2d.cu`. `kernel_1d.py`, `kernel_2d.py` and `method.py` say for
each number of axes which stencils are refused, what autotuning may try, and how the kernel is
compiled. `equations_2d.py` and `equations_3d.py` do so for equations; those of one axis are in
`method.py`.

For bodies of a few materials begin with `palette.cuh` and the headers of `palette_2d.cu`,
`palette_2d_registers.cu` and `palette_3d.cu`. `conducting.py` says which bodies are refused,
`palette.py` makes the kernels' tables and packs material ids into words, and `palette_tiles.py` has
the tiles. Bodies whose faces have conductances of their own go to `coefficients_2d.cu` and
`coefficients_3d.cu`.
"""
