"""Bodies with sources or heat content: a beam that moves, a chip with a power trace and the balance
of heat; fronts of melting and freezing, and k and c that grow with temperature, each against its
similarity solution or transform. And what currents heat, posed as a user would.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from tetris_sim.apps.heat.materials import MaterialCurves, Melting, in_potentials, make_enthalpy
from tetris_sim.model.conduction import Curve, Enthalpy, Numbers, RuledFace
from tetris_sim.model.grid import Grid
from tetris_sim.model.problem import Field, Problem
from tetris_sim.model.radiation import KELVIN
from tetris_sim.model.slab import Slab
from tetris_sim.verification.bodies import (
    Solid,
    by_formula,
    cooled,
    formula,
    held,
    insulated,
    make_medium,
    pose,
    varying,
)
from tetris_sim.verification.case import Advance, Outcome, VerificationCase, refine
from tetris_sim.verification.standards import Answer, Standard, StandardRow

_DOUBLE = ("float64",)
_FRONT = 0.6  # of a cell: what the last cell that melts may be off, its neighbour's share included


def melting_cases() -> Iterator[VerificationCase]:
    """Stefan's problem of one phase and of two, and k = c = 1 + T/2."""
    for stefan in (0.1, 0.5, 1.0):
        name = f"Stefan, one phase, Ste = {stefan:g}"
        yield VerificationCase(name, 1, partial(_check_one_phase, stefan), _DOUBLE)
    yield VerificationCase("Stefan, two phases", 1, _check_two_phases, _DOUBLE)
    yield VerificationCase("k = c = 1 + T/2, transform", 1, _check_transform, _DOUBLE)


def _rod(material: MaterialCurves, n: int, length: float) -> tuple[Grid, Enthalpy]:
    grid = Grid.box((n,), (length,))
    return grid, make_enthalpy([material], [0], grid.spacing)


def _pose(
    grid: Grid,
    enthalpy: Enthalpy,
    left: float,
    *,
    initial: float,
    duration: float,
    refined: int = 1,
) -> Problem:
    """A rod with a temperature on its left, insulated on its right.

    Args:
        grid: its points.
        enthalpy: what it is made of.
        left: temperature of its left end [degC].
        initial: heat content everywhere [J/m^3].
        duration: [s].
        refined: largest slope of phi(H), rounded up.
    """
    ids = np.zeros(grid.shape, np.uint8)
    medium = in_potentials(make_medium(ids, [Solid(1.0, 1.0)], grid.spacing), enthalpy)
    faces: list[tuple[RuledFace, RuledFace]] = [(held(potential(enthalpy, left)), insulated())]
    return pose(
        grid,
        medium,
        faces,
        initial=initial,
        duration=duration,
        refined=refined,
        enthalpy=enthalpy,
    )


def potential(enthalpy: Enthalpy, temperature: float) -> float:
    """The integral of k dT up to a temperature [W/m]."""
    ids = np.zeros(1, np.int64)
    heat = enthalpy.from_temperature(np.array([temperature]), ids)
    return float(enthalpy.of(enthalpy.potential, heat, ids)[0])


def _temperature(enthalpy: Enthalpy, heat: Numbers) -> Numbers:
    curve: Curve = enthalpy.temperature
    return np.asarray(enthalpy.of(curve, heat, np.zeros(heat.shape, np.int64)))


def _root(balance: Callable[[float], float]) -> float:
    """Where the heat that arrives at a front is what it takes."""
    from scipy.optimize import brentq

    return float(brentq(balance, 1e-6, 5.0))


def stefan_root(stefan: float) -> float:
    """The root of lambda exp(lambda^2) erf(lambda) = Ste / sqrt(pi)."""
    return _root(lambda x: x * math.exp(x * x) * math.erf(x) - stefan / math.sqrt(math.pi))


