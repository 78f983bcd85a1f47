"""Where the compiled loops of `cpu.stream` find their numbers: elements of an array that each
thread has for itself.

In a file of their own, so that the host side knows them without compiling anything.
"""

from __future__ import annotations

# What lies beyond a side of the slab.
FACE, HALO, WRAP = 0, 1, 2

# The slab, per padded axis (+ axis): first owned index, owned points, elements between neighbours,
# what lies beyond.
FIRST, COUNT, PITCH, BELOW, ABOVE = 0, 3, 6, 9, 12

# What was chosen, per padded axis the parts (+ axis); steps per block, rows and vectors of a strip,
# whether results go past the caches.
PARTS, BLOCK, STRIP_ROWS, STRIP_VECTORS, PAST_CACHES = 15, 18, 19, 20, 21

# The stencil and its kernel: radius (+ padded axis); rows updated together along the streamed axis
# and the next (+ 1); vectors per turn of its loop, levels per pass in 1D, planes in the ring of a
# level, most ghosts beyond one side; addresses of the compiled kernels.
RADIUS, JAM, UNROLL, FUSED, DEPTH, GHOSTS = 22, 25, 27, 28, 29, 30
KERNEL, SINGLE_KERNEL, LINE_KERNEL = 31, 32, 33

# Elements from the start of a thread's scratch memory: weights, faces, rings, rows and columns left
# to the next strip, a row in natural order.
WEIGHTS, FACES, RINGS, ACROSS, ALONG, LINE = range(34, 40)

# The part at work: its box at the last level, and whether its sides are faces of the domain (+
# axis).
LOW, HIGH, FACE_LOW, FACE_HIGH = 40, 43, 46, 49

# The strip at work: first element of its field, levels, first row and column at level 0, rows,
# vectors per row, elements per row and per unit, first plane of the first group, groups, where it
# keeps rows for the next strip.
FIELD, LEVELS, ROW, COLUMN, ROWS, VECTORS, ROW_PITCH, UNIT, PLANE, GROUPS, KEPT_ROWS = range(52, 63)

# What a kernel is called for: where it reads and writes; in 2D and 3D the slot of its planes in
# their ring, in 1D columns.
SOURCE, TARGET, SLOT, COLUMNS = range(63, 67)

N_NUMBERS = 80  # whole cache lines: each thread has its own
