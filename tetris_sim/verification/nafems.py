"""NAFEMS's tests of heat conduction, and BESTEST's slab on the ground."""

from __future__ import annotations

from collections.abc import Iterator

from tetris_sim.verification.standards import Answer, Row, Standard, cells, grid

_STEADY = {"scheme": "steady", "tolerance": 1e-9}
_SOURCE = "The Standard NAFEMS Benchmarks, 1990"
_KELVIN = 273.15
_HALF, _WALL = 6.0, 0.24  # of the slab, and the width of the wall on its edge [m]


def nafems() -> tuple[Standard, ...]:
    """T2, T3 and T4; T1 is about thermal stress."""
    return (
        Standard("T2, a bar that radiates", _SOURCE, _t2(), _look_t2),
        Standard("T3, a bar with a varying end", _SOURCE, _t3(), _look_t3),
        Standard("T4, a plate with convection", _SOURCE, _t4(), _look_t4),
    )


def bestest() -> tuple[Standard, ...]:
    """The case that has an analytic answer."""
    source = "IEA BESTEST ground coupling, case GC10a: A. E. Delsante et al., 1983"
    return (Standard("GC10a, a slab on the ground", source, _gc10a(), _look_gc10a),)


def _t2() -> dict[str, object]:
    return {
        "grid": {"shape": [100], "size": [0.1]},
        "model": {
            "type": "heat",
            "conductivity": 55.563,
            "density": 7850,
            "specific_heat": 460,
        },
        "boundaries": {
            "x-": {"type": "dirichlet", "value": "1000 K"},
            "x+": {"type": "radiation", "emissivity": 0.98, "ambient": "300 K"},
        },
        "time": _STEADY,
    }


def _look_t2(answer: Answer) -> Iterator[Row]:
    yield Row("right end [K]", 927.0, 0.1, answer.temperature(0.1) + _KELVIN)


def _t3() -> dict[str, object]:
    return {
        "grid": {"shape": [100], "size": [0.1]},
        "initial": {"type": "constant", "value": 0},
        "model": {"type": "heat", "conductivity": 35, "density": 7200, "specific_heat": 440.5},
        "boundaries": {
            "x-": {"type": "dirichlet", "value": 0},
            "x+": {"type": "dirichlet", "value": "100*sin(pi*t/40)"},
        },
        "time": {"t_end": 32},
    }


def _look_t3(answer: Answer) -> Iterator[Row]:
    yield Row("0.08 m after 32 s [degC]", 36.6, 0.1, answer.temperature(0.08))


def _t4() -> dict[str, object]:
    cooled = {"type": "robin", "h": 750, "ambient": 0}
    return {
        "grid": {"shape": [120, 200], "size": [0.6, 1.0]},
        "model": {"type": "heat", "conductivity": 52, "density": 7850, "specific_heat": 460},
        "boundaries": {
            "y-": {"type": "dirichlet", "value": 100},
            "x-": {"type": "neumann"},
            "*": cooled,
        },
        "time": _STEADY,
    }


def _look_t4(answer: Answer) -> Iterator[Row]:
    yield Row("(0.6, 0.2) [degC]", 18.3, 0.1, answer.temperature(0.6, 0.2))


def _gc10a() -> dict[str, object]:
    # A quarter. Below the wall the temperature goes from that of the slab to that outside.
    axis = cells(
        *((4.0, 5), (5.5, 8), (_HALF, 10), (_HALF + _WALL, 6), (6.8, 7), (8.0, 6)),
        *((14.0, 8), (40.0, 7), (120.0, 5)),
    )
    outside = f"max(0, max(x, y) - {_HALF})"
    return {
        "grid": grid(
            x=axis,
            y=axis,
            z=cells((80.0, 5), (106.0, 6), (112.0, 8), (114.0, 8), (114.8, 10), (115.0, 5)),
        ),
        "model": {"type": "heat", "conductivity": 1.9, "density": 1490, "specific_heat": 1800},
        "boundaries": {
            "z+": {"type": "dirichlet", "value": f"max(10, 30 - {20 / _WALL}*{outside})"},
            "x-": {"type": "neumann"},
            "y-": {"type": "neumann"},
            "*": {"type": "dirichlet", "value": 10},
        },
        "time": _STEADY,
    }


def _look_gc10a(answer: Answer) -> Iterator[Row]:
    size, n = answer.problem.grid, 23  # cells of the slab along x and y
    half = size.widths(0)[-1] / 2
    below = answer.field()[-1, :n, :n]
    areas = size.widths(1)[:n, None] * size.widths(2)[:n]
    flow = 4 * float((1.9 * (30 - below) / half * areas).sum())
    yield Row("heat flow [W]", 2432.597, 0.01 * 2432.597, flow)