def _check_one_phase(stefan: float, advance: Advance, dtype: np.dtype[Any]) -> Outcome:
    """A unit rod at its melting point, 1 degC on its left: the front is at 2 lambda sqrt(t), the
    melt at 1 - erf(x / (2 sqrt(t))) / erf(lambda).

    H. S. Carslaw, J. C. Jaeger, Conduction of Heat in Solids, 2nd ed. (Oxford, 1959), section 11.2.
    """
    n, front, latent, root = 30, 0.7, 1 / stefan, stefan_root(stefan)
    material = MaterialCurves(((0.0, 1.0),), ((0.0, 1.0),), 1.0, Melting(latent, 0.0, 0.0))
    grid, enthalpy = _rod(material, n, 1.0)
    end = (front / (2 * root)) ** 2
    heat = advance(_pose(grid, enthalpy, 1.0, initial=0.0, duration=end))[0]

    x = grid.coordinates(0)
    exact = 1 - np.array([math.erf(it) for it in x / (2 * math.sqrt(end))]) / math.erf(root)
    off = np.abs(_temperature(enthalpy, heat) - exact)[x < front - 0.1]
    if not off.max() <= 0.02:  # NaN neither
        return Outcome(math.inf, 0.0)
    # What the melt holds says where the front is, to a fraction of a cell.
    molten = float(np.clip(heat / latent, 0.0, 1.0).sum()) * grid.spacing[0]
    return Outcome(abs(molten - front), _FRONT * grid.spacing[0])


def _check_two_phases(advance: Advance, dtype: np.dtype[Any]) -> Outcome:
    """A liquid above its melting point freezes from the left, below it: Neumann's solution, k_s
    dT_s/dx - k_l dT_l/dx = L ds/dt at a front at 2 lambda sqrt(t).

    H. S. Carslaw, J. C. Jaeger, Conduction of Heat in Solids, 2nd ed. (Oxford, 1959), section 11.2.
    """
    n, front, solid, liquid, latent, cold, hot = 120, 0.51, 2.0, 0.6, 3.0, -1.0, 1.5
    conductivity = ((-1e-9, solid), (1e-9, liquid))
    material = MaterialCurves(conductivity, ((0.0, 1.0),), 1.0, Melting(latent, 0.0, 0.0))

    def balance(x: float) -> float:
        flows = []
        for k, share, degrees in ((solid, math.erf, -cold), (liquid, math.erfc, hot)):
            depth = x / math.sqrt(k)
            flows.append(
                k * degrees * math.exp(-(depth**2)) / share(depth) / math.sqrt(math.pi * k)
            )
        return flows[0] - flows[1] - latent * x

    end = (front / (2 * _root(balance))) ** 2
    grid, enthalpy = _rod(material, n, 3.0)
    problem = _pose(grid, enthalpy, cold, initial=latent + hot, duration=end, refined=2)
    heat = advance(problem)[0]
    frozen = float(np.clip(1 - heat / latent, 0.0, 1.0).sum()) * grid.spacing[0]
    return Outcome(abs(frozen - front), 0.7 * grid.spacing[0])


def _check_transform(advance: Advance, dtype: np.dtype[Any]) -> Outcome:
    """With k = c = 1 + T/2 the heat content w = T + T^2/4 obeys dw/dt = d2w/dx2: a Fourier series.

    G. Kirchhoff's transform: H. S. Carslaw, J. C. Jaeger, Conduction of Heat in Solids, 2nd ed.
    (Oxford, 1959), section 1.6.
    """
    n, hot, t = 40, 3.0, 0.1
    table = ((0.0, 1.0), (10.0, 6.0))
    grid, enthalpy = _rod(MaterialCurves(table, table, 1.0), n, 1.0)
    heat = advance(_pose(grid, enthalpy, hot, initial=0.0, duration=t))[0]

    modes = (np.arange(60) + 0.5) * math.pi
    series = 2 / modes * np.exp(-(modes**2) * t) * np.sin(np.outer(grid.coordinates(0), modes))
    w = (hot + hot**2 / 4) * (1 - series.sum(axis=1))
    if not np.abs(heat - w).max() <= 2e-3 * (hot + hot**2 / 4):
        return Outcome(math.inf, 0.0)
    exact = 2 * (np.sqrt(1 + w) - 1)
    return Outcome(float(np.abs(_temperature(enthalpy, heat) - exact).max()), 1e-2)


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
    # Only the error of time steps differs: half the step, half the error.
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
        # Each inner face once, and symmetric: what leaves one cell enters the other.
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
    """Check that a closed body holds what it held and what its sources gave, to 1e-12 of it."""
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


