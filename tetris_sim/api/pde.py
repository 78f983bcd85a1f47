"""Equations as a function on arrays: fields and formulas in, fields out.

The steps are made by the same plan and the same run loop as those of a configuration; for outputs,
checkpoints use a configuration (`model.type: pde`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

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
from tetris_sim.apps.pde.arrays import RightSide, equations_problem, same_shape
from tetris_sim.apps.pde.fields import resting
from tetris_sim.apps.pde.schemes import velocity_of
from tetris_sim.errors import ConfigError
from tetris_sim.model.boundary import Boundary, Face
from tetris_sim.model.problem import Field, as_array


def solve_pde(
    fields: Mapping[str, npt.ArrayLike],
    equations: Mapping[str, RightSide] | Callable[..., Any] | None,
    steps: int,
    *,
    second_order: Mapping[str, RightSide] | None = None,
    initial_velocity: Mapping[str, npt.ArrayLike] | None = None,
    tolerance: float | None = None,
    constants: Mapping[str, float | str] | None = None,
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
) -> dict[str, Field]:
    """Advance fields by partial differential equations for a number of steps.

    >>> import numpy as np
    >>> from tetris_sim import Periodic, solve_pde
    >>> u = np.random.default_rng(0).uniform(-0.1, 0.1, (32, 48))
    >>> mixture = "laplace(u**3 - u - laplace(u))"
    >>> found = solve_pde({"u": u}, {"u": mixture}, 20, dt=0.01, boundary=Periodic())
    >>> found["u"].shape, bool(abs(found["u"].sum() - u.sum()) < 1e-12)
    ((32, 48), True)

    Args:
        fields: at the start by name, arrays of one shape (n0,), (n0, n1) or (n0, n1, n2). They are
            not changed. The last axis is x, the one before it y, then z.
        equations: du/dt of each field: a formula as in `model.type: pde`, or a function whose
            parameters are named after fields, constants, x, y, z, t and operators (`def f(u, v,
            laplace): return laplace(u) - u*v**2`), which is called once to see what it does; or
            one function that returns those of all fields but the ones of `second_order`, in their
            order; None if those are all.
        steps: how many time steps, 0 or more.
        second_order: d2u/dt2 of fields that have that instead; `NAME_velocity` is then a field too,
            after its field in what is returned.
        initial_velocity: of these fields at the start, arrays or numbers by name; 0 if not given.
        tolerance: makes steps adaptive: each is made of substeps whose errors are at most this,
            relative to the largest magnitude of each field; dt is then 1 if not given.
        constants: numbers or formulas of x, y, z, t by name.
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
        The fields after `steps` steps by name, new arrays.

    Raises:
        ConfigError: arguments that do not fit together, or a function that cannot be traced.
        UnstableStepError: the step is larger than the largest stable one, and no growth is allowed.
        NumericsError: a field or the result holds NaN or infinity.
        UnsupportedError: there is not enough memory, or no method can do it.
    """
    second = dict(second_order or {})
    arrays = _with_velocities(same_shape(fields), second, initial_velocity or {})
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
