"""Thermal diffusion as a function on arrays: the interface of the Tetris paper's figure 15.

Where the paper has `m_out = Tetris_mix(m_in, times, kernels)`, this is `u = thermal_diffusion(u0,
steps, stencil)`. The steps are made by the same plan and the same run loop as those of a
configuration; for outputs, checkpoints and physical materials use a configuration (`make_config` or
`load_config`).
"""

from __future__ import annotations

import contextlib
import functools
import math
import numbers
import operator
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.apps.domain import check_fluxes, check_numbers, is_unstable
from tetris_sim.apps.heat.rules import Surface, flowing, held, join
from tetris_sim.apps.stencil import heat_operator
from tetris_sim.apps.time_functions import TimeFunction
from tetris_sim.config.sections.schema import ComputeSection
from tetris_sim.errors import ConfigError, NumericsError, UnstableStepError
from tetris_sim.model import reference
from tetris_sim.model.boundary import Boundary, Dirichlet, Face, Fixed, Neumann, Robin
from tetris_sim.model.conduction import (
    Conduction,
    Ids,
    Medium,
    Numbers,
    Parameter,
    Rule,
    in_series,
)
from tetris_sim.model.formula import Constant, Variable
from tetris_sim.model.grid import Grid
from tetris_sim.model.problem import PRECISIONS, Field, Problem, StateVariable, Total, as_array
from tetris_sim.model.program import Program
from tetris_sim.model.slab import Ranges, Slab
from tetris_sim.model.stencil import Stencil, euler_step, largest_stable_dt, star_mean
from tetris_sim.model.stencils.catalogue import laplacian_names
from tetris_sim.scheduler.facts.shares import Plan
from tetris_sim.scheduler.machine.machine import find_machine
from tetris_sim.scheduler.planner import make_plan, plan_rates
from tetris_sim.simulation.driving import reading
from tetris_sim.simulation.loop import Simulation, open_simulation

_SMALL = 16 << 20  # bytes of a state whose plan is kept: memory is no question then
_MOST_PLANS = 64
_PLANS: dict[Hashable, Plan] = {}
_USUAL = 0.92  # of the stability limit: 0.23 for heat-2d, the CFL number of the paper


