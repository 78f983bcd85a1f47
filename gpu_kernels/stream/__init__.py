"""gpu.stream: how far does a tile get before it must go back to memory? Several time levels stay in
registers and shared memory while rows (2D) or planes (3D) stream by; in 1D a tile stays whole.

Begin with the header of `stream_2d.cu`. `kernel_1d.py`, `kernel_2d.py` and `kernel_3d.py` say for
each number of axes what is refused, what the tuner may try, and how the kernel is compiled.

For bodies of a few materials begin with `palette.cuh` and the headers of `palette_2d.cu`,
`palette_2d_registers.cu` and `palette_3d.cu`; `conducting.py` says which problems they take and
what they are told beside the state, of which `words.py` makes the ids.
"""
