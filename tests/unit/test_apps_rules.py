"""Faces through which heat flows, against the equations that they solve."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq

from tetris_sim.apps.heat.rules import Surface, flowing, held, join
from tetris_sim.apps.time_functions import TimeFunction
from tetris_sim.model.conduction import AFFINE, MIRROR, Rule
from tetris_sim.model.formula import Constant, compile_expression, evaluate
from tetris_sim.model.radiation import STEFAN_BOLTZMANN


def course(text: str) -> TimeFunction:
    return TimeFunction(compile_expression(text, ["x", "y", "z", "t"]).tree)


def surface(d: float = 0.1, *k: float) -> Surface:
    return Surface(d, np.array(k or (1.0,)), {"x": Constant(2.0)})


def ghost(rule: Rule, mirror: Any, t: float = 0.0, code: int = 0, **place: float) -> Any:
    values: dict[str, Any] = {MIRROR: np.asarray(mirror, np.float64), **place}
    for parameter in rule.parameters:
        row = parameter.during(t, t)
        values[parameter.name] = row[code] if row.size > 1 else row[0]
    with np.errstate(all="ignore"):  # both sides of a condition are computed
        return evaluate(rule.program.tree, {k: np.asarray(v) for k, v in values.items()})


def test_convection_and_a_flux_keep_the_balance() -> None:
    d, k, h, ambient, flux = 0.2, 3.0, 7.0, -4.0, 50.0
    rules = [
        flowing(surface(d, 9.0, k), flux=[course("50")], h=course("7"), ambient=course("-4")),
        flowing(surface(d, 9.0, k), flux=[course("50 + 0*x")], h=course("7"), ambient=course("-4")),
        flowing(surface(d, 9.0, k), flux=[course("50")], h=course("7*y"), ambient=course("-4*t")),
    ]
    assert [rule.program == AFFINE for rule in rules] == [True, False, False]
    for rule in rules:
        g = ghost(rule, 11.0, t=1.0, code=1, y=1.0)
        face = (g + 11.0) / 2
        assert k * (g - 11.0) / d == pytest.approx(flux + h * (ambient - face))


def test_coordinates_along_the_normal_are_those_of_the_face() -> None:
    assert ghost(held(course("10*x + y"), surface()), 3.0, x=99.0, y=1.0) == 2 * 21 - 3.0
    assert ghost(held(course("10*x + y"), surface(), on_ghost=True), 3.0, x=99.0, y=1.0) == 21


@pytest.mark.parametrize("emissivity", [1e-3, 1.0])
@pytest.mark.parametrize("d_over_k", [1e-8, 1e-3, 1e-1, 1e3])
def test_radiation_is_solved_to_rounding(emissivity: float, d_over_k: float) -> None:
    s, zero = emissivity * STEFAN_BOLTZMANN, 273.15
    mirrors = np.array([-272.0, 0.0, 800.0, 5000.0])
    for ambient, h, q in ((-270.0, 0.0, 0.0), (1500.0, 0.0, 0.0), (20.0, 25.0, 0.0), (0.0, 5, 1e7)):
        rule = flowing(
            surface(d_over_k, 1.0),
            h=course(str(h)),
            ambient=course(str(ambient)),
            emissivity=emissivity,
            flux=[course(str(q))],
        )
        faces = (ghost(rule, mirrors) + mirrors) / 2 + zero
        for mirror, face in zip(mirrors, faces, strict=True):
            u, a = mirror + zero, ambient + zero

            def residual(x: float, u: float = u, a: float = a, h: float = h, q: float = q) -> float:
                return 2 / d_over_k * (u - x) + q + h * (a - x) + s * (a**4 - x**4)

            high = 2 * (max(u, a) + q * d_over_k)
            root = brentq(residual, 0.0, high, xtol=1e-12, rtol=1e-14)
            # 5e-13 K are lost where degC are made kelvin and back.
            assert face == pytest.approx(root, rel=1e-12, abs=1e-9)


def test_joined_rules_are_those_of_their_patches() -> None:
    ground = surface(0.1, 2.0, 5.0)
    rules = [
        held(course("3 + t"), ground),
        flowing(ground, flux=[course("8")]),
        flowing(ground, flux=[course("8*y*t")]),
        held(course("y"), ground),
        flowing(ground, h=course("4"), ambient=course("50"), emissivity=0.5),
    ]
    patches = np.arange(5, dtype=np.uint16).reshape(5, 1)
    for chosen in ([0, 1], [2, 3], [0, 1, 2, 3, 4]):
        face = join([rules[n] for n in chosen], patches[: len(chosen)], 1, 2)
        assert face.is_affine == (chosen == [0, 1])
        assert face.patches is not None
        assert face.patches(((1, 2), (7, 8))).tolist() == [[1]]
        for place, number in enumerate(chosen):
            for id_ in (0, 1):
                found = ghost(face.rule, 12.0, t=2.0, code=2 * place + id_, y=0.5)
                assert found == ghost(rules[number], 12.0, t=2.0, code=id_, y=0.5)
