"""The digests of bodies and equations: what decides the bits of a step that is no one stencil."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.model.boundary import SIDES, Boundary
from tetris_sim.model.conduction import Conduction, Rule, RuledFace
from tetris_sim.model.equations import Equations
from tetris_sim.model.grid import Grid
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Ranges, batches

_POINTS = 1 << 22  # that are looked at together
_STEPS = 64  # whose numbers are compared, where they change


def conduction_digest(problem: Problem) -> str:
    """SHA-256, in hexadecimal, of ids, tables, coefficients, curves, and the rules of source and
    faces.

    Of numbers that change with time it has those of the first steps: later ones may be nobody's,
    and belong to a configuration, which is compared by itself.
    """
    assert problem.conduction is not None
    return _digest(problem.conduction, problem.boundary, problem.grid.shape, problem.dt)


@functools.lru_cache(maxsize=4)  # every checkpoint asks, and a body has as many points as its grid
def _digest(conduction: Conduction, boundary: Boundary, shape: tuple[int, ...], dt: float) -> str:
    found, medium, given = hashlib.sha256(), conduction.medium, conduction.coefficients
    whole = tuple((0, n) for n in shape)
    _add_points(found, medium.ids, whole)
    if given is None:
        for table in (medium.conductance, medium.capacity):
            found.update(np.ascontiguousarray(table, np.float64).tobytes())
    else:
        for axis in range(len(shape)):
            faces = (*whole[:axis], (-1, shape[axis]), *whole[axis + 1 :])
            _add_points(found, functools.partial(given.conductance, axis), faces)
        for of_box in (given.capacity, given.volume):
            _add_points(found, of_box, whole)

    if (enthalpy := conduction.enthalpy) is not None:
        curves = (enthalpy.temperature, enthalpy.potential, enthalpy.conductivity)
        tables = [table for curve in curves for table in (curve.begins, curve.slopes)]
        found.update(enthalpy.kinds.tobytes())
        for table in (enthalpy.knots, *tables, enthalpy.half, enthalpy.contact):
            found.update(np.ascontiguousarray(table).tobytes())
    if conduction.source is not None:
        _add_rule(found, conduction.source, dt)
    for axis, n in enumerate(shape):
        if boundary.periodic(axis):
            continue
        for face, side, plane in zip(boundary.faces[axis], SIDES, (0, n - 1), strict=True):
            assert isinstance(face, RuledFace)
            found.update(f"{axis} {side}".encode())
            _add_rule(found, face.rule, dt)
            if face.patches is not None:
                edge = (*whole[:axis], (plane, plane + 1), *whole[axis + 1 :])
                _add_points(found, face.patches, edge)
    return found.hexdigest()


def equations_digest(problem: Problem) -> str:
    """SHA-256, in hexadecimal, of the stages, their parameters and coefficients, and the ghosts of
    every name that is read beside its point. Of numbers that change with time, as above.
    """
    assert problem.equations is not None
    return _equations_digest(problem.equations, problem.grid, problem.dt)


@functools.lru_cache(maxsize=4)
def _equations_digest(equations: Equations, grid: Grid, dt: float) -> str:
    found = hashlib.sha256()
    for stage in equations.stages:
        programs = stage.programs
        found.update(repr((list(stage.formulas), programs.instructions, programs.results)).encode())
    found.update(repr(sorted(equations.results.items())).encode())
    for parameter in equations.parameters:
        rows = parameter.rows(lambda step: step * dt, 0, _STEPS)
        found.update(parameter.name.encode() + np.ascontiguousarray(rows).tobytes())
    if (substeps := equations.substeps) is not None:
        chosen = (substeps.order, substeps.tolerance.hex(), substeps.first.hex())
        found.update(repr((sorted(substeps.errors.items()), *chosen)).encode())

    whole = tuple((0, n) for n in grid.shape)
    for name, of_box in sorted((equations.coefficients or {}).items()):
        found.update(name.encode())
        around = tuple((low - 1, high + 1) for low, high in whole)
        _add_points(found, of_box, around if name in equations.outside else whole)
    for name, radii in sorted(equations.ghosts.items()):
        for axis, radius in enumerate(radii):
            if equations.boundaries[name].periodic(axis):
                continue
            for side in SIDES:
                spacing = grid.spacing[axis]
                pairs = equations.boundaries[name].reflections(
                    axis, side, spacing=spacing, width=radius
                )
                found.update(
                    repr((name, axis, side, [(a.hex(), b.hex()) for a, b in pairs])).encode()
                )
    return found.hexdigest()


def _add_points(found: Any, of_box: Callable[[Ranges], npt.NDArray[Any]], box: Ranges) -> None:
    for part in batches(box, _POINTS):
        found.update(np.ascontiguousarray(of_box(part)).tobytes())


def _add_rule(found: Any, rule: Rule, dt: float) -> None:
    found.update(repr(rule.program.tree).encode())
    for parameter in rule.parameters:
        rows = parameter.rows(lambda step: step * dt, 0, _STEPS)
        found.update(parameter.name.encode() + np.ascontiguousarray(rows).tobytes())