# Electric heating.

_CARSLAW = "H. S. Carslaw, J. C. Jaeger, Conduction of Heat in Solids, 2nd ed. (1959), section 4.10"
_ONDERDONK = "Onderdonk's formula: E. R. Stauffacher, General Electric Review 31 (1928) 326"
_KOHLRAUSCH = "F. Kohlrausch, Ann. Phys. 306 (1900) 132"
_COPPER = {"conductivity": 400.0, "density": 8900.0, "specific_heat": 385.0}
_CARRIES, _RISES = 58e6, 0.0039  # [S/m] at 20 degC, and the rise of the resistance [1/K]
_HOTTER = f"{_CARRIES}/(1 + {_RISES}*(T - 20))"


_LANDAU = "H. G. Landau, Heat conduction in a melting solid, Quart. Appl. Math. 8 (1950) 81"


def burnt_off() -> Standard:
    """A solid that goes where it is hot, under a flame whose flux does not depend on the surface:
    in the end this recedes at v = q / (rho c T), and ahead of it T falls by exp(-v x / a).
    """
    flux, hot, a, end = 1e6, 1000.0, 1e-6, 5.0
    flame = {"name": "flame", "fluid": {"ambient": 1e9, "h": flux / 1e9}}
    char = {"conductivity": 1.0, "density": 1000.0, "specific_heat": 1000.0}
    body = {"material": "char", "box": {"x": [5e-4, 0.012]}, "goes": {"above": hot}}
    sections = {
        "grid": {"shape": [240], "size": [0.012]},
        "model": {"type": "heat", "materials": {"char": char}, "regions": [flame, body]},
        "initial": {"type": "constant", "value": 0},
        "boundaries": {"*": {"type": "neumann"}},
        "time": {"t_end": end},
    }

    def look(answer: Answer) -> Iterator[StandardRow]:
        speed = flux / (1e6 * hot)
        # All heat is in what has gone, and in the profile.
        surface = 5e-4 + speed * end - a / speed
        for x in (0.005, 0.006, 0.007):
            exact = hot * math.exp(-speed * (x - surface) / a)
            # The surface is known to a cell of 0.05 mm.
            off = exact * speed * 5e-5 / a
            yield StandardRow(f"at {x * 1e3:g} mm [degC]", exact, off, answer.temperature(x))

    return Standard("a solid that a flame burns off", _LANDAU, sections, look)


def electric_cases() -> Iterator[Standard]:
    """Wires, a ring, a fuse and bent bars that currents heat, as a user would pose them."""
    yield _wire()
    yield _radial_shunt()
    yield _bent_bar()
    yield _hotter_wire()
    yield _fuse()
    yield _joined_wires()
    yield _bent_metal()


def _carrying(electrodes: list[dict[str, Any]], **model: Any) -> dict[str, Any]:
    ends = {it["face"]: {"type": "dirichlet", "value": 20.0} for it in electrodes}
    return {
        "model": {
            "type": "heat",
            "materials": {"copper": _COPPER},
            "regions": [{"material": "copper"}],
            "electric": {"conductivities": {"copper": _CARRIES}, "electrodes": electrodes},
            **model,
        },
        "boundaries": ends | {"*": {"type": "neumann"}},
        "time": {"scheme": "steady", "tolerance": 1e-10},
    }


