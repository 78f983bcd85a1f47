"""Systems of equations: a time step of several fields, as formulas of neighbouring values.

A time step is a few stages. A stage computes new values of some names at every point, from names
that already exist: the fields of the state, and results of earlier stages. What it reads of a name
is a tap, the name with an offset in array order, u[0,-1]; taps beyond a face of the domain are
ghosts, which each name has by its own boundary. Stages of a Runge-Kutta method and composed
operators look the same to kernels (docs/decisions/0019). After the last stage, every field is
replaced by the name that holds its new value.

Beside taps a formula reads parameters, numbers of the time step that are the same at every point;
coefficients, taps of arrays that vary in space and never change; and the coordinates x, y, z [m].
"""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from tetris_sim.model.boundary import Boundary, Side
from tetris_sim.model.conduction import Conduction, Numbers, Parameter, repeated
from tetris_sim.model.exchange import NOTHING_AROUND, Around
from tetris_sim.model.formula import Node, Variable, walk
from tetris_sim.model.program import Programs
from tetris_sim.model.slab import Ranges
from tetris_sim.model.step_control import NO_TIMES, stretches

Offset = tuple[int, ...]
_TAP = re.compile(r"(.+)\[(-?\d+(?:,-?\d+)*)\]")


def tap(name: str, offset: Sequence[int]) -> Variable:
    """Return the input that reads a name at an offset from the point, array order.

    >>> tap("u", (0, -1)).name
    'u[0,-1]'
    """
    return Variable(f"{name}[{','.join(str(shift) for shift in offset)}]")


def as_tap(text: str) -> tuple[str, Offset] | None:
    """Split an input into name and offset; None if it is no tap.

    >>> as_tap("u[0,-1]"), as_tap("dt")
    (('u', (0, -1)), None)
    """
    if (found := _TAP.fullmatch(text)) is None:
        return None
    return found[1], tuple(int(shift) for shift in found[2].split(","))


@dataclass(frozen=True, eq=False)
class Stage:
    """New values of some names at every point.

    Attributes:
        formulas: by the name that they compute; no earlier stage computes it, and no formula of
            this stage reads it, so points may be computed in any order.
    """

    formulas: Mapping[str, Node]

    @functools.cached_property
    def programs(self) -> Programs:
        """The formulas in their order, lowered to one sequence of operations for every device."""
        return Programs(tuple(self.formulas.values()))

    @functools.cached_property
    def taps(self) -> Mapping[str, tuple[Offset, ...]]:
        """Offsets read, by name, fields and coefficients alike; sorted."""
        # A dict of None is a set that keeps its order.
        found: dict[str, dict[Offset, None]] = {}
        for tree in self.formulas.values():
            for node in walk(tree):
                if isinstance(node, Variable) and (it := as_tap(node.name)) is not None:
                    found.setdefault(it[0], {})[it[1]] = None
        return {name: tuple(sorted(offsets)) for name, offsets in found.items()}

    def radii(self, name: str) -> tuple[int, ...]:
        """Return how far the stage reads a name, per axis; () if it does not."""
        offsets = self.taps.get(name, ())
        return tuple(max(abs(shift) for shift in along) for along in zip(*offsets, strict=True))


@dataclass(frozen=True)
class Reduction:
    """A number made of the values of a name at all points; parameters of later stages follow from
    it.

    Attributes:
        kind: what is made of the values.
        factor: of the sum: the volume of a cell for an integral, one over all points for a mean.
    """

    kind: Literal["sum", "max", "min"]
    factor: float = 1.0


@dataclass(frozen=True, eq=False)
class Elliptic:
    """Fields that follow from all others at one moment: 0 = F, solved on the whole grid between
    two stages.

    Attributes:
        residuals: names of the arrays of F at the guesses, by the coefficient that takes what is to
            be subtracted from a guess.
        kept: by field, the name of an array of what it is at that moment.
        solve: from arrays of the whole grid, residuals and then those of `kept` by field, the
            relative rounding error of their type, and begin and end of the substep [s], to the
            corrections.
    """

    residuals: Mapping[str, str]
    kept: Mapping[str, str]
    solve: Callable[
        [Sequence[Numbers], Mapping[str, Numbers], float, tuple[float, float]], Sequence[Numbers]
    ]

    @property
    def read(self) -> tuple[str, ...]:
        """Names of all arrays that are read."""
        return (*self.residuals.values(), *self.kept.values())