def thermal_diffusion(
    field: npt.ArrayLike,
    steps: int,
    stencil: str | Stencil | None = None,
    *,
    cfl: float | None = None,
    diffusivity: float | None = None,
    dt: float | None = None,
    spacing: float | Sequence[float] = 1.0,
    boundary: Boundary | Face | None = None,
    dtype: npt.DTypeLike | None = None,
    method: str = "auto",
    threads: int | None = None,
    materials: npt.ArrayLike | None = None,
    conductivity: npt.ArrayLike | None = None,
    capacity: npt.ArrayLike | None = None,
    sources: npt.ArrayLike | None = None,
) -> Field:
    """Let heat spread through `field` for a number of steps.

    >>> import numpy as np
    >>> from tetris_sim import Periodic, thermal_diffusion
    >>> spot = np.zeros((64, 96))
    >>> spot[32, 48] = 100.0
    >>> u = thermal_diffusion(spot, 200, boundary=Periodic())
    >>> u.shape, bool(abs(u.sum() - 100.0) < 1e-9)
    ((64, 96), True)

    Args:
        field: temperatures at the start, (n0,), (n0, n1) or (n0, n1, n2), finite real numbers. It
            is not changed.
        steps: how many time steps, 0 or more.
        stencil: which Laplacian, by name: heat-1d, star-1d5p; heat-2d, star-2d9p, star-2d13p,
            box-2d9p; heat-3d, box-3d27p. If not given, the 3, 5 or 7 points that fit the array. Or
            a `Stencil`, which is then one whole step as it is, for example
            `named_stencil("box-2d25p").stencil`: then no cfl, diffusivity or dt.
        cfl: diffusivity * dt / (smallest spacing)^2 of a step. If neither it nor diffusivity and dt
            are given, 0.92 of the largest stable number, which is 0.23 for heat-2d.
        diffusivity: instead of cfl, with dt [m^2/s].
        dt: instead of cfl, with diffusivity: the time step [s].
        spacing: distance between points [m], one number or one per axis of the array.
        boundary: what holds on the faces: a `Boundary` with faces in the order of the array's axes,
            or one of Dirichlet, Fixed, Neumann, Robin, Periodic for every face. Insulated,
            `Neumann()`, if not given.
        dtype: float64, float32 or float16; if nothing is given float64, or float32 for a `field` of
            float32. float16 is never chosen unasked.
        method: one of the methods that `tetris-sim doctor` lists; the fastest if not given.
        threads: CPU threads to use; all that this process may use if not given.
        materials: for a body of several: which one each point is of, an array of the shape of
            `field`, counted from 0. It, `sources` and the two below go without stencil, cfl and
            diffusivity; a flux through a face is then one into the points beside it, in W/m^2.
        conductivity: of each material, or along each axis (ndim, materials) [W/(m K)].
        capacity: density * specific heat of each material [J/(m^3 K)].
        sources: what heats each point [W/m^3], an array of the shape of `field`.

    Returns:
        The temperatures after `steps` steps, a new array of the shape of `field`.

    Raises:
        ConfigError: arguments that do not fit together.
        UnstableStepError: the step is larger than the largest stable one.
        NumericsError: `field` or the result holds NaN or infinity.
        UnsupportedError: there is not enough memory, or no method can do it.
    """
    state = checked_field(field, dtype)
    grid = spaced_grid(state.shape, spacing)
    faces = boundary_of(boundary, grid.ndim)
    body = {
        "materials": materials,
        "conductivity": conductivity,
        "capacity": capacity,
        "sources": sources,
    }
    if any(part is not None for part in body.values()):
        given = {"stencil": stencil, "cfl": cfl, "diffusivity": diffusivity}
        _refuse_beside_body([name for name, part in given.items() if part is not None])
        problem = body_problem(state, grid, faces, dt, counted("steps", steps), **body)
    else:
        step, dt_taken = _make_step(stencil, grid, cfl=cfl, diffusivity=diffusivity, dt=dt)
        problem = _make_problem(state, grid, step, faces, (dt_taken, counted("steps", steps)))
    result: Field = run_problem(problem, method, threads)[0]
    return result


def run_problem(problem: Problem, method: str, threads: int | None) -> Field:
    """The state after all steps, (n_fields, n0, ...)."""
    compute = ComputeSection(
        method=method, threads="auto" if threads is None else counted("threads", threads, 1)
    )
    with open_simulation(problem, _plan(problem, compute)) as simulation:
        simulation.run()
        return simulation.field()


def _plan(problem: Problem, compute: ComputeSection) -> Plan:
    """The plan; of a small problem that of an earlier call for an equal one, but for the field."""
    if problem.rates is not None:
        return plan_rates(problem, find_machine(), compute)
    if problem.conduction is not None or problem.equations is not None:
        return make_plan(problem, find_machine(), compute)
    if problem.state_bytes > _SMALL:
        return make_plan(problem, find_machine(), compute)

    asked = (compute.method, compute.threads, problem.dtype.name, problem.steps, problem.dt)
    key = (problem.grid, problem.stencil, problem.boundary, *asked)
    if key not in _PLANS:
        if len(_PLANS) >= _MOST_PLANS:
            _PLANS.clear()
        _PLANS[key] = make_plan(problem, find_machine(), compute)
    return _PLANS[key]


def _refuse_beside_body(given: Sequence[str]) -> None:
    if given:
        msg = (
            f"{' and '.join(given)} and materials, conductivity, capacity or sources are given; a "
            "body follows from its own numbers"
        )
        raise ConfigError(msg)


