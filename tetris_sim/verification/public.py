"""Cases that others publish to validate codes with: of fires, finite elements, chips and buildings.

The sources are public: the inputs and reference results of the Fire Dynamics Simulator, which hold
those of the SFPE's standard; the verification manual of Ansys Mechanical APDL; the benchmarks of
NAFEMS; the tests of 3D-ICE and HotSpot; IEA BESTEST; and papers. Where a manual uses British units,
so do the numbers here: an equation without radiation does not know its units.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import numpy as np

from tetris_sim.verification.standards import (
    Answer,
    Standard,
    StandardRow,
    cells,
    compare,
    grid,
)

_STEADY = {"scheme": "steady", "tolerance": 1e-9}
_INSULATED = {"type": "neumann"}


def public_cases() -> tuple[Standard, ...]:
    """Cases by field: fires, finite elements, chips, buildings, properties and phase change."""
    return (*_fires(), *_elements(), *_chips(), *_papers())


def _stepped(dt: float, end: float) -> dict[str, object]:
    return {"scheme": "implicit", "dt": dt, "t_end": end}


def _body(k: object, density: float, heat: object) -> dict[str, object]:
    """A body of one material."""
    return {"type": "heat", "conductivity": k, "density": density, "specific_heat": heat}


def _tables(k: object, density: float, heat: object) -> dict[str, object]:
    """A body of one material that depends on temperature or direction."""
    material = {"conductivity": k, "density": density, "specific_heat": heat}
    return {"type": "heat", "materials": {"it": material}, "regions": [{"material": "it"}]}


def _history(
    points: Mapping[str, Sequence[float]],
    published: Mapping[float, Sequence[float]],
    tolerance: float,
    answer: Answer,
) -> Iterator[StandardRow]:
    """Temperatures at points at the time that the answer is of."""
    for (name, place), number in zip(points.items(), published[answer.time], strict=True):
        found = answer.temperature(*place)
        yield StandardRow(f"{name}, {answer.time:g} s [degC]", number, tolerance, found)


# Fires.

_FDS = "firemodels/fds, Verification/Heat_Transfer"
_SFPE = "SFPE S.02, in firemodels/fds, Verification/Heat_Transfer"


def _fire(emissivity: float, h: float, cold: float) -> dict[str, object]:
    """A surface in the standard fire of ISO 834, whose gas begins at `cold`."""
    gas = f"{cold} + 345*log10(8*t/60 + 1)"
    return {"type": "radiation", "emissivity": emissivity, "h": h, "ambient": gas}


# Temperatures of the surfaces above the lower flange.
_BEAM = {3500.0: (784.3, 613.0, 381.8, 309.4, 273.0, 171.7)}
_PROBES = {
    "hot edge": (0.395, 0.395, 0.06),
    "x = 145 mm": (0.345, 0.295, 0.06),
    "x = 95 mm": (0.295, 0.195, 0.06),
    "beside the web, hot end": (0.225, 0.395, 0.06),
    "cold end": (0.395, 0.005, 0.06),
    "beside the web, cold end": (0.225, 0.005, 0.06),
}


def _beam() -> dict[str, object]:
    steel = {"conductivity": 45, "density": 7850, "specific_heat": 600}

    # Half of one edge of the lower flange is held; everything else is insulated.
    return {
        "grid": {"shape": [40, 40, 40], "size": [0.4, 0.4, 0.4]},
        "initial": {"type": "constant", "value": 20},
        "model": {
            "type": "heat",
            "materials": {"steel": steel},
            "regions": [
                {"material": "steel"},
                {"void": True, "box": {"x": [0, 0.18], "z": [0.06, 0.34]}},
                {"void": True, "box": {"x": [0.22, 0.4], "z": [0.06, 0.34]}},
            ],
        },
        "boundaries": {
            "x+": [
                {"type": "dirichlet", "value": 800, "where": "y > 0.2 and z < 0.06"},
                _INSULATED,
            ],
            "*": _INSULATED,
        },
        "time": _stepped(50, 3500),
    }


def _look_beam(answer: Answer) -> Iterator[StandardRow]:
    # The published numbers are those of a mesh of 10 mm, on which the held edge reaches half an
    # element farther; 5 mm cells change ours by 1 % at most. So those beside the web differ by 6 %.
    for row in _history(_PROBES, _BEAM, 0.0, answer):
        share = 0.06 if "web" in row.quantity else 0.03 if "cold" in row.quantity else 0.02
        yield dataclasses.replace(row, tolerance=share * row.published)


_QUARTER = {"centre": (0.0, 0.0), "side": (0.1, 0.0), "corner": (0.1, 0.1)}
_HOURS = tuple(1800.0 * n for n in range(1, 7))


def _column(model: dict[str, object], cold: float) -> dict[str, object]:
    """A quarter of a square column of 0.2 m."""
    fire = _fire(0.8, 10.0, cold)

    return {
        "grid": {"shape": [40, 40], "size": [0.1, 0.1]},
        "initial": {"type": "constant", "value": cold},
        "model": model,
        "boundaries": {"x+": fire, "y+": fire, "*": _INSULATED},
        "time": _stepped(40, 10800),
    }


_COLUMNS = (
    ((9, 721, 809), (127, 873, 921), (315, 952, 984), (492, 1005, 1028), (640, 1045, 1062),
     (757, 1077, 1089)),
    ((18, 743, 815), (99, 884, 923), (190, 958, 985), (300, 1008, 1028), (411, 1046, 1062),
     (512, 1077, 1089)),
    ((31, 764, 835), (85, 904, 943), (147, 978, 1005), (272, 1028, 1048), (393, 1066, 1082),
     (500, 1097, 1109)),
)  # fmt: skip
_CONCRETE_K = {"table": [[0, 1.5], [200, 0.7], [1000, 0.5]]}
_CONCRETE_C = {"table": [[0, 1089], [99.9, 1089], [100, 5790], [120, 1000], [1000, 1000]]}


def _tube() -> dict[str, object]:
    # A quarter of a square tube of steel, 0.5 mm thick, filled with insulation.
    fire = {"type": "radiation", "emissivity": 0.8, "h": 10.0, "ambient": 1000}
    k = {"table": [[0, 54.7], [800, 27.3], [1200, 27.3]]}
    steel = {"conductivity": k, "density": 7850, "specific_heat": 600}
    filling = {"conductivity": 0.05, "density": 50, "specific_heat": 1000}
    inside = {"material": "filling", "box": {"x": [0, 0.1], "y": [0, 0.1]}}
    axis = cells((0.1, 20), (0.1005, 1))

    return {
        "grid": grid(x=axis, y=axis),
        "initial": {"type": "constant", "value": 0},
        "model": {
            "type": "heat",
            "materials": {"steel": steel, "filling": filling},
            "regions": [{"material": "steel"}, inside],
        },
        "boundaries": {"x+": fire, "y+": fire, "*": _INSULATED},
        "time": _stepped(40, 10800),
    }


def _lumped() -> dict[str, object]:
    fire = _fire(0.7, 25.0, 20.0)

    return {
        "grid": {"shape": [16], "size": [0.04]},
        "initial": {"type": "constant", "value": 20},
        "model": _body(500, 7850, 520),
        "boundaries": {"*": fire},
        "time": _stepped(30, 1800),
    }


def _cone() -> dict[str, object]:
    # As below a cone calorimeter: the surface absorbs its emissivity's share of 50 kW/m2.
    lamp = {"type": "radiation", "emissivity": 0.9, "h": 12, "ambient": 20, "flux": 0.9 * 50e3}

    return {
        "grid": {"shape": [8], "size": [0.01]},
        "initial": {"type": "constant", "value": 20},
        "model": _body(100, 7850, 560),
        "boundaries": {"x+": lamp, "*": _INSULATED},
        "time": _stepped(5, 900),
    }


def _cooled() -> dict[str, object]:
    # The centre is the corner of a quarter, whose cut faces are planes of symmetry. The standard
    # gives 1.8 s; what it prints ends at 1 s.
    cold = {"type": "robin", "h": 1, "ambient": 0}

    return {
        "grid": {"shape": [40, 40], "size": [1, 1]},
        "initial": {"type": "constant", "value": 1000},
        "model": _body(1, 1, 1),
        "boundaries": {"x+": cold, "y+": cold, "*": _INSULATED},
        "time": _stepped(0.005, 1.8),
    }


def _sheet() -> dict[str, object]:
    film = {"type": "radiation", "emissivity": 0.8, "h": 10, "ambient": 20}
    heated = {**film, "flux": 0.8 * 30e3, "where": "x < 0.5 and y < 1"}

    return {
        "grid": {"shape": [20, 40, 4], "size": [1, 2, 0.1]},
        "initial": {"type": "constant", "value": 20},
        "model": _body(50, 7850, 500),
        "boundaries": {"z+": [heated, film], "z-": film, "*": _INSULATED},
        "time": _stepped(120, 3600),
    }


_ALONG = (183, 182, 181, 167, 102, 37, 22, 20, 20)  # every 0.25 m along y
_ACROSS = (194, 181, 111, 39, 25)  # along x


def _look_sheet(answer: Answer) -> Iterator[StandardRow]:
    along = {f"y = {0.25 * k:g} m": (0.25, 0.25 * k, 0.05) for k in range(9)}
    across = {f"x = {0.25 * k:g} m": (0.25 * k, 0.5, 0.05) for k in range(5)}
    yield from compare(answer, along, _ALONG, 3.0)
    yield from compare(answer, across, _ACROSS, 3.0)


def _fires() -> Iterator[Standard]:
    moments = tuple(180.0 * n for n in range(1, 6))
    yield Standard(
        "I-beam with a hot edge", f"{_FDS}/ht3d_ibeam, by Ansys", _beam(), _look_beam, (3500.0,)
    )

    steel = (97.8, 234.4, 390.2, 539.7, 662.9, 751.9)
    times = tuple(300.0 * n for n in range(1, 7))
    look = partial(_history, {"steel": (0.02,)}, _singly(times, steel), 1.0)
    yield Standard("steel plate in a standard fire", f"{_SFPE}/SFPE_Case_1", _lumped(), look, times)
    look = partial(
        _history, {"steel": (0.0,)}, _singly(moments, (195.0, 347.3, 466.2, 547.5, 596.6)), 2.5
    )
    yield Standard("steel plate below a heater", f"{_SFPE}/SFPE_Case_2", _cone(), look, moments)
    times = (0.1, 0.2, 0.4, 0.6, 0.8, 1.0)
    look = partial(
        _history, {"centre": (0.0, 0.0)},
        _singly(times, (986.4, 903.8, 690.2, 514.7, 382.7, 284.5)), 1.0,
    )  # fmt: skip
    yield Standard("square that cools", f"{_SFPE}/SFPE_Case_6", _cooled(), look, times)

    concrete = (
        ("7", _body(1, 2400, 1000), 0.0),
        ("8", _tables(_CONCRETE_K, 2400, 1000), 0.0),
        ("13", _tables(_CONCRETE_K, 2400, _CONCRETE_C), 20.0),
    )
    for (number, model, cold), published in zip(concrete, _COLUMNS, strict=True):
        look = partial(_history, _QUARTER, dict(zip(_HOURS, published, strict=True)), 5.0)
        yield Standard(
            f"concrete column {number} in a standard fire",
            f"{_SFPE}/SFPE_Case_{number}",
            _column(model, cold),
            look,
            _HOURS,
        )
    centre = _singly(_HOURS, (341.0, 723.0, 886.0, 953.0, 981.0, 992.0))
    look, source = partial(_history, {"centre": (0.0, 0.0)}, centre, 1.0), f"{_SFPE}/SFPE_Case_9"
    yield Standard("filled steel tube in a fire", source, _tube(), look, _HOURS)
    yield Standard("plate heated in part", f"{_SFPE}/SFPE_Case_16", _sheet(), _look_sheet)


def _singly(times: Sequence[float], numbers: Sequence[float]) -> dict[float, tuple[float]]:
    """One published number at each time."""
    return {time: (number,) for time, number in zip(times, numbers, strict=True)}


# Finite elements: manuals in feet, Btu, hours and degrees Fahrenheit.

_APDL = "Ansys Mechanical APDL Verification Manual"


def _wire() -> dict[str, object]:
    return {
        "grid": {"coordinates": "cylindrical", "axes": ["r"], "shape": [40], "size": [0.03125]},
        "model": {**_body(13, 1, 1), "sources": [{"density": 111311.7}]},
        "boundaries": {"r+": {"type": "robin", "h": 5, "ambient": 70}},
        "time": _STEADY,
    }


def _look_wire(answer: Answer) -> Iterator[StandardRow]:
    yield from compare(answer, {"centre": (0.0,), "surface": (0.03125,)}, (419.9, 417.9), 0.1)


def _spine() -> dict[str, object]:
    film = {"type": "robin", "h": 1, "ambient": 0}
    side = 1 / 12

    return {
        "grid": {"shape": [64, 8, 8], "size": [8 / 12, side, side]},
        "model": _body(25, 1, 1),
        "boundaries": {
            "x-": {"type": "dirichlet", "value": 100},
            "x+": _INSULATED,
            "*": film,
        },
        "time": _STEADY,
    }


def _look_spine(answer: Answer) -> Iterator[StandardRow]:
    yield StandardRow("tip [degF]", 68.594, 0.1, answer.temperature(8 / 12, 0.5 / 12, 0.5 / 12))
    yield StandardRow("heat flow [Btu/h]", 17.504, 0.05, answer.flows()["x-"])


def _orthotropic() -> dict[str, object]:
    film = {"type": "robin", "h": 240, "ambient": 100}

    return {
        "grid": {"shape": [48, 24], "size": [2 / 12, 1 / 12]},
        "initial": {"type": "constant", "value": 500},
        "model": _tables({"x": 20, "y": 3.6036}, 400, 0.009009),
        "boundaries": {"x+": film, "y+": film, "*": _INSULATED},
        "time": _stepped(3 / 3600 / 60, 3 / 3600),
    }


def _look_orthotropic(answer: Answer) -> Iterator[StandardRow]:
    x, y = 2 / 12, 1 / 12
    places = {"middle": (0.0, 0.0), "corner": (x, y), "end of x": (x, 0.0), "end of y": (0.0, y)}
    # The book reads charts; the product of two series is 462.2, 151.0, 285.2 and 199.8.
    yield from compare(answer, places, (459, 151, 279, 202), 7.0)


def _rising() -> dict[str, object]:
    return {
        "grid": {"shape": [240], "size": [0.3]},
        "initial": {"type": "constant", "value": 0},
        "model": _body(10, 500, 0.2),
        "boundaries": {"x-": {"type": "dirichlet", "value": "3600*t"}, "*": _INSULATED},
        "time": _stepped(1 / 30 / 60, 1 / 30),
    }


def _look_rising(answer: Answer) -> Iterator[StandardRow]:
    # Where the nodes of the manual are: eight elements, the last three times as long as the first.
    lengths = 3.0 ** (np.arange(8) / 7)
    nodes = 0.3 * np.cumsum(lengths) / lengths.sum()
    places = {f"x = {x:.4f} ft": (float(x),) for x in nodes[:4]}
    yield from compare(answer, places, (79.32, 46.62, 23.44, 9.51), 0.1)


def _sphere() -> dict[str, object]:
    # The manual takes a sector of an axisymmetric mesh; one axis of spherical coordinates is the
    # same body.
    return {
        "grid": {"coordinates": "spherical", "axes": ["r"], "shape": [40], "size": [1 / 6]},
        "initial": {"type": "constant", "value": 65},
        "model": _body(1 / 3, 62, 1.0752677),
        "boundaries": {"r+": {"type": "robin", "h": 2, "ambient": 25}},
        "time": _stepped(0.05, 6),
    }


def _billet() -> dict[str, object]:
    # In SI units; the source is absolute temperature in Rankine: 2000 R cools to 530 R.
    foot, pound, btu = 0.3048, 0.45359237, 1055.056
    black = {"type": "radiation", "emissivity": 1, "ambient": f"{530 / 1.8} K"}

    return {
        "grid": {"shape": [2, 2, 4], "size": [2 * foot, 2 * foot, 4 * foot]},
        "initial": {"type": "constant", "value": f"{2000 / 1.8} K"},
        "model": _body(5e5, 487.5 * pound / foot**3, 0.11 * btu / pound * 1.8),
        "boundaries": {"*": black},
        "time": _stepped(37 * 3.6, 3.7 * 3600),
    }


def _look_billet(answer: Answer) -> Iterator[StandardRow]:
    # A lumped body needs 3.80 h to cool to 1000 R; the book rounds.
    kelvin = answer.temperature(0.3, 0.3, 0.6) + 273.15
    yield StandardRow("after 3.7 h [degR]", 1000, 10.0, 1.8 * kelvin)


def _hollow() -> dict[str, object]:
    cold = {"type": "dirichlet", "value": 0}
    heated = {"type": "neumann", "flux": 5e5, "where": "z > 0.04 and z < 0.1"}

    return {
        "grid": {
            "coordinates": "cylindrical",
            "axes": ["r", "z"],
            "shape": [64, 112],
            "size": [0.08, 0.14],
            "origin": {"r": 0.02},
        },
        "model": _body(52, 7850, 460),
        "boundaries": {"r-": [heated, _INSULATED], "*": cold},
        "time": _STEADY,
    }


def _thin() -> dict[str, object]:
    # The program that publishes it takes the plate as thin; here it has a thickness, over which it
    # differs by 0.02 K. Half of that, by symmetry; nothing changes along its width.
    face = {"type": "radiation", "emissivity": 0.5, "h": 1, "ambient": "300 K"}

    return {
        "grid": {"shape": [100, 2], "size": [1, 0.005]},
        "initial": {"type": "constant", "value": "300 K"},
        "model": _body(400, 8960, 386),
        "boundaries": {
            "x-": {"type": "dirichlet", "value": "1000 K"},
            "y+": face,
            "*": _INSULATED,
        },
        "time": _STEADY,
    }


def _look_thin(answer: Answer) -> Iterator[StandardRow]:
    yield StandardRow("far edge [K]", 449.8, 0.2, answer.temperature(1.0, 0.0) + 273.15)


def _elements() -> Iterator[Standard]:
    yield Standard("wire that generates heat", f"{_APDL}, VM58", _wire(), _look_wire)
    yield Standard("cooling spine", f"{_APDL}, VM95", _spine(), _look_spine)
    yield Standard(
        "sphere that cools",
        f"{_APDL}, VM111",
        _sphere(),
        partial(_history, {"centre": (0.0,)}, {6.0: (28.0,)}, 0.6),
        (6.0,),
    )

    yield Standard("orthotropic bar", f"{_APDL}, VM113", _orthotropic(), _look_orthotropic)
    yield Standard("surface that grows warm", f"{_APDL}, VM114", _rising(), _look_rising)
    yield Standard("billet that radiates", f"{_APDL}, VM192", _billet(), _look_billet)
    hollow = "NAFEMS Benchmark Tests for Thermal Analysis, 1986"
    yield Standard("hollow cylinder", hollow, _hollow(), _look_hollow)
    thin = "MATLAB PDE Toolbox, Nonlinear Heat Transfer in a Thin Plate"
    yield Standard("thin plate that radiates", thin, _thin(), _look_thin)


def _look_hollow(answer: Answer) -> Iterator[StandardRow]:
    yield StandardRow("r = z = 0.04 m [degC]", 59.82, 0.2, answer.temperature(0.04, 0.04))


# Chips.

_3D_ICE = "esl-epfl/3d-ice, test/solid/steady"


def _stack(faces: Mapping[str, object]) -> dict[str, object]:
    # Two dies of 50 um; the outer 2 um of each take 50 W on 1 cm2.
    thin = {"density": 50.0 / 1e-4 / 2e-6}

    return {
        "grid": {"shape": [100], "size": [100e-6]},
        "model": {
            **_body(130, 2330, 702),
            "sources": [
                {**thin, "box": {"x": [0, 2e-6]}},
                {**thin, "box": {"x": [98e-6, 100e-6]}},
            ],
        },
        "boundaries": {**faces, "*": _INSULATED},
        "time": _STEADY,
    }


def _look_stack(number: float, answer: Answer) -> Iterator[StandardRow]:
    # The temperature of a layer is that of its middle; 3D-ICE rounds it to 1 mK.
    found = answer.temperature(99e-6) + 300.0
    yield StandardRow("upper source [K]", number, 0.005, found)


def _chips() -> Iterator[Standard]:
    sink = {"type": "robin", "h": 1e5, "ambient": 0}
    for name, faces, number in (
        ("top", {"x+": sink}, 310.008),
        ("bottom", {"x-": sink}, 310.388),
        ("both", {"x+": sink, "x-": sink}, 305.004),
    ):
        yield Standard(
            f"stack of two dies, sink {name}",
            f"{_3D_ICE}/{name}sink.stk",
            _stack(faces),
            partial(_look_stack, number),
        )


# Buildings, the flash method and phase change.


def _deep_ground() -> dict[str, object]:
    # A quarter. The ground is 30 m deep and reaches 20 m beyond the slab; below the wall no heat
    # passes.
    half, wall = 6.0, 0.24
    axis = cells(
        *((4.0, 5), (5.5, 8), (half, 10), (half + wall, 6), (6.8, 7), (8.0, 6)),
        *((14.0, 8), (half + 20, 6)),
    )
    inside = f"x < {half} and y < {half}"
    outside = f"x > {half + wall} or y > {half + wall}"

    return {
        "grid": grid(x=axis, y=axis, z=cells((20.0, 6), (27.0, 8), (29.0, 8), (29.8, 10), (30, 5))),
        "model": _body(1.9, 1490, 1800),
        "boundaries": {
            "z+": [
                {"type": "dirichlet", "value": 30, "where": inside},
                {"type": "dirichlet", "value": 10, "where": outside},
                _INSULATED,
            ],
            "z-": {"type": "dirichlet", "value": 10},
            "*": _INSULATED,
        },
        "time": _STEADY,
    }


def _look_ground(answer: Answer) -> Iterator[StandardRow]:
    size, n = answer.problem.grid, 23  # cells of the slab along x and y
    half = size.widths(0)[-1] / 2
    below = answer.field()[-1, :n, :n]
    areas = size.widths(1)[:n, None] * size.widths(2)[:n]
    flow = 4 * float((1.9 * (30 - below) / half * areas).sum())
    # TRNSYS 2642, Fluent 2585, Matlab 2695.
    yield StandardRow("heat flow [W]", 2642, 57.0, flow)


_HALF_TIME = 0.1388  # alpha t / L^2


def _flash() -> dict[str, object]:
    # A laser warms the front of a slab; the time at which the rear has half of its rise gives the
    # diffusivity, so the temperature then is what a computation can be asked for.
    # All of the pulse is in the first of 400 cells; 1 degC when it has spread.
    return {
        "grid": {"shape": [400], "size": [1.0]},
        "initial": {"type": "expression", "expression": "where(x < 1/400, 400, 0)"},
        "model": _body(1, 1, 1),
        "boundaries": {"*": _INSULATED},
        "time": {"scheme": "spectral", "t_end": _HALF_TIME},
    }


def _look_flash(answer: Answer) -> Iterator[StandardRow]:
    yield StandardRow("rear face at 0.1388 L^2/alpha [1]", 0.5, 0.002, answer.temperature(1.0))


def _corner() -> dict[str, object]:
    # k = c = rho = 1, from 0.3 with both faces at -1, melting at 0; the latent heat is 0.25.
    material = {
        "conductivity": 1,
        "density": 1,
        "specific_heat": 1,
        "latent_heat": 0.25,
        "solidus": -0.005,
        "liquidus": 0.005,
    }
    cold = {"type": "dirichlet", "value": -1}

    return {
        "grid": {"shape": [100, 100], "size": [2.5, 2.5]},
        "initial": {"type": "constant", "value": 0.3},
        "model": {
            "type": "heat",
            "materials": {"it": material},
            "regions": [{"material": "it"}],
        },
        "boundaries": {"x-": cold, "y-": cold, "*": _INSULATED},
        "time": _stepped(0.0025, 0.25),
    }


def _look_corner(answer: Answer) -> Iterator[StandardRow]:
    # 4 t = 1, so that the front is where the similarity variable has its value.
    places = np.linspace(0.2, 1.6, 1401)
    along = [answer.temperature(float(x), 2.4) for x in places]
    across = [answer.temperature(float(x), float(x)) for x in places]
    yield StandardRow("far from the corner [1]", 0.7077, 0.01, float(np.interp(0, along, places)))
    yield StandardRow("on the diagonal [1]", 0.8956, 0.02, float(np.interp(0, across, places)))


def _papers() -> Iterator[Standard]:
    yield Standard(
        "slab on deep ground", "IEA BESTEST GC30a, in Kiva", _deep_ground(), _look_ground
    )
    flash = "W. J. Parker et al., J. Appl. Phys. 32, 1679 (1961)"
    yield Standard("flash method", flash, _flash(), _look_flash)
    corner = "K. A. Rathjen, L. M. Jiji, J. Heat Transfer 93, 101 (1971)"
    yield Standard("square that freezes", corner, _corner(), _look_corner)
