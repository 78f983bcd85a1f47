"""Extraction of a problem's step as u' = A u + f along axes that can be treated one by one.

`read_operator` returns it, or raises `NotSpectralError` with the reason. The forcing f is the step
that the reference makes from a state of zeros. As the same condition holds along a whole face, a
small grid determines it for any other (`Forcing`).
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tetris_sim.model.boundary import SIDES, Side
from tetris_sim.model.conduction import MIRROR, Coefficients, Conduction, RuledFace
from tetris_sim.model.grid import AXIS_NAMES, Grid
from tetris_sim.model.problem import Problem
from tetris_sim.model.reference import follow, ruled_ghosts
from tetris_sim.model.slab import Ranges, batches
from tetris_sim.solvers.assembly import by_temperature
from tetris_sim.solvers.spectral.axis import (
    MOST_DENSE,
    Ends,
    Forcing,
    Layered,
    NotSpectralError,
    Numbers,
    Operator,
    Separable,
    SpectralAxis,
    between_cells,
    thin_forcing,
)

# The step of a body, axis by axis: constant coefficients or layers, of equal or graded cells.

_BLOCK_POINTS = 1 << 22  # whose materials are looked at together


def of_conduction(problem: Problem, conduction: Conduction, with_forcing: bool) -> Operator:
    """Extract A and f of a body.

    Args:
        problem: in float64.
        conduction: its own.
        with_forcing: whether f is needed.

    Raises:
        NotSpectralError: the step is not of this form, or not along axes.
    """
    _refuse_changing(conduction)
    medium, grid = conduction.medium, problem.grid
    if grid.system.is_curved:
        msg = f"around an axis or a centre (grid.coordinates: {grid.system.kind}) steps differ"
        raise NotSpectralError(msg)
    kinds = _kinds(conduction)
    place, line, alike = _find_layers(problem, kinds)
    if not np.isfinite(medium.capacity[line]).all():
        msg = "points in it are held at a temperature"
        raise NotSpectralError(msg)

    # Faces across the layers touch only the outermost materials, all others touch every one.
    layered = len(set(kinds[line].tolist())) > 1
    ends: list[Ends | None] = []
    for axis in range(grid.ndim):
        outermost = line[[0]], line[[-1]]
        beside = outermost if layered and axis == place else (np.unique(line),) * 2
        ends.append(_ends(problem, axis, beside))
    forcing = _forcing(problem, place, alike=alike) if with_forcing else None

    # K belongs to the square of the spacing. Eigenvalues of even axes have no unit, those of graded
    # ones are in 1/m^2, so their K is scaled to a distance of 1 m.
    squares = np.array([1.0 if h is None else h**2 for h in _even_spacing(grid)])
    rate = problem.dt * medium.conductance * (np.square(grid.spacing) / squares)[:, None, None]
    # One material: A - 1 is a sum of second differences, each times dt K / (rho c).
    if not layered:
        axes = tuple(_axis_of_body(grid, axis, it) for axis, it in enumerate(ends))
        whole = line[0]
        by_capacity = rate[:, whole, whole] / medium.capacity[whole]
        sums = tuple(2 * by * it.less_one() for by, it in zip(by_capacity, axes, strict=True))
        return Separable(axes, 0.0, sums, (), forcing)

    # Layers: constant coefficients along the other axes, a matrix across the layers.
    axes = tuple(
        SpectralAxis(grid.shape[axis], it) if axis == place else _axis_of_body(grid, axis, it)
        for axis, it in enumerate(ends)
    )
    along = [rate[axis][line, line] * (axis != place) for axis in range(grid.ndim)]
    capacity = medium.capacity[line]
    # `between` has the face below each layer, and once more the one that closes the ring.
    between = rate[place][np.concatenate([line[-1:], line]), np.concatenate([line, line[:1]])]
    # At a face, the conductance between a point and its ghost is that of its id with itself.
    if ends[place] is not None:
        between[[0, -1]] = rate[place][line[[0, -1]], line[[0, -1]]]
    # Graded layers: capacities and lateral conductances per area of a layer.
    if conduction.coefficients is not None:
        widths = grid.widths(place)
        along, capacity = [it * widths for it in along], capacity * widths
        between = problem.dt * _through_layers(conduction.coefficients, grid, place)
    return Layered(place, axes, between, ends[place], tuple(along), capacity, forcing)


def _even_spacing(grid: Grid) -> list[float | None]:
    """Return per axis the distance between points; None where it is graded."""
    return [
        None if grid.edges and grid.edges[axis] is not None else h
        for axis, h in enumerate(grid.spacing)
    ]


def _axis_of_body(grid: Grid, axis: int, ends: Ends | None) -> SpectralAxis:
    """Return the axis of a body; equal axes are one object, so their eigenvectors are kept once.

    Raises:
        NotSpectralError: it is graded and too long.
    """
    n = grid.shape[axis]
    if _even_spacing(grid)[axis] is not None:
        return _even_axis(n, ends)
    if n > MOST_DENSE:
        msg = (
            f"the eigenvectors along {grid.axis_names[axis]}, of {n} cells that differ in width, "
            "would take too long"
        )
        raise NotSpectralError(msg)
    return _graded_axis(tuple(grid.widths(axis).tolist()), ends)


@functools.lru_cache(maxsize=8)
def _even_axis(n: int, ends: Ends | None) -> SpectralAxis:
    return SpectralAxis(n, ends)


@functools.lru_cache(maxsize=8)
def _graded_axis(widths: tuple[float, ...], ends: Ends | None) -> SpectralAxis:
    return between_cells(np.array(widths), ends)


def _through_layers(coefficients: Coefficients, grid: Grid, place: int) -> Numbers:
    """Return the conductances of the faces between layers and of both ends, (n + 1,) [W/(m^2
    K)].
    """
    # One column across the layers, from the low face on: box index -1 is the face below point 0.
    box = tuple((-1, n) if axis == place else (0, 1) for axis, n in enumerate(grid.shape))
    area = math.prod(
        float(grid.widths(axis, 0, 1)[0]) for axis in range(grid.ndim) if axis != place
    )
    return coefficients.conductance(place, box).reshape(-1) / area


def _refuse_changing(conduction: Conduction) -> None:
    why = None
    if conduction.enthalpy is not None:
        why = "its properties depend on temperature"
    elif conduction.source is not None and conduction.source.changes:
        why = "its sources change with time"
    elif conduction.source is not None and by_temperature(conduction.source):
        why = "its sources depend on temperature"
    if why is not None:
        raise NotSpectralError(why)


def _kinds(conduction: Conduction) -> npt.NDArray[np.int64]:
    """Number the ids such that ids with equal thermal properties share a number, (n_ids,)."""
    medium = conduction.medium
    # Compared by bytes: properties must agree exactly, or the propagation would not be exact.
    alike: dict[bytes, int] = {}
    rows = [
        np.append(medium.conductance[:, number], capacity).tobytes()
        for number, capacity in enumerate(medium.capacity)
    ]
    return np.array([alike.setdefault(row, len(alike)) for row in rows])


def _find_layers(
    problem: Problem, kinds: npt.NDArray[np.int64]
) -> tuple[int, npt.NDArray[np.int64], bool]:
    """Find (the axis along which materials change, the ids along it, whether the ids themselves,
    not just their kinds, are constant along the other axes).

    Raises:
        NotSpectralError: materials change along several axes.
    """
    assert problem.conduction is not None
    # The line of each axis through the corner of the grid; then every point is compared with it.
    ids, shape = problem.conduction.medium.ids, problem.grid.shape
    lines = []
    for axis, n in enumerate(shape):
        box = tuple((0, n if a == axis else 1) for a in range(len(shape)))
        lines.append(ids(box).reshape(-1).astype(np.int64))
    varying = [a for a, line in enumerate(lines) if len(set(kinds[line].tolist())) > 1]
    place = varying[0] if varying else 0
    along = [-1 if a == place else 1 for a in range(len(shape))]

    alike = True
    for box in batches(tuple((0, n) for n in shape), _BLOCK_POINTS):
        line = lines[place][slice(*box[place])].reshape(along)
        here = ids(box)
        alike = alike and bool((here == line).all())
        if not (alike or (kinds[here] == kinds[line]).all()):
            name = problem.grid.axis_names[place]
            msg = f"its materials change along more than one axis, not only along {name}"
            raise NotSpectralError(msg)
    return place, lines[place], alike


def _ends(
    problem: Problem, axis: int, beside: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]
) -> Ends | None:
    """Return both b of an axis, given the ids of points at its faces; None if it is periodic.

    Raises:
        NotSpectralError: a face has no b, or one that varies in space or time.
    """
    if problem.boundary.periodic(axis):
        return None
    assert problem.conduction is not None
    ends = []
    for side, ids in zip(SIDES, beside, strict=True):
        face = problem.ruled_face(axis, side)
        name = problem.grid.axis_names[axis] + ("-" if side == "low" else "+")
        if not face.is_affine or face.rule.changes:
            msg = f"what holds at the face {name} changes with time or temperature"
            raise NotSpectralError(msg)

        # Codes are patch * n_ids + id: all patches with all ids at the face must agree.
        row = next(it for it in face.rule.parameters if it.name == "b").rows(problem.time, 0, 1)[0]
        offsets = np.arange(face.n_patches) * problem.conduction.medium.n_ids
        of_points = row[np.add.outer(offsets, ids)] if row.size > 1 else row
        found = set(of_points.reshape(-1).tolist())
        if len(found) > 1 or not all(abs(b) <= 1 for b in found):
            msg = f"what holds at the face {name} is not the same everywhere on it"
            raise NotSpectralError(msg)
        ends.append(found.pop())
    return ends[0], ends[1]


def _forcing(problem: Problem, place: int, *, alike: bool) -> Forcing | None:
    """Return the forcing of a body: on few points, unless it depends on the position."""
    conduction = problem.conduction
    assert conduction is not None
    faces = [face for pair in problem.boundary.faces for face in pair]
    patches = any(isinstance(face, RuledFace) and face.patches is not None for face in faces)
    inputs = () if conduction.source is None else conduction.source.program.inputs
    given = conduction.coefficients
    if alike and not patches and given is None and not set(inputs) & set(AXIS_NAMES):
        return thin_forcing(problem, place)

    # The general case, on the whole grid: sources, then ghosts of a state of zeros, then dt / (rho
    # c).
    values = np.zeros(problem.grid.shape)
    for box in batches(tuple((0, n) for n in problem.grid.shape), _BLOCK_POINTS):
        if conduction.source is not None:
            codes = conduction.medium.ids(box).astype(np.int64)
            volume = 1.0 if given is None else given.volume(box)
            values[_cut(box)] += follow(conduction.source, problem, 0, box, codes, {}) * volume
    for axis, side in itertools.product(range(problem.grid.ndim), SIDES):
        if not problem.boundary.periodic(axis):
            edge = _edge(problem, axis, side)
            ids = conduction.medium.ids(edge)
            # Mirror points of 0: the ghost is then the a of a + b u.
            zeros = {MIRROR: np.zeros(ids.shape)}
            ghosts = ruled_ghosts(problem, axis, side, 0, box=edge, ids=ids, inside=zeros)
            below = _edge(problem, axis, side, below=side == "low")
            values[_cut(edge)] += conduction.between(axis, below, ids, ids) * ghosts
    for box in batches(tuple((0, n) for n in problem.grid.shape), _BLOCK_POINTS):
        values[_cut(box)] *= conduction.rates(problem.dt, box)
    return Forcing(values, (None,) * values.ndim) if values.any() else None


def _edge(problem: Problem, axis: int, side: Side, *, below: bool = False) -> Ranges:
    """Return the outermost points at a face, or the ones before them along the axis."""
    n = problem.grid.shape[axis]
    low = (0 if side == "low" else n - 1) - below
    span = (low, low + 1)
    return tuple(span if a == axis else (0, m) for a, m in enumerate(problem.grid.shape))


def _cut(box: Ranges) -> tuple[slice, ...]:
    return tuple(slice(low, high) for low, high in box)


_EVEN = ({1.0}, {-1.0})  # what b may be at a face beyond which a stencil reaches several points


def why_not_spectral(problem: Problem) -> str | None:
    """Say why there is no exact spectral propagation, as a sentence; None if there is."""
    try:
        read_operator(problem, with_forcing=False)
    except NotSpectralError as error:
        return str(error)
    return None


def read_operator(problem: Problem, *, with_forcing: bool = True) -> Operator:
    """Extract A and f of a problem.

    Raises:
        NotSpectralError: the step is not of this form, or not along axes.
    """
    if problem.n_fields > 1 or problem.equations is not None:
        msg = "its step is made of formulas, or of several fields"
        raise NotSpectralError(msg)
    if problem.dtype == np.float16:
        msg = "float16 loses at every step what a jump keeps, so the result would be another one"
        raise NotSpectralError(msg)
    problem = dataclasses.replace(problem, dtype=np.dtype(np.float64))
    if problem.conduction is None:
        return _of_stencil(problem, with_forcing)
    return of_conduction(problem, problem.conduction, with_forcing)


def _of_stencil(problem: Problem, with_forcing: bool) -> Separable:
    # The stencil must be mirrored along every axis; `folded` sums the weights of mirrored offsets
    # by their distances, the orders of cosines.
    terms = dict(zip(problem.stencil.offsets, problem.stencil.weights, strict=True))
    folded: dict[tuple[int, ...], float] = {}
    for offset, weight in terms.items():
        for signs in itertools.product((1, -1), repeat=len(offset)):
            mirrored = tuple(sign * k for sign, k in zip(signs, offset, strict=True))
            if terms.get(mirrored) != weight:
                msg = "the weights of its stencil are not the same on both sides of each axis"
                raise NotSpectralError(msg)
        order = tuple(map(abs, offset))
        folded[order] = folded.get(order, 0.0) + weight

    # Offsets along several axes couple these; all others belong to a single axis.
    products = tuple((w, k) for k, w in folded.items() if sum(map(bool, k)) > 1)
    axes, sums, made = [], [], functools.cache(SpectralAxis)
    for place, radius in enumerate(problem.stencil.radii):
        own = [
            folded.get(tuple(k * (a == place) for a in range(problem.grid.ndim)), 0.0)
            for k in range(1, radius + 1)
        ]
        found = _axis_of_stencil(problem, place, own, crossed=bool(products))
        axis = found if found.given is not None else made(found.n, found.ends)
        axes.append(axis)
        sums.append(
            # cos(k theta) - 1 instead of cos(k theta): the ones are in `excess`.
            axis.given[0]
            if axis.given is not None
            else sum((w * axis.less_one(k) for k, w in enumerate(own, 1)), np.zeros(axis.n))
        )
    excess = math.fsum([*terms.values(), -1.0])
    forcing = thin_forcing(problem, None) if with_forcing else None
    return Separable(tuple(axes), excess, tuple(sums), products, forcing, problem.continuous)


def _axis_of_stencil(
    problem: Problem, place: int, own: Sequence[float], *, crossed: bool
) -> SpectralAxis:
    """Return an axis of a stencil.

    Args:
        problem: whose stencil.
        place: which axis.
        own: weights of both points at distances 1, 2, ... along this axis alone.
        crossed: whether the stencil also has points off its axes.
    """
    n, name = problem.grid.shape[place], problem.grid.axis_names[place]
    radius = problem.stencil.radii[place]
    if problem.boundary.periodic(place) or radius == 0:
        return SpectralAxis(n, None)

    # b of the ghosts 1, 2, ... of both faces. Even and odd reflections keep all cosines; with other
    # faces only a stencil of radius 1 has known eigenvectors.
    low, high = (
        [
            b
            for _, b in problem.boundary.reflections(
                place, side, spacing=problem.grid.spacing[place], width=radius
            )
        ]
        for side in SIDES
    )
    if radius == 1 or (set(low) in _EVEN and set(high) in _EVEN):
        return SpectralAxis(n, (low[0], high[0]))
    if crossed:
        msg = (
            f"its stencil reaches {radius} points beyond a face along {name} and has points off "
            "its axes: then a face must be periodic, or have a value, or no flow"
        )
        raise NotSpectralError(msg)

    if n > MOST_DENSE:
        msg = f"the eigenvectors along {name}, of {n} points with a held ring, would take too long"
        raise NotSpectralError(msg)

    # A - 1 along the axis, with the ghosts folded onto their mirror points.
    matrix = np.zeros((n, n))
    for k, weight in enumerate(own, 1):
        for i in range(n):
            matrix[i, i] -= weight
            for m, beyond in ((i - k, low), (i + k, high)):
                j = -m if m < 0 else m - n + 1
                inside, b = (m, 1.0) if 0 <= m < n else (j - 1 if m < 0 else n - j, beyond[j - 1])
                matrix[i, inside] += weight / 2 * b

    # Ghosts of different b can break the symmetry, and with it orthogonal eigenvectors.
    if not np.array_equal(matrix, matrix.T):
        msg = (
            f"its stencil reaches {radius} points beyond a face along {name} that takes up heat "
            "by h, which makes its step unsymmetric"
        )
        raise NotSpectralError(msg)
    values, vectors = np.linalg.eigh(matrix)
    return SpectralAxis(n, None, (values, np.ascontiguousarray(vectors.T)))
