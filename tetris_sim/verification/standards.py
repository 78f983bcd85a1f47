"""Standards: bodies whose temperatures and heat flows a standard prints, posed as a user would.

Each is a configuration; what it finds is compared with the numbers of the standard and the
deviations that this allows.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tetris_sim.apps.heat.sources import Block, read_floorplan
from tetris_sim.config import make_config
from tetris_sim.config.sections.varying import read_trace
from tetris_sim.model.problem import Field, Problem
from tetris_sim.outputs.audit import Audit
from tetris_sim.outputs.heat_flows import beside, said_beside
from tetris_sim.outputs.output import StateSnapshot
from tetris_sim.outputs.regions import neighbours_of, read_along
from tetris_sim.scheduler.comm.communicator import Alone
from tetris_sim.simulation.loop import open_simulation
from tetris_sim.simulation.preparation import prepare


@dataclass(frozen=True)
class StandardRow:
    """A number of a standard.

    Attributes:
        quantity: what it is of, with its unit.
        published: it.
        tolerance: by how much another may differ.
        found: what was computed.
    """

    quantity: str
    published: float
    tolerance: float
    found: float

    @property
    def passed(self) -> bool:
        """Whether the two agree; NaN never does."""
        return abs(self.found - self.published) <= self.tolerance


@dataclass(frozen=True)
class Standard:
    """A case of a standard.

    Attributes:
        name: of the case.
        source: where its numbers are from.
        sections: its configuration.
        look: what it finds.
        at: when it looks [s]; at the end only if not given.
    """

    name: str
    source: str
    sections: Mapping[str, Any]
    look: Callable[[Answer], Iterator[StandardRow]]
    at: tuple[float, ...] = ()

    def rows(self) -> list[StandardRow]:
        """Solve it on the CPU and compare."""
        initial = {"type": "constant", "value": 10}
        # Measuring kernels would take longer than most cases do.
        compute = {"devices": "cpu", "tuning_budget": 0}
        sections = {"initial": initial, "compute": compute, **self.sections}
        prepared = prepare(make_config(sections), Alone(), use_cache=False)
        found = list[StandardRow]()
        with open_simulation(prepared.problem, prepared.plan) as simulation:
            for moment in self.at or (None,):
                simulation.run(moment)
                found += self.look(Answer(simulation.snapshot().seen(), simulation.time))
        return found


class Answer:
    """A question about the state at a time [s]."""

    def __init__(self, snapshot: StateSnapshot, time: float) -> None:
        self._snapshot = snapshot
        self.problem: Problem = snapshot.problem
        self.time = time

    def temperature(self, *place: float) -> float:
        """At x, y, z [degC]."""
        position = place[::-1]
        axes = [neighbours_of(self.problem, k, it) for k, it in enumerate(position)]
        return float(read_along(self._snapshot, axes)[0])

    def flows(self) -> dict[str, float]:
        """Heat flows through faces and between materials by name, without "heat flow" [W]."""
        audit = Audit(self.problem)
        values = (
            audit.look_at_faces(self._snapshot, 0.0)
            if self.problem.conduction is None
            else audit.look_at_body(self._snapshot)[1]
        )
        named = zip(audit.columns, values, strict=True)
        begin = "heat flow "
        return {
            name.removeprefix(begin).partition(" [")[0]: value
            for name, value in named
            if name.startswith(begin)
        }

    def beside(self) -> dict[str, float]:
        """Values beside the body, by name: temperatures of lumps, voltages of electrodes."""
        names = (name for name, _ in beside(self.problem))
        state = np.asarray(self.field(), np.float64)
        return dict(zip(names, said_beside(self.problem, state, self.time), strict=True))

    def within(self, place: Sequence[float], into: Sequence[float]) -> float:
        """At x, y, z where materials meet, as a straight line in one of them has it [degC].

        Args:
            place: where.
            into: from there to the second cell of the material: 3/2 of their width.
        """
        first, second = (
            self.temperature(*(p + share * step for p, step in zip(place, into, strict=True)))
            for share in (1 / 3, 1.0)
        )
        return 1.5 * first - 0.5 * second

    def field(self) -> Field:
        """Temperatures, (n0, ...) [degC]."""
        found: Field = self._snapshot.field()[0]
        return found

    def from_fluids(self) -> dict[float, float]:
        """Heat that the body takes from what is held, by the temperature of that [W]."""
        conduction, grid = self.problem.conduction, self.problem.grid
        assert conduction is not None and conduction.coefficients is not None  # noqa: PT018
        whole = tuple((0, n) for n in grid.shape)
        held = np.isinf(conduction.coefficients.capacity(whole))
        u, found = self._snapshot.field()[0], dict[float, float]()
        for axis in range(grid.ndim):
            between = np.array(conduction.coefficients.conductance(axis, whole))
            between[(slice(None),) * axis + (-1,)] = 0.0  # that of a face of the box
            for shift in (1, -1):
                k = np.roll(between, -shift, axis) if shift < 0 else between
                into = np.where(held & ~np.roll(held, -shift, axis), k, 0.0)
                into *= u - np.roll(u, -shift, axis)
                for ambient in np.unique(u[held]):
                    share = float(into[held & (u == ambient)].sum())
                    found[float(ambient)] = found.get(float(ambient), 0.0) + share
        return found


def solid(conductivity: float) -> dict[str, float]:
    """A material of which only the conductivity counts."""
    return {"conductivity": conductivity, "density": 1000.0, "specific_heat": 1000.0}


def cells(*segments: tuple[float, int]) -> dict[str, Any]:
    """A graded axis: (where a segment ends [m], its cells)."""
    return {"segments": [{"to": to, "n": n} for to, n in segments]}


def grid(**axes: dict[str, Any]) -> dict[str, Any]:
    """A grid of graded axes x, y, z."""
    ends = [axis["segments"] for axis in axes.values()]
    return {
        "shape": [sum(it["n"] for it in axis) for axis in ends],
        "size": [axis[-1]["to"] for axis in ends],
        "graded": axes,
    }


def compare(
    answer: Answer, points: Mapping[str, Sequence[float]], published: Sequence[float], within: float
) -> Iterator[StandardRow]:
    """Temperatures at points by name."""
    for (name, place), number in zip(points.items(), published, strict=True):
        yield StandardRow(f"{name} [degC]", number, within, answer.temperature(*place))


# ISO 10211:2007, annex A: thermal bridges in buildings, to validate programs with.

_STEADY = {"scheme": "steady", "tolerance": 1e-9}
_ISO_10211 = "ISO 10211:2007, annex A"
_BRIDGE_TOLERANCE = 0.1  # by which temperatures may differ

# Case 1, rows from the top down, columns from the left to the axis of symmetry.
_COLUMN = (
    (9.7, 13.4, 14.7, 15.1),
    (5.3, 8.6, 10.3, 10.8),
    (3.2, 5.6, 7.0, 7.5),
    (2.0, 3.6, 4.7, 5.0),
    (1.3, 2.3, 3.0, 3.2),
    (0.7, 1.4, 1.8, 1.9),
    (0.3, 0.6, 0.8, 0.9),
)


def bridges() -> tuple[Standard, ...]:
    """The four cases."""
    return (
        Standard("case 1, half a square column", _ISO_10211, _case_1(), _look_1),
        Standard("case 2, a sheet in insulation", _ISO_10211, _case_2(), _look_2),
        Standard("case 3, a balcony through a wall", _ISO_10211, _case_3(), _look_3),
        Standard("case 4, an iron bar through insulation", _ISO_10211, _case_4(), _look_4),
    )


def _case_1() -> dict[str, object]:
    return {
        "grid": {"shape": [80, 160], "size": [1.0, 2.0]},
        "model": {"type": "heat", **solid(1.0)},
        "boundaries": {
            "y+": {"type": "dirichlet", "value": 20},
            "x+": {"type": "neumann"},
            "*": {"type": "dirichlet", "value": 0},
        },
        "time": _STEADY,
    }


def _look_1(answer: Answer) -> Iterator[StandardRow]:
    for row, numbers in enumerate(_COLUMN, 1):
        places = {f"row {row}, {k}": (k / 4, 2 - row / 4) for k in range(1, 5)}
        yield from compare(answer, places, numbers, _BRIDGE_TOLERANCE)


def _case_2() -> dict[str, object]:
    return {
        "grid": grid(
            x=cells((1.5e-3, 3), (15e-3, 27), (60e-3, 45), (0.5, 110)),
            y=cells((1.5e-3, 3), (35e-3, 67), (36.5e-3, 3), (41.5e-3, 10), (47.5e-3, 12)),
        ),
        "model": {
            "type": "heat",
            "materials": {
                "concrete": solid(1.15),
                "wood": solid(0.12),
                "insulation": solid(0.029),
                "aluminium": solid(230.0),
            },
            "regions": [
                {"material": "insulation"},
                {"material": "concrete", "box": {"y": [41.5e-3, 47.5e-3]}},
                {"material": "wood", "box": {"x": [0, 15e-3], "y": [36.5e-3, 41.5e-3]}},
                {"material": "aluminium", "box": {"x": [0, 15e-3], "y": [35e-3, 36.5e-3]}},
                {"material": "aluminium", "box": {"x": [0, 1.5e-3], "y": [0, 36.5e-3]}},
                {"material": "aluminium", "box": {"y": [0, 1.5e-3]}},
            ],
        },
        "boundaries": {
            "y+": {"type": "robin", "h": 1 / 0.06, "ambient": 0},
            "y-": {"type": "robin", "h": 1 / 0.11, "ambient": 20},
            "*": {"type": "neumann"},
        },
        "time": _STEADY,
    }


def _look_2(answer: Answer) -> Iterator[StandardRow]:
    faces = {"A": (0.0, 47.5e-3), "B": (0.5, 47.5e-3), "H": (0.0, 0.0), "I": (0.5, 0.0)}
    yield from compare(answer, faces, (7.1, 0.8, 16.8, 18.3), _BRIDGE_TOLERANCE)
    in_concrete, in_aluminium = (0.0, 0.75e-3), (0.0, -0.75e-3)
    joints = {
        "C": ((0.0, 41.5e-3), in_concrete, 7.9),
        "D": ((15e-3, 41.5e-3), in_concrete, 6.3),
        "E": ((0.5, 41.5e-3), in_concrete, 0.8),
        "F": ((0.0, 36.5e-3), in_aluminium, 16.4),
        "G": ((14.75e-3, 36.5e-3), in_aluminium, 16.3),
    }
    for name, (place, into, number) in joints.items():
        yield StandardRow(f"{name} [degC]", number, _BRIDGE_TOLERANCE, answer.within(place, into))
    yield StandardRow("heat flow [W/m]", 9.5, 0.1, answer.flows()["y-"])


def _case_3() -> dict[str, object]:
    # The corner of the building is 0.15 m from that of the box along x, 0.75 m along y: around
    # walls and balcony lies a layer of outside air.
    def inside(x: float, y: float) -> dict[str, list[float]]:
        return {"x": [x + 0.15, 1.35], "y": [y + 0.75, 1.95]}

    slab = [1.0, 1.15]
    fine, coarse = 8, 16
    return {
        "grid": grid(
            x=cells((0.05, 1), (0.15, 6), (0.2, 4), (0.35, fine), (0.55, 8), (1.35, coarse)),
            y=cells(
                *((0.05, 1), (0.55, 12), (0.65, 6), (0.75, 6), (0.8, 4)),
                *((0.95, fine), (1.15, 8), (1.95, coarse)),
            ),
            z=cells((0.8, coarse), (1.0, 10), (1.15, fine), (1.2, 4), (1.35, 8), (2.15, coarse)),
        ),
        "model": {
            "type": "heat",
            "materials": {
                "inner wall": solid(0.7),
                "outer wall": solid(1.0),
                "insulation": solid(0.04),
                "slab": solid(2.5),
                "floor": solid(1.0),
            },
            "regions": [
                {"fluid": {"ambient": 0, "h": 1 / 0.05}},
                {"material": "outer wall", "box": inside(-0.1, -0.1)},
                {"material": "insulation", "box": inside(0, 0)},
                {"material": "inner wall", "box": inside(0.05, 0.05)},
                {"fluid": {"ambient": 20, "h": 1 / 0.2}, "box": {**inside(0.2, 0.2), "z": [0, 1]}},
                {
                    "fluid": {"ambient": 15, "h": 1 / 0.2},
                    "box": {**inside(0.2, 0.2), "z": [1.15, 2.15]},
                },
                {"material": "floor", "box": {**inside(0.2, 0.2), "z": [1.15, 1.2]}},
                {"material": "slab", "box": {**inside(0.05, -0.7), "z": slab}},
            ],
        },
        "boundaries": {"*": {"type": "neumann"}},
        "time": _STEADY,
    }


def _look_3(answer: Answer) -> Iterator[StandardRow]:
    taken = answer.from_fluids()
    for name, ambient, number in (
        ("the room below", 20.0, 46.09),
        ("the room above", 15.0, 13.89),
        ("outside", 0.0, -59.98),
    ):
        yield StandardRow(f"heat flow from {name} [W]", number, 0.01 * abs(number), taken[ambient])


def _case_4() -> dict[str, object]:
    # A quarter of it; the bar reaches from the outer face, z = 0, into the room.
    room = {"ambient": 1, "h": 1 / 0.1}
    return {
        "grid": grid(
            x=cells((0.05, 10), (0.15, 16), (0.5, 14)),
            y=cells((0.025, 6), (0.125, 18), (0.5, 14)),
            z=cells((0.2, 32), (0.3, 16), (0.6, 20)),
        ),
        "model": {
            "type": "heat",
            "materials": {"insulation": solid(0.1), "iron": solid(50.0)},
            "regions": [
                {"fluid": room},
                {"material": "insulation", "box": {"z": [0, 0.2]}},
                {"material": "iron", "box": {"x": [0, 0.05], "y": [0, 0.025]}},
            ],
        },
        "boundaries": {
            "z-": {"type": "robin", "h": 1 / 0.1, "ambient": 0},
            "z+": {"type": "robin", **room},
            "*": {"type": "neumann"},
        },
        "time": _STEADY,
    }


def _look_4(answer: Answer) -> Iterator[StandardRow]:
    yield StandardRow("heat flow [W]", 0.540, 0.0054, -4 * answer.flows()["z-"])
    yield StandardRow("outside on the bar [degC]", 0.805, 0.005, answer.temperature(0.0, 0.0, 0.0))


# NAFEMS's tests of heat conduction, and BESTEST's slab on the ground.

_NAFEMS = "The Standard NAFEMS Benchmarks, 1990"
_ZERO_CELSIUS = 273.15
_HALF, _WALL = 6.0, 0.24  # of the slab, and the width of the wall on its edge [m]


def nafems() -> tuple[Standard, ...]:
    """T2, T3 and T4; T1 is about thermal stress."""
    return (
        Standard("T2, a bar that radiates", _NAFEMS, _t2(), _look_t2),
        Standard("T3, a bar with a varying end", _NAFEMS, _t3(), _look_t3),
        Standard("T4, a plate with convection", _NAFEMS, _t4(), _look_t4),
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


def _look_t2(answer: Answer) -> Iterator[StandardRow]:
    yield StandardRow("right end [K]", 927.0, 0.1, answer.temperature(0.1) + _ZERO_CELSIUS)


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


def _look_t3(answer: Answer) -> Iterator[StandardRow]:
    yield StandardRow("0.08 m after 32 s [degC]", 36.6, 0.1, answer.temperature(0.08))


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


def _look_t4(answer: Answer) -> Iterator[StandardRow]:
    yield StandardRow("(0.6, 0.2) [degC]", 18.3, 0.1, answer.temperature(0.6, 0.2))


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


def _look_gc10a(answer: Answer) -> Iterator[StandardRow]:
    size, n = answer.problem.grid, 23  # cells of the slab along x and y
    half = size.widths(0)[-1] / 2
    below = answer.field()[-1, :n, :n]
    areas = size.widths(1)[:n, None] * size.widths(2)[:n]
    flow = 4 * float((1.9 * (30 - below) / half * areas).sum())
    yield StandardRow("heat flow [W]", 2432.597, 0.01 * 2432.597, flow)


# Chips: the blocks of a floorplan on a plate that is cooled from below.

_PLAN, _POWERS = (Path(__file__).with_name(f"ev6.{it}") for it in ("flp", "ptrace"))
_PLATE = {"k": 120.0, "thickness": 0.5e-3, "h": 2e4}
_FINEST_BLOCK = 0.2e-3  # of the cells across a block
_TERMS = 400  # of cosines along an axis


def floorplans() -> Iterator[Standard]:
    """The floorplan and the mean powers of an example that comes with a simulator of chips."""
    source = "Y. S. Muzychka et al., J. Electron. Packag. 125, 178 (2003); floorplan of HotSpot"
    yield Standard("chip of thirty blocks", source, _chip(), _look_chip)


def _chip() -> dict[str, Any]:
    blocks = read_floorplan(_PLAN)
    # All edges of blocks are faces of cells.
    x, y = (
        _divided(sorted({round(end, 9) for it in blocks for end in getattr(it, axis)}))
        for axis in "xy"
    )
    thickness = _PLATE["thickness"]
    z = [0.0, 0.01e-3, *np.linspace(0.03e-3, thickness, 10).tolist()]
    material = {"conductivity": _PLATE["k"], "density": 2330, "specific_heat": 700}
    heated = {"floorplan": str(_PLAN), "box": {"z": [0, z[1]]}, "power": {"file": str(_POWERS)}}

    return {
        "grid": {
            "shape": [len(it) - 1 for it in (x, y, z)],
            "size": [it[-1] for it in (x, y, z)],
            "graded": {"x": {"edges": x}, "y": {"edges": y}, "z": {"edges": z}},
        },
        "initial": {"type": "constant", "value": 0},
        "model": {"type": "heat", **material, "sources": [heated]},
        "boundaries": {
            "z+": {"type": "convection", "h": _PLATE["h"], "ambient": 0},
            "*": {"type": "insulated"},
        },
        "time": _STEADY,
    }


def _divided(ends: Sequence[float]) -> list[float]:
    found = [ends[0]]
    for low, high in itertools.pairwise(ends):
        n = math.ceil((high - low) / _FINEST_BLOCK - 1e-9)
        found += [low + (high - low) * k / n for k in range(1, n + 1)]
    return found


def _means_of_blocks(blocks: Sequence[Block], powers: Sequence[float]) -> list[float]:
    """Mean temperatures of blocks on a plate whose other side is cooled, by cosines [K]."""
    sizes = [max(getattr(it, axis)[1] for it in blocks) for axis in "xy"]
    waves = [np.pi * np.arange(_TERMS) / size for size in sizes]
    # Means of the cosines over each block, along x and y.
    along = [
        [np.sinc(w * (b - a) / 2 / np.pi) * np.cos(w * (a + b) / 2) for a, b in spans]
        for w, spans in zip(waves, ([it.x for it in blocks], [it.y for it in blocks]), strict=True)
    ]
    means = np.array([np.multiply.outer(p, q) for p, q in zip(*along, strict=True)])

    # Per wave: what a flux of 1 W/m^2 at one side warms it by, of a plate in series with a film.
    steep = np.hypot.outer(*waves)
    k, thickness, h = _PLATE["k"], _PLATE["thickness"], _PLATE["h"]
    slope, ends = k * steep, np.tanh(steep * thickness)
    with np.errstate(invalid="ignore", divide="ignore"):
        resists = (slope + h * ends) / (h + slope * ends) / slope
    resists[0, 0] = thickness / k + 1 / h
    weight = np.where(np.arange(_TERMS) == 0, 1.0, 2.0)
    flux = np.tensordot(np.array(powers), means, 1) / math.prod(sizes)
    theta = flux * np.multiply.outer(weight, weight) * resists
    return [float((theta * it).sum()) for it in means]


def _look_chip(answer: Answer) -> Iterator[StandardRow]:
    blocks, (names, rows) = read_floorplan(_PLAN), read_trace(_POWERS)
    powers = [float(rows[0, names.index(it.name)]) for it in blocks]
    grid, heated = answer.problem.grid, answer.field()[0]
    centres, widths = ([of(axis) for axis in (2, 1)] for of in (grid.coordinates, grid.widths))

    for block, true in zip(blocks, _means_of_blocks(blocks, powers), strict=True):
        inside = [
            (a < at) & (at < b) for at, (a, b) in zip(centres, (block.x, block.y), strict=True)
        ]
        area = np.multiply.outer(*(w[it] for w, it in zip(widths[::-1], inside[::-1], strict=True)))
        found = float((heated[np.ix_(inside[1], inside[0])] * area).sum() / area.sum())
        yield StandardRow(f"mean of {block.name} [K]", true, 0.01 * true, found)
