"""Problems by equations, and what exact methods make of them: every instruction rounded once."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.support.exact import fma
from tetris_sim.apps.time_functions import substitute
from tetris_sim.model.boundary import SIDES, Boundary, Dirichlet, Face, Neumann, Periodic, Robin
from tetris_sim.model.conduction import Parameter
from tetris_sim.model.equations import Equations, Stage, tap
from tetris_sim.model.formula import COMPARISONS, OPERATIONS, Node, Operation, compile_expression
from tetris_sim.model.grid import Grid
from tetris_sim.model.problem import Field, Problem, Total
from tetris_sim.model.problem import StateVariable as Named
from tetris_sim.model.program import CONSTANT, INPUT, Programs
from tetris_sim.model.stencil import star_mean

Values = npt.NDArray[Any]
NAMES = (*("c", "n", "s", "w", "e", "t", "b", "l", "dt", "a", "f", "g", "x", "y", "z"),)
_KNOWN: dict[str, Any] = {**OPERATIONS, **COMPARISONS, "fma": fma, "where": np.where}
_KNOWN |= {"and": np.logical_and, "or": np.logical_or, "not": np.logical_not}


def ring(ndim: int) -> Boundary:
    """Periodic axes."""
    return Boundary.everywhere(Periodic(), ndim)


def walls(ndim: int, shift: float = 0.0) -> Boundary:
    """Ghosts that need a fused multiply-add, on one axis a ring if there are three."""
    pairs: list[tuple[Face, Face]] = [
        (Robin(0.7, 0.3 + shift), Dirichlet(0.4)),
        (Neumann(), Neumann(0.2 + shift)),
        (Periodic(), Periodic()),
    ]
    return Boundary(tuple(pairs[:ndim]))


def formula(text: str, **parts: Node) -> Node:
    """A formula in which names stand for parts."""
    return substitute(compile_expression(text, list(dict.fromkeys([*NAMES, *parts]))).tree, parts)


def star(name: str, ndim: int, far: int = 1) -> Node:
    """The sum of the neighbours so far away without the centre, in pairs that points share."""
    offsets = [
        tuple(shift * (k == axis) for k in range(ndim))
        for shift in (-far, far)
        for axis in range(ndim)
    ]
    terms = [tap(name, offset) for offset in offsets]
    halves = [_sum(terms[:ndim]), _sum(list(reversed(terms[ndim:])))]
    return _sum(halves)


def _sum(terms: Sequence[Node]) -> Node:
    total = terms[0]
    for term in terms[1:]:
        total = Operation("add", (total, term))
    return total


def centre(name: str, ndim: int) -> Node:
    return tap(name, (0,) * ndim)


def numbers(**values: float) -> tuple[Parameter, ...]:
    """Parameters that never change."""
    return tuple(Parameter(name, np.array([value])) for name, value in values.items())


def laplace(name: str, ndim: int) -> Node:
    return formula(f"l - {2 * ndim}*c", l=star(name, ndim), c=centre(name, ndim))


def gray_scott(ndim: int, boundary: Boundary, other: Boundary | None = None) -> Equations:
    """Two fields, one stage; every number is a parameter."""
    u, v = centre("u", ndim), centre("v", ndim)
    names = {"u": u, "v": v, "l": star("u", ndim), "m": star("v", ndim)}
    changes = {
        "u'": _with("p*l + (q + u*(r - (dt*v)*v))", names),
        "v'": _with("o*m + v*(k + u*(dt*v))", names),
    }
    # p = dt Du / h^2, q = dt F, r = 1 - 4 p - dt F; o = dt Dv / h^2, k = 1 - 4 o - dt (F + k).
    given = numbers(dt=0.9, p=0.17, q=0.03, r=1 - 2 * ndim * 0.17 - 0.03)
    given += numbers(o=0.08, k=1 - 2 * ndim * 0.08 - 0.09)
    boundaries = {"u": boundary, "v": other or boundary}
    return Equations(("u", "v"), (Stage(changes),), {"u": "u'", "v": "v'"}, boundaries, given)


def _with(text: str, names: Mapping[str, Node]) -> Node:
    letters = [*names, "p", "q", "r", "o", "k", "b", "dt"]
    return substitute(compile_expression(text, letters).tree, names)


def brusselator(ndim: int, boundary: Boundary) -> Equations:
    """Two fields of a reaction that oscillates, one stage."""
    names = {"u": centre("u", ndim), "v": centre("v", ndim)}
    names |= {"l": star("u", ndim), "m": star("v", ndim)}
    changes = {
        "u'": _with("p*l + (q + u*(r + (dt*u)*v))", names),
        "v'": _with("o*m + (k*v + (dt*u)*(b - u*v))", names),
    }
    # p = dt Du / h^2, q = dt A, r = 1 - 2 n p - dt (B + 1); o = dt Dv / h^2, k = 1 - 2 n o.
    given = numbers(dt=0.01, p=0.1, q=0.01, r=1 - 2 * ndim * 0.1 - 0.04)
    given += numbers(o=0.05, k=1 - 2 * ndim * 0.05, b=3.0)
    boundaries = {"u": boundary, "v": boundary}
    return Equations(("u", "v"), (Stage(changes),), {"u": "u'", "v": "v'"}, boundaries, given)


def cahn_hilliard(ndim: int, boundary: Boundary) -> Equations:
    """Two stages, a work array, a number of time, and a field that is read at its point only."""
    potential = formula("c**3 - c - 0.5*l", c=centre("u", ndim), l=laplace("u", ndim))
    step = formula("c + dt*f*l", c=centre("u", ndim), l=laplace("mu", ndim))
    counted = formula("c + dt*l", c=centre("v", ndim), l=centre("mu", ndim))
    rising = Parameter("f", lambda times: (1 + np.sin(times))[:, np.newaxis])
    return Equations(
        ("u", "v"),
        (Stage({"mu": potential}), Stage({"u'": step, "v'": counted})),
        {"u": "u'", "v": "v'"},
        {"u": boundary, "mu": boundary},
        (*numbers(dt=0.01), rising),
    )


def wave(ndim: int, boundary: Boundary) -> Equations:
    """Leapfrog: the velocity, then the place; a speed that differs from point to point, read two
    points away, and a source at coordinates.
    """
    letters = {"c": centre("w", ndim), "l": laplace("u", ndim)}
    speed = formula("a + b", a=tap("k", (0,) * ndim), b=tap("k", (2, *(0,) * (ndim - 1))))
    faster = formula("c + dt*(s*l + f*exp2)", **letters, s=speed, exp2=formula("x*x - x"))
    place = formula("c + dt*w", c=centre("u", ndim), w=centre("w'", ndim))
    beat = Parameter("f", lambda times: np.cos(3 * times)[:, np.newaxis])

    def stiffness(box: tuple[tuple[int, int], ...]) -> Values:
        axes = [np.arange(*span) for span in box]
        total = sum(
            (3 + k) * along.reshape([-1 if k == axis else 1 for axis in range(ndim)])
            for k, along in enumerate(axes)
        )
        return np.asarray(0.05 + 0.002 * (total % 7), np.float64)

    return Equations(
        ("u", "w"),
        (Stage({"w'": faster}), Stage({"u'": place})),
        {"u": "u'", "w": "w'"},
        {"u": boundary},
        (*numbers(dt=0.3), beat),
        {"k": stiffness},
    )


def corners(boundary: Boundary) -> Equations:
    """A mixed derivative, and a product of two: nine points, corners of ghosts count."""
    texts = {key: tap("u", (dy, dx)) for key, (dy, dx) in _BOX.items()}
    mixed = formula("e + w - n - s", **{k: texts[k] for k in "ewns"})
    tree = formula("c + dt*(l + g*l*l)", c=tap("u", (0, 0)), l=mixed, g=tap("u", (0, 2)))
    return Equations(("u",), (Stage({"u'": tree}),), {"u": "u'"}, {"u": boundary}, numbers(dt=0.1))


_BOX = {"e": (-1, -1), "w": (1, 1), "n": (-1, 1), "s": (1, -1)}


def corners_3d(boundary: Boundary) -> Equations:
    """A mixed derivative across planes, a tap that no other point shares, and a coordinate."""
    taps = {"e": (-1, 0, -1), "w": (1, 0, 1), "n": (-1, 1, 0), "s": (1, 0, -1), "t": (0, 1, 1)}
    mixed = formula("e + w - n - s + t", **{key: tap("u", offset) for key, offset in taps.items()})
    tree = formula("c + dt*(l + g*z)", c=centre("u", 3), l=mixed, g=tap("u", (-1, 0, 0)))
    return Equations(("u",), (Stage({"u'": tree}),), {"u": "u'"}, {"u": boundary}, numbers(dt=0.1))


def kuramoto(boundary: Boundary) -> Equations:
    """One axis, a point reads two beside it on each side."""
    far = formula("n + s - 4*(w + e) + 6*c", **_line())
    tree = formula("c - dt*(l + 0.5*(e - w)**2 + (w + e - 2*c))", **_line(), l=far)
    return Equations(("u",), (Stage({"u'": tree}),), {"u": "u'"}, {"u": boundary}, numbers(dt=0.02))


def _line() -> dict[str, Node]:
    shifts = {"n": -2, "w": -1, "c": 0, "e": 1, "s": 2}
    return {key: tap("u", (shift,)) for key, shift in shifts.items()}


def make(equations: Equations, shape: tuple[int, ...], dtype: Any = np.float64) -> Problem:
    """A problem with a random state."""
    state = np.random.default_rng(5).uniform(0.1, 1.0, (len(equations.fields), *shape))
    return Problem(
        grid=Grid(shape, (1.0,) * len(shape), (0.25,) * len(shape)),
        stencil=star_mean(len(shape), equations.radii),
        boundary=next(iter(equations.boundaries.values())),
        initial=lambda slab: state[(slice(None), *(slice(*span) for span in slab.spans))],
        dt=0.1,
        steps=4,
        dtype=np.dtype(dtype),
        variables=tuple(
            Named(name, "1", name, Total("total", "1", 1.0)) for name in equations.fields
        ),
        equations=equations,
    )


def advance(u: Field, problem: Problem, steps: int, first: int = 0) -> Field:
    """`steps` steps of the whole state at step `first`, each instruction rounded once."""
    u = np.asarray(u, problem.dtype)
    for number in range(first, first + steps):
        u = _step(u, problem, number)
    return u


def _step(u: Field, problem: Problem, number: int) -> Field:
    equations, grid, kind = problem.equations, problem.grid, problem.dtype
    assert equations is not None
    values: dict[str, Values] = dict(zip(equations.fields, u, strict=True))
    given: dict[str, Values] = {
        it.name: np.asarray(it.rows(problem.time, number, 1)[0, 0], kind)
        for it in equations.parameters
    }
    for axis, name in enumerate(grid.axis_names):
        along = grid.coordinates(axis, 0, grid.shape[axis]).astype(kind)
        given[name] = along.reshape([-1 if k == axis else 1 for k in range(grid.ndim)])

    for stage in equations.stages:
        seen = dict(given)
        for name, offsets in stage.taps.items():
            radii = stage.radii(name)
            around = tuple((-r, n + r) for r, n in zip(radii, grid.shape, strict=True))
            if equations.coefficients and name in equations.coefficients:
                there = problem.padded_coefficient(name, around).astype(kind)
            else:
                boundary = equations.boundaries.get(name, problem.boundary)
                there = _with_ghosts(values[name], boundary, grid.spacing, radii)
            for offset in offsets:
                box = zip(radii, offset, grid.shape, strict=True)
                cut = tuple(slice(r + shift, r + shift + n) for r, shift, n in box)
                seen[tap(name, offset).name] = there[cut]
        for name, found in zip(stage.formulas, _run(stage.programs, kind, seen), strict=True):
            values[name] = np.broadcast_to(found, grid.shape)
    return np.stack([values[equations.results[name]] for name in equations.fields])


def _run(programs: Programs, kind: np.dtype[Any], inputs: Mapping[str, Values]) -> list[Values]:
    registers: list[Any] = []
    with np.errstate(all="ignore"):
        for it in programs.instructions:
            if it.operation == INPUT:
                registers.append(inputs[it.name])
            elif it.operation == CONSTANT:
                registers.append(kind.type(it.value))
            else:
                registers.append(_KNOWN[it.operation](*(registers[k] for k in it.arguments)))
    return [registers[k] for k in programs.results]


def _with_ghosts(
    u: Values, boundary: Boundary, spacing: tuple[float, ...], radii: tuple[int, ...]
) -> Values:
    """Ghosts by one fused multiply-add each, the first axis first."""
    kind = u.dtype.type
    for axis, radius in enumerate(radii):
        along = np.moveaxis(u, axis, 0)
        if boundary.periodic(axis):
            u = np.pad(u, [(radius * (k == axis),) * 2 for k in range(u.ndim)], mode="wrap")
            continue
        planes: dict[str, list[Values]] = {"low": [], "high": []}
        for side, number in itertools.product(SIDES, range(radius)):
            pairs = boundary.reflections(axis, side, spacing=spacing[axis], width=radius)
            mirror = along[number] if side == "low" else along[-1 - number]
            a, b = map(kind, pairs[number])
            planes[side].append(fma(b, mirror, a))
        low, high = planes["low"][::-1], planes["high"]
        u = np.moveaxis(np.stack([*low, *along, *high]), 0, axis)
    return u


def plain_wave(ndim: int, boundary: Boundary, accuracy: int) -> Equations:
    """The same in one medium, by differences of second or fourth order; dt and the speed are in the
    numbers p, q and r.
    """
    near, far = star("u", ndim), star("u", ndim, 2)
    names = {"c": centre("u", ndim), "l": near, "m": far, "w": centre("w", ndim)}
    names |= {"v": centre("w'", ndim)}
    letters = [*names, "p", "q", "r"]
    text = "w + (p*l + r*c)" if accuracy == 2 else "w + (p*l + (q*m + r*c))"
    faster = substitute(compile_expression(text, letters).tree, names)
    place = substitute(compile_expression("c + v", letters).tree, names)
    square = 0.1  # (c dt / h)^2
    p, q = (square, 0.0) if accuracy == 2 else (square * 4 / 3, -square / 12)
    return Equations(
        ("u", "w"),
        (Stage({"w'": faster}), Stage({"u'": place})),
        {"u": "u'", "w": "w'"},
        {"u": boundary},
        numbers(p=p, q=q, r=-2 * ndim * (p + q)),
    )
