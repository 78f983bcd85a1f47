"""Problems by equations for the kernel tests: several fields, several stages, any kind of tap."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tetris_sim.apps.time_functions import substitute
from tetris_sim.model.boundary import Boundary, Dirichlet, Face, Fixed, Neumann, Periodic, Robin
from tetris_sim.model.conduction import Parameter
from tetris_sim.model.equations import Equations, Stage, tap
from tetris_sim.model.formula import Node, Operation, compile_expression
from tetris_sim.model.grid import Grid
from tetris_sim.model.problem import Problem, Total
from tetris_sim.model.problem import StateVariable as Field
from tetris_sim.model.stencil import star_mean

RING = (Periodic(), Periodic())
WALLS: tuple[tuple[Face, Face], ...] = (
    (Dirichlet(0.4), Neumann(0.5)),
    (Robin(2.0, 0.3), Fixed(0.6)),
    (Neumann(), Dirichlet(0.2)),
)
OTHER_WALLS: tuple[tuple[Face, Face], ...] = (
    (Neumann(), Fixed(0.1)),
    (Dirichlet(0.3), Dirichlet(0.5)),
    (Fixed(0.2), Robin(1.0, 0.7)),
)


def formula(text: str, **parts: Node) -> Node:
    """A formula in which some names stand for others."""
    names = [*parts, *("dt", "a", "b", "x", "y", "z")]
    return substitute(compile_expression(text, names).tree, parts)


def here(name: str, ndim: int = 2) -> Node:
    return tap(name, (0,) * ndim)


def laplace(name: str, ndim: int = 2) -> Node:
    beside: list[Node] = [
        tap(name, [shift * (k == axis) for k in range(ndim)])
        for axis in range(ndim)
        for shift in (-1, 1)
    ]
    total = functools.reduce(lambda a, b: Operation("add", (a, b)), beside)
    return formula(f"total - {2 * ndim}*c", total=total, c=here(name, ndim))


def parameters(**values: float) -> tuple[Parameter, ...]:
    return tuple(Parameter(name, np.array([value])) for name, value in values.items())


def boundaries(names: Sequence[str], faces: Sequence[tuple[Face, Face]]) -> dict[str, Boundary]:
    return dict.fromkeys(names, Boundary(tuple(faces)))


def gray_scott(faces: Sequence[Any], others: Sequence[Any]) -> Equations:
    u, v = here("u"), here("v")
    grown = formula("dt*u*v*v", u=u, v=v)
    return Equations(
        ("u", "v"),
        (
            Stage(
                {
                    "v'": formula("v + 0.05*m + g - a*v", v=v, m=laplace("v"), g=grown),
                    "u'": formula("u + 0.1*m - g + b*(1 - u)", u=u, m=laplace("u"), g=grown),
                }
            ),
        ),
        {"u": "u'", "v": "v'"},
        boundaries("u", faces) | boundaries("v", others),
        parameters(dt=0.5, a=0.03, b=0.04),
    )


def cahn_hilliard() -> Equations:
    potential = formula("c**3 - c - m", c=here("u"), m=laplace("u"))
    return Equations(
        ("u",),
        (
            Stage({"mu": potential}),
            Stage({"u'": formula("u + dt*m", u=here("u"), m=laplace("mu"))}),
        ),
        {"u": "u'"},
        boundaries(("u", "mu"), (RING, RING)),
        parameters(dt=0.02),
    )


def leapfrog(faces: Sequence[Any], others: Sequence[Any]) -> Equations:
    """The speed first, then the place, of which the next stage reads what lies around it; its new
    value has ghosts of its own.
    """
    speed = formula("v + dt*m", v=here("v"), m=laplace("u"))
    place = formula("u + dt*v", u=here("u"), v=here("v'"))
    heat = formula("w + dt*m", w=here("w"), m=laplace("u'"))
    return Equations(
        ("u", "v", "w"),
        (Stage({"v'": speed}), Stage({"u'": place}), Stage({"w'": heat})),
        {"u": "u'", "v": "v'", "w": "w'"},
        boundaries("u", faces) | {"u'": Boundary(tuple(others))},
        parameters(dt=0.1),
    )


def brusselator() -> Equations:
    """RK4 in three dimensions."""
    stages: list[Stage] = []
    at = {"u": here("u", 3), "v": here("v", 3)}
    names = {"u": "u", "v": "v"}
    for number, weight in enumerate((0.0, 0.5, 0.5, 1.0)):
        if number:
            slopes = {it: here(f"{it}k{number - 1}", 3) for it in "uv"}
            names = {it: f"{it}{number}" for it in "uv"}
            stages.append(
                Stage(
                    {
                        names[it]: formula(f"c + {weight}*dt*k", c=at[it], k=slopes[it])
                        for it in "uv"
                    }
                )
            )
        u, v = here(names["u"], 3), here(names["v"], 3)
        du = formula("1 + u*u*v - 3*u + 0.1*m", u=u, v=v, m=laplace(names["u"], 3))
        dv = formula("2*u - u*u*v + 0.05*m", u=u, v=v, m=laplace(names["v"], 3))
        stages.append(Stage({f"uk{number}": du, f"vk{number}": dv}))
    total = "c + dt/6*(k0 + 2*k1 + 2*k2 + k3)"
    new = {
        f"{it}'": formula(total, c=at[it], **{f"k{k}": here(f"{it}k{k}", 3) for k in range(4)})
        for it in "uv"
    }
    stages.append(Stage(new))
    first, second = (["u", "u1", "u2", "u3"], ["v", "v1", "v2", "v3"])
    faces = (WALLS[0], RING, WALLS[2])
    return Equations(
        ("u", "v"),
        tuple(stages),
        {"u": "u'", "v": "v'"},
        boundaries(first, faces) | boundaries(second, (OTHER_WALLS[0], RING, OTHER_WALLS[2])),
        parameters(dt=0.02),
    )


def kuramoto_sivashinsky(faces: Sequence[Any]) -> Equations:
    """Midpoint rule in one dimension, four derivatives."""

    def slope(name: str) -> Node:
        far = {key: tap(name, (shift,)) for key, shift in zip("pqcrs", range(-2, 3), strict=True)}
        return formula("-(p - 3*q + 4*c - 3*r + s) - 0.25*(r*r - q*q) + a*x", **far)

    middle = formula("c + dt*s/2", c=here("u", 1), s=slope("u"))
    new = formula("c + dt*s", c=here("u", 1), s=slope("half"))
    return Equations(
        ("u",),
        (Stage({"half": middle}), Stage({"u'": new})),
        {"u": "u'"},
        boundaries(("u", "half"), faces),
        parameters(dt=0.02, a=0.01),
    )


def given(box: Any) -> Any:
    """Numbers of the points of a box."""
    axes = [np.sin(1.0 + (2.0 + k) * np.arange(*span)) for k, span in enumerate(box)]
    return functools.reduce(np.add.outer, axes) / 3


def corners(ndim: int, faces: Sequence[Any]) -> Equations:
    """Taps of a whole box, coefficients beside the point, coordinates, a number of time."""
    taps: list[Node] = [tap("u", it) for it in itertools.product((-1, 1), repeat=ndim)]
    total = functools.reduce(lambda a, b: Operation("add", (a, b)), taps)
    moved = tap("k", (1, *(0,) * (ndim - 2), -1)) if ndim > 1 else tap("k", (2,))
    far = tap("u", (*(0,) * (ndim - 1), 2))
    place = "x" + "".join(f" - 0.3*{name}" for name in ("y", "z")[: ndim - 1])
    text = f"0.5*u + total/32 + dt*k*(far - u) + 0.01*a*(m + {place})"
    tree = formula(text, u=here("u", ndim), k=here("k", ndim), far=far, m=moved, total=total)
    rising = Parameter("a", lambda times: 1 + np.sqrt(times[:, np.newaxis]))
    return Equations(
        ("u",),
        (Stage({"u'": tree}),),
        {"u": "u'"},
        boundaries("u", faces),
        (*parameters(dt=0.1), rising),
        {"k": given},
    )


def conditions(functions: str) -> Equations:
    """Comparisons and functions; the second field only counts."""
    low = formula(
        f"where(u > n or v < 0.3 and not u != u, min(u, n) % 0.7, sqrt(abs(v)) {functions})",
        u=here("u"), v=here("v"), n=tap("u", (0, 1)),
    )  # fmt: skip
    return Equations(
        ("u", "v"),
        (
            Stage({"u'": formula("0.5*u + 0.5*w", u=here("u"), w=low)}),
            Stage({"v'": formula("v + 1/u", v=here("v"), u=here("u'"))}),
        ),
        {"u": "u'", "v": "v'"},
        boundaries(("u",), WALLS[:2]),
    )


def forced(faces: Sequence[Any]) -> Equations:
    """What a stage makes of coefficients only reaches further than what it makes of the field."""
    force = formula("a*k + 0.1*x", k=tap("k", (0, 1)))
    new = formula("u + dt*(m - u)", u=here("u"), m=laplace("f"))
    return Equations(
        ("u",),
        (Stage({"f": force}), Stage({"u'": new})),
        {"u": "u'"},
        boundaries(("u", "f"), faces),
        parameters(dt=0.1, a=0.5),
        {"k": given},
    )


Case = tuple[tuple[int, ...], Callable[[], Equations]]
CASES: dict[str, Case] = {
    "gray-scott": ((11, 23), lambda: gray_scott(WALLS[:2], OTHER_WALLS[:2])),
    "gray-scott, rings": ((9, 13), lambda: gray_scott((RING, RING), (RING, RING))),
    "cahn-hilliard": ((12, 19), cahn_hilliard),
    "leapfrog": ((13, 10), lambda: leapfrog(WALLS[:2], WALLS[:2])),
    "leapfrog, own ghosts": ((13, 12), lambda: leapfrog((WALLS[0], RING), (WALLS[1], RING))),
    "brusselator": ((9, 8, 11), brusselator),
    "kuramoto-sivashinsky": ((37,), lambda: kuramoto_sivashinsky((RING,))),
    "kuramoto-sivashinsky, walls": ((41,), lambda: kuramoto_sivashinsky((WALLS[0],))),
    "corners 1d": ((29,), lambda: corners(1, (WALLS[1],))),
    "corners 2d": ((12, 17), lambda: corners(2, WALLS[:2])),
    "corners 2d, ring": ((12, 14), lambda: corners(2, (RING, WALLS[0]))),
    "corners 3d": ((8, 9, 13), lambda: corners(3, WALLS)),
    "corners 3d, rings": ((7, 8, 10), lambda: corners(3, (WALLS[1], RING, RING))),
    "forced": ((11, 18), lambda: forced((RING, WALLS[1]))),
    "conditions": ((10, 18), lambda: conditions("+ floor(3*u)")),
    "functions": ((10, 18), lambda: conditions("+ exp(-u)*sin(v)")),
}


def problem(name: str, dtype: Any = np.float64, shape: tuple[int, ...] | None = None) -> Problem:
    """A case with random numbers at the beginning."""
    usual, make = CASES[name]
    equations, shape = make(), shape or usual
    state = np.random.default_rng(5).uniform(0.1, 1.0, (len(equations.fields), *shape))
    state = state.astype(dtype)
    ndim = len(shape)
    return Problem(
        grid=Grid(shape, (0.5, 0.25, 0.125)[:ndim], (0.1,) * ndim),
        stencil=star_mean(ndim, equations.radii),
        boundary=equations.boundaries[equations.fields[0]],
        initial=lambda slab: state[(slice(None), *(slice(*span) for span in slab.spans))],
        dt=0.1,
        steps=12,
        dtype=np.dtype(dtype),
        variables=tuple(
            Field(field, "1", field, Total("total", "1", 1.0)) for field in equations.fields
        ),
        equations=equations,
    )
