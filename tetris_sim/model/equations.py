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
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from tetris_sim.model.boundary import Boundary
from tetris_sim.model.conduction import Numbers, Parameter, repeated
from tetris_sim.model.formula import Node, Variable, walk
from tetris_sim.model.program import Programs
from tetris_sim.model.slab import Ranges

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


@dataclass(frozen=True, eq=False)
class Substeps:
    """Adaptive time stepping: how to divide a step into substeps by error control.

    Attributes:
        errors: by field, the name of its error; it can be read when the last stage is done.
        order: power of a substep's length with which its error shrinks.
        tolerance: largest error of a substep, relative to the largest magnitude of the field.
        first: length of the first substep that is tried in a time step [s].
        numbers: from begin and length of a substep [s] to the parameters of the equations,
            (n_parameters,).
    """

    errors: Mapping[str, str]
    order: int
    tolerance: float
    first: float
    numbers: Callable[[float, float], Numbers]


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
