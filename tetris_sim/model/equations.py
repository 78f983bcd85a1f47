"""Equations: a time step of several fields, as formulas of what lies around a point.

A time step is a few stages. A stage gives new values of some names at every point, from names that
are there already: the fields of the state, and what earlier stages gave. What it reads of a name is
a tap, the name with an offset in array order, u[0,-1]; taps beyond a face of the domain are ghosts,
which each name has by its own boundary. Stages of a Runge-Kutta method and operators of operators
are the same to whoever computes them. After the last stage every field takes the name that holds
its new value.

Beside taps a formula reads parameters, numbers of the time step that are the same at every point;
coefficients, taps of what differs from point to point and never changes; and the coordinates x, y,
z [m].
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from tetris_sim.model.boundary import Boundary
from tetris_sim.model.conduction import Numbers, Parameter, repeated
from tetris_sim.model.formula import Node, Variable, walk
from tetris_sim.model.program import Programs
from tetris_sim.model.slab import Ranges

Offset = tuple[int, ...]
_TAP = re.compile(r"(.+)\[(-?\d+(?:,-?\d+)*)\]")


def tap(name: str, offset: Sequence[int]) -> Variable:
    """The input that reads a name at an offset from the point, array order.

    >>> tap("u", (0, -1)).name
    'u[0,-1]'
    """
    return Variable(f"{name}[{','.join(str(shift) for shift in offset)}]")


def as_tap(text: str) -> tuple[str, Offset] | None:
    """Name and offset of an input; None if it is no tap.

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
        formulas: by the name that they give; no stage before gave it, and no formula of this stage
            reads it.
    """

    formulas: Mapping[str, Node]

    @functools.cached_property
    def programs(self) -> Programs:
        """The formulas in their order, as operations in one order for every device."""
        return Programs(tuple(self.formulas.values()))

    @functools.cached_property
    def taps(self) -> Mapping[str, tuple[Offset, ...]]:
        """What is read, by name, fields and coefficients alike."""
        found: dict[str, dict[Offset, None]] = {}
        for tree in self.formulas.values():
            for node in walk(tree):
                if isinstance(node, Variable) and (it := as_tap(node.name)) is not None:
                    found.setdefault(it[0], {})[it[1]] = None
        return {name: tuple(sorted(offsets)) for name, offsets in found.items()}

    def radii(self, name: str) -> tuple[int, ...]:
        """How far it reads a name, per axis; () if it does not."""
        offsets = self.taps.get(name, ())
        return tuple(max(abs(shift) for shift in along) for along in zip(*offsets, strict=True))


@dataclass(frozen=True, eq=False)
class Substeps:
    """A time step is made of as many shorter ones as their errors ask for.

    Attributes:
        errors: by field, the name of its error; it can be read when the last stage is done.
        order: power of a substep's length with which its error shrinks.
        tolerance: largest error of a substep, relative to the largest magnitude of the field.
        first: length of the first substep that is tried in a time step [s].
        numbers: the parameters of the equations, (n_parameters,), in a substep that begins at some
            time and has some length [s].
    """

    errors: Mapping[str, str]
    order: int
    tolerance: float
    first: float
    numbers: Callable[[float, float], Numbers]


@dataclass(frozen=True, eq=False)
class Equations:
    """A time step of several fields.

    Attributes:
        fields: names of the state, in the order of its arrays.
        stages: in the order in which they are computed.
        results: for each field the name that holds its new value after the last stage.
        boundaries: of each name that is read beside its point, its ghosts; an axis is periodic for
            all of them or for none. Faces are affine and do not change.
        parameters: numbers by time step, the same at every point: their code is 0.
        coefficients: by name, numbers of the points of a box of global indices; beyond the grid
            those of the mirror points.
        outside: coefficients that are not mirrored beyond the grid, but given for any box.
        substeps: how a step is divided, if errors say how; `parameters` are then for trials only,
            short enough for any state, and all that may change are functions of time.
    """

    fields: tuple[str, ...]
    stages: tuple[Stage, ...]
    results: Mapping[str, str]
    boundaries: Mapping[str, Boundary]
    parameters: tuple[Parameter, ...] = ()
    coefficients: Mapping[str, Callable[[Ranges], Numbers]] | None = None
    outside: frozenset[str] = frozenset()
    substeps: Substeps | None = None

    def __post_init__(self) -> None:
        known = {*self.fields, *(self.coefficients or {})}
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
        """Ghosts that names need per axis, of those that are read beside their points."""
        found: dict[str, tuple[int, ...]] = {}
        for stage in self.stages:
            for name in stage.taps:
                if name not in (self.coefficients or {}) and any(radii := stage.radii(name)):
                    found[name] = _largest(found.get(name, radii), radii)
        return found

    @functools.cached_property
    def margins(self) -> tuple[tuple[int, ...], ...]:
        """Points around its own on which a slab with neighbours computes each stage, per axis, so
        that later stages find all that they read.
        """
        return tuple(self._needs[stage] for stage in range(len(self.stages)))

    @functools.cached_property
    def reach(self) -> tuple[int, ...]:
        """How far from its own points a slab reads anything at all in a step, per axis; more than
        `radii` where coefficients are read farther away than fields.
        """
        return functools.reduce(_largest, self._needs.values())

    def needs(self, name: str) -> tuple[int, ...]:
        """Points around its own on which a slab needs a name or a coefficient, per axis."""
        return self._needs[name]

    @functools.cached_property
    def radii(self) -> tuple[int, ...]:
        """How far a whole step reaches per axis, the halo that it uses up; also where it computes
        beside its points without reading fields there.
        """
        fields = [self._needs[name] for name in self.fields if name in self._needs]
        return functools.reduce(_largest, [*fields, *self.margins])

    @functools.cached_property
    def _needs(self) -> Mapping[str | int, tuple[int, ...]]:
        """Points around its own that a slab needs of each name and computes in each stage."""
        ndim = len(next(offsets for it in self.stages for offsets in it.taps.values())[0])
        nothing = (0,) * ndim
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
        """Names that live within a step only, neither fields nor their new values, and which array
        of their own each has; names that are not needed at the same time share one.
        """
        last = {name: k for k, stage in enumerate(self.stages) for name in stage.taps}
        if self.substeps is not None:
            last |= dict.fromkeys(self.substeps.errors.values(), len(self.stages))
        held: dict[int, int] = {}  # array -> the last stage that reads what it holds
        found: dict[str, int] = {}
        for number, stage in enumerate(self.stages):
            for name in stage.formulas:
                if name in self.results.values():
                    continue
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
        """Operations on numbers that a step makes at a point, all fields and stages."""
        instructions = [it for stage in self.stages for it in stage.programs.instructions]
        return sum(not it.is_given for it in instructions)

    @property
    def n_transfers(self) -> int:
        """Numbers that a step reads and writes at a point, if each stage passes over memory."""
        return sum(len(stage.taps) + len(stage.formulas) for stage in self.stages)

    def repeated(self, shape: tuple[int, ...]) -> Equations:
        """The same on any grid: what lies on a grid of a shape, over and over again."""
        again = {name: repeated(it, shape) for name, it in (self.coefficients or {}).items()}
        return replace(self, coefficients=again, outside=frozenset())


def _largest(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(map(max, first, second))