@dataclass(frozen=True, eq=False)
class Substeps:
    """How to divide a step into substeps by error control; one without, of the length of a step,
    where stages read numbers of the whole grid.

    Attributes:
        errors: by field, the name of its error; it can be read when the last stage is done. Empty
            for steps of a given length.
        order: power of a substep's length with which its error shrinks.
        tolerance: largest error of a substep, relative to the largest magnitude of the field.
        first: length of the first substep that is tried in a time step [s].
        numbers: from begin and length of a substep [s], and the reductions known so far by name,
            to the parameters of the equations, (n_parameters,).
        formulas: the same as formulas of t and dt, the begin and the length [s]; empty if more is
            needed, and where there are no parameters.
    """

    errors: Mapping[str, str]
    order: int
    tolerance: float
    first: float
    numbers: Callable[[float, float, Mapping[str, float]], Numbers]
    formulas: tuple[Node, ...] = ()

    @property
    def adaptive(self) -> bool:
        """Whether lengths follow errors."""
        return bool(self.errors)


@dataclass(frozen=True, eq=False)
class Rates:
    """Right-hand sides instead of a step: how they are integrated in time.

    Attributes:
        scheme: etdrk4, imex, implicit or steady.
        tolerance: of a substep's error, relative to the largest magnitude of each field; with
            implicit steps of a given length, and for steady, of what remains of the equations.
        adaptive: whether a step is divided into substeps by their errors.
        numbers: from a time [s] to the parameters of the equations, (n_parameters,).
    """

    scheme: Literal["etdrk4", "imex", "implicit", "steady"]
    tolerance: float
    adaptive: bool
    numbers: Callable[[float], Numbers]


