"""Small bodies with materials, posed as arrays: what the cases about conduction are made of."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.model.boundary import Boundary, Face, Periodic
from tetris_sim.model.conduction import (
    AFFINE,
    MIRROR,
    Conduction,
    Enthalpy,
    Medium,
    Numbers,
    Parameter,
    Rule,
    RuledFace,
    in_series,
)
from tetris_sim.model.formula import compile_expression
from tetris_sim.model.grid import AXIS_NAMES, Grid
from tetris_sim.model.problem import Problem, StateVariable, Total
from tetris_sim.model.program import Program
from tetris_sim.model.stencil import star_mean
from tetris_sim.verification.case import Advance, Outcome, VerificationCase, from_array, refine
from tetris_sim.verification.standards import Answer, Standard, StandardRow

Condition = RuledFace | Periodic
_TEMPERATURE = StateVariable("temperature", "degC", "temperature", Total("heat", "J", 1.0))
_HEAT = StateVariable("heat_content", "J/m^3", "heat content", Total("heat", "J", 1.0))
_SAFETY = 0.9  # of the largest step that is stable for every arrangement of the materials


@dataclass(frozen=True)
class Solid:
    """One material.

    Attributes:
        conductivity: [W/(m K)].
        heat_capacity: rho c [J/(m^3 K)].
    """

    conductivity: float
    heat_capacity: float


def make_medium(
    ids: npt.NDArray[np.uint8],
    solids: Sequence[Solid],
    spacing: Sequence[float],
    resistance: Numbers | float = 0.0,
) -> Medium:
    """Materials in space.

    Args:
        ids: of all points, in array order.
        solids: by id.
        spacing: between points per axis [m].
        resistance: of contacts, (n_ids, n_ids), symmetric [m^2 K/W].
    """
    k = np.array([solid.conductivity for solid in solids])
    return Medium(
        ids=lambda box: ids[tuple(slice(*span) for span in box)],
        conductance=np.stack([in_series(h, k, resistance) for h in spacing]),
        capacity=np.array([solid.heat_capacity for solid in solids]),
        names=tuple(f"solid {number}" for number in range(len(solids))),
    )


def stable_dt(medium: Medium) -> float:
    """A time step that is stable for every arrangement of the materials [s]."""
    most = 2 * medium.conductance.max(axis=2).sum(axis=0)
    return _SAFETY * float((medium.capacity / most).min())


def pose(
    grid: Grid,
    medium: Medium,
    faces: Sequence[tuple[Condition, Condition]],
    *,
    initial: npt.ArrayLike,
    duration: float | None = None,
    steps: int = 0,
    source: Rule | None = None,
    enthalpy: Enthalpy | None = None,
    dtype: np.dtype[Any] | None = None,
    refined: int = 1,
) -> Problem:
    """A body to be advanced.

    Args:
        grid: its points.
        medium: what it is made of.
        faces: per axis in array order.
        initial: the state at time 0, of the grid's shape or a number.
        duration: simulated time [s]; or
        steps: how many of the usual steps.
        source: what heats it.
        enthalpy: what its state means if that is heat content.
        dtype: float64 if not given.
        refined: by which the usual time step is divided.
    """
    kind = np.dtype(dtype or np.float64)
    state = np.broadcast_to(np.asarray(initial, np.float64), grid.shape)[np.newaxis].astype(kind)
    dt = stable_dt(medium)
    if duration is not None:
        steps = math.ceil(duration / dt) * refined
        dt = duration / steps

    pairs: tuple[tuple[Face, Face], ...] = tuple(faces)
    return Problem(
        grid=grid,
        stencil=star_mean(grid.ndim),
        boundary=Boundary(pairs),
        initial=from_array(state),
        dt=dt,
        steps=steps,
        dtype=kind,
        variables=(_TEMPERATURE if enthalpy is None else _HEAT,),
        conduction=Conduction(medium, source, enthalpy=enthalpy),
    )


def insulated() -> RuledFace:
    """Nothing flows."""
    return _affine(np.zeros(1), np.ones(1), lasting=(0.0, 1.0))


def held(value: float) -> RuledFace:
    """A temperature on the face."""
    return _affine(np.array([2 * value]), -np.ones(1), lasting=(2 * value, -1.0))


def varying(value: Callable[[Numbers], Numbers]) -> RuledFace:
    """A temperature on the face that is a function of times (n,)."""
    return _affine(lambda t: 2 * value(t)[:, None], -np.ones(1))


def cooled(h: float, ambient: float, conductivity: float, spacing: float) -> RuledFace:
    """Convection, `spacing` being that across the face: see `boundary.Robin`."""
    whole = 2 * conductivity + h * spacing
    a, b = 2 * h * spacing * ambient / whole, (2 * conductivity - h * spacing) / whole
    return _affine(np.array([a]), np.array([b]))


def _affine(a: Any, b: Any, lasting: tuple[float, float] | None = None) -> RuledFace:
    return RuledFace(Rule(AFFINE, (Parameter("a", a), Parameter("b", b))), lasting=lasting)


def by_formula(text: str, **parameters: Any) -> RuledFace:
    """Ghosts from a formula of the mirror point, coordinates and parameters."""
    return RuledFace(formula(text, **parameters))


def formula(text: str, **parameters: Any) -> Rule:
    """A formula of coordinates and parameters: numbers, by id, or functions of times (n,)."""
    program = Program(compile_expression(text, [MIRROR, *AXIS_NAMES, *parameters]).tree)
    return Rule(program, tuple(Parameter(name, _shaped(it)) for name, it in parameters.items()))


def _shaped(values: Any) -> Any:
    if callable(values):
        return lambda t: np.reshape(values(t), (len(t), -1))
    return np.atleast_1d(np.asarray(values, np.float64))


def radiating(
    emissivity: float, ambient: float, conductivity: float, spacing: float, iterations: int = 4
) -> RuledFace:
    """Thermal radiation to surroundings, temperatures in kelvin.

    What arrives at the face through half a cell leaves it, 2 k / dx (mirror - s) = e sigma (s^4 -
    ambient^4); s, the temperature of the face, follows by Newton's method from that of the mirror.
    """
    surface = MIRROR
    for _ in range(iterations):
        above = f"3*a*({surface})**4 + b*{MIRROR} + a*ambient**4"
        surface = f"({above})/(4*a*({surface})**3 + b)"
    stefan_boltzmann = 5.670374419e-8  # W/(m^2 K^4), CODATA 2018
    return by_formula(
        f"2*({surface}) - {MIRROR}",
        a=emissivity * stefan_boltzmann,
        b=2 * conductivity / spacing,
        ambient=ambient,
    )


# Walls and fins: bodies of several materials whose temperatures are known on paper.

_DOUBLE = ("float64",)
# Diffusivities are alike, so that few steps lead to the steady state.
_LAYERS = (Solid(2.0, 4.0), Solid(0.5, 1.2), Solid(5.0, 9.0))


def wall_cases() -> Iterator[VerificationCase]:
    """Layers, contacts, jumps, a fin, and NAFEMS's tests of the heat of a bar."""
    for ndim in (1, 2, 3):
        yield VerificationCase("composite wall", ndim, partial(_check_wall, ndim, 0.0))
    for ndim in (1, 2):
        yield VerificationCase(
            "wall with contact resistance", ndim, partial(_check_wall, ndim, 0.4)
        )
    yield VerificationCase("manufactured solution with jumps", 2, _check_jumps, _DOUBLE)
    yield VerificationCase("fin in a fluid", 2, _check_fin, _DOUBLE)
    yield VerificationCase("NAFEMS T2, radiation", 1, _check_t2, _DOUBLE)
    yield VerificationCase("NAFEMS T3, varying temperature", 1, _check_t3, _DOUBLE)
    yield VerificationCase("damped daily wave", 1, _check_daily_wave, _DOUBLE)


