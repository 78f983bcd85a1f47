"""Equations of arrays: for `solve_pde`, which has no configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.apps.pde import variable
from tetris_sim.apps.pde_build import Parts, assemble_equations
from tetris_sim.apps.pde_discretise import Space
from tetris_sim.apps.pde_language import Language, name_mistakes, read_constant, read_constants
from tetris_sim.apps.pde_operators import Accuracy, Advection
from tetris_sim.apps.pde_pairs import PAIRS
from tetris_sim.apps.pde_schemes import Scheme, System, velocity_of
from tetris_sim.apps.pde_tracing import trace
from tetris_sim.config.sections.schema import TimeSection
from tetris_sim.errors import ConfigError
from tetris_sim.model.boundary import Boundary
from tetris_sim.model.formula import ExpressionError, Node
from tetris_sim.model.grid import Grid
from tetris_sim.model.problem import Field, Problem
from tetris_sim.model.slab import Slab

SCHEMES: tuple[Scheme, ...] = ("euler", "rk2", "rk4", "leapfrog", "rkl2")
RightSide = str | Callable[..., Any]


def equations_problem(
    state: Field,
    names: Sequence[str],
    equations: Mapping[str, RightSide] | Callable[..., Any],
    *,
    constants: Mapping[str, float | str],
    grid: Grid,
    boundaries: Mapping[str, Boundary],
    dt: float | None,
    steps: int,
    scheme: str,
    accuracy: Accuracy,
    advection: Advection,
    second: Mapping[str, RightSide] | None = None,
    tolerance: float | None = None,
) -> Problem:
    """The problem of fields as arrays.

    Args:
        state: of the fields, (n_fields, n0, ...); each velocity after its field.
        names: of the fields, velocities among them.
        equations: du/dt by field, or one function that gives all.
        constants: numbers or formulas by name.
        grid: the points.
        boundaries: by field.
        dt: the time step [s]; None for 0.9 of the largest stable one, with a tolerance for 1.
        steps: how many.
        scheme: of `SCHEMES`.
        accuracy: order of the operators.
        advection: see `PdeModel`.
        second: d2u/dt2 of fields that have velocities instead.
        tolerance: of the errors of substeps, for adaptive steps.

    Raises:
        ConfigError: something does not fit.
        UnstableStepError: dt is larger than the largest stable step.
    """
    second = second or {}
    _check_scheme(scheme, tolerance, alone=len(names) == 2 * len(second))
    language = _language(names, constants, grid.ndim)
    velocities = {velocity_of(name) for name in second}
    first = [name for name in names if name not in {*second, *velocities}]
    trees = _trees(first, equations, language) if first or not second else {}
    system = System(
        trees,
        _trees([*second], second, language) if second else {},
        language.numbers,
        Space(grid.spacing, accuracy, advection),
    )

    def initial(slab: Slab) -> Field:
        return state[(slice(None), *(slice(*span) for span in slab.spans))]

    parts = Parts(
        grid=grid,
        system=system,
        scheme=scheme,  # type: ignore[arg-type]
        boundaries=boundaries,
        initial=initial,
        variables=tuple(variable(name, "1", name, grid.ndim) for name in system.right_sides),
        dtype=np.dtype(state.dtype),
    )
    taken: Any = dt if dt is not None else "auto" if tolerance is None else 1.0
    return assemble_equations(parts, TimeSection(dt=taken, steps=steps, tolerance=tolerance))


def _check_scheme(scheme: str, tolerance: float | None, *, alone: bool) -> None:
    """Raise for a scheme that there is not, or that does not fit.

    Args:
        scheme: its name.
        tolerance: of errors.
        alone: whether all fields have equations of second order.
    """
    if scheme not in SCHEMES:
        msg = f"scheme is {scheme!r}; {', '.join(SCHEMES[:-1])} or {SCHEMES[-1]} is wanted"
        raise ConfigError(msg)
    if scheme == "leapfrog" and not alone:
        msg = "leapfrog is for fields with second_order only; take rk4"
        raise ConfigError(msg)
    if tolerance is not None and scheme not in PAIRS:
        msg = f"{scheme} has no estimate of its error, so tolerance means nothing; take rk4"
        raise ConfigError(msg)
    if tolerance is not None and not 0 < tolerance < 1:
        msg = f"tolerance is {tolerance}; a number between 0 and 1 is wanted"
        raise ConfigError(msg)


def _language(names: Sequence[str], constants: Mapping[str, float | str], ndim: int) -> Language:
    wrong = [
        told
        for kind, it in (("field", names), ("constant", constants))
        for _, told in name_mistakes(it, ndim, kind)
    ]
    wrong += [f"{name} is a field and a constant" for name in constants.keys() & {*names}]
    try:
        given = {name: read_constant(value) for name, value in constants.items()}
    except ValueError as error:
        msg = f"constants: {error}"
        raise ConfigError(msg) from error

    language, mistakes = read_constants(given, tuple(names), ndim)
    wrong += [f"constants, {path[-1]}: {told}" for path, told, _ in mistakes]
    if wrong:
        raise ConfigError("\n".join(wrong))
    return language


def _trees(
    names: Sequence[str],
    equations: Mapping[str, RightSide] | Callable[..., Any],
    language: Language,
) -> dict[str, Node]:
    """The right-hand sides of all fields, in their order."""
    if callable(equations):
        found = trace(equations, language)
        if len(found) != len(names):
            msg = f"the function gives {len(found)} right-hand sides for {len(names)} fields"
            raise ConfigError(msg)
        return dict(zip(names, found, strict=True))
    if {*equations} != {*names}:
        msg = f"equations are given for {sorted(equations)}, and fields are {sorted(names)}"
        raise ConfigError(msg)

    trees, wrong = {}, []
    for name in names:
        side = equations[name]
        try:
            trees[name] = language.read(side) if isinstance(side, str) else trace(side, language)[0]
        except ExpressionError as error:
            wrong.append(f"equations, {name}: {error}")
    if wrong:
        raise ConfigError("\n".join(wrong))
    return trees


def same_shape(fields: Mapping[str, npt.ArrayLike]) -> dict[str, npt.NDArray[Any]]:
    """The fields as arrays, all of one shape.

    Raises:
        ConfigError: they are not, or there is none.
    """
    arrays = {name: np.asarray(values) for name, values in fields.items()}
    shapes = {name: it.shape for name, it in arrays.items()}
    if len({*shapes.values()}) != 1:
        msg = f"fields are arrays of one shape, got {shapes}"
        raise ConfigError(msg)
    return arrays
