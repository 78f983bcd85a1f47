"""Infrastructure shared by all GPU kernels.

It has the device with its streams and the compiler (`device.py`), the layout of a slab in GPU
memory and the terms of a stencil (`layout.py`), the data of bodies and equations (`body.py`,
`given.py`), programs printed as CUDA (`body.py`), pairs of floats (`pair.cuh`), and the headers
that several packages include.

Begin with `layout.py` and its counterpart for kernels, `common.cuh`.
"""
