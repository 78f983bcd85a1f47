"""Numbers that the compiled loops of equations read and write: a record that each thread owns.

In a file of their own, so that the host side knows them without compiling anything. Compiled code
names the fields as attributes; those of three are per padded axis, of six also by side. Tables are
known by their addresses: functions with few arguments are compiled faster.
"""

from __future__ import annotations

import numpy as np

# Numbers that host and compiled code share.

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


_FIELDS = {
    # What kernels are told (`numbers.py`), and the address of it.
    "counts": N_COUNTS,
    "told": 1,
    # The slab: first owned index, owned points, elements between neighbours and from field to
    # field, what lies beyond (`numbers.py`); how far a step reaches.
    "first": 3,
    "count": 3,
    "pitch": 3,
    "field_pitch": 1,
    "beyond": 6,
    "radius": 3,
    # Elements from plane to plane and from row to row of coefficients.
    "other": 2,
    # Addresses of tables: of stages and names, with the columns below, and of the (a, b) of ghosts
    # by name, axis, side and number, and of the function that fills these; so many there are.
    "n_stages": 1,
    "stages": 1,
    "names": 1,
    "faces": 1,
    "fill": 1,
    "ghosts": 1,
    # Lists of streams, for each stage several in turn: address, after how many they begin again,
    # how many there are, bytes of one.
    "lists": 1,
    "period": 1,
    "turns": 1,
    "list_bytes": 1,
    # The stage at work: its box, what lies beyond sides that it has to fill, how many these are;
    # elements from row to row of what it writes.
    "begin": 3,
    "end": 3,
    "touch": 6,
    "touches": 1,
    "row": 1,
    # What only streams know. What was chosen: strips per axis, steps per block, planes a visit,
    # whether results go past the caches.
    "strips": 3,
    "block": 1,
    "visit": 1,
    "past_caches": 1,
    # The rings of a step: address of those of the first, elements of all, elements of a plane;
    # points kept around a strip.
    "rings": 1,
    "set": 1,
    "plane": 1,
    "around": 3,
    # How far the next step follows behind, and the last stage of all behind the first of its step.
    "lag": 1,
    "last_lag": 1,
    # The strip at work: its box after the last step, padded index of the first point of a plane in
    # a ring, steps.
    "low": 3,
    "high": 3,
    "row0": 1,
    "column0": 1,
    "levels": 1,
}

NUMBERS = np.dtype(
    {
        "names": list(_FIELDS),
        "formats": [np.int64 if n == 1 else (np.int64, n) for n in _FIELDS.values()],
        "itemsize": 16 * 64,  # each thread has its own lines
    },
    align=True,
)
"""The record; its fields lie in the order above."""

# Columns of the table of stages, whose first row is the state at the beginning: address of the
# kernel, how far it follows behind the first, points around the own ones that it computes per axis,
# rows of the table of names that it makes.
KERNEL, LAG, MARGIN, MADE, N_STAGE = 0, 1, 2, 5, 7
# Columns of the table of names. Of sweeps: the addresses of one at even and at odd steps. Of
# streams: where its ring begins and how many planes it has. Of both: ghosts per axis. Of streams:
# whether it belongs to the next step, which field it is then (or -1).
EVEN, START, DEPTH, WIDTH, NEXT, FIELD, N_NAME = 0, 0, 1, 2, 5, 6, 7