# Bodies around an axis or a centre that differ from angle to angle.

_ROUND = "H. S. Carslaw, J. C. Jaeger, Conduction of Heat in Solids, 1959, chapter {}"
_HOT, _RADIUS = 100.0, 0.05  # degC of one half of a surface, the other being at 0; m


def round_cases() -> Iterator[Standard]:
    """A disc and a ball of which one half of the surface is hot, and a disc that evens out."""
    yield _half_heated("disc", "cylindrical", "360 deg", "pi", _in_disc)
    yield _half_heated("ball", "spherical", "180 deg", "pi/2", _in_ball)
    yield _uneven_disc()


def _round(kind: str, shape: tuple[int, int], angle: str) -> dict[str, Any]:
    return {"coordinates": kind, "axes": ["r", "theta"], "shape": shape, "size": [_RADIUS, angle]}


def _in_disc(rho: float, theta: float) -> float:
    """The sum of 2 / pi rho^k sin(k theta) / k over odd k, which is Poisson's integral."""
    return 0.5 + math.atan2(2 * rho * math.sin(theta), 1 - rho * rho) / math.pi


def _in_ball(rho: float, theta: float) -> float:
    """The sum of (P_(n-1)(0) - P_(n+1)(0)) / 2 rho^n P_n(cos theta) over odd n."""
    from scipy.special import eval_legendre

    n = np.arange(1, 200, 2)
    parts = (eval_legendre(n - 1, 0.0) - eval_legendre(n + 1, 0.0)) * rho**n
    return 0.5 + 0.5 * float((parts * eval_legendre(n, math.cos(theta))).sum())


