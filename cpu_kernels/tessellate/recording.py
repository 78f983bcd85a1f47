"""Compiled passes over lifted rows (`lifted.py`): copies between them and boxes of points as users
know them, and the search for equal records and for blocks that need only one (`conducting.py`).

Idea    Copies go lane by lane: the side of the box is read in order, the lifted row is written with
        a stride and stays in a cache until all its lanes are there. They are called from all
        threads, each with planes of its own.
        A record is compared with the last one that had its hash: bodies repeat themselves near by,
        and a table that forgets is as large as it ever gets. Two numbers for equal records cost
        memory, never the answer.
Layout  Of copies, values: (fields, planes, rows, points); flat: lifted rows; `first` is the element
        of vector 0 of the first row. Of records, values: (slots, planes, rows, points), points of a
        row from one before the first to one behind the last; ids: (planes, rows, points), or no
        planes where no patterns are wanted. records and patterns have room for whatever is found.
        numbers: one per vector of the padded state; `first` is the vector before the first one of
        the first row.
Test    tests/kernels/test_lifted.py, tests/kernels/test_tessellate_conduction.py
"""

from __future__ import annotations

import numpy as np

from tetris_sim.cpu_kernels.compiled.intrinsics import inner, njit

_PRIME, _START = np.uint64(1099511628211), np.uint64(14695981039346656037)  # of the hash FNV-1a


@njit(nogil=True, cache=True, owns_memory=True)
def number_records(values, ids, sizes, first, pitches, numbers, records, patterns, table, found):
    """Number the vectors of some planes; the number of records found so far, grown.

    `sizes` is (lanes, points from lane to lane, vectors of a row), `records` the bits of the
    records as words.
    """
    lanes, stride, vectors = sizes
    slots, planes, rows = values.shape[0], values.shape[1], values.shape[2]
    record = np.empty(slots * lanes, values.dtype)
    words = record.view(np.uint32)
    pattern = np.zeros(lanes, np.int32)
    number = table[0]

    for i in range(planes):
        for j in range(rows):
            for p in range(vectors + 2):
                for slot in range(slots):
                    for lane in range(lanes):
                        record[slot * lanes + lane] = values[slot, i, j, lane * stride + p]
                if ids.shape[0] > 0:
                    for lane in range(lanes):
                        pattern[lane] = ids[i, j, lane * stride + p]

                # Most often it is that of the vector before.
                if not _same(words, pattern, records, patterns, number):
                    place = _place(words, pattern, table.size)
                    number = table[place]
                if not _same(words, pattern, records, patterns, number):
                    number = found
                    found += 1
                    table[place] = number
                    # Slices would do; to compile them takes longer than all the rest.
                    for k in range(words.size):
                        records[number * words.size + k] = words[k]
                    if ids.shape[0] > 0:
                        for lane in range(lanes):
                            patterns[number * lanes + lane] = pattern[lane]
                numbers[first + i * pitches[0] + j * pitches[1] + p] = number
    return found


@inner
def _place(words, pattern, size):
    """Slot of the hash table for a record (FNV-1a)."""
    # FNV-1a over words instead of bytes.
    key = _START
    for word in words:
        key = (key ^ np.uint64(word)) * _PRIME
    for number in pattern:
        key = (key ^ np.uint64(number)) * _PRIME
    return (key >> np.uint64(32)) % np.uint64(size)


@inner
def _same(words, pattern, records, patterns, number):
    """Whether a record is the one with a number; there is none below 0."""
    if number < 0:
        return False
    for k in range(words.size):
        if records[number * words.size + k] != words[k]:
            return False
    if patterns.size > 0:
        for lane in range(pattern.size):
            if patterns[number * pattern.size + lane] != pattern[lane]:
                return False
    return True


@njit(nogil=True, cache=True)
def tag_blocks(numbers, below, first, count, pitches, block, tags):
    """Tag blocks of `block` vectors with the record that they and the vectors below them have.

    `below` has the distance to the lower neighbour along each axis but the last, `first` and
    `count` are those of the layout. Rows around the computed ones keep their -1.
    """
    furthest = 0
    for distance in below:
        furthest = max(furthest, distance)
    for i in range(tags.shape[0]):
        for j in range(tags.shape[1]):
            row = i * pitches[0] + j * pitches[1]

            # The first rows have no complete set of lower neighbours, so no block of theirs gets a
            # tag.
            if row < furthest:
                continue
            for k in range(tags.shape[2]):
                low, high = max(k * block, first), min((k + 1) * block, first + count)
                if low >= high:
                    continue

                # A block is homogeneous if all its vectors and their lower neighbours share one
                # record.
                number = numbers[row + low]
                one = numbers[row + low - 1] == number
                for p in range(low, high):
                    one = one and numbers[row + p] == number
                    for distance in below:
                        one = one and numbers[row + p - distance] == number
                if one:
                    tags[i, j, k] = number


@njit(nogil=True, cache=True)
def lift(values, flat, pitches, first, x, stride, lanes, vectors):
    """Store a box whose rows begin at point x; a point that belongs to two lanes is stored in
    both.
    """
    n = values.shape[3]
    for field in range(values.shape[0]):
        for i in range(values.shape[1]):
            for j in range(values.shape[2]):
                row = first + field * pitches[0] + i * pitches[1] + j * pitches[2]
                for lane in range(lanes):
                    begin = lane * stride
                    for p in range(max(0, x - begin), min(vectors, x + n - begin)):
                        flat[row + p * lanes + lane] = values[field, i, j, begin + p - x]


@njit(nogil=True, cache=True)
def unlift(flat, pitches, first, x, stride, lanes, values):
    """Read a box whose rows begin at point x."""
    n = values.shape[3]
    for field in range(values.shape[0]):
        for i in range(values.shape[1]):
            for j in range(values.shape[2]):
                row = first + field * pitches[0] + i * pitches[1] + j * pitches[2]
                for lane in range(lanes):
                    begin = lane * stride
                    end = x + n if lane == lanes - 1 else min(begin + stride, x + n)
                    for point in range(max(begin, x), end):
                        values[field, i, j, point - x] = flat[row + (point - begin) * lanes + lane]