@dataclass(frozen=True, eq=False)
class Equations:
    """A time step of several fields.

    Attributes:
        fields: names of the state, in the order of its arrays.
        stages: in the order in which they are computed.
        results: for each field the name that holds its new value after the last stage.
        boundaries: ghosts of each name that is read at a neighbouring point; an axis is periodic
            for all of them or for none. Faces are affine and constant in time.
        parameters: numbers by time step, the same at every point: their code is 0.
        coefficients: by name, numbers of the points of a box of global indices; beyond the grid
            those of the mirror points.
        outside: coefficients that are not mirrored beyond the grid, but defined for any box.
        substeps: adaptive division of a step; `parameters` then serve trial runs only, with a step
            short enough for any state, and everything that varies is a function of time.
        rates: given if the results are right-hand sides d/dt of the fields instead of new values.
        reductions: by the name of the array, numbers of the whole grid that parameters of the
            stages after it follow from.
        noises: coefficients that are others in every step: numbers of a box and a step.
        elliptic: what is solved for between stages, in their order; its corrections are
            coefficients that are 0 in trials.
        courses: functions of time that numbers of the stages follow from: a step whose length
            follows errors, or that is solved for, is divided where they bend or jump.

    Raises:
        ValueError: a name is computed twice or read too early, a field lacks its own result, or a
            neighbour is read without a boundary.
    """

    fields: tuple[str, ...]
    stages: tuple[Stage, ...]
    results: Mapping[str, str]
    boundaries: Mapping[str, Boundary]
    parameters: tuple[Parameter, ...] = ()
    coefficients: Mapping[str, Callable[[Ranges], Numbers]] | None = None
    outside: frozenset[str] = frozenset()
    substeps: Substeps | None = None
    rates: Rates | None = None
    reductions: Mapping[str, Reduction] = field(default_factory=dict)
    noises: Mapping[str, Callable[[Ranges, int], Numbers]] = field(default_factory=dict)
    elliptic: tuple[Elliptic, ...] = ()
    courses: tuple[Parameter, ...] = ()

    def __post_init__(self) -> None:
        known = {*self.fields, *(self.coefficients or {})}

        # Single assignment: a stage reads only what exists before it, so a stage needs no ordering
        # among its own formulas.
        for stage in self.stages:
            if twice := known & {*stage.formulas}:
                msg = f"each name is given once, got {sorted(twice)} again"
                raise ValueError(msg)
            if missing := {*stage.taps} - known:
                msg = f"a stage reads {sorted(missing)}, which nothing gave before"
                raise ValueError(msg)
            known |= {*stage.formulas}

        given = {name for stage in self.stages for name in stage.formulas}
        if {*self.results} != {*self.fields} or not {*self.results.values()} <= given:
            msg = f"each of {self.fields} needs a stage that gives its new value: {self.results}"
            raise ValueError(msg)
        # Two fields must not share a result: their arrays are exchanged with it after the step.
        if len({*self.results.values()}) < len(self.fields):
            msg = f"each field has a new value of its own, got {dict(self.results)}"
            raise ValueError(msg)
        if self.substeps and not {*self.substeps.errors.values()} <= given:
            msg = f"no stage gives some of the errors {dict(self.substeps.errors)}"
            raise ValueError(msg)
        if missing := {name for name in self.ghosts if name not in self.boundaries}:
            msg = f"{sorted(missing)} are read beside their points and have no boundary"
            raise ValueError(msg)

    @property
    def is_local(self) -> bool:
        """Whether points read nothing but their neighbours and what is known beforehand; then many
        steps may be made at once.
        """
        return not self.reductions and not self.noises and not self.elliptic

    def stretches(self, begin: float, end: float) -> list[tuple[float, float]]:
        """Divide a span of time [s] where what is given over time bends or jumps."""
        known = [
            (it.values, NO_TIMES if it.knots is None else it.knots)
            for it in self.courses
            if callable(it.values)
        ]
        return stretches(known, begin, end)

    @functools.cached_property
    def parts(self) -> tuple[tuple[int, int], ...]:
        """Ranges of stages (start, stop) between which numbers of the whole grid are made and
        constraints solved; together all stages.
        """
        # A number is read by parameters of any later stage, so its array is reduced at once.
        whole = {*self.reductions, *(name for it in self.elliptic for name in it.read)}
        ends = [
            number + 1
            for number, stage in enumerate(self.stages[:-1])
            if stage.formulas.keys() & whole
        ]
        return tuple(itertools.pairwise((0, *ends, len(self.stages))))

    @functools.cached_property
    def ghosts(self) -> Mapping[str, tuple[int, ...]]:
        """Ghost width per axis of each name that is read at neighbouring points."""
        found: dict[str, tuple[int, ...]] = {}
        for stage in self.stages:
            for name in stage.taps:
                if name not in (self.coefficients or {}) and any(radii := stage.radii(name)):
                    found[name] = _largest(found.get(name, radii), radii)
        return found

    @functools.cached_property
    def margins(self) -> tuple[tuple[int, ...], ...]:
        """Points beyond its own on which a slab with neighbours computes each stage, per axis, such
        that later stages find all that they read.
        """
        return tuple(self._needs[stage] for stage in range(len(self.stages)))

    @functools.cached_property
    def reach(self) -> tuple[int, ...]:
        """Largest distance from its own points at which a slab reads anything in a step, per axis;
        more than `radii` where coefficients are read farther away than fields.
        """
        return functools.reduce(_largest, self._needs.values())

    def needs(self, name: str) -> tuple[int, ...]:
        """Return how many points beyond its own a slab needs of a name or a coefficient, per
        axis.
        """
        return self._needs[name]

    @functools.cached_property
    def radii(self) -> tuple[int, ...]:
        """Halo that a whole step uses up, per axis; it covers margins on which a stage is computed
        without reading fields there.
        """
        fields = [self._needs[name] for name in self.fields if name in self._needs]
        return functools.reduce(_largest, [*fields, *self.margins])

    @functools.cached_property
    def _needs(self) -> Mapping[str | int, tuple[int, ...]]:
        """Dependence widths per axis: by name, how far a slab needs it; by stage number, how far it
        computes.
        """
        ndim = len(next(offsets for it in self.stages for offsets in it.taps.values())[0])
        nothing = (0,) * ndim

        # Propagate backwards from the results: a stage is computed as far as any of its results is
        # needed, and reads its own radii farther.
        needs: dict[str | int, tuple[int, ...]] = dict.fromkeys(self.results.values(), nothing)
        for number, stage in reversed([*enumerate(self.stages)]):
            here = functools.reduce(_largest, [needs.get(it, nothing) for it in stage.formulas])
            needs[number] = here
            for name in stage.taps:
                wanted = tuple(a + b for a, b in zip(here, stage.radii(name), strict=True))
                needs[name] = _largest(needs.get(name, wanted), wanted)
        return needs

    @functools.cached_property
    def work(self) -> Mapping[str, int]:
        """Array number of each name that lives within a step only, neither field nor result; names
        that are not needed at the same time share an array.
        """
        # Linear-scan allocation over the stages, as registers are allocated in a compiler. Errors
        # live until after the last stage, where they are read.
        last = {name: k for k, stage in enumerate(self.stages) for name in stage.taps}
        if self.substeps is not None:
            last |= dict.fromkeys(self.substeps.errors.values(), len(self.stages))

        held: dict[int, int] = {}  # array -> the last stage that reads what it holds
        found: dict[str, int] = {}
        for number, stage in enumerate(self.stages):
            for name in stage.formulas:
                if name in self.results.values():
                    continue
                # An array is reused only after the last stage that reads it: within a stage,
                # neighbours may still be read when a point is written.
                free = [array for array, until in held.items() if until < number]
                found[name] = free[0] if free else len(held)
                held[found[name]] = last.get(name, number)
        return found

    @property
    def n_work(self) -> int:
        """Arrays that `work` needs, each of the size of a field."""
        return max(self.work.values(), default=-1) + 1

    @property
    def n_operations(self) -> int:
        """Arithmetic operations that a step makes per point, over all fields and stages."""
        instructions = [it for stage in self.stages for it in stage.programs.instructions]
        return sum(not it.is_given for it in instructions)

    @property
    def n_transfers(self) -> int:
        """Numbers that a step reads and writes per point if each stage is one pass over memory."""
        return sum(len(stage.taps) + len(stage.formulas) for stage in self.stages)

    def repeated(self, shape: tuple[int, ...]) -> Equations:
        """Extend the equations to a grid of any size by repeating their coefficients, of a grid of
        `shape`.
        """
        again = {name: repeated(it, shape) for name, it in (self.coefficients or {}).items()}
        return replace(self, coefficients=again, outside=frozenset())


