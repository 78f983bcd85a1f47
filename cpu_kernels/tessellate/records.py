"""What the tiles of `cpu.tessellate` read of a body: records of coefficients, numbers of the
vectors that have them, and tags of blocks that have only one.

All of it is made once per slab out of functions of global indices, so it needs no message and is
the same however a grid is divided. `conducting.py` says how it is used.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.axes import OUTER, on_three
from tetris_sim.conduction import Coefficients, padded
from tetris_sim.cpu_kernels.common.layout import allocate_aligned
from tetris_sim.cpu_kernels.tessellate.conducting import BLOCK, OPERANDS, Conducting
from tetris_sim.cpu_kernels.tessellate.lifted import LiftedField
from tetris_sim.problem import Problem
from tetris_sim.slab import Ranges, Slab

Values = npt.NDArray[Any]
_POINTS = 1 << 21  # whose coefficients are made at a time
_TABLE = 1 << 16  # records that are remembered


def kind_of(problem: Problem) -> Conducting:
    """The kind of kernel that a problem needs."""
    conduction = problem.conduction
    assert conduction is not None
    heated = conduction.source is not None
    return Conducting(problem.grid.ndim, heated, heated and conduction.coefficients is not None)


def record_bytes(problem: Problem, layout: LiftedField) -> int:
    """Bytes of everything that is kept beside the state, if no two records are equal."""
    vectors = layout.field_pitch // layout.lanes
    record = kind_of(problem).slots * layout.lanes * layout.dtype.itemsize
    pattern = 4 * layout.lanes if kind_of(problem).heated else 0
    return vectors * (4 + record + pattern) + 4 * vectors // BLOCK


@dataclass(frozen=True)
class Body:
    """A slab of a body.

    Attributes:
        records: flat, (n_records, slots, lanes).
        numbers: of the record of each vector of the padded state.
        tags: of each block of a row, (planes, rows, blocks).
        patterns: ids of the points of each record, (n_records, lanes), flat.
    """

    records: Values
    numbers: npt.NDArray[np.int32]
    tags: npt.NDArray[np.int32]
    patterns: npt.NDArray[np.int32]


def make_body(problem: Problem, slab: Slab, layout: LiftedField) -> Body:
    """The body as the threads of a stepper read it.

    Args:
        problem: a problem with conduction.
        slab: which part of it.
        layout: of its state.
    """
    from tetris_sim.cpu_kernels.compiled.generate import copied_module

    recording = copied_module("tessellate/recording.py")
    vectors = layout.field_pitch // layout.lanes
    plane, row = layout.pitch[0] // layout.lanes, layout.pitch[1] // layout.lanes
    numbers, tags = np.zeros(vectors, np.int32), _no_tags(layout)
    records, patterns = _number(problem, slab, layout, numbers, recording.number_records)
    below = np.array({1: [0], 2: [plane], 3: [plane, row]}[problem.grid.ndim])
    along = (layout.first[2], layout.count[2])
    recording.tag_blocks(numbers, below, *along, (plane, row), BLOCK, tags)
    return Body(records, numbers, tags, patterns)


def _no_tags(layout: LiftedField) -> npt.NDArray[np.int32]:
    blocks = -(-(layout.first[2] + layout.count[2]) // BLOCK)
    return np.full((*layout.extent[:2], blocks), -1, np.int32)


def _number(
    problem: Problem,
    slab: Slab,
    layout: LiftedField,
    numbers: npt.NDArray[np.int32],
    number_records: Callable[..., int],
) -> tuple[Values, npt.NDArray[np.int32]]:
    """Records and patterns of the slab, and into `numbers` those of its vectors."""
    kind, lanes = kind_of(problem), layout.lanes
    size, sizes = kind.slots * lanes, (lanes, layout.stride, layout.count[2])
    plane, row = layout.pitch[0] // lanes, layout.pitch[1] // lanes
    records = allocate_aligned(0, layout.dtype, 0)
    patterns, table, found = np.zeros(0, np.int32), np.full(_TABLE, -1, np.int32), 0

    everything = _surrounded(slab, layout)
    for begin, box in _batches(everything):
        values, ids = _coefficients(problem, kind, box, everything[0][1])
        most = found + values.shape[1] * values.shape[2] * (layout.count[2] + 2)
        if most * size > records.size:
            records = _longer(records, max(most, 2 * found) * size)
            patterns = _longer(patterns, max(most, 2 * found) * lanes * kind.heated)
        first = begin * plane + layout.first[2] - 1
        found = number_records(
            *(values, ids, sizes, first, (plane, row), numbers, records.view(np.uint32), patterns),
            *(table, found),
        )
    return records, patterns


def _longer(array: Values, size: int) -> Values:
    """A copy with more room behind it; what is not used has no place in memory."""
    longer = allocate_aligned(size * array.itemsize, array.dtype, 0)
    longer[: array.size] = array
    return longer


def _surrounded(slab: Slab, layout: LiftedField) -> Ranges:
    """All padded points of a slab, as global indices."""
    margins = [layout.margin[padded] for padded in layout.axis_of[:-1]]
    low, high = slab.halo[-1]
    margins.append((low + 1, high + 1))
    return tuple(
        (low - before, high + behind)
        for (low, high), (before, behind) in zip(slab.spans, margins, strict=True)
    )


def _batches(box: Ranges) -> Iterator[tuple[int, Ranges]]:
    """Some padded planes after the other: the first one's number, and their points."""
    if len(box) == 1:
        yield 0, box
        return
    (low, high), rest = box[0], box[1:]
    width = max(1, _POINTS // int(np.prod([stop - start for start, stop in rest])))
    for begin in range(low, high, width):
        yield begin - low, ((begin, min(begin + width, high)), *rest)


def _coefficients(
    problem: Problem, kind: Conducting, box: Ranges, end: int
) -> tuple[Values, Values]:
    """The slots of the records of a box, (slots, planes, rows, points), and ids, (planes, rows,
    points), of which there are none without sources. `end` bounds all boxes along the first axis.
    """
    conduction = problem.conduction
    assert conduction is not None
    shape = on_three([high - low for low, high in box], 1, OUTER)
    values = np.empty((kind.slots, *shape), problem.arithmetic)
    # One more plane, if there is one: the upper faces of the last one need its materials.
    low, high = box[0]
    materials = problem.padded_ids(((low, min(high + 1, end)), *box[1:]))
    here = materials[: high - low]
    ids = np.empty((0, *shape[1:]), np.int32)
    if kind.heated:
        ids = here.reshape(shape).astype(np.int32)

    if conduction.coefficients is None:
        rates = conduction.rates(problem.dt).astype(problem.arithmetic)
        values[kind.ndim] = rates[here].reshape(shape)
        for axis in range(kind.ndim):
            above = _shifted(materials, axis)[: high - low]
            conductance = conduction.medium.conductance[axis].astype(problem.arithmetic)
            values[axis] = conductance[here, above].reshape(shape)
        return values, ids

    for axis in range(kind.ndim):
        values[axis] = _upper(problem, conduction.coefficients, axis, box).reshape(shape)
    of_points: list[Callable[[Ranges], Values]] = [
        functools.partial(conduction.rates, problem.dt),
        conduction.coefficients.volume,
    ]
    for slot, of_box in enumerate(of_points[: 1 + kind.scaled], kind.ndim):
        values[slot] = padded(of_box, box, problem.grid.shape, rings_of(problem)).reshape(shape)
    return values, ids


def _upper(problem: Problem, coefficients: Coefficients, axis: int, box: Ranges) -> Values:
    """Conductance of the upper faces of a box that may reach beyond the grid."""
    rings = rings_of(problem)
    if rings[axis]:
        return padded(
            lambda inside: coefficients.conductance(axis, inside), box, problem.grid.shape, rings
        )

    # Faces are one more than points; the first is the upper one of point -1.
    def moved(ranges: Ranges, by: int) -> Ranges:
        low, high = ranges[axis]
        return (*ranges[:axis], (low + by, high + by), *ranges[axis + 1 :])

    n_faces = tuple(n + (k == axis) for k, n in enumerate(problem.grid.shape))
    return padded(
        lambda inside: coefficients.conductance(axis, moved(inside, -1)),
        *(moved(box, 1), n_faces, rings),
    )


def rings_of(problem: Problem) -> list[bool]:
    """Which axes are periodic."""
    return [problem.boundary.periodic(axis) for axis in range(problem.grid.ndim)]


def _shifted(ids: Values, axis: int) -> Values:
    """Materials of the next points along an axis; of the last one its own, which nobody reads."""
    along = np.moveaxis(ids, axis, 0)
    return np.moveaxis(np.concatenate([along[1:], along[-1:]]), 0, axis)


def operands_of(body: Body, source: Values) -> npt.NDArray[np.int64]:
    """What the kernel gets, by step, (n, OPERANDS): addresses that last as long as the arrays."""
    operands = np.zeros((max(1, len(source)), len(OPERANDS)), np.int64)
    arrays = (body.records, body.numbers, body.tags)
    operands[:, :3] = [array.ctypes.data for array in arrays]
    operands[:, 3:5] = [stride // body.tags.itemsize for stride in body.tags.strides[:2]]
    operands[:, 5] = body.patterns.ctypes.data
    operands[:, 6] = source.ctypes.data + source.strides[0] * np.arange(len(operands))
    return operands