def body_problem(
    state: Field,
    grid: Grid,
    boundary: Boundary,
    dt: float | None,
    steps: int,
    *,
    materials: npt.ArrayLike | None = None,
    conductivity: npt.ArrayLike | None = None,
    capacity: npt.ArrayLike | None = None,
    sources: npt.ArrayLike | None = None,
) -> Problem:
    """The problem of a body of arrays; arguments as those of `thermal_diffusion`."""
    if conductivity is None or capacity is None:
        msg = "materials and sources need the conductivity and the capacity of each material"
        raise ConfigError(msg)
    conduction, k = make_conduction(grid, materials, conductivity, capacity, sources)
    limit = stable_step(conduction, grid, [boundary.periodic(axis) for axis in range(grid.ndim)])
    taken = _USUAL * limit if dt is None else positive("dt", dt)
    if is_unstable(taken, limit):
        msg = f"dt = {taken:.6g} s is unstable: the largest stable step is {limit:.6g} s"
        raise UnstableStepError(msg)

    faces = rule_faces(boundary, grid, k)
    plain = _make_problem(state, grid, star_mean(grid.ndim), boundary, (taken, steps))
    return replace(plain, boundary=faces, conduction=conduction, dt_limit=limit)


def checked_field(field: npt.ArrayLike, dtype: npt.DTypeLike | None) -> Field:
    """The field in the dtype wanted; raises if it is not 1, 2 or 3 axes of finite numbers."""
    given = as_array("field", field)
    if given.dtype.kind not in "fiub" or not 1 <= given.ndim <= 3 or given.size == 0:
        msg = (
            f"field is an array of shape {given.shape} of {given.dtype}; 1, 2 or 3 axes of real "
            "numbers are wanted"
        )
        raise ConfigError(msg)

    wanted = given.dtype if given.dtype == np.float32 else np.dtype(np.float64)
    if dtype is not None:
        try:
            wanted = np.dtype(dtype)
        except TypeError:
            wanted = np.dtype(object)
    if wanted.name not in PRECISIONS:
        msg = f"dtype is {dtype}; {', '.join(PRECISIONS[:-1])} or {PRECISIONS[-1]} is wanted"
        raise ConfigError(msg)

    with np.errstate(over="ignore"):
        state = given.astype(wanted, copy=False)
    if not np.isfinite(state).all():
        place = tuple(int(i) for i in np.argwhere(~np.isfinite(state))[0])
        msg = f"field{list(place)} is {state[place]} in {wanted}; every value must be finite"
        raise NumericsError(msg)
    return state


def spaced_grid(shape: tuple[int, ...], spacing: float | Sequence[float]) -> Grid:
    """The grid of an array; its first point lies half a spacing from 0."""
    lengths = tuple(float(h) for h in np.atleast_1d(np.asarray(spacing, dtype=np.float64)))
    if len(lengths) == 1:
        lengths *= len(shape)
    if len(lengths) != len(shape):
        msg = (
            f"spacing has {len(lengths)} entries, but field has {len(shape)} axes; give one number "
            "or one per axis"
        )
        raise ConfigError(msg)
    try:
        return Grid(shape=shape, spacing=lengths, origin=tuple(h / 2 for h in lengths))
    except ValueError as error:
        raise ConfigError(str(error)) from error


def _make_step(
    stencil: str | Stencil | None,
    grid: Grid,
    *,
    cfl: float | None,
    diffusivity: float | None,
    dt: float | None,
) -> tuple[Stencil, float]:
    """One time step and how long it is [s]."""
    timing = {"cfl": cfl, "diffusivity": diffusivity, "dt": dt}
    given = [name for name, value in timing.items() if value is not None]
    if isinstance(stencil, Stencil):
        _refuse_as_step(stencil, grid, given)
        return stencil, 1.0
    _refuse_as_laplacian(stencil, grid, given)

    # In units of a CFL number of 1, as the operator is.
    operator, smallest = heat_operator(stencil, grid.spacing), min(grid.spacing)
    speed = 1.0 if diffusivity is None else positive("diffusivity", diffusivity)
    limit, unit = largest_stable_dt(operator), smallest * smallest / speed
    number = _USUAL * limit if cfl is None else positive("cfl", cfl)
    if dt is not None:
        number = positive("dt", dt) / unit if unit > 0 else math.inf

    if is_unstable(number, limit):
        msg = (
            f"a CFL number of {number:.6g} is unstable: the largest stable one of this stencil and "
            f"spacing is {limit:.6g} (dt = {limit * unit:.6g} s)"
        )
        raise UnstableStepError(msg)
    return euler_step(operator, number), number * unit


