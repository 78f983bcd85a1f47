"""Bounds of conditions over boxes: they decide what every point of a box would, with fewer points."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tetris_sim.apps.heat import shapes
from tetris_sim.apps.heat.geometry import RasterizedBody
from tetris_sim.apps.heat.shapes import Condition, bounds_of
from tetris_sim.apps.initial import positions
from tetris_sim.apps.initial_file import Box
from tetris_sim.config.loading import make_config
from tetris_sim.errors import ConfigError
from tetris_sim.model.formula import compile_expression
from tetris_sim.model.grid import Grid

GRID = Grid((10, 12, 14), (0.04, 0.04, 0.04), (0.0, 0.0, 0.0))
BOX = ((0, 10), (0, 12), (0, 14))

FORMULAS = (
    "hypot(x-{a}, y-{b}, z-{c}) < {r}",
    "(x-{a})**2 + (y-{b})**2 < {r}**2 and z < {c}",
    "abs(x-{a}) + abs(y-{b}) >= {r} or z*y < {c}/9",
    "sin(30*x)*y > z - {r}",
    "x - {a}",
    "max(abs(x-{a}), abs(y-{b}), abs(z-{c})) < {r}",
    "not (sqrt(x*x + y*y) < {a} or z > {b}) and {c} < x <= {r}",
    "exp(-x/{r}) > y/{b} - log(z)",
    "x % {r} > {r}/2 and y < {b}",
    "(x-{a})/(z+0.1) < y**3 - tanh(y)",
    "where(x < {a}, y, z) < {b}",
    "x != x or y == y",
    "min(x, y)**-1 > 3 and sqrt(x - {a}) < {b}",
    "atan2(y-{b}, x-{a}) < 0.4",
    "x*0 + ({a} > 0.2)",
    "-floor(x/{a}) + ceil(y/{b}) - sinh(z) > {c}*cos(x)",
)
PLACES = st.floats(0.05, 0.5)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "_EVALUATED", 60)


@pytest.mark.parametrize("form", FORMULAS)
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(a=PLACES, b=PLACES, c=PLACES, r=PLACES)
def test_bounds_decide_as_points_do(form: str, a: float, b: float, c: float, r: float) -> None:
    text = form.format(a=a, b=b, c=c, r=r)
    condition = Condition(text, GRID, "where")
    found = condition(BOX)
    x, y, z = (GRID.coordinates(axis) for axis in (2, 1, 0))
    tree = compile_expression(text, GRID.axis_names)
    wanted = np.not_equal(tree(x=x, y=y[:, None], z=z[:, None, None]), 0)
    np.testing.assert_array_equal(found, np.broadcast_to(wanted, found.shape))


def test_the_work_grows_with_the_surface(monkeypatch: pytest.MonkeyPatch) -> None:
    grid = Grid((128,) * 3, (0.01,) * 3, (0.0,) * 3)
    ball = Condition("hypot(x - 0.6, y - 0.6, z - 0.7) < 0.3", grid, "where")
    evaluated = []

    def counted(grid: Grid, box: Box) -> object:
        evaluated.append(np.prod([high - low for low, high in box]))
        return positions(grid, box)

    monkeypatch.setattr(shapes, "positions", counted)
    assert ball(((0, 128),) * 3).sum() == pytest.approx(4 / 3 * np.pi * 30**3, rel=2e-3)
    assert sum(evaluated) < 0.1 * 128**3


def test_what_is_not_finite_is_found_inside_a_decided_box() -> None:
    grid = Grid((64, 64), (1.0, 1.0), (0.0, 0.0))
    with pytest.raises(ConfigError, match=r"where: the expression is inf at x = 40"):
        Condition("1 / (x - 40)", grid, "where")(((0, 64), (0, 64)))
    assert bounds_of(compile_expression("1 / x", ("x",)).tree, {"x": (-1.0, 1.0)}) is None
    assert bounds_of(compile_expression("exp(x)", ("x",)).tree, {"x": (1.0, 800.0)}) is None


def body_of_boxes(shape: list[int]) -> dict[str, object]:
    names = "xyz"[: len(shape)]
    boxes = [
        {name: [0.13 * k % 0.7, 0.13 * k % 0.7 + 0.21 + 0.02 * k] for name in names[: 1 + k % 3]}
        for k in range(7)
    ]
    kinds: list[dict[str, object]] = [{"material": "copper"}, {"void": True}, {"material": "water"}]
    return {
        "grid": {"shape": shape, "size": [1.0] * len(shape)},
        "model": {
            "type": "heat",
            "regions": [
                {"material": "aluminium"},
                *({**kinds[k % 3], "box": box} for k, box in enumerate(boxes)),
            ],
            "sources": [{"power": 3.0, "box": boxes[k]} for k in (4, 0)],
            "contacts": [{"between": ["aluminium", "copper"], "resistance": 1e-4}]
            if len(shape) > 1
            else [],
        },
        "initial": {"type": "constant", "value": 5},
        "boundaries": {"*": {"type": "neumann"}, "x-": {"type": "dirichlet", "value": 1}},
        "time": {"dt": "auto", "steps": 5},
    }


@pytest.mark.parametrize("shape", [[300_000], [900, 700], [50, 120, 110]])
def test_segments_stand_for_all_of_their_points(
    shape: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = make_config(body_of_boxes(shape), environ={}).build()
    evaluated: list[int] = []
    on = RasterizedBody.on

    def counted(self: RasterizedBody, axes: Any) -> Any:
        evaluated.append(math.prod(map(len, axes)))
        return on(self, axes)

    monkeypatch.setattr(RasterizedBody, "on", counted)
    make_config(body_of_boxes(shape), environ={}).build()
    assert sum(evaluated) < math.prod(shape) / 10

    # The same body, point by point: equal to the bit.
    begin = RasterizedBody.__init__

    def without_segments(self: RasterizedBody, *args: Any, **options: Any) -> None:
        begin(self, *args, **options)
        self.segments = None

    monkeypatch.setattr(RasterizedBody, "__init__", without_segments)
    wanted = make_config(body_of_boxes(shape), environ={}).build()
    whole = tuple((0, n) for n in found.grid.shape)
    assert found.conduction is not None
    assert wanted.conduction is not None
    np.testing.assert_array_equal(
        found.conduction.medium.ids(whole), wanted.conduction.medium.ids(whole)
    )
    assert found.dt == wanted.dt
    assert found.conduction.medium.names == wanted.conduction.medium.names
    sources = [it.conduction.source for it in (found, wanted) if it.conduction is not None]
    assert sources[0] is not None
    assert sources[1] is not None
    for mine, its in zip(sources[0].parameters, sources[1].parameters, strict=True):
        np.testing.assert_array_equal(mine.values, its.values)