def _largest(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(map(max, first, second))


def at_step(
    of_box: Callable[[Ranges, int], Numbers], step: int, start: tuple[int, float] = (0, 0.0)
) -> Callable[[Ranges], Numbers]:
    """Return a noise as it is in one step of a run with some start, as of `Problem.start`."""
    first, begun = start
    if first == 0 and begun > 0:
        # A run that goes on from another one counts its steps anew. Its numbers are named by the
        # time at which it begins, so that they are none of those that brought it there.
        step += int(np.float64(begun).view(np.uint64)) << 32
    return lambda box: of_box(box, step)


# Sums over all points, with the same bits for any division of the grid.
#
# Sums of floating-point numbers depend on their order, and sums of whole numbers do not. With 2^e
# above all magnitudes, a value is written in digits of 24 bits below 2^e, which are added up: 2^26
# of them are less than 2^53, so each sum is exact in any order. What lies below the last digit,
# 2^-73 of the largest magnitude, is dropped (the idea is that of J. Demmel, H. D. Nguyen, Parallel
# Reproducible Summation, IEEE Trans. Comput. 64 (2015) 2060).

_DIGITS, _BITS = 3, 24
_ROUNDS = 1.5 * 2.0**52  # a smaller number rounds to a whole one when this is added


def digit_sums(values: Any, exponent: int) -> tuple[int, ...]:
    """Return the sum of the numbers of an array, of magnitudes up to 2^exponent, by digits.

    >>> total(digit_sums(np.array([0.5, 1e16, -1e16]), 54), 54)
    0.5

    Args:
        values: at most 2^26, of NumPy or CuPy.
        exponent: the same for all parts of a sum.
    """
    # Powers of two change no digits, and the whole part of a number can be taken off exactly.
    half = exponent // 2  # 2^exponent itself may be too large for a number, or too small
    rest, found = values.astype(np.float64) * 2.0**-half * 2.0 ** (half - exponent), []
    for _ in range(_DIGITS):
        rest = rest * 2.0**_BITS
        whole = (rest + _ROUNDS) - _ROUNDS
        found.append(int(whole.sum()))
        rest = rest - whole
    return tuple(found)


def total(digits: Sequence[int], exponent: int) -> float:
    """Return the number that sums of digits stand for, rounded once."""
    whole = functools.reduce(lambda a, b: (a << _BITS) + b, digits)
    return math.ldexp(float(whole), exponent - _DIGITS * _BITS)


@dataclass(frozen=True, eq=False)
class Moving:
    """A body whose heat equations move: what it is like at rest, what crosses its faces, and
    what is around it.

    Attributes:
        conduction: through the body at rest.
        boundary: its ruled faces.
        flows: by axis, heat capacity that crosses the lower face of every cell upwards, and of the
            last one the upper face too: one plane more than the grid [W/K]; without coefficients
            over the volume of a cell [W/(m^3 K)].
        central: whether the temperature of a face is the mean of both sides, also where material
            leaves the domain.
        around: what else exchanges heat with its cells.
    """

    conduction: Conduction
    boundary: Boundary
    flows: tuple[Numbers, ...]
    central: bool
    around: Around = NOTHING_AROUND

    def entering(self, axis: int, side: Side, box: Ranges) -> Numbers:
        """Return the heat capacity that enters the outermost cells of a box through a face of the
        domain, below 0 where it leaves, in the units of `flows`.
        """
        plane = 0 if side == "low" else -1
        along = tuple(slice(*span) for k, span in enumerate(box) if k != axis)
        crossing = np.expand_dims(np.take(self.flows[axis], plane, axis)[along], axis)
        return np.asarray(crossing if side == "low" else -crossing)

    def carried(self, entering: Numbers, mirror: Any, ghost: Any) -> Numbers:
        """Return the heat, above 0 degC, that enters cells with what moves.

        Args:
            entering: heat capacity.
            mirror: temperature of the cells.
            ghost: temperature beyond the face, which has the mean of both.
        """
        face = (ghost + mirror) / 2
        leaving = face if self.central else mirror
        return np.asarray(np.maximum(entering, 0.0) * face + np.minimum(entering, 0.0) * leaving)
