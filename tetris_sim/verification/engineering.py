"""Cases of thermal engineering with answers from formulas and papers, as a user would pose them.

`_FAMILIES` is the table of the suite: a function for each kind of physics, which yields its cases.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tetris_sim.model.conduction import Numbers
from tetris_sim.model.radiation import KELVIN, STEFAN_BOLTZMANN
from tetris_sim.verification.bodies import round_cases, stream_cases
from tetris_sim.verification.heated import burnt_off, electric_cases
from tetris_sim.verification.standards import Answer, Standard, StandardRow, floorplans

_STEADY = {"scheme": "steady", "tolerance": 1e-10}
_INSULATED = {"type": "neumann"}
_MODEST = "M. F. Modest, Radiative Heat Transfer, 3rd ed. (2013), section 5.3"


def engineering_cases() -> tuple[Standard, ...]:
    """Return the cases of all families."""
    return tuple(case for family in _FAMILIES for case in family())


def root(of: Callable[[float], float], low: float, high: float) -> float:
    """Return the number between two others at which a function is 0."""
    from scipy.optimize import brentq

    return float(brentq(of, low, high, xtol=1e-13, rtol=1e-14))


# Radiation: to what lies around a body, and across gaps.


def _solid(k: float = 2.0) -> dict[str, float]:
    return {"conductivity": k, "density": 2000.0, "specific_heat": 500.0}


def _fixed(kelvin: float) -> dict[str, Any]:
    return {"type": "dirichlet", "value": kelvin - KELVIN}


def _radiation() -> Iterator[Standard]:
    yield _rod_in_space()
    yield _plate_that_cools()
    for axes, name in (((), "plates"), (("r",), "cylinders"), (("r",), "spheres")):
        yield _gap(name, [*axes])


def _rod_in_space() -> Standard:
    # Of 0.1 m, at 1200 K behind; what is conducted is what its end radiates to nothing.
    k, length, behind, e = 2.0, 0.1, 1200.0, 0.8
    region = {"name": "space", "box": {"x": [length, 1]}}
    sections = {
        "grid": {"shape": [24], "size": [0.12]},
        "model": {
            "type": "heat",
            "materials": {"rod": _solid(k)},
            "regions": [
                {"material": "rod"},
                {**region, "fluid": {"ambient": -KELVIN, "emissivity": e}},
            ],
        },
        "boundaries": {"x-": _fixed(behind), "*": _INSULATED},
        "time": _STEADY,
    }
    end = root(lambda t: k / length * (behind - t) - e * STEFAN_BOLTZMANN * t**4, 0, behind)

    def look(answer: Answer) -> Iterator[StandardRow]:
        flow = k / length * (behind - end)
        found = answer.flows()
        yield StandardRow("heat into space [W/m^2]", flow, 1e-6 * flow, found["rod to space"])
        behind_end = end - KELVIN + flow / k * length / 40
        row = answer.temperature(length * (1 - 1 / 40))
        yield StandardRow("behind the end [degC]", behind_end, 1e-6, row)

    return Standard("rod that radiates into space", _MODEST, sections, look)


def _plate_that_cools() -> Standard:
    # Thin and of high conductivity, so that it has one temperature, over time by quadrature.
    thickness, hot, cold, e, h = 0.01, 1000.0, 300.0, 0.7, 8.0
    solid = {**_solid(1e4), "density": 1000.0, "specific_heat": 1000.0}
    end = 600.0
    sections = {
        "grid": {"shape": [4], "size": [0.02]},
        "initial": {"type": "constant", "value": hot - KELVIN},
        "model": {
            "type": "heat",
            "materials": {"plate": solid},
            "regions": [
                {"material": "plate"},
                {
                    "name": "air",
                    "box": {"x": [thickness, 1]},
                    "fluid": {"ambient": cold - KELVIN, "h": h, "emissivity": e},
                },
            ],
        },
        "boundaries": {"*": _INSULATED},
        "time": {"scheme": "implicit", "dt": 10.0, "t_end": end, "tolerance": 1e-9},
    }

    def look(answer: Answer) -> Iterator[StandardRow]:
        from scipy.integrate import solve_ivp

        def rate(_: float, t: Any) -> Any:
            lost = h * (t - cold) + e * STEFAN_BOLTZMANN * (t**4 - cold**4)
            return -lost / (thickness * 1000.0 * 1000.0)

        exact = solve_ivp(rate, (0, end), [hot], rtol=1e-11, atol=1e-9).y[0, -1] - KELVIN
        found = answer.temperature(thickness / 2)
        yield StandardRow(f"after {end:g} s [degC]", float(exact), 0.05, found)

    source = "c m dT/dt = -A (h (T - Ta) + e sigma (T^4 - Ta^4)), by SciPy"
    return Standard("plate that cools by radiation", source, sections, look)


def _gap(name: str, axes: list[str]) -> Standard:
    # Two shells that touch at r = 0.15 m but for a thin gap, at 1000 K inside and 300 K outside.
    inner, middle, outer = (0.1, 0.15, 0.2)
    first, second, hot, cold, e = 3.0, 0.5, 1000.0, 300.0, (0.8, 0.5)
    axis = "r" if axes else "x"
    begin = inner if axes else 0.0
    grid: dict[str, Any] = {"shape": [80], "size": [outer - inner]}
    if axes:
        system = {"cylinders": "cylindrical", "spheres": "spherical"}[name]
        grid |= {"coordinates": system, "axes": axes, "origin": {"r": inner}}
    wide = {axis: [begin + middle - inner, begin + outer - inner]}
    sections = {
        "grid": grid,
        "model": {
            "type": "heat",
            "materials": {"first": _solid(first), "second": _solid(second)},
            "regions": [{"material": "first"}, {"material": "second", "box": wide}],
            "contacts": [{"between": ["first", "second"], "emissivity": [*e]}],
        },
        "boundaries": {f"{axis}-": _fixed(hot), f"{axis}+": _fixed(cold)},
        "time": _STEADY,
    }

    def resistance(k: float, a: float, b: float) -> float:
        if name == "plates":
            return (b - a) / k
        if name == "cylinders":
            return math.log(b / a) / (2 * math.pi * k)
        return (1 / a - 1 / b) / (4 * math.pi * k)

    # Of the gap; that of cylinders is per metre.
    area = {"plates": 1.0, "cylinders": 2 * math.pi * middle, "spheres": 4 * math.pi * middle**2}
    effective = 1 / (1 / e[0] + 1 / e[1] - 1)

    def missing(flow: float) -> float:
        inside = hot - flow * resistance(first, inner, middle)
        outside = cold + flow * resistance(second, middle, outer)
        return area[name] * effective * STEFAN_BOLTZMANN * (inside**4 - outside**4) - flow

    def look(answer: Answer) -> Iterator[StandardRow]:
        flow = root(missing, 0.0, (hot - cold) / resistance(second, middle, outer))
        # Cells of shells resist by their mean areas: second order.
        within = 1e-6 if not axes else 1e-4
        found = answer.flows()["first to second"]
        yield StandardRow("heat across the gap [W]", flow, within * flow, found)

    return Standard(f"gap between {name}", _MODEST, sections, look)


# Sources that depend on temperature: what reacts, leaks or resists.

_FRANK = "D. A. Frank-Kamenetskii, Diffusion and Heat Transfer in Chemical Kinetics (1969)"
_SYSTEMS = {"slab": "", "cylinder": "cylindrical", "sphere": "spherical"}


def explosion(shape: str, delta: float, n: int) -> dict[str, Any]:
    """A slab, cylinder or sphere of half-width 1 and n cells, at 0 outside, in which delta exp(T)
    is set free, of k = 1: it burns steadily up to a critical delta, and explodes beyond it.
    """
    grid: dict[str, Any] = {"shape": [n], "size": [1.0]}
    outside = "x+"
    if system := _SYSTEMS[shape]:
        grid |= {"coordinates": system, "axes": ["r"]}
        outside = "r+"
    sides = {} if system else {"x-": _INSULATED}

    return {
        "grid": grid,
        "initial": {"type": "constant", "value": 0},
        "model": {
            "type": "heat",
            "materials": {"fuel": {"conductivity": 1, "density": 1, "specific_heat": 1}},
            "regions": [{"material": "fuel"}],
            "sources": [{"density": f"{delta}*exp(T)"}],
        },
        "boundaries": {outside: {"type": "dirichlet", "value": 0}, **sides},
        "time": _STEADY,
    }


def _reactions() -> Iterator[Standard]:
    for number, (shape, delta) in enumerate((("slab", 0.8), ("cylinder", 1.8), ("sphere", 3.0))):
        yield _burning(shape, delta, number)


def _burning(shape: str, delta: float, curved: int) -> Standard:
    def look(answer: Answer) -> Iterator[StandardRow]:
        from scipy.integrate import solve_ivp

        def outside(centre: float) -> float:
            # T'' + curved / r T' = -delta exp(T), from a small r on, where T is a parabola.
            begin = 1e-6
            slope = -delta * math.exp(centre) / (1 + curved) * begin

            def rates(r: float, it: Any) -> tuple[Any, Any]:
                return it[1], -delta * math.exp(it[0]) - curved / r * it[1]

            found = solve_ivp(rates, (begin, 1.0), (centre, slope), rtol=1e-10, atol=1e-12)
            return float(found.y[0, -1])

        # The smaller of two centre temperatures; the other one does not last.
        exact = root(outside, 0.0, 1.1)
        found = answer.temperature(0.0)
        yield StandardRow("centre [1]", exact, 1e-4, found)

    return Standard(f"{shape} that burns", _FRANK, explosion(shape, delta, 200), look)


# Enclosures: voids whose surfaces see each other.

_INCROPERA = "F. P. Incropera et al., Fundamentals of Heat and Mass Transfer, 6th ed. (2007)"
_VOID = {"radiates": True}
_FAST = 1e5  # a conductivity with which a wall has one temperature [W/(m K)]


def _enclosures() -> Iterator[Standard]:
    for name in ("plates", "cylinders", "spheres"):
        yield _shells(name)
    yield _cold_tube(shielded=False)
    yield _cold_tube(shielded=True)
    yield _duct()
    yield _furnace()


def _grey(emissivity: float) -> dict[str, float]:
    return {**_solid(_FAST), "emissivity": emissivity}


def _shells(name: str) -> Standard:
    inner, outer, hot, cold, e = 0.1, 0.25, 1000.0, 300.0, (0.8, 0.3)
    axis, begin = ("x", 0.0) if name == "plates" else ("r", inner - 0.01)
    grid: dict[str, Any] = {"shape": [17], "size": [0.17]}
    if axis == "r":
        system = {"cylinders": "cylindrical", "spheres": "spherical"}[name]
        grid |= {"coordinates": system, "axes": ["r"], "origin": {"r": begin}}
    void = {"name": "gap", "void": _VOID, "box": {axis: [begin + 0.01, begin + 0.16]}}
    sections = {
        "grid": grid,
        "model": {
            "type": "heat",
            "materials": {"inner": _grey(e[0]), "outer": _grey(e[1])},
            "regions": [
                {"material": "inner"},
                {"material": "outer", "box": {axis: [begin + 0.05, 1]}},
                void,
            ],
        },
        "boundaries": {f"{axis}-": _fixed(hot), f"{axis}+": _fixed(cold)},
        "time": _STEADY,
    }
    power = {"plates": 0, "cylinders": 1, "spheres": 2}[name]
    area = (1.0, 2 * math.pi * inner, 4 * math.pi * inner**2)[power]
    ratio = (inner / outer) ** power

    def look(answer: Answer) -> Iterator[StandardRow]:
        resisted = 1 / e[0] + ratio * (1 / e[1] - 1)
        flow = area * STEFAN_BOLTZMANN * (hot**4 - cold**4) / resisted
        found = answer.flows()[f"{axis}-"]
        yield StandardRow("heat across the void [W]", flow, 3e-5 * flow, found)

    return Standard(f"void between {name}", _MODEST, sections, look)


def _cold_tube(*, shielded: bool) -> Standard:
    # A tube at 77 K in one at 300 K, with and without a shield between them.
    e = {"tube": 0.02, "shell": 0.05, "shield": 0.02}
    regions: list[dict[str, Any]] = [
        {"material": "shell"},
        {"name": "vacuum", "void": _VOID, "box": {"r": ["10 mm", "25 mm"]}},
        {"material": "tube", "box": {"r": ["8 mm", "10 mm"]}},
    ]
    if shielded:
        regions.append({"material": "shield", "box": {"r": ["17.4 mm", "17.6 mm"]}})
    sections = {
        "grid": {
            "coordinates": "cylindrical",
            "axes": ["r"],
            "shape": [85],
            "size": ["17 mm"],
            "origin": {"r": "9 mm"},
        },
        "model": {
            "type": "heat",
            "materials": {
                name: {**_solid(50.0), "emissivity": it}
                for name, it in e.items()
                if shielded or name != "shield"
            },
            "regions": regions,
        },
        "boundaries": {"r-": _fixed(77), "r+": _fixed(300)},
        "time": _STEADY,
    }

    def look(answer: Answer) -> Iterator[StandardRow]:
        printed = 0.25 if shielded else 0.50
        yield StandardRow("heat gain [W/m]", printed, 0.005, -answer.flows()["r-"])

    said = "with" if shielded else "without"
    source = f"{_INCROPERA}, example 13.5"
    return Standard(f"cryogenic tube {said} a shield", source, sections, look)


def _walls(ndim: int, e: tuple[float, float, float]) -> dict[str, Any]:
    """A square or cubic void of 1 m between walls of one cell, with nothing in the corners: one
    hot, the one opposite cold, the others between.
    """
    names = "xyz"[:ndim]
    inside = {name: [0.1, 1.1] for name in names}
    regions: list[dict[str, Any]] = [{"void": True}]
    for name in names:
        for low, high in ((0.0, 0.1), (1.1, 1.2)):
            which = "side" if name != "x" else ("hot" if low == 0 else "cold")
            regions.append({"material": which, "box": {**inside, name: [low, high]}})

    regions.append({"void": {"radiates": True, "patch": 1.0}, "box": inside})
    return {
        "grid": {"shape": [12] * ndim, "size": [1.2] * ndim},
        "model": {
            "type": "heat",
            "materials": {
                name: _grey(it) for name, it in zip(("hot", "cold", "side"), e, strict=True)
            },
            "regions": regions,
        },
        "time": _STEADY,
    }


def _duct() -> Standard:
    # Both sides are insulated: what they radiate is what they receive.
    hot, cold, e = 1200.0, 500.0, (0.8, 0.4, 0.6)
    sections = _walls(2, e)
    sections["boundaries"] = {"x-": _fixed(hot), "x+": _fixed(cold), "*": _INSULATED}

    def look(answer: Answer) -> Iterator[StandardRow]:
        opposite = math.sqrt(2) - 1
        # Directly, and by way of both sides, which have one radiosity for reasons of symmetry.
        seen = opposite + (1 - opposite) / 2
        resisted = (1 - e[0]) / e[0] + 1 / seen + (1 - e[1]) / e[1]

        def emitted(flow: float) -> tuple[float, float]:
            # Walls of 0.1 m conduct what is radiated between them.
            lost = flow * 0.1 / _FAST
            return STEFAN_BOLTZMANN * (hot - lost) ** 4, STEFAN_BOLTZMANN * (cold + lost) ** 4

        flow = root(lambda q: emitted(q)[0] - emitted(q)[1] - q * resisted, 0.0, 1e6)
        yield StandardRow("heat [W/m]", flow, 1e-5 * flow, answer.flows()["x-"])
        high, low = emitted(flow)
        ends = high - flow * (1 - e[0]) / e[0], low + flow * (1 - e[1]) / e[1]
        side = (sum(ends) / 2 / STEFAN_BOLTZMANN) ** 0.25 - KELVIN
        yield StandardRow("insulated side [degC]", side, 0.05, answer.temperature(0.6, 0.05))

    source = f"{_INCROPERA}, section 13.3.5, with crossed strings"
    return Standard("square duct with reradiating sides", source, sections, look)


def _furnace() -> Standard:
    hot, cold, e = 1200.0, 500.0, (0.8, 0.4, 0.6)
    sections = _walls(3, e)
    sections["boundaries"] = {"x-": _fixed(hot), "*": _fixed(cold)}

    def look(answer: Answer) -> Iterator[StandardRow]:
        import numpy as np

        # Radiosities of the hot face, of that opposite and of the four others.
        across, beside = 0.199825, 0.200044
        view = np.array(
            [
                [0, across, 4 * beside],
                [across, 0, 4 * beside],
                [beside, beside, across + 2 * beside],
            ]
        )
        share = np.array(e)
        matrix = np.eye(3) - (1 - share)[:, None] * view

        def flows(given: Any) -> Any:
            emitted = STEFAN_BOLTZMANN * (np.array([hot, cold, cold]) - given * 0.1 / _FAST) ** 4
            radiosity = np.linalg.solve(matrix, share * emitted)
            return (emitted - radiosity) * share / (1 - share)

        flow = float(flows(flows(flows(np.zeros(3))))[0])
        yield StandardRow("heat of the hot face [W]", flow, 1e-5 * flow, answer.flows()["x-"])

    return Standard("cubic furnace", f"{_MODEST}, with view factors of a cube", sections, look)


# Layers that are laid down: between two of them a slab has its series.

_SERIES = (
    "H. S. Carslaw, J. C. Jaeger, Conduction of Heat in Solids, 2nd ed. (1959), chapter 3, the "
    "series of a slab from layer to layer"
)
_LAID = {"conductivity": 50.0, "density": 8000.0, "specific_heat": 500.0}
_SPREADS = 50.0 / 8000.0 / 500.0  # diffusivity of the same [m^2/s]


def _laying() -> Iterator[Standard]:
    yield _joined()
    yield _wall_of_beads()
    yield burnt_off()


def _slab(profile: Numbers, length: float, time: float, held: float | None = None) -> Numbers:
    """The temperatures of a slab after a time, at as many places as at first; the face at 0 is held
    at a temperature or insulated, the other one is insulated.
    """
    x = (np.arange(len(profile)) + 0.5) * length / len(profile)
    k = (np.arange(400) + (0.0 if held is None else 0.5)) * np.pi / length
    shapes = np.cos(np.outer(k, x)) if held is None else np.sin(np.outer(k, x))
    begin = 0.0 if held is None else held
    amplitude = 2 * (shapes * (profile - begin)).mean(axis=1)
    # The mean of what is insulated is no wave.
    amplitude[0] /= 2 if held is None else 1
    return np.asarray(begin + (amplitude * np.exp(-_SPREADS * k**2 * time)) @ shapes)


def _laid_down(n: int, width: float, layers: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """Layers of n cells one over the other, in nothing; the first one is there at the beginning."""
    regions = [
        {
            "name": f"layer {k}",
            "material": "steel",
            "box": {"x": [k * width, (k + 1) * width]},
            **it,
        }
        for k, it in enumerate(layers)
    ]
    return {
        "grid": {"shape": [n * len(layers)], "size": [width * len(layers)]},
        "model": {
            "type": "heat",
            "materials": {"steel": _LAID},
            "regions": [{"name": "nothing", "void": True}, *regions],
        },
        "boundaries": {"*": _INSULATED},
        **more,
    }


def _joined() -> Standard:
    # The first half has begun to even out when the second one is joined to it.
    width, joined, end = 0.02, 4.0, 10.0
    initial = {"type": "expression", "expression": f"300 + 200*cos(pi*x/{width})"}
    sections = _laid_down(
        *(100, width, [{}, {"from": joined, "arrives_at": 900}]),
        initial=initial,
        time={"t_end": end},
    )

    def look(answer: Answer) -> Iterator[StandardRow]:
        half = (np.arange(2000) + 0.5) / 2000
        first = _slab(300 + 200 * np.cos(np.pi * half), width, joined)
        both = _slab(np.concatenate([first, np.full(2000, 900.0)]), 2 * width, end - joined)
        for part in (0.25, 0.5, 0.75):
            exact = float(both[int(4000 * part) - 1 : int(4000 * part) + 1].mean())
            found = answer.temperature(2 * width * part)
            yield StandardRow(f"at {part:g} of the width [degC]", exact, 0.05, found)

    return Standard("two layers that are joined", _SERIES, sections, look)


def _wall_of_beads() -> Standard:
    # On a cold table; every layer finds those below still warm.
    width, count, pause, hot, cold = 0.003, 8, 2.0, 1500.0, 20.0
    times = [{"from": pause * k, "arrives_at": hot} for k in range(count)]
    sections = _laid_down(
        *(10, width, times),
        initial={"type": "constant", "value": hot},
        time={"t_end": pause * count, "scheme": "implicit", "dt": 0.02},
    )
    sections["boundaries"] = {"x-": {"type": "dirichlet", "value": cold}, "*": _INSULATED}

    def look(answer: Answer) -> Iterator[StandardRow]:
        state: Numbers = np.empty(0)
        for layers in range(1, count + 1):
            state = np.concatenate([state, np.full(400, hot)])
            state = _slab(state, layers * width, pause, cold)
        for layers in (1, 4, 7):
            exact = float(state[400 * layers - 1 : 400 * layers + 1].mean())
            found = answer.temperature(layers * width)
            yield StandardRow(f"over layer {layers} [degC]", exact, 0.5, found)

    return Standard("wall of beads on a cold table", _SERIES, sections, look)


_FAMILIES: tuple[Callable[[], Iterator[Standard]], ...] = (
    _radiation,
    _enclosures,
    electric_cases,
    stream_cases,
    _reactions,
    _laying,
    round_cases,
    floorplans,
)
