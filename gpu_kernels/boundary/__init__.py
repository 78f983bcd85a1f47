"""What happens where the grid ends? Kernels that make several steps at once know no faces: ghosts
beyond a face are filled before a step or a block of steps (`ghosts.py`), and where those do not
last for a block, a frame along the face is advanced step by step beside it (`frame.py`).

Begin with `boxes.py`: which points are owned, which a fused kernel can do, and which are the frame.
`domain.py` tells the kernels of faces.
"""
