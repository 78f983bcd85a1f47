"""Equations as a function on arrays: fields and formulas in, fields out.

The steps are made by the same plan and the same run loop as those of a configuration; for outputs,
checkpoints use a configuration (`model.type: pde`).
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np
import numpy.typing as npt

from tetris_sim.api.arrays import (
    boundary_of,
    checked_field,
    counted,
    positive,
    run_problem,
    spaced_grid,
)
from tetris_sim.api.result import Result
from tetris_sim.api.running import run_in_memory
from tetris_sim.apps.domain import greatest_interval
from tetris_sim.apps.pde.arrays import (
    RightSide,
    as_formula,
    equations_problem,
    language_of,
    same_shape,
    trace,
)
from tetris_sim.apps.pde.complex import as_text
from tetris_sim.apps.pde.fields import resting
from tetris_sim.apps.pde.language import with_definitions
from tetris_sim.apps.pde.schemes import velocity_of
from tetris_sim.config.sections.quantities import IntervalText, Quantity
from tetris_sim.errors import ConfigError
from tetris_sim.model.boundary import Boundary, Face
from tetris_sim.model.grid import AXIS_NAMES
from tetris_sim.model.problem import PRECISIONS, Field, as_array
from tetris_sim.simulation.loop import Simulation
from tetris_sim.support.wording import describe


@overload
def solve_pde(
    fields: Mapping[str, npt.ArrayLike],
    equations: Mapping[str, RightSide] | Callable[..., Any] | None,
    steps: int,
    **options: Any,
) -> dict[str, Field]: ...


@overload
def solve_pde(
    fields: Mapping[str, Any] | Callable[..., Any] | None = None,
    equations: Mapping[str, Any] | Callable[..., Any] | None = None,
    *,
    t_end: float | str,
    **options: Any,
) -> Result: ...


def solve_pde(  # type: ignore[misc]
    fields: Any = None,
    equations: Any = None,
    steps: int | None = None,
    *,
    initial: Mapping[str, Any] | None = None,
    t_end: float | str | None = None,
    faces: Mapping[str, Any] | None = None,
    until: str | None = None,
    call: Callable[[Simulation], object] | None = None,
    every: float | str | None = None,
    definitions: Mapping[str, str] | None = None,
    second_order: Mapping[str, RightSide] | None = None,
    initial_velocity: Mapping[str, npt.ArrayLike] | None = None,
    tolerance: float | None = None,
    constants: Mapping[str, float | str | npt.NDArray[Any]] | None = None,
    dt: float | None = None,
    scheme: str | None = None,
    spacing: float | Sequence[float] = 1.0,
    boundary: Mapping[str, Boundary | Face] | Boundary | Face | None = None,
    accuracy: Literal[2, 4] = 2,
    advection: Literal["upwind", "central"] = "upwind",
    allow_growth: bool = False,
    dtype: npt.DTypeLike | None = None,
    method: str = "auto",
    threads: int | None = None,
) -> dict[str, Field] | Result:
    """Advance fields by partial differential equations: `solve_pde(equations, initial, t_end=...)`
    until a time, `solve_pde(fields, equations, steps)` by a number of steps.

    >>> import numpy as np
    >>> rod = np.sin(np.pi * (np.arange(32) + 0.5) / 32)
    >>> cold = {"x": {"type": "dirichlet", "value": 0}}
    >>> found = solve_pde(
    ...     {"u": "laplace(u)"}, {"u": rod}, t_end=0.5, spacing=1 / 32, faces=cold,
    ...     until="max(u) < 0.1",
    ... )
    >>> round(found.time, 2), found.fields["u"].dims, found.report.ended
    (0.23, ('time', 'x'), 'Done: max(u) < 0.1 holds (time.until.condition)')

    By a number of steps:

    >>> from tetris_sim import Periodic, solve_pde
    >>> u = np.random.default_rng(0).uniform(-0.1, 0.1, (32, 48))
    >>> mixture = "laplace(u**3 - u - laplace(u))"
    >>> found = solve_pde({"u": u}, {"u": mixture}, 20, dt=0.01, boundary=Periodic())
    >>> found["u"].shape, bool(abs(found["u"].sum() - u.sum()) < 1e-12)
    ((32, 48), True)

    Args:
        fields: at the start by name, arrays of one shape (n0,), (n0, n1) or (n0, n1, n2). They are
            not changed. The last axis is x, the one before it y, then z. Until a time, equations
            and fields may stand in either order, and beside one array a field may be a number, a
            formula of x, y, z, or a section like `initial` of a configuration.
        equations: du/dt of each field: a formula as in `model.type: pde`, or a function whose
            parameters are named after fields, constants, x, y, z, t and operators (`def f(u, v,
            laplace): return laplace(u) - u*v**2`), which is called once to see what it does; or
            one function that returns those of all fields but the ones of `second_order`, in their
            order; None if those are all.
        steps: how many time steps, 0 or more.
        initial: the fields at the start, in place of `fields`.
        t_end: until when [s]; the next four and `definitions` go with it.
        faces: what holds on the faces, as `boundaries` of a configuration, {"x-": {"type":
            "dirichlet", "value": "sin(t)"}}, or as objects, {"x": Periodic()}; of one field
            {"u": {"x-": ...}}. Where nothing is said, nothing flows by diffusion (`neumann`).
        until: a condition that ends it earlier, "max(u) > 1", of max, min, mean and integral of
            formulas of fields, of t, and of constants. It is looked at every step; with a
            tolerance, every dt, or if that is not given a hundred times.
        call: what is called `every` so often, and at the end, with the `Simulation`; it may use
            its `time`, `field()` and `set_field(...)`, and `raise StopIteration` to end it.
        every: how often to make the call, in seconds of simulated time or "100 steps"; without a
            call, how often the result has the fields.
        definitions: formulas by name that equations may have, as `model.definitions`.
        second_order: d2u/dt2 of fields that have that instead; `NAME_velocity` is then a field too,
            after its field in what is returned.
        initial_velocity: of these fields at the start, arrays or numbers by name; 0 if not given.
        tolerance: makes steps adaptive: each is made of substeps whose errors are at most this,
            relative to the largest magnitude of each field; dt is then 1 if not given, or until a
            time as long as `every` allows.
        constants: numbers, formulas of x, y, z, t, or arrays of the shape of the fields, by name.
        dt: the time step; 0.9 of the largest stable one if not given.
        scheme: euler, rk2, ssprk3, rk4, rkl2, or leapfrog if all fields have `second_order`;
            etdrk4, imex or implicit for stiff equations, with dt or tolerance; if not given,
            leapfrog for those without tolerance, rk4 if some have, ssprk3 where fluxes have
            limiters, else euler.
        spacing: distance between points, one number or one per axis of the array; the first point
            lies half a spacing from 0.
        boundary: what holds on the faces, for all fields or by field; as for `thermal_diffusion`.
        accuracy: order of the differential operators.
        advection: how `advect` looks upstream.
        allow_growth: whether a given dt is accepted that is larger than the largest stable step.
        dtype: float64 or float32; if nothing is given float64, or float32 if all fields are.
        method: one of the methods that `tetris-sim doctor` lists; the fastest if not given.
        threads: CPU threads to use; all that this process may use if not given.

    Returns:
        The fields after `steps` steps by name, new arrays; until a time a `Result` with `time`,
        `fields` (xarray), `field(name)` and `report`.

    Raises:
        ConfigError: arguments that do not fit together, or a function that cannot be traced.
        UnstableStepError: the step is larger than the largest stable one, and no growth is allowed.
        NumericsError: a field or the result holds NaN or infinity.
        UnsupportedError: there is not enough memory, or no method can do it.
    """
    timed = {"faces": faces, "until": until, "call": call, "every": every}
    timed |= {"definitions": definitions}
    if t_end is not None:
        if steps is not None:
            msg = "steps and t_end are both given; give one of them"
            raise ConfigError(msg)
        time = {"t_end": t_end, "dt": dt, "scheme": scheme, "tolerance": tolerance, "until": until}
        model: dict[str, Any] = {
            "accuracy": accuracy,
            "advection": advection,
            "allow_growth": allow_growth,
        }
        model |= {"constants": {**(constants or {})}, "definitions": {**(definitions or {})}}
        # Until a time: written as a configuration, so that every check, scheme and output of these
        # holds here as well.
        sides, start = _told_apart(fields, equations, initial)
        asked = _Posed(sides, second_order or {}, start, initial_velocity or {}, model)
        compute = {"method": method, "threads": "auto" if threads is None else threads}
        compute["precision"] = _precision(dtype, asked.arrays)
        config = {
            "grid": asked.grid(spacing),
            "model": asked.model(faces, boundary),
            "boundaries": asked.boundaries(faces, boundary),
            "time": _time_section(time, every),
            "compute": compute,
        }
        # Arrays of constants travel as files, as they would in a configuration.
        with tempfile.TemporaryDirectory(prefix="tetris_sim_") as folder:
            config["model"]["constants"] = _in_files(model["constants"], Path(folder))
            return run_in_memory(config, asked.arrays, every=every, call=call)

    if given := [name for name, it in timed.items() if it is not None]:
        msg = f"{given[0]} goes with t_end, which is not given"
        raise ConfigError(msg)
    if steps is None:
        msg = "give t_end, or steps"
        raise ConfigError(msg)
    fields = initial if fields is None else fields
    second = dict(second_order or {})
    arrays = _with_velocities(same_shape(fields), second, initial_velocity or {})
    # Single precision only if nothing given is more precise.
    single = all(np.asarray(it).dtype == np.float32 for it in fields.values())
    wanted = dtype if dtype is not None else np.float32 if single else np.float64
    state = np.stack([checked_field(it, wanted) for it in arrays.values()])
    if state.dtype == np.float16:
        msg = "equations are computed in float64 or float32, not in float16"
        raise ConfigError(msg)

    grid = spaced_grid(state.shape[1:], spacing)
    problem = equations_problem(
        state,
        [*arrays],
        equations or {},
        constants=constants or {},
        grid=grid,
        boundaries=_boundaries([*fields], [*second], boundary, grid.ndim),
        dt=None if dt is None else positive("dt", dt),
        steps=counted("steps", steps),
        scheme=scheme,
        accuracy=accuracy,
        advection=advection,
        second=second,
        tolerance=tolerance,
        grows=allow_growth,
    )
    names = [variable.name for variable in problem.variables]
    result = dict(zip(names, run_problem(problem, method, threads), strict=True))
    return {name: result[name] for name in arrays}


# Until a time: what is asked as a configuration, whose run it then is.

_MOMENT = Quantity("a time", "s", ("2 s", "5 ms"), "positive")
_EVERY = IntervalText(wall=False)


def _told_apart(
    first: Any, second: Any, initial: Mapping[str, Any] | None
) -> tuple[Any, Mapping[str, Any]]:
    """The equations and the fields at the start, whichever stands first."""

    def says_rates(it: Any) -> bool:
        if callable(it):
            return True
        values = it.values() if isinstance(it, Mapping) else [None]
        return all(isinstance(value, str) or callable(value) for value in values)

    # py-pde's order is equations first; the older calls of this function have fields first.
    given = [it for it in (first, second, initial) if it is not None]
    if len(given) > 2 or not given:
        msg = f"equations and initial fields are wanted, and {len(given)} mappings are given"
        raise ConfigError(msg)
    sides, start = given if len(given) == 2 else ({}, given[0])
    # If both are formulas alone, equations are those that stand first.
    if not says_rates(sides) and says_rates(start):
        sides, start = start, sides
    if not isinstance(start, Mapping):
        msg = f"initial is {describe(start)}; fields by name are wanted"
        raise ConfigError(msg)
    return sides, start


def _precision(dtype: npt.DTypeLike | None, arrays: Mapping[str, npt.NDArray[Any]]) -> str:
    if dtype is None:
        single = all(it.dtype in (np.float32, np.complex64) for it in arrays.values())
        return "float32" if single and arrays else "float64"
    try:
        return np.dtype(dtype).name
    except TypeError:
        msg = f"dtype is {dtype}; {', '.join(PRECISIONS[:2])} is wanted"
        raise ConfigError(msg) from None


def _time_section(given: Mapping[str, Any], every: float | str | None) -> dict[str, Any]:
    """The section `time`, with steps that end at what is recorded where errors choose them."""
    section = {key: it for key, it in given.items() if it is not None}
    if "until" in section:
        section["until"] = {"condition": section["until"]}
    if every is None or "dt" in section:
        return section
    # A step of adaptive schemes is the time between two looks; others are looked at where a step
    # ends, so their length need not fit.
    # Their interval has to divide all times at which something looks.
    adaptive = "tolerance" in section or section.get("scheme") in ("etdrk4", "imex", "implicit")
    if not adaptive or section.get("scheme") == "steady":
        return section

    try:
        interval, t_end = _EVERY.read(every), _MOMENT.read(section["t_end"])
    except ValueError:
        return section  # what is wrong is said where it is checked
    if interval.unit == "s":
        looks = [interval.value] + ([t_end / 100] if "until" in section else [])
        section["dt"] = greatest_interval(t_end, looks)
    return section


@dataclass(frozen=True)
class _Posed:
    """Equations and fields at the start, as sections of a configuration.

    Attributes:
        sides: du/dt by field, or one function for all of them.
        second: d2u/dt2 by field.
        start: by field: arrays, numbers, formulas, sections.
        velocities: likewise, of fields with `second`.
        more: other keys of the model.
    """

    sides: Any
    second: Mapping[str, RightSide]
    start: Mapping[str, Any]
    velocities: Mapping[str, Any]
    more: Mapping[str, Any]

    @property
    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The fields that are given as arrays, by their keys."""
        # Anything but numbers, formulas and sections is taken as an array; `as_array` refuses what
        # is none.
        given = {**self.start, **{f"{k}.initial_velocity": it for k, it in self.velocities.items()}}
        found = {}
        for name, it in given.items():
            if not isinstance(it, str | Mapping | int | float):
                found[name] = as_array(name, it)
        return same_shape(found) if found else {}

    def grid(self, spacing: float | Sequence[float]) -> dict[str, Any]:
        """The section `grid`, whose axes are in the order x, y, z."""
        if not (arrays := self.arrays):
            msg = "initial has no array, whose shape is that of the grid; give one as an array"
            raise ConfigError(msg)
        grid = spaced_grid(next(iter(arrays.values())).shape, spacing)
        return {"shape": [*grid.shape[::-1]], "spacing": [*grid.spacing[::-1]]}

    def boundaries(self, faces: Mapping[str, Any] | None, boundary: Any) -> dict[str, Any]:
        """The section `boundaries`: what holds for all fields."""
        # A mapping of `Boundary` objects is by field, which `model` reads.
        # Order of precedence: faces of a field, faces by name, one boundary for all, no diffusion
        # (neumann).
        found = self._faces_of(boundary) if not isinstance(boundary, Mapping) else {}
        given = faces or {}
        found |= {key: _section(it) for key, it in given.items() if key not in self.start}
        return found if found.keys() & {"*"} else {**found, "*": {"type": "neumann"}}

    def model(self, faces: Mapping[str, Any] | None, boundary: Any) -> dict[str, Any]:
        """The section `model`."""
        own = boundary if isinstance(boundary, Mapping) else {}
        of_field = {key: it for key, it in (faces or {}).items() if key in self.start}
        sections: dict[str, dict[str, Any]] = {}
        for key, formulas in (("equation", self._sides()), ("second_order", self._seconds())):
            for name, text in formulas.items():
                sections[name] = {key: text, "initial": _initial(self.start.get(name))}
        if lost := self.start.keys() ^ sections.keys():
            msg = f"fields at the start and equations differ in {', '.join(sorted(lost))}"
            raise ConfigError(msg)

        for name, array in self.arrays.items():
            if np.iscomplexobj(array):
                sections[name.partition(".")[0]]["complex"] = True
        for name, it in self.velocities.items():
            sections.setdefault(name, {})["initial_velocity"] = _initial(it)
        for name, section in sections.items():
            found = self._faces_of(own.get(name))
            found |= {key: _section(it) for key, it in of_field.get(name, {}).items()}
            if found:
                section["boundaries"] = found
        return {"type": "pde", "fields": sections, **self.more}

    def _sides(self) -> dict[str, str]:
        names = [name for name in self.start if name not in self.second]
        return self._texts(names, self.sides)

    def _seconds(self) -> dict[str, str]:
        return self._texts([*self.second], self.second)

    def _texts(self, names: Sequence[str], sides: Any) -> dict[str, str]:
        """Right-hand sides as formulas."""
        if not callable(sides) and all(isinstance(it, str) for it in sides.values()):
            return dict(sides)
        # Mistakes in definitions are said once, by the check of the configuration.
        states = [*self.start, *map(velocity_of, self.second)]
        ndim = next(iter(self.arrays.values())).ndim
        # Functions are traced with the names of the configuration and written out as formulas.
        language, _ = with_definitions(
            language_of(states, self.more["constants"], ndim), self.more["definitions"]
        )
        if not callable(sides):
            return {name: as_formula(it, language) for name, it in sides.items()}
        found = trace(sides, language)
        if len(found) != len(names):
            msg = f"the function gives {len(found)} right-hand sides for {len(names)} fields"
            raise ConfigError(msg)
        return dict(zip(names, map(as_text, found), strict=True))

    def _faces_of(self, boundary: Any) -> dict[str, Any]:
        """The sections of a `Boundary`, or of one face for all."""
        if boundary is None:
            return {}
        if not isinstance(boundary, Boundary):
            return {"*": _section(boundary)}
        names = AXIS_NAMES[: boundary.ndim][::-1]
        found: dict[str, Any] = {}
        # Faces stand in the order of the array's axes, whose last one is x.
        for name, sides in zip(names, boundary.faces, strict=True):
            found |= {name + sign: _section(it) for sign, it in zip("-+", sides, strict=True)}
        return found


