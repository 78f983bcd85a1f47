"""Data that the tiles of `cpu.tessellate` read of a body: records of coefficients, numbers of the
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

from tetris_sim.cpu_kernels.common.layout import allocate_aligned
from tetris_sim.cpu_kernels.tessellate.formulas import (
    BEYOND,
    BLOCK,
    CHANGING,
    FEW,
    MANY,
    STEADY,
    Conducting,
)
from tetris_sim.cpu_kernels.tessellate.lifted import LiftedField
from tetris_sim.model.conduction import Conduction, Enthalpy, Rule, padded
from tetris_sim.model.grid import OUTER, on_three
from tetris_sim.model.problem import Problem
from tetris_sim.model.program import INPUT
from tetris_sim.model.slab import Ranges, Slab
from tetris_sim.solvers.assembly import by_temperature

Values = npt.NDArray[Any]
_POINTS = 1 << 21  # whose coefficients are made at a time
_TABLE = 1 << 16  # records that are remembered
_SAMPLE = 32  # points along each axis that say what all are like


def kind_of(problem: Problem) -> Conducting:
    """The kind of kernel that a problem needs."""
    conduction = problem.conduction
    assert conduction is not None
    source, enthalpy = conduction.source, conduction.enthalpy
    placed = ""
    if source is not None and not is_power(source):
        placed = CHANGING if source.changes or by_temperature(source) else STEADY

    pieces = 0 if enthalpy is None else enthalpy.n_pieces
    return Conducting(
        problem.grid.ndim,
        heated=source is not None,
        scaled=source is not None and conduction.coefficients is not None,
        placed=placed,
        pieces=MANY if pieces > FEW else pieces,
        ways=bool(enthalpy and conduction.coefficients),
        radiates=conduction.radiates,
    )


def is_power(source: Rule) -> bool:
    """Whether a rule is one parameter and nothing else."""
    parts = source.program.instructions
    names = [parameter.name for parameter in source.parameters]
    return len(parts) == 1 and parts[0].operation == INPUT and names == [parts[0].name]


def differs_everywhere(problem: Problem) -> bool:
    """Whether most points have coefficients that their neighbours have not, by those in the middle
    of the grid.
    """
    conduction = problem.conduction
    assert conduction is not None
    if conduction.coefficients is not None:
        return True
    middle = tuple((max(0, n // 2 - _SAMPLE), n // 2 + 1) for n in problem.grid.shape)
    ids = conduction.medium.ids(middle)
    return bool(_changing(ids).mean() > 0.5)


def record_bytes(problem: Problem, layout: LiftedField) -> int:
    """Bytes of everything that is kept beside the state, if no two records are equal."""
    kind, vectors = kind_of(problem), layout.field_pitch // layout.lanes
    vector = layout.lanes * layout.dtype.itemsize
    pattern = 4 * layout.lanes * kind.patterned + 4 * kind.curved
    each = 4 + kind.slots * vector + pattern + vector * (kind.placed == STEADY)
    return vectors * each + 4 * vectors // BLOCK


@dataclass(frozen=True)
class BodyRecords:
    """A slab of a body.

    Attributes:
        records: flat, (n_records, slots, lanes).
        numbers: of the record of each vector of the padded state.
        tags: of each block of a row, (planes, rows, blocks).
        patterns: ids of the points of each record, (n_records, lanes), flat.
        several: whether vectors of a record lie beside other materials, of heat contents only.
    """

    records: Values
    numbers: npt.NDArray[np.int32]
    tags: npt.NDArray[np.int32]
    patterns: npt.NDArray[np.int32]
    several: npt.NDArray[np.int32]


def make_body(problem: Problem, slab: Slab, layout: LiftedField) -> BodyRecords:
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
    # Enthalpy kernels must know which records touch other materials.
    kind, several = kind_of(problem), np.zeros(0, np.int32)
    if kind.curved:
        _tag_ghosts(tags, problem, slab)
        used = records[: (int(numbers.max()) + 1) * kind.slots * layout.lanes]
        last = used.reshape(-1, kind.slots, layout.lanes)[:, -1]
        several = np.ascontiguousarray(last.any(axis=1), np.int32)
    return BodyRecords(records, numbers, tags, patterns, several)


def _tag_ghosts(tags: npt.NDArray[np.int32], problem: Problem, slab: Slab) -> None:
    """Mark the rows beyond ruled faces: what lies there are potentials."""
    for axis, padded_axis in enumerate(OUTER[problem.grid.ndim][:-1]):
        along = np.moveaxis(tags, padded_axis, 0)
        for side in (0, 1):
            if not (slab.halo[axis][side] or problem.boundary.periodic(axis)):
                along[-side] = BEYOND


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

    everything = surrounded(slab, layout)
    for begin, box in _batches(everything):
        values, ids = _coefficients(problem, kind, box, everything[0])
        most = found + values.shape[1] * values.shape[2] * (layout.count[2] + 2)
        # Doubling keeps the total cost of copying linear.
        if most * size > records.size:
            records = _longer(records, max(most, 2 * found) * size)
            patterns = _longer(patterns, max(most, 2 * found) * lanes * kind.patterned)
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


def surrounded(slab: Slab, layout: LiftedField) -> Ranges:
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
    problem: Problem, kind: Conducting, box: Ranges, everything: tuple[int, int]
) -> tuple[Values, Values]:
    """The slots of the records of a box, (slots, planes, rows, points), and ids, (planes, rows,
    points), of which there are none if nothing asks for them. `everything` is what all boxes
    together take of the first axis.
    """
    conduction = problem.conduction
    assert conduction is not None
    shape = on_three([high - low for low, high in box], 1, OUTER)
    values = np.empty((kind.slots, *shape), problem.arithmetic)
    # One more plane on each side, if there is one: faces need the materials of both cells.
    low, high = box[0]
    begin, stop = max(low - 1, everything[0]), min(high + 1, everything[1])
    materials = problem.padded_ids(((begin, stop), *box[1:]))
    owned = slice(low - begin, high - begin)
    here = materials[owned]
    ids = np.empty((0, *shape[1:]), np.int32)
    if kind.patterned:
        ids = here.reshape(shape).astype(np.int32)

    if conduction.coefficients is None:
        rates = conduction.rates(problem.dt).astype(problem.arithmetic)
        values[kind.ndim] = rates[here].reshape(shape)
        for axis in range(kind.ndim):
            above = _shifted(materials, axis)[owned]
            values[axis] = _between(conduction, axis, problem.arithmetic)[here, above].reshape(
                shape
            )
            if kind.radiates and conduction.enthalpy is not None:
                radiance = conduction.enthalpy.radiance[axis][here, above]
                values[kind.radiances + axis] = _cold(radiance).reshape(shape)
        if conduction.enthalpy is not None:
            values[-1] = _beside_others(conduction.enthalpy, materials)[owned].reshape(shape)
        return values, ids

    for axis in range(kind.ndim):
        parts = np.moveaxis(_upper(problem, axis, box), -1, 0)
        values[axis] = parts[0].reshape(shape)
        for number, part in enumerate(parts[1:3]):
            values[kind.halves + number * kind.ndim + axis] = part.reshape(shape)
        for part in parts[3:]:
            values[kind.radiances + axis] = _cold(part).reshape(shape)
    if conduction.enthalpy:
        values[-1] = _beside_others(conduction.enthalpy, materials)[owned].reshape(shape)
    of_points: list[Callable[[Ranges], Values]] = [
        functools.partial(conduction.rates, problem.dt),
        conduction.coefficients.volume,
    ]
    for slot, of_box in enumerate(of_points[: 1 + kind.scaled], kind.ndim):
        values[slot] = padded(of_box, box, problem.grid.shape, rings_of(problem)).reshape(shape)
    return values, ids


def _between(conduction: Conduction, axis: int, dtype: np.dtype[Any]) -> Values:
    """Conductance by the ids of both cells; where heat contents are of different materials, the
    resistance of their contact with the other sign, that of 0 too.
    """
    conductance = np.asarray(conduction.medium.conductance[axis], dtype)
    if (enthalpy := conduction.enthalpy) is None:
        return conductance
    alike = np.equal.outer(enthalpy.kinds, enthalpy.kinds)
    return np.asarray(np.where(alike, conductance, -enthalpy.contact[axis].astype(dtype)))


def _cold(radiance: Values) -> Values:
    """Radiances with the other sign, so that signs tell who has one."""
    return np.asarray(np.where(radiance > 0, -radiance, 0.0))


def _beside_others(enthalpy: Enthalpy, materials: Values) -> npt.NDArray[np.bool_]:
    """Mark the points that have a neighbour of another material."""
    return _changing(enthalpy.kinds[materials])


def _changing(values: Values) -> npt.NDArray[np.bool_]:
    """Mark the points whose neighbour along some axis has another value."""
    changing = np.zeros(values.shape, np.bool_)
    for axis in range(values.ndim):
        along, found = np.moveaxis(values, axis, 0), np.moveaxis(changing, axis, 0)
        different = along[1:] != along[:-1]
        found[1:] |= different
        found[:-1] |= different
    return changing


def _upper(problem: Problem, axis: int, box: Ranges) -> Values:
    """Ways through the upper faces of a box that may reach beyond the grid (`Problem.ways`)."""
    rings = rings_of(problem)
    if rings[axis]:
        return padded(lambda inside: problem.ways(axis, inside), box, problem.grid.shape, rings)

    # Faces are one more than points; the first is the upper one of point -1.
    def moved(ranges: Ranges, by: int) -> Ranges:
        low, high = ranges[axis]
        return (*ranges[:axis], (low + by, high + by), *ranges[axis + 1 :])

    n_faces = tuple(n + (k == axis) for k, n in enumerate(problem.grid.shape))
    return padded(
        lambda inside: problem.ways(axis, moved(inside, -1)),
        *(moved(box, 1), n_faces, rings),
    )


def rings_of(problem: Problem) -> list[bool]:
    """Whether each axis is periodic."""
    return [problem.boundary.periodic(axis) for axis in range(problem.grid.ndim)]


def _shifted(ids: Values, axis: int) -> Values:
    """Materials of the next points along an axis; of the last one its own, which nobody reads."""
    along = np.moveaxis(ids, axis, 0)
    return np.moveaxis(np.concatenate([along[1:], along[-1:]]), 0, axis)
