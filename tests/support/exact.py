"""Programs, and the chain of `conduction.py`, in NumPy with every operation rounded once: what all
exact methods must compute bit for bit.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import itertools
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.model.boundary import SIDES
from tetris_sim.model.conduction import CONDUCTIVITY, MIRROR, TEMPERATURE, Enthalpy, Rule
from tetris_sim.model.equations import as_tap
from tetris_sim.model.formula import COMPARISONS, OPERATIONS
from tetris_sim.model.problem import Field, Problem
from tetris_sim.model.program import CONSTANT, INEXACT, INPUT, Program
from tetris_sim.model.radiation import RADIATING, RADIATING_INPUTS

_LIBRARY = ctypes.CDLL(ctypes.util.find_library("m"))
_FUSED = {}
for _dtype, _name, _kind in (
    (np.float64, "fma", ctypes.c_double),
    (np.float32, "fmaf", ctypes.c_float),
):
    _function = getattr(_LIBRARY, _name)
    _function.argtypes, _function.restype = [_kind] * 3, _kind
    _FUSED[np.dtype(_dtype)] = np.frompyfunc(_function, 3, 1)


def fma(a: Any, b: Any, c: Any) -> npt.NDArray[Any]:
    """a * b + c, rounded once."""
    dtype = np.result_type(a, b, c)
    a, b, c = np.broadcast_arrays(a, b, c)
    return np.asarray(_FUSED[dtype](a, b, c), dtype)


_KNOWN: dict[str, Any] = {
    "fma": fma,
    "fmod": np.fmod,
    "and": np.logical_and,
    "or": np.logical_or,
    "not": np.logical_not,
    "where": np.where,
}
_KNOWN |= {name: it for name, it in {**OPERATIONS, **COMPARISONS}.items() if name not in _KNOWN}


def run_program(program: Program, dtype: Any, **inputs: Any) -> npt.NDArray[Any]:
    """The instructions one by one, on numbers or arrays of a dtype."""
    kind = np.dtype(dtype)
    registers: list[Any] = []
    with np.errstate(all="ignore"):
        for step in program.instructions:
            if step.operation == INPUT:
                registers.append(np.asarray(inputs[step.name], kind))
            elif step.operation == CONSTANT:
                registers.append(kind.type(step.value))
            else:
                registers.append(_KNOWN[step.operation](*(registers[k] for k in step.arguments)))
    return np.asarray(registers[-1], kind)


def is_exact(program: Program) -> bool:
    """Whether a program has the same bits on every device."""
    return not any(it.operation in INEXACT for it in program.instructions)


def advance(u: Field, problem: Problem, steps: int, first: int = 0) -> Field:
    """`steps` time steps of the whole state at step `first`."""
    for number in range(first, first + steps):
        u = _step(u, problem, number)
    return u


def _step(u: Field, problem: Problem, number: int) -> Field:
    conduction, grid, kind = problem.conduction, problem.grid, problem.arithmetic
    assert conduction is not None
    medium, coefficients = conduction.medium, conduction.coefficients
    heat, whole = u[0].astype(kind), tuple((0, n) for n in grid.shape)
    ids = medium.ids(whole)
    seen = _seen(conduction.enthalpy, heat, ids)
    here = seen[MIRROR]
    gained: npt.NDArray[Any] | None = None
    if conduction.source is not None:
        gained = _follow(conduction.source, problem, number, whole, ids, seen)
        if coefficients is not None:
            gained = gained * coefficients.volume(whole).astype(kind)

    for axis, side in itertools.product(range(grid.ndim), SIDES):
        shift, n = (-1 if side == "low" else 1), grid.shape[axis]
        beyond = {name: np.roll(values, -shift, axis) for name, values in seen.items()}
        there = beyond[MIRROR]
        between_box = _with(whole, axis, (min(shift, 0), n + min(shift, 0)))
        beside = problem.padded_ids(_with(whole, axis, (shift, n + shift)))
        if not problem.boundary.periodic(axis):
            at = 0 if side == "low" else n - 1
            edge = _with(whole, axis, (at, at + 1))
            outermost = tuple(slice(*span) for span in edge)
            face = problem.ruled_face(axis, side)
            codes = face.codes(edge, ids[outermost], medium.n_ids)
            inside = {name: values[outermost] for name, values in seen.items()}
            ghosts = _follow(face.rule, problem, number, edge, codes, inside)
            there[outermost] = ghosts.astype(problem.dtype)
        between = (
            medium.conductance[axis][ids, beside]
            if coefficients is None
            else coefficients.conductance(axis, between_box)
        ).astype(kind)
        difference = there - here
        before = gained
        gained = between * difference if gained is None else fma(between, difference, gained)
        if (enthalpy := conduction.enthalpy) is not None:
            if coefficients is None:
                half = enthalpy.half[axis]
                parts = half[ids], half[beside], enthalpy.contact[axis][ids, beside]
            else:
                # The low neighbour lies below the face, the high one above it.
                low, high, joint = np.moveaxis(coefficients.series(axis, between_box), -1, 0)
                parts = (high, low, joint) if side == "low" else (low, high, joint)
            own, other, contact = (it.astype(kind) for it in parts)
            resistance = own / seen[CONDUCTIVITY] + other / beyond[CONDUCTIVITY]
            rise = beyond[TEMPERATURE] - seen[TEMPERATURE]
            with np.errstate(divide="ignore", invalid="ignore"):
                flow = rise / (resistance + contact)
            if enthalpy.radiates:
                e = (
                    enthalpy.radiance[axis][ids, beside]
                    if coefficients is None
                    else coefficients.radiance(axis, between_box)
                ).astype(kind)
                ends = seen[TEMPERATURE], beyond[TEMPERATURE]
                halves = own / seen[CONDUCTIVITY], other / beyond[CONDUCTIVITY]
                given = dict(zip(RADIATING_INPUTS, (*ends, *halves, contact, e), strict=True))
                with np.errstate(all="ignore"):
                    radiated = run_program(RADIATING, problem.arithmetic, **given)
                flow = np.where(e > 0, radiated, flow)
            alike = enthalpy.kinds[ids] == enthalpy.kinds[beside]
            gained = np.where(alike, gained, flow if before is None else before + flow)

    rate = conduction.rates(problem.dt, whole).astype(kind)
    assert gained is not None
    return fma(rate, gained, heat).astype(problem.dtype)[np.newaxis]


def _seen(
    enthalpy: Enthalpy | None, heat: npt.NDArray[Any], ids: npt.NDArray[Any]
) -> dict[str, npt.NDArray[Any]]:
    """What flows by its difference, and with enthalpy temperature and conductivity."""
    if enthalpy is None:
        return {MIRROR: heat}
    knots = enthalpy.knots.astype(heat.dtype)[ids]
    piece = (knots[..., 1:] <= heat[..., None]).sum(axis=-1)
    above = heat - np.take_along_axis(knots, piece[..., None], -1)[..., 0]
    curves = {
        MIRROR: enthalpy.potential,
        TEMPERATURE: enthalpy.temperature,
        CONDUCTIVITY: enthalpy.conductivity,
    }
    return {
        name: fma(
            curve.slopes.astype(heat.dtype)[ids, piece],
            above,
            curve.begins.astype(heat.dtype)[ids, piece],
        )
        for name, curve in curves.items()
    }


def _follow(
    rule: Rule,
    problem: Problem,
    number: int,
    box: Any,
    codes: npt.NDArray[Any],
    seen: dict[str, npt.NDArray[Any]],
) -> npt.NDArray[Any]:
    values, shape = dict(seen), [high - low for low, high in box]
    for parameter in rule.parameters:
        row = parameter.rows(problem.time, number, 1)[0]
        values[parameter.name] = row[codes] if row.size > 1 else row
    for axis, name in enumerate(problem.grid.axis_names):
        along = [-1 if k == axis else 1 for k in range(problem.grid.ndim)]
        values[name] = problem.grid.coordinates(axis, *box[axis]).reshape(along)
    return np.array(np.broadcast_to(run_program(rule.program, problem.arithmetic, **values), shape))


def _with(box: Any, axis: int, span: tuple[int, int]) -> Any:
    return (*box[:axis], span, *box[axis + 1 :])


def equation_step(u: Field, it: Problem, number: int) -> Field:
    """One step by equations point by point, every operation rounded once."""
    equations, kind, shape = it.equations, it.dtype.type, it.grid.shape
    assert equations is not None

    values: dict[str, Any] = dict(zip(equations.fields, u, strict=True))
    numbers = {p.name: p.rows(it.time, number, 1)[0, 0] for p in equations.parameters}
    lines = [it.grid.coordinates(axis) for axis in range(len(shape))]

    def at(name: str, point: tuple[int, ...]) -> Any:
        if name in (equations.coefficients or {}):
            box = tuple((i, i + 1) for i in point)
            return kind(it.padded_coefficient(name, box).item())
        outside = [k for k, (i, n) in enumerate(zip(point, shape, strict=True)) if not 0 <= i < n]
        if not outside:
            return values[name][point]
        # Ghosts of the last axis follow from those of the axes before.
        axis, boundary = outside[-1], equations.boundaries[name]
        i, n = point[axis], shape[axis]
        if boundary.periodic(axis):
            return at(name, (*point[:axis], i % n, *point[axis + 1 :]))
        side, width = (0, -i) if i < 0 else (1, i - n + 1)
        spacing = it.grid.spacing[axis]
        a, b = boundary.reflections(axis, SIDES[side], spacing=spacing, width=width)[-1]
        mirror = width - 1 if i < 0 else n - width
        return fma(kind(b), at(name, (*point[:axis], mirror, *point[axis + 1 :])), kind(a))

    for stage in equations.stages:
        new = {name: np.empty(shape, it.dtype) for name in stage.formulas}
        for point in itertools.product(*map(range, shape)):
            seen = dict(numbers)
            seen |= {
                name: line[i]
                for name, line, i in zip(it.grid.axis_names, lines, point, strict=True)
            }
            for name, tree in stage.formulas.items():
                program = Program(tree)
                for text in program.inputs:
                    if (found := as_tap(text)) is not None:
                        there = tuple(i + d for i, d in zip(point, found[1], strict=True))
                        seen[text] = at(found[0], there)
                new[name][point] = run_program(program, kind, **seen)
        values |= new
    return np.stack([values[equations.results[field]] for field in equations.fields])
