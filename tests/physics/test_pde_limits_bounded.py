"""The largest stable step of equations is found soon, whatever is asked for."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from tests.support.pde_cases import config, field
from tetris_sim import Periodic, run, solve_pde
from tetris_sim.apps.initial import block_shape, read_boxes, sampled_boxes
from tetris_sim.apps.pde import stability
from tetris_sim.config import make_config
from tetris_sim.errors import NumericsError, UnstableStepError
from tetris_sim.model import reference
from tetris_sim.model.formula import compile_expression
from tetris_sim.model.grid import Grid
from tetris_sim.model.linearisation import bends
from tetris_sim.model.slab import Slab

SHAPES = [(40, 648, 64), (1024, 1024, 1024), (3000, 3000), (1_100_000,), (300, 5, 1000)]


def place(slab: Slab) -> Any:
    """A state that says where it is."""
    along = [np.arange(*ends) for ends in zip(slab.start, slab.stop, strict=True)]
    found = sum(part * 1000.0**axis for axis, part in enumerate(np.ix_(*along)))
    return np.broadcast_to(found, (2, *slab.shape))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_blocks_that_boxes_share_are_made_once(shape: tuple[int, ...]) -> None:
    sizes = block_shape(shape)
    made: list[tuple[int, ...]] = []

    def initial(slab: Slab) -> Any:
        spans = (
            range(start // size, -(-stop // size))
            for start, stop, size in zip(slab.start, slab.stop, sizes, strict=True)
        )
        made.extend(itertools.product(*spans))
        return place(slab)

    grid = Grid(shape, (1.0,) * len(shape), (0.0,) * len(shape))
    boxes = sampled_boxes(grid)
    states = read_boxes(initial, boxes, grid)
    for box, state in zip(boxes, states, strict=True):
        assert np.array_equal(state, place(Slab.box(box)))
    assert len(made) <= 4 * len(set(made))  # the four ranges along an axis may overlap


def bisected(spectrum: Any, factor: Any, growth: float) -> float:
    """The shortest of the limits of all waves, each found for itself."""
    low, high = np.zeros(spectrum.shape), 20 / np.abs(spectrum)
    high = np.minimum(high, 8 / growth) if growth else high
    for _ in range(60):
        middle = (low + high) / 2
        good = np.abs(factor(spectrum * middle)) <= np.exp(growth * middle) * (1 + 1e-14)
        low, high = np.where(good, middle, low), np.where(good, high, middle)
    return float(low.min())


@pytest.mark.parametrize("growth", [0.0, 0.3])
def test_limits_that_cannot_be_shortest_do_not_matter(growth: float) -> None:
    rng = np.random.default_rng(3)
    spectrum = rng.uniform(-9, -1e-3, 500) + 1j * rng.uniform(-2, 2, 500)
    spectrum = np.append(spectrum, growth) if growth else spectrum
    found = stability.longest_step(spectrum, "rk2")
    assert found == bisected(spectrum, lambda z: 1 + z + z * z / 2, growth) * (1 + 1e-7)


def system(fields: int) -> dict[str, Any]:
    names = [f"u{k}" for k in range(fields)]
    return {
        "grid": {"shape": [8, 8, 8], "spacing": ["1 m"] * 3},
        "model": {
            "type": "pde",
            "fields": {
                name: {
                    "equation": f"laplace({name}) - {name}*{names[k - 1]} + sin(t)*{names[k - 2]}",
                    "initial": {"type": "random", "low": 0.1, "high": 1, "seed": k},
                }
                for k, name in enumerate(names)
            },
        },
        "boundaries": {"*": {"type": "periodic"}},
        "time": {"t_end": "1 s"},
    }


@pytest.mark.parametrize("fields", [3])
def test_many_fields_are_looked_at_in_fewer_places(
    fields: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    solved = np.linalg.eigvals

    def eigvals(symbols: Any) -> Any:
        sizes.append(symbols.size)
        return solved(symbols)

    whole = make_config(system(fields)).build().dt
    monkeypatch.setattr(np.linalg, "eigvals", eigvals)
    monkeypatch.setattr(stability, "_SYMBOLS", 1 << 16)
    monkeypatch.setattr(stability, "_FOUND", {})
    few = make_config(system(fields)).build().dt
    one_sample_at_all_moments = 9 * 405 * fields**2
    assert len(sizes) == 18
    assert sum(sizes) <= 2 * max(1 << 16, one_sample_at_all_moments)
    assert math.isclose(few, whole, rel_tol=0.2)


HUMPS = "2/cosh(x - 10)**2 + 0.5/cosh(0.5*(x - 25))**2"
SPIRAL = {"a": field("0.1*a + 0.1*b", 0.1), "b": field("0.1*b - 0.1*a", 0.1)}
GROWING: dict[str, tuple[dict[str, Any], tuple[int, ...], tuple[float, ...], float, float]] = {
    "KdV": ({"u": field("-dx(dxx(u)) - 6*u*dx(u)", HUMPS)}, (64,), (40,), 0.23, 0.29),
    "KdV, half spacing": ({"u": field("-dx(dxx(u)) - 6*u*dx(u)", HUMPS)}, (128,), (40,), 0.031, 0.036),
    "carried": ({"u": field("0.1*u - dx(u)", "sin(2*pi*x/Lx)")}, (64,), (64,), 2.6, 3.1),
    "carried in 3D": ({"u": field("0.1*u - dx(u) - dy(u) - dz(u)", "sin(2*pi*x/Lx)")}, (8, 8, 8), (8, 8, 8), 0.9, 1.1),
    "van der Pol": ({"u": field("v", 0.1), "v": field("0.1*(1 - u**2)*v - u", 0.1)}, (16,), (16,), 2.7, 2.9),
    "Ginzburg-Landau": (
        {
            "a": field("laplace(a) - 2*laplace(b) + a - (a**2 + b**2)*(a - b)", "0.3*sin(2*pi*x/Lx)"),
            "b": field("laplace(b) + 2*laplace(a) + b - (a**2 + b**2)*(a + b)", "0.3*cos(2*pi*x/Lx)"),
        },
        (64,), (64,), 0.3, 0.45,
    ),
    "Brusselator": (
        {
            "u": field("laplace(u) + 1 - 4*u + u**2*v", 1.0),
            "v": field("0.1*laplace(v) + 3*u - u**2*v", {"type": "random", "low": 2.8, "high": 3.2}),
        },
        (64, 64), (64, 64), 0.43, 0.55,
    ),
}  # fmt: skip


def limit(fields: dict[str, Any], scheme: str = "rk4", **more: Any) -> float:
    found = config(fields, time={"steps": 1, "dt": "auto", "scheme": scheme}, **more).build()
    assert found.dt_limit is not None
    return found.dt_limit


@pytest.mark.parametrize("name", [*GROWING])
def test_waves_that_grow_and_swing_have_a_limit_near_that_of_the_scheme(name: str) -> None:
    fields, shape, size, low, high = GROWING[name]
    assert low < limit(fields, shape=shape, size=size) < high


def test_what_grows_and_swings_is_computed() -> None:
    """a + i b = 0.1 (1 + i) exp((0.1 - 0.1 i) t)."""
    time = {"t_end": 10, "dt": 0.1, "scheme": "rk4"}
    problem = config(SPIRAL, shape=(16,), time=time).build()
    found = reference.advance(problem.initial(Slab.whole(problem.grid)), problem, problem.steps)
    assert found[0, 0] == pytest.approx(0.1 * math.e * (math.cos(1) + math.sin(1)), rel=1e-6)


@pytest.mark.parametrize("along", [33, 65, 129, 257])
@pytest.mark.parametrize("name", ["KdV", "carried", "Ginzburg-Landau"])
def test_limits_do_not_depend_on_how_many_waves_are_looked_at(
    name: str, along: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields, shape, size, *_ = GROWING[name]
    few = limit(fields, shape=shape, size=size)
    monkeypatch.setattr(stability, "_FOUND", {})
    monkeypatch.setattr(stability, "_ALONG", {1: along})
    monkeypatch.setattr(stability, "_ALONG_LINES", along // 2 + 1)
    assert limit(fields, shape=shape, size=size) == pytest.approx(few, rel=0.05)


def test_third_derivatives_in_3d_are_seen_between_the_waves_of_the_lattice() -> None:
    equation = "-dx(dxx(u)) - dy(dyy(u)) - dz(dzz(u))"
    found = limit({"u": field(equation, "sin(2*pi*x/Lx)")}, shape=(8, 8, 8))
    assert found == pytest.approx(2 * math.sqrt(2) / (3 * 1.5 * math.sqrt(3)), rel=0.02)


@pytest.mark.parametrize("w", [10, 1000, 30000])
def test_weak_damping_sets_a_limit_and_is_not_called_none(w: int) -> None:
    fields = {"u": field(f"{w}*v - u", 0.1), "v": field(f"-{w}*u - v", 0.1)}
    assert limit(fields, "euler", shape=(16,)) == pytest.approx(2 / (1 + w * w), rel=1e-4)


def test_a_slow_swing_beside_fast_diffusion_is_followed() -> None:
    fields = {"u": field("1e4*laplace(u) + 0.01*v", 0.1), "v": field("-0.01*u", 0.1)}
    assert limit(fields, "euler", shape=(16,)) == pytest.approx(2 / 4e4, rel=1e-4)


def test_arrays_may_grow_if_they_are_allowed_to() -> None:
    u = np.sin(np.linspace(0, 2 * np.pi, 16, endpoint=False))
    given: Any = ({"u": u}, {"u": "laplace(u)"}, 1)
    with pytest.raises(UnstableStepError, match="largest stable step"):
        solve_pde(*given, dt=0.7, boundary=Periodic())
    found = solve_pde(*given, dt=0.7, boundary=Periodic(), allow_growth=True)["u"]
    np.testing.assert_allclose(
        found, u + 0.7 * (np.roll(u, 1) - 2 * u + np.roll(u, -1)), atol=1e-14
    )


def test_limits_are_kept_for_what_is_the_same_and_for_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stability, "_FOUND", {})

    def found(equation: str, start: Any, time: Any, **more: Any) -> int:
        config({"u": field(equation, start)}, time={"steps": 3, **time}, **more).build()
        return len(stability._FOUND)

    wave, auto = "sin(2*pi*x/Lx)", {"scheme": "euler"}
    assert found("laplace(u) - u**3", wave, auto) == 1
    assert found("laplace(u) - u**3", wave, auto) == 1
    others: list[tuple[Any, ...]] = [
        ("laplace(u) - u**3", "2*sin(2*pi*x/Lx)", auto),
        ("laplace(u) - 2*u**3", wave, auto),
        ("laplace(u) - x*u**3", wave, auto),
        ("laplace(u) - t*u**3", wave, auto),
        ("laplace(u) - u**3", wave, {"scheme": "rk4"}),
    ]
    for count, other in enumerate(others, 2):
        assert found(*other) == count
    assert found("laplace(u) - u**3", wave, auto, shape=(40, 40)) == len(others) + 2


def end(fields: dict[str, Any], scheme: str, t_end: float, **more: Any) -> tuple[float, float]:
    """The largest value of the first field at the end, by automatic steps, and their length."""
    sections: dict[str, Any] = {
        "grid": {"shape": [64], "size": [32], "origin": {"x": -16}},
        "model": {"type": "pde", "fields": fields},
        "boundaries": {"*": {"type": "neumann"}},
        "time": {"scheme": scheme, "t_end": t_end},
        "compute": {"devices": ["cpu"], "tuning_budget": 0, "threads": 1},
    }
    result = run(sections | more, progress=False)
    return float(np.abs(result.field(next(iter(fields)))).max()), result.config.build().dt


def start(text: str, value: float | str, **more: Any) -> dict[str, Any]:
    return {"equation": text, "initial": {"type": "expression", "expression": str(value)}} | more


SHALLOW = {
    "h": start("-flux(q, h, abs(q/h) + sqrt(h))", "1 if x < 0 else 0.2"),
    "q": start("-flux(q**2/h + h**2/2, q, abs(q/h) + sqrt(h))", 0),
}
HOT = {"x-": {"type": "dirichlet", "value": 2}, "x+": {"type": "neumann"}}
WARMING = {"x-": {"type": "dirichlet", "value": "0.1 + 0.1*t"}, "x+": {"type": "neumann"}}


@pytest.mark.parametrize("scheme", ["euler", "rk4"])
@pytest.mark.parametrize(
    ("fields", "t_end", "faces", "largest"),
    [
        # Water at rest is slower than what runs out of a broken dam.
        (SHALLOW, 8.0, {}, 1.0),
        # Nothing grows by itself, but sources carry fields to where they diffuse faster.
        ({"u": start("laplace(u**2) + 1", "1 + 0.01*cos(pi*x/16)")}, 8.0, {}, 9.0),
        ({"u": start("-flux(u**2/2) + 0.5*sin(pi*x/16)", 0.1)}, 30.0, {}, 3.0),
        # So do faces, and the point beside one answers faster to its ghost than any wave does.
        ({"u": start("laplace(u**3)", 0.1)}, 20.0, HOT, 2.0),
        ({"u": start("laplace(u**3)", 0.1)}, 20.0, WARMING, 2.1),
        ({"u": start("-flux(u**2/2)", 0.1)}, 20.0, HOT, 2.0),
        # A source that begins later, and one that moves.
        ({"u": start("laplace(u**2) + where(t > 4, 1, 0)", 0.1)}, 12.0, {}, 8.1),
    ],
)
def test_an_automatic_step_is_that_of_what_becomes_of_the_state(
    fields: dict[str, Any], t_end: float, faces: dict[str, Any], largest: float, scheme: str
) -> None:
    found, _ = end(fields, scheme, t_end, **({"boundaries": faces} if faces else {}))
    assert 0.85 * largest < found < 1.1 * largest


def test_what_has_no_end_is_told_soon() -> None:
    # A slope that is given lets u**3 flow in faster and faster: infinite after 1.25 s.
    faces = {"x-": {"type": "neumann", "flux": 1}, "x+": {"type": "neumann"}}
    with pytest.raises(NumericsError, match="not finite"):
        end({"u": start("laplace(u**3)", 0.1)}, "rk4", 400.0, boundaries=faces)


def test_what_stays_where_it_is_keeps_its_step() -> None:
    fields = {"u": start("laplace(u**2)", "1 + 0.5*cos(pi*x/16)")}
    _, dt = end(fields, "euler", 5.0)
    # The largest coefficient is 3, on a spacing of a half; steps divide the time evenly.
    assert 0.95 < dt / (0.9 * 0.25 / (2 * 3)) <= 1


@pytest.mark.parametrize(
    ("text", "curved"),
    [("k*u - 2*v + u/k", False), ("u*v", True), ("k/u", True), ("sqrt(u)", True), ("k*k", False)],
)
def test_formulas_that_bend(text: str, curved: bool) -> None:
    tree = compile_expression(text, ["k", "u", "v"]).tree
    assert bends(tree, {"u", "v"}) is curved