def _refuse_as_step(stencil: Stencil, grid: Grid, given: Sequence[str]) -> None:
    """Raise for a stencil that is no whole step of this grid; `given` says how long it is to be."""
    if given:
        msg = (
            f"{' and '.join(given)} mean nothing for a Stencil, which is one whole step; name "
            "a Laplacian instead"
        )
        raise ConfigError(msg)
    if stencil.ndim != grid.ndim:
        msg = f"the stencil has {stencil.ndim} axes, but field has {grid.ndim}"
        raise ConfigError(msg)


_ALONE = ("by itself does not say how long a step is", "are given")


def _refuse_as_laplacian(name: str | None, grid: Grid, given: Sequence[str]) -> None:
    """Raise for a name that is no Laplacian of this grid, or a step without one certain length."""
    if given not in ([], ["cfl"], ["diffusivity", "dt"]):
        msg = (
            f"{' and '.join(given)} {_ALONE[len(given) > 1]}; give cfl alone, or diffusivity and "
            "dt, or none of them"
        )
        raise ConfigError(msg)
    names = laplacian_names(grid.ndim)
    if name is not None and name not in names:
        msg = (
            f"stencil {name!r} is no Laplacian for {grid.ndim} axes; those are "
            f"{', '.join(names)}. Another stencil is given as a Stencil, for example "
            "named_stencil(name).stencil"
        )
        raise ConfigError(msg)


def boundary_of(boundary: Boundary | Face | None, ndim: int) -> Boundary:
    """Return the conditions on all faces; faces without one are insulated."""
    if boundary is not None and not isinstance(boundary, Boundary | Face):
        msg = (
            f"boundary is {boundary!r}; a Boundary, or one of Dirichlet, Fixed, Neumann, Robin, "
            "Periodic is wanted"
        )
        raise ConfigError(msg)

    if not isinstance(boundary, Boundary):
        return Boundary.everywhere(boundary or Neumann(), ndim)
    if boundary.ndim != ndim:
        msg = (
            f"boundary has {boundary.ndim} axes, but field has {ndim}; give a pair of faces per "
            "axis of the array"
        )
        raise ConfigError(msg)
    return boundary


def _make_problem(
    state: Field, grid: Grid, step: Stencil, boundary: Boundary, time: tuple[float, int]
) -> Problem:
    def initial(slab: Slab) -> Field:
        owned = tuple(slice(start, stop) for start, stop in zip(slab.start, slab.stop, strict=True))
        return state[owned][np.newaxis]

    check_fluxes(step, boundary, grid)
    check_numbers(step, boundary, grid, state.dtype)
    total = Total("integral", f"degC m^{grid.ndim}" if grid.ndim > 1 else "degC m", 1.0)
    try:
        return Problem(
            grid=grid,
            stencil=step,
            boundary=boundary,
            initial=initial,
            dt=time[0],
            steps=time[1],
            dtype=state.dtype,
            variables=(StateVariable("temperature", "degC", "temperature", total),),
        )
    except ValueError as error:
        raise ConfigError(str(error)) from error


def positive(name: str, number: Any) -> Any:
    """The number, if it is greater than 0 and finite."""
    if not (isinstance(number, numbers.Real) and float(number) > 0 and math.isfinite(number)):
        msg = f"{name} is {number}; a finite number greater than 0 is wanted"
        raise ConfigError(msg)
    return number


def counted(name: str, number: Any, least: int = 0) -> int:
    """The number, if it is a whole one and large enough."""
    try:
        count = operator.index(number)
    except TypeError:
        count = -1
    if count < least:
        msg = f"{name} is {number}; a whole number, {least} or more, is wanted"
        raise ConfigError(msg)
    return count


# A body given as arrays: the material and the heat of every point, and faces of numbers.

