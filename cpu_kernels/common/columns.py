"""The columns of the arrays that tell a compiled time loop how a slab lies in memory.

In a file of their own, so that the host side knows them without compiling anything. `sweep.py`
reads the first eight, `tile_sweep.py` all of them.

Of `axes`. FIRST, COUNT, PITCH: padded index of the first computed unit, their number, elements from
one to the next. LINKS: number of rows of `links` that belong to the axis. SHRINK and GHOSTS: +
side, planes of halo used up per step, planes of ghosts. REACH: radius of the stencil along the
axis. SEAM: 1 if the axis is a ring, so that its two ends may be computed as one tile. RIM: units at
either end that only that tile computes.

Of `sides`, which has a row per side of a slab that has ghosts (`medium.py`). AXIS: padded axis.
GHOST, MIRROR: padded index of the ghost plane and of the plane it follows from. KIND: number of its
program, 0 for a copy. RULE: its row of `places`. CODES: where the code of padded index (0, 0, 0)
would be in `codes`. CODE_PITCH: + axis, from code to code.
"""

from __future__ import annotations

FIRST, COUNT, PITCH, LINKS, SHRINK, GHOSTS = 0, 1, 2, 3, 4, 6  # SHRINK and GHOSTS: + side
REACH, SEAM, RIM = 8, 9, 10
N_COLUMNS = 11
AXIS, GHOST, MIRROR, KIND, RULE, CODES, CODE_PITCH = 0, 1, 2, 3, 4, 5, 6  # CODE_PITCH: + axis
N_SIDE_COLUMNS = 9
RUN = 32  # points that lie one after the other and share an element of `alike`
