"""The NumPy reference solution: the oracle of every kernel test, short enough to be trusted, and
the bounds within which other methods must agree with it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.model.boundary import SIDES, Boundary, Side
from tetris_sim.model.conduction import (
    CONDUCTIVITY,
    MIRROR,
    TEMPERATURE,
    Conduction,
    Ids,
    Rule,
)
from tetris_sim.model.equations import tap
from tetris_sim.model.formula import evaluate
from tetris_sim.model.problem import Field, Passage, Problem, arithmetic_of, passage
from tetris_sim.model.radiation import RADIATING, RADIATING_INPUTS
from tetris_sim.model.rounding import Failures, Noise, entering, observed
from tetris_sim.model.slab import Ranges
from tetris_sim.model.stencil import Stencil

Values = npt.NDArray[Any]
Seen = dict[str, Values]  # what is seen of points, by the names of a face's inputs
# Relative error of rounding to float16, u = 2^-11.
HALF_PLACE = 2.0**-11
_SMALLEST_HALF = 2.0**-24  # the smallest float16 above 0, and the distance of its neighbours


def with_ghosts(
    u: Field, boundary: Boundary, spacing: tuple[float, ...], radii: tuple[int, ...]
) -> Field:
    """Surround (n_fields, n0, ...) by its ghost ring of `radii` points per axis: axis 0 first, so
    later axes define the corners.
    """
    # Coefficients and products of float16 ghosts are float32; the ghost is rounded once, when
    # stored.
    kind = arithmetic_of(u.dtype).type
    for axis, radius in enumerate(radii):
        along = np.moveaxis(u, axis + 1, 0)
        if boundary.periodic(axis):
            low, high = [along[-j] for j in range(radius, 0, -1)], [along[j] for j in range(radius)]

        else:
            ghosts = {}
            for side in SIDES:
                pairs = boundary.reflections(axis, side, spacing=spacing[axis], width=radius)
                mirrors = [along[j] if side == "low" else along[-1 - j] for j in range(radius)]
                ghosts[side] = [
                    (kind(a) + kind(b) * mirror.astype(kind, copy=False)).astype(
                        u.dtype, copy=False
                    )
                    for (a, b), mirror in zip(pairs, mirrors, strict=True)
                ]
            # Low ghosts were computed outwards from the face, and lie in memory the other way
            # around.
            low, high = ghosts["low"][::-1], ghosts["high"]

        rings = [[np.stack(ghosts)] if ghosts else [] for ghosts in (low, high)]
        u = np.moveaxis(np.concatenate([*rings[0], along, *rings[1]]), 0, axis + 1)
    return u


def step(u: Field, stencil: Stencil, boundary: Boundary, spacing: tuple[float, ...]) -> Field:
    """Make one time step of (n_fields, n0, ...); float16 is computed in float32 and rounded at the
    end.
    """
    kind = arithmetic_of(u.dtype).type
    padded = with_ghosts(u, boundary, spacing, stencil.radii).astype(kind, copy=False)
    new = np.zeros(u.shape, kind)

    # In the order of `Stencil.offsets`; kernels may use another one (`chain_order`), hence
    # `tolerance`.
    for offset, weight in zip(stencil.offsets, stencil.weights, strict=True):
        window = tuple(
            slice(radius + shift, radius + shift + n)
            for radius, shift, n in zip(stencil.radii, offset, u.shape[1:], strict=True)
        )
        new += kind(weight) * padded[(slice(None), *window)]
    return new.astype(u.dtype, copy=False)


def surroundings(problem: Problem) -> Iterator[tuple[int, Side, Ids, Passage]]:
    """Yield what the points of a body have beside them, the same in every step, in the order of
    their sums: axis and side, the ids of the neighbours, beyond faces those of the mirrors, and the
    ways to them.
    """
    shape = problem.grid.shape
    whole = tuple((0, n) for n in shape)
    ids = problem.body.medium.ids(whole)
    for axis, side in itertools.product(range(len(shape)), SIDES):
        shift = -1 if side == "low" else 1
        beside = problem.padded_ids(_planes(whole, axis, shift, shape[axis] + shift))
        # Faces are numbered by the cell below them: the low side of a cell is the upper face of the
        # one before.
        low = min(shift, 0)
        faces = _planes(whole, axis, low, shape[axis] + low)
        yield axis, side, beside, passage(problem, axis, faces, ids, beside, side)


def conduct(
    u: Field,
    problem: Problem,
    number: int,
    around: Sequence[tuple[int, Side, Ids, Passage]] = (),
) -> Field:
    """Make step `number` of (1, n0, ...) by conduction through a medium, whose `surroundings` may
    be given; see `conduction.py`.
    """
    conduction, grid = problem.body, problem.grid
    medium, coefficients = conduction.medium, conduction.coefficients
    kind = problem.arithmetic.type
    whole = tuple((0, n) for n in grid.shape)
    ids = medium.ids(whole)
    heat = u[0].astype(kind)
    here = potentials(conduction, heat, ids)

    # The chain of `conduction.py`: the source first, then the flows axis by axis, low side first.
    gained = np.zeros(grid.shape, kind)
    if conduction.source is not None:
        gained += follow(conduction.source, problem, number, whole, ids.astype(np.int64), here)
        if coefficients is not None:
            gained *= coefficients.volume(whole).astype(kind)

    for axis, side, beside, between in around or surroundings(problem):
        # For every point, the values of its neighbour on this side. The roll wraps around, which is
        # right for periodic axes; elsewhere ghosts replace the outermost plane.
        shift = -1 if side == "low" else 1
        edge = _planes(whole, axis, 0 if side == "low" else grid.shape[axis] - 1)
        there = {name: np.roll(values, -shift, axis) for name, values in here.items()}
        if not problem.boundary.periodic(axis):
            outermost = _cut(edge)
            inside = {name: values[outermost] for name, values in here.items()}
            there[MIRROR][outermost] = ruled_ghosts(
                problem, axis, side, number, box=edge, ids=ids[outermost], inside=inside
            )
        gained += flow_by(problem, between, (here, ids), (there, beside))

    # A rate of 0, from an infinite capacity, holds the state.
    new = heat + conduction.rates(problem.dt, whole).astype(kind) * gained
    return np.asanyarray(new, problem.dtype)[np.newaxis]


def evolve(u: Field, problem: Problem, number: int) -> Field:
    """Make step `number` of (n_fields, n0, ...) by equations, in the dtype of `u`."""
    values = values_of_a_step(u, problem, number)
    return np.stack([values[problem.system.results[name]] for name in problem.system.fields])


def values_of_a_step(u: Field, problem: Problem, number: int) -> Seen:
    """Return what step `number` by equations gives, by name: fields and the results of stages."""
    equations, grid = problem.system, problem.grid
    kind, whole = u.dtype.type, tuple((0, n) for n in grid.shape)
    values: Seen = dict(zip(equations.fields, u, strict=True))
    # Parameters and coordinates are inputs of every stage; coordinates broadcast along their axis.
    given: Seen = {
        it.name: entering(u, np.asarray(it.rows(problem.time, number, 1)[0, 0], kind))
        for it in equations.parameters
    }
    for axis, name in enumerate(grid.axis_names):
        along = [-1 if k == axis else 1 for k in range(grid.ndim)]
        places = grid.coordinates(axis, 0, grid.shape[axis]).reshape(along).astype(kind)
        given[name] = entering(u, places)

    # Each stage sees whole arrays of the stage before, so no ordering of points matters.
    for stage in equations.stages:
        seen = dict(given)
        for name, offsets in stage.taps.items():
            radii = stage.radii(name)
            if equations.coefficients and name in equations.coefficients:
                around = tuple((-r, n + r) for r, n in zip(radii, grid.shape, strict=True))
                there = problem.padded_coefficient(name, around).astype(kind)
                there = entering(u, there, rounded=False)
            elif any(radii):
                boundary = equations.boundaries[name]
                there = with_ghosts(values[name][np.newaxis], boundary, grid.spacing, radii)[0]
            else:
                there = values[name]
            # Every tap is a shifted window of the padded array.
            for offset in offsets:
                moved = [(r + shift, r + shift) for r, shift in zip(radii, offset, strict=True)]
                seen[tap(name, offset).name] = there[
                    tuple(
                        slice(low + a, high + b)
                        for (low, high), (a, b) in zip(whole, moved, strict=True)
                    )
                ]
        with np.errstate(all="ignore"):  # both sides of a condition are computed
            for name, tree in stage.formulas.items():
                new = np.asanyarray(evaluate(tree, seen), kind)
                values[name] = np.broadcast_to(new, grid.shape)
    return values


def rise_to_face(
    problem: Problem, number: int, axis: int, side: Side, box: Ranges, state: Values
) -> Values:
    """Return the temperature rise from the outermost points of a box to the face: half of the way
    to their ghosts.

    Args:
        problem: with conduction.
        number: the step.
        axis: normal to the face.
        side: which of the two.
        box: points beside the face, one along the axis.
        state: that of the points, of the shape of the box.
    """
    conduction = problem.body
    ids = conduction.medium.ids(box)
    here = potentials(conduction, state.astype(problem.arithmetic.type), ids)
    ghosts = ruled_ghosts(problem, axis, side, number, box=box, ids=ids, inside=here)
    half = (ghosts - here[MIRROR]) / 2
    # With enthalpy the difference is one of potential, which rises by k per degree.
    return half if conduction.enthalpy is None else half / here[CONDUCTIVITY]


def rise_to_neighbours(
    problem: Problem,
    axis: int,
    side: Side,
    box: Ranges,
    state: tuple[Values, Values],
    beside: Ranges,
) -> Values:
    """Return the temperature rise from points to their face towards a neighbour: the flow from
    there times the resistance of half a cell, so that the face has a temperature of its own on
    either side of a contact and in front of a fluid.

    Args:
        problem: with conduction.
        axis: along which the neighbours lie.
        side: on which side.
        box: the points, one along the axis; none of them held.
        state: of the points and of their neighbours, of the shape of the box.
        beside: the neighbours.
    """
    conduction, medium = problem.body, problem.body.medium
    here, there = (
        (potentials(conduction, values.astype(np.float64), ids), ids)
        for values, ids in zip(state, map(medium.ids, (box, beside)), strict=True)
    )

    seen, ids = here
    low = box[axis][0] - (side == "low")
    faces = _planes(box, axis, low)
    between = passage(problem, axis, faces, ids, there[1], side)
    gained = flow_by(problem, between, here, there)
    with np.errstate(divide="ignore", invalid="ignore"):  # where nothing flows
        if between.series:
            rise = gained * between.series[0] / seen[CONDUCTIVITY]
        else:
            rise = gained / (2 * medium.conductance[axis][ids, ids])
        if conduction.coefficients is not None and not between.series:
            grid, volume = problem.grid, conduction.coefficients.volume(box)
            widths = grid.distances(axis, box) / grid.spacing[axis]
            rise *= widths**2 / volume
            # Elsewhere the volume is that of the width on the area of the face.
            if grid.system.is_curved:
                rise *= volume / (grid.areas(axis, faces) * grid.distances(axis, box))
    return np.where(gained == 0, 0.0, rise)


def potentials(conduction: Conduction, state: Values, ids: Ids) -> Seen:
    """Return the quantities that neighbours and faces need of points: the one whose difference
    drives the flow, and with enthalpy also temperature and conductivity.
    """
    enthalpy = conduction.enthalpy
    if enthalpy is None:
        return {MIRROR: state}
    return {
        MIRROR: enthalpy.of(enthalpy.potential, state, ids),
        TEMPERATURE: enthalpy.of(enthalpy.temperature, state, ids),
        CONDUCTIVITY: enthalpy.of(enthalpy.conductivity, state, ids),
    }


def flow_by(
    problem: Problem, between: Passage, here: tuple[Seen, Ids], there: tuple[Seen, Ids]
) -> Values:
    """Return the flow into points from their neighbours: per volume of a cell [W/m^3], or with
    coefficients in total [W].

    Args:
        problem: whose points.
        between: the way between the points and their neighbours.
        here: `potentials` and ids of the points.
        there: those of their neighbours; of ghosts, the potential and the ids of the mirrors.
    """
    (mine, ids), (theirs, beside) = here, there
    # Within a material, differences of potential are exact for any k(T); between materials the
    # temperature is continuous (but for the contact), the potential is not.
    kind = mine[MIRROR].dtype
    by_potential = between.between.astype(kind) * (theirs[MIRROR] - mine[MIRROR])
    enthalpy = problem.body.enthalpy
    if enthalpy is None:
        return np.asanyarray(by_potential)

    alike = enthalpy.kinds[ids] == enthalpy.kinds[beside]
    own, other, contact, *radiance = (it.astype(kind) for it in between.series)
    # Infinite or 0 / 0 values belong to pairs of one material, which are not taken.
    with np.errstate(all="ignore"):
        below, above = own / mine[CONDUCTIVITY], other / theirs[CONDUCTIVITY]
        by_temperature = (theirs[TEMPERATURE] - mine[TEMPERATURE]) / (below + above + contact)
        if radiance:
            ends = mine[TEMPERATURE], theirs[TEMPERATURE], below, above, contact, radiance[0]
            radiated = evaluate(RADIATING.tree, dict(zip(RADIATING_INPUTS, ends, strict=True)))
            by_temperature = np.where(radiance[0] > 0, radiated, by_temperature)
    return np.asanyarray(np.where(alike, by_potential, by_temperature))


def ruled_ghosts(
    problem: Problem,
    axis: int,
    side: Side,
    number: int,
    *,
    box: Ranges,
    ids: Ids,
    inside: Seen,
    span: tuple[float, float] | None = None,
) -> Values:
    """Return the ghosts beyond a ruled face at step `number`, in the dtype of the state.

    Args:
        problem: whose face.
        axis: which axis, array order.
        side: which of its two faces.
        number: of the step.
        box: global indices of mirror points, one plane of them along the axis.
        ids: of these points.
        inside: `potentials` of them.
        span: see `follow`.
    """
    face = problem.ruled_face(axis, side)
    codes = face.codes(box, ids, problem.body.medium.n_ids)
    ghosts = follow(face.rule, problem, number, box, codes, inside, span)
    return np.broadcast_to(ghosts.astype(problem.dtype), ids.shape)


def follow(
    rule: Rule,
    problem: Problem,
    number: int,
    box: Ranges,
    codes: npt.NDArray[np.int64],
    seen: Seen,
    span: tuple[float, float] | Values | None = None,
) -> Values:
    """Evaluate a rule at the points of a box at step `number`, in the arithmetic of the problem;
    the result has the shape of the box or broadcasts to it.

    Args:
        rule: a program and its parameters.
        problem: for the time of the step and the positions of the points.
        number: of the step.
        box: global indices.
        codes: of the points.
        seen: inputs that the location provides, by name.
        span: from one time to another [s] instead of the step; the same one twice for an instant;
            many instants (n,) are a first axis of the result.
    """
    # A single number serves all codes; see `Parameter.values`.
    values = dict(seen)
    like = values.get(MIRROR)

    for parameter in rule.parameters:
        if isinstance(span, np.ndarray) and callable(parameter.values):
            given = parameter.values(span)  # (n, n_codes) or (n, 1)
            many = given[:, codes] if given.shape[1] > 1 else given.reshape(-1, *(1,) * codes.ndim)
            values[parameter.name] = entering(like, many)
            continue
        rows = (
            parameter.rows(problem.time, number, 1)
            if span is None
            else [parameter.during(span[0], span[-1])]
        )
        row = rows[0]
        values[parameter.name] = entering(like, row[codes] if row.size > 1 else row)
    for axis, name in enumerate(problem.grid.axis_names):
        along = [-1 if k == axis else 1 for k in range(problem.grid.ndim)]
        places = problem.grid.coordinates(axis, *box[axis]).reshape(along)
        values[name] = entering(like, places)
    with np.errstate(all="ignore"):  # both sides of a condition are computed
        return np.asanyarray(evaluate(rule.program.tree, values), problem.arithmetic)


def _planes(box: Ranges, axis: int, low: int, high: int | None = None) -> Ranges:
    """Replace the planes of a box along one axis: from `low` to before `high`, or just `low`."""
    span = (low, low + 1 if high is None else high)
    return (*box[:axis], span, *box[axis + 1 :])


def _cut(box: Ranges) -> tuple[slice, ...]:
    return tuple(slice(low, high) for low, high in box)


def advance(u: Field, problem: Problem, steps: int, first: int = 0) -> Field:
    """Make `steps` time steps of the whole state (n_fields, n0, ...) at step `first`, in the dtype
    of `problem`.
    """
    u = np.asanyarray(u, dtype=problem.dtype)
    around: list[tuple[int, Side, Ids, Passage]] = []
    for number in range(first, first + steps):
        if problem.equations is not None:
            u = evolve(u, problem, number)
        elif problem.conduction is None:
            u = step(u, problem.stencil, problem.boundary, problem.grid.spacing)
        else:
            # Of many steps they are kept, which takes some copies of the state.
            around = around or ([*surroundings(problem)] if steps > 1 else [])
            u = conduct(u, problem, number, around)
    return u


def first_failure(
    u: Field, problem: Problem, steps: int, first: int = 0
) -> tuple[int, tuple[int, ...], str] | None:
    """Find out where a state stops being finite: (step, point, operation in words); None if it does
    not within some steps, or no operation of finite numbers is to blame.

    Args:
        u: the state at step `first`, finite.
        problem: what is advanced.
        steps: how many.
        first: that step.
    """
    for number in range(first, first + steps):
        failures = Failures()
        with np.errstate(all="ignore"):
            u = advance(observed(np.array(u), failures), problem, 1, number).view(np.ndarray)
        bad = np.asarray(~np.isfinite(u).all(axis=0))
        if bad.any():
            found = failures.first(bad)
            return None if found is None else (number, found[1], found[0])
    return None


def tolerance(
    problem: Problem, steps: int, largest: float, dtype: np.dtype[Any] | None = None
) -> float:
    """Bound the difference of two correct implementations after `steps` steps: twice the error that
    each may have.

    Args:
        problem: the problem that was advanced.
        steps: by how many steps.
        largest: largest magnitude of the field and its ghosts during these steps.
        dtype: the coarser type of the two, if it is not the problem's.
    """
    return 2 * rounding_error(problem, max(steps, 1), largest, dtype)


def rounding_error(
    problem: Problem, launches: int, largest: float, dtype: np.dtype[Any] | None = None
) -> float:
    """Bound the rounding error of a method that passes over all points `launches` times, one step
    or several each.

    A step rounds once per product, once per sum and twice in a ghost value, each time by at most
    eps times the largest partial result; a stable step does not amplify earlier errors.

    float16 is summed in float32 and rounded to nearest when it is stored, by at most u = 2^-11 of
    the value. A step by itself rounds its result and the ghosts that it reads, u (1 + gain). Fused
    steps round once together, but their weights are float16 too; they are rounded so that their sum
    stays, and their errors add up to at most 3 u times the sum of their magnitudes
    (`gpu_kernels/fused/kernel.py`). So no launch adds more than u (1 + 4 gain). Magnitudes of
    fused weights can add up to gain to the power of the steps; those of a stable stencil hardly
    exceed gain, which is used for them.

    Args:
        problem: the problem that was advanced.
        launches: passes over the points.
        largest: largest magnitude of the field and its ghosts.
        dtype: of the computation; the problem's if not given.
    """
    stored = np.dtype(dtype or problem.dtype)
    eps = float(np.finfo(arithmetic_of(stored)).eps)
    # gain bounds partial sums relative to the largest value: at least 1, the sum of |weights|.
    gain = max(1.0, sum(abs(weight) for weight in problem.stencil.weights))
    launch = (2 * problem.stencil.n_points + 2) * eps * gain * largest
    if stored == np.float16:
        # The smallest float16 spacing bounds the absolute error below the normal range.
        launch += (1 + 4 * gain) * max(HALF_PLACE * largest, _SMALLEST_HALF / 2)
    return launches * launch


def largest_magnitude(u: Field, problem: Problem) -> float:
    """Return the largest magnitude of a state and of its ghost values, for `tolerance`.

    Where ghosts change with time, those at time 0.
    """
    bound = float(np.abs(u).max(initial=0.0))
    ghosts = 0.0

    for axis, side in itertools.product(range(problem.grid.ndim), SIDES):
        if problem.boundary.periodic(axis):
            continue
        if problem.equations is not None:
            continue  # their ghosts are in what a step gives
        if problem.conduction is not None:
            ghosts = max(ghosts, float(np.abs(_outer_ghosts(u, problem, axis, side)).max()))
        else:
            pairs = problem.boundary.reflections(
                axis, side, spacing=problem.grid.spacing[axis], width=problem.stencil.radii[axis]
            )
            ghosts = max([ghosts, *(abs(a) + abs(b) * bound for a, b in pairs)])
    return max(bound, ghosts)


def _outer_ghosts(u: Field, problem: Problem, axis: int, side: Side) -> Values:
    """Return the ghosts beyond a ruled face at time 0."""
    assert problem.conduction is not None
    whole = tuple((0, n) for n in problem.grid.shape)
    edge = _planes(whole, axis, 0 if side == "low" else problem.grid.shape[axis] - 1)
    ids = problem.conduction.medium.ids(edge)
    inside = potentials(problem.conduction, u[0][_cut(edge)].astype(problem.arithmetic), ids)
    return ruled_ghosts(problem, axis, side, 0, box=edge, ids=ids, inside=inside)


# Measured error bounds: how far another method may be from the NumPy reference, where no bound is
# derived: the spread of runs in perturbed arithmetic (`rounding.py`).

_RUNS = 4  # two of them err at random
_SPREADS = 16  # another order of operations may be as far off as this many times the spread seen
_USUAL = 0.99  # of the points spread by no more than what is allowed everywhere


def allowed_error(
    u: Field, expected: Field, problem: Problem, steps: int, first: int = 0, runs: int = _RUNS
) -> npt.NDArray[np.float64]:
    """Bound the error of another correct implementation relative to `reference.advance` after some
    steps, for each point, (n_fields, n0, ...).

    For constant stencils the bound is derived (`tolerance`). Otherwise the errors of other orders
    of the operations are measured, as the spread of some runs in perturbed arithmetic. A point has
    16 times its spread or that of all but a hundredth of the points, and some units in the last
    place of the largest values. Where rounding decides whether the result is a number, the bound is
    infinite.

    Args:
        u: the state at step `first`.
        expected: the result of `reference.advance` for it.
        problem: the problem that was advanced.
        steps: how many.
        first: that step.
        runs: of perturbed arithmetic.
    """
    allowed = np.broadcast_to(least_allowed(u, expected, problem, steps), expected.shape)
    if problem.why_not_one_stencil is None:
        return allowed
    spread = np.zeros(expected.shape)
    none = np.full(expected.shape, True)
    eps = float(np.finfo(problem.arithmetic).eps)
    for run in range(runs):
        with np.errstate(all="ignore"):
            found = advance(observed(np.array(u), Noise(run, eps)), problem, steps, first)
        found = found.view(np.ndarray)
        with np.errstate(all="ignore"):
            spread = np.maximum(spread, np.abs(found.astype(np.float64) - expected))
        none &= ~np.isfinite(found)

    spread[none & ~np.isfinite(expected)] = 0  # agreed: there is no number
    spread[~np.isfinite(spread)] = np.inf
    by_field = spread.reshape(len(spread), -1)
    usual = np.quantile(by_field, _USUAL, axis=1, method="lower")
    usual = np.where(np.isfinite(usual), usual, 0).reshape(-1, *[1] * problem.grid.ndim)
    return np.asarray(allowed + _SPREADS * np.maximum(spread, usual), np.float64)


def least_allowed(
    u: Field, expected: Field, problem: Problem, steps: int
) -> npt.NDArray[np.float64]:
    """Return what rounding allows at any point, by field, (n_fields, 1, ...): a part of
    `allowed_error` that costs no run.
    """
    ndim = problem.grid.ndim
    if problem.equations is None:
        largest = max(largest_magnitude(u, problem), largest_magnitude(expected, problem))
        found = np.full(problem.n_fields, tolerance(problem, steps, largest))
        found[np.isnan(found)] = np.inf
    else:
        space = tuple(range(1, u.ndim))
        most = np.maximum(_largest_finite(u, space), _largest_finite(expected, space))
        found = problem.equations.n_operations * steps * np.finfo(problem.dtype).eps * most
    return np.asarray(found, np.float64).reshape(-1, *[1] * ndim)


def _largest_finite(u: Field, axes: tuple[int, ...]) -> Values:
    finite = np.where(np.isfinite(u), np.abs(u), 0)
    return np.asarray(finite.max(axis=axes, initial=0.0))
