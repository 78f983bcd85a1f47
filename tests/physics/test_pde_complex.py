"""Complex fields: formulas taken apart, exact solutions, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.support.config_cases import mistakes, read
from tetris_sim.apps.pde.complex_parts import Taken, with_definitions_apart
from tetris_sim.config.sections.schema import ComputeSection
from tetris_sim.model.formula import ExpressionError, compile_expression, evaluate
from tetris_sim.scheduler.machine.machine import find_machine
from tetris_sim.scheduler.planner import make_plan
from tetris_sim.simulation.loop import open_simulation

Numbers = npt.NDArray[Any]


@pytest.mark.parametrize(
    "text",
    [
        "1j*u + 2", "(1 + 2j)*u - v*u/3", "u/(u + 3j)", "1/(2 + u)", "u**3 - abs(u)**2*u", "-u", "+u",
        "exp(1j*v)*u", "conj(u)*u", "real(u) + 1j*imag(u)", "arg(u) + abs(u)**4", "abs(u)", "v**2*I",
        "where(v > 0, u, 1j)", "3e-1j*u + 2.5J", "abs(v)**3*u", "(u - 1j)*(u + 1j)", "u**2/v",
    ],
)  # fmt: skip
def test_parts_are_those_of_complex_arithmetic(text: str) -> None:
    u, v = 0.7 - 1.3j, 0.4
    names = {"np": np, "u": u, "v": v, "I": 1j, "real": np.real, "imag": np.imag, "arg": np.angle}
    names |= {"exp": np.exp, "conj": np.conj, "where": np.where, "abs": abs}
    expected = eval(text, names)  # noqa: S307  (the formulas above)
    given: dict[str, Any] = {
        "u_real": np.float64(0.7),
        "u_imag": np.float64(-1.3),
        "v": np.float64(v),
    }
    parts = [it or "0" for it in Taken(frozenset({"u"})).texts(text)]
    found = [float(evaluate(compile_expression(it, [*given]).tree, given)) for it in parts]
    assert complex(*found) == pytest.approx(complex(expected), rel=1e-14, abs=1e-15)


def test_operators_and_definitions_are_taken_apart() -> None:
    taken = Taken(frozenset({"u"}))
    for text, real, imag in (
        ("laplace(1j*u)", "laplace((-u_imag))", "laplace(u_real)"),
        ("div_grad(k, u)", "div_grad(k,u_real)", "div_grad(k,u_imag)"),
        ("mean(abs(u)**2)*u", None, None),
        ("0 = laplace(u) + 1j", "0 = laplace(u_real)", "0 = (laplace(u_imag)+1.0)"),
    ):
        found = taken.texts(text)
        assert real is None or found == (real, imag)
    definitions, taken = with_definitions_apart(
        {"b": "1j*a", "a": "u*u", "n": "abs(u)**2"}, ["u"], unit=True
    )
    assert {*definitions} == {"a_real", "a_imag", "b_real", "b_imag", "n"}
    for text, told in (
        ("sin(u)", "sin of a complex number"),
        ("u > 1", "a comparison of a complex"),
        ("u**0.5", "a power that is no whole number"),
        ("max(u)", "max of a complex"),
    ):
        with pytest.raises(ExpressionError, match=told):
            taken.texts(text)


# Schroedinger's equation, i u_t = -u_xx/2 + V u: a packet that moves and spreads, or swings.
TEXT = """\
grid: {{shape: [{n}], size: [40], origin: {{x: -20}}}}
model:
  type: pde
  accuracy: 4
  constants: {{k: 1.5}}
  definitions: {{potential: "{potential}"}}
  fields:
    psi:
      complex: true
      equation: "0.5j*laplace(psi) - 1j*potential*psi"
      initial: {{type: expression, expression: "pi**-0.25*exp(-(x - {start})**2/2 + 1j*{speed}*x)"}}