def _half_heated(
    name: str, kind: str, angle: str, until: str, exact: Callable[[float, float], float]
) -> Standard:
    value = f"{_HOT} if theta < {until} else 0"
    sections = {
        "grid": _round(kind, (48, 96), angle),
        "model": {"type": "heat", "material": "steel"},
        "boundaries": {"r+": {"type": "dirichlet", "value": value}},
        "time": {"scheme": "steady", "tolerance": 1e-10},
    }

    def look(answer: Answer) -> Iterator[StandardRow]:
        for share, degrees in ((0.25, 30), (0.5, 60), (0.5, 120), (0.75, 45)):
            theta = math.radians(degrees)
            found = answer.temperature(share * _RADIUS, theta)
            where = f"{share:g} R, {degrees} deg [degC]"
            yield StandardRow(where, _HOT * exact(share, theta), 0.02, found)
        # As much flows out of one half as into the other.
        yield StandardRow("net heat [W]", 0.0, 1e-4, answer.flows()["r+"])

    chapter = _ROUND.format("VII" if kind == "cylindrical" else "IX")
    return Standard(f"half-heated {name}", chapter, sections, look)


def _uneven_disc() -> Standard:
    # Parts J1(alpha r / R) cos(theta), 0 at the surface, decay at the rates alpha^2 a / R^2.
    end, a = 40.0, 1e-5
    sections = {
        "grid": _round("cylindrical", (32, 48), "360 deg"),
        "model": {"type": "heat", "diffusivity": a},
        "initial": {"type": "expression", "expression": f"{_HOT}*r/{_RADIUS}*cos(theta)"},
        "boundaries": {"r+": {"type": "dirichlet", "value": 0}},
        "time": {"dt": "auto", "t_end": end},
    }

    def look(answer: Answer) -> Iterator[StandardRow]:
        from scipy.special import j1, jn_zeros, jv

        zeros = jn_zeros(1, 40)
        for share, degrees in ((0.25, 0), (0.5, 45), (0.75, 150)):
            decays = np.exp(-(zeros**2) * a * end / _RADIUS**2)
            parts = 2 * j1(zeros * share) / (zeros * jv(2, zeros)) * decays
            exact = _HOT * float(parts.sum()) * math.cos(math.radians(degrees))
            found = answer.temperature(share * _RADIUS, math.radians(degrees))
            yield StandardRow(f"{share:g} R, {degrees} deg [degC]", exact, 0.01, found)

    return Standard("disc that evens out", _ROUND.format("VII"), sections, look)