_MOST_IDS = 2048


def make_conduction(
    grid: Grid,
    materials: npt.ArrayLike | None,
    conductivity: npt.ArrayLike,
    capacity: npt.ArrayLike,
    sources: npt.ArrayLike | None = None,
) -> tuple[Conduction, Numbers]:
    """A body of arrays, and the conductivity along each axis by id, (ndim, n_ids).

    Args:
        grid: where points lie.
        materials: the material of each point, of the grid's shape, counted from 0; None for one.
        conductivity: of each material, (n,), or along each axis of the array, (ndim, n) [W/(m K)].
        capacity: density * specific heat of each material, (n,) [J/(m^3 K)].
        sources: what heats each point, of the grid's shape [W/m^3].

    Raises:
        ConfigError: arrays that do not fit together, or numbers that are not positive.
    """
    k, c = (
        np.array(as_array(name, numbers), np.float64, ndmin=1)
        for name, numbers in (("conductivity", conductivity), ("capacity", capacity))
    )
    k = np.broadcast_to(k, (grid.ndim, len(c))) if k.shape[-1] == len(c) else k
    if c.ndim != 1 or k.shape != (grid.ndim, len(c)):
        msg = (
            f"conductivity has the shape {np.shape(conductivity)} and capacity {c.shape}; one "
            f"number per material, or conductivity ({grid.ndim}, materials), is wanted"
        )
        raise ConfigError(msg)
    for name, values in (("conductivity", k), ("capacity", c)):
        if not (np.isfinite(values).all() and (values > 0).all()):
            msg = f"{name} is {values.tolist()}; every number must be finite and greater than 0"
            raise ConfigError(msg)

    material = (
        np.zeros(grid.shape, np.int64) if materials is None else as_array("materials", materials)
    )
    heat = (
        np.zeros(grid.shape) if sources is None else as_array("sources", sources).astype(np.float64)
    )
    for name, array in (("materials", material), ("sources", heat)):
        if array.shape != grid.shape:
            msg = f"{name} has the shape {array.shape}; that of field, {grid.shape}, is wanted"
            raise ConfigError(msg)
    if material.dtype.kind not in "iu" or not ((material >= 0) & (material < len(c))).all():
        msg = f"materials are whole numbers from 0 to {len(c) - 1}, as capacity lists them"
        raise ConfigError(msg)
    if not np.isfinite(heat).all():
        msg = "sources must be finite"
        raise ConfigError(msg)
    return _conduction(grid, material, heat, (k, c))


def _conduction(
    grid: Grid, material: npt.NDArray[np.integer], heat: Numbers, own: tuple[Numbers, Numbers]
) -> tuple[Conduction, Numbers]:
    """An id for each pair of material and heat."""
    powers, number = np.unique(heat, return_inverse=True)
    pairs, ids = np.unique(
        material.reshape(-1).astype(np.int64) * len(powers) + number.reshape(-1),
        return_inverse=True,
    )
    if len(pairs) > _MOST_IDS:
        msg = (
            f"materials and sources make {len(pairs)} different kinds of points; at most "
            f"{_MOST_IDS} are possible"
        )
        raise ConfigError(msg)
    of_id, power_of_id = pairs // len(powers), powers[pairs % len(powers)]
    kept: Ids = ids.reshape(grid.shape).astype(np.uint8 if len(pairs) <= 256 else np.uint16)

    def cut(box: Ranges) -> Ids:
        return kept[tuple(slice(*span) for span in box)]

    k, c = own
    medium = Medium(
        ids=cut,
        conductance=np.stack(
            [in_series(h, along[of_id]) for h, along in zip(grid.spacing, k, strict=True)]
        ),
        capacity=c[of_id],
        names=tuple(f"material {n}" for n in of_id),
    )
    rule = Rule(Program(Variable("q")), (Parameter("q", power_of_id),))
    return Conduction(medium, rule if heat.any() else None), k[:, of_id]


