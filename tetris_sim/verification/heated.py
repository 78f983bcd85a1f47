"""Bodies with sources: a beam that moves, a chip with a power trace, and the balance of heat."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from tetris_sim.model.conduction import Numbers
from tetris_sim.model.grid import Grid
from tetris_sim.model.problem import Field, Problem
from tetris_sim.model.slab import Slab
from tetris_sim.verification.bodies import (
    Solid,
    by_formula,
    cooled,
    formula,
    insulated,
    make_medium,
    pose,
    varying,
)
from tetris_sim.verification.case import Advance, Outcome, VerificationCase, refine

_MANY_STEPS = 100_000


def heated_cases() -> Iterator[VerificationCase]:
    """Sources in time and space, and what they add up to."""
    double = ("float64",)
    for ndim in (2, 3):
        yield VerificationCase(
            "moving beam, Green's function", ndim, partial(_check_beam, ndim), double
        )
    yield VerificationCase("chip with a power trace", 2, _check_chip, double)
    yield VerificationCase(
        "balance of heat, many steps", 2, partial(check_balance, _MANY_STEPS), double
    )
    for ndim in (1, 2, 3):
        yield VerificationCase("two workers materials", ndim, partial(_check_split, ndim))


def _check_beam(ndim: int, advance: Advance, dtype: np.dtype[Any]) -> Outcome:
    """A beam of Gaussian profile moves over the surface of a half space: the integral over time of
    its Green's function, 2 P / (rho c) g(depth) g(x - x0) g(z).

    T. W. Eagar, N. S. Tsai, Welding Journal 62 (1983) 346s.
    """
    solid, width, power, speed, begin, duration = Solid(0.1, 2.0), 0.8, 3.0, 1.0, 2.5, 1.0
    lengths = (2.0, 6.0) if ndim == 2 else (2.0, 5.0, 6.0)  # depth is z, or y in 2D
    sizes, errors = (60, 120) if ndim == 2 else (36, 72), []
    names = ("y", "x") if ndim == 2 else ("z", "y", "x")
    for n in sizes:
        shape = tuple(round(length * n / 6.0) for length in lengths)
        grid = Grid.box(shape, lengths)
        medium = make_medium(np.zeros(shape, np.uint8), [solid], grid.spacing)

        distance = "(x - x0)**2" + (" + (y - 2.5)**2" if ndim == 3 else "")
        flux = power / (math.sqrt(2 * math.pi) * width / 2) ** (ndim - 1)
        beam = by_formula(
            f"mirror + rate*exp(-2*({distance})/width**2)",
            rate=flux * grid.spacing[0] / solid.conductivity,
            width=width,
            x0=lambda t: begin + speed * t,
        )
        faces = [(insulated(), beam), *[(insulated(), insulated())] * (ndim - 1)]
        problem = pose(grid, medium, faces, initial=0.0, duration=duration, refined=8)

        # Half the variance of a beam of this width is added to that of what spreads.
        places = dict(zip(names, map(grid.coordinates, range(ndim)), strict=True))
        depth = lengths[0] - places[names[0]]
        nodes, weights = np.polynomial.legendre.leggauss(60)
        exact: Any = 0.0
        for root, weight in zip((nodes + 1) / 2, weights / 2, strict=True):
            age = duration * root**2  # the square takes the singularity at 0 away
            spread = 2 * solid.conductivity / solid.heat_capacity * age
            term: Any = _gaussian(depth, spread)
            for name in names[1:]:
                centre = begin + speed * (duration - age) if name == "x" else 2.5
                across = _gaussian(places[name] - centre, width**2 / 4 + spread)
                term = np.multiply.outer(term, across)
            exact = exact + weight * 2 * root * duration * 2 * power / solid.heat_capacity * term
        errors.append(float(np.abs(advance(problem)[0] - exact).max()))
    return refine(errors, sizes, 2)


def _gaussian(distance: Numbers, variance: float) -> Numbers:
    return np.exp(-(distance**2) / (2 * variance)) / math.sqrt(2 * math.pi * variance)


def _check_chip(advance: Advance, dtype: np.dtype[Any]) -> Outcome:
    """A die on a spreader, heated by a power trace: SciPy's implicit Runge-Kutta method (Radau IIA,
    E. Hairer, G. Wanner, Solving Ordinary Differential Equations II) with the same finite volumes,
    in a matrix of its own.
    """
    layers = (Solid(390.0, 3.4e6), Solid(4.0, 2.2e6), Solid(130.0, 1.66e6))  # spreader, TIM, die
    h, ambient, spacing, shape = 2e4, 20.0, 1e-4, (7, 9)
    ids = np.repeat(np.array([0, 0, 0, 1, 2, 2, 2], np.uint8), 9).reshape(shape)
    ids[-1, 2:5] = 3  # the part of the die that is heated
    solids = (*layers, layers[-1])
    times, watts = np.array([0.0, 2e-3, 3e-3, 8e-3]), np.array([0.0, 6e9, 1e9, 4e9])

    grid = Grid.box(shape, tuple(n * spacing for n in shape))
    medium = make_medium(ids, solids, grid.spacing)
    source = formula("q", q=lambda t: np.outer(np.interp(t, times, watts), [0, 0, 0, 1]))
    bottom = cooled(h, ambient, layers[0].conductivity, spacing)
    faces = [(bottom, insulated()), (insulated(), insulated())]
    found = []
    for refined in (1, 2):
        problem = pose(
            grid,
            medium,
            faces,
            initial=ambient,
            duration=float(times[-1]),
            source=source,
            refined=refined,
        )
        found.append(advance(problem)[0])
    exact = _implicit(ids, solids, h, ambient, spacing, times, watts)
    return refine([float(np.abs(it - exact).max()) for it in found], (1, 2), 1)


def _implicit(
    ids: Any,
    solids: Any,
    h: float,
    ambient: float,
    spacing: float,
    times: Numbers,
    watts: Numbers,
) -> Numbers:
    """The temperatures after a power trace [W/m^3], by SciPy."""
    from scipy.integrate import solve_ivp

    rows, columns = ids.shape
    k = np.array([solid.conductivity for solid in solids])[ids]
    c = np.array([solid.heat_capacity for solid in solids])[ids].ravel()
    matrix, cooling = np.zeros((ids.size, ids.size)), np.zeros(ids.size)
    for i, j in np.ndindex(rows, columns):
        for m, n in ((i + 1, j), (i, j + 1)):
            if m < rows and n < columns:
                flow = 2 / (spacing**2 * (1 / k[i, j] + 1 / k[m, n]))
                a, b = i * columns + j, m * columns + n
                matrix[[a, b], [b, a]] += flow
                matrix[[a, b], [a, b]] -= flow
        if i == 0:
            cooling[j] = 1 / (spacing * (spacing / (2 * k[i, j]) + 1 / h))

    matrix = (matrix - np.diag(cooling)) / c[:, None]
    heated = (ids == 3).ravel() / c

    def rate(t: float, u: Numbers) -> Numbers:
        return np.asarray(matrix @ u + cooling * ambient / c + heated * np.interp(t, times, watts))

    u = np.full(ids.size, ambient)
    for span in itertools.pairwise(times):
        solution = solve_ivp(rate, span, u, method="Radau", jac=matrix, rtol=1e-9, atol=1e-9)
        u = solution.y[:, -1]
    return u.reshape(ids.shape)


def _patchwork(ndim: int, steps: int, dtype: np.dtype[Any], *, closed: bool) -> Problem:
    """Three materials in boxes, two of them heated in waves; closed, or warm on one face."""
    shape, lengths = (9, 7, 8)[:ndim], (0.9, 0.77, 0.64)[:ndim]
    index = np.indices(shape)
    ids = (index.sum(axis=0) // 3 % 3).astype(np.uint8)
    solids = (Solid(1.0, 2.0), Solid(0.2, 1.0), Solid(3.0, 2.5))
    grid = Grid.box(shape, lengths)
    source = formula("q*(1 + s)", q=[0.0, 1.0, -0.4], s=np.sin)

    faces = [(insulated(), insulated())] * ndim
    if not closed:
        faces[0] = (varying(lambda t: 20 + 5 * np.sin(3 * t)), insulated())
    initial = np.random.default_rng(ndim).uniform(10.0, 30.0, shape)
    medium = make_medium(ids, solids, grid.spacing, 0.05 * (1 - np.eye(3)))
    return pose(grid, medium, faces, initial=initial, steps=steps, source=source, dtype=dtype)


def check_balance(steps: int, advance: Advance, dtype: np.dtype[Any]) -> Outcome:
    """What a closed body holds is what it held and what its sources gave, to 1e-12 of it."""
    problem = _patchwork(2, steps, dtype, closed=True)
    assert problem.conduction is not None
    assert problem.conduction.source is not None
    medium = problem.conduction.medium
    ids = medium.ids(Slab.whole(problem.grid).spans)
    power, wave = (it.rows(problem.time, 0, steps) for it in problem.conduction.source.parameters)
    given = math.fsum((1 + wave[:, 0]).tolist()) * problem.dt * float(power[0, ids].sum())

    def heat(state: Field) -> float:
        return math.fsum((medium.capacity[ids] * state[0]).ravel().tolist())

    before, after = heat(problem.initial(Slab.whole(problem.grid))), heat(advance(problem))
    return Outcome(abs(after - before - given) / abs(after), 1e-12)


def _check_split(ndim: int, advance: Advance, dtype: np.dtype[Any]) -> Outcome:
    problem = _patchwork(ndim, 50, dtype, closed=False)
    return Outcome(float(np.abs(advance(problem, workers=2) - advance(problem)).max()), 0.0)
