"""ISO 10211:2007, annex A: thermal bridges in buildings, to validate programs with."""

from __future__ import annotations

from collections.abc import Iterator

from tetris_sim.verification.standards import Answer, Row, Standard, cells, compare, grid, solid

_STEADY = {"scheme": "steady", "tolerance": 1e-9}
_SOURCE = "ISO 10211:2007, annex A"
_KELVIN = 0.1  # by which temperatures may differ

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
        Standard("case 1, half a square column", _SOURCE, _case_1(), _look_1),
        Standard("case 2, a sheet in insulation", _SOURCE, _case_2(), _look_2),
        Standard("case 3, a balcony through a wall", _SOURCE, _case_3(), _look_3),
        Standard("case 4, an iron bar through insulation", _SOURCE, _case_4(), _look_4),
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


def _look_1(answer: Answer) -> Iterator[Row]:
    for row, numbers in enumerate(_COLUMN, 1):
        places = {f"row {row}, {k}": (k / 4, 2 - row / 4) for k in range(1, 5)}
        yield from compare(answer, places, numbers, _KELVIN)


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


def _look_2(answer: Answer) -> Iterator[Row]:
    faces = {"A": (0.0, 47.5e-3), "B": (0.5, 47.5e-3), "H": (0.0, 0.0), "I": (0.5, 0.0)}
    yield from compare(answer, faces, (7.1, 0.8, 16.8, 18.3), _KELVIN)
    in_concrete, in_aluminium = (0.0, 0.75e-3), (0.0, -0.75e-3)
    joints = {
        "C": ((0.0, 41.5e-3), in_concrete, 7.9),
        "D": ((15e-3, 41.5e-3), in_concrete, 6.3),
        "E": ((0.5, 41.5e-3), in_concrete, 0.8),
        "F": ((0.0, 36.5e-3), in_aluminium, 16.4),
        "G": ((14.75e-3, 36.5e-3), in_aluminium, 16.3),
    }
    for name, (place, into, number) in joints.items():
        yield Row(f"{name} [degC]", number, _KELVIN, answer.within(place, into))
    yield Row("heat flow [W/m]", 9.5, 0.1, answer.flows()["y-"])


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


def _look_3(answer: Answer) -> Iterator[Row]:
    taken = answer.from_fluids()
    for name, ambient, number in (
        ("the room below", 20.0, 46.09),
        ("the room above", 15.0, 13.89),
        ("outside", 0.0, -59.98),
    ):
        yield Row(f"heat flow from {name} [W]", number, 0.01 * abs(number), taken[ambient])


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


def _look_4(answer: Answer) -> Iterator[Row]:
    yield Row("heat flow [W]", 0.540, 0.0054, -4 * answer.flows()["z-"])
    yield Row("outside on the bar [degC]", 0.805, 0.005, answer.temperature(0.0, 0.0, 0.0))
