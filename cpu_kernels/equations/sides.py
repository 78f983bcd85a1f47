"""Numbers that host and compiled code share."""

from __future__ import annotations

# What may lie beyond a side of a slab: nothing that has to be filled (a neighbour's points, or no
# such axis), ghosts that mirror, ghosts that are the points of the other end.
NOTHING, MIRRORED, WRAP = 0, 1, 2
# What a kernel is told, as elements of `counts`: rows and columns, and for each kind of stream the
# elements from its address to the first point, and from row to row; planes, elements from the list
# of addresses of one to that of the next, and for each kind of stream from plane to plane.
ROWS, COLUMNS, SHIFT, PITCH, PLANES, LIST, STEP = 0, 1, 2, 7, 12, 13, 14
N_COUNTS = 20
# Kinds of streams. Those of coordinates are numbered by padded axis: one number for a plane or for
# a row, or one for each column.
STATE, COEFFICIENT, COORDINATE = 0, 1, 2
