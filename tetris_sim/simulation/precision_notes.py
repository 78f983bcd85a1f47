"""Costs of float16 for a run, as sentences for its plan and its report.

Three things are said: how far apart neighbouring numbers are at the largest value, how far from
float64 the result may be because of that, and, where a launch changes no point by as much as that
distance, that the field freezes. The first step is computed in float64, on a few slabs of the grid
if it is large.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tetris_sim.config import Config
from tetris_sim.errors import TetrisError
from tetris_sim.model import reference
from tetris_sim.model.boundary import SIDES, Side
from tetris_sim.model.deep_ghosts import contradictions, lasting_sides
from tetris_sim.model.method import ReducedPrecision
from tetris_sim.model.problem import PAIRS, Field, Problem
from tetris_sim.model.slab import Slab
from tetris_sim.scheduler.facts.shares import Plan
from tetris_sim.scheduler.tuning.measure import steps_per_block

_SLAB_POINTS = 1 << 22  # that are looked at together: a fifth of a second
_MOST_SLABS = 5  # odd, so that the middle is among them
_TOO_LARGE = 65520.0  # is rounded to infinity; the largest float16 is 65504
_GROWS = 1e-9  # what the spectral radius of a step may exceed 1 by, and no wave grows


@dataclass(frozen=True)
class FirstStep:
    """Magnitudes at the first step of a run.

    Attributes:
        largest: largest magnitude of the field and of what its faces pull it to.
        ghosts: largest magnitude of the field and of the ghosts beside it.
        change: largest change of a point in the first step.
        partly: whether only some slabs of the grid were looked at.
    """

    largest: float
    ghosts: float
    change: float
    partly: bool

    @property
    def spacing(self) -> float:
        """Distance of float16 at the largest magnitude; infinite beyond the largest of them."""
        return half_spacing(self.largest)


def half_spacing(value: float) -> float:
    """Distance of neighbouring float16 at a value.

    >>> half_spacing(100.0), half_spacing(0.0) == 2.0**-24, half_spacing(65504.0), half_spacing(1e5)
    (0.0625, True, 32.0, inf)
    """
    magnitude = abs(value)
    if magnitude >= _TOO_LARGE:
        return math.inf
    return math.ldexp(1.0, max(math.frexp(magnitude)[1] - 11, -24)) if magnitude else 2.0**-24


def half_precision_notes(config: Config, problem: Problem, plan: Plan) -> tuple[str, ...]:
    """Return notes on a run in float16; none for other types.

    Args:
        config: of the run.
        problem: made of it.
        plan: its methods, which say how many steps are rounded together.
    """
    if problem.dtype != np.float16:
        return ()
    # Steps that are fused are summed in float32 and rounded once.
    together = min(steps_per_block(share.parameters) for share in plan.shares)
    rounded = f"every {together} steps" if together > 1 else "every step"
    try:
        first = first_step(_in_float64(config, problem))
    except TetrisError as error:  # a file of initial values that a continued run no longer needs
        what = f"every value is rounded {rounded}, by up to 2^-11 of itself"
        return (f"float16: {what}. How much is unknown: {error}",)
    return tuple(_sentences(problem, first, together, rounded))


def first_step(problem: Problem) -> FirstStep:
    """Look at the first step of a problem in float64."""
    largest, ghosts, change, seen = _pulled_to(problem), 0.0, 0.0, 0
    for before, after, n_planes in _slabs(problem):
        # The problem on the points that were looked at.
        there = problem.on_shape(before.shape[1:])
        largest = max(
            largest, *(float(np.abs(field).max(initial=0.0)) for field in (before, after))
        )
        ghosts = max(
            ghosts, *(reference.largest_magnitude(field, there) for field in (before, after))
        )
        change = max(change, float(np.abs(after - before).max(initial=0.0)))
        seen += n_planes
    return FirstStep(largest, ghosts, change, partly=seen < problem.grid.shape[0])


def _pulled_to(problem: Problem) -> float:
    """The largest magnitude that a face pulls to: its own ghost, u = a + b u."""
    # In the steady state of u = a + b u the ghost equals its mirror point: a/(1 - b).
    limits = [0.0]
    for axis, side in itertools.product(range(problem.grid.ndim), SIDES):
        if not problem.boundary.periodic(axis):
            if problem.conduction is not None:
                limits += _pulled_by(problem, axis, side)
                continue
            spacing = problem.grid.spacing[axis]
            limits += [
                abs(a / (1 - b))
                for a, b in problem.boundary.reflections(axis, side, spacing=spacing, width=1)
                if b != 1
            ]
    return max(limits)


def _pulled_by(problem: Problem, axis: int, side: Side) -> list[float]:
    """The same for a face that follows a rule, as far as a and b are known before the run."""
    face = problem.ruled_face(axis, side)
    if not face.is_affine:
        return []
    numbers = {it.name: it.rows(problem.time, 0, 1)[0] for it in face.rule.parameters}
    a, b = np.broadcast_arrays(numbers["a"], numbers["b"])
    return [float(limit) for limit in np.abs(a[b != 1] / (1 - b[b != 1]))]


def _slabs(problem: Problem) -> Iterator[tuple[Field, Field, int]]:
    """(state, one step later, number of planes) of up to `_MOST_SLABS` slabs across axis 0."""
    grid, radius = problem.grid, problem.stencil.radii[0]
    n, plane = grid.shape[0], math.prod(grid.shape[1:])
    if problem.conduction is not None:
        yield _first_planes(problem, min(n, max(2, _SLAB_POINTS // plane)))
        return
    # A sample, spread evenly from the first plane to the last, bounds the work on large grids.
    thickness = min(n, max(1, _SLAB_POINTS // plane))
    count = min(_MOST_SLABS, -(-n // thickness))

    for k in range(count):
        start = (n - thickness) * k // max(1, count - 1)
        low, high = max(0, start - radius), min(n, start + thickness + radius)
        rest = grid.shape[1:]
        slab = Slab((low, *(0,) * len(rest)), (high, *rest), ((0, 0),) * grid.ndim)
        before = problem.initial(slab)
        after = reference.step(before, problem.stencil, problem.boundary, grid.spacing)

        # What lies beside a cut was given ghosts that it does not have; so were the ends of a
        # periodic axis.
        cut_low, cut_high = low > 0, high < n
        if problem.boundary.periodic(0) and (cut_low or cut_high):
            cut_low = cut_high = True
        inner = slice(radius * cut_low, high - low - radius * cut_high)
        yield before[:, inner], after[:, inner], min(thickness, high - low)


def _first_planes(problem: Problem, planes: int) -> tuple[Field, Field, int]:
    """The same of the first planes: a body differs from place to place, and its grid begins
    there.
    """
    first = problem.on_shape((planes, *problem.grid.shape[1:]))
    before = first.initial(Slab.whole(first.grid))
    after = reference.conduct(before, first, 0)
    # The last of them was given ghosts that it does not have.
    right = planes - (planes < problem.grid.shape[0])
    return before[:, :right], after[:, :right], right


def _in_float64(config: Config, problem: Problem) -> Problem:
    compute = config.compute.model_copy(update={"precision": "float64"})
    return config.model_copy(update={"compute": compute}).build(dt=problem.dt)


def _sentences(problem: Problem, first: FirstStep, together: int, rounded: str) -> Iterator[str]:
    unit = "" if problem.variables[0].unit == "1" else f" {problem.variables[0].unit}"
    near = f"{first.largest:.4g}{unit}"
    part = ", as far as was looked" if first.partly else ""

    # Half the distance of two float16 numbers: smaller changes round to nothing.
    largest = max(first.largest, first.ghosts)
    if largest >= _TOO_LARGE:
        field_itself = first.largest >= _TOO_LARGE
        what = "the field reaches" if field_itself else "ghosts beside the faces may reach"
        yield (
            f"float16: {what} {largest:.4g}{unit}{part}, and float16 holds 65504 at most. "
            "Use float32."
        )
        return

    yield (
        f"float16: numbers near {near}, the largest magnitude{part}, are {first.spacing:.3g}{unit} "
        f"apart, and every value is rounded {rounded}."
    )
    yield _difference(problem, first, together, unit)

    if 2 * together * first.change < first.spacing:
        many = f" in {together} steps" if together > 1 else ""
        yield (
            f"float16: the field freezes near {near}. No point changes by more than "
            f"{together * first.change:.2g}{unit}{many} at first{part}, and a change of less than "
            "half the distance of two numbers is rounded away every time. Use float32."
        )


def _difference(problem: Problem, first: FirstStep, together: int, unit: str) -> str:
    """How far from float64 the result may be."""
    stencil = problem.stencil
    # Weights whose magnitudes add up to 1 form means and cannot amplify an error.
    grows = sum(map(abs, stencil.weights)) > 1 + _GROWS and stencil.spectral_radius > 1 + _GROWS
    if grows or (problem.conduction is not None and problem.dt > problem.dt_limit):
        return (
            "float16: waves grow with every step, and so do rounding errors, so nothing bounds "
            "the difference from float64; compare with a run in float32."
        )

    launches = problem.steps // together + problem.steps % together
    whole = Slab.whole(problem.grid)
    lasting = lasting_sides(problem, whole)
    if not all(itertools.chain(*lasting)) or contradictions(problem, whole):
        launches = problem.steps  # points near such a face are rounded at every step
    bound = reference.rounding_error(problem, launches, first.ghosts)
    if bound < first.largest:
        return f"float16: the result may differ from that of float64 by up to {bound:.2g}{unit}."
    return (
        f"float16: rounding errors of {launches} launches may add up to more than the field "
        "itself, so nothing bounds the difference from float64; compare with a run in float32."
    )


# What `compute.precision: float32x2` means for a run, as sentences of its plan.


def pair_notes(problem: Problem, plan: Plan) -> tuple[str, ...]:
    """Who computes in pairs and who does not; nothing of a run in another precision."""
    if not problem.pairs:
        return ()

    methods = [share.method for share in plan.shares]
    pairs = list(dict.fromkeys(it.name for it in methods if isinstance(it, ReducedPrecision)))
    others = list(dict.fromkeys(it.name for it in methods if not isinstance(it, ReducedPrecision)))

    said = []
    if pairs:
        said.append(
            f"{PAIRS}: {' and '.join(pairs)} computes pairs of float32, which have 48 bits of the "
            "53 of float64; files and checkpoints hold float64."
        )
    if others:
        said.append(
            f"{PAIRS}: {' and '.join(others)} computes in float64; pairs of float32 are for GPUs "
            "on which they are faster, and for one constant step."
        )
    return tuple(said)