def _in_files(constants: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Constants of a configuration, with files in a folder for arrays."""
    found = dict(constants)
    for name, values in constants.items():
        if np.ndim(values):
            np.save(folder / f"{name}.npy", as_array(f"constants, {name}", values))
            found[name] = {"path": str(folder / f"{name}.npy")}
    return found


def _section(face: Any) -> Any:
    """A face as a section of a configuration; sections are that already."""
    if not isinstance(face, Face):
        return face
    return {"type": type(face).__name__.lower(), **dataclasses.asdict(face)}


def _initial(given: Any) -> dict[str, Any]:
    """A field at the start as a section; of an array, a placeholder."""
    match given:
        case str():
            return {"type": "expression", "expression": given}
        case Mapping():
            return dict(given)
        case int() | float():
            return {"type": "constant", "value": given}
    return {"type": "constant", "value": 0}


def _with_velocities(
    arrays: Mapping[str, npt.NDArray[Any]],
    second: Mapping[str, RightSide],
    velocities: Mapping[str, npt.ArrayLike],
) -> dict[str, npt.NDArray[Any]]:
    """The fields, each velocity after its own; in the order of `System.right_sides`."""
    for given, what in ((second, "second_order"), (velocities, "initial_velocity")):
        of = arrays if given is second else second
        if unknown := given.keys() - of.keys():
            msg = f"{what} names {sorted(unknown)}, and only {sorted(of)} can have one"
            raise ConfigError(msg)

    found = {name: array for name, array in arrays.items() if name not in second}
    for name in second:
        found[name] = arrays[name]
        velocity = as_array(f"initial_velocity of {name}", velocities.get(name, 0.0))
        found[velocity_of(name)] = np.broadcast_to(velocity, arrays[name].shape)
    return found


def _boundaries(
    names: Sequence[str],
    second: Sequence[str],
    boundary: Mapping[str, Boundary | Face] | Boundary | Face | None,
    ndim: int,
) -> dict[str, Boundary]:
    given = _given(names, boundary, ndim)
    return given | {velocity_of(name): resting(given[name]) for name in second}


def _given(
    names: Sequence[str],
    boundary: Mapping[str, Boundary | Face] | Boundary | Face | None,
    ndim: int,
) -> dict[str, Boundary]:
    if not isinstance(boundary, Mapping):
        return dict.fromkeys(names, boundary_of(boundary, ndim))
    if unknown := boundary.keys() - {*names}:
        msg = f"boundary names {sorted(unknown)}, and the fields are {sorted(names)}"
        raise ConfigError(msg)
    return {name: boundary_of(boundary.get(name), ndim) for name in names}