boundaries: {{x: {{type: periodic}}}}
time: {{t_end: {end}, dt: 0.004, scheme: rk4}}
compute: {{method: cpu.plain}}
"""


def solved(text: str, *more: str) -> Numbers:
    problem = read(text, *more).build()
    assert [it.name for it in problem.variables][:2] == ["psi_real", "psi_imag"]
    plan = make_plan(problem, find_machine(), ComputeSection(method="cpu.plain", threads=1))
    with open_simulation(problem, plan) as simulation:
        simulation.run()
        real, imag = simulation.field()[:2]
    return np.asarray(real + 1j * imag)


def test_a_free_packet_spreads_as_it_should() -> None:
    n, t, k = 400, 2.0, 1.5
    x = -20 + (np.arange(n) + 0.5) * 40 / n
    found = solved(TEXT.format(n=n, potential="0", start=-4, speed=1.5, end=t))
    y, width = x + 4, 1 + 1j * t
    phase = np.exp(1j * k * (x - k * t / 2))
    exact = np.pi**-0.25 / np.sqrt(width) * phase * np.exp(-((y - k * t) ** 2) / (2 * width))
    assert np.abs(found - exact).max() < 2e-3
    assert (np.abs(found) ** 2).sum() * 0.1 == pytest.approx(1, abs=1e-6)


def test_a_coherent_state_comes_back_in_a_trap() -> None:
    """A displaced ground state keeps its shape; after half a period it is on the other side."""
    n = 400
    x = -20 + (np.arange(n) + 0.5) * 40 / n
    found = solved(TEXT.format(n=n, potential="x**2/2", start=2, speed=0, end=np.pi))
    expected = np.pi**-0.25 * np.exp(-((x + 2) ** 2) / 2)
    np.testing.assert_allclose(np.abs(found), expected, atol=1e-3)

    def energy(psi: Numbers) -> float:
        slope = (np.roll(psi, -1) - psi) / 0.1
        return float((np.abs(slope) ** 2 / 2 + x**2 / 2 * np.abs(psi) ** 2).sum() * 0.1)

    begun = np.pi**-0.25 * np.exp(-((x - 2) ** 2) / 2)
    assert energy(found) == pytest.approx(energy(begun), rel=1e-4)
    assert (np.abs(found) ** 2).sum() * 0.1 == pytest.approx(1, abs=1e-6)


WAVE = """\
grid: {shape: [32], size: [6.283185307179586]}
model:
  type: pde
  constants: {b: 0.5, c: -1.2, q: 1}
  fields:
    psi:
      complex: true
      equation: "psi + (1 + b*1j)*laplace(psi) - (1 + c*I)*abs(psi)**2*psi"
      initial: {type: expression, expression: "sqrt(1 - 0.5)*exp(1j*x)"}
    n: {equation: "real(psi*conj(psi)) - n", initial: {type: constant, value: 0.5}}
boundaries: {x: {type: periodic}}
time: {t_end: 1, dt: 0.002, scheme: rk4}
"""


def test_a_plane_wave_of_ginzburg_and_landau() -> None:
    """With the difference q^2 on the grid: psi = sqrt(1 - q^2) exp(i (x - w t))."""
    h = 2 * np.pi / 32
    q2 = (2 - 2 * np.cos(h)) / h**2
    text = WAVE.replace("sqrt(1 - 0.5)", f"{float(np.sqrt(1 - q2))!r}")
    found = solved(text)
    x = (np.arange(32) + 0.5) * h
    turns = 0.5 * q2 - 1.2 * (1 - q2)
    exact = np.sqrt(1 - q2) * np.exp(1j * (x - turns))
    assert np.abs(found - exact).max() < 1e-9


def test_what_is_refused_says_why() -> None:
    def told(old: str, new: str) -> str:
        return "\n".join(mistakes(WAVE.replace(old, new)))

    assert "sin of a complex number" in told("abs(psi)**2*psi", "sin(psi)")
    assert "has an imaginary part, and what it gives is real" in told(
        "real(psi*conj(psi))", "psi*psi"
    )
    faces = told("{x: {type: periodic}}", "{x: {type: dirichlet, value: 1}}")
    assert "both parts of a complex field would be given it; write it under psi" in faces
    assert "it is the name of a part of psi" in told("    n: {eq", "    psi_real: {eq")
    assert "unknown name 'd'" in told("c*I", "d*I")