def _check_wall(ndim: int, contact: float, advance: Advance, dtype: np.dtype[Any]) -> Outcome:
    """Layers between two temperatures: one flow through resistances in series.

    F. P. Incropera, D. P. DeWitt, Fundamentals of Heat and Mass Transfer, section 3.1. In finite
    volumes with conductances in series this is exact at the points, too.
    """
    cold, hot, n = -10.0, 30.0, 12
    axis = (0, 1, 0)[ndim - 1]
    shape, spacing = [4, 4, 4][:ndim], [0.2, 0.25, 0.22][:ndim]
    shape[axis], spacing[axis] = n, 0.1
    along = np.repeat(np.arange(3, dtype=np.uint8), n // 3)
    lie = [-1 if k == axis else 1 for k in range(ndim)]
    ids = np.broadcast_to(along.reshape(lie), shape)
    resistance = np.zeros((3, 3))
    resistance[1, 2] = resistance[2, 1] = contact

    faces = [(insulated(), insulated())] * ndim
    faces[axis] = (held(cold), held(hot))
    grid = Grid.box(tuple(shape), tuple(m * h for m, h in zip(shape, spacing, strict=True)))
    initial = np.random.default_rng(ndim).uniform(cold, hot, shape)
    medium = make_medium(ids, _LAYERS, grid.spacing, resistance)
    problem = pose(grid, medium, faces, initial=initial, steps=1, dtype=dtype)
    slowest = _slowest(problem, medium.conductance[axis], along)
    problem = replace(problem, steps=math.ceil(math.log(1e-15) / math.log(slowest)))

    half = np.array([grid.spacing[axis] / 2 / solid.conductivity for solid in _LAYERS])[along]
    between = half[:-1] + resistance[along[:-1], along[1:]] + half[1:]
    until = np.cumsum([half[0], *between])
    exact = cold + (hot - cold) * until / (until[-1] + half[-1])
    error = float(np.abs(advance(problem)[0] - exact.reshape(lie)).max())

    # Coefficients are rounded once, steps round by a few of their operations' roundings.
    largest = 2 * hot - cold  # of the ghosts beyond the hot face
    roundings = (2 * ndim + 2) * float(np.finfo(dtype).eps) * largest / (1 - slowest)
    return Outcome(error, (hot - cold) * slowest**problem.steps + roundings)


def _slowest(problem: Problem, conductance: Numbers, along: Any) -> float:
    """Return the factor by which a step damps the slowest mode between two temperatures."""
    assert problem.conduction is not None
    n = len(along)
    matrix = np.zeros((n, n))
    for low in range(n - 1):
        flow = conductance[along[low], along[low + 1]]
        matrix[low, low + 1] = matrix[low + 1, low] = flow
    ends = [2 * conductance[it, it] for it in (along[0], along[-1])]
    np.fill_diagonal(matrix, -matrix.sum(axis=1))
    matrix[0, 0] -= ends[0]
    matrix[-1, -1] -= ends[1]
    rates = problem.conduction.rates(problem.dt)[along]
    return 1 + float(np.linalg.eigvals(rates[:, None] * matrix).real.max())


def _check_jumps(advance: Advance, dtype: np.dtype[Any]) -> Outcome:
    """A solution made up beforehand: k du/dx = cos(pi x) (1 + t) cos(pi y / H) is continuous where
    k jumps, and the source is what it takes. Being linear in time it has no error of Euler's steps.

    P. J. Roache, J. Fluids Eng. 124 (2002) 4; K. Salari, P. Knupp, SAND2000-1444.
    """
    k, c, height = np.array([2.0, 0.5]), np.array([1.0, 3.0]), 0.8
    a = 1 / (math.pi * k)
    b = np.array([0.0, a[0] - a[1]])  # phi = a sin(pi x) + b
    sizes, errors = (16, 32), []
    for n in sizes:
        grid = Grid.box((n * 5 // 8, n), (height, 1.0))
        # The jump lies on a face of cells on both grids, so it costs no order.
        ids = np.broadcast_to((np.arange(n) >= n // 2).astype(np.uint8), grid.shape)
        x, y = grid.coordinates(1), grid.coordinates(0)[:, None]
        shape = (a[ids] * np.sin(math.pi * x) + b[ids]) * np.cos(math.pi * y / height)

        wave = math.pi / height
        source = formula(
            "cos(wave*y)*(phi*(c + s*k*wave**2) + s*pi*sin(pi*x))".replace(
                "phi", "(a*sin(pi*x) + b)"
            ),
            a=a,
            b=b,
            c=c,
            k=k,
            wave=wave,
            s=lambda t: 1 + t,
        )
        # The ghost that makes the face have the value of the solution there.
        right = by_formula("2*b*s*cos(wave*y) - mirror", b=b, wave=wave, s=lambda t: 1 + t)
        faces = [(insulated(), insulated()), (held(0.0), right)]
        medium = make_medium(ids, [Solid(*it) for it in zip(k, c, strict=True)], grid.spacing)
        problem = pose(grid, medium, faces, initial=shape, duration=0.3, source=source)
        errors.append(float(np.abs(advance(problem)[0] - 1.3 * shape).max()))
    return refine(errors, sizes, 2)


def _check_fin(advance: Advance, dtype: np.dtype[Any]) -> Outcome:
    """A thin plate with a hot base, between fluids that cool it: cosh(m (L - x)) / cosh(m L).

    F. P. Incropera, D. P. DeWitt, Fundamentals of Heat and Mass Transfer, section 3.6, with m^2 = 2
    h / (k t). The fluids are cells whose temperature is held; the fin is one cell thick, so the
    resistance of half of it counts to that of the fluids.
    """
    length, thick, k, h, fluid, base = 1.0, 0.1, 1.0, 0.2, 20.0, 100.0
    resistance = 1 / h + thick / (2 * k)
    m = math.sqrt(2 / (resistance * k * thick))
    sizes, errors = (12, 24), []
    for n in sizes:
        grid = Grid.box((3, n), (3 * thick, length))
        ids = np.repeat(np.array([1, 0, 1], np.uint8), n).reshape(3, n)
        solid = make_medium(ids, [Solid(k, 1.0), Solid(0.0, math.inf)], grid.spacing)
        # Between fin and fluid the film counts, not half a cell of fluid.
        conductance = solid.conductance.copy()
        conductance[0, 0, 1] = conductance[0, 1, 0] = 1 / (thick * resistance)
        medium = Medium(solid.ids, conductance, solid.capacity, ("fin", "fluid"))

        faces = [(insulated(), insulated()), (held(base), insulated())]
        # What decays the slowest is down to exp(-18) at the end: the fin is steady.
        slowest = k * (m**2 + (math.pi / 2 / length) ** 2)
        problem = pose(grid, medium, faces, initial=fluid, duration=18 / slowest)
        x = grid.coordinates(1)
        exact = fluid + (base - fluid) * np.cosh(m * (length - x)) / math.cosh(m * length)
        found = advance(problem)[0]
        if not (found[[0, 2]] == fluid).all():  # what is held
            return Outcome(math.inf, 0.0)
        errors.append(float(np.abs(found[1] - exact).max()))
    return refine(errors, sizes, 2)


def _bar(n: int, solid: Solid) -> tuple[Grid, Medium]:
    """0.1 m of one material."""
    grid = Grid.box((n,), (0.1,))
    return grid, make_medium(np.zeros(n, np.uint8), [solid], grid.spacing)


def _check_t2(advance: Advance, dtype: np.dtype[Any]) -> Outcome:
    """A bar of 1000 K at one end that radiates at the other: 927.0 K there.

    NAFEMS, The Standard NAFEMS Benchmarks (1990), test T2.
    """
    n, k = 20, 55.563
    grid, medium = _bar(n, Solid(k, 7850.0 * 460.0))
    face = radiating(0.98, 300.0, k, grid.spacing[0])
    problem = pose(grid, medium, [(held(1000.0), face)], initial=1000.0, steps=6000)
    inner, last = advance(problem)[0][-2:]
    # The steady state is a straight line, also over the last half cell.
    return Outcome(abs(float(last + (last - inner) / 2) - 927.0), 0.05)


def _check_t3(advance: Advance, dtype: np.dtype[Any]) -> Outcome:
    """A bar at 0 degC, one end at 100 sin(pi t / 40) degC: 36.6 degC at 0.08 m after 32 s.

    NAFEMS, The Standard NAFEMS Benchmarks (1990), test T3.
    """
    n = 100
    grid, medium = _bar(n, Solid(35.0, 440.5 * 7200.0))
    hot = varying(lambda t: 100 * np.sin(math.pi * t / 40))
    problem = pose(grid, medium, [(held(0.0), hot)], initial=0.0, duration=32.0)
    place = n * 8 // 10
    found = advance(problem)[0][place - 1 : place + 1].mean()
    return Outcome(abs(float(found) - 36.6), 0.05)


def _check_daily_wave(advance: Advance, dtype: np.dtype[Any]) -> Outcome:
    """The ground below a face whose temperature goes up and down every day.

    H. S. Carslaw, J. C. Jaeger, Conduction of Heat in Solids, 2nd ed. (Oxford, 1959), section 3.6:
    the imaginary part of exp(i w t) cosh(q (L - x)) / cosh(q L), with q^2 = i w / diffusivity, in a
    slab that is insulated below.
    """
    soil, day, depth = Solid(1.0, 2e6), 86400.0, 0.6
    frequency = 2 * math.pi / day
    q = np.sqrt(1j * frequency * soil.heat_capacity / soil.conductivity)
    sizes, errors = (24, 48), []
    for n in sizes:
        grid = Grid.box((n,), (depth,))
        medium = make_medium(np.zeros(n, np.uint8), [soil], grid.spacing)
        wave = 8 * (np.cosh(q * (depth - grid.coordinates(0))) / np.cosh(q * depth)).imag
        top = varying(lambda t: 8 * np.sin(frequency * t))
        problem = pose(grid, medium, [(top, insulated())], initial=wave, duration=day)
        # A day later it is as it was.
        errors.append(float(np.abs(advance(problem)[0] - wave).max()))
    return refine(errors, sizes, 2)


# Streams through cells.

_NTU = "W. M. Kays, A. L. London, Compact Heat Exchangers, 3rd ed. (1984), chapter 2"
_FOUND, _CLOSED = {"scheme": "steady", "tolerance": 1e-10}, {"type": "neumann"}
_STREAM_WALL = {"density": 2000.0, "specific_heat": 500.0}
_WATER_CARRIES = 0.01 * 4181.0  # of 10 g/s of water [W/K]


def stream_cases() -> Iterator[Standard]:
    """Past a wall of one temperature, against another stream, and in a closed loop."""
    yield _warm_wall()
    yield _counterflow()
    yield _cooled_in_a_loop()


def _stream(y: float, *, back: bool = False, **changed: Any) -> dict[str, Any]:
    ends = [[0.0, y], [1.0, y]]
    water = {"flow": 0.01, "inlet": 20.0, "fluid": "water", "h": 1000.0, "perimeter": 0.04}
    return {**water, "path": ends[::-1] if back else ends, **changed}


def _warm_wall() -> Standard:
    wall = _STREAM_WALL | {"conductivity": 1e9}
    sections = {
        "grid": {"shape": [50, 1], "size": [1.0, 0.01]},
        "model": {
            "type": "heat",
            "materials": {"wall": wall},
            "regions": [{"material": "wall"}],
            "streams": {"water": _stream(0.005)},
        },
        "boundaries": {"y": {"type": "dirichlet", "value": 80.0}, "x": _CLOSED},
        "time": _FOUND,
    }

    def look(answer: Answer) -> Iterator[StandardRow]:
        outlet = 80 - 60 * math.exp(-1000.0 * 0.04 / _WATER_CARRIES)
        found = 20 - answer.flows()["water"] / _WATER_CARRIES
        yield StandardRow("outlet [degC]", outlet, 1e-6, found)

    source = "T_out = T_w - (T_w - T_in) exp(-NTU)"
    return Standard("stream past a wall of one temperature", source, sections, look)


def _counterflow() -> Standard:
    # Two layers, across which the wall conducts, but not along them.
    k, n = 50.0, 200
    wall = {**_STREAM_WALL, "conductivity": {"x": 1e-9, "y": k}}
    hot = _stream(0.015, back=True, inlet=90.0, flow=0.006)
    sections = {
        "grid": {"shape": [n, 2], "size": [1.0, 0.02]},
        "model": {
            "type": "heat",
            "materials": {"wall": wall},
            "regions": [{"material": "wall"}],
            "streams": {"cold": _stream(0.005), "hot": hot},
        },
        "boundaries": {"*": _CLOSED},
        "time": _FOUND,
    }

    def look(answer: Answer) -> Iterator[StandardRow]:
        least = 0.6 * _WATER_CARRIES
        # Both films are in series with two half cells.
        units = 1 / (2 / (1000.0 * 0.04) + 0.01 / k) / least
        left = math.exp(-units * (1 - 0.6))
        found = answer.flows()
        share = -found["cold"] / (least * 70)
        effectiveness = (1 - left) / (1 - 0.6 * left)
        yield StandardRow("effectiveness", effectiveness, 5e-3 * effectiveness, share)
        lost = found["hot"] + found["cold"]
        yield StandardRow("hot less cold [W]", 0.0, 1e-9 * abs(found["hot"]), lost)

    return Standard("counterflow through a wall", _NTU, sections, look)


def _cooled_in_a_loop() -> Standard:
    # A heater of one temperature, and a cooler that stands in air.
    power, cooled, air = 300.0, 40.0, 0.02
    water = _stream(0.005, inlet={"stream": "water"})
    water["through"] = [{"lump": "cooler", "resistance": 1 / cooled}]
    around = {"ambient": 20.0, "resistance": air}
    sections = {
        "grid": {"shape": [10, 1], "size": [1.0, 0.01]},
        "model": {
            "type": "heat",
            "materials": {"wall": _STREAM_WALL | {"conductivity": 1e9}},
            "regions": [{"material": "wall"}],
            "sources": [{"power": power}],
            "streams": {"water": water},
            "lumps": {"cooler": {"capacity": 100.0, "initial": 20.0, "exchanges": [around]}},
        },
        "boundaries": {"*": _CLOSED},
        "time": _FOUND,
    }

    def look(answer: Answer) -> Iterator[StandardRow]:
        # The power over what water brings in a ring, by the effectivenesses of both exchangers.
        first, second = (-math.expm1(-it / _WATER_CARRIES) for it in (1000.0 * 0.04, cooled))
        between = _WATER_CARRIES * first * second / (1 - (1 - first) * (1 - second))
        exact = 20 + power * (air + 1 / between)
        yield StandardRow("heater [degC]", exact, 1e-5, answer.temperature(0.5, 0.005))

    return Standard("closed loop between a heater and a cooler", _NTU, sections, look)
