"""The columns of the array `axes` that tells the compiled time loop of `sweep.py` how a slab lies in memory.

In a file of their own, so that the host side knows them without compiling anything.
"""

from __future__ import annotations

FIRST, COUNT, PITCH, LINKS, SHRINK, GHOSTS = 0, 1, 2, 3, 4, 6  # SHRINK and GHOSTS: + side
N_COLUMNS = 8