def _wire() -> Standard:
    length, density, n = 0.1, 2e7, 101
    electrodes = [{"face": "x-", "current": density}, {"face": "x+", "voltage": 0.0}]
    sections = {"grid": {"shape": [n], "size": [length]}, **_carrying(electrodes)}

    def look(answer: Answer) -> Iterator[StandardRow]:
        k = _COPPER["conductivity"]
        middle = 20 + density**2 * length**2 / (8 * k * _CARRIES)
        # Halves of cells at the ends conduct as straight lines: of second order.
        yield StandardRow("middle [degC]", middle, 2e-2, answer.temperature(length / 2))
        lost = density**2 * length / _CARRIES
        yield StandardRow("power [W/m^2]", lost, 1e-8 * lost, answer.flows()["currents"])

    return Standard("wire that carries a current", _CARSLAW, sections, look)


def _radial_shunt() -> Standard:
    inner, outer, current = 0.01, 0.03, 1e6
    grid = {
        "coordinates": "cylindrical",
        "axes": ["r"],
        "shape": [40],
        "size": [outer - inner],
        "origin": {"r": inner},
    }
    electrodes = [{"face": "r-", "current": current}, {"face": "r+", "voltage": 0.0}]
    sections = {"grid": grid, **_carrying(electrodes)}

    def look(answer: Answer) -> Iterator[StandardRow]:
        resistance = math.log(outer / inner) / (2 * math.pi * _CARRIES)
        found = answer.flows()["currents"] / current**2
        yield StandardRow("resistance [Ohm m]", resistance, 1e-3 * resistance, found)

    return Standard("ring with a radial current", "R = ln(b/a) / (2 pi sigma)", sections, look)


def _bent_bar() -> Standard:
    # Of a shape without a formula: only what heat and current have in common is known.
    voltage, side, n = 0.1, 0.06, 60
    electrodes = [{"face": "y-", "voltage": voltage}, {"face": "x+", "voltage": 0.0}]
    empty = {"void": True, "box": {"x": [side / 3, side], "y": [0.0, side * 2 / 3]}}
    regions = [{"material": "copper"}, empty]
    sections = {
        "grid": {"shape": [n, n], "size": [side, side]},
        **_carrying(electrodes, regions=regions),
    }

    def look(answer: Answer) -> Iterator[StandardRow]:
        highest = 20 + voltage**2 * _CARRIES / (8 * _COPPER["conductivity"])
        found = float(np.nanmax(answer.field()))
        yield StandardRow("highest temperature [degC]", highest, 0.5, found)

    return Standard("bent bar between two electrodes", _KOHLRAUSCH, sections, look)


def _conducting(sections: dict[str, Any], conductivity: str) -> dict[str, Any]:
    sections["model"]["electric"]["conductivities"] = {"copper": conductivity}
    return sections


def _hotter_wire() -> Standard:
    # k T'' + j^2 (1 + a (T - 20)) / sigma = 0 between cold ends.
    length, density, n = 0.1, 2e7, 101
    electrodes = [{"face": "x-", "current": density}, {"face": "x+", "voltage": 0.0}]
    grid = {"shape": [n], "size": [length]}
    sections = {"grid": grid, **_conducting(_carrying(electrodes), _HOTTER)}

    def look(answer: Answer) -> Iterator[StandardRow]:
        m = density * math.sqrt(_RISES / _CARRIES / _COPPER["conductivity"])
        middle = 20 + (1 / math.cos(m * length / 2) - 1) / _RISES
        yield StandardRow("middle [degC]", middle, 5e-2, answer.temperature(length / 2))
        voltage = density / _CARRIES * math.tan(m * length / 2) * 2 / m
        found = answer.beside()["electrode 1 voltage"]
        yield StandardRow("voltage [V]", voltage, 1e-4 * voltage, found)
        given = answer.flows()["currents"] - density * found
        yield StandardRow("heat less V I [W/m^2]", 0.0, 1e-8 * density * voltage, given)

    return Standard("wire whose resistance rises", _CARSLAW, sections, look)