def rule_faces(boundary: Boundary, grid: Grid, k: Numbers) -> Boundary:
    """The same faces as rules; heat flows by the conductivity of the points beside them.

    Args:
        boundary: faces of numbers.
        grid: where points lie.
        k: conductivity along each axis by id, (ndim, n_ids) [W/(m K)].
    """

    def ruled(face: Face, axis: int) -> Face:
        surface = Surface(grid.spacing[axis], k[axis], {})
        match face:
            case Dirichlet(value):
                rules = [held(_number(value), surface)]
            case Fixed(value):
                rules = [held(_number(value), surface, on_ghost=True)]
            case Neumann(flux=flux):
                rules = [flowing(surface, flux=[_number(flux)])]
            case Robin(h=h, ambient=ambient):
                rules = [flowing(surface, h=_number(h), ambient=_number(ambient))]
            case _:
                return face
        return join(rules, None, axis, k.shape[1])

    pairs = [
        (ruled(low, axis), ruled(high, axis)) for axis, (low, high) in enumerate(boundary.faces)
    ]
    return Boundary(tuple(pairs))


def _number(value: float) -> TimeFunction:
    return TimeFunction(Constant(float(value)))


def stable_step(conduction: Conduction, grid: Grid, periodic: Sequence[bool]) -> float:
    """The largest stable time step [s]: the least capacity over the sum of conductances around."""
    medium = conduction.medium
    whole = tuple((0, n) for n in grid.shape)
    ids = medium.ids(whole)
    total = np.zeros(grid.shape)
    for axis, ring in enumerate(periodic):
        edge = np.pad(
            ids,
            [(1, 1) if k == axis else (0, 0) for k in range(grid.ndim)],
            mode="wrap" if ring else "edge",
        )
        for shift in (0, 2):
            beside = np.moveaxis(
                np.moveaxis(edge, axis, 0)[shift : shift + ids.shape[axis]], 0, axis
            )
            total += medium.conductance[axis][ids, beside]
    return float((medium.capacity[ids] / total).min())


# Steps: with NumPy, or by the plan and the kernels of any run.


class Steps:
    """Makes steps of a problem from any state at any step."""

    def __init__(self, problem: Problem, simulation: Simulation | None) -> None:
        self._problem, self._simulation = problem, simulation

    def advance(self, state: Field, first: int, steps: int) -> Field:
        """The state so many steps later.

        Raises:
            NumericsError: it is not finite.
        """
        if steps == 0:
            return state

        # Loaded as it is: `set_field` would look at every number, which takes as long as a step.
        if (simulation := self._simulation) is None:
            found = reference.advance(state, self._problem, steps, first)
        else:
            simulation.step = first
            for worker in simulation.workers:
                worker.stepper.load(reading(state), first)
            simulation.advance(steps)
            found = simulation.field()
        # Nothing is there, and NaN would spread in sums.
        void = self._problem.voids(tuple((0, n) for n in self._problem.grid.shape))
        if void is not None:
            found[:, void] = 0.0
        # A sum is made in a fraction of the time, and is not finite if a number is not.
        if not np.isfinite(found.sum()) and not np.isfinite(found).all():
            msg = f"the state stops being finite between steps {first} and {first + steps}"
            raise NumericsError(msg)
        return found


@contextlib.contextmanager
def steps_of(problem: Problem, compute: ComputeSection, *, small: bool) -> Iterator[Steps]:
    """Open what makes steps of a problem; of a small one with NumPy, without a plan."""
    if small:
        yield Steps(_with_known_numbers(problem), None)
        return
    with open_simulation(problem, _plan(problem, compute)) as simulation:
        yield Steps(problem, simulation)


def _with_known_numbers(problem: Problem) -> Problem:
    """The same problem, whose coefficients are computed once."""
    if not problem.equations or not problem.system.coefficients:
        return problem
    # The reference asks for the same few boxes at every step.
    known = {
        name: functools.cache(functools.partial(problem.padded_coefficient, name))
        for name in problem.system.coefficients
    }
    equations = replace(problem.system, coefficients=known, outside=frozenset(known))
    return replace(problem, equations=equations)
