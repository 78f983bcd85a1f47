"""The state of a slab on a GPU: advancing it, and moving it in and out.

Begin with `passes.py`: the passes that lead from one array to the other. `stepper.py` holds a slab
that stays in GPU memory, `streamed.py` is the out-of-core pipeline for slabs that pass through it,
`planes.py` has halos that travel from GPU to GPU within and between processes, and
moves whole states between host and GPU.
"""