def _fuse() -> Standard:
    # Adiabatic: (I/A)^2 t = rho c sigma / a ln(1 + a (T - 20)).
    density, melts = 1e9, 1083.0
    heats = density**2 * _RISES / (_CARRIES * _COPPER["density"] * _COPPER["specific_heat"])
    time = math.log1p(_RISES * (melts - 20)) / heats
    electrodes = [{"face": "x-", "current": density}, {"face": "x+", "voltage": 0.0}]
    sections = {
        "grid": {"shape": [5], "size": [0.01]},
        **_conducting(_carrying(electrodes), _HOTTER),
        "initial": {"type": "constant", "value": 20.0},
        "boundaries": {"*": {"type": "neumann"}},
        "time": {"t_end": time, "dt": time / 400},
    }

    def look(answer: Answer) -> Iterator[StandardRow]:
        reached = math.log1p(_RISES * (answer.temperature(0.005) - 20)) / heats
        yield StandardRow("time to melt [s]", time, 5e-3 * time, time * time / reached)

    return Standard("fuse", _ONDERDONK, sections, look)


def _joined_wires() -> Standard:
    # Two wires between cold ends: a contact that heats, and whose heat leaves to either side.
    length, density, joint = 0.1, 1e6, 1e-8
    electrodes = [{"face": "x-", "current": density}, {"face": "x+", "voltage": 0.0}]
    other = {"material": "other", "box": {"x": [length / 2, length]}}
    made = _carrying(
        electrodes,
        materials={"copper": _COPPER, "other": _COPPER},
        regions=[{"material": "copper"}, other],
        contacts=[{"between": ["copper", "other"], "electric_resistance": joint}],
    )
    made["model"]["electric"]["conductivities"]["other"] = _CARRIES
    sections = {"grid": {"shape": [100], "size": [length]}, **made}

    def look(answer: Answer) -> Iterator[StandardRow]:
        power, k = answer.flows()["currents"], _COPPER["conductivity"]
        resistance = length / _CARRIES + joint
        found = power / density**2
        yield StandardRow("R + R_c [Ohm m^2]", resistance, 1e-8 * resistance, found)
        # What is conducted away, of the wires and of the contact.
        middle = 20 + density**2 * (length / _CARRIES / 8 + joint / 4) * length / k
        place = length / 2 - length / 200
        yield StandardRow("contact [degC]", middle, 0.015, answer.temperature(place))

    return Standard("two wires with a contact", "V = I (R + R_c)", sections, look)


def _bent_metal() -> Standard:
    # By Wiedemann and Franz, sigma = k / (L T), T^2 is highest V^2 / (4 L) above that of the ends.
    voltage, side, n, lorenz = 0.2, 0.06, 60, 2.44e-8
    electrodes = [{"face": "y-", "voltage": voltage}, {"face": "x+", "voltage": 0.0}]
    empty = {"void": True, "box": {"x": [side / 3, side], "y": [0.0, side * 2 / 3]}}
    made = _carrying(electrodes, regions=[{"material": "copper"}, empty])
    metal = f"{_COPPER['conductivity'] / lorenz}/(T + {KELVIN})"
    sections = {"grid": {"shape": [n, n], "size": [side, side]}, **_conducting(made, metal)}

    def look(answer: Answer) -> Iterator[StandardRow]:
        highest = math.sqrt((20 + KELVIN) ** 2 + voltage**2 / (4 * lorenz)) - KELVIN
        found = float(np.nanmax(answer.field()))
        yield StandardRow("highest temperature [degC]", highest, 5e-3 * highest, found)

    return Standard("bent bar of a metal", f"{_KOHLRAUSCH}; Wiedemann and Franz", sections, look)
