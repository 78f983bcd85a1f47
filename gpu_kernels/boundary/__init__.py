"""Boundary conditions on a GPU: ghosts, deep ghosts and boundary strips.

Kernels that fuse several time steps know nothing of faces. Ghosts beyond a face are filled before a
step or a block of steps (`ghosts.py`); where ghosts cannot last for a block, a boundary strip along
the face is advanced step by step, concurrently with the fused kernel (`ghosts.py`).

Begin with `extents.py`: which points are owned, which a fused kernel can write, and which belong to
the boundary strip. `domain.py` packs the faces for the kernels.
"""
