"""Problem: the mathematics of one simulation, independent of any machine."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.errors import ConfigError
from tetris_sim.model.boundary import SIDES, Boundary, Face, Side
from tetris_sim.model.conduction import (
    Conduction,
    Ids,
    RuledFace,
    padded,
    repeated,
)
from tetris_sim.model.equations import Equations, Moving, Rates, Substeps
from tetris_sim.model.grid import Grid
from tetris_sim.model.slab import Phases, RandomNumbers, Ranges, Slab
from tetris_sim.model.stencil import Stencil, star_mean
from tetris_sim.model.step_control import Signal

# Host array, (n_fields, n0[, n1[, n2]]), float64, float32 or float16.
Field = npt.NDArray[np.floating[Any]]
PRECISIONS = ("float64", "float32", "float16")  # that a state can have
# Storage type of a float64 as a pair of float32 on a GPU (`gpu_kernels/common/layout.py`,
# docs/decisions/0049). It never leaves the device: states elsewhere are float64.
PAIR = np.dtype(np.complex64)
PAIRS = "float32x2"  # the precision of a float64 that may be kept so
InitialField = Callable[[Slab], Field]  # owned points of a slab, (n_fields, *slab.shape)


@dataclass(frozen=True)
class RandomField:
    """An initial field of random numbers, which a device may also generate by itself.

    Attributes:
        values: the field in host memory.
        numbers: its generator parameters.
    """

    values: InitialField
    numbers: RandomNumbers

    def __call__(self, slab: Slab) -> Field:
        """Return the owned points of a slab, (1, *slab.shape)."""
        return self.values(slab)


def arithmetic_of(dtype: npt.DTypeLike) -> np.dtype[Any]:
    """Return the dtype in which a state of a given dtype is computed.

    >>> arithmetic_of("float16"), arithmetic_of("float64")
    (dtype('float32'), dtype('float64'))
    """
    return np.dtype(np.float32) if np.dtype(dtype) == np.float16 else np.dtype(dtype)


def state_dtype(precision: str) -> np.dtype[Any]:
    """Return the dtype of a state for a value of `compute.precision`.

    >>> state_dtype("float32x2"), state_dtype("float32")
    (dtype('float64'), dtype('float32'))
    """
    return np.dtype(np.float64 if precision == PAIRS else precision)


@dataclass(frozen=True)
class Total:
    """The physical meaning of the integral of a variable over the domain.

    Attributes:
        name: for example "heat".
        unit: for example "J/m" (per metre of depth in 2D).
        density: factor from the variable to the integrand, for example rho * c [J/(m^3 K)]; NaN
            where it varies in space.
    """

    name: str
    unit: str
    density: float


@dataclass(frozen=True)
class StateVariable:
    """Metadata of one field of the state, for readers of the output.

    Attributes:
        name: identifier in files, for example "temperature".
        unit: for example "degC"; "1" if it has none.
        long_name: for axis labels.
        total: meaning of its integral over the domain.
    """

    name: str
    unit: str
    long_name: str
    total: Total


@dataclass(frozen=True, eq=False)
class View:
    """The output variables of a state that is stored as another quantity.

    Attributes:
        variables: of the output, one per field of the result.
        look: from a box of global indices and the state there, (n_fields, ...), to the output
            variables, (n_variables, ...).
        keep: from the first of the variables back to the state, in a dtype; None if it does not
            determine the state.
    """

    variables: tuple[StateVariable, ...]
    look: Callable[[Ranges, Field], Field]
    keep: Callable[[InitialField, np.dtype[Any]], InitialField] | None = None


@dataclass(frozen=True)
class Problem:
    """u(t + dt) = a step applied to u(t), with ghosts from the boundary, `steps` times.

    Attributes:
        grid: the points.
        stencil: one time step; with `conduction` or `equations` only how far it reads
            (`star_mean`).
        boundary: conditions on the faces; with `conduction` each face is periodic or ruled, with
            `equations` it is that of the first field.
        initial: the state at time 0 as a function of a slab: (n_fields, *slab.shape). Restart
            passes another one.
        dt: time step [s].
        steps: number of steps of the whole run.
        dtype: float64, float32 or float16; of the state, and except for float16 (`arithmetic`) of
            weights and operations.
        variables: one per field.
        dt_limit: largest stable dt [s]; infinite where a time step has no meaning.
        conduction: one time step where it varies in space or time.
        equations: one time step of several fields or by formulas; without it and `conduction` the
            stencil is the whole step.
        view: output variables instead of the state; None for the state itself.
        start: a step and its time [s], from which on every step takes dt: not (0, 0.0) only for a
            run continued with another dt, and for a steady state, which is of time 0.
        continuous: whether a jump over steps follows the equation in time itself, of which a step
            of the stencil is one of Euler, instead of repeating this step.
        pairs: whether a GPU may compute float64 as pairs of float32, with 48 bits instead of 53.
        signals: what controllers decide while the run goes on, by their names; numbers of sources
            and faces.
        moving: the body whose heat the equations move, if they do.
        phases: of a run in which cells come and go: which problem follows which.
        phase: the number of this one.

    Raises:
        ValueError: parts disagree in axes, faces or fields, the grid is narrower than the stencil
            reaches, or dtype, dt or steps are out of range.
    """

    grid: Grid
    stencil: Stencil
    boundary: Boundary
    initial: InitialField
    dt: float
    steps: int
    dtype: np.dtype[Any]
    variables: tuple[StateVariable, ...]
    dt_limit: float = math.inf
    conduction: Conduction | None = None
    equations: Equations | None = None
    view: View | None = None
    start: tuple[int, float] = (0, 0.0)
    pairs: bool = False
    continuous: bool = False
    signals: Mapping[str, Signal] = field(default_factory=dict, compare=False, repr=False)
    moving: Moving | None = None
    phases: Phases | None = field(default=None, compare=False, repr=False)
    phase: int = 0

    def __post_init__(self) -> None:
        if not self.grid.ndim == self.stencil.ndim == self.boundary.ndim:
            msg = (
                f"grid, stencil and boundary must have the same number of axes, "
                f"got {self.grid.ndim}, {self.stencil.ndim} and {self.boundary.ndim}"
            )
            raise ValueError(msg)

        # With conduction every face that is not periodic has a rule; without it, none has.
        self._check_equations()
        ruled = [isinstance(face, RuledFace) for pair in self.boundary.faces for face in pair]
        joined = [self.boundary.periodic(axis) for axis in range(self.grid.ndim) for _ in SIDES]
        if any(ruled) if self.conduction is None else not all(map(max, ruled, joined)):
            msg = (
                "a problem with conduction has rules at all faces that are not periodic, one "
                f"without has none, got {self.boundary.faces}"
            )
            raise ValueError(msg)

        # A ghost mirrors an interior point, so the grid must hold as many points as the stencil
        # reaches.
        for axis, (n, radius) in enumerate(zip(self.grid.shape, self.stencil.radii, strict=True)):
            if n < radius:
                msg = (
                    f"the grid has {n} points along {self.grid.axis_names[axis]}, but the stencil "
                    f"reaches {radius}: it needs at least {radius}, so that every ghost point has "
                    "a mirror point"
                )
                raise ValueError(msg)

        # `PAIR` is accepted too: GPU steppers use a problem of that dtype internally.
        if np.dtype(self.dtype).name not in PRECISIONS and np.dtype(self.dtype) != PAIR:
            msg = (
                f"dtype must be {', '.join(PRECISIONS[:-1])} or {PRECISIONS[-1]}, got {self.dtype}"
            )
            raise ValueError(msg)

        if self.steps < 0 or not self.dt > 0:
            msg = f"steps must be 0 or more and dt positive, got {self.steps} and {self.dt}"
            raise ValueError(msg)

    def _check_equations(self) -> None:
        equations, names = self.equations, tuple(it.name for it in self.variables)
        if equations is None:
            return

        if self.conduction is not None or equations.fields != names:
            msg = (
                "a problem with equations has a variable for each of their fields and no "
                f"conduction, got {names} for {equations.fields}"
            )
            raise ValueError(msg)
        # `stencil` stands for the equations wherever only the halo width matters.
        if equations.radii != self.stencil.radii:
            msg = f"the equations reach {equations.radii}, the stencil {self.stencil.radii}"
            raise ValueError(msg)
        for name, boundary in equations.boundaries.items():
            for axis in range(self.grid.ndim):
                if boundary.periodic(axis) != self.boundary.periodic(axis):
                    msg = f"an axis is periodic for all fields or for none, {name} differs"
                    raise ValueError(msg)

    @property
    def n_fields(self) -> int:
        """Number of fields, the length of axis 0 of every state array."""
        return len(self.variables)

    @property
    def arithmetic(self) -> np.dtype[Any]:
        """The dtype of weights, ghost coefficients and sums: float32 if the state is float16, else
        that of the state.

        Stored values, points and ghosts alike, are then rounded to float16 once.
        """
        return arithmetic_of(self.dtype)

    @property
    def precision(self) -> str:
        """The precision as spelled in `compute.precision`."""
        return PAIRS if self.pairs else np.dtype(self.dtype).name

    @property
    def state_shape(self) -> tuple[int, ...]:
        """Shape of the whole state, (n_fields, n0, ...)."""
        return (self.n_fields, *self.grid.shape)

    @property
    def state_bytes(self) -> int:
        """Bytes of the whole state without ghosts."""
        return math.prod(self.state_shape) * np.dtype(self.dtype).itemsize

    @property
    def field_bytes(self) -> int:
        """Bytes of the whole state in an exported file: hardly any program reads float16, so it
        becomes float32.
        """
        return math.prod(self.seen.state_shape) * self.arithmetic.itemsize

    @property
    def seen(self) -> Problem:
        """The problem as written to output: with the variables of `view`, and of moving bodies the
        materials.
        """
        if self.view is None:
            return self.at_rest
        return replace(
            self.at_rest, variables=self.view.variables, initial=self.see(self.initial), view=None
        )

    @property
    def at_rest(self) -> Problem:
        """The problem with the conduction of a body that moves, instead of its equations."""
        if self.moving is None:
            return self
        body, faces = self.moving.conduction, self.moving.boundary
        star = star_mean(self.grid.ndim)
        return replace(self, equations=None, conduction=body, boundary=faces, stencil=star)

    def see(self, state: InitialField) -> InitialField:
        """Convert a state, as a function of slabs, to the variables of the output."""
        if (view := self.view) is None:
            return state
        return lambda slab: view.look(slab.spans, state(slab))

    @property
    def substeps(self) -> Substeps | None:
        """How a step is made of substeps, if the equations say so."""
        return None if self.equations is None else self.equations.substeps

    @property
    def is_adaptive(self) -> bool:
        """Whether a step is divided into substeps by their errors."""
        substeps = self.substeps is not None and self.substeps.adaptive
        return substeps or (self.rates is not None and self.rates.adaptive)

    @property
    def rates(self) -> Rates | None:
        """How right-hand sides are integrated, if the equations are those instead of a step."""
        return None if self.equations is None else self.equations.rates

    @property
    def why_not_one_stencil(self) -> str | None:
        """Reason why a method that makes the same step everywhere cannot do this problem, as a
        sentence; None if it can.
        """
        if self.equations is not None:
            return "it makes one linear step of one field, and this problem has equations"
        if self.conduction is None:
            return None
        return (
            "it makes the same step at every point, and this body has materials, sources or rules"
        )

    @property
    def why_not_substeps(self) -> str | None:
        """Reason why a method that does not keep the names of equations cannot do this problem, as
        a sentence; None if it can.
        """
        if self.substeps is None:
            return None
        if not self.system.is_local:
            return (
                "stages read numbers of the whole grid, noise or what is solved for, for which it "
                "does not stop"
            )
        return "steps follow the errors at all points (time.tolerance), which it does not keep"

    @property
    def why_not_temperatures(self) -> str | None:
        """Reason why a method that advances temperatures cannot do this problem, as a sentence;
        None if it can.
        """
        if self.conduction is None or self.conduction.enthalpy is None:
            return None
        return "it advances temperatures, and the state of this body is its heat content"

    def on_shape(self, shape: Sequence[int]) -> Problem:
        """Move the problem to a grid of another shape, with the same spacing and the same first
        point.

        On a larger grid, a body is repeated periodically beyond its own extent.
        """
        grid = self.grid.on_shape(shape)
        old = self.grid.shape

        # Cutting needs nothing: materials and coefficients are functions of global indices.
        if all(n <= m for n, m in zip(shape, old, strict=True)):
            return replace(self, grid=grid)
        # A larger grid asks for indices beyond the body, which therefore repeats, as its state
        # does.
        larger = replace(self, grid=grid, initial=_initial_again(self.initial, old))
        if self.equations is not None:
            return replace(larger, equations=self.equations.repeated(old))
        if self.conduction is None:
            return larger
        faces = [tuple(_repeated(face, old) for face in pair) for pair in self.boundary.faces]
        boundary = Boundary(tuple((low, high) for low, high in faces))
        return replace(larger, boundary=boundary, conduction=self.conduction.repeated(old))

    def time(self, step: int) -> float:
        """Return the simulated time after `step` steps [s], from `start` on; never accumulated, so
        it does not drift.
        """
        first, begun = self.start
        return begun + (step - first) * self.dt

    def at(self, step: int) -> Problem:
        """Return the problem of the phase of the step that begins at `step`; of another phase than
        this one its initial field is of what comes in it.
        """
        phases = self.phases
        number = 0 if phases is None else phases.at(self.time(step), self.dt)
        if phases is None or number == self.phase:
            return self
        made: Problem = phases.make(number)
        return replace(made, start=self.start, steps=self.steps)

    @property
    def changes(self) -> tuple[int, ...]:
        """The steps at which cells come or go, ascending, from `start` on."""
        (first, begun), times = self.start, () if self.phases is None else self.phases.begins[1:]
        steps = (first + round((it - begun) / self.dt) for it in times)
        return tuple(it for it in steps if it > first)

    def next_change(self, step: int) -> int | None:
        """Smallest step greater than `step` at which cells may come or go; None for never."""
        found = [it for it in self.changes if it > step]
        if self.phases is not None and (look := self.phases.next_look(self, step)) is not None:
            found.append(look)
        return min(found, default=None)

    def voids(self, box: Ranges) -> npt.NDArray[np.bool_] | None:
        """Return the mask of the points of a box inside the grid where there is nothing; None if
        there is something everywhere.
        """
        medium = self.conduction and self.conduction.medium
        return medium.void[medium.ids(box)] if medium and medium.void is not None else None

    @property
    def body(self) -> Conduction:
        """The conduction of a problem that has one."""
        assert self.conduction is not None
        return self.conduction

    @property
    def system(self) -> Equations:
        """The equations of a problem that has them."""
        assert self.equations is not None
        return self.equations

    @property
    def knots(self) -> npt.NDArray[np.float64]:
        """States at which something in the body bends; none of problems without curves."""
        it = None if self.conduction is None else self.conduction.enthalpy
        knots = np.empty(0) if it is None else it.knots
        return np.asarray(knots[np.isfinite(knots)], np.float64)

    def padded_ids(self, box: Ranges) -> Ids:
        """Return the material ids of a box that may reach beyond the grid; see `padded`."""
        periodic = [self.boundary.periodic(axis) for axis in range(self.grid.ndim)]
        return padded(self.body.medium.ids, box, self.grid.shape, periodic)

    def ways(self, axis: int, box: Ranges) -> npt.NDArray[np.float64]:
        """Return what kernels read of the upper faces of a box, where coefficients give it: the
        conductance, (..., 1); of enthalpies (..., 3): that by potential, or between materials the
        contact R with the other sign, c of the half cells below and above, and any radiance.
        """
        given, enthalpy = self.body.coefficients, self.body.enthalpy
        assert given
        between = given.conductance(axis, box)
        if not enthalpy:
            return between[..., None]
        low, high = box[axis]
        upwards = (*box[:axis], (low + 1, high + 1), *box[axis + 1 :])
        kinds, above = (enthalpy.kinds[self.padded_ids(it)] for it in (box, upwards))
        found = np.roll(given.series(axis, box), 1, -1)
        found[..., 0] = np.where(kinds == above, between, -found[..., 0])
        more = (given.radiance(axis, box)[..., None],) if enthalpy.radiates else ()
        return np.concatenate([found, *more], axis=-1)

    @property
    def n_ways(self) -> int:
        """Numbers of a face in `ways`, for each axis."""
        return 1 if (it := self.body.enthalpy) is None else 3 + it.radiates

    def padded_coefficient(self, name: str, box: Ranges) -> npt.NDArray[np.float64]:
        """Return a coefficient of the equations in a box of global indices that may reach beyond
        the grid; see `padded`.
        """
        assert self.equations is not None
        assert self.equations.coefficients is not None
        # Such a coefficient is a function of any box, on either side of a face.
        if name in self.equations.outside:
            return np.asarray(self.equations.coefficients[name](box), np.float64)
        periodic = [self.boundary.periodic(axis) for axis in range(self.grid.ndim)]
        return padded(self.equations.coefficients[name], box, self.grid.shape, periodic)

    def around(self, of_box: Callable[[Ranges], npt.NDArray[Any]], box: Ranges) -> npt.NDArray[Any]:
        """Return what a function of boxes of the grid gives in one that may reach beyond it."""
        periodic = [self.boundary.periodic(axis) for axis in range(self.grid.ndim)]
        return padded(of_box, box, self.grid.shape, periodic)

    def stored_ids(self, box: Ranges) -> Ids:
        """Return the ids of the values that a kernel's state array holds in a box as of
        `padded_ids`. With enthalpy, ghosts beyond ruled faces are potentials, and their ids are
        larger by n_ids.
        """
        ids, conduction = self.padded_ids(box), self.body
        if conduction.enthalpy is None:
            return ids
        n_ids = conduction.medium.n_ids

        # The id type may be too narrow for twice as many ids.
        ids = ids.astype(np.result_type(ids.dtype, np.min_scalar_type(2 * n_ids - 1)))
        beyond = np.zeros(ids.shape, np.bool_)
        # A point is a ghost if it lies outside along any axis that is not periodic.
        for axis, ((low, high), n) in enumerate(zip(box, self.grid.shape, strict=True)):
            if not self.boundary.periodic(axis):
                along = np.arange(low, high)
                outside = (along < 0) | (along >= n)
                beyond |= outside.reshape([-1 if k == axis else 1 for k in range(ids.ndim)])
        ids[beyond] += ids.dtype.type(n_ids)
        return ids

    def ruled_face(self, axis: int, side: Side) -> RuledFace:
        """Return the rule at a face that is not periodic, of a problem with conduction."""
        face = self.boundary.faces[axis][SIDES.index(side)]
        assert isinstance(face, RuledFace)
        return face


def _initial_again(initial: InitialField, shape: tuple[int, ...]) -> InitialField:
    # `repeated` cuts the leading axes of an array, so the fields are its last one meanwhile.
    last = repeated(lambda box: np.moveaxis(initial(Slab.box(box)), 0, -1), shape)
    return lambda slab: np.moveaxis(last(slab.spans), -1, 0)


def _repeated(face: Face, shape: tuple[int, ...]) -> Face:
    if not isinstance(face, RuledFace) or face.patches is None:
        return face
    return replace(face, patches=repeated(face.patches, shape))


def as_array(name: str, values: npt.ArrayLike) -> npt.NDArray[Any]:
    """Values as an array; masked ones are refused, since what lies behind a mask is no data.

    Raises:
        ConfigError: a value is masked.
    """
    if np.ma.is_masked(values):
        masked = int(np.asarray(np.ma.getmask(values)).sum())
        msg = (
            f"{name} is an array in which {masked} values are masked, and a "
            "mask has no meaning here; give numbers for them, for example with .filled(20.0)"
        )
        raise ConfigError(msg)
    return np.asarray(values)


def stays(before: Problem, after: Problem, box: Ranges) -> npt.NDArray[np.bool_]:
    """Return which points of a box keep their state when one phase follows another: those that show
    the same region, and are not held.
    """
    one, other = (it.body.medium.regions for it in (before, after))
    assert one
    assert other
    return np.asarray((one.read(box) == other.read(box)) & ~after.body.held(box))


@dataclass(frozen=True, eq=False)
class Passage:
    """The way of heat between points and their neighbours along an axis.

    Attributes:
        between: conductance; of enthalpies that by potential.
        series: of enthalpies between materials, c of both half cells, this one first, to be divided
            by their conductivities, the contact R, and any radiance; else empty.
    """

    between: npt.NDArray[Any]
    series: tuple[npt.NDArray[Any], ...] = ()

    def at(self, where: Any) -> Passage:
        """Return the passage of some of the faces."""
        return Passage(self.between[where], tuple(it[where] for it in self.series))

    @property
    def back(self) -> Passage:
        """The same way as the neighbours see it."""
        return Passage(self.between, (*self.series[1::-1], *self.series[2:]))


def passage(
    problem: Problem, axis: int, faces: Ranges, ids: Ids, beside: Ids, side: Side
) -> Passage:
    """Return the way between points and their neighbours along an axis.

    Args:
        problem: whose points.
        axis: which axis, array order.
        faces: the cells whose upper faces lie between, global indices.
        ids: of the points.
        beside: of their neighbours; of ghosts, those of the mirrors.
        side: on which the neighbours lie.
    """
    conduction = problem.body
    enthalpy, given = conduction.enthalpy, conduction.coefficients
    between = conduction.between(axis, faces, ids, beside)
    if not enthalpy:
        return Passage(between)
    if given:
        more = (given.radiance(axis, faces),) if enthalpy.radiates else ()
        found = Passage(between, (*np.moveaxis(given.series(axis, faces), -1, 0), *more))
        return found if side == "high" else found.back
    half, contact = enthalpy.half[axis], enthalpy.contact[axis][ids, beside]
    series = (half[ids], half[beside], contact, enthalpy.radiance[axis][ids, beside])
    return Passage(between, series[: 3 + enthalpy.radiates])
