"""`solve_pde` until a time: what it is given, when it ends, and what it gives back."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tetris_sim as ts
from tetris_sim.apps.pde.complex import as_text
from tetris_sim.apps.pde.language import Language
from tetris_sim.apps.time_functions import read_condition
from tetris_sim.errors import ConfigError, ConfigMistakesError
from tetris_sim.model.formula import ExpressionError
from tetris_sim.model.grid import Grid

N = 32
MIDDLES = (np.arange(N) + 0.5) / N
COLD = {"x": {"type": "dirichlet", "value": 0}}
RATE = (2 * N * math.sin(math.pi / 2 / N)) ** 2  # of the longest wave on this grid


def test_a_mode_decays_as_it_should() -> None:
    found = ts.solve_pde(
        {"u": "laplace(u)"},
        {"u": np.sin(np.pi * MIDDLES)},
        t_end=0.2,
        spacing=1 / N,
        faces=COLD,
        tolerance=1e-8,
        scheme="rk4",
        every=0.05,
    )
    assert found.time == pytest.approx(0.2)
    u = found.fields["u"]
    assert u.dims == ("time", "x")
    assert np.allclose(u.time, [0, 0.05, 0.1, 0.15, 0.2])
    exact = np.exp(-RATE * u.time.values)[:, None] * np.sin(np.pi * u.x.values)
    assert np.abs(u.values - exact).max() < 1e-7
    assert np.array_equal(found.field("u"), u.values[-1])
    assert found.report.exit_code == 0


@pytest.mark.parametrize(
    ("until", "time"),
    [
        ("max(u) < 0.5", math.log(2 / 1.0)),
        ("mean(u) <= 0.25", math.log(4)),
        ("integral(u) < 0.25", math.log(4)),
        ("t >= 0.3 or min(u) < k", 0.3),
    ],
)
def test_it_ends_when_a_condition_holds(until: str, time: float) -> None:
    found = ts.solve_pde(
        {"u": "-u"},
        {"u": np.ones(8)},
        t_end=5,
        dt=0.01,
        scheme="rk4",
        spacing=1 / 8,
        until=until,
        constants={"k": 0.1},
    )
    assert time <= found.time + 1e-9 < time + 0.011
    assert found.report.ended == f"Done: {until} holds (time.until.condition)"


def test_a_condition_that_holds_at_once_or_never() -> None:
    rates, start = {"u": "1"}, {"u": np.zeros(8)}
    assert ts.solve_pde(rates, start, t_end=1, dt=0.1, until="max(u) > 2").time == 1
    assert ts.solve_pde(rates, start, t_end=1, dt=0.1, until="max(u) < 1").time == 0


def test_adaptive_steps_look_a_hundred_times_or_as_often_as_asked() -> None:
    def ends(**more: object) -> float:
        return ts.solve_pde(
            {"u": "-u"},
            {"u": np.ones(8)},
            t_end=5,
            tolerance=1e-6,
            scheme="rk4",
            until="max(u) < 0.5",
            **more,
        ).time

    assert ends() == pytest.approx(0.7)
    assert ends(dt=0.5) == pytest.approx(1.0)


def test_calls_see_times_change_the_state_and_end_the_run() -> None:
    seen = []

    def call(simulation: ts.Simulation) -> None:
        seen.append((round(simulation.time, 6), float(simulation.field()[0].max())))
        if len(seen) == 2:
            simulation.set_field(np.full((4, 4), 5.0))
        if len(seen) == 4:
            raise StopIteration

    found = ts.solve_pde(
        {"u": "1"}, {"u": np.zeros((4, 4))}, t_end=10, dt=0.25, call=call, every=0.5
    )
    assert [time for time, _ in seen] == [0.5, 1.0, 1.5, 2.0]
    assert [value for _, value in seen] == pytest.approx([0.5, 1.0, 5.5, 6.0])
    assert found.time == 2.0
    assert found.report.ended == "Done: the call ended it"


def test_fields_may_be_numbers_formulas_and_sections_in_any_order() -> None:
    u, equations = np.zeros((3, 5)), {"u": "v - w", "v": "0", "w": "0"}
    start = {"u": u, "v": 2, "w": "x"}
    one = ts.solve_pde(equations, start, t_end=1, dt=0.5)
    other = ts.solve_pde(start, equations, t_end=1, dt=0.5)
    named = ts.solve_pde(equations=equations, initial=start, t_end="1 s", dt=0.5)
    expected = np.broadcast_to(2 - (np.arange(5) + 0.5), (3, 5))
    for it in (one, other, named):
        assert np.array_equal(it.field("u"), expected)
    drawn = ts.solve_pde(
        {"u": "0", "v": "0"},
        {"u": u, "v": {"type": "random", "low": 1, "high": 2}},
        t_end=1,
        dt=0.5,
    )
    assert 1 <= drawn.field("v").min() < drawn.field("v").max() < 2


def test_faces_of_all_and_of_one_field_as_sections_and_objects() -> None:
    u = np.zeros((6, 8))
    found = ts.solve_pde(
        {"u": "laplace(u)", "v": "laplace(v)"},
        {"u": u, "v": u},
        t_end=400,
        faces={"x": ts.Neumann(), "y-": ts.Dirichlet(0.0), "v": {"y+": ts.Dirichlet(6.0)}},
        scheme="etdrk4",
    )
    places = np.arange(6) + 0.5
    assert np.abs(found.field("u")).max() == 0
    assert np.abs(found.field("v") - places[:, None]).max() < 2e-4
    ring = ts.solve_pde({"u": "dx(u)"}, {"u": np.sin(2 * np.pi * MIDDLES)}, t_end=1,
                        spacing=1 / N, faces={"*": {"type": "periodic"}}, scheme="rk4")  # fmt: skip
    same = ts.solve_pde({"u": "dx(u)"}, {"u": np.sin(2 * np.pi * MIDDLES)}, t_end=1,
                        spacing=1 / N, boundary=ts.Periodic(), scheme="rk4")  # fmt: skip
    assert np.array_equal(ring.field(), same.field())


def test_functions_and_second_derivatives() -> None:
    def rates(u: Any, v: Any, k: Any, laplace: Any) -> Any:
        return laplace(u) - k * np.where(u > v, u, -v) ** 2, u * v

    rng = np.random.default_rng(3)
    start = {name: rng.random((5, 6)) for name in "uv"}
    texts = {"u": "laplace(u) - k*where(u > v, u, -v)**2", "v": "u*v"}
    options: dict[str, Any] = {"t_end": 0.5, "dt": 0.1, "constants": {"k": 0.5}}
    by_text = ts.solve_pde(texts, start, **options)
    by_function = ts.solve_pde(rates, start, **options)
    by_each = ts.solve_pde(
        {"u": texts["u"], "v": lambda u, v: u * v},
        start,
        **options,
    )
    for name in "uv":
        assert np.array_equal(by_text.field(name), by_function.field(name))
        assert np.array_equal(by_text.field(name), by_each.field(name))

    swing = ts.solve_pde(
        initial={"w": np.sin(np.pi * MIDDLES)},
        second_order={"w": "laplace(w)"},
        initial_velocity={"w": np.zeros(N)},
        t_end=math.pi / math.sqrt(RATE),
        spacing=1 / N,
        faces=COLD,
    )
    assert np.abs(swing.field("w") + np.sin(np.pi * MIDDLES)).max() < 2e-3


@pytest.mark.parametrize(
    "text",
    [
        "-u**2 + (-u)**2 - 3**-u",
        "where(u > 1 and not v < 2 or u == v, -1.5e-7, 2**v)",
        "advect(u, -v, u % 2 // 3) - flux(u, v, limiter=van_leer)",
        "1 < u <= v",
        "(u and v) + (u or v)",
    ],
)
def test_formulas_as_text_are_read_as_the_same_tree(text: str) -> None:
    language = Language(2, ("u", "v"))
    tree = language.read(text)
    assert language.read(as_text(tree)) == tree


def test_what_does_not_fit_is_said() -> None:
    u = {"u": np.zeros(4)}
    solve: Any = ts.solve_pde
    cases: dict[str, Callable[[], Any]] = {
        "steps and t_end": lambda: solve({"u": "0"}, u, 3, t_end=1),
        "until goes with t_end": lambda: solve(u, {"u": "0"}, 3, until="t > 1"),
        "give t_end, or steps": lambda: solve(u, {"u": "0"}),
        "differ in v": lambda: solve({"u": "0", "v": "0"}, u, t_end=1),
        "no array": lambda: solve({"u": "0"}, {"u": 1.0}, t_end=1),
        "2 right-hand sides": lambda: solve(lambda u: (u, u), u, t_end=1),
        r"max\(u\)": lambda: solve({"u": "0"}, u, t_end=1, dt=1, until="u > 1"),
        "unknown name": lambda: solve({"u": "0"}, u, t_end=1, dt=1, until="max(w) > 1"),
        "every": lambda: solve({"u": "0"}, u, t_end=1, dt=1, call=print),
    }
    for told, make in cases.items():
        with pytest.raises(ConfigError, match=told):
            make()


def test_conditions_of_a_configuration_name_key_and_column() -> None:
    plate = {
        "grid": {"shape": [8, 8], "size": [1, 1]},
        "model": {"type": "heat", "diffusivity": 1},
        "initial": {"type": "constant", "value": 100},
        "boundaries": {"*": {"type": "dirichlet", "value": 0}},
        "time": {"dt": "auto", "t_end": 1, "until": {"condition": "max(temperature) < 50"}},
    }
    cooled = ts.run(plate, progress=False)
    assert 45 < cooled.field().max() < 50
    for wrong in ("max(u) < 50", "max(temperature", "temperature < 50"):
        plate["time"]["until"] = {"condition": wrong}  # type: ignore[index]
        with pytest.raises(ConfigMistakesError, match=r"time\.until\.condition"):
            ts.make_config(plate)
    plate["time"]["until"] = {"condition": "t > 1", "change": 1}  # type: ignore[index]
    with pytest.raises(ConfigMistakesError, match="give one of change, condition"):
        ts.make_config(plate)


def test_a_run_that_a_condition_ended_is_over_when_it_is_continued(tmp_path: object) -> None:
    config = {
        "grid": {"shape": [8], "spacing": [1]},
        "model": {
            "type": "pde",
            "fields": {"u": {"equation": "1", "initial": {"type": "constant", "value": 0}}},
        },
        "boundaries": {"*": {"type": "neumann"}},
        "time": {"dt": 0.125, "t_end": 10, "until": {"condition": "max(u) >= 2", "every": 0.5}},
        "checkpoint": {"at_end": True},
    }
    first = ts.run(config, str(tmp_path), progress=False)
    again = ts.run(config, str(tmp_path), progress=False, resume="auto")
    assert first.time == again.time == 2.0


def test_cells_count_by_their_volumes_and_voids_not_at_all() -> None:
    grid = Grid((2, 3), (0.5, 2.0), (0.25, 1.0))
    u = np.array([[1.0, 2.0, np.nan], [3.0, 4.0, 5.0]])

    def holds(text: str) -> bool:
        condition = read_condition(text, _Model, ("x", "y"))
        return condition.holds(grid, 1.5, {"u": u})

    assert holds("integral(u) == 15 and mean(u) == 3 and max(u) == 5 and min(u) == 1")
    assert holds("t == 1.5 and max(x) == 5 and max(max(u, x)) == 5 and mean(k*u) == 6")
    assert not holds("max(u) > 5 or min(0*u + integral(u)) < 15")
    with pytest.raises(ExpressionError, match=r"integral\(x\)"):
        holds("x > 1")


class _Model:
    seen_names = ("u",)
    constants = {"k": 2.0}  # noqa: RUF012
